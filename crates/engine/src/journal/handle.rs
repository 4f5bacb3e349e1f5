//! Handles: the right to change blocks of metadata within one transaction.
//!
//! Input: credits, the number of blocks that a change may touch. Output: changes that become durable together. Invariants: a handle is
//! begun with no lock held, since beginning it may commit; while it is open its thread waits neither for data, nor for parked requests,
//! nor for the in-flight count; it ends when what it was begun for returns. Limits: a change that needs more than one transaction uses
//! several handles.

use super::order::{NamesAt, Order};
use super::transaction::{COMMIT_CREDITS, Resize, State};
use super::{CommitHooks, Journal, Medium, Store};
use crate::disk::Disk;
use crate::disk::cache::{Kind, MetaRef, Unsealed, UsedAs};
use crate::error::Error;
use diorite_block::Epoch;
use diorite_block::sync::MutexGuard;
use diorite_format::superblock::SuperblockEdit;
use diorite_format::{FormatError, FsBlock, Ino, Superblock, Tid};
use std::cell::Cell;
use std::time::Instant;

/// See the module.
#[derive(Debug)]
#[must_use = "changes are made by JournalHandle::with"]
pub(crate) struct JournalHandle<'v> {
    store: &'v Store,
    journal: &'v Journal,
    tid: Tid,
    credits: Cell<u32>,
    /// The time of its changes, in nanoseconds since 1970; 0 before somebody asks.
    now: Cell<u64>,
    /// What it was begun for has returned, so its changes are complete.
    is_complete: Cell<bool>,
}

impl Journal {
    /// Begins a handle that may change `credits` blocks. Blocks while the running transaction is being closed; commits it if it has no
    /// room.
    /// No lock may be held.
    pub(crate) fn begin<'v>(
        &'v self,
        hooks: &'v dyn CommitHooks,
        credits: u32,
    ) -> Result<JournalHandle<'v>, Error> {
        let mut state = self.state.lock();
        loop {
            if let Some(error) = &state.aborted {
                return Err(error.clone());
            }
            if state.closing {
                state = self.opened.wait(state);
            } else if !state.marked {
                drop(state);
                self.mark_with(hooks.store(), &mut self.medium.lock())?;
                state = self.state.lock();
            } else if state.has_room(credits, self.most) {
                return Ok(self.open(hooks.store(), state, credits));
            } else {
                state.check_divisible(credits, self.most)?;
                let tid = state.running.tid;
                drop(state);
                self.commit_up_to(hooks, tid)?;
                state = self.state.lock();
            }
        }
    }

    /// As [`Journal::begin`], but returns None if that would have to wait, or if the journal was aborted.
    pub(crate) fn begin_at_once<'v>(
        &'v self,
        hooks: &'v dyn CommitHooks,
        credits: u32,
    ) -> Option<JournalHandle<'v>> {
        let state = self.state.lock();
        let takes = state.aborted.is_none() && !state.closing && state.marked;
        let takes = takes && state.has_room(credits, self.most);
        takes.then(|| self.open(hooks.store(), state, credits))
    }

    pub(super) fn is_marked(&self) -> bool {
        self.state.lock().marked
    }

    /// Marks the volume as in use in the superblock, before anything else changes. The caller holds the medium.
    pub(super) fn mark_with(&self, disk: &Disk, medium: &mut Medium) -> Result<(), Error> {
        if !self.is_marked() {
            // Nothing has changed yet, so a device that does not read it aborts nothing.
            disk.load_super()?;
            self.check(disk, |_| {
                disk.mark_in_use(|block| medium.keep_superblock(disk, block))
            })?;
            self.state.lock().marked = true;
        }
        Ok(())
    }

    fn open<'v>(
        &'v self,
        store: &'v Store,
        mut state: MutexGuard<'_, State>,
        credits: u32,
    ) -> JournalHandle<'v> {
        state.open += 1;
        state.stats.handles += 1;
        state.credits += credits;
        let first = state.running.since.is_none();
        state.running.since.get_or_insert_with(Instant::now);
        let tid = state.running.tid;
        self.show_newest(&state);
        drop(state);
        if first {
            self.keeper.wake();
        }
        JournalHandle {
            store,
            journal: self,
            tid,
            credits: Cell::new(credits),
            now: Cell::new(0),
            is_complete: Cell::new(false),
        }
    }

    /// A handle in the transaction that is being closed, for what every commit adds.
    pub(super) fn last_handle<'v>(&'v self, store: &'v Store, tid: Tid) -> JournalHandle<'v> {
        let mut state = self.state.lock();
        state.open += 1;
        state.credits += COMMIT_CREDITS;
        self.show_newest(&state);
        JournalHandle {
            store,
            journal: self,
            tid,
            credits: Cell::new(COMMIT_CREDITS),
            now: Cell::new(0),
            is_complete: Cell::new(false),
        }
    }
}

