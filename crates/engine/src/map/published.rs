//! A value that changes rarely and is read often: readers keep the version that they have until a newer one is published.
//!
//! Input: new versions, from the holder of the map lock. Output: the latest one, through each reader's own [`Cached`]. Invariant: a
//! reader that sees a new sequence number gets a version at least as new; reading an unchanged value touches nothing that another reader
//! writes. Directories have readers without such a copy: while nothing is published they take no lock. Limits: a reader keeps its version
//! alive until its next refresh.

use crate::locks::MAP_VIEW;
use diorite_block::sync::Biased;
use diorite_block::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// A published value.
#[derive(Debug)]
pub(crate) struct Published<T> {
    /// Raised after each publication.
    seq: AtomicU64,
    latest: Biased<Arc<T>>,
}

/// A reader's copy of the latest version that it has seen.
#[derive(Debug)]
pub(crate) struct Cached<T> {
    seq: u64,
    value: Arc<T>,
}

impl<T> Published<T> {
    pub(crate) fn new(level: u8, value: T) -> Published<T> {
        Published {
            seq: AtomicU64::new(0),
            latest: Biased::at_level(&MAP_VIEW, level, Arc::new(value)),
        }
    }

    /// Makes `value` the latest. The caller holds the lock that serialises changes.
    pub(crate) fn publish(&self, value: Arc<T>) {
        // The old version is dropped outside the lock: freeing a large tree takes time.
        let old = std::mem::replace(&mut *self.latest.write(), value);
        // After the value, so that a reader that sees the number gets this version or a later one.
        self.seq.fetch_add(1, Ordering::Release);
        drop(old);
    }

    /// The latest version.
    pub(crate) fn load(&self) -> Arc<T> {
        self.latest.read_briefly().clone()
    }

    /// A new reader's cache, with the latest version.
    pub(crate) fn cached(&self) -> Cached<T> {
        let seq = self.seq.load(Ordering::Acquire);
        Cached {
            seq,
            value: self.load(),
        }
    }
}

impl<T> Cached<T> {
    /// Has nothing been published since the last [`Cached::refresh`]?
    #[inline]
    pub(crate) fn is_latest(&self, of: &Published<T>) -> bool {
        of.seq.load(Ordering::Acquire) == self.seq
    }

    /// Takes the latest version; returns whether it is a new one. Costs one atomic load if nothing was published.
    #[inline]
    pub(crate) fn refresh(&mut self, from: &Published<T>) -> bool {
        let seq = from.seq.load(Ordering::Acquire);
        let changed = seq != self.seq;
        if changed {
            *self = Cached {
                seq,
                value: from.load(),
            };
        }
        changed
    }

    /// The version taken last.
    #[inline]
    pub(crate) fn value(&self) -> &Arc<T> {
        &self.value
    }
}
