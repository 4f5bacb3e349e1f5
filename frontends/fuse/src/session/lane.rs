//! One thread: its requests, executed and answered.
//!
//! Input: a line to the kernel. Output: replies. Invariants: a thread of a ring with several places executes nothing that waits for another
//! request, or for long; it lends that to another thread, and executes it itself only where there is none. Limits: [`MOST_THREADS`],
//! [`MOST_WAITING`].

use super::lent::Lent;
use super::settle::settle;
use super::{StartError, Stats};
use crate::fs::{Answer, FileSystem, Help, is_direct_write};
use crate::transport::{Incoming, Line, Reply};
use crate::wire::input::Header;
use crate::wire::{can, op};
use rustix::io::Errno;
use std::cell::{Cell, OnceCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

/// Threads of one mount; with io_uring of one processor.
const MOST_THREADS: usize = 64;

/// The same, if otherwise all would wait for the kernel, which waits for them.
const MOST_WAITING: usize = 2 * MOST_THREADS;

/// Threads that do each other's work.
pub(super) struct Crew {
    pub(super) fs: Arc<FileSystem>,
    pub(super) lent: Arc<Lent>,
    pub(super) stats: Arc<Stats>,
    /// So many are not in requests that may block for long.
    pub(super) least: usize,
    /// Threads that were to begin.
    pub(super) numbers: AtomicUsize,
    /// Threads that have begun.
    pub(super) threads: AtomicUsize,
    /// In such requests.
    pub(super) slow: AtomicUsize,
    pub(super) begun: Sender<JoinHandle<()>>,
}

impl Crew {
    /// A further slow request, if it has help without a new thread.
    fn slow_with_help(&self) -> Option<Slow<'_>> {
        let threads = self.threads.load(Relaxed);
        let enter = |slow| (threads > slow + 1).then_some(slow + 1);
        let entered = self.slow.fetch_update(Relaxed, Relaxed, enter).is_ok();
        entered.then_some(Slow {
            crew: self,
            has_help: true,
        })
    }
}

/// A request that may block for long is being executed.
struct Slow<'a> {
    crew: &'a Crew,
    /// Of those who execute such requests the last one has nobody: it waits for no other request.
    has_help: bool,
}

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        self.crew.slow.fetch_sub(1, Relaxed);
    }
}

/// A thread that executes a request: whether that is a slow one is known before, or it turns out.
struct Executing<'a> {
    crew: &'a Arc<Crew>,
    line: &'a Line,
    slow: OnceCell<Slow<'a>>,
    who: Who,
    /// It would have waited: another thread has to execute it again.
    has_to_wait: Cell<bool>,
}

/// Who executes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// A thread that no other request waits for, as long as it is not slow.
    Anyone,
    /// The thread of a ring with several places: it waits for nobody.
    OfMany,
    /// The same, which executes the request itself, as no other thread can: nobody serves what it would ask the kernel for.
    Alone,
    /// A thread that has borrowed the place: those of rings with several places serve everybody else.
    Borrower,
}

impl Executing<'_> {
    fn run(
        self,
        header: &Header,
        request: &mut Incoming,
        out: &mut Vec<u8>,
        is_slow: bool,
    ) -> Option<Result<Answer, Errno>> {
        let fs = &self.crew.fs;
        if is_slow && self.who == Who::Anyone {
            self.is_slow(self.crew.least, MOST_THREADS);
        }
        // A panic has been reported by itself, and aborts the journal if it was in the middle of a change. Its caller must not wait for
        // ever.
        let answer = catch_unwind(AssertUnwindSafe(|| fs.answer(header, request, out, &self)));
        let has_to_wait = self.has_to_wait.get();
        // Behind others the kernel may have pages locked, or keep them from being written, until they have their reply.
        let direct = header.op == op::WRITE && is_direct_write(request.before());
        self.end(is_slow || direct);
        match has_to_wait {
            true => None,
            false => Some(answer.unwrap_or(Err(Errno::IO))),
        }
    }

    /// What others had to leave is done as soon as there is help. Whoever finds none then is one of several slow ones, each of which looks
    /// here when it is none any more; the lock of what is left orders that. `may_wait`: the thread may wait for pages although the request
    /// has no reply yet.
    fn end(self, may_wait: bool) {
        let crew = self.crew;
        if self.who == Who::Borrower && may_wait {
            crew.fs.forget_late();
        }
        let mut slow = self.slow.into_inner();
        while slow.is_some() {
            drop(slow);
            slow = match crew.fs.has_late() {
                true => crew.slow_with_help(),
                false => None,
            };
            if slow.is_some() {
                crew.fs.forget_late();
            }
        }
    }

    /// It may block for long. `free`: so many threads should be left for others.
    fn is_slow(&self, free: usize, most: usize) -> bool {
        let slow = self.slow.get_or_init(|| {
            let crew = self.crew;
            let slow = crew.slow.fetch_add(1, Relaxed) + 1;
            let mut entered = Slow {
                crew,
                has_help: false,
            };
            make_room(crew, self.line, slow + free, most);
            entered.has_help = crew.threads.load(Relaxed) > slow;
            entered
        });
        slow.has_help
    }
}

