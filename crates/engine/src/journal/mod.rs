//! The journal module: changes of metadata become transactions, which are made durable and then written home.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `store` | a disk and its journal -> blocks that change together |
//! | `hooks` | a commit -> what the modules above add to it |
//! | `handle` | the wish to change blocks -> a handle in the running transaction |
//! | `transaction` | what handles changed -> one transaction; who waits for what |
//! | `atomic` | changes of many handles -> all of them in one commit, or in none |
//! | `commit` | the running transaction -> durable in the log, or at home in rounds |
//! | `log` | frozen blocks -> a jbd2 log: descriptors, revokes, commit blocks, its superblock |
//! | `log/size` | a transaction with another size of the volume -> home, by one write of the superblock |
//! | `order` | names that change -> which blocks go home before which, without a journal |
//! | `rounds` | frozen blocks -> at home, in ordered writes, without a journal |
//! | `keeper` | time -> the periodic commit and checkpoint |
//! | `recovery` | what a crash left in the log -> the blocks that it holds, in memory or at home |
//!
//! A block is *home* when its bytes are durable at its own place on the volume, not only in the log.
//!
//! Input: changes of blocks, under handles. Output: durable transactions. Invariants: a commit does not wait for data, and open handles
//! wait for nothing but metadata; a handle is begun with no lock held; the first error aborts the journal, and every waiting and every
//! later caller gets that error. Limits: a transaction changes at most a quarter of the log's blocks.
//!
//! # Transactions and commits
//!
//! A handle has credits: the number of blocks that it may change. It is begun with no lock held and joins the running transaction. Changes
//! are made in the metadata cache. If a reader or the committing transaction holds a block's bytes, the change copies them first, so what
//! is being written to the log never changes. Two kinds of checksums are not updated by each change. That of an extent tree node that was
//! edited in place, or of a block of names, is made when the transaction is frozen. Those of a bitmap and its descriptor, which depend on
//! each other, are made once per batch of conversions (a crc32c of 4 KiB takes a third of a microsecond); if inodes of a group are
//! allocated or freed several times in a transaction, for the first time and then by the commit (`alloc/unsealed.rs`).
//!
//! Times advance with the host's timer tick, as the kernel's do: an fsync whose tick's time is committed already only flushes. Times that
//! are only noted in memory are written by handles with credits: an fsync or O_SYNC write adds its own inode's to the running
//! transaction; the keeper, `Volume::sync` and close add those of all inodes, 64 inodes a handle (`inode/dirty_times.rs`). A commit itself
//! adds one block, the superblock, for which each transaction keeps room.
//!
//! A thread that needs a commit makes it itself; only one commit runs at a time. The keeper thread makes the periodic commit. A commit
//! first waits for as many threads as took part in the last one, at most half as long as that one took: so four threads that call fsync
//! share one commit instead of two.
//!
//! 1. No new handle begins, and the open ones end (they wait for nothing but metadata). Free counts are added.
//! 2. The blocks are frozen, that is, the commit holds their bytes. The next transaction begins.
//! 3. Revokes, descriptors and blocks are written to the log, and flushed, the volume's device first. Then the commit block is written
//!    durably. Where the host turns FUA into a flush behind the write (`Geometry::fua_flushes`), writing and flushing are one wait each
//!    time.
//! 4. What the transaction freed may be used again, and the threads that waited go on.
//!
//! A **checkpoint** writes the newest committed bytes of every block home, flushes, and empties the log. It is made when the log is half
//! full, when 20 MiB of blocks are not home, when a transaction has no room, and when the volume is closed.
//!
//! Without a journal a commit is a **round** of ordered writes: a flush (for data); blocks that nothing on disk points to yet; a flush;
//! descriptors of groups whose inode tables are in use further than before (e2fsck looks at no others); a flush; the rest; a flush. Blocks
//! and inode numbers that a round frees may be used again after it. An error in any step aborts: nothing more is written.
//!
//! If names were moved or replaced, the rest of a round is written in phases with a flush behind each (`journal/order.rs`): inodes and
//! maps; blocks of names; then inodes that lost their last name, and the superblock, which names orphans. If an inode table block has both
//! a new inode and one that goes, it is written twice, the first time with the place of the inode that goes as it is on the device. Of two
//! blocks of names, the one that gets a name precedes the one that loses it. If a directory has moved names into new blocks of its own,
//! these names become visible with the directory's inode. So that inode is written in the phase of names, before the blocks that held the
//! names until then. A move that would close a circle in this order commits first. A round without such names writes the rest in one
//! phase.
//!
//! An **atomic change** (`Volume::atomic`, `journal/atomic.rs`) is many changes in one transaction. While it is open nobody commits,
//! requests that need a commit fail, and inodes that lose their last name wait on the orphan list. It ends with one commit, or it is
//! abandoned: what is committed is written home, the volume is closed, and the atomic change's changes, which were in memory only, are
//! lost. Data must survive an abandoned change, so the atomic change does not zero the bytes behind the new end of a truncated file; they
//! are zeroed when the file is extended later, and until the atomic change has ended the file cannot be extended over them. Changes of
//! inodes with the flag `S` are durable with it. Data that an atomic change wrote through the journal cannot be cut off before its commit.
//!
//! Data that goes through the journal (`inode/journalled.rs`) is part of transactions like metadata. Such files are read from the metadata
//! cache, which has the blocks that are not home yet. All space for a write is allocated before its first handle (`inode/beforehand.rs`).
//! Before a range operation or a deletion touches the data, everything is committed, written home and dropped from the cache, so that
//! neither the log nor the cache has old contents of blocks that become another file's.

