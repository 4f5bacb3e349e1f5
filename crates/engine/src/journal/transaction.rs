//! The running transaction, and the state that commits and handles wait on.
//!
//! Input: handles that begin, change blocks and end. Output: one complete [`Transaction`] for the commit. Invariants: a transaction is
//! taken only when no handle in it is open; it has each block once; tids go up by one. Limits: guarded by one lock, held for a few
//! instructions.

use super::atomic::Atomic;
use super::order::Order;
use crate::error::Error;
use crate::stats::JournalStats;
use diorite_block::Epoch;
use diorite_format::{FsBlock, Tid};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Blocks that a commit itself changes: the superblock.
pub(super) const COMMIT_CREDITS: u32 = 1;

/// The longest time that a commit waits for other threads to join it.
const MOST_PATIENCE: Duration = Duration::from_millis(1);

/// How a transaction changes the size of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resize {
    /// It had so many blocks, and gets more.
    Larger { from: u64 },
    /// It gets fewer, or descriptors of another size.
    Smaller,
}

/// What a commit has to write, and what it makes possible.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) tid: Tid,
    /// The blocks that were changed. True if nothing on disk points to the block yet.
    pub(super) blocks: BTreeMap<FsBlock, bool>,
    /// Blocks that, without a log, are written before the rest: group descriptors, which say how much of the inode tables is in use.
    pub(super) leading: BTreeSet<FsBlock>,
    /// Without a log: the order in which changed names are written.
    pub(super) order: Order,
    /// Blocks that were metadata and are not any more.
    pub(super) revoked: BTreeSet<FsBlock>,
    /// Runs of blocks that may be used again once the transaction is durable.
    pub(super) freed: Vec<(FsBlock, u32)>,
    /// The oldest epoch of data that the transaction makes visible: no flush may have failed since.
    pub(super) relies_on: Option<Epoch>,
    /// Set if the superblock in it is of another size.
    pub(super) resize: Option<Resize>,
    /// When the first handle began.
    pub(super) since: Option<Instant>,
}

impl Transaction {
    fn new(tid: Tid) -> Transaction {
        Transaction {
            tid,
            blocks: BTreeMap::new(),
            leading: BTreeSet::new(),
            order: Order::default(),
            revoked: BTreeSet::new(),
            freed: Vec::new(),
            relies_on: None,
            resize: None,
            since: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.revoked.is_empty() && self.freed.is_empty()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct State {
    pub(super) running: Transaction,
    /// Open handles in the running transaction, and the credits that they have left.
    pub(super) open: u32,
    pub(super) credits: u32,
    /// The transaction is being closed: no handle may begin.
    pub(super) closing: bool,
    pub(super) committed: Tid,
    pub(super) aborted: Option<Error>,
    /// The open atomic change, if there is one: the running transaction belongs to it, and only its end commits it.
    pub(super) atomic: Option<Atomic>,
    /// The superblock says that the volume is in use.
    pub(super) marked: bool,
    pub(super) stats: JournalStats,
    pub(super) crowd: Crowd,
}

/// Threads that wait for commits, counted so that one commit may serve as many as possible.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// Those that came since the last transaction was frozen.
    pub(super) arrived: u32,
    /// Those that the commit under way, or else the last one, serves.
    served: u32,
    /// Those around when the last commit ended: served by it, or come during it.
    expected: u32,
    /// How long a commit waits for them at most: half the time that the last one took.
    pub(super) patience: Duration,
}

impl Crowd {
    /// Are as many threads waiting as were around lately?
    pub(super) fn is_complete(&self) -> bool {
        self.arrived >= self.expected
    }

    /// A transaction was frozen: threads that come from now on need the next one.
    pub(super) fn freeze(&mut self) {
        self.served = std::mem::take(&mut self.arrived);
    }

    /// A commit has ended, after this time.
    pub(super) fn end(&mut self, took: Duration) {
        self.expected = self.served + self.arrived;
        self.patience = (took / 2).min(MOST_PATIENCE);
    }
}

impl State {
    pub(super) fn new(first: Tid) -> State {
        State {
            running: Transaction::new(first),
            open: 0,
            credits: 0,
            closing: false,
            committed: Tid::new(first.get().wrapping_sub(1)),
            aborted: None,
            atomic: None,
            marked: false,
            stats: JournalStats::default(),
            crowd: Crowd::default(),
        }
    }

    /// The newest transaction that is not durable and has changes, or an open handle that may still make some. It may be being written to
    /// the log.
    pub(super) fn newest_uncommitted(&self) -> Option<Tid> {
        if self.open > 0 || !self.running.is_empty() {
            return Some(self.running.tid);
        }
        let last = Tid::new(self.running.tid.get().wrapping_sub(1));
        last.is_after(self.committed).then_some(last)
    }

    /// May a handle with so many credits begin now? `most` is the largest number of blocks in a transaction.
    pub(super) fn has_room(&self, credits: u32, most: u32) -> bool {
        let used = self.used();
        // A transaction that is empty takes any handle, even one larger than `most`.
        used + u64::from(self.credits) == 0
            || used + u64::from(self.credits + credits) <= u64::from(most)
    }

    /// Blocks that the running transaction changes or revokes.
    pub(super) fn used(&self) -> u64 {
        self.running.blocks.len() as u64 + self.running.revoked.len() as u64
    }

    /// Takes the running transaction and begins the next one.
    pub(super) fn take(&mut self) -> Transaction {
        let next = Tid::new(self.running.tid.get().wrapping_add(1));
        std::mem::replace(&mut self.running, Transaction::new(next))
    }
}
