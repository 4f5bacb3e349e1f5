//! What it is: properties of an inode besides its kind and its names: flags, attributes, access control lists, a few bytes of
//! contents.
//! Input: what is set; the parent directory of a new inode. Output: the new [`Extras`], and the mode that follows from a list.
//! Invariants: an access control list and the mode agree, as `man 5 acl` defines it. Limits: a list names one user and has a mask,
//! and nothing else; flags are those of [`CHANGED`].

use diorite_format::{FileType, InodeFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The attributes that operations set. The last one gets large values.
pub(crate) const ATTRIBUTES: [&str; 3] = ["user.crash", "trusted.crash", "user.large"];

/// The flags that operations change.
pub(crate) const CHANGED: u32 = InodeFlags::NODUMP
    .with(InodeFlags::NOATIME)
    .with(InodeFlags::SYNC)
    .with(InodeFlags::DIRSYNC)
    .with(InodeFlags::JOURNAL_DATA)
    .with(SEALS)
    .bits();
/// An inode with one of these keeps its names, its mode and its attributes.
const SEALS: InodeFlags = InodeFlags::IMMUTABLE.with(InodeFlags::APPEND);

/// The version number at the beginning of an ACL in the kernel's attribute format, and the user in its entry.
const VERSION: u32 = 2;
const USER: u32 = 1000;
const NOBODY: u32 = u32::MAX;
/// The tag and the id of each entry, in the order of the entries.
const TAGS: [(u16, u32); 5] = [
    (1, NOBODY),
    (2, USER),
    (4, NOBODY),
    (16, NOBODY),
    (32, NOBODY),
];

/// Which of an inode's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// The list of the inode itself.
    Access,
    /// The list that new inodes in the directory inherit.
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

/// The permissions of the owner, a named user, the group, the mask, and others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct List(pub(crate) [u16; 5]);

impl List {
    /// The list in the kernel's attribute format.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for ((tag, id), permissions) in TAGS.into_iter().zip(self.0) {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&permissions.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// The list of an attribute's value; none if no operation sets such a list.
    pub(super) fn decode(bytes: &[u8]) -> Option<List> {
        let mut permissions = [0; 5];
        for (n, of) in permissions.iter_mut().enumerate() {
            let at = 4 + 8 * n + 2;
            *of = u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?);
        }
        Some(List(permissions)).filter(|list| list.encode() == bytes)
    }

    /// The list that a new inode with this mode inherits.
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

    /// The permission bits that agree with this list.
    fn permissions(self) -> u16 {
        let [owner, _, _, mask, others] = self.0;
        owner << 6 | mask << 3 | others
    }
}

fn split(mode: u16) -> [u16; 3] {
    [mode >> 6 & 7, mode >> 3 & 7, mode & 7]
}

/// An inode's properties. See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(super) flags: u32,
    /// The length of each attribute's value in bytes.
    pub(super) attributes: BTreeMap<u8, usize>,
    pub(super) access: Option<List>,
    pub(super) default: Option<List>,
    /// The length of the contents in bytes.
    pub(super) inside: usize,
}

impl Extras {
    /// The properties and the mode of a new inode in a directory with the properties `self`.
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

    /// Sets or removes a list; returns the resulting mode.
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

    /// True if contents can be stored in the inode.
    pub(super) fn has_room(&self) -> bool {
        self.inside == 0 && self.attributes.is_empty() && self.access.is_none() && !self.is_sealed()
    }
}