mod atomic;
mod commit;
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

pub use atomic::AtomicFill;
pub(crate) use handle::JournalHandle;
pub(crate) use hooks::CommitHooks;
pub(crate) use log::{Log, Places};
pub(crate) use order::NamesAt;
pub(crate) use store::Store;

use crate::disk::{Code, Disk, edit_superblock};
use crate::error::Error;
use crate::locks::{JOURNAL, JOURNAL_STATE};
use crate::stats::JournalStats;
use diorite_block::sync::atomic::{AtomicU64, Ordering};
use diorite_block::sync::{Condvar, Mutex, Parts};
use diorite_format::Tid;
use diorite_format::superblock::SuperblockEdit;
use keeper::Keeper;
use rounds::Rounds;
use std::sync::Weak;
use std::time::{Duration, Instant};
use transaction::{COMMIT_CREDITS, State};

/// Blocks that a round without a journal changes at most.
const ROUND_BLOCKS: u32 = 4096;

/// In place of a transaction's number: everything is durable.
const NOTHING: u64 = u64::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Held by the thread that commits.
    medium: Mutex<Medium>,
    state: Mutex<State>,
    /// What [`State::newest_uncommitted`] returns, for readers without the lock: stored under it, when a handle begins or ends and when a
    /// commit ends.
    newest: AtomicU64,
    /// Conditions on `state`: the last open handle has ended; handles may begin; a commit has ended.
    quiet: Condvar,
    opened: Condvar,
    committed: Condvar,
    /// One more thread waits for a commit.
    arrived: Condvar,
    /// Blocks that handles may change in one transaction.
    most: u32,
    /// Blocks that a handle may change which has a transaction to itself.
    most_alone: u32,
    has_log: bool,
    keeper: Keeper,
}

/// How transactions become durable.
#[derive(Debug)]
enum Medium {
    /// Written to a log first, and home later.
    Log(Box<Log>),
    /// Written home, in ordered rounds.
    Rounds(Rounds),
}

impl Medium {
    /// See [`Journal::keep_superblock`].
    fn keep_superblock(&self, disk: &Disk, block: &[u8]) -> Result<(), Error> {
        match self {
            Medium::Log(log) => log.keep_superblock(disk, block),
            Medium::Rounds(_) => Ok(()),
        }
    }

    fn checkpoints(&self) -> u64 {
        match self {
            Medium::Log(log) => log.checkpoints(),
            Medium::Rounds(_) => 0,
        }
    }
}

/// Aborts the journal when it is dropped, which only a panic does: what was being written is incomplete.
struct AbortOnPanic<'a> {
    journal: &'a Journal,
    disk: &'a Disk,
}

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        self.journal.abort(self.disk, &Error::Panicked);
    }
}

impl Journal {
    /// See [`crate::Volume::parts_in_memory`].
    pub(crate) fn parts_in_memory(&self, parts: &mut Parts) {
        parts.add("journal: other", self);
        parts.add("journal: medium", &self.medium);
        parts.add("journal: running transaction", &self.state);
        parts.add("journal: keeper", &self.keeper);
    }

