//! A regular file or a block device of the host: direct, asynchronous, with the best I/O engine that this process may use.
//!
//! Input: [`FileOptions`]. Output: a [`FileDevice`] and its queues: io_uring, else Linux AIO, else a thread pool. Invariants:
//! an unavailable engine is an error only if it was requested by name; every fallback is a line in the report. Limits: the size
//! follows the file only on request ([`Device::refresh`]); a forked child must not use the parent's queues.

mod aio;
mod core;
pub(crate) mod host;
mod open;
mod pool;
mod round;
mod slots;
mod stored;
mod target;
mod threads;
mod uring;

use crate::bio::Bio;
use crate::device::{
    AtomicWrites, Device, DeviceError, DeviceErrorKind, DeviceQueue, DeviceReport, Geometry,
    NotPolled, PolledWay, QueueOptions, Run,
};
use crate::partition::PartitionTable;
use crate::sync::{DEVICE_SHARED, Mutex};
use pool::Pool;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use target::Target;

/// The ways to do asynchronous I/O, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IoEngine {
    /// io_uring, with registered files and buffers.
    Uring,
    /// Linux AIO (`io_submit`), for direct I/O only.
    Aio,
    /// Blocking calls on a pool of threads.
    Threads,
}

impl IoEngine {
    /// All of them, in the order in which they are tried.
    pub const ALL: [IoEngine; 3] = [IoEngine::Uring, IoEngine::Aio, IoEngine::Threads];

    /// The word that names it on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            IoEngine::Uring => "io_uring",
            IoEngine::Aio => "aio",
            IoEngine::Threads => "threads",
        }
    }
}

impl fmt::Display for IoEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for IoEngine {
    type Err = DeviceError;

    fn from_str(s: &str) -> Result<IoEngine, DeviceError> {
        match s {
            "io_uring" | "uring" => Ok(IoEngine::Uring),
            "aio" | "libaio" => Ok(IoEngine::Aio),
            "threads" => Ok(IoEngine::Threads),
            _ => Err(DeviceError::new(
                DeviceErrorKind::Locator,
                format!("no I/O engine is called {s:?}: io_uring, aio, threads"),
            )),
        }
    }
}

/// What to open, and how.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FileOptions {
    /// The file or block device.
    pub path: PathBuf,
    /// Where in the file the device begins.
    pub offset: u64,
    /// The device's length; by default to the end of the file.
    pub size: Option<u64>,
    /// The partition of an MBR or GPT, counted from 1, inside that range.
    pub part: Option<u32>,
    /// A logical block larger than the host's. A smaller one needs a [`crate::WindowDevice`]; without it, the host's is used.
    pub sector: Option<u32>,
    /// Refuse writes.
    pub read_only: bool,
    /// Do not use O_DIRECT, even if it works.
    pub buffered: bool,
    /// Open for writing although another process has it open.
    pub force: bool,
    /// It is read and lies behind an image: as long as it is open nobody else is let in for writing. Who was there before is told of in
    /// the notes, as always.
    pub keep: bool,
    /// Only this I/O engine.
    pub engine: Option<IoEngine>,
    /// A whole regular file may be written past its end, up to this size. A read there before the write is an error.
    pub grow_to: Option<u64>,
}

crate::setters! {
    FileOptions {
        path: PathBuf,
        offset: u64,
        read_only: bool,
        buffered: bool,
        force: bool,
        keep: bool,
    } option {
        size: u64,
        part: u32,
        sector: u32,
        engine: IoEngine,
        grow_to: u64,
    }
}

impl FileOptions {
    /// The whole of a file or block device, for reading and writing.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> FileOptions {
        FileOptions {
            path: path.into(),
            ..FileOptions::default()
        }
    }
}

/// A regular file or a block device of the host.
///
/// ```
/// use diorite_block::{Blocking, FileDevice, FileOptions};
/// use std::sync::Arc;
///
/// # fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("disk.img");
/// std::fs::File::create(&path)?.set_len(1 << 20)?;
/// let device = FileDevice::open(&FileOptions::new(&path))?;
/// let disk = Blocking::new(Arc::new(device));
/// disk.write_bytes(512, &[7; 512])?;
/// disk.flush()?;
/// assert_eq!(disk.read_bytes(1000, 2).expect("it was written"), [7; 2]);
/// # Ok(())
/// # }
/// ```
///
/// Send and Sync. Its locks on the file are released when it and its queues are dropped. After a fork the child must not use
/// it.
pub struct FileDevice {
    target: Arc<Target>,
    pool: Arc<Pool>,
    /// The engine in use, and whether to try the next one if it fails. None: no queue was needed until now, and rings cost more than
    /// a command that reads a few blocks.
    engine: Mutex<Option<IoEngine>>,
    forced: bool,
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDevice")
            .field("name", &self.target.name)
            .field("engine", &self.engine.lock())
            .finish_non_exhaustive()
    }
}

