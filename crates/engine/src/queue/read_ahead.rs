//! Read-ahead: while a sequential reader reads one window, the next one is being read from the device.
//!
//! Input: where a reader reads. Output: requests on a queue that the open file has as long as any of them is under way; cached pages, once
//! the reader comes to them. Invariants: nobody waits for read-ahead of another open file; what a direct request or a writer changes
//! meanwhile is not cached (rule of every fill); the memory under way is an eighth of the budget at most, of all files together.
//! Limits: a reader that stops keeps the memory of one window until the file is closed or read on; at most [`MOST_STREAMS`] open files of a
//! volume read ahead at a time.

use super::{Pool, Queue, page_io};
use crate::inode::{Handle, Inode};
use crate::locks::READ_AHEAD;
use crate::pages::{Ahead, Grant};
use crate::request::{Completion, FileId, Request};
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use diorite_block::sync::atomic::{AtomicBool, AtomicU64};
use std::ops::Range;
use std::sync::Arc;

/// The first window, and the largest, in bytes.
const LEAST: u64 = 128 << 10;
const MOST: u64 = 8 << 20;

/// Requests of one stream at a time.
pub(super) const DEPTH: usize = 32;

/// Open files of a volume that have requests under way.
pub(super) const MOST_STREAMS: u32 = 16;

/// What read-ahead knows of the reader of one open file.
#[derive(Debug)]
pub(super) struct ReadAhead {
    /// Behind the last byte that was asked for; 0 while nothing is.
    end: AtomicU64,
    window: AtomicU64,
    /// None also while a thread uses it.
    stream: Mutex<Option<Stream>>,
    in_use: AtomicBool,
    /// The stream has requests.
    is_busy: AtomicBool,
}

/// Requests under way.
#[derive(Debug)]
struct Stream {
    pool: Arc<Pool>,
    inode: Arc<Inode>,
    /// Always there until the drop.
    queue: Option<Queue>,
    file: FileId,
    reads: Vec<Option<Read>>,
    done: Vec<Completion>,
}

#[derive(Debug)]
struct Read {
    blocks: Range<u64>,
    fill: u64,
    grant: Grant,
    #[expect(dead_code, reason = "held for its Drop only")]
    ahead: Ahead,
}

impl ReadAhead {
    pub(super) fn new(level: u8) -> ReadAhead {
        ReadAhead {
            end: AtomicU64::new(0),
            window: AtomicU64::new(0),
            stream: Mutex::at_level(&READ_AHEAD, level, None),
            in_use: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
        }
    }

    /// Should a sequential reader that has come to `pos` ask for more?
    #[inline]
    pub(super) fn is_short(&self, pos: u64) -> bool {
        let end = self.end.load(Relaxed);
        end != 0 && end < pos.saturating_add(self.window.load(Relaxed) / 2)
    }

    /// Asks for what is behind `pos`, where a reader is whose last byte but `len` was there, too. Does not wait.
    pub(super) fn extend(&self, pool: &Arc<Pool>, inode: &Arc<Inode>, pos: u64, len: u64) {
        let end = self.end.load(Relaxed);
        let goes_on = (pos..=pos.saturating_add(MOST)).contains(&end);
        if goes_on && end >= inode.visible_size() {
            // All of the file was asked for.
            return;
        }
        let most = MOST.min(inode.pages.cache().cache_bytes() / 8);
        let window = match (goes_on, self.window.load(Relaxed)) {
            (true, window) if window > 0 => (2 * window).min(most),
            _ => LEAST.min(most),
        };
        self.window.store(window, Relaxed);
        let from = if goes_on { end } else { pos };
        let mut to = pos.saturating_add(window.max(len));
        let folio = inode.pages.most_per_folio() * u64::from(inode.volume.block_size());
        if window > folio {
            to -= to % folio;
        }
        let to = to.min(inode.visible_size());
        if from >= to || !inode.try_make_pages_ready(&(from..to)) {
            self.end.store(0, Relaxed);
            return;
        }
        self.with_stream(|stream| {
            if stream.is_none() {
                *stream = Stream::open(pool, inode);
            }
            let asked = stream.as_mut().map_or(from, |s| s.ask(from..to));
            self.end
                .store(if asked > from { asked } else { 0 }, Relaxed);
        });
    }

