//! The commit: closes the running transaction, freezes its blocks, writes them, and releases what it freed.
//!
//! Input: the running transaction. Output: a durable one; freed blocks that may be used again. Invariants: closing waits for open handles
//! only; blocks are frozen before the first handle of the next transaction begins; everything that the transaction promises is durable
//! after the medium's last flush. Limits: one commit at a time, by the thread that holds the medium.

use super::order::Held;
use super::transaction::Transaction;
use super::{CommitHooks, Journal, Medium};
use crate::disk::Disk;
use crate::disk::cache::{MetaRef, Unsealed};
use crate::error::Error;
use diorite_format::extent::seal_block;
use diorite_format::{FsBlock, dir};
use std::time::Instant;

/// A closed transaction with the bytes that are written.
#[derive(Debug)]
pub(super) struct Frozen {
    pub(super) transaction: Transaction,
    /// In ascending order of their numbers.
    pub(super) blocks: Vec<FrozenBlock>,
}

impl Frozen {
    /// Checks that no failed flush may have lost data that the transaction makes visible. Call after the flush for that data.
    ///
    /// # Errors
    /// That of the failed flush.
    pub(super) fn check_data(&self, disk: &Disk) -> Result<(), Error> {
        let epoch = self.transaction.relies_on;
        epoch.map_or(Ok(()), |epoch| disk.check_flushes_since(epoch))
    }
}

/// One block of a frozen transaction.
#[derive(Debug)]
pub(super) struct FrozenBlock {
    pub(super) at: FsBlock,
    pub(super) bytes: MetaRef,
    pub(super) phase: WritePhase,
    /// The inodes in it that are written in a later phase.
    pub(super) held: Vec<Held>,
}

/// Which of the ordered writes of a commit without a log takes this block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WritePhase {
    /// First: blocks that nothing on disk points to yet.
    Unreachable,
    /// Then blocks that say how far inode tables are in use.
    Leading,
    /// Then blocks without a particular order.
    Standing,
    /// Then names, in ascending order of this number.
    Names(u32),
    /// At the end: inodes that no name refers to any more.
    Last,
}

impl Journal {
    /// Commits the running transaction, if there is anything in it.
    pub(super) fn commit(&self, hooks: &dyn CommitHooks, medium: &mut Medium) -> Result<(), Error> {
        let store = hooks.store();
        // Handles begin only on a volume that is marked as in use. A failure's record is a change without a handle.
        if store.owes_record() {
            self.mark_with(store, medium)?;
        }
        let began = Instant::now();
        self.begin_to_close()?;
        let Some(frozen) = self.check(store, |journal| journal.close(hooks))? else {
            return Ok(());
        };
        self.check(store, |_| match medium {
            Medium::Log(log) => log.commit(store, &frozen),
            Medium::Rounds(rounds) => rounds.commit(store, &frozen),
        })?;
        // Before the commit is announced, so that threads that wait for it in order to get these blocks find them.
        hooks.reuse(&frozen.transaction.freed);
        let mut state = self.state.lock();
        state.committed = frozen.transaction.tid;
        state.stats.commits += 1;
        state.stats.blocks += frozen.blocks.len() as u64;
        state.crowd.end(began.elapsed());
        self.show_newest(&state);
        drop(state);
        self.committed.notify_all();
        Ok(())
    }

    /// Makes a checkpoint: writes home what is in the log only.
    pub(super) fn bring_home(&self, disk: &Disk, medium: &mut Medium) -> Result<(), Error> {
        match medium {
            Medium::Log(log) => log.checkpoint(disk),
            Medium::Rounds(_) => Ok(()),
        }
    }

    /// Keeps new handles from beginning. Fails if an atomic change has begun since the caller checked: its transaction must not be
    /// committed halfway.
    pub(super) fn begin_to_close(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.check_no_atomic()?;
        state.closing = true;
        Ok(())
    }

    /// Waits for the open handles, adds what every commit writes, and freezes the blocks. None if nothing was changed.
    pub(super) fn close(&self, hooks: &dyn CommitHooks) -> Result<Option<Frozen>, Error> {
        let mut state = self.state.lock();
        while state.open > 0 {
            state = self.quiet.wait(state);
        }
        // One of those handles may have met damage and aborted.
        if let Some(error) = state.aborted.clone() {
            state.closing = false;
            return Err(error);
        }
        let (tid, empty) = (state.running.tid, state.running.is_empty());
        let marked = state.marked;
        drop(state);
        // Without the lock held: counts are changes of blocks like any other. On a volume that is not marked as in use nothing may be
        // changed: a failure that was noted meanwhile waits for the keeper, which was woken for it.
        let wrote = match marked {
            true => self
                .last_handle(hooks.store(), tid)
                .with(|handle| hooks.before_commit(handle, empty)),
            false => Ok(()),
        };
        let frozen = wrote.map(|()| self.freeze(hooks.store()));
        self.state.lock().closing = false;
        self.opened.notify_all();
        frozen
    }

    fn freeze(&self, disk: &Disk) -> Option<Frozen> {
        let mut state = self.state.lock();
        if state.running.is_empty() {
            // Handles that changed nothing use up no transaction number: recovery needs consecutive numbers.
            state.running.since = None;
            return None;
        }
        let transaction = state.take();
        state.crowd.freeze();
        drop(state);
        let seal = |owner: Unsealed, bytes: &mut [u8]| match owner {
            Unsealed::Node(of) => seal_block(&disk.sb, of.ino, of.generation, bytes),
            Unsealed::Names(seed) => dir::seal_with(&disk.sb, seed, bytes),
        };
        let mut phases = transaction.order.phases(disk, &transaction.blocks);
        let blocks = transaction
            .blocks
            .iter()
            .map(|(at, unreachable)| FrozenBlock {
                at: *at,
                bytes: disk.cache.freeze(*at, seal),
                phase: match (*unreachable, transaction.leading.contains(at)) {
                    (true, _) => WritePhase::Unreachable,
                    (false, true) => WritePhase::Leading,
                    (false, false) => phases.of(*at).unwrap_or(WritePhase::Standing),
                },
                held: phases.held(*at),
            });
        Some(Frozen {
            blocks: blocks.collect(),
            transaction,
        })
    }
}