    /// A journal with a log, or without one. A transaction is committed when it is `interval` old, if not before.
    pub(crate) fn new(
        level: u8,
        log: Option<Log>,
        interval: Duration,
        hooks: Weak<dyn CommitHooks>,
    ) -> Journal {
        let (most, most_alone, first) = match &log {
            Some(log) => (log.most_blocks(), log.most_alone(), log.next_tid()),
            None => (ROUND_BLOCKS, u32::MAX, Tid::new(1)),
        };
        let has_log = log.is_some();
        let medium = match log {
            Some(log) => Medium::Log(Box::new(log)),
            None => Medium::Rounds(Rounds),
        };
        Journal {
            medium: Mutex::at_level(&JOURNAL, level, medium),
            state: Mutex::at_level(&JOURNAL_STATE, level, State::new(first)),
            newest: AtomicU64::new(NOTHING),
            quiet: Condvar::new(),
            opened: Condvar::new(),
            committed: Condvar::new(),
            arrived: Condvar::new(),
            most: most.saturating_sub(COMMIT_CREDITS),
            most_alone: most_alone.saturating_sub(COMMIT_CREDITS),
            has_log,
            keeper: Keeper::new(level, interval, hooks),
        }
    }

    /// A journal for a volume on a device in memory: no log, and the superblock is never marked as in use.
    pub(crate) fn in_memory(
        level: u8,
        interval: Duration,
        hooks: Weak<dyn CommitHooks>,
    ) -> Journal {
        let journal = Journal::new(level, None, interval, hooks);
        journal.state.lock().marked = true;
        journal
    }

