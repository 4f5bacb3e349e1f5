//! The running transaction and who waits for what.
//!
//! Input: handles that begin, change blocks and end. Output: one [`Transaction`], whole, for the commit. Invariants: a transaction is taken
//! only when no handle is open in it; a block is in it once; tids go up by one. Limits: guarded by one lock, held for a few instructions.

use super::group::Group;
use super::order::Order;
use crate::error::Error;
use crate::stats::JournalStats;
use diorite_block::Epoch;
use diorite_format::{FsBlock, Tid};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Blocks that a commit changes by itself: the superblock's.
pub(super) const COMMIT_CREDITS: u32 = 1;

/// The longest that a commit waits for others to join it.
const MOST_PATIENCE: Duration = Duration::from_millis(1);

/// What a commit has to write, and what becomes possible after it.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) tid: Tid,
    /// The blocks that were changed. True: nothing on disk points to it yet.
    pub(super) blocks: BTreeMap<FsBlock, bool>,
    /// Of these must come before the rest what says how far inode tables are used, where there is no log.
    pub(super) leading: BTreeSet<FsBlock>,
    /// And in which order names come and go there.
    pub(super) order: Order,
    /// Blocks that were metadata and are none any more.
    pub(super) revoked: BTreeSet<FsBlock>,
    /// Runs of blocks that may be used again once this is durable.
    pub(super) freed: Vec<(FsBlock, u32)>,
    /// Of the data that it shows, which no flush may have lost: from when on.
    pub(super) relies_on: Option<Epoch>,
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
    /// Handles open in it, and the blocks that they may still add.
    pub(super) open: u32,
    pub(super) credits: u32,
    /// No handle may begin: the transaction is being closed.
    pub(super) closing: bool,
    pub(super) committed: Tid,
    pub(super) aborted: Option<Error>,
    /// What is running is to be committed as a whole, and by who says so.
    pub(super) group: Option<Group>,
    /// The volume is marked as in use.
    pub(super) marked: bool,
    pub(super) stats: JournalStats,
    pub(super) crowd: Crowd,
}

/// Who waits for commits, so that one commit may serve as many as possible.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// Came since the last transaction was frozen.
    pub(super) arrived: u32,
    /// Are served by the commit under way, or were by the last one.
    served: u32,
    /// Were about when the last commit ended: served by it, or come meanwhile.
    expected: u32,
    /// How long a commit waits for them at most: half the time that the last one took.
    pub(super) patience: Duration,
}

impl Crowd {
    /// Everybody is here who was about lately.
    pub(super) fn is_complete(&self) -> bool {
        self.arrived >= self.expected
    }

    /// A transaction was frozen: who comes from now on needs the next one.
    pub(super) fn freeze(&mut self) {
        self.served = std::mem::take(&mut self.arrived);
    }

    /// The commit has ended, which took so long.
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
            group: None,
            marked: false,
            stats: JournalStats::default(),
            crowd: Crowd::default(),
        }
    }

    /// The newest transaction that has something in it, or may get it, and is not durable; it may be on its way into the log.
    pub(super) fn newest_uncommitted(&self) -> Option<Tid> {
        if self.open > 0 || !self.running.is_empty() {
            return Some(self.running.tid);
        }
        let last = Tid::new(self.running.tid.get().wrapping_sub(1));
        last.is_after(self.committed).then_some(last)
    }

    /// May a handle with so many credits begin now?
    pub(super) fn has_room(&self, credits: u32, most: u32) -> bool {
        let used = self.used();
        // A handle alone may be larger than what is left of an empty transaction.
        used + u64::from(self.credits) == 0
            || used + u64::from(self.credits + credits) <= u64::from(most)
    }

    /// How much of the running transaction is taken.
    pub(super) fn used(&self) -> u64 {
        self.running.blocks.len() as u64 + self.running.revoked.len() as u64
    }

    /// Takes the running transaction; the next one begins.
    pub(super) fn take(&mut self) -> Transaction {
        let next = Tid::new(self.running.tid.get().wrapping_add(1));
        std::mem::replace(&mut self.running, Transaction::new(next))
    }
}
