//! Copies the data of files with many requests in flight, of many files at once: out of an image, into an image, or from one
//! image to another.
//!
//! Input: files of images, ranges of bytes, bytes to write. Output: calls of [`Moving::ended`] for each ended request.
//! Invariants: a request has a buf from a pool, so memory is bounded; data that is read from one image is written to the other
//! from the same buf; an error affects only its file; the last bytes of a file are written like the others, with a buf whose
//! length is rounded up to a sector. Limits: those of the pools.

mod pools;

use crate::output::report::Reason;
use diorite::{Completion, Error, File, FileId, Queue, Request, Volume};
use diorite_block::{Buf, Split};
use pools::{DEPTH, Pools};
use std::collections::VecDeque;
use std::rc::Rc;

/// The number of requests that are submitted together.
const BATCH: usize = 32;

/// Memory that a flow takes: its buffers, and those of the image's queue.
pub(crate) const MEMORY: usize = 96 << 20;

/// The message for a file whose read returned fewer bytes than its size promised.
pub(crate) const SHORTER: &str = "it became shorter while it was copied";

/// A file with requests in flight. The caller finishes the file when it holds the last reference.
pub(crate) trait Moving {
    /// The file of the image, as attached to the queue.
    fn id(&self) -> FileId;
    /// Called for each ended request at byte `pos`, with the bytes that it read or with its error. Returns how many bytes it
    /// copied.
    fn ended(&self, pos: u64, result: Result<&[u8], Error>) -> u64;
}

/// A request in flight.
struct Pending<T> {
    file: Rc<T>,
    /// The rest of the pool's buf, behind the part that the request has.
    split: Split,
    /// Bytes of the file that the request is for; the request itself is rounded up to a sector.
    len: usize,
}

/// A buf to be filled with bytes of a file.
pub(crate) struct Piece {
    buf: Buf,
    len: usize,
}