impl FileDevice {
    /// Opens a file or block device.
    ///
    /// # Errors
    /// It does not exist, is not permitted, is held by another process, or the requested I/O engine is not available.
    pub fn open(options: &FileOptions) -> Result<FileDevice, DeviceError> {
        FileDevice::open_named(options, options.path.display().to_string())
    }

    /// As [`FileDevice::open`], with the locator to show in messages.
    ///
    /// # Errors
    /// As [`FileDevice::open`].
    pub fn open_named(options: &FileOptions, name: String) -> Result<FileDevice, DeviceError> {
        let target = open::open(options, name)?;
        let asked = options.engine;
        let engine = asked.map(|engine| asked_for(&target, engine)).transpose()?;
        Ok(FileDevice {
            target: Arc::new(target),
            pool: Arc::new(Pool::new()),
            engine: Mutex::new(&DEVICE_SHARED, engine),
            forced: asked.is_some(),
        })
    }

    /// The partition table in the range of the options; none if there is no valid one. The file is only read, even if another
    /// process holds it.
    ///
    /// # Errors
    /// As [`FileDevice::open`].
    pub fn partitions(options: &FileOptions) -> Result<Option<PartitionTable>, DeviceError> {
        open::partitions(options)
    }

    /// The I/O engine for queues that are opened now. The first call looks for one that works.
    pub fn engine(&self) -> IoEngine {
        let known = *self.engine.lock();
        known.unwrap_or_else(|| {
            let first = first_that_works(&self.target);
            *self.engine.lock().get_or_insert(first)
        })
    }

    /// Reads past the end of the backing file, which has shrunk (rule L2): zeros and an error.
    #[must_use]
    pub fn reads_beyond_end(&self) -> u64 {
        self.target.beyond_end.load(Ordering::Relaxed)
    }

    fn queue(
        &self,
        engine: IoEngine,
        options: &QueueOptions,
    ) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        let target = self.target.clone();
        let failed = |e| DeviceError::host(format!("cannot open a queue of {engine}"), e);
        if let Some(stats) = &options.polled {
            stats.set_way(PolledWay::Looks(NotPolled::Engine));
        }
        Ok(match engine {
            IoEngine::Uring => uring::open(target, options).map_err(failed)?,
            IoEngine::Aio => Box::new(aio::AioQueue::open(target, self.pool.clone(), options)?),
            IoEngine::Threads => Box::new(threads::ThreadsQueue::new(
                target,
                self.pool.clone(),
                options,
            )),
        })
    }

    /// A queue for a moment in which the host has no descriptor for a better one: it has some again soon, so the engine stays as it is.
    fn makeshift(
        &self,
        error: DeviceError,
        options: &QueueOptions,
    ) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        if !is_short_of_descriptors(&error) && !is_stock_empty(&error) {
            return Err(error);
        }
        options.waker.note_makeshift();
        self.queue(IoEngine::Threads, options)
    }
}

/// Makes rings ahead for all files that this process opens, up to `count`, and none later: for a process that is about to give up the right
/// to make them. They take no operations but those of queues. A queue that finds none left uses another engine. Returns how many were made.
#[must_use]
pub fn stock_rings(count: usize) -> usize {
    uring::stock::fill(count)
}

/// How often, [`A_MOMENT`] each, a ring waits for lockable memory where no other engine may be used instead.
const MOST_PATIENCE: u32 = 200;
const A_MOMENT: Duration = Duration::from_millis(5);

/// No ring is left of those that were made ahead: another engine does as well, for as long as the queue is wanted.
fn is_stock_empty(error: &DeviceError) -> bool {
    error.source.as_ref().is_some_and(uring::stock::is_empty)
}

fn is_short_of_descriptors(error: &DeviceError) -> bool {
    let code = error.source.as_ref().and_then(std::io::Error::raw_os_error);
    matches!(code, Some(libc::EMFILE | libc::ENFILE))
}

/// Repeats `make` while lockable memory is missing: rings use it, and the kernel returns it some time after a ring was closed. Blocks.
fn patiently<T>(
    tries: u32,
    mut make: impl FnMut() -> Result<T, DeviceError>,
) -> Result<T, DeviceError> {
    let no_memory = |e: &DeviceError| {
        let source = e.source.as_ref();
        source.is_some_and(|s| s.raw_os_error() == Some(libc::ENOMEM))
    };
    for _ in 0..tries {
        match make() {
            Err(e) if no_memory(&e) => std::thread::sleep(A_MOMENT),
            other => return other,
        }
    }
    make()
}