impl Help for Executing<'_> {
    fn is_there(&self, long: bool) -> bool {
        match self.who {
            Who::Anyone => {}
            Who::OfMany | Who::Alone => return false,
            Who::Borrower => return true,
        }
        let free = if long { self.crew.least } else { 1 };
        self.is_slow(free, MOST_WAITING)
    }

    fn may_wait(&self) -> bool {
        let may = self.who != Who::OfMany;
        self.has_to_wait.set(self.has_to_wait.get() || !may);
        may
    }
}

/// May it block until a device has flushed, or for much data?
fn is_slow(op: u32) -> bool {
    matches!(
        op,
        op::FSYNC
            | op::FSYNCDIR
            | op::SYNCFS
            | op::FALLOCATE
            | op::COPY_FILE_RANGE
            | op::IOCTL
            | op::LSEEK
            | op::STATFS
    )
}

fn is_data(op: u32) -> bool {
    matches!(op, op::READ | op::WRITE)
}

/// What one thread has.
pub(super) struct Lane {
    line: Line,
    crew: Arc<Crew>,
    request: Incoming,
    out: Vec<u8>,
    /// It has places of other threads only.
    borrows: bool,
}

impl Lane {
    pub(super) fn new(line: Line, request: Incoming, crew: &Arc<Crew>) -> Lane {
        Lane {
            line,
            crew: crew.clone(),
            request,
            out: Vec::with_capacity(64 << 10),
            borrows: false,
        }
    }