impl JournalHandle<'_> {
    /// Makes changes, and ends the handle. If `changes` panics, the journal is aborted: half a handle is never committed. The thread may be
    /// unwinding already: a caller that panics drops its files, and that changes and commits.
    pub(crate) fn with<R>(self, changes: impl FnOnce(&Self) -> R) -> R {
        let made = changes(&self);
        self.is_complete.set(true);
        made
    }

    /// The time of the handle's changes, as [`Disk::now_nanos`]: all that one call changes gets the same time.
    pub(crate) fn now_nanos(&self) -> u64 {
        if self.now.get() == 0 {
            self.now.set(self.store.now_nanos());
        }
        self.now.get()
    }

    /// The number of the transaction.
    pub(crate) fn tid(&self) -> Tid {
        self.tid
    }

    /// Call when the transaction makes data visible, by a map or a size, whose writes began at `began` or later. The transaction must not
    /// become durable without that data, so its commit fails if a flush has failed since.
    ///
    /// # Errors
    /// The error of a flush that has failed already: the change must not be made.
    pub(crate) fn relies_on(&self, began: Epoch) -> Result<(), Error> {
        self.store.check_flushes_since(began)?;
        let mut state = self.journal.state.lock();
        let oldest = state.running.relies_on.map_or(began, |e| e.min(began));
        state.running.relies_on = Some(oldest);
        Ok(())
    }

    pub(crate) fn store(&self) -> &Store {
        self.store
    }

    /// Blocks that the handle may still add to the transaction.
    #[cfg(test)]
    pub(crate) fn credits_left(&self) -> u32 {
        self.credits.get()
    }

    /// Reads a block of metadata. Blocks while the device reads.
    pub(crate) fn read(
        &self,
        block: FsBlock,
        used: impl Into<UsedAs>,
        verify: impl FnOnce(&[u8]) -> Result<(), FormatError>,
    ) -> Result<MetaRef, Error> {
        let store = self.store;
        let read = store.cache.read(&store.blocking, block, used, verify);
        store.watched(read)
    }

    /// Changes a block: `change` gets its bytes, verified. It must not fail once it has changed a byte, and must update the checksum.
    /// Changes cannot be nested. Blocks while the device reads.
    pub(crate) fn update<R>(
        &self,
        block: FsBlock,
        used: impl Into<UsedAs>,
        verify: impl FnOnce(&[u8]) -> Result<(), FormatError>,
        change: impl FnOnce(&mut [u8]) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let store = self.store;
        let at = (block, used.into());
        let changed = store
            .cache
            .change(&store.blocking, at, self.tid, verify, change);
        self.added(block, changed)
    }

    /// As [`JournalHandle::update`], but returns None, and does nothing, if the block is not in memory, verified for this use. Does not
    /// block.
    pub(crate) fn update_present<R>(
        &self,
        block: FsBlock,
        used: impl Into<UsedAs>,
        change: impl FnOnce(&mut [u8]) -> Result<R, Error>,
    ) -> Result<Option<R>, Error> {
        let changed = self
            .store
            .cache
            .change_present((block, used.into()), self.tid, change);
        changed.map(|done| self.added(block, done)).transpose()
    }

    /// As [`JournalHandle::update`], for a block whose checksum `change` does not update: the commit does that, once.
    pub(crate) fn update_unsealed<R>(
        &self,
        at: (FsBlock, UsedAs, Unsealed),
        verify: impl FnOnce(&[u8]) -> Result<(), FormatError>,
        change: impl FnOnce(&mut [u8]) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let store = self.store;
        let changed =
            store
                .cache
                .change_unsealed(&store.blocking, at, self.tid, None, verify, change);
        self.added(at.0, changed)
    }

    /// As [`JournalHandle::update_unsealed`], for a block whose bytes the caller has, verified: it stays in memory until the change begins.
    pub(crate) fn update_held<R>(
        &self,
        at: (FsBlock, UsedAs, Unsealed),
        held: MetaRef,
        change: impl FnOnce(&mut [u8]) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let (store, held) = (self.store, Some(held));
        let verified = |_: &[u8]| Ok(());
        let changed =
            store
                .cache
                .change_unsealed(&store.blocking, at, self.tid, held, verified, change);
        self.added(at.0, changed)
    }

    /// Adds the block to the transaction if this was its first change of the block; passes on the result, and notes damage.
    fn added<R>(&self, block: FsBlock, changed: Result<(R, bool), Error>) -> Result<R, Error> {
        let (result, first) = self.store.watched(changed)?;
        if first {
            self.add(block, false);
        }
        Ok(result)
    }

    /// Makes a block of metadata whose old contents do not matter and to which nothing on disk points yet. `fill` gets zeros and must
    /// leave a valid checksum.
    pub(crate) fn create(&self, block: FsBlock, kind: Kind, fill: impl FnOnce(&mut [u8])) {
        if self.store.cache.create((block, kind), self.tid, fill) {
            self.add(block, true);
        }
    }

    /// Without a journal, this block, which the handle has changed, is written before all other reachable blocks.
    pub(crate) fn lead(&self, block: FsBlock) {
        self.journal.state.lock().running.leading.insert(block);
    }

    /// Notes that names changed at this place.
    pub(crate) fn names(&self, at: NamesAt) {
        self.order(|order| order.names(at));
    }

    /// Notes that a directory gets new blocks, with names that were at the places `from`.
    pub(crate) fn spread(&self, dir: Ino, from: &[NamesAt], to: impl Iterator<Item = FsBlock>) {
        self.order(|order| order.spread(dir, from, to));
    }

    /// Notes a new directory, with its names in a block or in the inode. Its own name is at the place `at`.
    pub(crate) fn begins(&self, dir: Ino, block: Option<FsBlock>, at: NamesAt) {
        self.order(|order| order.begins(dir, block, at));
    }

    /// Notes that names replace others, or are exchanged: the inodes that they referred to are written after them.
    pub(crate) fn replaces(&self) {
        self.order(Order::replaces);
    }

    /// Notes that a name moves: it must be at `first` before it is gone from `then`. Returns false if other names of this transaction need
    /// the opposite order: the caller has to commit first. Inside an atomic change, which cannot be committed, it returns true and there is
    /// no order.
    pub(crate) fn moves(&self, first: NamesAt, then: NamesAt) -> bool {
        let moves = self.order(|order| order.moves(first, then));
        moves.unwrap_or(true) || self.journal.has_atomic()
    }

    /// Notes that an inode has lost its last name.
    pub(crate) fn goes(&self, ino: Ino) {
        self.order(|order| order.goes(ino));
    }

    /// Notes that the number of an inode that lost its last name is in use again.
    pub(crate) fn is_replaced(&self, ino: Ino) {
        self.order(|order| order.is_replaced(ino));
    }

    /// Notes that a node of an inode's map was rewritten in place.
    pub(crate) fn node(&self, at: FsBlock, of: Ino) {
        self.order(|order| order.node(at, of));
    }

    /// Updates the order of names, which is kept only without a journal.
    fn order<R>(&self, note: impl FnOnce(&mut Order) -> R) -> Option<R> {
        if self.store.has_journal() {
            return None;
        }
        Some(note(&mut self.journal.state.lock().running.order))
    }

    /// Loads the superblock, so that [`JournalHandle::edit_super`] needs no device.
    pub(crate) fn prepare_super(&self) -> Result<(), Error> {
        let store = self.store;
        let verify = |raw: &[u8]| store.verify_super(raw);
        self.read(store.sb.super_block(), Kind::Super, verify)
            .map(drop)
    }

    /// Changes the superblock. Blocks while the device reads.
    pub(crate) fn edit_super(
        &self,
        change: impl FnOnce(&mut SuperblockEdit<'_>),
    ) -> Result<(), Error> {
        let store = self.store;
        self.update(
            store.sb.super_block(),
            Kind::Super,
            |raw| store.verify_super(raw),
            |raw| store.edit_super_in(raw, change),
        )
    }

    /// Changes the size of the volume, on disk and not in memory. With a log, the commit then keeps an order of its own. Blocks while the
    /// device reads.
    pub(crate) fn resize(&self, new: &Superblock) -> Result<(), Error> {
        let from = self.store.sb.geometry().blocks_count();
        let resize = match new.geometry().blocks_count() > from {
            true => Resize::Larger { from },
            false => Resize::Smaller,
        };
        self.edit_super(|edit| edit.set_size(new))?;
        self.journal.state.lock().running.resize = Some(resize);
        Ok(())
    }

    /// Notes that the block holds no metadata any more, and revokes it. Freeing it is done separately.
    pub(crate) fn forget(&self, block: FsBlock) {
        self.store.cache.forget(block);
        let mut state = self.journal.state.lock();
        state.running.blocks.remove(&block);
        state.running.revoked.insert(block);
    }

    /// Notes blocks that may be used again once the transaction is durable.
    pub(crate) fn freed(&self, runs: impl Iterator<Item = (FsBlock, u32)>) {
        self.journal.state.lock().running.freed.extend(runs);
    }

    /// Aborts the journal if a change failed halfway: such a transaction must not be committed.
    pub(crate) fn or_abort<R>(&self, done: Result<R, Error>) -> Result<R, Error> {
        self.journal.check(self.store, |_| done)
    }

    fn add(&self, block: FsBlock, unreachable: bool) {
        let left = self.credits.get();
        self.credits.set(left.saturating_sub(1));
        let mut state = self.journal.state.lock();
        state.credits -= left.min(1);
        state.stats.uncredited += u64::from(left == 0);
        state.running.revoked.remove(&block);
        state.running.blocks.insert(block, unreachable);
    }
}

impl Drop for JournalHandle<'_> {
    fn drop(&mut self) {
        // Before the handle ends: a commit may be waiting for that.
        if !self.is_complete.get() && std::thread::panicking() {
            self.journal.abort(self.store, &Error::Panicked);
        }
        let mut state = self.journal.state.lock();
        state.open -= 1;
        state.credits -= self.credits.get();
        self.journal.show_newest(&state);
        if state.open == 0 && state.closing {
            self.journal.quiet.notify_all();
        }
    }
}
