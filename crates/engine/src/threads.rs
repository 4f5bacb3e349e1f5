//! Worker threads of one class, which take tasks from a shared list.
//!
//! Input: tasks that may block. Output: none here; a task itself wakes the threads that wait for it. Invariants: while the working thread
//! of a class is its leader no other thread is woken, and it stops being the leader before a long wait; a panic ends a task and no thread.
//! Limits: a fixed number of threads per class, started when first needed; if the host gives not even one, the tasks fail.

use crate::error::Error;
use crate::locks::WORKERS;
use diorite_block::DeviceError;
use diorite_block::sync::{Condvar, Mutex, thread};
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Runs a part of a task that may fail, and turns a panic into an error: whoever waits for the task is told, and the thread goes on.
/// What the part has left half done does no harm: its locks are released while it unwinds, and a journal handle that was open then has
/// aborted the journal.
pub(crate) fn contained<R>(part: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    catch_unwind(AssertUnwindSafe(part)).unwrap_or(Err(Error::Panicked))
}

thread_local! {
    static WAITS_FOR_MEMORY: Cell<bool> = const { Cell::new(true) };
}

/// The calling thread takes memory for pages only if there is some at once. For a thread that does the writes of a device: all memory may
/// be dirty pages of the volume on that device, which shares the budget, and they go only when those writes have ended.
pub(crate) fn never_wait_for_memory() {
    WAITS_FOR_MEMORY.set(false);
}

pub(crate) fn may_wait_for_memory() -> bool {
    WAITS_FOR_MEMORY.get()
}

/// A task of one class.
pub(crate) trait Task: Send + Sized + std::fmt::Debug + 'static {
    /// The class's name.
    const CLASS: &'static str;
    /// The largest number of tasks that one worker takes at once.
    const BATCH: usize;
    /// Executes all tasks and leaves the list empty; each part that may fail is [`contained`]. Blocks; gives up the lead before it waits
    /// for long.
    fn run(batch: &mut Vec<Self>, lead: &dyn Lead);
    /// Tells those who wait that no thread can execute the task. The caller may hold the lock of a queue.
    fn refuse(self, error: &Error);
}

/// Held by the one working thread of a class: no other is woken meanwhile, so that jobs gather into batches.
pub(crate) trait Lead {
    /// Lets the next worker begin. A second call does nothing.
    fn give(&self);
}

/// The lead of a caller that executes a task in its own thread: there is nobody to give it to.
pub(crate) struct NoLead;

impl Lead for NoLead {
    fn give(&self) {}
}

pub(crate) type Threads = Arc<Mutex<Vec<thread::JoinHandle<()>>>>;

#[derive(Debug)]
pub(crate) struct Class<T> {
    most: u32,
    list: Mutex<List<T>>,
    wake: Condvar,
    threads: Threads,
}

#[derive(Debug)]
struct List<T> {
    work: VecDeque<T>,
    threads: u32,
    idle: u32,
    /// Workers that have the lead: at most one, where tasks are taken in batches.
    busy: u32,
    stop: bool,
}

/// Who takes the tasks on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// A worker that is running, or was woken.
    Somebody,
    /// A thread that has to be started.
    NewThread,
}

impl<T: Task> Class<T> {
    pub(crate) fn new(level: u8, most: u32, threads: &Threads) -> Arc<Class<T>> {
        let list = List {
            work: VecDeque::new(),
            threads: 0,
            idle: 0,
            busy: 0,
            stop: false,
        };
        Arc::new(Class {
            most: most.max(1),
            list: Mutex::at_level(&WORKERS, level, list),
            wake: Condvar::new(),
            threads: threads.clone(),
        })
    }

    pub(crate) fn push(self: &Arc<Self>, tasks: impl IntoIterator<Item = T>) {
        let mut list = self.list.lock();
        list.work.extend(tasks);
        let next = self.next(&mut list);
        drop(list);
        self.start(next);
    }

    /// Wakes a worker for the tasks on the list, or says that a thread has to be started.
    fn next(&self, list: &mut List<T>) -> Next {
        let at_it = T::BATCH > 1 && list.busy > 0;
        if list.work.is_empty() || at_it {
            return Next::Somebody;
        }
        if list.idle > 0 {
            self.wake.notify_one();
            return Next::Somebody;
        }
        if list.threads == self.most {
            return Next::Somebody;
        }
        list.threads += 1;
        Next::NewThread
    }

    fn start(self: &Arc<Self>, next: Next) {
        if next == Next::Somebody {
            return;
        }
        let mine = self.clone();
        match thread::Builder::new()
            .name(format!("diorite-{}", T::CLASS))
            .spawn(move || mine.serve())
        {
            Ok(thread) => self.threads.lock().push(thread),
            Err(error) => self.not_started(error),
        }
    }

    /// The host gave no thread. If other workers run, the tasks only wait longer; if there is none, they would wait for ever, so they
    /// fail.
    fn not_started(&self, error: std::io::Error) {
        let mut list = self.list.lock();
        list.threads -= 1;
        if list.threads > 0 {
            return;
        }
        let work = std::mem::take(&mut list.work);
        drop(list);
        let what = format!("cannot start the first {} worker of a volume", T::CLASS);
        let error = Error::from(DeviceError::host(what, error));
        work.into_iter().for_each(|task| task.refuse(&error));
    }

    pub(crate) fn stop(&self) {
        self.list.lock().stop = true;
        self.wake.notify_all();
    }

    fn serve(self: &Arc<Self>) {
        let mut batch = Vec::new();
        while self.take(&mut batch) {
            let lead = Held {
                class: self,
                given: Cell::new(false),
            };
            let _said = contained(|| {
                T::run(&mut batch, &lead);
                Ok(())
            });
            batch.clear();
            lead.give();
        }
    }

    /// Takes the next batch, and the lead. Returns false when the class has been stopped and the list is empty.
    fn take(&self, batch: &mut Vec<T>) -> bool {
        let mut list = self.list.lock();
        while list.work.is_empty() {
            if list.stop {
                return false;
            }
            list.idle += 1;
            list = self.wake.wait(list);
            list.idle -= 1;
        }
        list.busy += 1;
        let now = list.work.len().min(T::BATCH);
        batch.extend(list.work.drain(..now));
        true
    }
}

/// The lead of a worker.
struct Held<'a, T> {
    class: &'a Arc<Class<T>>,
    given: Cell<bool>,
}

impl<T: Task> Lead for Held<'_, T> {
    fn give(&self) {
        if self.given.replace(true) {
            return;
        }
        let mut list = self.class.list.lock();
        list.busy -= 1;
        let next = self.class.next(&mut list);
        drop(list);
        self.class.start(next);
    }
}
