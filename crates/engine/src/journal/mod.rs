//! The journal room: changes of metadata become transactions, transactions become durable, and get home.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `store` | a disk and its journal -> blocks that change together |
//! | `hooks` | a commit -> what whoever is above adds to it |
//! | `handle` | a wish to change blocks -> a handle in the running transaction |
//! | `transaction` | what handles changed -> one transaction; who waits for what |
//! | `group` | changes of many handles -> all of them in one commit, or in none |
//! | `commit` | the running transaction -> durable in the log, or at home in rounds |
//! | `log` | frozen blocks -> a jbd2 log: descriptors, revokes, commit blocks, its superblock |
//! | `home` | blocks -> their places, durably |
//! | `order` | names that change -> what goes home before what, without a journal |
//! | `rounds` | the same without a journal: ordered write-back |
//! | `keeper` | time -> the periodic commit and checkpoint |
//! | `recovery` | what a crash left in the log -> the blocks that it holds, in memory or at home |
//!
//! Input: changes of blocks, under handles. Output: durable transactions. Invariants: a commit waits for no data, and for no handle that
//! waits for anything but metadata; a handle is begun with no lock held; the first error aborts, and everybody is told. Limits: a
//! transaction has at most a quarter of the log's blocks.

mod commit;
mod group;
mod handle;
mod hooks;
mod keeper;
mod log;
mod order;
pub(crate) mod recovery;
mod rounds;
mod store;
#[cfg(test)]
mod tests;
mod transaction;

pub use group::GroupFill;
pub(crate) use handle::JournalHandle;
pub(crate) use hooks::CommitHooks;
pub(crate) use log::{Log, Places};
pub(crate) use order::NamesAt;
pub(crate) use store::Store;

use crate::disk::{Code, Disk, edit_superblock};
use crate::error::Error;
use crate::locks::{JOURNAL, JOURNAL_STATE};
use crate::stats::JournalStats;
use diorite_block::sync::{Condvar, Mutex};
use diorite_format::Tid;
use diorite_format::superblock::SuperblockEdit;
use keeper::Keeper;
use rounds::Rounds;
use std::sync::Weak;
use std::time::{Duration, Instant};
use transaction::{COMMIT_CREDITS, State};

/// Blocks that a round without a journal changes at most.
const ROUND_BLOCKS: u32 = 4096;

/// See the module.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Held by whoever commits.
    medium: Mutex<Medium>,
    state: Mutex<State>,
    /// What somebody may wait for in `state`: the last open handle has ended; handles may begin; a commit has ended.
    quiet: Condvar,
    opened: Condvar,
    committed: Condvar,
    /// One more waits for a commit.
    arrived: Condvar,
    /// Blocks that handles may change in one transaction.
    most: u32,
    keeper: Keeper,
}

/// Where transactions go.
#[derive(Debug)]
enum Medium {
    /// Into a log first, home later.
    Log(Box<Log>),
    /// Home, in rounds.
    Rounds(Rounds),
}

impl Medium {
    fn checkpoints(&self) -> u64 {
        match self {
            Medium::Log(log) => log.checkpoints(),
            Medium::Rounds(_) => 0,
        }
    }
}

/// Aborts the journal if the thread panics while this lives.
struct AbortOnPanic<'a>(&'a Journal, &'a Disk);

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        self.0.abort_if_panicking(self.1);
    }
}

impl Journal {
    /// With a log, or in rounds without one. A transaction is at most `interval` old when it is committed.
    pub(crate) fn new(
        level: u8,
        log: Option<Log>,
        interval: Duration,
        hooks: Weak<dyn CommitHooks>,
    ) -> Journal {
        let (most, first) = match &log {
            Some(log) => (log.most_blocks(), log.next_tid()),
            None => (ROUND_BLOCKS, Tid::new(1)),
        };
        let medium = match log {
            Some(log) => Medium::Log(Box::new(log)),
            None => Medium::Rounds(Rounds),
        };
        Journal {
            medium: Mutex::at_level(&JOURNAL, level, medium),
            state: Mutex::at_level(&JOURNAL_STATE, level, State::new(first)),
            quiet: Condvar::new(),
            opened: Condvar::new(),
            committed: Condvar::new(),
            arrived: Condvar::new(),
            most: most.saturating_sub(COMMIT_CREDITS),
            keeper: Keeper::new(level, interval, hooks),
        }
    }

    /// For changes that stay in memory: home at once, and the superblock says nothing of a volume in use.
    pub(crate) fn in_memory(
        level: u8,
        interval: Duration,
        hooks: Weak<dyn CommitHooks>,
    ) -> Journal {
        let journal = Journal::new(level, None, interval, hooks);
        journal.state.lock().marked = true;
        journal
    }

    /// Makes durable all of `tid` and before, if it is not yet. Blocks; no lock may be held.
    pub(crate) fn commit_up_to(&self, hooks: &dyn CommitHooks, tid: Tid) -> Result<(), Error> {
        let mut counted = false;
        loop {
            let mut state = self.state.lock();
            if let Some(error) = &state.aborted {
                return Err(error.clone());
            }
            if !tid.is_after(state.committed) {
                return Ok(());
            }
            state.check_no_group()?;
            if !std::mem::replace(&mut counted, true) {
                state.crowd.arrived += 1;
                self.arrived.notify_one();
            }
            drop(state);
            match self.medium.try_lock() {
                Some(mut medium) => {
                    // Somebody may have committed it between the look and the lock.
                    if !tid.is_after(self.committed()) {
                        return Ok(());
                    }
                    self.gather();
                    return self.commit(hooks, &mut medium);
                }
                None => self.wait_for_commit(tid),
            }
        }
    }

