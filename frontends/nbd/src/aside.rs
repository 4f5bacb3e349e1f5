//! What may block, away from the threads of connections: flushes, and questions how a range is stored.
//!
//! Input: jobs of connections. Output: answers, into the connection's inbox. Invariants: a flush begins after the job was given,
//! and one flush serves all jobs that were waiting when it began (rule D1); a failed flush is reported once to every connection
//! of the export, because the data of all of them may be lost; every job is answered once, also when the device panics. Limits:
//! one thread for flushes and one for questions per export, started when first needed. A question is answered in turns of
//! [`RUNS_AT_ONCE`] runs and [`BYTES_AT_ONCE`], and goes to the end of the list after each, so that a long one delays nobody (rule M7).

use diorite_block::sync::{Condvar, LockClass, Mutex};
use diorite_block::{BioError, BioErrorKind, Blocking, Device, DeviceError, Run, Told, Waker};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};

/// The jobs of an export's thread.
pub(crate) static NBD_ASIDE: LockClass = LockClass::new("nbd-aside", 62);
/// The answers for a connection.
pub(crate) static NBD_INBOX: LockClass = LockClass::new("nbd-inbox", 64);

/// Runs and bytes that a question is about for one turn.
const RUNS_AT_ONCE: usize = 64;
const BYTES_AT_ONCE: u64 = 1 << 30;

/// What was asked, done.
#[derive(Debug)]
pub(crate) enum Answer {
    Flushed(Result<(), BioError>),
    /// Runs from the start of the range on, neighbours of one kind joined.
    Stored(Result<Vec<Run>, BioError>),
}

/// Answers for a connection, which wake it.
#[derive(Debug)]
pub(crate) struct Inbox {
    answers: Mutex<Vec<(u32, Answer)>>,
    waker: Arc<Waker>,
}

impl Inbox {
    pub(crate) fn new(waker: Arc<Waker>) -> Inbox {
        Inbox {
            answers: Mutex::new(&NBD_INBOX, Vec::new()),
            waker,
        }
    }

    fn put(&self, slot: u32, answer: Answer) {
        self.answers.lock().push((slot, answer));
        self.waker.kick();
    }

    /// Moves all answers to `out`.
    pub(crate) fn take(&self, out: &mut Vec<(u32, Answer)>) {
        out.append(&mut self.answers.lock());
    }
}

/// Whom to answer. If it is dropped without an answer, the answer is an error.
struct To {
    inbox: Arc<Inbox>,
    slot: u32,
    kind: Kind,
    answered: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Flush,
    Stored,
}

impl To {
    fn answer(mut self, answer: Answer) {
        self.answered = true;
        self.inbox.put(self.slot, answer);
    }
}

impl Drop for To {
    fn drop(&mut self) {
        if !self.answered {
            let gone = BioError::new(BioErrorKind::Gone);
            let answer = match self.kind {
                Kind::Flush => Answer::Flushed(Err(gone)),
                Kind::Stored => Answer::Stored(Err(gone)),
            };
            self.inbox.put(self.slot, answer);
        }
    }
}

struct FlushJob {
    told: Arc<Told>,
    to: To,
}

struct StoredJob {
    /// What is still to be asked.
    range: Range<u64>,
    /// Runs that may still be asked for.
    most: usize,
    /// What is known so far.
    runs: Vec<Run>,
    to: To,
}

impl StoredJob {
    /// Asks once. Returns whether that was the last time.
    fn ask(&mut self, device: &dyn Device) -> Result<bool, DeviceError> {
        let end = self.range.start.saturating_add(BYTES_AT_ONCE);
        let end = self.range.end.min(end);
        let now = self.range.start..end;
        let runs = device.stored(now, self.most.min(RUNS_AT_ONCE))?;
        self.most -= runs.len().min(self.most);
        let is_stuck = runs.is_empty();
        for run in runs {
            let len = run.len.min(end - self.range.start);
            self.range.start += len;
            match self.runs.last_mut() {
                Some(last) if last.stored == run.stored => last.len += len,
                _ if len > 0 => self.runs.push(Run { len, ..run }),
                _ => {}
            }
        }
        Ok(self.range.is_empty() || self.most == 0 || is_stuck)
    }
}

/// A thread with its jobs.
struct Worker<J> {
    jobs: Arc<Jobs<J>>,
    thread: OnceLock<Option<JoinHandle<()>>>,
}

struct Jobs<J> {
    list: Mutex<List<J>>,
    more: Condvar,
}

struct List<J> {
    waiting: VecDeque<J>,
    ended: bool,
}