    /// Starts the thread. It says whether the kernel has taken it.
    pub(super) fn spawn(mut self, tell: Sender<Result<(), Errno>>) -> std::io::Result<()> {
        let crew = self.crew.clone();
        let number = crew.numbers.fetch_add(1, Relaxed);
        let work = move || {
            let ready = self.line.start();
            let is_ready = ready.is_ok();
            // Nobody may wait for that of a later one.
            let _ = tell.send(ready);
            drop(tell);
            if is_ready {
                self.run();
            }
        };
        let thread = Builder::new().name(format!("fuse-{number}")).spawn(work);
        match thread {
            Ok(thread) => {
                crew.threads.fetch_add(1, Relaxed);
                // The list is gone after the end only.
                let _ = crew.begun.send(thread);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The first request, which settles what both sides can do: returns that.
    pub(super) fn begin(&mut self, has_rings: bool) -> Result<u64, StartError> {
        let host = |error: Errno| StartError::Protocol(error.to_string());
        loop {
            if !self.line.receive(&mut self.request).map_err(host)? {
                return Err(StartError::Protocol("the mount has gone".to_owned()));
            }
            let bytes = self.request.whole();
            let header = Header::parse(bytes).map_err(host)?;
            if header.op != op::INIT {
                let reply = Reply::Failed(Errno::IO);
                let sent = self.line.reply(header.unique, &mut self.request, reply);
                sent.map_err(host)?;
                continue;
            }
            self.out.clear();
            let body = &bytes[crate::wire::input::HEADER..];
            let mut wanted = self.crew.fs.wanted();
            if has_rings {
                wanted |= can::OVER_IO_URING;
            }
            let wishes = (wanted, self.crew.fs.granularity());
            let settled = settle(body, wishes, &mut self.out);
            let reply = match &settled {
                Ok(_) => Reply::Out(&self.out),
                Err(_) => Reply::Failed(Errno::PROTO),
            };
            let sent = self.line.reply(header.unique, &mut self.request, reply);
            sent.map_err(host)?;
            if let Some(both) = settled? {
                self.crew.fs.settled(both);
                return Ok(both);
            }
        }
    }

    fn run(mut self) {
        if self.borrows {
            self.run_lent();
            self.crew.lent.has_ended();
            return;
        }
        while self.receive() {
            self.serve();
        }
        self.crew.lent.end();
    }

    /// Executes what others lend, and what comes to these places until they can go back.
    fn run_lent(&mut self) {
        while let Some(slot) = self.crew.lent.next() {
            // Without a place there is room for one.
            let _always = self.line.adopt(slot, &mut self.request);
            loop {
                self.serve();
                if !self.receive() {
                    return;
                }
                if !self.may_block() && self.line.give_back(&mut self.request) {
                    break;
                }
            }
            self.crew.fs.forget_late();
            self.crew.lent.is_waiting();
        }
    }

    fn receive(&mut self) -> bool {
        self.line
            .receive(&mut self.request)
            .unwrap_or_else(|error| {
                // Nobody can be answered any more.
                eprintln!("diorite: {}: {error}", self.crew.fs.name());
                false
            })
    }

    /// May the request that was received block?
    fn may_block(&self) -> bool {
        let header = Header::parse(self.request.before());
        header
            .is_ok_and(|header| is_slow(header.op) || self.crew.fs.may_wait(&header, &self.request))
    }

    /// Another thread executes the request. False: there is none for it.
    fn lend(&mut self) -> bool {
        let Lane {
            line,
            crew,
            request,
            ..
        } = self;
        let is_lent = crew.lent.lend(|| line.lend(request))
            || start_borrower(crew, line) && crew.lent.lend(|| line.lend(request));
        crew.stats.lent.fetch_add(u64::from(is_lent), Relaxed);
        is_lent
    }

    fn serve(&mut self) {
        let header = Header::parse(self.request.before());
        let op = header.map_or(0, |header| header.op);
        let is_of_many = self.line.has_others() && !self.borrows;
        if is_of_many && self.may_block() && self.lend() {
            return;
        }
        self.crew.stats.has_received(op);
        let who = match is_of_many {
            true => Who::OfMany,
            false if self.borrows => Who::Borrower,
            false => Who::Anyone,
        };
        if !self.execute(who) && !self.lend() {
            self.execute(Who::Alone);
        }
        self.crew.stats.ended.fetch_add(1, Relaxed);
    }

    /// Executes the request and replies. False: it has to be executed where it may wait, and has no reply.
    fn execute(&mut self, who: Who) -> bool {
        let Lane {
            line,
            crew,
            request,
            out,
            ..
        } = self;
        let Ok(header) = Header::parse(request.before()) else {
            return true;
        };
        let is_slow = is_slow(header.op);
        if is_slow || is_data(header.op) && crew.fs.waits_for_data() {
            line.hand_over();
        }
        out.clear();
        let executing = Executing {
            crew,
            line,
            slow: OnceCell::new(),
            who,
            has_to_wait: Cell::new(false),
        };
        let Some(answer) = executing.run(&header, request, out, is_slow) else {
            return false;
        };
        let reply = match answer {
            Ok(Answer::Nothing) => return true,
            Ok(Answer::Out) => Reply::Out(out),
            Ok(Answer::Data(len)) => Reply::Data(len),
            Err(error) => {
                crew.stats.errors.fetch_add(1, Relaxed);
                Reply::Failed(error)
            }
        };
        let sent = line.reply(header.unique, request, reply);
        if sent.is_err() {
            crew.stats.interrupted.fetch_add(1, Relaxed);
            crew.fs.not_sent(&header, out);
        }
        true
    }
}

/// Starts a thread that borrows places of rings as this one, and waits until it has begun. False: there is none for it.
fn start_borrower(crew: &Arc<Crew>, line: &Line) -> bool {
    if !crew.lent.may_start(MOST_WAITING) {
        return false;
    }
    let start = || {
        let lane = Lane {
            borrows: true,
            ..Lane::new(line.borrower()?, Incoming::without_memory(), crew)
        };
        let (tell, started) = channel();
        lane.spawn(tell).ok()?;
        started.recv().ok()?.ok()
    };
    let has_started = start().is_some();
    match has_started {
        true => crew.lent.is_waiting(),
        false => crew.lent.has_ended(),
    }
    has_started
}

/// Starts another thread of the crew, with a line like this, if there are fewer than `wanted`. Without memory there is none: others wait.
fn make_room(crew: &Arc<Crew>, line: &Line, wanted: usize, most: usize) {
    let threads = crew.threads.load(Relaxed);
    if threads >= most || threads >= wanted {
        return;
    }
    if let Some((line, request)) = line.another() {
        let _ = Lane::new(line, request, crew).spawn(channel().0);
    }
}
