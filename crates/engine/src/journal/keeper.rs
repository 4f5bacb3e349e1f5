//! The keeper: the thread that commits a transaction when it is old enough, so that no change stays uncommitted for long.
//!
//! Input: the first handle of each transaction wakes it. Output: a commit when the interval has passed; a checkpoint when no transaction
//! has begun for another interval. Invariants: it keeps the volume alive only while it commits; its thread is started when first needed.
//! Limits: one per volume; an error is latched by the commit itself.

use super::{CommitHooks, Store};
use crate::locks::WORKERS;
use crate::threads::contained;
use diorite_block::sync::{Condvar, Mutex, thread};
use std::sync::{Arc, Weak};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// See the module.
#[derive(Debug)]
pub(super) struct Keeper {
    interval: Duration,
    hooks: Weak<dyn CommitHooks>,
    shared: Arc<Shared>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    orders: Mutex<Orders>,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct Orders {
    /// A transaction is to be committed when the interval has passed.
    some: bool,
    /// Something is to be done at once.
    now: bool,
    stop: bool,
}

impl Keeper {
    pub(super) fn new(level: u8, interval: Duration, hooks: Weak<dyn CommitHooks>) -> Keeper {
        Keeper {
            interval,
            hooks,
            shared: Arc::new(Shared {
                orders: Mutex::at_level(&WORKERS, level, Orders::default()),
                woken: Condvar::new(),
            }),
            thread: Mutex::at_level(&WORKERS, level, None),
        }
    }

    /// Call when a transaction has begun.
    pub(super) fn wake(&self) {
        // The keeper needs to be woken once per interval only.
        if !std::mem::replace(&mut self.shared.orders.lock().some, true) {
            self.shared.woken.notify_one();
            if !self.start() {
                // The next transaction tries again.
                self.shared.orders.lock().some = false;
            }
        }
    }

    /// Commits at once. Also called when something has failed: the keeper holds no lock, so it can write the failure down.
    pub(super) fn hurry(&self) {
        self.shared.orders.lock().now = true;
        self.shared.woken.notify_one();
        self.start();
    }

    /// Starts the thread if there is none, unless the keeper was ended. Returns whether there is one.
    fn start(&self) -> bool {
        if self.shared.orders.lock().stop {
            return false;
        }
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let (mine, hooks, interval) = (self.shared.clone(), self.hooks.clone(), self.interval);
            // Without a thread, commits come with syncs and when a transaction is full.
            *thread = thread::Builder::new()
                .name("diorite-journal".into())
                .spawn(move || mine.keep(&hooks, interval))
                .ok();
        }
        thread.is_some()
    }

    /// Stops the thread, and waits until it has ended, with a commit that it is making. It holds the volume no more then. Does nothing if
    /// it has ended.
    pub(super) fn end(&self) {
        self.shared.orders.lock().stop = true;
        self.shared.woken.notify_all();
        // The lock is not held meanwhile: if the commit fails, that thread takes it.
        let thread = self.thread.lock().take();
        // The keeper's own thread may drop the last reference to the volume. It cannot join itself, and ends on its own.
        if let Some(thread) = thread.filter(|t| t.thread().id() != thread::current().id()) {
            let _said = thread.join();
        }
    }
}

impl Shared {
    fn keep(&self, hooks: &Weak<dyn CommitHooks>, interval: Duration) {
        // There may be transactions that are in the log only.
        let mut away = false;
        loop {
            let mut orders = self.orders.lock();
            let mut idle = Duration::ZERO;
            while !orders.some && !orders.now && !orders.stop && (!away || idle < interval) {
                if away {
                    let since = std::time::Instant::now();
                    orders = self.woken.wait_timeout(orders, interval - idle);
                    idle += since.elapsed();
                } else {
                    orders = self.woken.wait(orders);
                }
            }
            if !orders.some && !orders.now && !orders.stop {
                drop(orders);
                let Some(hooks) = hooks.upgrade() else {
                    return;
                };
                best_effort(|| bring_home_best_effort(hooks.store()));
                away = false;
                continue;
            }
            let mut waited = Duration::ZERO;
            while !orders.now && !orders.stop && waited < interval {
                let since = std::time::Instant::now();
                orders = self.woken.wait_timeout(orders, interval - waited);
                waited += since.elapsed();
            }
            if orders.stop {
                return;
            }
            (orders.some, orders.now) = (false, false);
            drop(orders);
            let Some(hooks) = hooks.upgrade() else {
                return;
            };
            best_effort(|| hooks.commit_best_effort());
            away = true;
        }
    }
}

/// Makes a checkpoint. Nobody can be given an error here: it is latched, and written down.
fn bring_home_best_effort(store: &Store) {
    if let Some(journal) = store.journal_if_any() {
        let _latched = journal.checkpoint(store);
        journal.write_failure_down(store);
    }
}

/// Contains a panic: it has aborted the journal, and nobody waits for the result.
fn best_effort(part: impl FnOnce()) {
    let _latched = contained(|| {
        part();
        Ok(())
    });
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}
