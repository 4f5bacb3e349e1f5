//! The commit: the running transaction is closed, frozen, written, and let go.
//!
//! Input: the running transaction. Output: a durable one; freed blocks that may be used again. Invariants: closing waits for open handles
//! only; blocks are frozen before the next transaction's first handle begins; what was acknowledged to be durable is durable
//! after the medium's last flush. Limits: one commit at a time, by whoever holds the medium.

use super::order::Held;
use super::transaction::Transaction;
use super::{CommitHooks, Journal, Medium};
use crate::disk::Disk;
use crate::disk::cache::{MetaRef, Unsealed};
use crate::error::Error;
use diorite_format::extent::seal_block;
use diorite_format::{FsBlock, dir};
use std::time::Instant;

/// A transaction as it is written.
#[derive(Debug)]
pub(super) struct Frozen {
    pub(super) transaction: Transaction,
    /// In the order of their places.
    pub(super) blocks: Vec<FrozenBlock>,
}

impl Frozen {
    /// No flush has failed that may have lost data which the transaction shows. To be asked behind the flush for that data.
    ///
    /// # Errors
    /// That flush's.
    pub(super) fn check_data(&self, disk: &Disk) -> Result<(), Error> {
        let epoch = self.transaction.relies_on;
        epoch.map_or(Ok(()), |epoch| disk.check_flushes_since(epoch))
    }
}

/// One block of it.
#[derive(Debug)]
pub(super) struct FrozenBlock {
    pub(super) at: FsBlock,
    pub(super) bytes: MetaRef,
    pub(super) phase: WritePhase,
    /// What of it has a later phase.
    pub(super) held: Vec<Held>,
}

/// Which of the ordered writes of a commit without a log takes this block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WritePhase {
    /// Nothing on disk points to it yet.
    Unreachable,
    /// It says that something is there to be looked at.
    Leading,
    /// All that no order is asked for.
    Standing,
    /// Names, behind so many phases of others.
    Names(u32),
    /// Nothing names it any more.
    Last,
}

impl Journal {
    /// Commits the running transaction, if there is anything in it.
    pub(super) fn commit(&self, hooks: &dyn CommitHooks, medium: &mut Medium) -> Result<(), Error> {
        let store = hooks.store();
        // Handles begin on a marked volume alone; a failure that is owed is a change without one.
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
        // First, so that who waits for the commit to get these blocks finds them.
        hooks.reuse(&frozen.transaction.freed);
        let mut state = self.state.lock();
        state.committed = frozen.transaction.tid;
        state.stats.commits += 1;
        state.stats.blocks += frozen.blocks.len() as u64;
        state.crowd.end(began.elapsed());
        drop(state);
        self.committed.notify_all();
        Ok(())
    }

    /// Writes home what is only in the log.
    pub(super) fn bring_home(&self, disk: &Disk, medium: &mut Medium) -> Result<(), Error> {
        match medium {
            Medium::Log(log) => log.checkpoint(disk),
            Medium::Rounds(_) => Ok(()),
        }
    }

    /// Keeps new handles out, and groups: one may have begun since the caller looked, and is not to be committed in its middle.
    pub(super) fn begin_to_close(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.check_no_group()?;
        state.closing = true;
        Ok(())
    }

    /// Waits for the open handles, adds what every commit writes, and freezes the blocks. None if there is nothing.
    pub(super) fn close(&self, hooks: &dyn CommitHooks) -> Result<Option<Frozen>, Error> {
        let mut state = self.state.lock();
        while state.open > 0 {
            state = self.quiet.wait(state);
        }
        // Who met damage in one of those handles may have aborted.
        if let Some(error) = state.aborted.clone() {
            state.closing = false;
            return Err(error);
        }
        let (tid, empty) = (state.running.tid, state.running.is_empty());
        let marked = state.marked;
        drop(state);
        // Outside the lock: counts are changes of blocks like any other. Of a volume that is not marked nothing is changed: a failure that
        // has fallen due meanwhile waits for the keeper, who was woken for it.
        let wrote = match marked {
            true => hooks.before_commit(&self.last_handle(hooks.store(), tid), empty),
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
            // Handles that changed nothing use up no number: recovery counts on a log without gaps.
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
