//! The properties of an inode besides contents and names (mode, owner, flags, attributes, a time), and what a new inode inherits.
//!
//! Input: what is set. Output: what is expected then. Invariants: an access control list and the mode agree. Limits: a time is
//! known only from when it was set until something changes it.
//! Source: man 5 acl, man 7 xattr, man 1 chattr; compared with the kernel in the tests of lists and flags.

use diorite_format::{InodeFlags, Timestamp};
use std::collections::BTreeMap;

pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The owner of all new inodes.
pub(super) const OWNER: (u32, u32) = (7, 8);

const SETGID: u16 = 0o2000;

/// Flags that are compared.
pub(super) const FLAGS: InodeFlags = OF_ALL.with(OF_HOLDERS).with(InodeFlags::DIRSYNC);
/// The flags that a new inode inherits from its directory: those for all inodes; those for files and directories; DIRSYNC for
/// directories.
pub(super) const OF_ALL: InodeFlags = InodeFlags::NODUMP.with(InodeFlags::NOATIME);
pub(super) const OF_HOLDERS: InodeFlags = InodeFlags::SYNC.with(InodeFlags::JOURNAL_DATA);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Dir,
    File,
    Link,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Has {
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) flags: InodeFlags,
    pub(super) mtime: Option<Timestamp>,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Has {
    pub(super) fn root() -> Has {
        Has {
            mode: 0o755,
            uid: 0,
            gid: 0,
            flags: InodeFlags::default(),
            mtime: None,
            xattrs: BTreeMap::new(),
        }
    }

    /// What a new inode of this sort gets in a directory with these properties.
    pub(super) fn handed_down(&self, sort: Sort, mode: u16) -> Has {
        let gives_group = self.mode & SETGID != 0;
        let keeps = match gives_group && sort == Sort::Dir {
            true => SETGID,
            false => 0,
        };
        let flags = match sort {
            Sort::Dir => FLAGS,
            Sort::File => OF_ALL.with(OF_HOLDERS),
            Sort::Link | Sort::Other => OF_ALL,
        };
        let mut has = Has {
            mode: mode | keeps,
            uid: OWNER.0,
            gid: if gives_group { self.gid } else { OWNER.1 },
            flags: InodeFlags::from_bits(self.flags.bits() & flags.bits()),
            ..Has::root()
        };
        if let Some(default) = self.xattrs.get(DEFAULT).filter(|_| sort != Sort::Link) {
            let mut access = List::parse(default);
            let least = access.permissions() & mode;
            access.follow(least);
            has.mode = has.mode & !0o777 | least;
            if access.0.len() > 3 {
                has.xattrs.insert(ACCESS.to_vec(), access.bytes());
            }
            if sort == Sort::Dir {
                has.xattrs.insert(DEFAULT.to_vec(), default.clone());
            }
        }
        has
    }

    pub(super) fn set_mode(&mut self, mode: u16) {
        self.mode = mode;
        if let Some(list) = self.xattrs.get_mut(ACCESS) {
            let mut follows = List::parse(list);
            follows.follow(mode);
            *list = follows.bytes();
        }
    }

    pub(super) fn set_list(&mut self, name: &[u8], list: &List) {
        if name == ACCESS {
            self.mode = self.mode & !0o777 | list.permissions();
            if list.0.len() == 3 {
                self.xattrs.remove(name);
                return;
            }
        }
        self.xattrs.insert(name.to_vec(), list.bytes());
    }
}

const MASK: u16 = 16;
const NO: u32 = u32::MAX;

/// An access control list: tags, permissions, ids, in order.
#[derive(Clone, Debug)]
pub(super) struct List(Vec<(u16, u16, u32)>);

impl List {
    /// A list without named entries, or with one and a mask.
    pub(super) fn new(permissions: u64, named: u32) -> List {
        let of = |shift: u32| (permissions >> shift & 7) as u16;
        let mut list = vec![(1, of(0), NO), (4, of(3), NO), (32, of(6), NO)];
        if named > 0 {
            list.insert(2, (MASK, of(9), NO));
            list.splice(1..1, (0..named).map(|n| (2, of(12), 1000 + n)));
        }
        List(list)
    }

    fn parse(bytes: &[u8]) -> List {
        let half = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
        let entry = |e: &[u8]| {
            let id = u32::from_le_bytes([e[4], e[5], e[6], e[7]]);
            (half(e), half(&e[2..]), id)
        };
        List(bytes[4..].chunks(8).map(entry).collect())
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in &self.0 {
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&perm.to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        }
        out
    }

    /// The tag of the entry that the mode's group permissions stand for.
    fn group(&self) -> u16 {
        match self.0.iter().any(|e| e.0 == MASK) {
            true => MASK,
            false => 4,
        }
    }

    fn permissions(&self) -> u16 {
        let of = |tag| self.0.iter().find(|e| e.0 == tag).map_or(0, |e| e.1);
        of(1) << 6 | of(self.group()) << 3 | of(32)
    }

    fn follow(&mut self, mode: u16) {
        let group = self.group();
        for (tag, perm, _) in &mut self.0 {
            match *tag {
                1 => *perm = mode >> 6 & 7,
                32 => *perm = mode & 7,
                tag if tag == group => *perm = mode >> 3 & 7,
                _ => {}
            }
        }
    }
}