    /// Something will have to be committed when the interval has passed.
    pub(crate) fn expect_commit(&self) {
        self.keeper.wake();
    }

    /// As [`Journal::expect_commit`], without waiting for the interval.
    pub(crate) fn hurry_commit(&self) {
        self.keeper.hurry();
    }

    /// Commits what is running, if there is anything. Blocks; no lock may be held.
    pub(crate) fn commit_running(&self, hooks: &dyn CommitHooks) -> Result<(), Error> {
        let tid = self.state.lock().running.tid;
        self.commit_up_to(hooks, tid)
    }

    /// Commits what there is and brings it home, so that the volume needs no recovery, unless somebody changes something meanwhile.
    /// Blocks; no lock may be held.
    pub(crate) fn settle(&self, hooks: &dyn CommitHooks) -> Result<(), Error> {
        let disk = hooks.store();
        let mut medium = self.medium.lock();
        {
            let state = self.state.lock();
            if let Some(error) = &state.aborted {
                return Err(error.clone());
            }
            state.check_no_group()?;
        }
        self.commit(hooks, &mut medium)?;
        self.check(disk, |journal| journal.bring_home(disk, &mut medium))?;
        if !self.begin_to_mark_clean() {
            return Ok(());
        }
        let marked = self.check(disk, |_| disk.mark_clean(hooks.has_orphans_in_file()));
        self.state.lock().closing = false;
        self.opened.notify_all();
        marked
    }

    /// Keeps handles out while the superblock says that the volume is clean, if it does not say so yet. Not if one is open or has changed
    /// something since the last commit: the superblock in memory may hold a part of that.
    fn begin_to_mark_clean(&self) -> bool {
        let mut state = self.state.lock();
        let may = state.marked && state.open == 0 && state.running.is_empty();
        if may {
            (state.marked, state.closing) = (false, true);
        }
        may
    }

    /// Brings home what is committed and empties the log; the volume stays marked as in use. Blocks; no lock may be held.
    pub(crate) fn checkpoint(&self, disk: &Disk) -> Result<(), Error> {
        let mut medium = self.medium.lock();
        if let Some(error) = self.aborted() {
            return Err(error);
        }
        self.check(disk, |journal| journal.bring_home(disk, &mut medium))
    }

    /// What it has done so far. Waits for a commit under way.
    pub(crate) fn stats(&self) -> JournalStats {
        let medium = self.medium.lock();
        JournalStats {
            checkpoints: medium.checkpoints(),
            ..self.state.lock().stats
        }
    }

    /// Blocks that one handle should change at most.
    pub(crate) fn most_credits(&self) -> u32 {
        self.most / 2
    }

    /// The last transaction that is durable.
    pub(crate) fn committed(&self) -> Tid {
        self.state.lock().committed
    }

    /// The newest transaction that may have changed something and is not durable.
    pub(crate) fn newest_uncommitted(&self) -> Option<Tid> {
        self.state.lock().newest_uncommitted()
    }

    /// Is this transaction durable?
    pub(crate) fn is_committed(&self, tid: Tid) -> bool {
        !tid.is_after(self.committed())
    }

    /// Nothing will ever be committed any more.
    pub(crate) fn is_aborted(&self) -> bool {
        self.state.lock().aborted.is_some()
    }

    /// Why nothing can be changed any more, if that is so.
    fn aborted(&self) -> Option<Error> {
        self.state.lock().aborted.clone()
    }

    /// Latches the first error: nothing more is written, everybody who waits is told. May be called under locks, so that it is written down
    /// later.
    pub(crate) fn abort(&self, disk: &Disk, error: &Error) {
        self.state
            .lock()
            .aborted
            .get_or_insert_with(|| error.clone());
        disk.note_abort(error);
        self.opened.notify_all();
        self.committed.notify_all();
        self.keeper.hurry();
    }

    /// Tells the next open and e2fsck why the journal was aborted, if it was, as well as the device lets us: in the journal's
    /// superblock, which recovery reads first, then in the volume's. Blocks; no lock may be held.
    pub(crate) fn write_failure_down(&self, disk: &Disk) {
        let mut medium = self.medium.lock();
        let Some(error) = self.aborted() else {
            return;
        };
        let Some(record) = disk.take_record() else {
            return;
        };
        if let Medium::Log(log) = &mut *medium {
            let _best_effort = log.note_errno(disk, Code::of(&error).in_journal());
        }
        // From the bytes at home: those in memory have changes that nobody will ever commit.
        let edit = |sb: &mut SuperblockEdit<'_>| sb.record_error(&record);
        let _best_effort = edit_superblock(&disk.blocking, disk.block_size(), edit);
    }

    /// Aborts if this thread panics: what it was changing, or writing, is half-way.
    fn abort_if_panicking(&self, disk: &Disk) {
        if std::thread::panicking() {
            self.abort(disk, &Error::Panicked);
        }
    }

    /// Runs a part whose failure aborts.
    fn check<R>(
        &self,
        disk: &Disk,
        part: impl FnOnce(&Journal) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let _guard = AbortOnPanic(self, disk);
        part(self).inspect_err(|error| self.abort(disk, error))
    }

    /// Waits a little for those who have lately waited for commits at the same time: one commit for all is cheaper than one for each half.
    fn gather(&self) {
        let mut state = self.state.lock();
        let deadline = Instant::now() + state.crowd.patience;
        while !state.crowd.is_complete() && state.aborted.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.arrived.wait_timeout(state, left);
        }
    }

    fn wait_for_commit(&self, tid: Tid) {
        let state = self.state.lock();
        if state.aborted.is_none() && tid.is_after(state.committed) {
            // Bounded: the one who commits may be ahead of this transaction and leave it to us.
            drop(self.committed.wait_timeout(state, Duration::from_millis(1)));
        }
    }
}
