//! The child process that `lines` traces: four threads take turns at requests, so that the trace says whose each access is.
//!
//! Input: a load, an image. Output: on standard output one line with the addresses that the parent needs ([`Layout`]); work that lackey
//! traces. Invariants: a turn begins with a store to the marker of its thread, and all other threads of the load wait meanwhile; nothing
//! is measured before the parent has answered. Limits: started only by this experiment.

use super::super::super::args::{ChildOptions, LinesLoad};
use super::super::super::failure::Failure;
use super::super::super::load::Rng;
use super::super::super::report::{Print, write_out};
use diorite::{Completion, File, FileId, OpenOptions, Queue, Request, Volume};
use diorite_block::sync::Parts;
use diorite_block::{Buf, BufPool, MemDevice};
use rustix::fs::{SeekFrom, seek};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::BufRead;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Threads of the load.
pub(super) const THREADS: usize = 4;

/// Time for other threads before the measured turns. Too short a time makes the counts larger, not smaller.
const SETTLE: Duration = Duration::from_millis(500);

const STACK: usize = 512 << 10;
const DEPTH: u32 = 64;
const BS: u64 = 4096;
/// Blocks of a file that is read or overwritten.
const BLOCKS: u64 = 128;
/// The distance in blocks between two consecutive fills of a thread, so that no two of a batch can be merged into one extent.
const FILL_STRIDE: u64 = 4093;

/// A range of addresses with the name of what lies in it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) from: u64,
    pub(super) len: u64,
}

impl Part {
    fn of<T>(name: impl Into<String>, value: &T) -> Part {
        Part {
            name: name.into(),
            from: std::ptr::from_ref(value).addr() as u64,
            len: size_of_val(value) as u64,
        }
    }
}

/// What the parent has to know of the child's memory.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Layout {
    /// A store here begins the measured time, and ends it.
    pub(super) begin: u64,
    pub(super) end: u64,
    /// A store here begins a turn of that thread.
    pub(super) turns: [u64; THREADS],
    /// An address on the stack of each thread.
    pub(super) stacks: Vec<u64>,
    /// The load's own: markers and the lock by which the threads take turns.
    pub(super) own: Vec<Part>,
    pub(super) parts: Vec<Part>,
    /// The memory allocator's code is around these addresses.
    pub(super) allocator: Vec<u64>,
}

#[derive(Default)]
#[repr(align(128))]
struct Marker(AtomicU64);

impl Marker {
    fn set(&self) {
        self.0.store(1, Ordering::SeqCst);
    }

    fn at(&self) -> u64 {
        self.0.as_ptr().addr() as u64
    }
}

#[derive(Default)]
#[repr(align(128))]
struct Baton {
    next: Mutex<u64>,
    passed: Condvar,
}

/// What the threads share besides the volume.
#[derive(Default)]
#[repr(align(128))]
struct Ring {
    begin: Marker,
    end: Marker,
    turns: [Marker; THREADS],
    baton: Baton,
}

impl Ring {
    /// Calls `turn` in each turn of the thread: in so many turns to warm up, and in as many measured ones. `measured` is called before
    /// the first of these.
    fn run(&self, thread: usize, turns: u64, measured: impl Fn(), mut turn: impl FnMut()) {
        let threads = THREADS as u64;
        let (first, last) = (turns * threads, 2 * turns * threads - 1);
        loop {
            let mut next = self
                .baton
                .next
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            while *next <= last && *next % threads != thread as u64 {
                let waited = self.baton.passed.wait(next);
                next = waited.unwrap_or_else(PoisonError::into_inner);
            }
            let now = *next;
            drop(next);
            if now > last {
                return;
            }
            if now == first {
                measured();
                self.begin.set();
            }
            self.turns[thread].set();
            turn();
            if now == last {
                self.end.set();
            }
            *self
                .baton
                .next
                .lock()
                .unwrap_or_else(PoisonError::into_inner) += 1;
            self.baton.passed.notify_all();
        }
    }
}

