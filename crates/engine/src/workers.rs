//! Workers: the threads of one volume that may block, in classes.
//!
//! Input: work that a request cannot have done where it is. Output: messages to queues. Invariants: a class waits only
//! for classes to its right (submit, prepare, complete) and for the volumes below; a worker holds no lock while it blocks. Limits:
//! a fixed number of threads per class, started when first needed; the lists are bounded by the slots of the queues.

use crate::complete::deferred::Job;
use crate::dio::PrepareJob;
use crate::locks::WORKERS;
use crate::map::LoadJob;
use diorite_block::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

/// What a thread that may block has to do.
#[derive(Debug)]
pub(crate) enum Work {
    /// Load a part of a file's map, for a request on its way down.
    Load(LoadJob),
    /// Claim and read what a write into new space needs, on its way down.
    Prepare(PrepareJob),
    /// Do what an ended request owes.
    Complete(Job),
}

impl Work {
    /// Does it, in this thread. Blocks.
    pub(crate) fn run(self) {
        match self {
            Work::Load(job) => LoadJob::run(&mut vec![job]),
            Work::Prepare(job) => PrepareJob::run(&mut vec![job]),
            Work::Complete(job) => Job::run(&mut vec![job]),
        }
    }
}

/// Work of one class.
pub(crate) trait Task: Send + Sized + std::fmt::Debug + 'static {
    /// The class's name.
    const CLASS: &'static str;
    /// How many pieces one worker takes at once.
    const BATCH: usize;
    /// Does them all; the list is empty after it. Blocks.
    fn run(batch: &mut Vec<Self>);
}

/// The workers of a volume.
#[derive(Debug)]
pub(crate) struct Workers {
    submit: Arc<Class<LoadJob>>,
    prepare: Arc<Class<PrepareJob>>,
    complete: Arc<Class<Job>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Class<T> {
    most: u32,
    list: Mutex<List<T>>,
    wake: Condvar,
}

#[derive(Debug)]
struct List<T> {
    work: VecDeque<T>,
    threads: u32,
    idle: u32,
    stop: bool,
}

impl Workers {
    /// At most `most` threads per class, none of them started yet.
    pub(crate) fn new(level: u8, most: u32) -> Workers {
        Workers {
            submit: Class::new(level, most),
            prepare: Class::new(level, most),
            complete: Class::new(level, most),
            threads: Mutex::at_level(&WORKERS, level, Vec::new()),
        }
    }

    /// Gives work to its class. Does not block.
    pub(crate) fn push(&self, work: Work) {
        match work {
            Work::Load(job) => self.push_to(&self.submit, job),
            Work::Prepare(job) => self.push_to(&self.prepare, job),
            Work::Complete(job) => self.push_to(&self.complete, job),
        }
    }

    fn push_to<T: Task>(&self, class: &Arc<Class<T>>, task: T) {
        if !class.push(task) {
            return;
        }
        let mine = class.clone();
        match std::thread::Builder::new()
            .name(format!("diorite-{}", T::CLASS))
            .spawn(move || mine.serve())
        {
            Ok(thread) => self.threads.lock().push(thread),
            Err(error) => class.not_started(&error),
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.submit.stop();
        self.prepare.stop();
        self.complete.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The last reference to a volume may be dropped by one of its own workers, which then ends by itself.
            if thread.thread().id() != std::thread::current().id() {
                thread.join().expect("a worker does not panic");
            }
        }
    }
}

impl<T: Task> Class<T> {
    fn new(level: u8, most: u32) -> Arc<Class<T>> {
        let list = List {
            work: VecDeque::new(),
            threads: 0,
            idle: 0,
            stop: false,
        };
        Arc::new(Class {
            most: most.max(1),
            list: Mutex::at_level(&WORKERS, level, list),
            wake: Condvar::new(),
        })
    }

    /// True if a thread should be started for it.
    fn push(&self, task: T) -> bool {
        let mut list = self.list.lock();
        list.work.push_back(task);
        if list.idle > 0 {
            self.wake.notify_one();
            return false;
        }
        let start = list.threads < self.most;
        list.threads += u32::from(start);
        start
    }

    /// The host gave no thread. With others running the work only waits longer; with none it would wait for ever.
    fn not_started(&self, error: &std::io::Error) {
        let mut list = self.list.lock();
        list.threads -= 1;
        assert!(
            list.threads > 0,
            "cannot start the first {} worker of a volume: {error}",
            T::CLASS
        );
    }

    fn stop(&self) {
        self.list.lock().stop = true;
        self.wake.notify_all();
    }

    fn serve(&self) {
        let mut batch = Vec::new();
        while self.take(&mut batch) {
            T::run(&mut batch);
        }
    }

    /// The next batch; false when there will be none.
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
        let now = list.work.len().min(T::BATCH);
        batch.extend(list.work.drain(..now));
        true
    }
}
