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
//!
//! # Transactions and commits
//!
//! A handle is begun with no lock held, may change so many blocks, and joins the running transaction. Changes go to the metadata cache:
//! blocks are changed in place unless somebody holds their bytes, a reader or the committing transaction; then the change makes a copy,
//! so what is being written to the log never changes under it. A node of an extent tree that was edited in place, or a block of names,
//! gets its sum when the transaction is frozen; a bitmap and its descriptor, whose sums name each other, get theirs with every batch of
//! conversions (a crc32c of 4 KiB is a third of a microsecond).
//!
//! Times move with the host's timer tick, as the kernel's do: an fsync that finds that tick's time committed only flushes. Times that
//! were only noted are written by handles with credits: an fsync or O_SYNC write puts its own inode's into the running transaction, the
//! keeper, `Volume::sync` and close all of them, 64 inodes a handle (`inode/dirty_times.rs`). A commit itself adds one block, the
//! superblock's, for which each transaction keeps room.
//!
//! Whoever needs a commit makes it, in its own thread (there is one at a time); a keeper thread makes the periodic one. It first waits,
//! at most half as long as the last commit took, for as many as were about at that one: four threads that call fsync share one commit,
//! not two.
//!
//! 1. no handle begins; open ones end (they wait for nothing but metadata); free counts are added
//! 2. the blocks are frozen - their bytes are held - and the next transaction begins
//! 3. revokes, descriptors and blocks go to the log; flush, of the volume's device first; the commit block, durably. Where FUA is a
//!    flush behind the write that the host makes (`Geometry::fua_flushes`), writing and flushing are one wait each time, not two
//! 4. what the transaction freed may be used again; who waited goes on
//!
//! A **checkpoint** brings the newest committed bytes of every block home, flushes, and empties the log: when it is half full or has 20
//! MiB that are not home, or has no room for a transaction, or the volume is closed. Without a journal a commit is a round: flush
//! (data), blocks that nothing points to yet, flush, descriptors of groups that have more inodes in use than ever (e2fsck looks at no
//! others), flush, the rest, flush; blocks and numbers of inodes that it frees are used again after it. An error in any of this aborts:
//! nothing more is written, and everybody who waits or comes later is told.
//!
//! Where names were moved or put in the place of others, the rest of a round goes home in turns, a flush behind each
//! (`journal/order.rs`): inodes and maps; blocks of names; what lost its last name, with the superblock that names orphans. A block of
//! the inode table that has both a new file and one that goes is written twice, at first with the latter's place as it is on the
//! device. Among blocks of names the one that gets a name comes before the one that loses it. Names in new blocks of a directory are
//! there with the directory's inode, which goes home with the names then, and before the blocks from which these came. A move that
//! would close a circle commits first. Rounds without such names keep the one turn.
//!
//! A **group** (`Volume::group`, `journal/group.rs`) is many changes as one transaction: while it is open nobody commits, what would
//! need a commit in the middle fails, inodes that lose their last name wait on the list of orphans. At its end comes one commit; or it
//! is given up: what is committed goes home, the volume is closed, and what the group has changed was in memory only. So what is behind
//! the new end of a file that became shorter is not zeroed by the group, but by who makes the file longer afterwards; until then the
//! file cannot grow over it. What an inode's flag `S` asks for is durable with the group. Data that a group wrote through the journal
//! cannot be cut before its commit.
//!
//! Data that goes through the journal (`inode/journalled.rs`) is blocks of a transaction like metadata: reads of such a file come from
//! the metadata cache, where what is not home is. All space that a write needs is had before its first handle (`inode/beforehand.rs`).
//! Before a range operation or a deletion touches it, all is committed and brought home and the cache lets go of it, so that no log and
//! no cache has anything of blocks that become another's.

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
