//! Calls that block, made by a bounded number of threads.
//!
//! Input: closures. Output: futures of what they return. Invariants: at most as many threads as the pool was made with, started when there
//! is work for them; a call whose future was dropped before it began is not made; a call that panics panics in its future. Limits: calls
//! wait for a thread in the order in which they came; an idle thread ends after [`IDLE`].

use crate::ASYNC_POOL;
use crate::driver::wake_safely;
use diorite_block::sync::{Condvar, Mutex, thread};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How long a thread waits for another call.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// The threads and what waits for them.
pub(crate) struct Pool {
    most: usize,
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// At most `most` threads, at least one.
    pub(crate) fn new(most: usize) -> Arc<Pool> {
        Arc::new(Pool {
            most: most.max(1),
            state: Mutex::new(&ASYNC_POOL, State::default()),
            more: Condvar::new(),
        })
    }

    /// Makes a call in a thread of the pool. If no thread can be started, and none runs, it is made here.
    pub(crate) fn run<T: Send + 'static>(
        self: &Arc<Pool>,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Called<T> {
        let slot = Arc::new(Mutex::new(&ASYNC_POOL, Slot::Waits(None)));
        let answer = Arc::downgrade(&slot);
        self.push(Box::new(move || {
            // Nobody waits for a call whose future is gone.
            let Some(slot) = answer.upgrade() else {
                return;
            };
            let result = catch_unwind(AssertUnwindSafe(call));
            let before = std::mem::replace(&mut *slot.lock(), Slot::Ended(result));
            drop(slot);
            if let Slot::Waits(Some(waker)) = before {
                wake_safely(waker);
            }
        }));
        Called { slot }
    }

    fn push(self: &Arc<Pool>, job: Job) {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() || state.threads == self.most {
            drop(state);
            self.more.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let pool = Arc::downgrade(self);
        let started = thread::Builder::new()
            .name("diorite-async-b".into())
            .spawn(move || work(&pool));
        if started.is_err() {
            let mut state = self.state.lock();
            state.threads -= 1;
            let here = match state.threads {
                0 => std::mem::take(&mut state.jobs),
                _ => VecDeque::new(),
            };
            drop(state);
            here.into_iter().for_each(run_safely);
        }
    }
}

/// The life of a thread. It keeps the pool only while it has work, or waits for some.
fn work(pool: &Weak<Pool>) {
    while let Some(pool) = pool.upgrade() {
        let mut state = pool.state.lock();
        let job = loop {
            if let Some(job) = state.jobs.pop_front() {
                break Some(job);
            }
            state.idle += 1;
            state = pool.more.wait_timeout(state, IDLE);
            state.idle -= 1;
            if state.jobs.is_empty() {
                break None;
            }
        };
        let Some(job) = job else {
            state.threads -= 1;
            return;
        };
        drop(state);
        run_safely(job);
    }
}

/// What panics here is not the call: the drop of what nobody waits for. It was reported by its hook, and the thread goes on.
fn run_safely(job: Job) {
    drop(catch_unwind(AssertUnwindSafe(job)));
}

/// What becomes of a call.
enum Slot<T> {
    /// With the waker of the task that waits.
    Waits(Option<Waker>),
    Ended(std::thread::Result<T>),
    Taken,
}

/// The future of a call.
pub(crate) struct Called<T> {
    slot: Arc<Mutex<Slot<T>>>,
}

impl<T> Future for Called<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // A waker may own what takes locks, so it is cloned and dropped without this one.
        let waits = Slot::Waits(Some(cx.waker().clone()));
        let mut slot = self.slot.lock();
        let now = match *slot {
            Slot::Waits(_) => waits,
            _ => Slot::Taken,
        };
        let before = std::mem::replace(&mut *slot, now);
        drop(slot);
        match before {
            Slot::Waits(_) => Poll::Pending,
            Slot::Ended(Ok(value)) => Poll::Ready(value),
            Slot::Ended(Err(panic)) => resume_unwind(panic),
            Slot::Taken => panic!("a future was polled after it had ended"),
        }
    }
}
