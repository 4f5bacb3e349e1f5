//! The I/O of the page cache: dirty pages to the device, missing ones from it, as requests of queues of its own.
//!
//! Input: inodes with dirty pages; ranges that are not cached. Output: pages that are on the device and mapped; cached pages. Invariants:
//! write-back takes the way of every direct write, so what holds there holds here: no stale data, the size behind the data, durability by
//! one account; a run of dirty blocks is one request, so its blocks are claimed together. Limits: at most [`MOST_IN_FLIGHT`] bytes at a
//! time per thread that writes back; blocks.

use super::{Pool, Queue, read_ahead};
use crate::error::Error;
use crate::inode::{Handle, Inode};
use crate::pages::{Fill, Grant, Memory, NewFolio};
use crate::request::{Completion, FileId, Request};
use crate::slots::BlockingWork;
use diorite_block::sync::atomic::Ordering::Relaxed;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Requests of one thread at a time.
const DEPTH: u32 = 64;

/// The longest run of one write, in bytes.
const MOST_AT_ONCE: u64 = 32 << 20;
const MOST_IN_FLIGHT: u64 = 64 << 20;

/// Idle queues that are kept.
const QUEUES_KEPT: usize = 8;

/// How often a thread waits for write-back before it gives up on memory for a page.
const PATIENCE: u32 = 200;

/// Writes back many files through one queue.
struct Writer<'p> {
    pool: &'p Pool,
    queue: Option<Queue>,
    attached: Vec<FileId>,
    flights: Vec<Option<Flight>>,
    bytes: u64,
    done: Vec<Completion>,
    result: Result<(), Error>,
}

struct Flight {
    inode: Arc<Inode>,
    blocks: Range<u64>,
    reserved: u64,
    bytes: u64,
}

impl<'p> Writer<'p> {
    fn new(pool: &'p Pool) -> Result<Writer<'p>, Error> {
        Ok(Writer {
            queue: Some(pool.take_page_queue()?),
            pool,
            attached: Vec::new(),
            flights: Vec::new(),
            bytes: 0,
            done: Vec::new(),
            result: Ok(()),
        })
    }

    fn queue(&self) -> &Queue {
        let queue = self.queue.as_ref();
        queue.expect("it goes back to the pool in the end")
    }

    /// Sends down what is dirty in a range of a file. Blocks while too much is in flight.
    fn write(&mut self, inode: &Arc<Inode>, range: &Range<u64>) -> Result<(), Error> {
        let file = self.queue().attach_handle(Handle::of_cache(inode))?;
        self.attached.push(file);
        let bits = inode.volume.block_size().trailing_zeros();
        let mut at = range.start;
        while let Some(batch) = inode.pages.collect(at..range.end, MOST_AT_ONCE >> bits) {
            at = batch.blocks.end;
            let (pos, bytes) = (batch.blocks.start << bits, batch.buf.len() as u64);
            let token = self.flights.len() as u64;
            let end = inode.visible_size().min(pos + bytes);
            self.flights.push(Some(Flight {
                inode: inode.clone(),
                blocks: batch.blocks,
                reserved: batch.reserved,
                bytes,
            }));
            self.bytes += bytes;
            let mut request = match end < pos + bytes {
                true => Request::write_last(file, pos, batch.buf, end.saturating_sub(pos), token),
                false => Request::write(file, pos, batch.buf, token),
            };
            while let Err(back) = self.queue().push(request) {
                request = back;
                self.reap();
            }
            while self.bytes > MOST_IN_FLIGHT {
                self.reap();
            }
        }
        Ok(())
    }

    /// Waits for at least one write.
    fn reap(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.queue().reap(&mut done, 1, None);
        for completion in done.drain(..) {
            let Completion {
                token, buf, result, ..
            } = completion;
            // The lent memory goes back before anybody is told.
            drop(buf);
            let flight = usize::try_from(token)
                .ok()
                .and_then(|n| self.flights[n].take());
            let flight = flight.expect("each token is of one write");
            self.bytes -= flight.bytes;
            let inode = &flight.inode;
            let place = || format!("write-back of inode {}", inode.ino);
            let error = result.err().map(|error| error.at(place()));
            if let Some(error) = &error {
                inode.volume.cached.note_failure(error);
                self.result = Err(error.clone());
            }
            inode.pages.written(&flight.blocks, error, inode.size());
            inode.end_delayed(flight.reserved);
            inode.volume.cached.note_clean(inode);
        }
        self.done = done;
        if self.bytes == 0 {
            self.flights.clear();
        }
    }

    fn finish(&mut self) {
        while self.flights.iter().any(Option::is_some) {
            self.reap();
        }
        for file in std::mem::take(&mut self.attached) {
            self.queue().detach(file);
        }
    }
}

impl Drop for Writer<'_> {
    /// Also after a panic: blocks that are being written would stay so for ever.
    fn drop(&mut self) {
        self.finish();
        if let Some(queue) = self.queue.take() {
            self.pool.keep_page_queue(queue);
        }
    }
}

/// See [`crate::inode::Queues::write_back`].
pub(super) fn write_back(
    pool: &Pool,
    inodes: &[Arc<Inode>],
    blocks: Range<u64>,
) -> Result<(), Error> {
    let mut result = Ok(());
    // What others are writing now may have become dirty again before this call; the second pass finds that.
    for _ in 0..2 {
        let dirty: Vec<&Arc<Inode>> = inodes
            .iter()
            .filter(|i| i.pages.is_unwritten(&blocks))
            .collect();
        if dirty.is_empty() {
            break;
        }
        let mut writer = Writer::new(pool)?;
        for inode in &dirty {
            if let Err(error) = writer.write(inode, &blocks) {
                result = Err(error);
            }
        }
        writer.finish();
        result = std::mem::replace(&mut writer.result, Ok(())).and(result);
        for inode in &dirty {
            loop {
                let seen = inode.pages.changes();
                if !inode.pages.is_writing(&blocks) {
                    break;
                }
                inode.pages.wait(seen);
            }
        }
    }
    result
}

