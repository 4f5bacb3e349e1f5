//! Background write-back of a volume: a thread that writes dirty pages back by age, and when there are too many.
//!
//! Input: a request to write back, or the age of dirty pages. Output: pages written back. Invariants: the thread holds the volume only
//! while it works; it is started with the first dirty page, and ends with the last handle of the volume and its files. Limits: if the host
//! gives no thread, write-back happens at syncs and when writers have to wait.

use super::{Pool, page_io};
use crate::locks::FLUSHER;
use crate::pages::{PageCache, WriteBack};
use crate::threads::contained;
use diorite_block::sync::{Condvar, Mutex, thread};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often the age of dirty pages is looked at, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The thread, and what it is to do.
#[derive(Debug)]
pub(super) struct Flusher {
    orders: Arc<Orders>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

#[derive(Debug)]
struct Orders {
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct State {
    some: bool,
    /// Others need the memory of what is dirty.
    all: bool,
    /// The thread sleeps, and looks at the age of what is dirty by itself.
    watches: bool,
    /// It works, and holds the volume.
    works: bool,
    /// It does not begin to work before it is woken.
    rests: bool,
    stop: bool,
}

impl Flusher {
    /// For a volume whose pages are of this budget.
    pub(super) fn new(level: u8, cache: &PageCache) -> Flusher {
        let orders = Arc::new(Orders {
            state: Mutex::at_level(&FLUSHER, level, State::default()),
            woken: Condvar::new(),
        });
        // The orders alone: they hold no volume.
        let writer: Weak<dyn WriteBack> = Arc::<Orders>::downgrade(&orders);
        cache.add_writer(writer);
        Flusher {
            orders,
            thread: Mutex::at_level(&FLUSHER, level, None),
        }
    }

    /// Wakes the thread, or starts it.
    pub(super) fn wake(&self, pool: &Arc<Pool>, age: Duration) {
        {
            let mut thread = self.thread.lock();
            if thread.is_none() {
                let (orders, pool) = (self.orders.clone(), Arc::downgrade(pool));
                let named = thread::Builder::new().name("diorite-flusher".into());
                *thread = named.spawn(move || orders.serve(&pool, age)).ok();
            }
        }
        let mut state = self.orders.state.lock();
        (state.some, state.rests) = (true, false);
        drop(state);
        self.orders.woken.notify_all();
    }

    /// As [`Flusher::wake`], unless the thread looks at dirty pages soon anyway.
    pub(super) fn watch(&self, pool: &Arc<Pool>, age: Duration) {
        if !self.orders.state.lock().watches {
            self.wake(pool, age);
        }
    }

    /// Waits until the thread does not hold the volume. It will not hold it again before something more becomes dirty. Blocks; no lock may
    /// be held.
    pub(super) fn rest(&self) {
        let mut state = self.orders.state.lock();
        (state.rests, state.watches) = (true, false);
        while state.works {
            state = self.orders.woken.wait(state);
        }
    }

    /// Ends the thread. Blocks; no lock may be held.
    pub(super) fn end(&self) {
        self.orders.state.lock().stop = true;
        self.orders.woken.notify_all();
        let thread = self.thread.lock().take();
        // The thread itself may drop the last handle; it cannot join itself, and ends on its own.
        if let Some(thread) = thread.filter(|t| t.thread().id() != thread::current().id()) {
            let _said = thread.join();
        }
    }
}

impl WriteBack for Orders {
    fn ask(&self) {
        let mut state = self.state.lock();
        (state.some, state.all) = (true, true);
        drop(state);
        self.woken.notify_all();
    }
}

impl Orders {
    fn serve(&self, pool: &Weak<Pool>, age: Duration) {
        let pause = (age / 6).clamp(Duration::from_millis(10), LONGEST_PAUSE);
        let mut dirty = false;
        loop {
            let mut state = self.state.lock();
            if !state.some && !state.stop {
                state.watches = dirty && !state.rests;
                state = match dirty {
                    true => self.woken.wait_timeout(state, pause),
                    false => self.woken.wait(state),
                };
            }
            while state.rests && !state.stop {
                state = self.woken.wait(state);
            }
            if state.stop {
                return;
            }
            // What becomes dirty while it works may be overlooked.
            (state.some, state.watches, state.works) = (false, false, true);
            let age = match std::mem::take(&mut state.all) {
                true => Duration::ZERO,
                false => age,
            };
            drop(state);
            let pool = pool.upgrade();
            let is_over = pool.is_none();
            // After a panic there may be more to do.
            dirty = pool.is_some_and(|pool| contained(|| Ok(flush(&pool, age))).unwrap_or(true));
            self.state.lock().works = false;
            self.woken.notify_all();
            if is_over {
                return;
            }
        }
    }
}

/// Writes back what is old enough; all, if too much is dirty. Returns whether something is dirty afterwards.
fn flush(pool: &Pool, age: Duration) -> bool {
    let fs = &pool.service().fs;
    if fs.has_atomic() {
        // What was dirty before it is no part of it, and could fail for it.
        return fs.cached.any_dirty();
    }
    let age = match fs.page_cache.wants_write_back() {
        true => Duration::ZERO,
        false => age,
    };
    let old = fs.cached.dirty_for(age);
    if !old.is_empty() {
        // Failures are noted, and reported to syncs.
        let _noted = page_io::write_back(pool, &old, 0..u64::MAX);
    }
    fs.cached.any_dirty()
}
