//! Writes a new file system onto its device.
//!
//! Input: contents by position, and ranges that must read as zeros. Output: a device with them. Invariants: pieces that follow each other
//! leave in one request; nothing is durable before [`Out::flush`]; the memory is used again and again. Whatever is larger than one batch
//! is written by two threads, the caller's and one of its own, unless the device is memory. Limits: blocks; what is put between two
//! flushes must not overlap.

use crate::error::Error;
use diorite_block::device::Stored;
use diorite_block::{Bio, BioList, BioOp, Blocking, Buf, Device, Shared, Split};
use diorite_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::thread::{Builder, JoinHandle};

/// Bytes of a batch: so few that the processor's cache still has them when they leave.
const MEMORY: usize = 256 << 10;
/// Requests of a batch, at most, beside those of shared memory.
const REQUESTS: usize = 64;
/// Bytes of shared memory in one request, at most.
const MOST_SHARED: usize = 1 << 20;
/// Runs of a device's map that are asked for at once.
const RUNS: usize = 256;

pub(crate) fn no_memory(len: usize) -> Error {
    Error::NoMemory { asked: len as u64 }
}

/// What is collected to leave together.
struct Batch {
    /// Bytes, one piece after the other.
    memory: Buf,
    used: usize,
    /// Where each piece goes, and how long it is.
    pieces: Vec<(u64, usize)>,
    /// Requests of other kinds.
    bios: BioList,
}

impl Batch {
    fn new() -> Result<Batch, Error> {
        Ok(Batch {
            memory: Buf::try_zeroed(MEMORY).ok_or_else(|| no_memory(MEMORY))?,
            used: 0,
            pieces: Vec::new(),
            bios: BioList::new(),
        })
    }

    fn has_room(&self, len: usize) -> bool {
        let requests = self.pieces.len().max(self.bios.len());
        self.used + len <= MEMORY && requests < REQUESTS
    }

    /// Writes it, and empties it.
    fn run(&mut self, blocking: &Blocking) -> Result<(), Error> {
        let mut bios = std::mem::take(&mut self.bios);
        let mut memory = Split::new(std::mem::replace(&mut self.memory, Buf::empty()));
        for (pos, len) in self.pieces.drain(..) {
            bios.push_back(Bio::write(pos, memory.take(len), 0));
        }
        self.used = 0;
        let mut all = Ok(());
        for bio in blocking.run_all(bios) {
            let failed = |e| Error::of_bio(blocking, BioOp::Write, bio.pos, bio.len, e);
            all = all.and(bio.result.map_err(failed));
            if !bio.buf.is_lent() {
                memory.absorb(bio.buf);
            }
        }
        self.memory = memory.join();
        all
    }
}

/// A thread that writes batches. Nothing is under way any more when it is dropped.
struct Writer {
    todo: Option<Sender<Batch>>,
    done: Receiver<(Batch, Result<(), Error>)>,
    thread: Option<JoinHandle<()>>,
    is_busy: bool,
}

