//! Inodes that a frontend refers to by number, with a count of references for each (the lookup count of FUSE).
//!
//! Input: inodes when they are handed out, when they are forgotten, when they lose their last name or get one. Output: which inodes are
//! known. Invariants: an inode without a name that has a reference is held in memory, so it is not deleted: whoever takes its last name
//! has it in memory, and hands it over here. Others need not be in memory: they are read again by their number. Limits: [`MOST_HELD`]
//! inodes with a name are held, first in first out; the rest take some 50 bytes each.

use crate::inode::Inode;
use crate::locks::KNOWN;
use diorite_block::sync::Mutex;
use diorite_format::Ino;
use foldhash::fast::RandomState;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// How many inodes with a name are held at most: a frontend that has just looked one up mostly asks for it again at once. An inode in
/// memory takes some 2 KiB.
const MOST_HELD: usize = 1024;

/// The known inodes; see the module.
#[derive(Debug)]
pub(crate) struct Known(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// One large piece of memory: small ones, which stay for long, between those of inodes that come and go would keep much more from
    /// being used again. The hash has a random seed, as the numbers come from the image.
    all: HashMap<Ino, Reference, RandomState>,
    /// Those that are held, in the order in which that began. Some of them may have been forgotten since, or be in it twice.
    held: VecDeque<Ino>,
    /// Those that have lost their last name, until they are deleted.
    nameless: BTreeSet<Ino>,
}

/// References to an inode.
#[derive(Debug, Default)]
struct Reference {
    times: u64,
    /// The generation that the inode had when its first reference was given out. It stays what the frontend knows it by, also if it is
    /// changed meanwhile.
    generation: u32,
    /// Some: it stays in memory.
    inode: Option<Arc<Inode>>,
}

impl Table {
    /// Notes that the inode is held, as the newest. Returns one that is held no more, which is to be dropped without the lock.
    fn push(&mut self, ino: Ino) -> Option<Arc<Inode>> {
        self.held.push_back(ino);
        if self.held.len() <= MOST_HELD {
            return None;
        }
        let oldest = self.held.pop_front()?;
        let reference = self.all.get_mut(&oldest)?;
        reference.inode.take_if(|inode| !inode.is_unlinked())
    }
}

impl Known {
    pub(crate) fn new(level: u8) -> Known {
        Known(Mutex::at_level(&KNOWN, level, Table::default()))
    }

    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.0.lock().all.contains_key(&ino)
    }

    /// Adds a reference. Returns the generation that the inode is known by.
    pub(crate) fn add(&self, inode: Arc<Inode>) -> u32 {
        let (ino, now) = (inode.ino, inode.disk().generation);
        let mut table = self.0.lock();
        let reference = table.all.entry(ino).or_insert_with(|| Reference {
            generation: now,
            ..Reference::default()
        });
        let generation = reference.generation;
        reference.times = reference.times.saturating_add(1);
        let is_new = reference.inode.is_none();
        reference.inode = Some(inode);
        let gone = if is_new { table.push(ino) } else { None };
        drop(table);
        drop(gone);
        generation
    }

    /// Drops `times` references, or all if there are fewer. Returns the inode if that was the last one and it was held.
    pub(crate) fn sub(&self, ino: Ino, times: u64) -> Option<Arc<Inode>> {
        let mut table = self.0.lock();
        let reference = table.all.get_mut(&ino)?;
        reference.times = reference.times.saturating_sub(times);
        match reference.times {
            0 => {
                let inode = table.all.remove(&ino)?.inode;
                if table.all.len() < table.all.capacity() / 4 {
                    let room = table.all.len() * 2;
                    table.all.shrink_to(room);
                }
                inode
            }
            _ => None,
        }
    }

    /// Call when the inode has lost its last name, before its caller lets go of it.
    pub(super) fn note_unlinked(&self, inode: &Arc<Inode>) {
        let mut table = self.0.lock();
        if let Some(reference) = table.all.get_mut(&inode.ino) {
            reference.inode.get_or_insert_with(|| inode.clone());
            table.nameless.insert(inode.ino);
        }
    }

    /// Call when an inode without a name has got one.
    pub(super) fn note_named(&self, ino: Ino) {
        let mut table = self.0.lock();
        table.nameless.remove(&ino);
        let gone = match table.all.contains_key(&ino) {
            true => table.push(ino),
            false => None,
        };
        drop(table);
        drop(gone);
    }

    /// Call when an inode that had lost its last name was forgotten, and deleted if nobody else used it.
    pub(crate) fn note_gone(&self, ino: Ino) {
        self.0.lock().nameless.remove(&ino);
    }

    /// Those that have lost their last name, and are not deleted yet.
    pub(crate) fn nameless(&self) -> Vec<Ino> {
        self.0.lock().nameless.iter().copied().collect()
    }

    /// Drops all references.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }
}
