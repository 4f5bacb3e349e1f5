//! What may block, away from the threads of connections: flushes, and questions how a range is stored.
//!
//! Input: jobs of connections. Output: answers, into the connection's inbox. Invariants: a flush begins after the job was given,
//! and one flush serves all jobs that were waiting when it began (rule D1); a failed flush is reported once to every connection
//! of the export, because the data of all of them may be lost; every job is answered once, also when the device panics. Limits:
//! one thread for flushes and one for questions per export, started when first needed.

use diorite_block::sync::{Condvar, LockClass, Mutex};
use diorite_block::{BioError, BioErrorKind, Blocking, Device, Run, Told, Waker};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};

/// The jobs of an export's thread.
pub(crate) static NBD_ASIDE: LockClass = LockClass::new("nbd-aside", 62);
/// The answers for a connection.
pub(crate) static NBD_INBOX: LockClass = LockClass::new("nbd-inbox", 64);

/// What was asked, done.
#[derive(Debug)]
pub(crate) enum Answer {
    Flushed(Result<(), BioError>),
    /// Runs from the start of the range on.
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
    range: Range<u64>,
    most: usize,
    to: To,
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
    waiting: Vec<J>,
    ended: bool,
}

impl<J: Send + 'static> Worker<J> {
    fn new() -> Worker<J> {
        let list = List {
            waiting: Vec::new(),
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
    fn give(&self, job: J, name: &str, work: impl Fn(Vec<J>) + Send + 'static) {
        let thread = self.thread.get_or_init(|| {
            let jobs = self.jobs.clone();
            let run = move || {
                while let Some(batch) = jobs.next() {
                    // A device that panics fails the jobs of this batch only: their drop answers them.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(batch)));
                }
            };
            Builder::new().name(name.to_owned()).spawn(run).ok()
        });
        if thread.is_some() {
            self.jobs.list.lock().waiting.push(job);
            self.jobs.more.notify_one();
        }
    }
}

impl<J> Jobs<J> {
    /// All waiting jobs; none when there will be no more.
    fn next(&self) -> Option<Vec<J>> {
        let mut list = self.list.lock();
        loop {
            if !list.waiting.is_empty() {
                return Some(std::mem::take(&mut list.waiting));
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
        self.flushes
            .give(job, "nbd-flush", move |batch| flush_all(&blocking, batch));
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
            to: To {
                inbox: inbox.clone(),
                slot,
                kind: Kind::Stored,
                answered: false,
            },
        };
        let device = self.blocking.device().clone();
        self.questions
            .give(job, "nbd-stored", move |batch| ask_all(&*device, batch));
    }
}

fn flush_all(blocking: &Blocking, batch: Vec<FlushJob>) {
    let since: Vec<_> = batch.iter().map(|job| job.told.since()).collect();
    let flushed = blocking.flush();
    for (job, since) in batch.into_iter().zip(since) {
        // Of a flush that failed here, too, so that it is not reported to this connection a second time.
        let lost = blocking.flushes().tell(&job.told, since);
        job.to.answer(Answer::Flushed(flushed.and(lost)));
    }
}

fn ask_all(device: &dyn Device, batch: Vec<StoredJob>) {
    for job in batch {
        let stored = device.stored(job.range, job.most);
        let stored = stored.map_err(|_| BioError::new(BioErrorKind::Io));
        job.to.answer(Answer::Stored(stored));
    }
}
