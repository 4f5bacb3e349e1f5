//! Queues of a device whose bios are blocking calls, made by a few threads.
//!
//! Input: bios. Output: the same, ended. Invariants: nothing completes inside the call that submits it; each ended bio kicks its queue's
//! waker; the last user of the pool waits for its threads; when they have ended, the calls that they made are dropped. Limits: [`THREADS`]
//! bios at once; the others wait in order.

use crate::bio::{Bio, BioList};
use crate::device::{DeviceQueue, QueueOptions, Waker};
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

impl Ended {
    fn take(&self, out: &mut BioList) -> usize {
        let mut ended = lock(&self.bios);
        let count = ended.len();
        out.extend(ended.drain(..));
        let count32 = u32::try_from(count).expect("at most the depth");
        self.in_flight.fetch_sub(count32, Ordering::Relaxed);
        count
    }
}

/// Bios that wait for a thread.
#[derive(Default)]
struct Waiting {
    jobs: VecDeque<(Bio, Arc<Ended>)>,
    ends: bool,
}

struct Shared<R> {
    runner: R,
    name: &'static str,
    waiting: Mutex<Waiting>,
    more: Condvar,
}

/// Runs bios to their ends, one per call.
pub trait RunsBios: Send + Sync + 'static {
    /// Sets the bio's result. Blocks. A panic would lose the bio.
    fn run(&self, bio: &mut Bio);
}

/// The threads of a device.
pub struct CallPool<R> {
    shared: Arc<Shared<R>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<R: RunsBios> CallPool<R> {
    /// No thread runs before a queue is opened. `name` is that of the threads.
    #[must_use]
    pub fn new(name: &'static str, runner: R) -> CallPool<R> {
        CallPool {
            shared: Arc::new(Shared {
                runner,
                name,
                waiting: Mutex::default(),
                more: Condvar::new(),
            }),
            threads: Mutex::default(),
        }
    }

    /// What it runs bios with.
    pub fn runner(&self) -> &R {
        &self.shared.runner
    }

    /// Starts the threads, if they do not run.
    fn start(&self) -> io::Result<()> {
        let mut threads = lock(&self.threads);
        while threads.len() < THREADS {
            let shared = self.shared.clone();
            let started = Builder::new()
                .name(shared.name.to_owned())
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

impl<R> Drop for CallPool<R> {
    fn drop(&mut self) {
        lock(&self.shared.waiting).ends = true;
        self.shared.more.notify_all();
        for thread in lock(&self.threads).drain(..) {
            // A panic of a thread was printed, and its bio is lost.
            let _ = thread.join();
        }
    }
}

fn work<R: RunsBios>(shared: &Shared<R>) {
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
        shared.runner.run(&mut bio);
        lock(&ended.bios).push_back(bio);
        ended.waker.kick();
    }
}

/// A queue.
pub struct CallQueue<R> {
    pool: Arc<CallPool<R>>,
    ended: Arc<Ended>,
    depth: u32,
}

impl<R: RunsBios> CallQueue<R> {
    /// Opens a queue, and starts the threads if they do not run.
    ///
    /// # Errors
    /// The host has no thread.
    pub fn new(pool: Arc<CallPool<R>>, options: QueueOptions) -> io::Result<CallQueue<R>> {
        pool.start()?;
        Ok(CallQueue {
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

impl<R: RunsBios> DeviceQueue for CallQueue<R> {
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
        self.ended.take(out)
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

impl<R> Drop for CallQueue<R> {
    fn drop(&mut self) {
        while self.ended.in_flight.load(Ordering::Relaxed) > 0 {
            if self.ended.take(&mut BioList::new()) == 0 {
                self.ended.waker.wait(Some(Duration::from_millis(100)));
            }
        }
    }
}
