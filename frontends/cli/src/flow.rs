//! Data of files as requests in flight, in either direction: many at once, of many files.
//!
//! Input: files of the image, ranges of bytes, bytes to write. Output: each ended request told to its file. Invariants: a request has a buf from a
//! pool, so memory is bounded; an error stays with its file; the last bytes of a file go down with the others, in a buf that ends with
//! their sector. Limits: those of the pools.

mod pools;

use diorite::{Completion, Error, File, FileId, Queue, Request, Volume};
use diorite_block::{Buf, Split};
use pools::{DEPTH, Pools};
use std::collections::VecDeque;
use std::rc::Rc;

/// Requests that are submitted together.
const BATCH: usize = 32;

/// A file whose data is on its way. Whoever holds the last reference finishes it.
pub(crate) trait Moving {
    /// The file of the image.
    fn id(&self) -> FileId;
    /// Takes note of an ended request, or of what it read at byte `pos`; says how many bytes have been copied with it.
    fn ended(&self, pos: u64, result: Result<&[u8], Error>) -> u64;
}

/// A request in flight.
struct Pending<T> {
    file: Rc<T>,
    /// Keeps the rest of the pool's buf.
    split: Split,
}

/// A buf to be filled with bytes of a file.
pub(crate) struct Piece {
    buf: Buf,
    len: usize,
}

impl Piece {
    /// What is to be filled.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.buf.as_mut_slice()[..self.len]
    }

    /// Only so many bytes were filled.
    pub(crate) fn shorten(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

/// See the module.
pub(crate) struct Flow<T> {
    queue: Queue,
    pools: Pools,
    pending: Vec<Option<Pending<T>>>,
    free: Vec<usize>,
    batch: VecDeque<Request>,
    done: Vec<Completion>,
    bytes: u64,
    /// What a request's buf must be a multiple of.
    unit: usize,
}

impl<T: Moving> Flow<T> {
    pub(crate) fn new(volume: &Volume) -> Result<Flow<T>, Error> {
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

    pub(crate) fn attach(&self, file: &File) -> Result<FileId, Error> {
        self.queue.attach(file)
    }

    pub(crate) fn detach(&self, id: FileId) {
        self.queue.detach(id);
    }

    /// Bytes copied so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Is anything under way?
    pub(crate) fn is_busy(&self) -> bool {
        self.free.len() < self.pending.len()
    }

    /// Asks for bytes from `from`, at most up to `until`; says where to go on. None if all bufs of the size are in use.
    pub(crate) fn read(&mut self, file: &Rc<T>, from: u64, until: u64) -> Option<u64> {
        let Piece { buf, len } = self.piece(until - from)?;
        let whole = len.next_multiple_of(self.unit);
        self.send(file, buf, whole, |part, token| {
            Request::read(file.id(), from, part, token)
        });
        Some(from + whole as u64)
    }

    /// A buf for up to `left` bytes; none if all of its size are in use.
    pub(crate) fn piece(&self, left: u64) -> Option<Piece> {
        let buf = self.pools.get(left)?;
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        Some(Piece { buf, len })
    }

    /// A piece that is not written after all.
    pub(crate) fn give_back(&self, piece: Piece) {
        self.pools.put(piece.buf);
    }

    /// Writes a filled piece to byte `at`; says how long it was.
    pub(crate) fn write(&mut self, file: &Rc<T>, at: u64, piece: Piece) -> u64 {
        let Piece { buf, len } = piece;
        let (whole, bytes) = (len.next_multiple_of(self.unit), len as u64);
        self.send(file, buf, whole, |part, token| match whole == len {
            true => Request::write(file.id(), at, part, token),
            false => Request::write_last(file.id(), at, part, bytes, token),
        });
        bytes
    }

    /// A request on the first `len` bytes of a buf.
    fn send(
        &mut self,
        file: &Rc<T>,
        buf: Buf,
        len: usize,
        request: impl FnOnce(Buf, u64) -> Request,
    ) {
        let slot = self
            .free
            .pop()
            .expect("there are as many slots as bufs, and a buf was free");
        let mut split = Split::new(buf);
        self.batch.push_back(request(split.take(len), slot as u64));
        let file = file.clone();
        self.pending[slot] = Some(Pending { file, split });
        if self.batch.len() >= BATCH {
            self.queue.submit(&mut self.batch);
        }
    }

    /// Tells what has ended to its files; gives back one reference per request. Waits for a request if told so.
    pub(crate) fn ended(&mut self, wait: bool) -> Vec<Rc<T>> {
        self.queue.submit(&mut self.batch);
        self.queue.reap(&mut self.done, usize::from(wait), None);
        let mut done = std::mem::take(&mut self.done);
        let files = done.drain(..).map(|c| self.end(c)).collect();
        self.done = done;
        files
    }

    fn end(&mut self, completion: Completion) -> Rc<T> {
        let Completion {
            token,
            pos,
            buf,
            result,
            ..
        } = completion;
        let slot = usize::try_from(token).expect("the token is a slot's number");
        let pending = self.pending[slot]
            .take()
            .expect("a request ends once, and its slot is kept until then");
        let Pending { file, mut split } = pending;
        self.bytes += file.ended(pos, result.map(|len| &buf.as_slice()[..len]));
        split.absorb(buf);
        self.pools.put(split.join());
        self.free.push(slot);
        file
    }
}
