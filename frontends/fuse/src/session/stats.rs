//! Counts of a session.
//!
//! Input: requests, as they come and end. Output: how many there were. Invariants: none. Limits: operations of larger numbers than the
//! protocol has are counted together.

use crate::transport::Crowd;
use crate::wire::op;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Operations of the protocol that are counted apart: those of numbers below this.
const COUNTED: usize = 64;

/// Counts of a session.
#[derive(Debug)]
pub struct Stats {
    /// Requests received, by operation; the first place has those of no known one.
    received: [AtomicU64; COUNTED],
    /// Requests that have ended.
    pub ended: AtomicU64,
    /// Requests that were answered with an error.
    pub errors: AtomicU64,
    /// Replies that nobody waited for any more.
    pub interrupted: AtomicU64,
    /// Requests that the thread of a ring has lent to another one.
    pub lent: AtomicU64,
    /// Requests that come through rings.
    pub(super) crowd: OnceLock<Arc<Crowd>>,
}

impl Default for Stats {
    fn default() -> Self {
        Stats {
            received: [const { AtomicU64::new(0) }; COUNTED],
            ended: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            interrupted: AtomicU64::new(0),
            lent: AtomicU64::new(0),
            crowd: OnceLock::new(),
        }
    }
}

impl Stats {
    pub(super) fn has_received(&self, op: u32) {
        let at = usize::try_from(op).ok().filter(|at| *at < COUNTED);
        self.received[at.unwrap_or(0)].fetch_add(1, Relaxed);
    }

    /// Requests received.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.received.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Of requests that came through io_uring: how many, and the system calls that took them and gave the replies. None: they come by
    /// `/dev/fuse`.
    #[must_use]
    pub fn through_rings(&self) -> Option<(u64, u64)> {
        self.crowd.get().map(|crowd| crowd.all())
    }

    /// Requests received, by the operation's name in the protocol; those that did not come are left out.
    pub fn by_operation(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.received.iter().map(|count| count.load(Relaxed));
        let named = (0..).zip(counts).filter(|(_, count)| *count > 0);
        named.map(|(op, count)| (op::name(op).unwrap_or("other"), count))
    }
}
