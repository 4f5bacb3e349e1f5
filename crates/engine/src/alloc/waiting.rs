//! Inodes of a group that were freed in rounds which are not durable yet, on a volume without a journal.
//!
//! Input: freed inodes with their rounds; which rounds are durable. Output: whether an inode still waits for its round. Invariant: each
//! query and each change costs one lookup in a tree, however many inodes wait. Limits: rounds are added in ascending order, as handles
//! end.

use diorite_format::Tid;
use std::collections::{BTreeMap, VecDeque};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_index: BTreeMap<u32, Tid>,
    /// In the order of rounds. An entry may be obsolete: its inode was taken, or freed again in a later round.
    in_order: VecDeque<(Tid, u32)>,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.by_index.len()
    }

    pub(super) fn has(&self, index: u32) -> bool {
        self.by_index.contains_key(&index)
    }

    pub(super) fn first(&self) -> Option<u32> {
        self.by_index.keys().next().copied()
    }

    /// Notes that this round frees an inode.
    pub(super) fn add(&mut self, round: Tid, index: u32) {
        self.by_index.insert(index, round);
        self.in_order.push_back((round, index));
    }

    /// Notes that an inode was taken, which may have waited.
    pub(super) fn remove(&mut self, index: u32) {
        self.by_index.remove(&index);
    }

    /// Removes the inodes whose rounds are durable, and returns the lowest of them.
    pub(super) fn let_go(&mut self, is_durable: impl Fn(Tid) -> bool) -> Option<u32> {
        let mut first: Option<u32> = None;
        while let Some((round, index)) = self.in_order.front().copied() {
            if !is_durable(round) {
                break;
            }
            self.in_order.pop_front();
            // Otherwise it was taken, and perhaps freed again since.
            if self.by_index.get(&index) == Some(&round) {
                self.by_index.remove(&index);
                first = Some(first.map_or(index, |first| first.min(index)));
            }
        }
        first
    }
}
