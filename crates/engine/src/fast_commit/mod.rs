//! The fast-commit room: what was done since the last transaction, done again.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `inodes` | the bytes of inodes -> their places in the table, maps as they are here |
//! | `ranges` | file blocks and where they are -> maps, bitmaps, counts |
//! | `names` | names made and gone -> directories, counts of links |
//!
//! Input: a volume whose log is replayed, open for writing over a device in memory, and the fast commits that follow that log. Output:
//! the volume as they say, its sums and counts right. Invariants: in the order of the records; an inode is what its record says but for
//! its map, which the ranges make, and a directory's size and links, which the names make; blocks and inodes that any record names are
//! taken before anything is allocated; what a record asks for and is there already stays, so that a replay which somebody began may be
//! begun again. Limits: what this does cannot be undone, so whoever calls keeps it apart from the volume until all of it is done.
//!
//! What the records leave out, as the kernel writes them: the directories' own inodes, blocks and times, the nodes of maps, and whatever
//! was made and removed between two fast commits. So a name may go that never came, from a directory that never was.
//!
//! # How they take effect
//!
//! Fast commits (`fast_commit`) are records of what was done since the last transaction - an inode is this now, these blocks are its,
//! this name came or went - and not blocks, so they are done again by the rooms that do such things: a volume without a log of its own
//! is opened over a `Scratch`, a device that shows the replayed log and keeps in memory what is written (`mount/fast.rs`), and the
//! `fast_commit` room goes through the records in their order. A fast commit counts whole or not at all: its sum holds, it names the
//! transaction that the log ended before, and all before it count. What the scratch holds at the end is the result: readers get one
//! overlay more. For writers it takes the place of the fast commits in one step, between 1 and 2 above:
//!
//! 1. the log's blocks are home; the log's start moves to its end, where nothing follows: the fast commits still count
//! 2. the changed blocks are written there as one transaction, flush, its commit block, flush: now they count, and the fast commits do
//!    not
//! 3. they go home, flush; the log is emptied as above
//!
//! So a crash anywhere leaves the fast commits or the transaction, and nothing has to be done twice to half-written blocks. Blocks that
//! records name are taken before anything is allocated; maps are rebuilt (records know no nodes), directories get their names one by
//! one and grow as they need; at the end what has no name is deleted, and every block of every inode concerned is seen to be used.

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

/// Replays fast commits. Blocks; no lock may be held.
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
    /// Every inode that was named, as it is now.
    inodes: BTreeMap<Ino, Arc<Inode>>,
    /// How many names a directory has, if that is not one.
    names_of: BTreeMap<Ino, u32>,
}

/// A record among those of its fast commit.
#[derive(Clone, Copy)]
struct Place<'c> {
    commit: &'c FastCommit,
    inodes: &'c InodeRecords,
    at: usize,
}

/// Where in a fast commit the records of each inode are, in ascending order: each record asks for the next one of its inode.
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

    /// The first one of an inode that is at this place or further on.
    fn next_of(&self, ino: Ino, at: usize) -> Option<usize> {
        let places = self.0.get(&ino)?;
        places.get(places.partition_point(|p| *p < at)).copied()
    }
}

impl<'c> Place<'c> {
    /// What this fast commit says of an inode, here or further on.
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
                let inode = Arc::new(read_orphan(self.volume, ino)?);
                self.volume.know(&inode);
                inode
            }
        };
        self.inodes.insert(ino, inode.clone());
        Ok(Some(inode))
    }

    /// Fast commits are about files, directories and the root.
    fn check_ino(&self, ino: Ino) -> Result<(), Error> {
        let (volume, sb) = (self.volume, &self.volume.sb);
        sb.check_ino(ino.get())
            .map_err(|e| Error::from(e).at("fast commits"))?;
        if volume.is_system_inode(ino) || sb.orphan_file() == Some(ino) {
            return Err(damaged(ino, "is one of the volume's own"));
        }
        Ok(())
    }

    /// What no name stands for goes; all others have their blocks for themselves.
    fn finish(mut self) -> Result<(), Error> {
        // What was freed may be used again from here on, and may be used already.
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

#[cfg(all(test, not(any(feature = "loom", feature = "shuttle"))))]
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
