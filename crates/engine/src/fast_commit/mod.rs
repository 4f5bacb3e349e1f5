//! The fast-commit module: replays fast commits, which are records of operations since the last transaction.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `inodes` | inode records -> inodes in the inode table, with their maps as they are |
//! | `ranges` | range records -> maps, bitmaps, block counts |
//! | `names` | name records -> directory entries, link counts |
//!
//! Input: a volume whose log is replayed, open for writing over a device in memory, and the fast commits that follow that log. Output:
//! the volume as they describe it, with correct checksums and counts. Invariants: records are replayed in their order; an inode becomes
//! what its record says except for its map, which range records make, and a directory's size and links, which name records make; blocks
//! and inodes that any record names are taken before anything is allocated; what a record asks for may be done already, so that an
//! interrupted replay can be begun again. Limits: a replay cannot be undone, so the caller keeps the result apart from the volume until
//! it is complete.
//!
//! The kernel leaves out of the records: the inodes, blocks and times of directories, the nodes of maps, and whatever was made and removed
//! between two fast commits. So a record may remove a name that was never added, from a directory that never existed.
//!
//! # How they take effect
//!
//! Fast commits are not blocks but records of operations since the last transaction: an inode has these bytes, an inode has these blocks,
//! a name was added or removed. So they are replayed by the modules that do such operations. A volume without a log of its own is opened
//! over a `Scratch`, a device that shows the replayed log and keeps in memory what is written (`mount/fast.rs`), and this module goes
//! through the records in their order. A fast commit counts as a whole or not at all: its checksum is right, it names the transaction at
//! which the log ended, and all fast commits before it count. The blocks in the scratch at the end are the result: readers get one more
//! overlay. For writers the result replaces the fast commits, between steps 1 and 2 of recovery (`mount/mod.rs`):
//!
//! 1. The blocks of the log are at home. The log's start moves to its end, where nothing follows: the fast commits still count.
//! 2. The changed blocks are written there as one transaction; flush, its commit block, flush. Now the transaction counts, and the fast
//!    commits do not.
//! 3. The changed blocks are written home, flush; then the log is emptied as in recovery.
//!
//! So a crash at any point leaves the fast commits or the transaction, and nothing is replayed over half-written blocks. Blocks that
//! records name are taken before anything is allocated; maps are rebuilt, as records have no nodes; directories get their names one by
//! one and grow as needed; at the end inodes without a name are deleted, and every block of every inode concerned is marked used.

mod inodes;
mod names;
mod ranges;

use crate::delete;
use crate::disk::read_disk_inode;
use crate::error::Error;
use crate::inode::Fs;
use crate::inode::Inode;
use crate::inode::read_orphan;
use diorite_format::journal::{FastCommit, FastRecord};
use diorite_format::{FileType, Ino};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Replays fast commits on `volume`. Blocks; no lock may be held.
pub(crate) fn replay(volume: &Arc<Fs>, commits: &[FastCommit]) -> Result<(), Error> {
    delete::load(volume)?;
    let mut replay = Replay {
        volume,
        inodes: BTreeMap::new(),
        names_of: BTreeMap::new(),
    };
    for record in commits.iter().flatten() {
        replay.reserve(record)?;
    }
    for commit in commits {
        let inodes = InodeRecords::of(commit);
        for at in 0..commit.len() {
            let place = Place {
                commit,
                inodes: &inodes,
                at,
            };
            replay.record(place)?;
        }
    }
    replay.finish()
}

/// A replay under way.
struct Replay<'v> {
    volume: &'v Arc<Fs>,
    /// Every inode that a record has named, as it is now.
    inodes: BTreeMap<Ino, Arc<Inode>>,
    /// How many names a directory has, where that is not 1.
    names_of: BTreeMap<Ino, u32>,
}

/// A record, by its index in its fast commit.
#[derive(Clone, Copy)]
struct Place<'c> {
    commit: &'c FastCommit,
    inodes: &'c InodeRecords,
    at: usize,
}

/// The indices of each inode's records in a fast commit, ascending: every record asks for the next one of its inode.
struct InodeRecords(BTreeMap<Ino, Vec<usize>>);

impl InodeRecords {
    fn of(commit: &FastCommit) -> InodeRecords {
        let mut places: BTreeMap<Ino, Vec<usize>> = BTreeMap::new();
        for (at, record) in commit.iter().enumerate() {
            if let FastRecord::Inode { ino, .. } = record {
                places.entry(*ino).or_default().push(at);
            }
        }
        InodeRecords(places)
    }

    /// The first record of an inode at this index or behind it.
    fn next_of(&self, ino: Ino, at: usize) -> Option<usize> {
        let places = self.0.get(&ino)?;
        places.get(places.partition_point(|p| *p < at)).copied()
    }
}

