//! The I/O of the page cache: dirty pages to the device, missing ones from it, as requests of queues of its own.
//!
//! Input: inodes with dirty pages; ranges that are not cached. Output: pages that are on the device and mapped; cached pages. Invariants:
//! write-back uses the code of direct writes, so the same promises hold: no stale data, the size changes after the data, one account of
//! durability; a run of dirty blocks is one request, so its blocks are claimed together. Limits: at most [`MOST_IN_FLIGHT`] bytes at a time
//! per thread that writes back; blocks.

use super::{Pool, Queue, read_ahead};
use crate::error::Error;
use crate::inode::{Handle, Inode};
use crate::pages::{Collected, Failure, Fill, Grant, Memory, NewFolio};
use crate::request::{Completion, FileId, Request};
use crate::slots::BlockingWork;
use crate::threads;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::Ordering::Relaxed;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Requests of one thread at a time.
const DEPTH: u32 = 128;

/// So many writes go down together, if so many are to be written.
const GATHERED: usize = 32;

/// The longest run of one write, in bytes.
const MOST_AT_ONCE: u64 = 32 << 20;
const MOST_IN_FLIGHT: u64 = 64 << 20;

/// Idle queues that are kept.
const QUEUES_KEPT: usize = 8;

/// How often, at most a millisecond each, a thread waits for memory for a page before it gives up: while a device has some of it, perhaps
/// that of another volume; and while none has.
const PATIENCE: u32 = 10_000;
const LITTLE_PATIENCE: u32 = 200;

/// Writes back many files through one queue.
struct Writer<'p> {
    pool: &'p Pool,
    queue: Option<Queue>,
    attached: Vec<FileId>,
    /// By the tokens of their requests.
    flights: Vec<Option<Flight>>,
    /// How many of them were sent down.
    sent: usize,
    /// Requests that go down together.
    waiting: VecDeque<Request>,
    /// Flights, and their bytes, waiting ones included.
    count: usize,
    bytes: u64,
    done: Vec<Completion>,
    result: Result<(), Error>,
}

