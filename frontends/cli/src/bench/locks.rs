//! Lock classes over a run: how often taken, how often not free, how long waited.
//!
//! Input: the counters of every class in the process. Output: differences. Invariant: classes keep their order. Limits:
//! what other threads of the process do is counted too.

use diorite::stats::lock_stats;
use diorite_block::sync::LockStats;

/// A class's name with what it counted.
pub(super) type ClassStats = (&'static str, LockStats);

/// Every class, now.
pub(super) fn snapshot() -> Vec<ClassStats> {
    lock_stats()
}

/// What was counted since; classes that nobody took are left out.
pub(super) fn since(before: &[ClassStats]) -> Vec<ClassStats> {
    let now = snapshot().into_iter().zip(before);
    let diff = now.map(|((name, now), (_, before))| (name, now.since(before)));
    diff.filter(|(_, stats)| stats.acquired > 0).collect()
}