    /// Makes durable transaction `tid` and all before it, unless they are. Blocks; no lock may be held.
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
            state.check_no_atomic()?;
            if !std::mem::replace(&mut counted, true) {
                state.crowd.arrived += 1;
                self.arrived.notify_one();
            }
            drop(state);
            match self.medium.try_lock() {
                Some(mut medium) => {
                    // Another thread may have committed it since the check above.
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

    /// Tells the keeper that there is something to commit when the interval has passed.
    pub(crate) fn expect_commit(&self) {
        self.keeper.wake();
    }

    /// As [`Journal::expect_commit`], but the keeper commits at once.
    pub(crate) fn hurry_commit(&self) {
        self.keeper.hurry();
    }

    /// Ends the keeper, which may hold the volume until then. From now on commits come with syncs and when a transaction is full. Blocks;
    /// no lock may be held.
    pub(crate) fn end_keeper(&self) {
        self.keeper.end();
    }

    /// Commits the running transaction, if it has changes. Blocks; no lock may be held.
    pub(crate) fn commit_running(&self, hooks: &dyn CommitHooks) -> Result<(), Error> {
        let tid = self.state.lock().running.tid;
        self.commit_up_to(hooks, tid)
    }

    /// Commits, writes everything home and marks the volume as clean, so that it needs no recovery. If somebody changes something
    /// meanwhile it stays marked as in use. Blocks; no lock may be held.
    pub(crate) fn make_clean(&self, hooks: &dyn CommitHooks) -> Result<(), Error> {
        let disk = hooks.store();
        let mut medium = self.medium.lock();
        {
            let state = self.state.lock();
            if let Some(error) = &state.aborted {
                return Err(error.clone());
            }
            state.check_no_atomic()?;
        }
        self.commit(hooks, &mut medium)?;
        self.check(disk, |journal| journal.bring_home(disk, &mut medium))?;
        disk.load_super()?;
        if !self.begin_to_mark_clean() {
            return Ok(());
        }
        let marked = self.check(disk, |_| {
            let keep = |block: &[u8]| medium.keep_superblock(disk, block);
            disk.mark_clean(hooks.has_orphans_in_file(), keep)
        });
        self.state.lock().closing = false;
        self.opened.notify_all();
        marked
    }

    /// Keeps handles from beginning while the superblock is marked as clean. Returns false, and does not, if the volume is not marked as
    /// in use, a handle is open, or something changed since the last commit: then the superblock in memory may have a part of that change.
    fn begin_to_mark_clean(&self) -> bool {
        let mut state = self.state.lock();
        let may = state.marked && state.open == 0 && state.running.is_empty();
        if may {
            (state.marked, state.closing) = (false, true);
        }
        may
    }

    /// Writes home what is committed and empties the log. The volume stays marked as in use. Blocks; no lock may be held.
    pub(crate) fn checkpoint(&self, disk: &Disk) -> Result<(), Error> {
        let mut medium = self.medium.lock();
        if let Some(error) = self.aborted() {
            return Err(error);
        }
        self.check(disk, |journal| journal.bring_home(disk, &mut medium))
    }

    /// Moves the log. The volume must be clean, and nobody may change it meanwhile. The new place has zeros; it gets the superblock of an
    /// empty log, durably. Then `switch` has to make the new place that of the volume's journal, durably and in one step. Blocks; no lock
    /// may be held.
    pub(crate) fn move_log(
        &self,
        disk: &Disk,
        places: Places,
        switch: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut medium = self.medium.lock();
        let is_clean = {
            let state = self.state.lock();
            if let Some(error) = &state.aborted {
                return Err(error.clone());
            }
            !state.marked && state.open == 0 && state.running.is_empty()
        };
        match &mut *medium {
            Medium::Log(log) if is_clean => self.check(disk, |_| log.move_to(disk, places, switch)),
            Medium::Log(_) | Medium::Rounds(_) => {
                let what = "the journal of a volume in use cannot be moved";
                Err(Error::Invalid(what.to_owned()))
            }
        }
    }

    /// What the journal has done so far. Waits for a commit under way.
    pub(crate) fn stats(&self) -> JournalStats {
        let medium = self.medium.lock();
        JournalStats {
            checkpoints: medium.checkpoints(),
            ..self.state.lock().stats
        }
    }

    /// The largest number of credits that one handle should ask for.
    pub(crate) fn most_credits(&self) -> u32 {
        self.most / 2
    }

    /// The largest number of credits that a handle can have which must be one, however much it changes: as many as the log holds. Others
    /// wait until its transaction is committed, and its blocks stay in memory until then.
    pub(crate) fn most_credits_alone(&self) -> u32 {
        self.most_alone
    }

    /// Is a transaction durable as a whole, or not at all?
    pub(crate) fn has_log(&self) -> bool {
        self.has_log
    }

    /// The last transaction that is durable.
    pub(crate) fn committed(&self) -> Tid {
        self.state.lock().committed
    }

    /// The newest transaction that may have changed something and is not durable.
    ///
    /// Takes no lock. A change is made under a handle, and the number of its transaction is stored when the handle begins; so whoever sees
    /// the change sees that number or a later one, unless a commit that holds the change has ended.
    pub(crate) fn newest_uncommitted(&self) -> Option<Tid> {
        let newest = self.newest.load(Ordering::Acquire);
        u32::try_from(newest).ok().map(Tid::new)
    }

    /// Shows to [`Journal::newest_uncommitted`] what has changed in the state, whose lock the caller holds.
    fn show_newest(&self, state: &State) {
        let newest = state.newest_uncommitted();
        let newest = newest.map_or(NOTHING, |tid| u64::from(tid.get()));
        self.newest.store(newest, Ordering::Release);
    }

    /// Is this transaction durable?
    pub(crate) fn is_committed(&self, tid: Tid) -> bool {
        !tid.is_after(self.committed())
    }

    /// Will nothing be committed any more?
    pub(crate) fn is_aborted(&self) -> bool {
        self.state.lock().aborted.is_some()
    }

    /// The error that aborted the journal, if one did.
    fn aborted(&self) -> Option<Error> {
        self.state.lock().aborted.clone()
    }

    /// Aborts the journal; the first error is kept. Nothing more is written, and everybody who waits is woken and gets it. May be called
    /// with locks held, so the keeper writes the error down later.
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

    /// Writes down why the journal was aborted, if it was, for the next open and for e2fsck: in the journal's superblock, which recovery
    /// reads first, then in the volume's. Best effort. Blocks; no lock may be held.
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
        // Based on the superblock on the device: the one in memory has changes that will never be committed.
        let edit = |sb: &mut SuperblockEdit<'_>| sb.record_error(&record);
        let _best_effort = edit_superblock(&disk.blocking, disk.block_size(), edit);
    }

    /// Keeps a copy of the superblock's block, durably, before that is written in place, for the case that the write is torn: in a log that
    /// is empty, where no group has a copy. Blocks.
    pub(crate) fn keep_superblock(&self, disk: &Disk, block: &[u8]) -> Result<(), Error> {
        self.medium.lock().keep_superblock(disk, block)
    }

    /// Runs `part`; aborts the journal if it fails or panics.
    fn check<R>(
        &self,
        disk: &Disk,
        part: impl FnOnce(&Journal) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let guard = AbortOnPanic {
            journal: self,
            disk,
        };
        let done = part(self);
        std::mem::forget(guard);
        done.inspect_err(|error| self.abort(disk, error))
    }

    /// Waits briefly for the threads that lately waited for commits together: one commit for all is cheaper than one for each half of
    /// them.
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
            // With a timeout: the commit under way may be of an earlier transaction, and then this one is ours to commit.
            drop(self.committed.wait_timeout(state, Duration::from_millis(1)));
        }
    }
}