struct Flight {
    inode: Arc<Inode>,
    batch: u64,
    moves_size: bool,
    is_acknowledged: bool,
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
            sent: 0,
            waiting: VecDeque::new(),
            count: 0,
            bytes: 0,
            done: Vec::new(),
            result: Ok(()),
        })
    }

    fn queue(&self) -> &Queue {
        let queue = self.queue.as_ref();
        queue.expect("it goes back to the pool in the end")
    }

    /// Sends down what is dirty in a range of a file, once enough of it has gathered. Blocks while too much is in flight.
    fn write(&mut self, inode: &Arc<Inode>, range: &Range<u64>) -> Result<(), Error> {
        let file = self.queue().attach_handle(Handle::of_cache(inode))?;
        self.attached.push(file);
        let bits = inode.volume.block_size().trailing_zeros();
        // What moves the size has what is dirty before it written first.
        let first = || match inode.size() >> bits {
            size if size < range.end => range.start.min(size),
            _ => range.start,
        };
        let mut at = first();
        loop {
            let seen = inode.pages.changes();
            let most = MOST_AT_ONCE >> bits;
            let batch = match inode.pages.collect(at..range.end, most, || inode.size()) {
                Collected::Run(batch) => batch,
                Collected::Nothing => break,
                // It may be this thread's own.
                Collected::Kept if !self.waiting.is_empty() => {
                    self.send();
                    continue;
                }
                Collected::Kept => {
                    // Requests of the other thread may wait for requests of this one.
                    self.end_all();
                    inode.pages.wait(seen);
                    // What was being written can be collected now.
                    at = at.min(first());
                    continue;
                }
            };
            at = batch.blocks.end;
            let (pos, bytes) = (batch.blocks.start << bits, batch.buf.len() as u64);
            let token = self.flights.len() as u64;
            let end = batch.end.min(pos + bytes);
            self.flights.push(Some(Flight {
                inode: inode.clone(),
                batch: batch.id,
                moves_size: batch.moves_size,
                is_acknowledged: batch.is_acknowledged,
                reserved: batch.reserved,
                bytes,
            }));
            self.count += 1;
            self.bytes += bytes;
            self.waiting.push_back(match end < pos + bytes {
                true => Request::write_last(file, pos, batch.buf, end.saturating_sub(pos), token),
                false => Request::write(file, pos, batch.buf, token),
            });
            if self.waiting.len() >= GATHERED || self.bytes >= MOST_IN_FLIGHT {
                self.send();
            }
            while self.bytes > MOST_IN_FLIGHT {
                self.reap();
            }
        }
        Ok(())
    }

    /// Submits what has gathered.
    fn send(&mut self) {
        while !self.waiting.is_empty() {
            // Not moved out of the list: after a panic it has what did not go down.
            let queue = self.queue.as_ref();
            let queue = queue.expect("it goes back to the pool in the end");
            let sent = queue.submit(&mut self.waiting);
            let on_their_way = self.flights.iter().skip(self.sent).take(sent).flatten();
            for flight in on_their_way.filter(|flight| flight.moves_size) {
                flight.inode.pages.sent(flight.batch);
            }
            self.sent += sent;
            if sent == 0 {
                self.reap();
            }
        }
    }

    /// Waits until half of the writes under way have ended, at least one.
    fn reap(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        let under_way = self.count - self.waiting.len();
        self.queue().reap(
            &mut done,
            (under_way / 2).clamp(1, DEPTH as usize / 2),
            None,
        );
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
            self.count -= 1;
            self.bytes -= flight.bytes;
            let inode = &flight.inode;
            let place = || format!("write-back of inode {}", inode.ino);
            let error = result.err().map(|error| error.at(place()));
            // Else the calls that wait for it are told, and nobody else.
            let failure = error.map(|error| {
                let mut number = 0;
                if flight.is_acknowledged {
                    number = inode.volume.cached.note_failure(inode.ino, &error);
                    self.result = Err(error.clone());
                }
                Failure { error, number }
            });
            inode.pages.written(flight.batch, failure, inode.size());
            inode.end_delayed(flight.reserved);
            inode.volume.cached.note_clean(inode);
        }
        self.done = done;
        if self.count == 0 {
            self.flights.clear();
            self.sent = 0;
        }
    }

    /// Sends down what has gathered, and waits for all writes.
    fn end_all(&mut self) {
        self.send();
        while self.count > 0 {
            self.reap();
        }
    }

    fn finish(&mut self) {
        self.end_all();
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
            // Not for what others begin from now on, which may never end.
            let mark = inode.pages.mark();
            loop {
                let seen = inode.pages.changes();
                if !inode.pages.is_writing(&blocks, mark) {
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
    let mut filling = Filling {
        inode,
        id,
        read: Vec::new(),
    };
    filling.read = read(pool, inode, missing)?;
    Ok(())
}

/// Ends a fill when it is dropped, also after an error or a panic: others would wait for it.
struct Filling<'a> {
    inode: &'a Arc<Inode>,
    id: u64,
    read: Vec<NewFolio>,
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        let (inode, read) = (self.inode, std::mem::take(&mut self.read));
        inode.pages.end_fill(self.id, &inode.as_reclaim(), read);
    }
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

/// Takes memory from the budget; writes back dirty pages for that, and has other volumes of the budget do the same. Blocks; no lock may be
/// held.
pub(super) fn memory(pool: &Pool, inode: &Arc<Inode>, bytes: u64) -> Result<Memory, Error> {
    let cache = inode.pages.cache();
    if !threads::may_wait_for_memory() {
        // Only what is dirty in this volume goes for it.
        if let Some(memory) = cache.memory(bytes)? {
            return Ok(memory);
        }
        let dirty = inode.volume.cached.dirty_unheld();
        let _noted = write_back(pool, &dirty, 0..u64::MAX);
        return cache.memory(bytes)?.ok_or(Error::NoMemory { asked: bytes });
    }
    let (mut waits, mut idle_waits) = (0, 0);
    while waits < PATIENCE && idle_waits < LITTLE_PATIENCE {
        if let Some(memory) = cache.memory(bytes)? {
            return Ok(memory);
        }
        waits += 1;
        idle_waits += u32::from(!cache.is_with_devices());
        let dirty = inode.volume.cached.dirty_unheld();
        // A failure is noted, and reported to syncs.
        let _noted = write_back(pool, &dirty, 0..u64::MAX);
        if cache.dirty_bytes() > 0 {
            cache.ask_for_write_back();
        }
        inode.pages.wait(inode.pages.changes());
    }
    Err(Error::NoMemory { asked: bytes })
}

impl Pool {
    fn take_page_queue(&self) -> Result<Queue, Error> {
        if let Some(kept) = self.page_queues.lock().pop() {
            return Ok(kept);
        }
        let queue = Queue::open(self.service(), DEPTH, BlockingWork::Caller)?;
        queue.shared.lock().joined = Some(Box::default());
        Ok(queue)
    }

    /// A queue for read-ahead. None while enough files read ahead.
    pub(super) fn take_stream_queue(&self) -> Option<Queue> {
        let room = |streams: u32| (streams < read_ahead::MOST_STREAMS).then_some(streams + 1);
        self.streams.fetch_update(Relaxed, Relaxed, room).ok()?;
        // Whoever reads ahead does not wait, so its work is the workers'.
        let open = || Queue::open(self.service(), DEPTH, BlockingWork::Workers);
        let kept = self.stream_queues.lock().pop();
        let queue = kept.or_else(|| open().ok());
        if queue.is_none() {
            self.streams.fetch_sub(1, Relaxed);
        }
        queue
    }

    pub(super) fn keep_stream_queue(&self, queue: Queue) {
        self.keep_for_pages(&self.stream_queues, queue);
        self.streams.fetch_sub(1, Relaxed);
    }

    fn keep_page_queue(&self, queue: Queue) {
        self.keep_for_pages(&self.page_queues, queue);
    }

    /// Keeps the queue for the next time, unless enough are kept, or the last handle of the volume is gone.
    fn keep_for_pages(&self, queues: &Mutex<Vec<Queue>>, queue: Queue) {
        let keeps = self.keeps_queues() && !queue.is_makeshift();
        let mut queues = queues.lock();
        let refused = match keeps && queues.len() < QUEUES_KEPT {
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