/// The engine that was asked for, if it works.
fn asked_for(target: &Target, engine: IoEngine) -> Result<IoEngine, DeviceError> {
    let probed = patiently(MOST_PATIENCE, || probe(target, engine));
    probed.map(|()| engine).map_err(|e| {
        let what = format!("{engine} was asked for and is not available: {}", e.what);
        DeviceError { what, ..e }
    })
}

fn first_that_works(target: &Target) -> IoEngine {
    for engine in [IoEngine::Uring, IoEngine::Aio] {
        match probe(target, engine) {
            Ok(()) => return engine,
            Err(e) => target.note(format!("not {engine}: {}", e.what)),
        }
    }
    IoEngine::Threads
}

fn probe(target: &Target, engine: IoEngine) -> Result<(), DeviceError> {
    let unsupported = |e: std::io::Error| DeviceError {
        what: e.to_string(),
        kind: DeviceErrorKind::Unsupported,
        source: Some(e),
    };
    match engine {
        IoEngine::Uring => uring::ring::probe().map_err(unsupported),
        IoEngine::Aio if !target.direct => Err(DeviceError::new(
            DeviceErrorKind::Unsupported,
            "it is asynchronous for direct I/O only, and this file is buffered",
        )),
        IoEngine::Aio => aio::probe().map_err(unsupported),
        IoEngine::Threads => Ok(()),
    }
}

impl Device for FileDevice {
    fn below(&self) -> Option<&dyn Device> {
        None
    }

    fn geometry(&self) -> Geometry {
        let geometry = self.target.current();
        Geometry {
            // With threads, the host flushes after each FUA write and reports an error of earlier writes in it, only once.
            fua: geometry.fua && self.engine() != IoEngine::Threads,
            ..geometry
        }
    }

    fn atomic_writes(&self) -> Option<AtomicWrites> {
        self.target.atomic_writes()
    }

    fn name(&self) -> String {
        self.target.name.clone()
    }

    fn report(&self) -> DeviceReport {
        self.engine();
        self.report_so_far()
    }

    fn report_so_far(&self) -> DeviceReport {
        let engine = self.engine.lock().map(IoEngine::name);
        DeviceReport {
            engine: engine.unwrap_or_default().to_owned(),
            mode: String::new(),
            direct: self.target.direct,
            block_device: self.target.block_device,
            fallbacks: self.target.notes.lock().clone(),
            registered: self.target.registered.load(Ordering::Relaxed),
            plain: self.target.plain.load(Ordering::Relaxed),
            rewrites: 0,
            below: None,
        }
    }

    fn stored(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, DeviceError> {
        let all = self.all_data(range.clone(), most)?;
        if self.target.block_device {
            return Ok(all);
        }
        stored::stored(&self.target, range, most)
    }

    fn refresh(&self) -> Result<(), DeviceError> {
        let what = || format!("cannot find out the size of {}", self.target.name);
        let measured = self.target.measure();
        measured.map_err(|e| DeviceError::host(what(), e.into()))
    }

    fn run_here(&self, bio: Bio) -> Result<Bio, Bio> {
        if bio.flags.fua {
            return Err(bio);
        }
        Ok(core::run_here(&self.target, bio))
    }

    fn is_memory(&self) -> bool {
        self.target.memory
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        if !(1..=32_768).contains(&options.depth) {
            return Err(DeviceError::new(
                DeviceErrorKind::Unsupported,
                format!("a queue's depth is 1 to 32768, not {}", options.depth),
            ));
        }
        if !options.waker.has_descriptor() {
            return self.queue(IoEngine::Threads, &options);
        }
        if self.forced {
            let made = patiently(MOST_PATIENCE, || self.queue(self.engine(), &options));
            return made.or_else(|error| self.makeshift(error, &options));
        }
        loop {
            let engine = self.engine();
            match self.queue(engine, &options) {
                Err(e) if is_short_of_descriptors(&e) => return self.makeshift(e, &options),
                Err(e) if engine < IoEngine::Threads => {
                    let next = IoEngine::ALL
                        .into_iter()
                        .find(|i| *i > engine && probe(&self.target, *i).is_ok());
                    let next = next.unwrap_or(IoEngine::Threads);
                    self.target.note(format!("not {engine}: {}", e.what));
                    // Rings come back, so the engine stays. But threads change what FUA means, so then all queues have to use them.
                    if is_stock_empty(&e) && !(next == IoEngine::Threads && self.geometry().fua) {
                        return self.queue(next, &options);
                    }
                    *self.engine.lock() = Some(next);
                }
                other => return other,
            }
        }
    }
}

#[cfg(test)]
mod tests;
