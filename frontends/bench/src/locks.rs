//! The lock classes in a run: how often they were taken, how often they were contended, how long threads waited.
//!
//! Input: the counters of every class in the process. Output: differences. Invariant: classes keep their order. Limits: locks
//! taken by other threads of the process are counted, too.

use diorite::stats::lock_stats;
use diorite_block::sync::LockStats;

/// A class's name with what it counted.
pub(super) type ClassStats = (&'static str, LockStats);

/// The present counters of every class.
pub(super) fn snapshot() -> Vec<ClassStats> {
    lock_stats()
}

/// The differences since `before`; classes that were not taken are left out.
pub(super) fn since(before: &[ClassStats]) -> Vec<ClassStats> {
    let now = snapshot().into_iter().zip(before);
    let diff = now.map(|((name, now), (_, before))| (name, now.since(before)));
    diff.filter(|(_, stats)| stats.acquired > 0).collect()
}
