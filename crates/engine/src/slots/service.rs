//! What serves a file system: its workers, its policy, and the list of its queues, which any thread may drain.
//!
//! Input: queues as they are opened and dropped. Output: the open queues, the sum of their counters. Invariants: a queue that is being
//! dropped is not drained any more, and its counters stay in the sum. Limits: none of its own.

use super::QueueShared;
use crate::delete;
use crate::inode::Fs;
use crate::jobs::Workers;
use crate::locks::{DEVICES, QUEUES};
use crate::options::OpenOptions;
use crate::policy::Policy;
use crate::stats::Counters;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicU32, Ordering};
use diorite_format::Ino;
use std::sync::{Arc, Weak};

/// A file system with its workers, its policy and its queues. Volumes, files, queues and atomic changes hold it; with the last of them all
/// changes end.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) fs: Arc<Fs>,
    pub(crate) workers: Workers,
    policy: AtomicU32,
    registry: Mutex<Registry>,
    /// Files that are devices opened for writing, with the names of these devices.
    pub(crate) devices: Mutex<Vec<(Ino, String)>>,
}

#[derive(Debug, Default)]
struct Registry {
    queues: Vec<Weak<QueueShared>>,
    /// The sum of the counters of queues that were dropped.
    retired: Counters,
}

impl Drop for Service {
    fn drop(&mut self) {
        // Files and queues that outlived the last `Volume` may have been the last users of inodes without names, and may have noted times.
        delete::delete_doomed_best_effort(&self.fs);
        self.fs.make_clean_best_effort();
        // From here on nothing that outlives this holds the device: no inode whose noted times could not be written, none of a directory
        // that is being listed and notes that it is read, and not the keeper in the middle of a commit.
        self.fs.end_own_changes();
        self.fs.end_keeper();
    }
}

impl Service {
    pub(crate) fn new(fs: Arc<Fs>, options: &OpenOptions) -> Arc<Service> {
        let level = fs.level;
        Arc::new(Service {
            workers: Workers::new(level, options.workers),
            policy: AtomicU32::new(options.policy.pack()),
            registry: Mutex::at_level(&QUEUES, level, Registry::default()),
            devices: Mutex::at_level(&DEVICES, level, Vec::new()),
            fs,
        })
    }

    /// The policy in force.
    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        Policy::unpack(self.policy_word())
    }

    /// The policy in force, in one word.
    #[inline]
    pub(crate) fn policy_word(&self) -> u32 {
        self.policy.load(Ordering::Relaxed)
    }

    /// Changes the policy for requests that are submitted from now on.
    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.store(policy.pack(), Ordering::Relaxed);
    }

    /// The sum of the counters of all queues, dropped ones included.
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

    /// Takes a queue that is being dropped off the list, and keeps its counters.
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
}