impl<'c> Place<'c> {
    /// The bytes that this fast commit gives an inode, here or further on.
    fn next_of(self, wanted: Ino) -> Option<&'c [u8]> {
        match &self.commit[self.inodes.next_of(wanted, self.at)?] {
            FastRecord::Inode { raw, .. } => Some(raw),
            _ => None,
        }
    }
}

impl Replay<'_> {
    fn record(&mut self, place: Place<'_>) -> Result<(), Error> {
        match &place.commit[place.at] {
            FastRecord::Inode { ino, raw } => self.put_inode(*ino, raw, place),
            FastRecord::AddRange { ino, extent } => self.add_range(*ino, extent, place),
            FastRecord::RemoveRange { ino, start, len } => {
                self.remove_range(*ino, (*start, *len), place)
            }
            FastRecord::Create(name) => self.add_name(name, true, place),
            FastRecord::Link(name) => self.add_name(name, false, place),
            FastRecord::Unlink(name) => self.remove_name(name, place),
        }
    }

    /// An inode that is in use, with or without a name.
    fn inode(&mut self, ino: Ino) -> Result<Option<Arc<Inode>>, Error> {
        if let Some(known) = self.inodes.get(&ino) {
            return Ok(Some(known.clone()));
        }
        self.check_ino(ino)?;
        let alloc = self.volume.alloc()?;
        if !alloc.has_inode(self.volume, ino)? {
            return Ok(None);
        }
        let disk = read_disk_inode(self.volume, ino)?;
        if disk.file_type.is_none() {
            return Ok(None);
        }
        let known = self.volume.known_inode(ino);
        let inode = match known {
            Some(inode) => inode,
            None => {
                let inode = read_orphan(self.volume, ino)?;
                self.volume.know(&inode);
                inode
            }
        };
        self.inodes.insert(ino, inode.clone());
        Ok(Some(inode))
    }

    /// Refuses inodes that no fast commit may name: the volume's own, except the root.
    fn check_ino(&self, ino: Ino) -> Result<(), Error> {
        let (volume, sb) = (self.volume, &self.volume.sb);
        sb.check_ino(ino.get())
            .map_err(|e| Error::from(e).at("fast commits"))?;
        if volume.is_system_inode(ino) || sb.orphan_file() == Some(ino) {
            return Err(damaged(ino, "is one of the volume's own"));
        }
        Ok(())
    }

    /// Deletes inodes that have no name; marks the blocks of all others as used.
    fn finish(mut self) -> Result<(), Error> {
        // After this commit freed blocks may be used again; records may have given them to other inodes already.
        self.volume.commit_running()?;
        for (ino, inode) in std::mem::take(&mut self.inodes) {
            // A directory that never got its name has no block.
            let is_bare = is_dir(&inode) && inode.size() == 0;
            if inode.disk().links == 0 || is_bare {
                drop(inode);
                self.erase(ino)?;
            } else {
                self.own_blocks(&inode)?;
            }
        }
        self.volume.commit_running()
    }
}

fn is_dir(inode: &Inode) -> bool {
    inode.disk().file_type == Some(FileType::Directory)
}

fn damaged(ino: Ino, why: &str) -> Error {
    Error::Damaged(format!("fast commits: inode {ino} {why}; run e2fsck"))
}

#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests {
    use super::*;

    /// What each place of a fast commit says of each inode, found by going through all that follows. The defect: so did the
    /// replay, for each record, which took time with the square of the records.
    #[test]
    fn the_next_record_of_an_inode_is_the_first_that_follows() {
        let commit: FastCommit = (0..200u32)
            .map(|n| match n * 7 % 5 {
                0 => FastRecord::RemoveRange {
                    ino: Ino::new(n % 3),
                    start: n,
                    len: 1,
                },
                kind => FastRecord::Inode {
                    ino: Ino::new(n * n % 11 + kind),
                    raw: n.to_le_bytes().to_vec(),
                },
            })
            .collect();
        let inodes = InodeRecords::of(&commit);
        let kept: usize = inodes.0.values().map(Vec::len).sum();
        assert_eq!(kept, 160, "a place is kept once");
        for at in 0..=commit.len() {
            for ino in (0..20).map(Ino::new) {
                let slow = commit[at..].iter().find_map(|r| match r {
                    FastRecord::Inode { ino: i, raw } if *i == ino => Some(&raw[..]),
                    _ => None,
                });
                let place = Place {
                    commit: &commit,
                    inodes: &inodes,
                    at,
                };
                assert_eq!(place.next_of(ino), slow, "{ino} from {at} on");
            }
        }
    }
}
