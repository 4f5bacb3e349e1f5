//! The pool of queues for blocking calls, and drains of all queues of the volume.
//!
//! Input: blocking calls; threads that wait for requests of others. Output: completions; progress of queues whose owners do not reap.
//! Invariants: an idle queue keeps the file system open, so none is kept once the volume's last handle is gone. Limits: at most 16 idle
//! queues are kept.

use super::sync::SyncQueue;
use super::{File, drain};
use crate::error::Error;
use crate::inode::Queues;
use crate::locks::SYNC_POOL;
use crate::request::{Completion, Request};
use crate::slots::Service;
use diorite_block::sync::Mutex;
use std::sync::Arc;

/// How many idle queues for blocking calls are kept at most.
const SYNC_QUEUES_KEPT: usize = 16;

/// The pool; implements [`Queues`] for the rooms below.
#[derive(Debug)]
pub(crate) struct Pool {
    service: Arc<Service>,
    /// None once the last handle of the volume is gone.
    idle: Mutex<Option<Vec<SyncQueue>>>,
}

impl Pool {
    pub(crate) fn new(service: Arc<Service>) -> Arc<Pool> {
        let fs = service.fs.clone();
        let idle = Mutex::at_level(&SYNC_POOL, fs.level, Some(Vec::new()));
        let pool = Arc::new(Pool { service, idle });
        let queues = Arc::downgrade(&pool);
        fs.set_queues(queues);
        pool
    }

    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Runs a request of a file until it has ended. Blocks.
    pub(crate) fn call(&self, file: &File, request: Request) -> Completion {
        match self.take() {
            Ok(mut queue) => {
                let done = queue.call(file, request);
                self.keep(queue);
                done
            }
            Err(error) => request.failed(error),
        }
    }

    /// Closes the idle queues, which hold this pool's file system. From now on none is kept.
    pub(crate) fn end_blocking_calls(&self) {
        let pool = self.idle.lock().take();
        drop(pool);
    }

    /// A queue for one blocking call: an idle one or a new one.
    fn take(&self) -> Result<SyncQueue, Error> {
        self.service.fs.check_open()?;
        let kept = self.idle.lock().as_mut().and_then(Vec::pop);
        kept.map_or_else(|| SyncQueue::open(&self.service), Ok)
    }

    /// Keeps the queue for the next call, unless enough are kept.
    fn keep(&self, mut queue: SyncQueue) {
        queue.let_go_of_unlinked();
        let mut pool = self.idle.lock();
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

impl Queues for Pool {
    fn drain_all(&self) -> bool {
        drain::drain_each(self.service.open_queues().iter())
    }

    fn let_go_of_unlinked(&self) {
        if let Some(pool) = self.idle.lock().as_mut() {
            pool.iter_mut().for_each(SyncQueue::let_go_of_unlinked);
        }
    }
}
