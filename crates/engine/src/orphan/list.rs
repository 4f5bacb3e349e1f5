//! The list of orphans, in memory as it is on disk.
//!
//! Input: inodes, under a handle. Output: the chain through the superblock and the inodes changed, or a slot of the orphan file. Invariants: an
//! inode's deletion time is changed only here and by its deletion, and in no other copy of the inode; changes of the chain are
//! serialised by one lock, taken after any map lock. Limits: two blocks and the superblock are changed at most.

use super::damaged;
use super::slots::{Slot, SlotFile, Slots};
use crate::disk::Disk;
use crate::error::Error;
use crate::journal::JournalHandle;
use crate::locks::{DOOMED, ORPHANS};
use diorite_block::sync::Mutex;
use diorite_format::Ino;
use std::collections::{BTreeMap, VecDeque};

/// Blocks that putting an inode on the list, or taking it off, changes beside its own: a neighbour's or a slot's, and the superblock.
pub(crate) const ORPHAN_CREDITS: u32 = 3;

/// See the module.
#[derive(Debug)]
pub(crate) struct Orphans {
    list: Mutex<List>,
    /// Inodes that lost their last name, and now their last user.
    doomed: Mutex<Vec<Ino>>,
}

#[derive(Debug, Default)]
struct List {
    /// The newest first, as the superblock names it.
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
            doomed: Mutex::at_level(&DOOMED, level, Vec::new()),
        }
    }

    /// Takes over what is on disk: the chain, and what the orphan file holds. Gives all of it. Blocks while metadata is read.
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
        *self.list.lock() = List {
            chain: chain.into(),
            in_slots,
            slots,
        };
        Ok(all)
    }

    /// Does something while the list stays as it is.
    pub(crate) fn while_still<R>(&self, part: impl FnOnce() -> R) -> R {
        let _list = self.list.lock();
        part()
    }

    /// Nobody uses this inode any more, and nothing names it.
    pub(crate) fn doom(&self, ino: Ino) {
        self.doomed.lock().push(ino);
    }

    /// It could not be deleted: after the others it is tried again.
    pub(crate) fn doom_later(&self, ino: Ino) {
        self.doomed.lock().insert(0, ino);
    }

    /// One that is to be deleted.
    pub(crate) fn next_doomed(&self) -> Option<Ino> {
        self.doomed.lock().pop()
    }

    /// Is this one on it?
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.list.lock().has(ino)
    }

    /// Is there any?
    pub(crate) fn any(&self) -> bool {
        let list = self.list.lock();
        !list.chain.is_empty() || !list.in_slots.is_empty()
    }

    /// Does the orphan file name any?
    pub(crate) fn in_file(&self) -> bool {
        !self.list.lock().in_slots.is_empty()
    }

    /// Puts an inode on the list, unless it is there; `set_dtime` changes its deletion time. Blocks while metadata is read.
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
            return Ok(());
        }
        let next = list.chain.front().copied().unwrap_or(NONE);
        set_dtime(next.get())?;
        handle.or_abort(handle.edit_super(|edit| edit.set_last_orphan(ino)))?;
        list.chain.push_front(ino);
        Ok(())
    }

    /// Takes an inode off the list, if it is there; `dtime` is its deletion time afterwards. `set_dtime` changes that of an inode: of this
    /// one, or of a neighbour, which may have no user and then is not in memory. Blocks while metadata is read.
    ///
    /// # Errors
    /// It is on the list still, here and on disk; or the journal is aborted.
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
        handle.or_abort(set_dtime(ino, dtime))
    }
}

/// The end of the chain.
const NONE: Ino = Ino::new(0);
