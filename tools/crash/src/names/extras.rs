//! What it is: what an inode has beside its kind and its names: flags, attributes, lists of who may do what, a few bytes of contents.
//! Input: what is set; the directory that something is made in. Output: the new [`Extras`], and the mode that follows from a list.
//! Invariants: a list and the mode say the same, as `man 5 acl` has it. Limits: a list names one user, has a mask, and no more; flags are those of [`CHANGED`].

use diorite_format::{FileType, InodeFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The attributes that operations set. The last is for large values.
pub(crate) const ATTRIBUTES: [&str; 3] = ["user.crash", "trusted.crash", "user.large"];

/// Flags that operations change.
pub(crate) const CHANGED: u32 = InodeFlags::NODUMP
    .with(InodeFlags::NOATIME)
    .with(InodeFlags::SYNC)
    .with(InodeFlags::DIRSYNC)
    .with(InodeFlags::JOURNAL_DATA)
    .with(SEALS)
    .bits();
/// What has one of these keeps its names, its mode and its attributes.
const SEALS: InodeFlags = InodeFlags::IMMUTABLE.with(InodeFlags::APPEND);

/// The kernel's user of an attribute's value begins with this version, and has this user in it.
const VERSION: u32 = 2;
const USER: u32 = 1000;
const NOBODY: u32 = u32::MAX;
/// Who the entries are for, in the order in which they stand.
const TAGS: [(u16, u32); 5] = [
    (1, NOBODY),
    (2, USER),
    (4, NOBODY),
    (16, NOBODY),
    (32, NOBODY),
];

/// Whose list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// The inode's.
    Access,
    /// What is made in the directory begins with it.
    Default,
}

impl Which {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Which::Access => "system.posix_acl_access",
            Which::Default => "system.posix_acl_default",
        }
    }
}

/// Permissions of the owner, a user, the group, the mask, the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct List(pub(crate) [u16; 5]);

impl List {
    /// As the kernel's interface has it.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for ((tag, id), permissions) in TAGS.into_iter().zip(self.0) {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&permissions.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// None for a list that no operation sets.
    pub(super) fn decode(bytes: &[u8]) -> Option<List> {
        let mut permissions = [0; 5];
        for (n, of) in permissions.iter_mut().enumerate() {
            let at = 4 + 8 * n + 2;
            *of = u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?);
        }
        Some(List(permissions)).filter(|list| list.encode() == bytes)
    }

    /// The same for a new inode with these permissions.
    fn limited(self, mode: u16) -> List {
        let [owner, user, group, mask, others] = self.0;
        let [of_owner, of_group, of_others] = split(mode);
        List([
            owner & of_owner,
            user,
            group,
            mask & of_group,
            others & of_others,
        ])
    }

    fn following(self, mode: u16) -> List {
        let ([_, user, group, _, _], [owner, mask, others]) = (self.0, split(mode));
        List([owner, user, group, mask, others])
    }

    /// The permissions of a mode that say the same.
    fn permissions(self) -> u16 {
        let [owner, _, _, mask, others] = self.0;
        owner << 6 | mask << 3 | others
    }
}

fn split(mode: u16) -> [u16; 3] {
    [mode >> 6 & 7, mode >> 3 & 7, mode & 7]
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(super) flags: u32,
    /// Bytes of each attribute.
    pub(super) attributes: BTreeMap<u8, usize>,
    pub(super) access: Option<List>,
    pub(super) default: Option<List>,
    /// Bytes of contents.
    pub(super) inside: usize,
}

impl Extras {
    /// Of something new in a directory with `self`, and its mode.
    pub(super) fn inherit(&self, kind: FileType, mode: u16) -> (Extras, u16) {
        let is_dir = kind == FileType::Directory;
        let list = self.default.filter(|_| kind != FileType::Symlink);
        let access = list.map(|list| list.limited(mode));
        let extras = Extras {
            access,
            default: list.filter(|_| is_dir),
            ..self.inherit_flags(kind)
        };
        let mode = access.map_or(mode, |list| mode & !0o777 | list.permissions());
        (extras, mode)
    }

    fn inherit_flags(&self, kind: FileType) -> Extras {
        let of_all = InodeFlags::NODUMP.with(InodeFlags::NOATIME);
        let of_files = of_all.with(InodeFlags::SYNC).with(InodeFlags::JOURNAL_DATA);
        let of_kind = match kind {
            FileType::Directory => of_files.with(InodeFlags::DIRSYNC),
            FileType::Regular => of_files,
            _ => of_all,
        };
        Extras {
            flags: self.flags & of_kind.bits(),
            ..Extras::default()
        }
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.flags & SEALS.bits() != 0
    }

    /// Takes a list, or lets go of it; gives the mode that follows.
    pub(super) fn set_list(&mut self, which: Which, list: Option<List>, mode: u16) -> u16 {
        match which {
            Which::Default => {
                self.default = list;
                mode
            }
            Which::Access => {
                self.access = list;
                list.map_or(mode, |list| mode & !0o777 | list.permissions())
            }
        }
    }

    pub(super) fn follow_mode(&mut self, mode: u16) {
        self.access = self.access.map(|list| list.following(mode));
    }

    /// Has it room in its inode for some contents?
    pub(super) fn has_room(&self) -> bool {
        self.inside == 0 && self.attributes.is_empty() && self.access.is_none() && !self.is_sealed()
    }
}
