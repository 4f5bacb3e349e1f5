//! The child process that measures for `cost`, `holes` and `loop`: instructions under callgrind, memory and reads of opening a volume,
//! memory of random writes.
//!
//! Input: an image, a count, a time. Output: for `open` and `sparse`, one JSON object; for the rest, work that callgrind
//! counts. Invariant: the functions that callgrind measures only submit and reap. Limits: started only by these experiments.

use super::super::args::{Child, ChildOptions};
use super::super::bed;
use super::super::drive::drive;
use super::super::failure::Failure;
use super::super::host;
use super::super::image::{FileTarget, Region};
use super::super::job::{Job, Rw};
use super::super::load::Rng;
use super::super::locks;
use super::super::report::{Print, write_out};
use super::operations_child;
use diorite::{Completion, Error, OpenFlags, OpenOptions, Queue, Request, Volume};
use diorite_block::{
    Bio, BioList, BufPool, Device, DeviceError, DeviceQueue, Geometry, Locator, MemDevice,
    QueueOptions, locator,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const DEPTH: u32 = 64;
const BATCH: usize = 32;
const BS: usize = 4096;

pub(in super::super) fn run(options: &ChildOptions, out: Print) -> Result<(), Failure> {
    match options.what {
        Child::Open => return open(options, out),
        Child::Sparse => return sparse(options, out),
        Child::Check => return super::check::child(options, out),
        Child::LoopDirect | Child::LoopBuffered => {
            return super::loops::memory::child(options, out);
        }
        Child::Append | Child::Fill => return new_space(options, out),
        Child::Create
        | Child::Rename
        | Child::Unlink
        | Child::LookupFew
        | Child::LookupMany
        | Child::SmallFile
        | Child::Fsync => return operations_child::run(options, out),
        Child::Lines => return super::lines::child::run(options, out),
        Child::Engine | Child::Overwrite | Child::Raw => {}
    }
    let size = std::fs::metadata(&options.image)
        .map_err(|e| Failure::host("the image", e))?
        .len();
    let device = MemDevice::try_new(size)?;
    bed::load_image(&options.image, |pos, bytes| {
        device.write_at(pos, bytes);
        Ok(())
    })?;
    let writes = options.what == Child::Overwrite;
    let open = match writes {
        true => OpenOptions::writable(),
        false => OpenOptions::default(),
    };
    let volume = Volume::open_device(Arc::new(device.clone()), &open)?;
    let flags = OpenFlags::default().write(writes);
    let file = volume.open_path(bed::FILE, flags)?;
    let region = Region::longest(&volume, &file)?;
    let blocks = region.len / BS as u64;
    let mut rng = Rng::new(1);
    if options.what == Child::Raw {
        let queue = device.open_queue(QueueOptions::new(DEPTH)?)?;
        device.set_copy(false);
        through_device(&*queue, options.count, || {
            region.device_pos + rng.below(blocks) * BS as u64
        });
    } else {
        let queue = volume.queue(DEPTH)?;
        let file = queue.attach(&file)?;
        device.set_copy(false);
        let make = match writes {
            true => Request::write,
            false => Request::read,
        };
        through_engine(&queue, options.count, |buf, token| {
            let pos = region.file_pos + rng.below(blocks) * BS as u64;
            make(file, pos, buf, token)
        });
    }
    Ok(())
}

const WRITABLE: OpenFlags = OpenFlags::writable();

/// The distance in blocks between two consecutive fills, so that no two of a batch can be merged into one extent.
const FILL_STRIDE: u64 = 4093;

/// Appends blocks to a file, or fills the blocks of a hole, each once. Commits happen only where the journal needs room.
fn new_space(options: &ChildOptions, out: Print) -> Result<(), Failure> {
    let volume = operations_child::volume_of(options)?;
    let file = match volume.open_path(bed::FILE, WRITABLE) {
        Err(Error::NotFound { .. }) => volume.create(bed::FILE, 0o644)?,
        opened => opened?,
    };
    file.truncate(0)?;
    let blocks = options.count;
    if options.what == Child::Fill {
        file.truncate(blocks * BS as u64)?;
    }
    volume.sync()?;
    let queue = volume.queue(DEPTH)?;
    let id = queue.attach(&file)?;
    let before = locks::snapshot();
    through_engine(&queue, options.count, |buf, token| match options.what {
        Child::Append => Request::append(id, buf, token),
        _ => Request::write(id, token * FILL_STRIDE % blocks * BS as u64, buf, token),
    });
    operations_child::print_locks(&locks::since(&before), out)
}

/// Callgrind counts in here.
#[inline(never)]
fn measured_engine_submit(queue: &Queue, batch: &mut VecDeque<Request>) {
    queue.submit(batch);
}

/// Callgrind counts in here.
#[inline(never)]
fn measured_engine_reap(queue: &Queue, out: &mut Vec<Completion>) {
    queue.reap(out, BATCH, None);
}

fn through_engine(
    queue: &Queue,
    count: u64,
    mut make: impl FnMut(diorite_block::Buf, u64) -> Request,
) {
    let pool = BufPool::new(BS, DEPTH as usize);
    let mut free: Vec<_> = (0..DEPTH).filter_map(|_| pool.get()).collect();
    let mut batch = VecDeque::with_capacity(BATCH);
    let mut out = Vec::with_capacity(DEPTH as usize);
    let (mut begun, mut ended) = (0, 0);
    while ended < count {
        while begun < count && free.len() >= BATCH {
            batch.extend(free.drain(..BATCH).map(|buf| {
                begun += 1;
                make(buf, begun)
            }));
            measured_engine_submit(queue, &mut batch);
        }
        measured_engine_reap(queue, &mut out);
        for completion in out.drain(..) {
            assert!(completion.result.is_ok(), "requests of memory succeed");
            ended += 1;
            free.push(completion.buf);
        }
    }
}

/// Callgrind counts in here.
#[inline(never)]
fn measured_raw_submit(queue: &dyn DeviceQueue, batch: &mut BioList) {
    queue.submit(batch);
}

/// Callgrind counts in here.
#[inline(never)]
fn measured_raw_reap(queue: &dyn DeviceQueue, out: &mut BioList) {
    queue.reap(out);
}

fn through_device(queue: &dyn DeviceQueue, count: u64, mut pos: impl FnMut() -> u64) {
    let pool = BufPool::new(BS, DEPTH as usize);
    let mut free: Vec<_> = (0..DEPTH).filter_map(|_| pool.get()).collect();
    let mut batch = BioList::with_capacity(BATCH);
    let mut out = BioList::with_capacity(DEPTH as usize);
    let (mut begun, mut ended) = (0, 0);
    while ended < count {
        while begun < count && free.len() >= BATCH {
            batch.extend(free.drain(..BATCH).map(|buf| {
                begun += 1;
                Bio::read(pos(), buf, begun)
            }));
            measured_raw_submit(queue, &mut batch);
        }
        measured_raw_reap(queue, &mut out);
        for bio in out.drain(..) {
            assert!(bio.result.is_ok(), "a read of memory succeeds");
            ended += 1;
            free.push(bio.buf);
        }
    }
}

/// Opens a volume, stats one file, and prints the memory and the reads that this took.
fn open(options: &ChildOptions, out: Print) -> Result<(), Failure> {
    let open = diorite_block::OpenOptions::default().read_only(true);
    let below = locator::open(&Locator::file(&options.image), &open)?;
    let device = Arc::new(Counting {
        below,
        read: Arc::new(AtomicU64::new(0)),
    });
    let volume = Volume::open_device(device.clone(), &OpenOptions::default())?;
    let file = volume.open_path(bed::FILE, OpenFlags::default())?;
    let object = serde_json::json!({
        "resident": host::own_status("VmHWM:"),
        "read": device.read.load(Ordering::Relaxed),
        "size": file.size(),
    });
    write_out(out, format_args!("{object}\n"))
}

/// Writes zeros to random places of the file for a time, and prints the peak memory.
fn sparse(options: &ChildOptions, out: Print) -> Result<(), Failure> {
    let below = locator::open(
        &Locator::file(&options.image),
        &diorite_block::OpenOptions::default(),
    )?;
    let volume = Volume::open_device(below, &OpenOptions::writable())?;
    let flags = OpenFlags::writable();
    let file = volume.open_path(bed::FILE, flags)?;
    let target = FileTarget {
        len: file.size(),
        base: 0,
        volume: volume.clone(),
        file,
    };
    let job = Job {
        zeros: true,
        runtime: options.runtime,
        ..Job::new(Rw::Randwrite, 4096, DEPTH)
    };
    let run = drive(&target, &job)?;
    drop(target);
    volume.close()?;
    let object = serde_json::json!({
        "resident": host::own_status("VmHWM:"),
        "requests": run.requests,
    });
    write_out(out, format_args!("{object}\n"))
}

/// A device that counts the bytes read from it.
struct Counting {
    below: Arc<dyn Device>,
    read: Arc<AtomicU64>,
}

impl Device for Counting {
    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.below)
    }

    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        Ok(Box::new(CountingQueue {
            below: self.below.open_queue(options)?,
            read: self.read.clone(),
        }))
    }
}

struct CountingQueue {
    below: Box<dyn DeviceQueue>,
    read: Arc<AtomicU64>,
}

impl DeviceQueue for CountingQueue {
    diorite_block::forward_queue! { below => below, submit, wait, in_flight }

    fn reap(&self, out: &mut BioList) -> usize {
        let from = out.len();
        let count = self.below.reap(out);
        let bytes: u64 = out.range(from..).map(|b| b.buf.len() as u64).sum();
        self.read.fetch_add(bytes, Ordering::Relaxed);
        count
    }
}
