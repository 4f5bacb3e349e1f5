//! Workers: the threads of one volume that may block, in classes.
//!
//! Input: work that a request cannot have done where it is. Output: messages to queues. Invariants: a class waits only for classes to its
//! right (range, buffered, submit, prepare, complete, sync) and for the volumes below; a worker holds no lock while it blocks. Limits: a
//! fixed number of threads per class, started when first needed, and work fails where the host gives none; the lists are bounded by the slots of the queues.

use crate::complete::VolumeJob;
use crate::complete::deferred::Job;
use crate::dio::{BufferedJob, PrepareJob};
use crate::error::Error;
use crate::locks::WORKERS;
use crate::map::LoadJob;
use crate::range::RangeJob;
use diorite_block::DeviceError;
use diorite_block::sync::{Condvar, Mutex, thread};
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What a thread that may block has to do.
#[derive(Debug)]
pub(crate) enum Work {
    /// Change a file's map or size, for a request that has the turn.
    Range(RangeJob),
    /// Move data of a file whose data goes through the journal.
    Buffered(BufferedJob),
    /// Load a part of a file's map, for a request on its way down.
    Load(LoadJob),
    /// Claim and read what a write into new space needs, on its way down.
    Prepare(PrepareJob),
    /// Do what an ended request owes.
    Complete(Job),
    /// Make all of the volume durable.
    SyncVolume(VolumeJob),
}

impl Work {
    /// Does it, in this thread. Blocks.
    pub(crate) fn run(self) {
        let _said = contained(|| {
            match self {
                Work::Range(job) => RangeJob::run(&mut vec![job], &NoTurn),
                Work::Buffered(job) => BufferedJob::run(&mut vec![job], &NoTurn),
                Work::Load(job) => LoadJob::run(&mut vec![job], &NoTurn),
                Work::Prepare(job) => PrepareJob::run(&mut vec![job], &NoTurn),
                Work::Complete(job) => Job::run(&mut vec![job], &NoTurn),
                Work::SyncVolume(job) => VolumeJob::run(&mut vec![job], &NoTurn),
            }
            Ok(())
        });
    }
}

/// Does what may fail of a piece of work. A panic in it is an error like any other: who waits for the work is told, the thread goes on.
/// What it left half-way is nobody's concern: locks are let go of as it unwinds, and a journal handle that was open then has aborted the
/// journal.
pub(crate) fn contained<R>(part: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    catch_unwind(AssertUnwindSafe(part)).unwrap_or(Err(Error::Panicked))
}

/// Work of one class.
pub(crate) trait Task: Send + Sized + std::fmt::Debug + 'static {
    /// The class's name.
    const CLASS: &'static str;
    /// How many pieces one worker takes at once.
    const BATCH: usize;
    /// Does them all, each part that may fail [`contained`]; the list is empty after it. Blocks; gives its turn before it waits for long.
    fn run(batch: &mut Vec<Self>, turn: &dyn Turn);
    /// Tells who waits that nobody can do it. The caller may have the lock of a queue.
    fn refuse(self, error: &Error);
}

/// The right to be the one worker of a class that works: others are woken only when nobody has it, so that work gathers for one worker
/// and not in small pieces for all.
pub(crate) trait Turn {
    /// Lets the next worker begin. Again does nothing.
    fn give(&self);
}

/// Nobody waits for this turn: work in the caller's own thread.
struct NoTurn;

impl Turn for NoTurn {
    fn give(&self) {}
}

/// The workers of a volume.
#[derive(Debug)]
pub(crate) struct Workers {
    range: Arc<Class<RangeJob>>,
    buffered: Arc<Class<BufferedJob>>,
    submit: Arc<Class<LoadJob>>,
    prepare: Arc<Class<PrepareJob>>,
    complete: Arc<Class<Job>>,
    sync: Arc<Class<VolumeJob>>,
    threads: Threads,
}

type Threads = Arc<Mutex<Vec<thread::JoinHandle<()>>>>;

#[derive(Debug)]
struct Class<T> {
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
    /// Workers that have the turn: one, where work is taken in batches.
    busy: u32,
    stop: bool,
}

/// Who has work to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Somebody who is at it, or was woken.
    Somebody,
    /// A thread that has to be started.
    NewThread,
}

impl Workers {
    /// At most `most` threads per class, none of them started yet.
    pub(crate) fn new(level: u8, most: u32) -> Workers {
        let threads: Threads = Arc::new(Mutex::at_level(&WORKERS, level, Vec::new()));
        Workers {
            range: Class::new(level, most, &threads),
            buffered: Class::new(level, most, &threads),
            submit: Class::new(level, most, &threads),
            prepare: Class::new(level, most, &threads),
            complete: Class::new(level, most, &threads),
            sync: Class::new(level, most, &threads),
            threads,
        }
    }

    /// Gives work to its class. Does not block.
    pub(crate) fn push(&self, work: Work) {
        match work {
            Work::Range(job) => self.range.push([job]),
            Work::Buffered(job) => self.buffered.push([job]),
            Work::Load(job) => self.submit.push([job]),
            Work::Prepare(job) => self.prepare.push([job]),
            Work::Complete(job) => self.complete.push([job]),
            Work::SyncVolume(job) => self.sync.push([job]),
        }
    }

    /// Gives completions of one pass to their class, all at once. Does not block.
    pub(crate) fn push_all(&self, jobs: &mut Vec<Job>) {
        self.complete.push(jobs.drain(..));
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.range.stop();
        self.buffered.stop();
        self.submit.stop();
        self.prepare.stop();
        self.complete.stop();
        self.sync.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The last reference to a volume may be dropped by one of its own workers, which then ends by itself.
            if thread.thread().id() != thread::current().id() {
                let _said = thread.join();
            }
        }
    }
}

impl<T: Task> Class<T> {
    fn new(level: u8, most: u32, threads: &Threads) -> Arc<Class<T>> {
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

    fn push(self: &Arc<Self>, tasks: impl IntoIterator<Item = T>) {
        let mut list = self.list.lock();
        list.work.extend(tasks);
        let next = self.next(&mut list);
        drop(list);
        self.start(next);
    }

    /// Wakes who may take what is on the list, or says that a thread should be started for it.
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

    /// The host gave no thread. With others running the work only waits longer; with none it would wait for ever, and fails.
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

    fn stop(&self) {
        self.list.lock().stop = true;
        self.wake.notify_all();
    }

    fn serve(self: &Arc<Self>) {
        let mut batch = Vec::new();
        while self.take(&mut batch) {
            let turn = Held {
                class: self,
                given: Cell::new(false),
            };
            let _said = contained(|| {
                T::run(&mut batch, &turn);
                Ok(())
            });
            batch.clear();
            turn.give();
        }
    }

    /// The next batch, and the turn; false when there will be none.
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

/// A worker's turn.
struct Held<'a, T> {
    class: &'a Arc<Class<T>>,
    given: Cell<bool>,
}

impl<T: Task> Turn for Held<'_, T> {
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
