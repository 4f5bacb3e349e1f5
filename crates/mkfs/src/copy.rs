//! The data of the files of a new file system.
//!
//! Input: places, [`Contents`]. Output: the data on the device. Invariants: pieces that follow each other on the device leave in one write;
//! the bytes behind a file's end, in its last block, are zeros; the number of threads changes no byte. Limits: memory for a few pieces per
//! thread. Blocks.

use crate::error::Error;
use crate::fill::{Filling, Placed};
use crate::tree::{Contents, NodeId, Tree};
use diorite_block::device::DeviceError;
use diorite_block::{Bio, BioOp, Blocking, Buf};
use diorite_format::{FileType, Superblock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

/// Told how many bytes of data are written; false ends it.
pub type Progress<'a> = &'a (dyn Fn(u64) -> bool + Sync);

/// Bytes of one write, at most.
const MOST: usize = 1 << 20;
/// Files of one write, at most: what waits for one slow source.
const FILES: usize = 256;
/// Threads that read and write.
const THREADS: usize = 4;

/// A part of a file, and where it is in a write.
struct Piece {
    node: NodeId,
    pos: u64,
    len: usize,
    at: usize,
}

/// A write, once its pieces are read.
#[derive(Default)]
struct Job {
    pieces: Vec<Piece>,
    pos: u64,
    len: usize,
}

pub(crate) fn copy(
    blocking: &Blocking,
    sb: &Superblock,
    filling: &Filling,
    tree: &Tree,
    contents: &dyn Contents,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let has_data = |placed: Placed<'_>| {
        let is_file = tree.file_type(placed.id) == FileType::Regular;
        is_file && placed.extents().len() > 0
    };
    if !filling.placed().any(has_data) {
        return Ok(());
    }
    let (sender, receiver) = sync_channel::<Job>(THREADS);
    let receiver = Mutex::new(receiver);
    let (done, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let worker = Worker {
        blocking,
        receiver: &receiver,
        contents,
        done: &done,
        failed: &failed,
        progress,
    };
    std::thread::scope(|scope| {
        let mut workers = Vec::with_capacity(THREADS);
        for _ in 0..THREADS {
            match Builder::new().spawn_scoped(scope, || worker.run()) {
                Ok(started) => workers.push(started),
                // Without one nobody would take a job; with fewer it takes longer.
                Err(error) if workers.is_empty() => {
                    return Err(DeviceError::host(
                        "cannot start a thread that copies files",
                        error,
                    )
                    .into());
                }
                Err(_) => break,
            }
        }
        // After a failure nothing more is begun.
        jobs(sb, filling, tree, |job| {
            !failed.load(Ordering::Relaxed) && sender.send(job).is_ok()
        });
        drop(sender);
        let mut result = Ok(());
        for worker in workers {
            let ended = worker.join().unwrap_or(Err(Error::Panicked));
            result = result.and(ended);
        }
        result
    })
}

/// Makes the writes, in the order of the device. `send` is false when no more are wanted.
fn jobs(sb: &Superblock, filling: &Filling, tree: &Tree, mut send: impl FnMut(Job) -> bool) {
    let bits = sb.geometry().block_bits();
    let mut job = Job::default();
    let is_file = |placed: &Placed<'_>| tree.file_type(placed.id) == FileType::Regular;
    for placed in filling.placed().filter(is_file) {
        let len = tree.file_len(placed.id);
        for extent in placed.extents() {
            let (mut pos, mut at) = (extent.block.get() << bits, extent.start.get() << bits);
            let end = extent.end() << bits;
            while pos < end {
                if at != job.pos + job.len as u64 || job.len == MOST || job.pieces.len() == FILES {
                    let full = std::mem::take(&mut job);
                    if full.len > 0 && !send(full) {
                        return;
                    }
                    job.pos = at;
                }
                let step = (end - pos).min((MOST - job.len) as u64);
                let there = step.min(len.saturating_sub(pos));
                job.pieces.push(Piece {
                    node: placed.id,
                    pos,
                    len: there as usize,
                    at: job.len,
                });
                job.len += step as usize;
                pos += step;
                at += step;
            }
        }
    }
    if job.len > 0 {
        send(job);
    }
}

struct Worker<'w> {
    blocking: &'w Blocking,
    receiver: &'w Mutex<Receiver<Job>>,
    contents: &'w dyn Contents,
    done: &'w AtomicU64,
    /// One of them has failed.
    failed: &'w AtomicBool,
    progress: Progress<'w>,
}

impl Worker<'_> {
    fn run(&self) -> Result<(), Error> {
        let (mut result, mut spare) = (Ok(()), None);
        loop {
            let next = self
                .receiver
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .recv();
            let Ok(job) = next else { return result };
            // What was sent before is taken and dropped, so that nobody waits for room, not even after a panic of the caller's own code.
            if !self.failed.load(Ordering::Relaxed) {
                // What a panic leaves half done is dropped with the rest: the file system has no superblock yet.
                let one = AssertUnwindSafe(|| self.one(&job, &mut spare));
                result = catch_unwind(one).unwrap_or(Err(Error::Panicked));
                self.failed.fetch_or(result.is_err(), Ordering::Relaxed);
            }
        }
    }

    /// `spare` is the memory of the write before: almost all have the same length.
    fn one(&self, job: &Job, spare: &mut Option<Buf>) -> Result<(), Error> {
        let done = self.done.fetch_add(job.len as u64, Ordering::Relaxed);
        if !(self.progress)(done) {
            return Err(Error::Invalid(
                "it was ended before it was complete".to_owned(),
            ));
        }
        let asked = job.len as u64;
        let fits = spare.take().filter(|buf| buf.len() == job.len);
        let buf = fits.map(|mut buf| {
            buf.as_mut_slice().fill(0);
            buf
        });
        let buf = buf.or_else(|| Buf::try_zeroed(job.len));
        let mut buf = buf.ok_or(Error::NoMemory { asked })?;
        let bytes = buf.as_mut_slice();
        for piece in job.pieces.iter().filter(|piece| piece.len > 0) {
            let out = &mut bytes[piece.at..piece.at + piece.len];
            let read = self.contents.read(piece.node, piece.pos, out);
            read.map_err(|error| Error::Source(error.to_string()))?;
        }
        let bio = self.blocking.run(Bio::write(job.pos, buf, 0));
        let failed = |e| Error::of_bio(self.blocking, BioOp::Write, bio.pos, asked, e);
        bio.result.map_err(failed)?;
        *spare = Some(bio.buf);
        Ok(())
    }
}
