//! Which request changes which blocks of the device below: the range lock of a window with sectors smaller than those blocks.
//!
//! Input: claims, in whole blocks, with the blocks at their ends that are rewritten. Output: keys of claims that are held; claims
//! that may begin, when others end. Invariants: a block that is rewritten has no other change in flight; changes of whole blocks
//! do not exclude each other; a claim waits for every earlier claim that excludes it, so none waits for ever. Limits: reads claim
//! nothing.

use crate::device::Waker;
use crate::sync::Mutex;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// A held claim's place.
pub(super) type Key = usize;

/// The blocks that a change touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// Blocks, not bytes; at least one.
    pub(super) blocks: Range<u64>,
    /// The first block is rewritten.
    pub(super) head: bool,
    /// The last block is rewritten.
    pub(super) tail: bool,
}

impl Claim {
    /// Whether the two may not be in flight together: one rewrites a block that the other changes.
    fn excludes(&self, other: &Claim) -> bool {
        self.rewrites_any(&other.blocks) || other.rewrites_any(&self.blocks)
    }

    fn rewrites_any(&self, blocks: &Range<u64>) -> bool {
        self.head && blocks.contains(&self.blocks.start)
            || self.tail && blocks.contains(&(self.blocks.end - 1))
    }

    fn rewrites(&self) -> bool {
        self.head || self.tail
    }
}

/// What the other claims of a queue's requests have made possible.
#[derive(Debug)]
pub(super) struct Inbox {
    /// Requests, by their places in the queue's list, and the keys of their claims.
    pub(super) granted: Mutex<Vec<(usize, Key)>>,
    pub(super) waker: Arc<Waker>,
}

/// A claim that cannot be held yet.
#[derive(Debug)]
struct Waiter {
    claim: Claim,
    inbox: Arc<Inbox>,
    request: usize,
}

/// The claims of all queues of one device.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    held: Vec<Option<Claim>>,
    free: Vec<Key>,
    /// Held claims that rewrite a block.
    rewriting: usize,
    waiting: VecDeque<Waiter>,
}

/// A request that may begin: its queue's inbox, its place there, and its claim's key.
pub(super) type Grant = (Arc<Inbox>, usize, Key);

impl Blocks {
    /// Holds a claim from now on, if none that is held or waits excludes it.
    pub(super) fn take(&mut self, claim: Claim) -> Result<Key, Claim> {
        let is_free = match claim.rewrites() {
            // The usual case in a window that is written in whole blocks.
            false if self.rewriting == 0 && self.waiting.is_empty() => true,
            _ => !self.is_excluded(&claim, self.waiting.len()),
        };
        match is_free {
            true => Ok(self.hold(claim)),
            false => Err(claim),
        }
    }

    /// Puts a claim behind all that wait. It comes to `inbox` when it is held.
    pub(super) fn wait(&mut self, claim: Claim, inbox: Arc<Inbox>, request: usize) {
        self.waiting.push_back(Waiter {
            claim,
            inbox,
            request,
        });
    }

    /// Ends a claim. Those that can be held now are, and are added to `grants`.
    pub(super) fn release(&mut self, key: Key, grants: &mut Vec<Grant>) {
        let ended = self.held[key].take().expect("a claim is released once");
        self.free.push(key);
        self.rewriting -= usize::from(ended.rewrites());
        let mut at = 0;
        // A waiter that the ended claim did not exclude waits for another one.
        while at < self.waiting.len() {
            let claim = &self.waiting[at].claim;
            if !claim.excludes(&ended) || self.is_excluded(claim, at) {
                at += 1;
                continue;
            }
            let waiter = self.waiting.remove(at).expect("it was looked at above");
            let key = self.hold(waiter.claim);
            grants.push((waiter.inbox, waiter.request, key));
        }
    }

    /// Whether a held claim, or one of the first `earlier` that wait, excludes this one.
    fn is_excluded(&self, claim: &Claim, earlier: usize) -> bool {
        let waiting = self.waiting.range(..earlier).map(|w| &w.claim);
        waiting
            .chain(self.held.iter().flatten())
            .any(|other| claim.excludes(other))
    }

    fn hold(&mut self, claim: Claim) -> Key {
        self.rewriting += usize::from(claim.rewrites());
        match self.free.pop() {
            Some(key) => {
                self.held[key] = Some(claim);
                key
            }
            None => {
                self.held.push(Some(claim));
                self.held.len() - 1
            }
        }
    }
}
