//! The one thread of a loop device in mode `buffered-sync`: blocking reads and writes through the page cache, in arrival order.
//!
//! Input: bios. Output: the same bios, ended, in the list of the queue that they came from. Invariants: the thread holds no lock while it
//! works, and works only on its device's file, so it waits only for the volume below, and never for page memory, which the volume above
//! may have all; it sleeps while there is nothing to do, and ends with the device. Limits: started with the first bio; if the host gives
//! no thread, bios fail.

use super::able::Able;
use super::words::{self, Wish};
use crate::error::Error;
use crate::op::Op;
use crate::options::OpenFlags;
use crate::queue::File;
use crate::threads::{self, contained};
use diorite_block::sync::{Condvar, DEVICE_SHARED, Mutex, thread};
use diorite_block::{Bio, BioError, BioErrorKind, BioOp, Buf, Waker};
use std::collections::VecDeque;
use std::sync::Arc;

/// Where a queue finds the bios that it has lent to the worker.
#[derive(Debug)]
pub(super) struct Lent {
    ended: Mutex<Vec<Bio>>,
    came: Condvar,
    waker: Arc<Waker>,
}

impl Lent {
    pub(super) fn new(level: u8, waker: Arc<Waker>) -> Lent {
        Lent {
            ended: Mutex::at_level(&DEVICE_SHARED, level, Vec::new()),
            came: Condvar::new(),
            waker,
        }
    }

    /// Moves what has ended to `out`; returns how many.
    pub(super) fn take(&self, out: &mut impl Extend<Bio>) -> usize {
        let mut ended = self.ended.lock();
        let count = ended.len();
        out.extend(ended.drain(..));
        count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ended.lock().is_empty()
    }

    /// Blocks until so many have ended and were not taken.
    pub(super) fn wait_for(&self, count: usize) {
        let mut ended = self.ended.lock();
        while ended.len() < count {
            ended = self.came.wait(ended);
        }
    }

    fn put(&self, bio: Bio) {
        self.ended.lock().push(bio);
        self.came.notify_all();
        self.waker.kick();
    }
}

/// The file that the worker works on.
#[derive(Clone, Debug)]
struct Files {
    file: File,
    /// Opened once more, for durable writes: a failure that such a write reports is not only its own, and the next flush, which is by
    /// `file`, has to report it as well.
    durable: File,
    able: Arc<Able>,
}

/// What the worker is given.
#[derive(Debug)]
enum Task {
    Bio(Bio, Arc<Lent>),
    /// Write back what is dirty: the next requests are direct ones (rule L9).
    Clean,
}

#[derive(Debug)]
struct Shared {
    list: Mutex<List>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct List {
    tasks: VecDeque<Task>,
    stop: bool,
}

#[derive(Debug)]
pub(super) struct Worker {
    files: Files,
    shared: Arc<Shared>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Worker {
    /// A worker for the file; its thread is not started yet.
    pub(super) fn new(file: File, able: Arc<Able>) -> Worker {
        // The locks belong to the volume on the device, as those of the device's queues.
        let level = file.inode().volume.level + 1;
        let shared = Shared {
            list: Mutex::at_level(&DEVICE_SHARED, level, List::default()),
            wake: Condvar::new(),
        };
        let durable = File::new(file.pool(), file.inode().clone(), OpenFlags::default());
        Worker {
            files: Files {
                file,
                durable,
                able,
            },
            shared: Arc::new(shared),
            thread: Mutex::at_level(&DEVICE_SHARED, level, None),
        }
    }

    /// Puts bios behind those that came before.
    pub(super) fn push(&self, bios: impl Iterator<Item = Bio>, lent: &Arc<Lent>) {
        if !self.start() {
            for mut bio in bios {
                bio.result = Err(BioError::new(BioErrorKind::Gone));
                lent.put(bio);
            }
            return;
        }
        let mut list = self.shared.list.lock();
        let tasks = bios.map(|bio| Task::Bio(bio, lent.clone()));
        list.tasks.extend(tasks);
        drop(list);
        self.shared.wake.notify_one();
    }

    /// Writes back what is dirty, behind all that came before. Does not wait for it.
    pub(super) fn clean(&self) {
        if self.start() {
            self.shared.list.lock().tasks.push_back(Task::Clean);
            self.shared.wake.notify_one();
        }
    }

    /// Starts the thread, if it does not run. Returns whether it does.
    fn start(&self) -> bool {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let (files, shared) = (self.files.clone(), self.shared.clone());
            let named = thread::Builder::new().name("diorite-loop".to_owned());
            *thread = named.spawn(move || serve(&files, &shared)).ok();
        }
        thread.is_some()
    }

