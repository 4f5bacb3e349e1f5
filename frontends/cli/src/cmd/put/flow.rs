//! Pieces of files as requests in flight: many at once, of many files.
//!
//! Input: bytes of files. Output: writes to their copies; for each ended request its file. Invariants: a request has a buf from a pool, so memory is
//! bounded; an error stays with its file; the last bytes of a file go down with the others, in a buf that ends with their sector.
//! Limits: those of the pools.

use super::Trouble;
use super::data::Copying;
use crate::pools::{DEPTH, Pools};
use diorite::{Completion, Error, File, FileId, Queue, Request, Volume};
use diorite_block::{Buf, Split};
use std::collections::VecDeque;
use std::rc::Rc;

/// Requests that are submitted together.
const BATCH: usize = 32;

/// A request in flight.
struct Pending {
    copying: Rc<Copying>,
    /// Keeps the rest of the pool's buf.
    split: Split,
}

/// A buf to be filled with bytes of a file.
pub(super) struct Piece {
    buf: Buf,
    len: usize,
}

impl Piece {
    /// What is to be filled.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.buf.as_mut_slice()[..self.len]
    }
}

/// See the module.
pub(super) struct Flow {
    queue: Queue,
    pools: Pools,
    pending: Vec<Option<Pending>>,
    free: Vec<usize>,
    batch: VecDeque<Request>,
    done: Vec<Completion>,
    bytes: u64,
    /// What a request's buf must be a multiple of.
    unit: usize,
}

impl Flow {
    pub(super) fn new(volume: &Volume) -> Result<Flow, Error> {
        let logical = volume.device().geometry().logical;
        Ok(Flow {
            queue: volume.queue(u32::try_from(DEPTH).expect("the depth is a small constant"))?,
            pools: Pools::new(),
            pending: (0..DEPTH).map(|_| None).collect(),
            free: (0..DEPTH).rev().collect(),
            batch: VecDeque::with_capacity(BATCH),
            done: Vec::with_capacity(DEPTH),
            bytes: 0,
            unit: usize::try_from(logical).expect("a sector is small"),
        })
    }

    pub(super) fn attach(&self, file: &File) -> Result<FileId, Error> {
        self.queue.attach(file)
    }

    pub(super) fn detach(&self, id: FileId) {
        self.queue.detach(id);
    }

    /// Bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Is anything under way?
    pub(super) fn is_busy(&self) -> bool {
        self.free.len() < self.pending.len()
    }

    /// A buf for up to `left` bytes; none if all of its size are in use.
    pub(super) fn piece(&self, left: u64) -> Option<Piece> {
        let buf = self.pools.get(left)?;
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        Some(Piece { buf, len })
    }

    /// A piece that is not sent after all.
    pub(super) fn give_back(&self, piece: Piece) {
        self.pools.put(piece.buf);
    }

    /// Sends a filled piece to byte `at` of the copy; says how long it was.
    pub(super) fn send(&mut self, copying: &Rc<Copying>, at: u64, piece: Piece) -> u64 {
        let slot = self
            .free
            .pop()
            .expect("there are as many slots as bufs, and a buf was free");
        let (whole, len) = (piece.len.next_multiple_of(self.unit), piece.len as u64);
        let mut split = Split::new(piece.buf);
        let part = split.take(whole);
        let (id, token) = (copying.id, slot as u64);
        self.batch.push_back(match whole == piece.len {
            true => Request::write(id, at, part, token),
            false => Request::write_last(id, at, part, len, token),
        });
        let copying = copying.clone();
        self.pending[slot] = Some(Pending { copying, split });
        if self.batch.len() >= BATCH {
            self.queue.submit(&mut self.batch);
        }
        len
    }

    /// Takes what has ended; gives back one reference per request.
    pub(super) fn ended(&mut self, wait: bool) -> Vec<Rc<Copying>> {
        self.queue.submit(&mut self.batch);
        self.queue.reap(&mut self.done, usize::from(wait), None);
        let mut done = std::mem::take(&mut self.done);
        let files = done.drain(..).map(|c| self.end(c)).collect();
        self.done = done;
        files
    }

    fn end(&mut self, completion: Completion) -> Rc<Copying> {
        let slot = usize::try_from(completion.token).expect("the token is a slot's number");
        let pending = self.pending[slot]
            .take()
            .expect("a request ends once, and its slot is kept until then");
        let Pending { copying, mut split } = pending;
        match completion.result {
            Ok(len) => self.bytes += len as u64,
            Err(error) => copying.failed(Trouble::Image(error)),
        }
        split.absorb(completion.buf);
        self.pools.put(split.join());
        self.free.push(slot);
        copying
    }
}
