//! The session: threads that each receive a request, execute it and reply.
//!
//! Input: a volume and a mount point. Output: a mount; when it is unmounted, the volume, with everything made durable. Invariants: a
//! request is executed by the thread that received it, so no request waits for another one's thread; the memory of each thread is touched
//! before the mount appears. A request that may block for long, as a sync, leaves as many threads for others as there were at the start:
//! further ones are started for that. Limits: 64 threads, 128 if the others wait for the kernel; reads and writes block a thread each. With
//! io_uring each processor has threads for its requests.

use crate::fs::{Answer, FileSystem, Help};
use crate::options::MountOptions;
use crate::transport::{
    Channel, Incoming, Line, MOST_PROCESSORS, Reply, Ring, processors, rings_of_each,
};
use crate::wire::input::{Body, Header};
use crate::wire::output::Put;
use crate::wire::{MAJOR, MINOR, MOST_DATA, OLDEST_MINOR, can, op};
use diorite::{Error, Volume};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

/// Requests that the kernel may have under way without a caller who waits: read-ahead, write-back, asynchronous direct I/O.
const BACKGROUND: u16 = 4096;

/// Threads of one mount; with io_uring of one processor.
const MOST_THREADS: usize = 64;

/// The same, if otherwise all would wait for the kernel, which waits for them.
const MOST_WAITING: usize = 2 * MOST_THREADS;

/// Operations of the protocol that are counted apart: those of numbers below this.
const COUNTED: usize = 64;

/// Counts of a session.
#[derive(Debug)]
pub struct Stats {
    /// Requests received, by operation; the first place has those of no known one.
    received: [AtomicU64; COUNTED],
    /// Requests that have ended.
    pub ended: AtomicU64,
    /// Requests that were answered with an error.
    pub errors: AtomicU64,
    /// Replies that nobody waited for any more.
    pub interrupted: AtomicU64,
}

impl Default for Stats {
    fn default() -> Self {
        Stats {
            received: [const { AtomicU64::new(0) }; COUNTED],
            ended: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            interrupted: AtomicU64::new(0),
        }
    }
}

impl Stats {
    fn has_received(&self, op: u32) {
        let at = usize::try_from(op).ok().filter(|at| *at < COUNTED);
        self.received[at.unwrap_or(0)].fetch_add(1, Relaxed);
    }

    /// Requests received.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.received.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Requests received, by the operation's name in the protocol; those that did not come are left out.
    pub fn by_operation(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.received.iter().map(|count| count.load(Relaxed));
        let named = (0..).zip(counts).filter(|(_, count)| *count > 0);
        named.map(|(op, count)| (op::name(op).unwrap_or("other"), count))
    }
}

/// A mount that is being served.
///
/// ```no_run
/// use diorite::{OpenOptions, Volume};
/// use diorite_fuse::{MountOptions, Mounted, mount};
/// use std::path::Path;
///
/// # fn main() -> std::io::Result<()> {
/// let options = MountOptions::default();
/// let path = Path::new("/mnt/image");
/// let point = std::fs::File::open(path)?.into();
/// let volume = Volume::open("disk.img", &OpenOptions::writable())?;
/// let fuse = mount(path, &point, &options)?;
/// let mut mounted = Mounted::serve(volume, fuse, options)?;
/// mounted.wait(); // until somebody unmounts it
/// mounted.closer().close()?; // everything is durable, or this says why not
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "requests of the mount are answered only while this is there; its closer says whether everything is durable"]
pub struct Mounted {
    fs: Arc<FileSystem>,
    threads: Receiver<JoinHandle<()>>,
    stats: Arc<Stats>,
}

/// Why a volume could not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The first request made no sense, or is of a protocol that is too old.
    #[error("the kernel's FUSE: {0}")]
    Protocol(String),
    /// No memory or no threads.
    #[error("no memory or threads for the session")]
    Host,
}

/// The error becomes the source.
impl From<StartError> for std::io::Error {
    fn from(error: StartError) -> std::io::Error {
        let kind = match error {
            StartError::Protocol(_) => std::io::ErrorKind::Unsupported,
            StartError::Host => std::io::ErrorKind::OutOfMemory,
        };
        std::io::Error::new(kind, error)
    }
}

