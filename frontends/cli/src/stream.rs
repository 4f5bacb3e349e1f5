//! Contents of files from front to back, for what takes bytes in order: standard output, pipes, devices.
//!
//! Input: files. Output: calls with their bytes. Invariants: many requests are in flight, the bytes come in order; what could be read
//! before an error is handed on before it. Limits: 32 MiB of buffers; holes are read as zeros without the device.

use crate::report::Reason;
use diorite::{Completion, Error, File, Queue, Request, Volume};
use diorite_block::{Buf, BufPool};
use std::collections::VecDeque;

/// Bytes per request.
const CHUNK: usize = 256 << 10;
/// Requests in flight.
const DEPTH: usize = 128;

/// Takes the next bytes, or says why not.
pub(crate) type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), Reason> + 'a;

/// Reads files from front to back, far ahead.
pub(crate) struct Reader {
    queue: Queue,
    pool: BufPool,
    /// Bufs in the pool: as many as the longest file so far could use.
    bufs: usize,
    batch: VecDeque<Request>,
    done: Vec<Completion>,
    /// Finished chunks by their number modulo the depth, until it is their turn.
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

    /// Gives the bytes of a file to `sink`, in order. The first error, of either side, ends it.
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

/// Where a chunk waits for its turn.
fn slot(chunk: u64) -> usize {
    usize::try_from(chunk % DEPTH as u64).expect("less than the depth")
}

/// Hands a chunk on, unless something before it failed.
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