    /// Waits for a block that was asked for, and caches it. False if it was not.
    pub(super) fn finish(&self, block: u64) -> bool {
        if !self.is_busy.load(Acquire) {
            return false;
        }
        let done = self.with_stream(|stream| {
            let done = stream.as_mut().is_some_and(|s| s.finish(block));
            if stream.as_ref().is_some_and(Stream::is_idle) {
                *stream = None;
            }
            done
        });
        done.unwrap_or(false)
    }

    /// Uses the stream; no lock is held meanwhile. None while another thread does.
    fn with_stream<T>(&self, work: impl FnOnce(&mut Option<Stream>) -> T) -> Option<T> {
        if self.in_use.swap(true, Acquire) {
            return None;
        }
        let mut stream = self.stream.lock().take();
        let done = work(&mut stream);
        self.is_busy.store(stream.is_some(), Release);
        *self.stream.lock() = stream;
        self.in_use.store(false, Release);
        Some(done)
    }
}

impl Stream {
    fn open(pool: &Arc<Pool>, inode: &Arc<Inode>) -> Option<Stream> {
        let queue = pool.take_stream_queue()?;
        // Dropped, it gives the queue back.
        let mut stream = Stream {
            pool: pool.clone(),
            inode: inode.clone(),
            queue: Some(queue),
            file: FileId::NONE,
            reads: Vec::new(),
            done: Vec::new(),
        };
        stream.file = stream.queue().attach_handle(Handle::of_cache(inode)).ok()?;
        Some(stream)
    }

    fn queue(&self) -> &Queue {
        self.queue.as_ref().expect("it is there until the drop")
    }

    fn is_idle(&self) -> bool {
        self.reads.iter().all(Option::is_none)
    }

    /// Asks for the bytes of a range that are not cached. Returns up to where it did.
    fn ask(&mut self, bytes: Range<u64>) -> u64 {
        let inode = self.inode.clone();
        let pages = &inode.pages;
        let bits = self.inode.volume.block_size().trailing_zeros();
        let most = pages.most_per_folio();
        let mut at = bytes.start >> bits;
        let end = bytes.end.div_ceil(1 << bits);
        while let Some(missing) = pages.missing(at..end) {
            // Folios end where all of them end, so that they are of few lengths.
            let len = most - missing.start % most;
            let blocks = missing.start..missing.end.min(missing.start + len);
            let len = blocks.end - blocks.start;
            let Some(slot) = self.free_slot() else { break };
            let Some(ahead) = pages.cache().read_ahead(len << bits) else {
                break;
            };
            let Ok(Some(memory)) = pages.cache().memory(len << bits) else {
                break;
            };
            let (buf, grant) = memory.into_buf();
            let fill = pages.begin_ahead(blocks.clone());
            let request = Request::read(self.file, blocks.start << bits, buf, slot as u64);
            at = blocks.end;
            self.reads[slot] = Some(Read {
                blocks,
                fill,
                grant,
                ahead,
            });
            if self.queue().push(request).is_err() {
                unreachable!("the queue has as many slots as there are reads");
            }
        }
        match pages.missing(at..end) {
            None => bytes.end,
            Some(_) => (at << bits).max(bytes.start),
        }
    }

    fn free_slot(&mut self) -> Option<usize> {
        let free = self.reads.iter().position(Option::is_none);
        free.or_else(|| {
            let next = self.reads.len();
            (next < DEPTH).then(|| {
                self.reads.push(None);
                next
            })
        })
    }

    fn finish(&mut self, block: u64) -> bool {
        let is_asked = |s: &Stream| s.reads.iter().flatten().any(|r| r.blocks.contains(&block));
        let was_asked = is_asked(self);
        while is_asked(self) {
            self.reap();
        }
        was_asked
    }

    /// Waits for at least one read, and caches what has come.
    fn reap(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.queue().reap(&mut done, 1, None);
        for completion in done.drain(..) {
            let slot = usize::try_from(completion.token).ok();
            let read = slot.and_then(|n| self.reads.get_mut(n)?.take());
            let read = read.expect("each token is of one read");
            let folio = page_io::folio_of(read.blocks, read.grant, completion);
            // A failure is met again by who needs these bytes.
            let folios = folio.into_iter().collect();
            let pages = &self.inode.pages;
            pages.end_fill(read.fill, &self.inode.as_reclaim(), folios);
        }
        self.done = done;
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        while !self.is_idle() {
            self.reap();
        }
        if let Some(queue) = self.queue.take() {
            queue.detach(self.file);
            self.pool.keep_stream_queue(queue);
        }
    }
}
