//! Inodes of a group that were freed by rounds which are not durable yet, on a volume without a journal.
//!
//! Input: what is freed, and by which round; what is durable. Output: is this one waiting? Invariant: each question and each change costs no more than a look into a
//! tree, however many wait. Limits: rounds come in their order, as handles do.

use diorite_format::Tid;
use std::collections::{BTreeMap, VecDeque};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_index: BTreeMap<u32, Tid>,
    /// Some of them may not wait any more.
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

    /// This round frees it.
    pub(super) fn add(&mut self, round: Tid, index: u32) {
        self.by_index.insert(index, round);
        self.in_order.push_back((round, index));
    }

    /// It was taken although it waited, if it did.
    pub(super) fn remove(&mut self, index: u32) {
        self.by_index.remove(&index);
    }

    /// Lets go of what does not wait any more; gives the first of these.
    pub(super) fn let_go(&mut self, is_durable: impl Fn(Tid) -> bool) -> Option<u32> {
        let mut first: Option<u32> = None;
        while let Some((round, index)) = self.in_order.front().copied() {
            if !is_durable(round) {
                break;
            }
            self.in_order.pop_front();
            // Else it was taken, and maybe freed again since.
            if self.by_index.get(&index) == Some(&round) {
                self.by_index.remove(&index);
                first = Some(first.map_or(index, |first| first.min(index)));
            }
        }
        first
    }
}
