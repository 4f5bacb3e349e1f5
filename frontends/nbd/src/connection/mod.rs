//! One connection after the handshake: requests from a socket become bios of a device, ended bios become replies.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `input` | bytes of the socket -> headers and payloads |
//! | `accept` | a header, the export -> whether the request makes sense |
//! | `start` | a request -> bios, or a job aside |
//! | `pieces` | a request that there is too little memory for at once -> pieces that move one after the other |
//! | `finish` | ended bios and answers -> replies |
//! | `sparse` | the contents of a read -> which parts of them are zeros |
//! | `output` | replies -> the socket, many with one call |
//! | `slots`, `memory` | what is kept of each request under way; the memory for contents |
//!
//! Input: a socket, a session. Output: replies. Invariants: the thread sleeps in one place only, for the socket and the device
//! together; a write of at most [`memory::LARGEST`] bytes is submitted when its whole payload is there, if there is memory for that; a
//! request that fails, at the device or before, gets its error and harms no other; the connection ends only after every bio and every job
//! aside has ended, so all memory is back (rule D8). Limits: `SLOTS` requests and [`memory::BUDGET`] bytes under way; beyond that, and
//! while the client does not take replies, nothing is read from the socket.
//!
//! # A round
//!
//! Receive what is there, and start each request that is complete; submit all bios; take those that have ended, make replies,
//! send all of them. The socket is asked again only if the last answer was as much as there was room for, or poll says that there
//! is more; poll is called only after a round in which nothing happened, and a short while after the last bytes came. Bios of a
//! device whose bytes are in memory are run in this thread.

mod accept;
mod finish;
mod input;
mod memory;
mod output;
mod pieces;
mod slots;
mod sparse;
mod start;

use crate::aside::{Answer, Inbox};
use crate::export::ExportStats;
use crate::negotiate::{Hangup, Session};
use crate::transport::Transport;
use crate::wire::Framing;
use diorite_block::device::DeviceErrorKind;
use diorite_block::{
    BioError, BioErrorKind, BioList, DeviceError, DeviceQueue, DeviceReport, Geometry,
    QueueOptions, Told, Waker,
};
use input::Input;
pub(crate) use memory::Budget;
use memory::Memory;
use output::Output;
use pieces::Stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as HostErrno;
use slots::Slots;
use sparse::Part;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Requests under way.
const SLOTS: usize = 256;

/// Bios that are run in the connection's thread between two looks at the socket.
const AT_ONCE: usize = 32;
/// The same in bytes: they should still be in the processor's cache when they are sent.
const BYTES_AT_ONCE: usize = 256 << 10;

/// How long a thread looks for more after the last bytes of a client, before it sleeps. A client with many requests under way sends the
/// next one within this time, and need not wake the thread for it.
const SPIN: Duration = Duration::from_micros(30);
/// How long a client may take to take its last replies when the server ends.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a connection drains at most, whatever its client and its requests do.
const MOST_DRAINED: Duration = Duration::from_secs(10);

/// After so long without a request a connection gives its kept memory back.
const IDLE: Duration = Duration::from_secs(5);

/// How long the thread sleeps at most while the device works, in case the device tells only those who wait for it.
const NAP: Duration = Duration::from_millis(20);
/// The same for a disk model, which has no interrupts.
const NAP_OF_MODEL: Duration = Duration::from_micros(50);

/// What the server and a connection's thread share.
#[derive(Debug)]
pub(crate) struct Control {
    /// Wakes the thread.
    pub(crate) waker: Arc<Waker>,
    /// Requests are not started any more.
    pub(crate) draining: AtomicBool,
    /// Memory for contents.
    pub(crate) budget: Arc<Budget>,
}

/// See the module.
pub(crate) struct Connection {
    transport: Transport,
    session: Session,
    framing: Framing,
    control: Arc<Control>,
    /// The device's, newly read with every receive.
    geometry: Geometry,
    queue: Box<dyn DeviceQueue>,
    inbox: Arc<Inbox>,
    told: Arc<Told>,
    input: Input,
    slots: Slots,
    memory: Memory,
    output: Output,
    /// Bios to submit.
    todo: BioList,
    /// Bios that have ended.
    ended: BioList,
    answers: Vec<(u32, Answer)>,
    /// The runs of a reply that is being made.
    parts: Vec<Part>,
    tally: ExportStats,
    nap: Duration,
    /// The device runs bios in this thread without waiting.
    at_once: bool,
    /// Bytes received when the thread was about to sleep last, and since when there are no more.
    seen: u64,
    quiet_since: Instant,
    /// See [`SPIN`].
    spins: Duration,
    /// The last receive left nothing behind unless this is set.
    readable: bool,
    /// The last send took everything unless this is unset.
    writable: bool,
    /// Nothing more is read: the client said that it ends.
    closing: bool,
    /// Since when the server ends.
    draining: Option<Instant>,
    /// Nobody reads replies any more.
    dead: bool,
    /// The read that moves in pieces.
    stream: Option<Stream>,
    /// Why the connection has to end.
    broken: Option<Hangup>,
}

