//! The queues of a volume: those that users have, drained by anybody, and those that blocking calls share.
//!
//! Input: queues as they come and go; blocking calls. Output: drains on behalf of owners, sums of counters, idle queues. Invariants: a queue that is
//! being dropped is drained no more and its counts stay. Limits: a few idle queues are kept.

use super::VolumeShared;
use crate::error::Error;
use crate::queue::{QueueShared, SyncQueue};
use crate::stats::Counters;
use std::sync::{Arc, Weak};

/// Queues for blocking calls that are kept for later callers.
const SYNC_QUEUES_KEPT: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Registry {
    queues: Vec<Weak<QueueShared>>,
    /// What the queues that are gone have counted.
    retired: Counters,
}

impl VolumeShared {
    /// What all queues have counted.
    pub(super) fn counted(&self) -> Counters {
        let (queues, mut sum) = {
            let registry = self.queues.lock();
            (registry.queues.clone(), registry.retired.clone())
        };
        queues
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|q| sum.add(&q.lock().counters));
        sum
    }

    pub(crate) fn register(&self, queue: &Arc<QueueShared>) {
        self.queues.lock().queues.push(Arc::downgrade(queue));
    }

    /// Forgets a queue that is being dropped.
    pub(crate) fn retire(&self, queue: &Arc<QueueShared>, counters: &Counters) {
        let mut registry = self.queues.lock();
        registry.retired.add(counters);
        registry.queues.retain(|q| q.as_ptr() != Arc::as_ptr(queue));
    }

    pub(super) fn open_queues(&self) -> Vec<Arc<QueueShared>> {
        self.queues
            .lock()
            .queues
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Drains every queue of the volume, on behalf of its owner; says whether that made progress.
    pub(crate) fn drain_all(&self) -> bool {
        drain_each(self.open_queues().iter())
    }

    /// The same for every queue but one.
    pub(crate) fn drain_others(&self, mine: &QueueShared) -> bool {
        let queues = self.open_queues();
        drain_each(
            queues
                .iter()
                .filter(|q| !std::ptr::eq(Arc::as_ptr(q), mine)),
        )
    }

    /// A queue for one blocking call.
    pub(crate) fn sync_queue(self: &Arc<Self>) -> Result<SyncQueue, Error> {
        self.check_open()?;
        let kept = self.sync_pool.lock().as_mut().and_then(Vec::pop);
        kept.map_or_else(|| SyncQueue::open(self), Ok)
    }

    /// Idle queues of blocking calls let go of files without a name.
    pub(crate) fn let_go_of_unlinked(&self) {
        if let Some(pool) = self.sync_pool.lock().as_mut() {
            pool.iter_mut().for_each(SyncQueue::let_go_of_unlinked);
        }
    }

    /// Keeps the queue for the next call.
    pub(crate) fn keep_sync_queue(&self, mut queue: SyncQueue) {
        queue.let_go_of_unlinked();
        let mut pool = self.sync_pool.lock();
        let refused = match pool.as_mut() {
            Some(pool) if pool.len() < SYNC_QUEUES_KEPT => {
                pool.push(queue);
                None
            }
            _ => Some(queue),
        };
        drop(pool);
        drop(refused);
    }
}

fn drain_each<'a>(queues: impl Iterator<Item = &'a Arc<QueueShared>>) -> bool {
    queues.fold(false, |progress, q| q.drain_foreign() | progress)
}
