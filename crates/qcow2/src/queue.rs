//! Queues of the device: each bio is a blocking call on one of a few threads.
//!
//! Input: bios. Output: the same, ended. Invariants: nothing completes inside the call that submits it; each ended bio kicks its queue's
//! waker; the last user of the pool waits for its threads, which close the file. Limits: [`THREADS`] bios at once; the others wait in
//! order.

use crate::disk::Disk;
use diorite_block::{Bio, BioList, DeviceQueue, QueueOptions, Waker};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Bios that are run at once.
const THREADS: usize = 4;

/// The state behind a lock has no invariant that a panic could break.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a queue's bios come back to.
struct Ended {
    bios: Mutex<BioList>,
    /// Taken and not yet reaped.
    in_flight: AtomicU32,
    waker: Arc<Waker>,
}

/// Bios that wait for a thread.
#[derive(Default)]
struct Waiting {
    jobs: VecDeque<(Bio, Arc<Ended>)>,
    ends: bool,
}

struct Shared {
    disk: Disk,
    waiting: Mutex<Waiting>,
    more: Condvar,
}

/// The threads of a device.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Pool {
    pub(crate) fn new(disk: Disk) -> Pool {
        Pool {
            shared: Arc::new(Shared {
                disk,
                waiting: Mutex::default(),
                more: Condvar::new(),
            }),
            threads: Mutex::default(),
        }
    }

    pub(crate) fn disk(&self) -> &Disk {
        &self.shared.disk
    }

    /// Starts the threads, if they do not run.
    fn start(&self) -> io::Result<()> {
        let mut threads = lock(&self.threads);
        while threads.len() < THREADS {
            let shared = self.shared.clone();
            let started = Builder::new()
                .name("qcow2".to_owned())
                .spawn(move || work(&shared));
            match started {
                Ok(thread) => threads.push(thread),
                // Fewer do, too.
                Err(_) if !threads.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.shared.waiting).ends = true;
        self.shared.more.notify_all();
        for thread in lock(&self.threads).drain(..) {
            // A panic of a thread was printed, and its bio is lost.
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared) {
    loop {
        let mut waiting = lock(&shared.waiting);
        let (mut bio, ended) = loop {
            match waiting.jobs.pop_front() {
                Some(job) => break job,
                None if waiting.ends => return,
                None => {
                    let woken = shared.more.wait(waiting);
                    waiting = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        drop(waiting);
        shared.disk.run(&mut bio);
        lock(&ended.bios).push_back(bio);
        ended.waker.kick();
    }
}

/// A queue.
pub(crate) struct Queue {
    pool: Arc<Pool>,
    ended: Arc<Ended>,
    depth: u32,
}

impl Queue {
    pub(crate) fn new(pool: Arc<Pool>, options: QueueOptions) -> io::Result<Queue> {
        pool.start()?;
        Ok(Queue {
            pool,
            ended: Arc::new(Ended {
                bios: Mutex::default(),
                in_flight: AtomicU32::new(0),
                waker: options.waker,
            }),
            depth: options.depth,
        })
    }
}

impl DeviceQueue for Queue {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        None
    }

    fn submit(&self, bios: &mut BioList) {
        let shared = &self.pool.shared;
        let mut waiting = lock(&shared.waiting);
        while !bios.is_empty() {
            let room = |n: u32| (n < self.depth).then_some(n + 1);
            let order = Ordering::Relaxed;
            if self
                .ended
                .in_flight
                .fetch_update(order, order, room)
                .is_err()
            {
                break;
            }
            let bio = bios.pop_front().expect("checked a few lines above");
            waiting.jobs.push_back((bio, self.ended.clone()));
            shared.more.notify_one();
        }
    }

    fn reap(&self, out: &mut BioList) -> usize {
        let mut ended = lock(&self.ended.bios);
        let count = ended.len();
        out.extend(ended.drain(..));
        let count32 = u32::try_from(count).expect("at most the depth");
        self.ended.in_flight.fetch_sub(count32, Ordering::Relaxed);
        count
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        let have = lock(&self.ended.bios).len();
        let enough = have >= min.max(1) as usize;
        let nothing = self.in_flight() == 0 && timeout.is_some_and(|t| t.is_zero());
        if !enough && !nothing {
            self.ended.waker.wait(timeout);
        }
    }

    fn in_flight(&self) -> u32 {
        self.ended.in_flight.load(Ordering::Relaxed)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut out = BioList::new();
        loop {
            self.reap(&mut out);
            out.clear();
            if self.in_flight() == 0 {
                return;
            }
            self.wait(1, Some(Duration::from_millis(100)));
        }
    }
}