    /// Ends the thread, which has nothing to do any more. Blocks.
    pub(super) fn stop(&self) {
        self.shared.list.lock().stop = true;
        self.shared.wake.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic of a task is contained in the task.
            let _ended = thread.join();
        }
    }
}

fn serve(files: &Files, shared: &Shared) {
    threads::never_wait_for_memory();
    loop {
        let mut list = shared.list.lock();
        let task = loop {
            match list.tasks.pop_front() {
                Some(task) => break task,
                None if list.stop => return,
                None => list = shared.wake.wait(list),
            }
        };
        drop(list);
        match task {
            Task::Bio(mut bio, lent) => {
                let mut result = Ok(());
                let ran = contained(|| {
                    result = run(files, &mut bio);
                    Ok(())
                });
                bio.result = ran.map_err(|e| words::bio_error(&e)).and(result);
                lent.put(bio);
            }
            // What cannot be written back is reported by the next flush.
            Task::Clean => drop(contained(|| files.file.inode().write_back())),
        }
    }
}

/// Does what a bio asks for. Blocks.
fn run(files: &Files, bio: &mut Bio) -> Result<(), BioError> {
    let Files { file, able, .. } = files;
    let wish = able.now().wish(bio)?;
    let done = match wish {
        Wish::Nothing => Ok(()),
        Wish::Ask(Op::Read) => return read(file, bio),
        Wish::Ask(Op::Write) => write(file, bio),
        Wish::Ask(Op::Fallocate(mode)) => file.fallocate(mode, bio.pos, bio.len),
        Wish::Ask(_) => flush(files),
    };
    let durable = done.and_then(|()| match bio.flags.fua && bio.op != BioOp::Flush {
        true => files.durable.sync_data(),
        false => Ok(()),
    });
    durable.map_err(|error| {
        let error = words::bio_error(&error);
        if let (Wish::Ask(asked), BioErrorKind::Unsupported) = (wish, error.kind) {
            able.note_refused(asked);
        }
        error
    })
}

/// Rule L2: what is behind the file's end reads as zeros; it is an error if that is all.
fn read(file: &File, bio: &mut Bio) -> Result<(), BioError> {
    let (mut at, mut got) = (bio.pos, 0);
    for part in bio.buf.parts_mut() {
        let count = file.read_bytes(at, part);
        let count = count.map_err(|error| words::bio_error(&error))?;
        part[count..].fill(0);
        at += part.len() as u64;
        got += count;
    }
    words::read_result(got, bio.len)
}

/// Rule L3: a short write goes on with the rest, which brings its error.
fn write(file: &File, bio: &Bio) -> Result<(), Error> {
    let mut at = bio.pos;
    for part in bio.buf.parts() {
        let mut rest = part;
        while !rest.is_empty() {
            let count = match file.write_bytes(at, rest) {
                Err(Error::NoMemory { .. }) => write_uncached(file, at, rest)?,
                other => other?,
            };
            rest = &rest[count..];
            at += count as u64;
        }
    }
    Ok(())
}

/// Writes without pages of the file, for which there is no memory at once: see [`threads::never_wait_for_memory`].
fn write_uncached(file: &File, at: u64, data: &[u8]) -> Result<usize, Error> {
    let asked = data.len() as u64;
    let mut buf = Buf::try_zeroed(data.len()).ok_or(Error::NoMemory { asked })?;
    buf.copy_in(0, data);
    file.write_buf(at, buf).1
}

/// What a flush has reported, durable writes behind it do not report again.
fn flush(files: &Files) -> Result<(), Error> {
    let flushed = files.file.sync_data();
    if flushed.is_err() {
        let _reported = files.durable.sync_data();
    }
    flushed
}
