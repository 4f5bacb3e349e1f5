//! The threads that run a device's blocking calls: all I/O of the thread-pool engine, and what Linux AIO cannot do.
//!
//! Input: slots, with the core of their queue. Output: the same slots, ended, on that core's list. Invariant: a slot is run by
//! one thread, once. Limits: at most [`MAX_THREADS`] threads per device, started when needed and kept until the device is
//! closed; the list is at most as long as the depths of the device's queues together.

use super::core::Core;
use crate::sync::{Condvar, DEVICE_SHARED, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// The most threads of one device.
const MAX_THREADS: usize = 32;
/// A small stack is enough: a worker only makes system calls.
pub(super) const STACK: usize = 128 << 10;

struct Job {
    core: Arc<Core>,
    index: u32,
}

impl Job {
    fn run(self) {
        self.core.run_blocking(self.index);
        self.core.push_ended(self.index);
    }
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    closing: bool,
}

struct Shared {
    work: Mutex<Work>,
    more: Condvar,
}

/// A device's threads.
pub(super) struct Pool {
    shared: Arc<Shared>,
}

impl Pool {
    /// A pool without threads yet.
    pub(super) fn new() -> Pool {
        Pool {
            shared: Arc::new(Shared {
                work: Mutex::new(&DEVICE_SHARED, Work::default()),
                more: Condvar::new(),
            }),
        }
    }

    /// Starts the first thread, if the host has one.
    pub(super) fn prepare(&self) {
        let mut work = self.shared.work.lock();
        if work.threads.is_empty() {
            work.threads.extend(spawn(&self.shared));
        }
    }

    /// Hands slots of `core` to the threads. If the host has none at all it runs them, and blocks.
    pub(super) fn run(&self, core: &Arc<Core>, slots: impl IntoIterator<Item = u32>) {
        let mut work = self.shared.work.lock();
        let before = work.jobs.len();
        work.jobs.extend(slots.into_iter().map(|index| Job {
            core: core.clone(),
            index,
        }));
        let added = work.jobs.len() - before;
        let missing = work.jobs.len().saturating_sub(work.idle);
        for _ in 0..missing.min(MAX_THREADS - work.threads.len()) {
            // The host has no more threads: the existing ones do the work.
            let Ok(thread) = spawn(&self.shared) else {
                break;
            };
            work.threads.push(thread);
        }
        if work.threads.is_empty() {
            while let Some(job) = work.jobs.pop_front() {
                drop(work);
                job.run();
                work = self.shared.work.lock();
            }
            return;
        }
        drop(work);
        for _ in 0..added {
            self.shared.more.notify_one();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut work = self.shared.work.lock();
        work.closing = true;
        let threads = std::mem::take(&mut work.threads);
        drop(work);
        self.shared.more.notify_all();
        for thread in threads {
            // A worker that panicked has already reported it; its slot's queue would wait for that slot.
            let _ = thread.join();
        }
    }
}

fn spawn(shared: &Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
    let shared = shared.clone();
    Builder::new()
        .name("diorite-io".into())
        .stack_size(STACK)
        .spawn(move || work(&shared))
}

fn work(shared: &Shared) {
    let mut work = shared.work.lock();
    loop {
        if let Some(job) = work.jobs.pop_front() {
            drop(work);
            job.run();
            work = shared.work.lock();
        } else if work.closing {
            return;
        } else {
            work.idle += 1;
            work = shared.more.wait(work);
            work.idle -= 1;
        }
    }
}
