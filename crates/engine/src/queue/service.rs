//! What serves a file system: its workers, the policy, and its queues - those that users have, drained by anybody, and those that blocking
//! calls share.
//!
//! Input: queues as they come and go; blocking calls. Output: drains on behalf of owners, sums of counters, idle queues. Invariants: a queue that is
//! being dropped is drained no more and its counts stay. Limits: a few idle queues are kept.

use super::{QueueShared, SyncQueue};
use crate::error::Error;
use crate::inode::{Fs, Queues};
use crate::jobs::Workers;
use crate::locks::{QUEUES, SYNC_POOL};
use crate::options::OpenOptions;
use crate::policy::Policy;
use crate::stats::Counters;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// Queues for blocking calls that are kept for later callers.
const SYNC_QUEUES_KEPT: usize = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) fs: Arc<Fs>,
    pub(crate) workers: Workers,
    policy: AtomicU32,
    registry: Mutex<Registry>,
    /// None once the last handle of the volume is gone.
    sync_pool: Mutex<Option<Vec<SyncQueue>>>,
}

#[derive(Debug, Default)]
struct Registry {
    queues: Vec<Weak<QueueShared>>,
    /// What the queues that are gone have counted.
    retired: Counters,
}

impl Service {
    pub(crate) fn new(fs: Arc<Fs>, options: &OpenOptions) -> Arc<Service> {
        let level = fs.level;
        let service = Arc::new(Service {
            workers: Workers::new(level, options.workers),
            policy: AtomicU32::new(options.policy.pack()),
            registry: Mutex::at_level(&QUEUES, level, Registry::default()),
            sync_pool: Mutex::at_level(&SYNC_POOL, level, Some(Vec::new())),
            fs,
        });
        let queues: Weak<Service> = Arc::downgrade(&service);
        service.fs.set_queues(queues);
        service
    }

    /// The policy in force.
    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        Policy::unpack(self.policy.load(Ordering::Relaxed))
    }

    /// Changes the policy for requests from now on.
    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.store(policy.pack(), Ordering::Relaxed);
    }

    /// Lets go of the queues of blocking calls, which hold this; no more are kept.
    pub(crate) fn end_blocking_calls(&self) {
        let pool = self.sync_pool.lock().take();
        drop(pool);
    }

    /// What all queues have counted.
    pub(crate) fn counted(&self) -> Counters {
        let (queues, mut sum) = {
            let registry = self.registry.lock();
            (registry.queues.clone(), registry.retired.clone())
        };
        queues
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|q| sum.add(&q.lock().counters));
        sum
    }

    pub(crate) fn register(&self, queue: &Arc<QueueShared>) {
        self.registry.lock().queues.push(Arc::downgrade(queue));
    }

    /// Forgets a queue that is being dropped.
    pub(crate) fn retire(&self, queue: &Arc<QueueShared>, counters: &Counters) {
        let mut registry = self.registry.lock();
        registry.retired.add(counters);
        registry.queues.retain(|q| q.as_ptr() != Arc::as_ptr(queue));
    }

    pub(crate) fn open_queues(&self) -> Vec<Arc<QueueShared>> {
        self.registry
            .lock()
            .queues
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Drains every queue but one, on behalf of its owner; says whether that made progress.
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
        self.fs.check_open()?;
        let kept = self.sync_pool.lock().as_mut().and_then(Vec::pop);
        kept.map_or_else(|| SyncQueue::open(self), Ok)
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

impl Queues for Service {
    fn drain_all(&self) -> bool {
        drain_each(self.open_queues().iter())
    }

    fn let_go_of_unlinked(&self) {
        if let Some(pool) = self.sync_pool.lock().as_mut() {
            pool.iter_mut().for_each(SyncQueue::let_go_of_unlinked);
        }
    }
}

fn drain_each<'a>(queues: impl Iterator<Item = &'a Arc<QueueShared>>) -> bool {
    queues.fold(false, |progress, q| q.drain_foreign() | progress)
}