pub(in super::super::super) fn run(options: &ChildOptions, out: Print) -> Result<(), Failure> {
    let load = options
        .load
        .ok_or_else(|| Failure::usage("--load is missing"))?;
    let known = match load {
        LinesLoad::KnownShared => Some(1),
        LinesLoad::KnownOwn => Some(THREADS),
        _ => None,
    };
    if let Some(counters) = known {
        let counters: Vec<Marker> = (0..counters).map(|_| Marker::default()).collect();
        let parts = counters.iter().map(|c| Part::of("the counter", c));
        let counters = &counters;
        return together(options, out, parts.collect(), |thread| {
            let counter = &counters[thread % counters.len()].0;
            move || {
                for _ in 0..options.batch {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    let bed = Bed::new(options)?;
    let parts = bed.parts();
    if matches!(load, LinesLoad::Read | LinesLoad::Overwrite) {
        bed.device.set_copy(false);
    }
    let bed = &bed;
    together(options, out, parts, |thread| {
        let mut lane = Lane::new(bed, thread, (load, options.batch));
        move || lane.turn()
    })
}

/// Runs the load in threads that take turns. `lane` is called in each of them, and gives what it does in a turn.
fn together<T: FnMut()>(
    options: &ChildOptions,
    out: Print,
    parts: Vec<Part>,
    lane: impl Fn(usize) -> T + Sync,
) -> Result<(), Failure> {
    let ring = Ring::default();
    let stacks = Mutex::new(Vec::new());
    let ready = Barrier::new(THREADS);
    let parts = Mutex::new(parts);
    let measured = || {
        let layout = Layout {
            begin: ring.begin.at(),
            end: ring.end.at(),
            turns: std::array::from_fn(|thread| ring.turns[thread].at()),
            stacks: std::mem::take(&mut stacks.lock().unwrap_or_else(PoisonError::into_inner)),
            own: vec![Part::of("the load's own", &ring)],
            parts: std::mem::take(&mut parts.lock().unwrap_or_else(PoisonError::into_inner)),
            allocator: allocator(),
        };
        // What the volume's own threads have still to do for opening it, they do now.
        std::thread::sleep(SETTLE);
        let text = serde_json::to_string(&layout).unwrap_or_default();
        let said = write_out(out, format_args!("{text}\n"));
        let mut answer = String::new();
        let heard = std::io::stdin().lock().read_line(&mut answer);
        assert!(said.is_ok() && heard.is_ok(), "the parent listens");
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (lane, stacks, ready, ring) = (&lane, &stacks, &ready, &ring);
            let measured = &measured;
            let body = move || {
                let here = 0u64;
                let mut turn = lane(thread);
                let address = std::ptr::from_ref(&here).addr() as u64;
                let mut all = stacks.lock().unwrap_or_else(PoisonError::into_inner);
                all.push(address);
                drop(all);
                ready.wait();
                ring.run(thread, options.count, measured, &mut turn);
            };
            std::thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, body)
                .map_err(|e| Failure::host("cannot start a thread", e))?;
        }
        Ok(())
    })
}

/// Addresses of functions of the C library's allocator, which lie together.
fn allocator() -> Vec<u64> {
    let functions = [
        libc::malloc as *const (),
        libc::calloc as *const (),
        libc::realloc as *const (),
        libc::free as *const (),
        libc::posix_memalign as *const (),
    ];
    functions.iter().map(|f| f.addr() as u64).collect()
}

/// The image in memory. Holes are not looked at, as each byte that is would be in the trace.
fn load(image: &Path) -> std::io::Result<MemDevice> {
    let file = std::fs::File::open(image)?;
    let size = file.metadata()?.len();
    let device = MemDevice::new(size);
    let mut bytes = vec![0; 64 << 10];
    let mut end = 0;
    while let Ok(from) = seek(&file, SeekFrom::Data(end)) {
        end = seek(&file, SeekFrom::Hole(from))?;
        for at in (from..end).step_by(bytes.len()) {
            let len = bytes.len().min((end - at) as usize);
            file.read_exact_at(&mut bytes[..len], at)?;
            device.write_at(at, &bytes[..len]);
        }
    }
    Ok(device)
}

/// A volume in memory with the files of the load.
struct Bed {
    device: MemDevice,
    volume: Volume,
    files: Vec<File>,
}

impl Bed {
    fn new(options: &ChildOptions) -> Result<Bed, Failure> {
        let device = load(&options.image).map_err(|e| Failure::host("the image", e))?;
        let open = OpenOptions::writable().commit_interval(Duration::from_secs(3600));
        let volume = Volume::open_device(Arc::new(device.clone()), &open)?;
        let mut files = Vec::new();
        for number in 0..options.files {
            let file = volume.create(&format!("/lines-{number}"), 0o644)?;
            match options.load {
                Some(LinesLoad::Fill) => file.truncate(blocks(options) * BS)?,
                Some(LinesLoad::Append) => {}
                _ => file
                    .append_buf(Buf::zeroed((BLOCKS * BS) as usize))
                    .1
                    .map(drop)?,
            }
            files.push(file);
        }
        volume.sync()?;
        Ok(Bed {
            device,
            volume,
            files,
        })
    }

    /// The parts of volume and device that have names.
    fn parts(&self) -> Vec<Part> {
        let files: Vec<&File> = self.files.iter().collect();
        let mut parts = Parts::new();
        self.volume.parts_in_memory(&files, &mut parts);
        self.device.parts_in_memory(&mut parts);
        let part = |(name, range): (String, std::ops::Range<usize>)| Part {
            name,
            from: range.start as u64,
            len: range.len() as u64,
        };
        parts.into_vec().into_iter().map(part).collect()
    }
}

/// One thread of the load.
struct Lane {
    queue: Queue,
    file: FileId,
    load: LinesLoad,
    batch: usize,
    rng: Rng,
    /// Requests that it has begun, and where its own part of the file is, in blocks.
    begun: u64,
    from: u64,
    blocks: u64,
    free: Vec<Buf>,
    requests: VecDeque<Request>,
    done: Vec<Completion>,
}

impl Lane {
    fn new(bed: &Bed, thread: usize, (load, batch): (LinesLoad, usize)) -> Lane {
        let file = &bed.files[thread % bed.files.len()];
        let queue = bed.volume.queue(DEPTH).expect("the volume is open");
        let id = queue.attach(file).expect("the file is plain");
        let pool = BufPool::new(BS as usize, DEPTH as usize);
        let blocks = file.size() / BS / THREADS as u64;
        Lane {
            file: id,
            load,
            batch,
            rng: Rng::new(thread as u64 + 1),
            begun: 0,
            from: blocks * thread as u64,
            blocks,
            free: (0..DEPTH).filter_map(|_| pool.get()).collect(),
            requests: VecDeque::with_capacity(batch),
            done: Vec::with_capacity(DEPTH as usize),
            queue,
        }
    }

    fn request(&mut self, buf: Buf) -> Request {
        self.begun += 1;
        let token = self.begun;
        let at = self.rng.below(BLOCKS) * BS;
        match self.load {
            LinesLoad::Read => Request::read(self.file, at, buf, token),
            LinesLoad::Append => Request::append(self.file, buf, token),
            LinesLoad::Fill => {
                let block = self.from + token * FILL_STRIDE % self.blocks;
                Request::write(self.file, block * BS, buf, token)
            }
            _ => Request::write(self.file, at, buf, token),
        }
    }

    fn turn(&mut self) {
        for _ in 0..self.batch {
            let buf = self.free.pop().expect("a batch is smaller than the depth");
            let request = self.request(buf);
            self.requests.push_back(request);
        }
        let mut left = self.queue.submit(&mut self.requests);
        while left > 0 {
            left -= self.queue.reap(&mut self.done, left, None);
        }
        for completion in self.done.drain(..) {
            assert!(completion.result.is_ok(), "requests of memory succeed");
            self.free.push(completion.buf);
        }
    }
}

/// Blocks that a file to be filled has: each is filled once.
fn blocks(options: &ChildOptions) -> u64 {
    let mine = 2 * options.count * options.batch as u64 + 1;
    (mine * THREADS as u64).next_multiple_of(1024)
}