impl Writer {
    /// None: the host has no thread, and the caller writes alone.
    fn start(device: &Arc<dyn Device>) -> Option<Writer> {
        let blocking = Blocking::new(device.clone());
        let (todo, batches) = channel::<Batch>();
        let (tell, done) = channel();
        let work = move || {
            for mut batch in batches {
                let result = batch.run(&blocking);
                if tell.send((batch, result)).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("mkfs-write".to_owned()).spawn(work);
        Some(Writer {
            todo: Some(todo),
            done,
            thread: Some(thread.ok()?),
            is_busy: false,
        })
    }

    /// The batch that it was given, if it has been written.
    fn written(&mut self) -> Option<(Batch, Result<(), Error>)> {
        let ended = self.is_busy.then(|| self.done.try_recv().ok()).flatten();
        self.is_busy &= ended.is_none();
        ended
    }

    /// Has it write a batch. It has nothing else to do.
    fn give(&mut self, batch: Batch) -> Result<(), SendError<Batch>> {
        self.is_busy = true;
        match &self.todo {
            Some(todo) => todo.send(batch),
            None => Err(SendError(batch)),
        }
    }

    fn stop(&mut self) -> std::thread::Result<()> {
        self.todo = None;
        self.thread.take().map_or(Ok(()), JoinHandle::join)
    }

    /// Waits for the end of what it was given.
    fn end(mut self) -> Result<(), Error> {
        self.stop()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.written().map_or(Ok(()), |(_, result)| result)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Its panic has been reported by itself, and this is the way out of another error.
        let _ = self.stop();
    }
}

/// Collects what is written: see the module.
pub struct Out<'b> {
    blocking: &'b Blocking,
    batch: Option<Batch>,
    /// The other batch, while nobody writes it.
    spare: Option<Batch>,
    writer: Option<Writer>,
    /// What is written where the device cannot make zeros by itself.
    zeros: Option<Shared>,
    written: u64,
}

impl<'b> Out<'b> {
    /// Nothing is collected yet, and no thread runs.
    #[must_use]
    pub fn new(blocking: &'b Blocking) -> Out<'b> {
        Out {
            blocking,
            batch: None,
            spare: None,
            writer: None,
            zeros: None,
            written: 0,
        }
    }

    /// Bytes given to [`Out::put`].
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes `bytes` at `pos`: whole logical blocks of the device.
    pub fn put(&mut self, pos: u64, bytes: &[u8]) -> Result<(), Error> {
        for (part, pos) in bytes.chunks(MEMORY).zip((pos..).step_by(MEMORY)) {
            self.put_with(pos, part.len(), |to| {
                to.copy_from_slice(part);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// As [`Out::put`], of a part of memory that is written several times: it is not copied.
    pub(crate) fn put_shared(
        &mut self,
        mut pos: u64,
        memory: &Shared,
        range: Range<usize>,
    ) -> Result<(), Error> {
        self.written += range.len() as u64;
        let (mut start, end) = (range.start, range.end);
        while start < end {
            let len = (end - start).min(MOST_SHARED);
            self.add(Bio::write(pos, memory.lend(start..start + len), 0))?;
            (start, pos) = (start + len, pos + len as u64);
        }
        Ok(())
    }

    /// Writes at `pos` what `fill` puts into `len` bytes, at most [`MEMORY`]: whole logical blocks of the device. They hold something else
    /// before.
    pub(crate) fn put_with(
        &mut self,
        pos: u64,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let batch = self.room(len)?;
        fill(&mut batch.memory.as_mut_slice()[batch.used..batch.used + len])?;
        match batch.pieces.last_mut() {
            Some((start, before)) if *start + *before as u64 == pos => *before += len,
            _ => batch.pieces.push((pos, len)),
        }
        batch.used += len;
        self.written += len as u64;
        Ok(())
    }

    /// The batch, with room for so many bytes more and a request.
    fn room(&mut self, len: usize) -> Result<&mut Batch, Error> {
        if let Some(full) = self.batch.take_if(|batch| !batch.has_room(len)) {
            self.hand_over(full)?;
        }
        let batch = match self.batch.take() {
            Some(batch) => batch,
            None => Batch::new()?,
        };
        Ok(self.batch.insert(batch))
    }

    /// Has a full batch written: by the other thread if that has nothing to do, or here.
    fn hand_over(&mut self, mut full: Batch) -> Result<(), Error> {
        // Where the host gives no thread, the spare batch stays, and none is asked for again. Memory gets none: its file takes one
        // write at a time.
        let is_memory = self.blocking.device().is_memory();
        if self.writer.is_none() && self.spare.is_none() && !is_memory {
            self.writer = Writer::start(self.blocking.device());
            self.spare = Some(Batch::new()?);
        }
        if let Some(writer) = &mut self.writer {
            if let Some((batch, result)) = writer.written() {
                self.spare = Some(batch);
                result?;
            }
            if let Some(spare) = self.spare.take() {
                match writer.give(full) {
                    Ok(()) => {
                        self.batch = Some(spare);
                        return Ok(());
                    }
                    // It has panicked: `run` says so.
                    Err(SendError(back)) => full = back,
                }
            }
        }
        let result = full.run(self.blocking);
        self.batch = Some(full);
        result
    }

    fn add(&mut self, bio: Bio) -> Result<(), Error> {
        self.room(0)?.bios.push_back(bio);
        Ok(())
    }

    /// Waits until all is written.
    fn run(&mut self) -> Result<(), Error> {
        self.spare = None;
        let here = self.batch.as_mut().map_or(Ok(()), |b| b.run(self.blocking));
        here.and(self.writer.take().map_or(Ok(()), Writer::end))
    }

    /// Makes a range read as zeros. What has no space on the device stays as it is.
    pub fn zero(&mut self, range: Range<u64>) -> Result<(), Error> {
        let device = self.blocking.device().clone();
        let mut at = range.start;
        while at < range.end {
            for run in device.stored(at..range.end, RUNS)? {
                if run.stored == Stored::Data {
                    self.zero_run(at..at + run.len)?;
                }
                at += run.len;
            }
        }
        Ok(())
    }

    fn zero_run(&mut self, mut range: Range<u64>) -> Result<(), Error> {
        let geometry = self.blocking.device().geometry();
        while range.start < range.end {
            let len = range.end - range.start;
            let at = range.start;
            if geometry.write_zeroes {
                let len = len.min(geometry.max_transfer.into());
                self.add(Bio::range(BioOp::WriteZeroesUnmap, at, len, 0))?;
                range.start += len;
            } else {
                let len = len.min(MOST_SHARED as u64);
                let zeros = self.zeros(len as usize)?;
                self.add(Bio::write(at, zeros, 0))?;
                range.start += len;
            }
        }
        Ok(())
    }

    /// So many zeros, [`MOST_SHARED`] at most.
    fn zeros(&mut self, len: usize) -> Result<Buf, Error> {
        if self.zeros.is_none() {
            self.zeros = Shared::try_zeroed(MOST_SHARED);
        }
        let zeros = self.zeros.as_ref().map(|zeros| zeros.lend(0..len));
        zeros.ok_or_else(|| no_memory(MOST_SHARED))
    }

    /// Tells the device that a range is not needed. It may have no use for that.
    pub(crate) fn discard(&mut self, range: Range<u64>) {
        let geometry = self.blocking.device().geometry();
        if !geometry.discard {
            return;
        }
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(1 << 30);
            // A hint: a device that refuses it is as good.
            let _ = self.blocking.run(Bio::range(BioOp::Discard, at, len, 0));
            at += len;
        }
    }

    /// Removes the superblock of an old file system, durably, while all that it leads to is still there: so whatever a crash leaves of this
    /// write, the old file system is whole, or there is none. `all`: the range of the device that is used.
    pub(crate) fn end_superblock(&mut self, all: &Range<u64>) -> Result<(), Error> {
        let logical = u64::from(self.blocking.device().geometry().logical);
        let start = SUPERBLOCK_OFFSET - SUPERBLOCK_OFFSET % logical;
        let end = (SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64).next_multiple_of(logical);
        self.zero(start..end.min(all.end))?;
        self.flush()
    }

    /// Sends what is collected, and makes it durable.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.run()?;
        let flushed = self.blocking.flush();
        flushed.map_err(|e| Error::of_bio(self.blocking, BioOp::Flush, 0, 0, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_block::{
        BioErrorKind, Fault, FaultDevice, FaultPlan, FileDevice, FileOptions, MemDevice, When,
    };
    use std::os::fd::AsRawFd as _;

    const SIZE: u64 = 8 << 20;

    /// Fills every second block of a device; what is in block N depends on N.
    fn fill(device: Arc<dyn Device>) -> Result<(), Error> {
        let blocking = Blocking::new(device);
        let mut out = Out::new(&blocking);
        for block in (0..SIZE / 4096).step_by(2) {
            out.put(block * 4096, &[block as u8 | 1; 4096])?;
        }
        out.put(SIZE, &vec![7; 3 * MEMORY + 4096])?;
        assert_eq!(out.written(), SIZE / 2 + 3 * MEMORY as u64 + 4096);
        out.flush()
    }

    /// A file whose bytes are in memory.
    fn in_memory() -> Arc<dyn Device> {
        let fd =
            rustix::fs::memfd_create("image", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        rustix::fs::ftruncate(&fd, 2 * SIZE).expect("memory");
        let options = FileOptions::new(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let device = FileDevice::open(&options).expect("a file");
        assert!(device.is_memory());
        Arc::new(device)
    }

    #[test]
    fn batches_of_both_threads_are_written() {
        all_is_written(Arc::new(MemDevice::new(2 * SIZE)));
    }

    #[test]
    fn batches_into_memory_are_written() {
        all_is_written(in_memory());
    }

    fn all_is_written(device: Arc<dyn Device>) {
        fill(device.clone()).expect("a device that works");
        let all = Blocking::new(device).read(0, Buf::zeroed(2 * SIZE as usize));
        let all = all.expect("a device that works");
        for (block, raw) in all.as_slice()[..SIZE as usize].chunks(4096).enumerate() {
            let wanted = if block % 2 == 0 { block as u8 | 1 } else { 0 };
            assert!(raw.iter().all(|byte| *byte == wanted), "block {block}");
        }
        let behind = &all.as_slice()[SIZE as usize..];
        let long = 3 * MEMORY + 4096;
        assert!(behind[..long].iter().all(|byte| *byte == 7));
        assert!(behind[long..].iter().all(|byte| *byte == 0));
    }

    /// Whichever thread meets it, the caller is told, and nothing is written any more when it is.
    #[test]
    fn no_failed_write_is_lost() {
        let mut nth = 1;
        loop {
            let device: Arc<dyn Device> = Arc::new(MemDevice::new(2 * SIZE));
            let fault = Fault::new(BioErrorKind::Io, When::nth(nth)).on(BioOp::Write);
            let plan = FaultPlan::new(vec![fault], 0);
            let faulty = Arc::new(FaultDevice::new(device, plan));
            let result = fill(faulty.clone());
            if faulty.plan().failed() == 0 {
                result.expect("nothing failed");
                break;
            }
            result.expect_err("a write failed");
            assert_eq!(
                Arc::strong_count(&faulty),
                1,
                "nobody else has the device any more"
            );
            nth += 97;
        }
        assert!(nth > 1000, "the device saw {nth} writes");
    }
}
