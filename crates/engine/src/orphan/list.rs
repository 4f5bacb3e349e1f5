//! The list of orphans, on disk and in memory.
//!
//! Input: inodes, under a handle. Output: the chain through the superblock and the inodes changed, or a slot of the orphan file.
//! Invariants: an inode's deletion time is changed only here and by its deletion, and in no other copy of the inode; changes of the chain
//! are serialised by one lock, taken after any map lock. Limits: changes at most two inodes' blocks and the superblock.

use super::damaged;
use super::slots::{Slot, SlotFile, Slots};
use crate::disk::Disk;
use crate::error::Error;
use crate::journal::JournalHandle;
use crate::locks::{DOOMED, ORPHANS};
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicUsize, Ordering};
use diorite_format::{FsBlock, Ino};
use std::collections::{BTreeMap, VecDeque};

/// Upper bound for the blocks that adding an inode or removing it changes: its own, a neighbour's or a slot's, and the superblock.
pub(crate) const ORPHAN_CREDITS: u32 = 3;

/// See the module.
#[derive(Debug)]
pub(crate) struct Orphans {
    list: Mutex<List>,
    /// How many inodes are on the list. Changes under its lock.
    count: AtomicUsize,
    /// Inodes without names that have lost their last user, to be deleted. None once nothing is deleted any more.
    doomed: Mutex<Option<Vec<Ino>>>,
}

#[derive(Debug, Default)]
struct List {
    /// The chain as on disk, newest first: the superblock has the first one.
    chain: VecDeque<Ino>,
    in_slots: BTreeMap<Ino, Slot>,
    slots: Slots,
}

impl List {
    fn has(&self, ino: Ino) -> bool {
        self.chain.contains(&ino) || self.in_slots.contains_key(&ino)
    }
}

impl Orphans {
    pub(crate) fn new(level: u8) -> Orphans {
        Orphans {
            list: Mutex::at_level(&ORPHANS, level, List::default()),
            count: AtomicUsize::new(0),
            doomed: Mutex::at_level(&DOOMED, level, Some(Vec::new())),
        }
    }

    /// Takes over the list on disk: the chain, and the numbers in the orphan file. Returns all of them. Blocks while metadata is read.
    pub(crate) fn load(
        &self,
        disk: &Disk,
        chain: Vec<Ino>,
        file: Option<SlotFile>,
    ) -> Result<Vec<Ino>, Error> {
        let (slots, in_slots) = Slots::load(disk, file)?;
        let mut all = chain.clone();
        if let Some(twice) = chain.iter().find(|ino| in_slots.contains_key(ino)) {
            return Err(damaged(*twice, "comes a second time"));
        }
        all.extend(in_slots.keys());
        let mut list = self.list.lock();
        *list = List {
            chain: chain.into(),
            in_slots,
            slots,
        };
        self.note(&list);
        Ok(all)
    }

    /// Notes that a block of the orphan file has moved.
    pub(crate) fn moved(&self, from: FsBlock, to: FsBlock) {
        let list = &mut *self.list.lock();
        list.slots.moved(from, to);
        list.in_slots
            .values_mut()
            .for_each(|slot| slot.moved(from, to));
    }

    /// Calls `part` under the lock, so that the list does not change meanwhile.
    pub(crate) fn while_still<R>(&self, part: impl FnOnce() -> R) -> R {
        let _list = self.list.lock();
        part()
    }

    /// Notes that this inode, which has no name, has lost its last user and is to be deleted.
    pub(crate) fn doom(&self, ino: Ino) {
        if let Some(doomed) = &mut *self.doomed.lock() {
            doomed.push(ino);
        }
    }

    /// Takes an inode that is to be deleted.
    pub(crate) fn next_doomed(&self) -> Option<Ino> {
        self.doomed.lock().as_mut()?.pop()
    }

    /// From now on no inode is to be deleted: the next opening for writing finds them on the list on disk.
    pub(crate) fn end_deletion(&self) {
        *self.doomed.lock() = None;
    }

    /// Is this inode on the list?
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.list.lock().has(ino)
    }

    /// Is any inode on the list? Takes no lock.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Notes how many inodes are on the list, which is locked.
    fn note(&self, list: &List) {
        let count = list.chain.len() + list.in_slots.len();
        self.count.store(count, Ordering::SeqCst);
    }

    /// Is any inode in the orphan file?
    pub(crate) fn in_file(&self) -> bool {
        !self.list.lock().in_slots.is_empty()
    }

    /// Loads what adding this inode or removing it changes, so that neither needs the device. `prepare` loads an inode. Blocks while
    /// metadata is read.
    pub(crate) fn prepare(
        &self,
        handle: &JournalHandle<'_>,
        ino: Ino,
        prepare: impl Fn(Ino) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let list = self.list.lock();
        prepare(ino)?;
        handle.prepare_super()?;
        if let Some(slot) = list.in_slots.get(&ino) {
            return list.slots.prepare(handle, *slot);
        }
        match list.chain.iter().position(|i| *i == ino) {
            None => list.slots.find_free(handle).map(drop),
            Some(at) => match at.checked_sub(1).and_then(|at| list.chain.get(at)) {
                Some(before) => prepare(*before),
                None => Ok(()),
            },
        }
    }

    /// Puts an inode on the list, unless it is there already. `set_dtime` changes its deletion time. Blocks while metadata is read.
    pub(crate) fn add(
        &self,
        handle: &JournalHandle<'_>,
        ino: Ino,
        set_dtime: impl FnOnce(u32) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut list = self.list.lock();
        if list.has(ino) {
            return Ok(());
        }
        if let Some(slot) = list.slots.take(handle, ino)? {
            list.in_slots.insert(ino, slot);
            self.note(&list);
            return Ok(());
        }
        let next = list.chain.front().copied().unwrap_or(NONE);
        set_dtime(next.get())?;
        handle.or_abort(handle.edit_super(|edit| edit.set_last_orphan(ino)))?;
        list.chain.push_front(ino);
        self.note(&list);
        Ok(())
    }

    /// Removes an inode from the list, if it is there; `dtime` is its deletion time afterwards. `set_dtime` changes the deletion time of
    /// an inode: of this one, or of its neighbour in the chain, which may have no user and then is not in memory. Blocks while metadata is
    /// read.
    ///
    /// # Errors
    /// If the inode is still on the list, in memory and on disk; or if the journal was aborted.
    pub(crate) fn remove(
        &self,
        handle: &JournalHandle<'_>,
        ino: Ino,
        dtime: u32,
        set_dtime: impl Fn(Ino, u32) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut list = self.list.lock();
        if let Some(slot) = list.in_slots.get(&ino).copied() {
            list.slots.give_back(handle, slot)?;
            list.in_slots.remove(&ino);
        } else if let Some(at) = list.chain.iter().position(|i| *i == ino) {
            let next = list.chain.get(at + 1).copied().unwrap_or(NONE);
            match at.checked_sub(1).and_then(|before| list.chain.get(before)) {
                Some(before) => set_dtime(*before, next.get())?,
                None => handle.edit_super(|edit| edit.set_last_orphan(next))?,
            }
            list.chain.remove(at);
        } else if dtime == 0 {
            return Ok(());
        }
        self.note(&list);
        handle.or_abort(set_dtime(ino, dtime))
    }
}

/// The number 0, which ends the chain.
const NONE: Ino = Ino::new(0);
