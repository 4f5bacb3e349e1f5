//! Usage: bytes and inodes of every user, group and project.
//!
//! Input: inodes as they are judged. Output: sums, compared with usage files by `quota`. Invariant: the sums of several threads
//! can be added. Limits: one entry for each id that an inode in use has, so never more than such inodes, and only for kinds
//! with a usage file. e2fsck 1.47 does not count symbolic links whose target is inline data, so a usage file is accepted with
//! and without them.

use diorite_format::quota::{Kind, usage_file};
use diorite_format::{FileType, Inode, MapKind, Superblock};
use std::collections::HashMap;

/// The ids that an inode counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Payers {
    ids: [u32; 3],
    /// The inode may be omitted.
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

/// Usage of one id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) all: Sum,
    /// The part that may be omitted.
    may: Sum,
    /// The usage file has an entry.
    pub(super) met: bool,
}

impl Used {
    /// Whether a usage file may have this value.
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
    /// Usage for the kinds that the volume counts.
    pub(super) fn new(sb: &Superblock) -> Usage {
        Usage {
            by: Kind::ALL.map(|kind| usage_file(sb, kind).map(|_| HashMap::new())),
        }
    }

    /// Adds sectors and inodes.
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

    /// Adds the results of another thread.
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

    /// Removes and returns all entries of one kind.
    pub(super) fn take(&mut self, kind: Kind) -> HashMap<u32, Used> {
        let by = Kind::ALL.into_iter().zip(&mut self.by);
        let mut of = by.filter(|(k, _)| *k == kind);
        of.next().and_then(|(_, by)| by.take()).unwrap_or_default()
    }
}
