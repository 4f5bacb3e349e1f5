//! Who uses how much: bytes and inodes of every owner, group and project.
//!
//! Input: inodes as they are judged. Output: sums, compared with usage files by `quota`. Invariant: sums of several threads add up. Limits: an entry for each id that an
//! inode in use has, so never more than there are such inodes, and only for kinds of which the volume keeps a usage file.

use diorite_format::quota::Kind;
use diorite_format::{Inode, Superblock};
use std::collections::HashMap;

/// Whom an inode counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Payers([u32; 3]);

impl Payers {
    pub(super) fn of(inode: &Inode) -> Payers {
        Payers([inode.uid, inode.gid, inode.projid])
    }
}

/// What somebody uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
    /// The usage file has an entry.
    pub(super) met: bool,
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
            by: Kind::ALL.map(|kind| sb.quota_file(kind).map(|_| HashMap::new())),
        }
    }

    /// So many sectors, and so many inodes.
    pub(super) fn add(&mut self, payers: Payers, sectors: u64, inodes: u64) {
        for (by, id) in self.by.iter_mut().zip(payers.0) {
            let Some(by) = by else { continue };
            let used = by.entry(id).or_default();
            used.bytes = used.bytes.saturating_add(sectors.saturating_mul(512));
            used.inodes = used.inodes.saturating_add(inodes);
        }
    }

    /// What another thread has found.
    pub(super) fn merge(&mut self, other: Usage) {
        for (mine, theirs) in self.by.iter_mut().zip(other.by) {
            let Some(mine) = mine else { continue };
            for (id, more) in theirs.into_iter().flatten() {
                let used = mine.entry(id).or_default();
                used.bytes = used.bytes.saturating_add(more.bytes);
                used.inodes = used.inodes.saturating_add(more.inodes);
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