impl Piece {
    /// The bytes to fill.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.buf.as_mut_slice()[..self.len]
    }

    /// Says that only `len` bytes were filled.
    pub(crate) fn shorten(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

/// The requests to one image.
struct Lane {
    queue: Queue,
    batch: VecDeque<Request>,
    done: Vec<Completion>,
    /// Requests that have not ended.
    in_flight: usize,
    /// The length of a request's buf must be a multiple of this: the device's logical sector.
    unit: usize,
}

impl Lane {
    fn new(volume: &Volume) -> Result<Lane, Error> {
        let logical = volume.device().geometry().logical;
        Ok(Lane {
            queue: volume.queue(u32::try_from(DEPTH).expect("the depth is a small constant"))?,
            batch: VecDeque::with_capacity(BATCH),
            done: Vec::with_capacity(DEPTH),
            in_flight: 0,
            unit: usize::try_from(logical).expect("a sector is small"),
        })
    }

    fn push(&mut self, request: Request) {
        self.batch.push_back(request);
        self.in_flight += 1;
        if self.batch.len() >= BATCH {
            self.queue.submit(&mut self.batch);
        }
    }

    /// Returns the ended requests; with `wait`, waits for at least one. The caller empties the list and puts it back into
    /// `done`.
    fn reap(&mut self, wait: bool) -> Vec<Completion> {
        self.queue.submit(&mut self.batch);
        self.queue.reap(&mut self.done, usize::from(wait), None);
        self.in_flight -= self.done.len();
        std::mem::take(&mut self.done)
    }
}

/// The other image, from which data is read, and the function that is told why a read failed.
struct Source<T> {
    lane: Lane,
    failed: fn(&T, Reason),
}

/// See the module.
pub(crate) struct Flow<T> {
    lane: Lane,
    source: Option<Source<T>>,
    pools: Pools,
    pending: Vec<Option<Pending<T>>>,
    free: Vec<usize>,
    bytes: u64,
}

impl<T: Moving> Flow<T> {
    /// A flow between the host and an image.
    pub(crate) fn new(volume: &Volume) -> Result<Flow<T>, Error> {
        Ok(Flow {
            lane: Lane::new(volume)?,
            source: None,
            pools: Pools::new(),
            pending: (0..DEPTH).map(|_| None).collect(),
            free: (0..DEPTH).rev().collect(),
            bytes: 0,
        })
    }

    /// A flow into `volume` from another volume or from itself. `failed` is called when a read fails.
    pub(crate) fn between(
        source: &Volume,
        volume: &Volume,
        failed: fn(&T, Reason),
    ) -> Result<Flow<T>, Error> {
        let lane = Lane::new(source)?;
        Ok(Flow {
            source: Some(Source { lane, failed }),
            ..Flow::new(volume)?
        })
    }

    pub(crate) fn attach(&self, file: &File) -> Result<FileId, Error> {
        self.lane.queue.attach(file)
    }

    pub(crate) fn detach(&self, id: FileId) {
        self.lane.queue.detach(id);
    }

    /// Attaches a file of the source image; none if the source is not an image.
    pub(crate) fn attach_source(&self, file: &File) -> Option<Result<FileId, Error>> {
        Some(self.source.as_ref()?.lane.queue.attach(file))
    }

    pub(crate) fn detach_source(&self, id: FileId) {
        if let Some(source) = &self.source {
            source.lane.queue.detach(id);
        }
    }

    /// Counts bytes that were copied without a request.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Bytes copied so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a request is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.free.len() < self.pending.len()
    }

    /// Submits a read of bytes from `from`, at most up to `until`; returns the offset at which to continue. None if all bufs of
    /// the size are in use.
    pub(crate) fn read(&mut self, file: &Rc<T>, from: u64, until: u64) -> Option<u64> {
        let piece = self.piece(until - from)?;
        let whole = piece.len.next_multiple_of(self.lane.unit);
        let request = self.prepare(file, piece, whole, |part, token| {
            Request::read(file.id(), from, part, token)
        });
        self.lane.push(request);
        Some(from + whole as u64)
    }

    /// Like [`Flow::read`], but reads `source`, a file of the source image. The data that it returns is written to `file` at
    /// the same offset.
    pub(crate) fn fetch(
        &mut self,
        file: &Rc<T>,
        source: FileId,
        (from, until): (u64, u64),
    ) -> Option<u64> {
        let unit = self.source.as_ref()?.lane.unit;
        let piece = self.piece(until - from)?;
        let (len, whole) = (piece.len as u64, piece.len.next_multiple_of(unit));
        let request = self.prepare(file, piece, whole, |part, token| {
            Request::read(source, from, part, token)
        });
        self.source.as_mut()?.lane.push(request);
        Some(from + len)
    }

    /// A buf for up to `left` bytes; none if all bufs of its size are in use.
    pub(crate) fn piece(&self, left: u64) -> Option<Piece> {
        let buf = self.pools.get(left)?;
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        Some(Piece { buf, len })
    }

    /// Returns a piece to its pool without writing it.
    pub(crate) fn give_back(&self, piece: Piece) {
        self.pools.put(piece.buf);
    }

    /// Submits a write of a filled piece to byte `at`; returns its length.
    pub(crate) fn write(&mut self, file: &Rc<T>, at: u64, piece: Piece) -> u64 {
        let len = piece.len;
        let (whole, bytes) = (len.next_multiple_of(self.lane.unit), len as u64);
        let request = self.prepare(file, piece, whole, |part, token| match whole == len {
            true => Request::write(file.id(), at, part, token),
            false => Request::write_last(file.id(), at, part, bytes, token),
        });
        self.lane.push(request);
        bytes
    }

    /// A request on the first `whole` bytes of a piece's buf.
    fn prepare(
        &mut self,
        file: &Rc<T>,
        Piece { buf, len }: Piece,
        whole: usize,
        request: impl FnOnce(Buf, u64) -> Request,
    ) -> Request {
        let slot = self
            .free
            .pop()
            .expect("there are as many slots as bufs, and a buf was free");
        let mut split = Split::new(buf);
        let part = split.take(whole);
        let file = file.clone();
        self.pending[slot] = Some(Pending { file, split, len });
        request(part, slot as u64)
    }

    /// Calls [`Moving::ended`] for the ended requests and returns the reference to the file that each held. With `wait`, waits
    /// for at least one request.
    pub(crate) fn ended(&mut self, wait: bool) -> Vec<Rc<T>> {
        let mut files = Vec::new();
        let fetches = self.source.as_ref().is_some_and(|s| s.lane.in_flight > 0);
        if fetches {
            self.fetched(wait, &mut files);
        }
        let mut done = self.lane.reap(wait && !fetches);
        files.extend(done.drain(..).map(|c| self.end(c)));
        self.lane.done = done;
        files
    }

    /// Writes to this image the data that was read from the source image. Adds to `files` the references of the reads that
    /// failed.
    fn fetched(&mut self, wait: bool, files: &mut Vec<Rc<T>>) {
        let Some(source) = &mut self.source else {
            return;
        };
        let (mut done, failed) = (source.lane.reap(wait), source.failed);
        for completion in done.drain(..) {
            let Pending {
                file,
                mut split,
                len,
            } = self.take(completion.token);
            split.absorb(completion.buf);
            let buf = split.join();
            let problem = match completion.result {
                Ok(got) if got >= len => {
                    self.write(&file, completion.pos, Piece { buf, len });
                    continue;
                }
                Ok(_) => Reason::new(SHORTER),
                Err(error) => error.into(),
            };
            self.pools.put(buf);
            failed(&file, problem);
            files.push(file);
        }
        if let Some(source) = &mut self.source {
            source.lane.done = done;
        }
    }

    fn end(&mut self, completion: Completion) -> Rc<T> {
        let Completion {
            token,
            pos,
            buf,
            result,
            ..
        } = completion;
        let Pending {
            file, mut split, ..
        } = self.take(token);
        self.bytes += file.ended(pos, result.map(|len| &buf.as_slice()[..len]));
        split.absorb(buf);
        self.pools.put(split.join());
        file
    }

    /// Frees the slot of an ended request and returns its contents.
    fn take(&mut self, token: u64) -> Pending<T> {
        let slot = usize::try_from(token).expect("the token is a slot's number");
        let pending = self.pending[slot]
            .take()
            .expect("a request ends once, and its slot is kept until then");
        self.free.push(slot);
        pending
    }
}