impl Connection {
    /// A connection that begins to serve requests.
    pub(crate) fn open(
        transport: Transport,
        session: Session,
        control: Arc<Control>,
    ) -> Result<Connection, DeviceError> {
        let device = session.export.device().clone();
        let options = QueueOptions {
            depth: u32::try_from(SLOTS).expect("slots are few"),
            waker: control.waker.clone(),
            // A volume below has threads that reap for each other.
            owned_by_reaper: device.level() == 0,
            polled: None,
        };
        let queue = device.open_queue(options)?;
        queue.signal_waker();
        let memory = Memory::new(control.budget.clone());
        let memory = memory
            .ok_or_else(|| DeviceError::new(DeviceErrorKind::Io, "no memory for a connection"))?;
        Ok(Connection {
            framing: session.framing(),
            geometry: session.export.geometry(),
            inbox: Arc::new(Inbox::new(control.waker.clone())),
            told: Arc::new(session.export.aside.all_told()),
            input: Input::new(),
            slots: Slots::new(SLOTS),
            memory,
            output: Output::new(),
            todo: BioList::new(),
            ended: BioList::new(),
            answers: Vec::new(),
            parts: Vec::new(),
            tally: ExportStats {
                clients: 1,
                ..ExportStats::default()
            },
            nap: nap(&device.report()),
            at_once: device.is_memory(),
            seen: 0,
            quiet_since: Instant::now(),
            // With one processor the client could not run meanwhile.
            spins: match std::thread::available_parallelism() {
                Ok(n) if n.get() > 1 => SPIN,
                _ => Duration::ZERO,
            },
            readable: true,
            writable: true,
            closing: false,
            draining: None,
            dead: false,
            stream: None,
            broken: None,
            transport,
            session,
            control,
            queue,
        })
    }

    /// Serves until the client or the server ends.
    pub(crate) fn run(&mut self) -> Result<(), Hangup> {
        let ended = self.serve();
        self.dead = true;
        self.let_all_end();
        self.count();
        if ended.is_ok() {
            self.transport.close_best_effort();
        }
        ended
    }

    fn serve(&mut self) -> Result<(), Hangup> {
        loop {
            self.look_for_drain();
            self.take_input()?;
            self.go_on_with_stream();
            if self.memory.has_dropped() {
                self.queue.forget_memory();
            }
            self.submit();
            let mut busy = self.reap();
            busy |= self.take_answers();
            self.send()?;
            if let Some(why) = self.broken.take() {
                return Err(why);
            }
            if self.is_over() {
                return Ok(());
            }
            busy |= self.at_once && !self.todo.is_empty();
            busy |= self.may_go_on()
                || self.stream_may_go_on()
                || (self.readable && self.may_receive());
            if !busy && !self.spin() {
                self.count();
                self.sleep()?;
            }
        }
    }

    fn look_for_drain(&mut self) {
        if self.draining.is_none() && self.control.draining.load(Ordering::Acquire) {
            self.draining = Some(Instant::now());
            // What has arrived by now gets an answer.
            self.readable = true;
        }
    }

    /// Whether everything that the client will get has been sent.
    fn is_over(&self) -> bool {
        let last = match self.draining {
            None => self.closing,
            Some(since) if !self.writable && since.elapsed() > PATIENCE => return true,
            // A client that sends half a request, or never stops sending, does not keep the server.
            Some(since) if since.elapsed() > MOST_DRAINED => return true,
            Some(_) => self.closing || !self.readable,
        };
        last && self.slots.in_use() == 0 && self.output.is_empty() && !self.transport.wants_write()
    }

    /// Whether there is a point in asking the socket for more.
    fn may_receive(&self) -> bool {
        !self.closing && !self.input.is_waiting() && !self.output.is_full()
    }

    /// Starts bios.
    fn submit(&mut self) {
        if self.at_once {
            self.run_some();
        } else if !self.todo.is_empty() {
            self.queue.submit(&mut self.todo);
        }
    }