impl<J: Send + 'static> Worker<J> {
    fn new() -> Worker<J> {
        let list = List {
            waiting: VecDeque::new(),
            ended: false,
        };
        Worker {
            jobs: Arc::new(Jobs {
                list: Mutex::new(&NBD_ASIDE, list),
                more: Condvar::new(),
            }),
            thread: OnceLock::new(),
        }
    }

    /// Gives a job. If the host has no thread, the job is dropped, which answers it with an error.
    fn give(&self, job: J, name: &str, work: impl Fn(&Jobs<J>, J) + Send + 'static) {
        let thread = self.thread.get_or_init(|| {
            let jobs = self.jobs.clone();
            let run = move || {
                while let Some(job) = jobs.next() {
                    // A device that panics fails only the jobs that were taken: their drop answers them.
                    let work = || work(&jobs, job);
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                }
            };
            Builder::new().name(name.to_owned()).spawn(run).ok()
        });
        if thread.is_some() {
            self.jobs.put(job);
            self.jobs.more.notify_one();
        }
    }
}

impl<J> Jobs<J> {
    /// Adds a job behind the others.
    fn put(&self, job: J) {
        self.list.lock().waiting.push_back(job);
    }

    /// All jobs that wait.
    fn rest(&self) -> VecDeque<J> {
        std::mem::take(&mut self.list.lock().waiting)
    }

    /// The first waiting job; none when there will be no more.
    fn next(&self) -> Option<J> {
        let mut list = self.list.lock();
        loop {
            if let Some(job) = list.waiting.pop_front() {
                return Some(job);
            }
            if list.ended {
                return None;
            }
            list = self.more.wait(list);
        }
    }
}

impl<J> Drop for Worker<J> {
    fn drop(&mut self) {
        self.jobs.list.lock().ended = true;
        self.jobs.more.notify_one();
        if let Some(Some(thread)) = self.thread.take() {
            // Its panics are caught above.
            let _ = thread.join();
        }
    }
}

/// The threads of an export.
pub(crate) struct Aside {
    blocking: Arc<Blocking>,
    flushes: Worker<FlushJob>,
    questions: Worker<StoredJob>,
}

impl Aside {
    pub(crate) fn new(device: Arc<dyn Device>) -> Aside {
        Aside {
            blocking: Arc::new(Blocking::new(device)),
            flushes: Worker::new(),
            questions: Worker::new(),
        }
    }

    /// For a new connection: failures so far are none of its own.
    pub(crate) fn all_told(&self) -> Told {
        self.blocking.flushes().all_told()
    }

    /// Makes durable everything that has ended, and answers then.
    pub(crate) fn flush(&self, told: &Arc<Told>, inbox: &Arc<Inbox>, slot: u32) {
        let job = FlushJob {
            told: told.clone(),
            to: To {
                inbox: inbox.clone(),
                slot,
                kind: Kind::Flush,
                answered: false,
            },
        };
        let blocking = self.blocking.clone();
        self.flushes.give(job, "nbd-flush", move |jobs, first| {
            let mut batch = jobs.rest();
            batch.push_front(first);
            flush_all(&blocking, batch);
        });
    }

    /// Makes durable everything that has ended. Blocks.
    pub(crate) fn flush_here(&self) -> Result<(), BioError> {
        self.blocking.flush()
    }

    /// Asks how a range is stored.
    pub(crate) fn stored(&self, range: Range<u64>, most: usize, inbox: &Arc<Inbox>, slot: u32) {
        let job = StoredJob {
            range,
            most,
            runs: Vec::new(),
            to: To {
                inbox: inbox.clone(),
                slot,
                kind: Kind::Stored,
                answered: false,
            },
        };
        let device = self.blocking.device().clone();
        self.questions
            .give(job, "nbd-stored", move |jobs, job| ask(&*device, jobs, job));
    }
}

fn flush_all(blocking: &Blocking, batch: VecDeque<FlushJob>) {
    let since: Vec<_> = batch.iter().map(|job| job.told.since()).collect();
    let flushed = blocking.flush();
    for (job, since) in batch.into_iter().zip(since) {
        // Of a flush that failed here, too, so that it is not reported to this connection a second time.
        let lost = blocking.flushes().tell(&job.told, since);
        job.to.answer(Answer::Flushed(flushed.and(lost)));
    }
}

fn ask(device: &dyn Device, jobs: &Jobs<StoredJob>, mut job: StoredJob) {
    let answer = match job.ask(device) {
        Ok(false) => return jobs.put(job),
        Ok(true) => Ok(std::mem::take(&mut job.runs)),
        Err(_) => Err(BioError::new(BioErrorKind::Io)),
    };
    job.to.answer(Answer::Stored(answer));
}