/// Caches a range of blocks of a file. Blocks. What somebody changes meanwhile is not cached.
pub(super) fn fill(pool: &Pool, inode: &Arc<Inode>, blocks: Range<u64>) -> Result<(), Error> {
    let seen = inode.pages.changes();
    let (id, missing) = match inode.pages.begin_fill(blocks) {
        Fill::Cached => return Ok(()),
        Fill::Begun(id, missing) => (id, missing),
        Fill::Busy => {
            // It may be a request whose submitter does not come back.
            inode.volume.drain_all();
            inode.pages.wait(seen);
            return Ok(());
        }
    };
    let read = read(pool, inode, missing);
    let (read, result) = match read {
        Ok(read) => (read, Ok(())),
        Err(error) => (Vec::new(), Err(error)),
    };
    inode.pages.end_fill(id, &inode.as_reclaim(), read);
    result
}

/// Reads blocks into new folios.
fn read(pool: &Pool, inode: &Arc<Inode>, blocks: Range<u64>) -> Result<Vec<NewFolio>, Error> {
    let bits = inode.volume.block_size().trailing_zeros();
    let queue = pool.take_page_queue()?;
    let file = queue.attach_handle(Handle::of_cache(inode))?;
    let most = inode.pages.most_per_folio();
    let (mut at, mut grants, mut failed) = (blocks.start, Vec::new(), None);
    while at < blocks.end && grants.len() < DEPTH as usize {
        let len = most.min(blocks.end - at);
        // Who has some memory already waits for no more: others may have the rest and do the same.
        let granted = match grants.is_empty() {
            true => memory(pool, inode, len << bits).map(Some),
            false => inode.pages.cache().memory(len << bits),
        };
        let (buf, grant) = match granted {
            Ok(Some(memory)) => memory.into_buf(),
            Ok(None) => break,
            Err(error) => {
                failed = Some(error);
                break;
            }
        };
        let request = Request::read(file, at << bits, buf, grants.len() as u64);
        grants.push(Some((at, len, grant)));
        if queue.push(request).is_err() {
            unreachable!("the queue has as many slots as there are grants");
        }
        at += len;
    }
    let (mut done, mut folios) = (Vec::new(), Vec::new());
    queue.reap(&mut done, grants.len(), None);
    for completion in done {
        let token = usize::try_from(completion.token).ok();
        let asked = token.and_then(|n| grants[n].take());
        let (start, len, grant) = asked.expect("each token is of one read");
        match folio_of(start..start + len, grant, completion) {
            Ok(folio) => folios.push(folio),
            Err(error) => failed = Some(error),
        }
    }
    queue.detach(file);
    pool.keep_page_queue(queue);
    match failed {
        // Part of it is as good as nothing: the caller asks again, and meets the error where it is.
        Some(error) if folios.is_empty() => Err(error),
        _ => Ok(folios),
    }
}

/// The folio of a read into granted memory.
pub(super) fn folio_of(
    blocks: Range<u64>,
    grant: Grant,
    completion: Completion,
) -> Result<NewFolio, Error> {
    let Completion {
        mut buf, result, ..
    } = completion;
    // Behind the end of the file the memory has another file's bytes.
    buf.zero(result?..buf.len());
    let memory = grant.memory_of(buf);
    let memory = memory.expect("a read gives its buffer back whole");
    Ok(NewFolio::new(
        blocks.start,
        blocks.end - blocks.start,
        memory,
    ))
}

/// Takes memory from the budget; writes back dirty pages for that. Blocks; no lock may be held.
pub(super) fn memory(pool: &Pool, inode: &Arc<Inode>, bytes: u64) -> Result<Memory, Error> {
    let cache = inode.pages.cache();
    for _ in 0..PATIENCE {
        if let Some(memory) = cache.memory(bytes)? {
            return Ok(memory);
        }
        // Also a file without a name, which is on no list.
        let mut dirty = inode.volume.cached.dirty_for(Duration::ZERO);
        dirty.push(inode.clone());
        // A failure is noted, and reported to syncs.
        let _noted = write_back(pool, &dirty, 0..u64::MAX);
        inode.pages.wait(inode.pages.changes());
    }
    Err(Error::NoMemory { asked: bytes })
}

impl Pool {
    fn take_page_queue(&self) -> Result<Queue, Error> {
        let kept = self.page_queues.lock().pop();
        kept.map_or_else(
            || Queue::open(self.service(), DEPTH, BlockingWork::Workers),
            Ok,
        )
    }

    /// A queue for read-ahead. None while enough files read ahead.
    pub(super) fn take_stream_queue(&self) -> Option<Queue> {
        let room = |streams: u32| (streams < read_ahead::MOST_STREAMS).then_some(streams + 1);
        self.streams.fetch_update(Relaxed, Relaxed, room).ok()?;
        let queue = self.take_page_queue().ok();
        if queue.is_none() {
            self.streams.fetch_sub(1, Relaxed);
        }
        queue
    }

    pub(super) fn keep_stream_queue(&self, queue: Queue) {
        self.keep_page_queue(queue);
        self.streams.fetch_sub(1, Relaxed);
    }

    /// Keeps the queue for the next time, unless enough are kept.
    fn keep_page_queue(&self, queue: Queue) {
        let mut queues = self.page_queues.lock();
        let refused = match queues.len() < QUEUES_KEPT {
            true => {
                queues.push(queue);
                None
            }
            false => Some(queue),
        };
        drop(queues);
        drop(refused);
    }
}
