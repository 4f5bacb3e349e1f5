//! Who uses how much: bytes and inodes of every owner, group and project.
//!
//! Input: inodes as they are judged. Output: sums, compared with usage files by `quota`. Invariant: sums of several threads add up. Limits: an entry for each id that an
//! inode in use has, so never more than there are such inodes, and only for kinds of which the volume keeps a usage file. e2fsck 1.47 leaves links out whose target is inline
//! data: usage files are right with them and without.

use diorite_format::quota::{Kind, usage_file};
use diorite_format::{FileType, Inode, MapKind, Superblock};
use std::collections::HashMap;

/// Whom an inode counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Payers {
    ids: [u32; 3],
    /// It may be left out.
    may: bool,
}

impl Payers {
    pub(super) fn of(inode: &Inode) -> Payers {
        let link = inode.file_type == Some(FileType::Symlink);
        Payers {
            ids: [inode.uid, inode.gid, inode.projid],
            may: link && inode.map_kind() == MapKind::Inline,
        }
    }
}

/// Bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
}

impl Sum {
    fn add(&mut self, more: Sum) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.inodes = self.inodes.saturating_add(more.inodes);
    }
}

/// What somebody uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) all: Sum,
    /// The part of it that may be left out.
    may: Sum,
    /// The usage file has an entry.
    pub(super) met: bool,
}

impl Used {
    /// Whether a usage file may say this.
    pub(super) fn fits(&self, says: Sum) -> bool {
        let least = Sum {
            bytes: self.all.bytes.saturating_sub(self.may.bytes),
            inodes: self.all.inodes.saturating_sub(self.may.inodes),
        };
        says == self.all || says == least
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Usage {
    by: [Option<HashMap<u32, Used>>; 3],
}

impl Usage {
    /// Of the kinds that the volume counts.
    pub(super) fn new(sb: &Superblock) -> Usage {
        Usage {
            by: Kind::ALL.map(|kind| usage_file(sb, kind).map(|_| HashMap::new())),
        }
    }

    /// So many sectors, and so many inodes.
    pub(super) fn add(&mut self, payers: Payers, sectors: u64, inodes: u64) {
        let bytes = sectors.saturating_mul(512);
        for (by, id) in self.by.iter_mut().zip(payers.ids) {
            let Some(by) = by else { continue };
            let used = by.entry(id).or_default();
            used.all.add(Sum { bytes, inodes });
            if payers.may {
                used.may.add(Sum { bytes, inodes });
            }
        }
    }

    /// What another thread has found.
    pub(super) fn merge(&mut self, other: Usage) {
        for (mine, theirs) in self.by.iter_mut().zip(other.by) {
            let Some(mine) = mine else { continue };
            for (id, more) in theirs.into_iter().flatten() {
                let used = mine.entry(id).or_default();
                used.all.add(more.all);
                used.may.add(more.may);
            }
        }
    }

    /// All of one kind.
    pub(super) fn take(&mut self, kind: Kind) -> HashMap<u32, Used> {
        let by = Kind::ALL.into_iter().zip(&mut self.by);
        let mut of = by.filter(|(k, _)| *k == kind);
        of.next().and_then(|(_, by)| by.take()).unwrap_or_default()
    }
}
