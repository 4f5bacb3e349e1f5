//! Reads the contents of files in order, for outputs that need them so: standard output, pipes, devices.
//!
//! Input: files. Output: calls of a function with their bytes. Invariants: many requests are in flight, but the bytes are
//! delivered in order; the bytes before an error are delivered first. Limits: 32 MiB of buffers; holes give zeros and are not
//! read from the device.

use crate::output::report::Reason;
use diorite::{Completion, Error, File, Queue, Request, Volume};
use diorite_block::{Buf, BufPool};
use std::collections::VecDeque;

/// Bytes per request.
const CHUNK: usize = 256 << 10;
/// Requests in flight.
const DEPTH: usize = 128;

/// Takes the next bytes, or returns the reason why it cannot.
pub(crate) type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), Reason> + 'a;

/// Reads files in order, with many requests ahead.
pub(crate) struct Reader {
    queue: Queue,
    pool: BufPool,
    /// Bufs in the pool: as many as the longest file so far could use.
    bufs: usize,
    batch: VecDeque<Request>,
    done: Vec<Completion>,
    /// Chunks that are read but not delivered yet, at their number modulo the depth.
    early: Vec<Option<Completion>>,
}

impl Reader {
    pub(crate) fn new(volume: &Volume) -> Result<Reader, Error> {
        let depth = u32::try_from(DEPTH).expect("the depth is a small constant");
        Ok(Reader {
            queue: volume.queue(depth)?,
            pool: BufPool::new(CHUNK, 1),
            bufs: 1,
            batch: VecDeque::with_capacity(DEPTH),
            done: Vec::with_capacity(DEPTH),
            early: (0..DEPTH).map(|_| None).collect(),
        })
    }

    /// Passes the bytes of a file to `sink`, in order. The first error of the file or of `sink` ends the copy.
    pub(crate) fn copy(&mut self, file: &File, sink: &mut Sink<'_>) -> Result<(), Reason> {
        let id = self.queue.attach(file)?;
        let chunks = file.size().div_ceil(CHUNK as u64);
        let useful = usize::try_from(chunks).map_or(DEPTH, |n| n.min(DEPTH));
        if useful > self.bufs {
            (self.pool, self.bufs) = (BufPool::new(CHUNK, useful), useful);
        }
        let (mut asked, mut handed) = (0, 0);
        let mut failed = None;
        while handed < asked || asked < chunks && failed.is_none() {
            while asked < chunks && asked - handed < DEPTH as u64 && failed.is_none() {
                let Some(buf) = self.pool.get() else { break };
                self.batch
                    .push_back(Request::read(id, asked * CHUNK as u64, buf, asked));
                asked += 1;
            }
            self.queue.submit(&mut self.batch);
            self.queue.reap(&mut self.done, 1, None);
            for completion in self.done.drain(..) {
                let place = slot(completion.token);
                self.early[place] = Some(completion);
            }
            while let Some(next) = self.early[slot(handed)].take() {
                handed += 1;
                let buf = deliver(next, &mut failed, sink);
                self.pool.put(buf);
            }
        }
        self.queue.detach(id);
        failed.map_or(Ok(()), Err)
    }
}

/// The index of a chunk in [`Reader::early`].
fn slot(chunk: u64) -> usize {
    usize::try_from(chunk % DEPTH as u64).expect("less than the depth")
}

/// Passes a chunk to the sink, unless an earlier one failed.
fn deliver(chunk: Completion, failed: &mut Option<Reason>, sink: &mut Sink<'_>) -> Buf {
    if failed.is_none() {
        let taken = match chunk.result {
            Ok(len) => sink(&chunk.buf.as_slice()[..len]),
            Err(error) => Err(error.into()),
        };
        *failed = taken.err();
    }
    chunk.buf
}