impl Mounted {
    /// Serves `volume` to the mount that `fuse` is a descriptor of: see [`crate::mount`]. Returns when the mount can be used. Blocks.
    ///
    /// # Errors
    /// The kernel is too old; there is no memory. The volume is dropped then.
    pub fn serve(
        volume: Volume,
        fuse: OwnedFd,
        options: MountOptions,
    ) -> Result<Mounted, StartError> {
        let count = options.threads.unwrap_or_else(default_threads);
        let wants_rings = options.wants_rings();
        let stats = Arc::new(Stats::default());
        let first = Channel::new(fuse, options.busy_poll);
        // All memory is there before the kernel is told what is possible.
        let rings = match wants_rings {
            true => rings(&first, count),
            false => Vec::new(),
        };
        let (begun, threads) = channel();
        let fs = Arc::new(FileSystem::new(volume, options, first.another()));
        let crew = |least: u16| {
            Arc::new(Crew {
                fs: fs.clone(),
                stats: stats.clone(),
                least: usize::from(least),
                numbers: AtomicUsize::new(0),
                threads: AtomicUsize::new(0),
                slow: AtomicUsize::new(0),
                begun: begun.clone(),
            })
        };
        let by_device = crew(count);
        let mut starter = Lane::new(Line::Device(first.clone()), memory()?, &by_device);
        let both = starter.begin(!rings.is_empty())?;
        let has_rings = both & can::OVER_IO_URING != 0;
        let mut lanes = vec![starter];
        if has_rings {
            // FORGET and INTERRUPT still come by the device.
            for of_processor in rings {
                let crew = crew(u16::try_from(of_processor.len()).unwrap_or(u16::MAX));
                lanes.extend(
                    of_processor.into_iter().map(|(ring, request)| {
                        Lane::new(Line::Ring(Box::new(ring)), request, &crew)
                    }),
                );
            }
        } else {
            for _ in 1..count {
                let line = Line::Device(first.another());
                lanes.push(Lane::new(line, memory()?, &by_device));
            }
        }
        let (tell, started) = channel();
        for lane in lanes {
            lane.spawn(tell.clone()).map_err(|_| StartError::Host)?;
        }
        drop((tell, begun));
        let refused =
            |e: Errno| StartError::Protocol(format!("io_uring: {e} (-o noio_uring does without)"));
        let all: Result<(), Errno> = started.iter().collect();
        all.map_err(refused)?;
        Ok(Mounted { fs, threads, stats })
    }

    /// Counts since the start.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        self.stats.clone()
    }

    /// Waits until the mount is gone.
    pub fn wait(&mut self) {
        // Threads that others start are in the list before those end.
        for thread in self.threads.try_iter() {
            // A panic of a thread was reported by the panic itself.
            let _ = thread.join();
        }
    }

    /// What ends the volume of the mount: it can be used while another thread waits for the mount's end.
    #[must_use]
    pub fn closer(&self) -> Closer {
        Closer(self.fs.clone())
    }
}

/// See [`Mounted::closer`].
#[derive(Clone, Debug)]
pub struct Closer(Arc<FileSystem>);

impl Closer {
    /// Makes everything durable and closes the volume; requests that come later fail. Blocks.
    ///
    /// # Errors
    /// Those of [`Volume::close`].
    pub fn close(self) -> Result<(), Error> {
        self.0.close()
    }

    /// Refuses changes from now on, and makes the image clean; or permits them again. Blocks.
    ///
    /// # Errors
    /// Those of [`Volume::make_clean`]; an image that was opened read-only stays so.
    pub fn set_read_only(&self, read_only: bool) -> Result<(), Error> {
        self.0.set_read_only(read_only)
    }
}

/// The number of threads that serve a mount by default: at least four, so that a request that waits for a device delays nobody.
#[must_use]
pub fn default_threads() -> u16 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    u16::try_from((2 * processors).clamp(4, 32)).expect("clamped")
}

fn memory() -> Result<Incoming, StartError> {
    Incoming::try_new().ok_or(StartError::Host)
}

/// Rings for each processor of a mount that `threads` serve, and their memory. None at all if that is not possible for every processor.
#[must_use]
pub fn rings(channel: &Channel, threads: u16) -> Vec<Vec<(Ring, Incoming)>> {
    let Some(processors) = processors().filter(|n| (1..=MOST_PROCESSORS).contains(n)) else {
        return Vec::new();
    };
    let each = rings_of_each(threads, processors);
    let of = |processor| (0..each).map(|_| Ring::new(channel, processor)).collect();
    let all: Option<_> = (0..processors).map(of).collect();
    all.unwrap_or_default()
}

/// Threads that do each other's work.
struct Crew {
    fs: Arc<FileSystem>,
    stats: Arc<Stats>,
    /// So many are not in requests that may block for long.
    least: usize,
    /// Threads that were to begin.
    numbers: AtomicUsize,
    /// Threads that have begun.
    threads: AtomicUsize,
    /// In such requests.
    slow: AtomicUsize,
    begun: Sender<JoinHandle<()>>,
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
}

