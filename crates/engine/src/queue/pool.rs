//! The pool of queues for blocking calls, and drains of all queues of the volume.
//!
//! Input: blocking calls; threads that wait for requests of others. Output: completions; progress of queues whose owners do not reap.
//! Invariants: an idle queue keeps the file system open, so none is kept once the volume's last handle is gone. Limits: at most 16 idle
//! queues are kept.

use super::flusher::Flusher;
use super::sync::SyncQueue;
use super::{File, Queue, drain, page_io};
use crate::error::Error;
use crate::inode::{Inode, Queues};
use crate::locks::SYNC_POOL;
use crate::request::{Completion, Request};
use crate::slots::Service;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::AtomicU32;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// How many idle queues for blocking calls are kept at most.
const SYNC_QUEUES_KEPT: usize = 16;

/// The pool; implements [`Queues`] for the modules below.
#[derive(Debug)]
pub(crate) struct Pool {
    service: Arc<Service>,
    /// None once the last handle of the volume is gone.
    idle: Mutex<Option<Vec<SyncQueue>>>,
    /// Idle queues of the page cache, whose deferred work runs in the thread that waits.
    pub(super) page_queues: Mutex<Vec<Queue>>,
    /// Idle queues of read-ahead.
    pub(super) stream_queues: Mutex<Vec<Queue>>,
    /// Open files with read-ahead under way.
    pub(super) streams: AtomicU32,
    flusher: Flusher,
    write_back_age: Duration,
}

impl Pool {
    pub(crate) fn new(service: Arc<Service>, write_back_age: Duration) -> Arc<Pool> {
        let fs = service.fs.clone();
        let idle = Mutex::at_level(&SYNC_POOL, fs.level, Some(Vec::new()));
        let pool = Arc::new(Pool {
            idle,
            page_queues: Mutex::at_level(&SYNC_POOL, fs.level, Vec::new()),
            stream_queues: Mutex::at_level(&SYNC_POOL, fs.level, Vec::new()),
            streams: AtomicU32::new(0),
            flusher: Flusher::new(fs.level, &fs.page_cache),
            write_back_age,
            service,
        });
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

    /// Wakes the thread for background write-back.
    pub(super) fn wake_flusher(self: &Arc<Self>) {
        self.flusher.wake(self, self.write_back_age);
    }

    /// Call when there may be dirty pages that the thread does not know of: of a file that had no name, or of the time while it rested.
    pub(crate) fn look_for_dirty(self: &Arc<Self>) {
        if self.service.fs.cached.any_dirty() {
            self.flusher.watch(self, self.write_back_age);
        }
    }

    /// Waits until background write-back does not hold the volume. Blocks; no lock may be held.
    pub(crate) fn rest(&self) {
        self.flusher.rest();
    }

    /// Writes back all dirty pages, for callers that cannot report a failure. Blocks; no lock may be held.
    pub(crate) fn write_back_best_effort(&self) {
        let dirty = self.service.fs.cached.dirty_for(Duration::ZERO);
        let _noted = page_io::write_back(self, &dirty, 0..u64::MAX);
    }

    /// Closes the idle queues, which hold this pool's file system. From now on none is kept.
    pub(crate) fn end_blocking_calls(&self) {
        let pool = self.idle.lock().take();
        drop(pool);
        self.close_idle_queues();
    }

    /// Closes the queues that are idle now.
    pub(crate) fn close_idle_queues(&self) {
        let idle = self.idle.lock().as_mut().map(std::mem::take);
        drop(idle);
        for idle in [&self.page_queues, &self.stream_queues] {
            let queues = std::mem::take(&mut *idle.lock());
            drop(queues);
        }
    }

    /// Are idle queues kept?
    pub(super) fn keeps_queues(&self) -> bool {
        self.idle.lock().is_some()
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
            Some(pool) if pool.len() < SYNC_QUEUES_KEPT && !queue.is_makeshift() => {
                pool.push(queue);
                None
            }
            _ => Some(queue),
        };
        drop(pool);
        drop(refused);
    }
}

/// Files may outlive the last handle of the volume, and leave dirty pages.
impl Drop for Pool {
    fn drop(&mut self) {
        self.flusher.end();
        self.write_back_best_effort();
        self.service.fs.cached.close();
        self.service.fs.cached.clear();
    }
}

impl Queues for Pool {
    fn write_back(&self, inodes: &[Arc<Inode>], blocks: Range<u64>) -> Result<(), Error> {
        page_io::write_back(self, inodes, blocks)
    }

    fn drain_all(&self) -> bool {
        drain::drain_each(self.service.open_queues().iter())
    }

    fn let_go_of_unlinked(&self) {
        if let Some(pool) = self.idle.lock().as_mut() {
            pool.iter_mut().for_each(SyncQueue::let_go_of_unlinked);
        }
    }
}
