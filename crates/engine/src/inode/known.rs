//! Inodes that a frontend refers to by number, with a count of references for each (the lookup count of FUSE).
//!
//! Input: inodes when they are handed out, when they are forgotten, when they lose their last name or get one. Output: which inodes are
//! known. Invariants: an inode without a name that has a reference is held in memory, so it is not deleted: whoever takes its last name
//! has it in memory, and hands it over here. Others need not be in memory: they are read again by their number. Limits: [`MOST_HELD`]
//! inodes with a name are held, first in first out; the rest take some 50 bytes each.

use crate::inode::Inode;
use crate::locks::KNOWN;
use diorite_block::sync::atomic::{AtomicBool, Ordering};
use diorite_block::sync::{Condvar, Mutex};
use diorite_format::Ino;
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many inodes with a name are held at most: a frontend that has just looked one up mostly asks for it again at once. An inode in
/// memory takes some 2 KiB.
const MOST_HELD: usize = 1024;

/// The known inodes; see the module.
#[derive(Debug)]
pub(crate) struct Known {
    table: Mutex<Table>,
    /// A reference was ever added. Who adds one has the inode in memory meanwhile.
    is_used: AtomicBool,
    /// An inode without a name is gone.
    gone: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    /// One large piece of memory: small ones, which stay for long, between those of inodes that come and go would keep much more from
    /// being used again. The hash has a random seed, as the numbers come from the image.
    all: HashMap<Ino, Reference, RandomState>,
    /// Those that are held, in the order in which that began. Some of them may have been forgotten since, or be in it twice.
    held: VecDeque<Ino>,
    /// Those that have lost their last name, until they are deleted; and when they lost that, or a user after it.
    nameless: BTreeMap<Ino, Instant>,
    /// When that last happened to any of them.
    last: Option<Instant>,
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
    fn begins_to_leave(&mut self, ino: Ino) {
        let now = Instant::now();
        self.nameless.insert(ino, now);
        self.last = Some(now);
    }

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
        Known {
            table: Mutex::at_level(&KNOWN, level, Table::default()),
            is_used: AtomicBool::new(false),
            gone: Condvar::new(),
        }
    }

    /// Takes no lock if no inode is known, as where no frontend refers to inodes by number.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.is_used.load(Ordering::SeqCst) && self.table.lock().all.contains_key(&ino)
    }

    /// Adds a reference. Returns the generation that the inode is known by.
    pub(crate) fn add(&self, inode: Arc<Inode>) -> u32 {
        let (ino, now) = (inode.ino, inode.disk().generation);
        self.is_used.store(true, Ordering::SeqCst);
        let mut table = self.table.lock();
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
        let mut table = self.table.lock();
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
        let mut table = self.table.lock();
        if let Some(reference) = table.all.get_mut(&inode.ino) {
            reference.inode.get_or_insert_with(|| inode.clone());
            table.begins_to_leave(inode.ino);
        }
    }

    /// Call when an inode without a name has got one.
    pub(super) fn note_named(&self, ino: Ino) {
        let mut table = self.table.lock();
        table.nameless.remove(&ino);
        self.gone.notify_all();
        let gone = match table.all.contains_key(&ino) {
            true => table.push(ino),
            false => None,
        };
        drop(table);
        drop(gone);
    }

    /// Call when an inode that had lost its last name was forgotten, and deleted if nobody else used it.
    pub(crate) fn note_gone(&self, ino: Ino) {
        self.table.lock().nameless.remove(&ino);
        self.gone.notify_all();
    }

    /// Call when an inode without a name has lost a user.
    pub(crate) fn note_closed(&self, ino: Ino) {
        let mut table = self.table.lock();
        if table.nameless.contains_key(&ino) {
            table.begins_to_leave(ino);
        }
    }

    /// Those without a name that are not deleted yet, and that lost their last name, or a user after it, at most so long ago.
    pub(crate) fn leaving(&self, ago: Duration) -> Vec<(Ino, Instant)> {
        let table = self.table.lock();
        let is_recent = |since: &Instant| since.elapsed() < ago;
        if !table.last.as_ref().is_some_and(is_recent) {
            return Vec::new();
        }
        let all = table.nameless.iter().map(|(ino, since)| (*ino, *since));
        all.filter(|(_, since)| is_recent(since)).collect()
    }

    /// Waits until all of these are gone, but not longer than this. Returns whether one is.
    pub(crate) fn await_gone(&self, mut those: Vec<(Ino, Instant)>, until: Instant) -> bool {
        let count = those.len();
        let mut table = self.table.lock();
        loop {
            those.retain(|(ino, since)| table.nameless.get(ino) == Some(since));
            let left = until.saturating_duration_since(Instant::now());
            if those.is_empty() || left.is_zero() {
                return those.len() < count;
            }
            table = self.gone.wait_timeout(table, left);
        }
    }

    /// Drops all references.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.table.lock());
        drop(all);
    }
}