    /// Runs some bios to their ends in this thread. The others have to wait for the next round, so that the client gets its first replies
    /// while they run.
    fn run_some(&mut self) {
        let mut others = BioList::new();
        let (mut count, mut bytes) = (0, 0);
        while count < AT_ONCE && bytes < BYTES_AT_ONCE {
            let Some(bio) = self.todo.pop_front() else {
                break;
            };
            count += 1;
            bytes += bio.buf.len();
            match self.session.export.device().run_here(bio) {
                Ok(bio) => self.ended.push_back(bio),
                Err(bio) => others.push_back(bio),
            }
        }
        while !others.is_empty() {
            self.queue.submit(&mut others);
            self.queue.reap(&mut self.ended);
        }
    }

    /// Takes bios that have ended, and makes replies. Returns whether there were some.
    fn reap(&mut self) -> bool {
        if self.queue.in_flight() > 0 {
            self.queue.reap(&mut self.ended);
        }
        let some = !self.ended.is_empty();
        while let Some(bio) = self.ended.pop_front() {
            self.bio_ended(bio);
        }
        some
    }

    fn take_answers(&mut self) -> bool {
        if self.slots.aside() == 0 {
            return false;
        }
        let mut answers = std::mem::take(&mut self.answers);
        self.inbox.take(&mut answers);
        let some = !answers.is_empty();
        for (slot, answer) in answers.drain(..) {
            self.answered(slot, answer);
        }
        self.answers = answers;
        some
    }

    /// Whether to look at the socket again instead of sleeping: see [`SPIN`].
    fn spin(&mut self) -> bool {
        let now = Instant::now();
        if self.input.received() != self.seen {
            self.seen = self.input.received();
            self.quiet_since = now;
        }
        let useful = self.may_receive() && self.output.is_empty();
        if !useful || now.duration_since(self.quiet_since) > self.spins {
            return false;
        }
        // Others, such as the client, may want this processor.
        std::thread::yield_now();
        self.readable = true;
        true
    }

    /// Sleeps until the socket or the device has something.
    fn sleep(&mut self) -> Result<(), Hangup> {
        let mut wanted = PollFlags::empty();
        if self.may_receive() {
            wanted |= PollFlags::IN;
        }
        if !self.output.is_empty() || self.transport.wants_write() {
            wanted |= PollFlags::OUT;
        }
        let busy = self.queue.in_flight() > 0 || !self.todo.is_empty();
        let timeout = match (busy, self.draining) {
            (true, _) => Some(self.nap),
            (false, Some(_)) => Some(PATIENCE / 10),
            (false, None) => self.memory.can_trim().then_some(IDLE),
        };
        let timeout_is_idle = timeout == Some(IDLE);
        let timeout = timeout.map(|t| Timespec {
            tv_sec: t.as_secs().cast_signed(),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        let waker = self.control.waker.clone();
        let mut fds = [
            PollFd::new(&self.transport, wanted),
            PollFd::new(&*waker, PollFlags::IN),
        ];
        let mut polled = Ok(0);
        waker.asleep(|| polled = poll(&mut fds, timeout.as_ref()));
        let (socket, kicked) = (fds[0].revents(), !fds[1].revents().is_empty());
        match polled {
            Ok(0) if timeout_is_idle => self.memory.trim(),
            Ok(_) | Err(HostErrno::INTR) => {}
            Err(e) => return Err(Hangup::Host(e.into())),
        }
        if kicked || waker.is_kicked() {
            waker.clear();
        }
        let gone = PollFlags::HUP | PollFlags::ERR;
        if socket.intersects(gone) && !wanted.contains(PollFlags::IN) {
            // Otherwise poll would say so again and again, and nobody would ask the socket why.
            return Err(Hangup::Closed);
        }
        self.readable |= socket.intersects(PollFlags::IN | gone);
        self.writable |= socket.intersects(PollFlags::OUT | gone);
        Ok(())
    }

    /// Adds what was counted here to the counters of the export and the server.
    fn count(&mut self) {
        self.session.export.counters.add(&self.tally);
        self.tally = ExportStats::default();
        self.memory.settle();
    }

    /// Waits until every bio and every job aside has ended, and takes all memory back.
    fn let_all_end(&mut self) {
        while let Some(mut bio) = self.todo.pop_front() {
            bio.result = Err(BioError::new(BioErrorKind::Gone));
            self.bio_ended(bio);
        }
        loop {
            self.take_back_unstarted();
            if self.slots.in_use() == 0 {
                return;
            }
            let mut some = self.reap();
            some |= self.take_answers();
            self.submit();
            if !some {
                self.queue.wait(1, Some(self.nap));
                self.control.waker.clear();
            }
        }
    }
}

fn nap(report: &DeviceReport) -> Duration {
    let mut lowest = report;
    while let Some(below) = &lowest.below {
        lowest = below;
    }
    match lowest.engine.as_str() {
        "sim" => NAP_OF_MODEL,
        _ => NAP,
    }
}