impl Executing<'_> {
    fn run(
        self,
        header: &Header,
        request: &mut Incoming,
        out: &mut Vec<u8>,
        is_slow: bool,
    ) -> Result<Answer, Errno> {
        let fs = &self.crew.fs;
        if is_slow {
            self.is_slow(self.crew.least, MOST_THREADS);
        }
        // A panic has been reported by itself, and aborts the journal if it was in the middle of a change. Its caller must not wait for
        // ever.
        let answer = catch_unwind(AssertUnwindSafe(|| fs.answer(header, request, out, &self)));
        self.end();
        answer.unwrap_or(Err(Errno::IO))
    }

    /// What others had to leave is done as soon as there is help. Whoever finds none then is one of several slow ones, each of which looks
    /// here when it is none any more; the lock of what is left orders that.
    fn end(self) {
        let crew = self.crew;
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
        let free = if long { self.crew.least } else { 1 };
        self.is_slow(free, MOST_WAITING)
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
    )
}

fn is_data(op: u32) -> bool {
    matches!(op, op::READ | op::WRITE)
}

/// What one thread has.
struct Lane {
    line: Line,
    crew: Arc<Crew>,
    request: Incoming,
    out: Vec<u8>,
}

impl Lane {
    fn new(line: Line, request: Incoming, crew: &Arc<Crew>) -> Lane {
        Lane {
            line,
            crew: crew.clone(),
            request,
            out: Vec::with_capacity(64 << 10),
        }
    }

    /// Starts the thread. It says whether the kernel has taken it.
    fn spawn(mut self, tell: Sender<Result<(), Errno>>) -> std::io::Result<()> {
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
    fn begin(&mut self, has_rings: bool) -> Result<u64, StartError> {
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
        loop {
            match self.line.receive(&mut self.request) {
                Ok(true) => self.serve(),
                Ok(false) => return,
                Err(error) => {
                    // Nobody can be answered any more.
                    eprintln!("diorite: {}: {error}", self.crew.fs.name());
                    return;
                }
            }
        }
    }

    fn serve(&mut self) {
        let header = Header::parse(self.request.before());
        let op = header.map_or(0, |header| header.op);
        self.crew.stats.has_received(op);
        self.execute();
        self.crew.stats.ended.fetch_add(1, Relaxed);
    }

    fn execute(&mut self) {
        let Lane {
            line,
            crew,
            request,
            out,
        } = self;
        let Ok(header) = Header::parse(request.before()) else {
            return;
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
        };
        let reply = match executing.run(&header, request, out, is_slow) {
            Ok(Answer::Nothing) => return,
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
    }
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

/// Puts out the reply to INIT. Returns what both sides can do, of what is `wanted`; None: the kernel asks again, in an older protocol.
/// `granularity`: that of times, in nanoseconds.
///
/// # Errors
/// The kernel's protocol is too old, or its request makes no sense.
pub fn settle(
    body: &[u8],
    (wanted, granularity): (u64, u32),
    out: &mut Vec<u8>,
) -> Result<Option<u64>, StartError> {
    let short = |_| StartError::Protocol("its first request is too short".to_owned());
    let mut body = Body::new(body);
    let (major, minor) = (body.u32().map_err(short)?, body.u32().map_err(short)?);
    if major > MAJOR {
        out.u32(MAJOR);
        out.u32(MINOR);
        return Ok(None);
    }
    if (major, minor) < (MAJOR, OLDEST_MINOR) {
        return Err(StartError::Protocol(format!(
            "it speaks version {major}.{minor}; {MAJOR}.{OLDEST_MINOR} (Linux 5.4) or newer is needed"
        )));
    }
    let read_ahead = body.u32().map_err(short)?;
    let mut theirs = u64::from(body.u32().map_err(short)?);
    if theirs & can::INIT_EXT != 0 {
        theirs |= u64::from(body.u32().map_err(short)?) << 32;
    }
    let both = wanted & theirs;
    let low = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("masked");
    out.u32(MAJOR);
    out.u32(MINOR.min(minor));
    out.u32(read_ahead.max(u32::try_from(MOST_DATA).expect("1 MiB")));
    out.u32(low(both));
    out.u16(BACKGROUND);
    out.u16(BACKGROUND / 4 * 3);
    out.u32(u32::try_from(MOST_DATA).expect("1 MiB"));
    out.u32(granularity);
    out.u16(u16::try_from(MOST_DATA / 4096).expect("256"));
    out.u16(0);
    out.u32(low(both >> 32));
    out.zeros(28);
    Ok(Some(both))
}
