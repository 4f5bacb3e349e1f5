//! Data of files as requests in flight: out of an image, into one, or from one to the other. Many at once, of many files.
//!
//! Input: files of images, ranges of bytes, bytes to write. Output: each ended request told to its file. Invariants: a request has a buf
//! from a pool, so memory is bounded; what is read from one image is written to the other from the same buf; an error stays with its
//! file; the last bytes of a file go down with the others, in a buf that ends with their sector. Limits: those of the pools.

mod pools;

use crate::report::Reason;
use diorite::{Completion, Error, File, FileId, Queue, Request, Volume};
use diorite_block::{Buf, Split};
use pools::{DEPTH, Pools};
use std::collections::VecDeque;
use std::rc::Rc;

/// Requests that are submitted together.
const BATCH: usize = 32;

/// What becomes of a file of which less could be read than there was.
pub(crate) const SHORTER: &str = "it became shorter while it was copied";

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
    /// Bytes of the file that it is about.
    len: usize,
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

/// The requests to one image.
struct Lane {
    queue: Queue,
    batch: VecDeque<Request>,
    done: Vec<Completion>,
    /// Those that have not ended.
    flying: usize,
    /// What a request's buf must be a multiple of.
    unit: usize,
}

impl Lane {
    fn new(volume: &Volume) -> Result<Lane, Error> {
        let logical = volume.device().geometry().logical;
        Ok(Lane {
            queue: volume.queue(u32::try_from(DEPTH).expect("the depth is a small constant"))?,
            batch: VecDeque::with_capacity(BATCH),
            done: Vec::with_capacity(DEPTH),
            flying: 0,
            unit: usize::try_from(logical).expect("a sector is small"),
        })
    }

    fn push(&mut self, request: Request) {
        self.batch.push_back(request);
        self.flying += 1;
        if self.batch.len() >= BATCH {
            self.queue.submit(&mut self.batch);
        }
    }

    /// What has ended; waits for one request if told so. The list is to be given back, empty.
    fn reap(&mut self, wait: bool) -> Vec<Completion> {
        self.queue.submit(&mut self.batch);
        self.queue.reap(&mut self.done, usize::from(wait), None);
        self.flying -= self.done.len();
        std::mem::take(&mut self.done)
    }
}

/// Another image, that is read from; and who is told what could not be read.
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
    /// Between the host and an image.
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

    /// Into `volume`, from another one or itself. `failed` is told what could not be read.
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

    /// A file that is read from; none where that is none of an image's.
    pub(crate) fn attach_source(&self, file: &File) -> Option<Result<FileId, Error>> {
        Some(self.source.as_ref()?.lane.queue.attach(file))
    }

    pub(crate) fn detach_source(&self, id: FileId) {
        if let Some(source) = &self.source {
            source.lane.queue.detach(id);
        }
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
        let piece = self.piece(until - from)?;
        let whole = piece.len.next_multiple_of(self.lane.unit);
        let request = self.prepare(file, piece, whole, |part, token| {
            Request::read(file.id(), from, part, token)
        });
        self.lane.push(request);
        Some(from + whole as u64)
    }

    /// As [`Flow::read`], of a file that is read from: what comes is written at the same place of `file`.
    pub(crate) fn fetch(
        &mut self,
        file: &Rc<T>,
        source: FileId,
        (from, until): (u64, u64),
    ) -> Option<u64> {
        let piece = self.piece(until - from)?;
        let unit = self.source.as_ref()?.lane.unit;
        let (len, whole) = (piece.len as u64, piece.len.next_multiple_of(unit));
        let request = self.prepare(file, piece, whole, |part, token| {
            Request::read(source, from, part, token)
        });
        self.source.as_mut()?.lane.push(request);
        Some(from + len)
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

    /// Tells what has ended to its files; gives back one reference per request. Waits for a request if told so.
    pub(crate) fn ended(&mut self, wait: bool) -> Vec<Rc<T>> {
        let mut files = Vec::new();
        let fetches = self.source.as_ref().is_some_and(|s| s.lane.flying > 0);
        if fetches {
            self.fetched(wait, &mut files);
        }
        let mut done = self.lane.reap(wait && !fetches);
        files.extend(done.drain(..).map(|c| self.end(c)));
        self.lane.done = done;
        files
    }

    /// What was read from the other image is written to this one; gives back the references of what was not read.
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

    /// The request of a token, which has ended.
    fn take(&mut self, token: u64) -> Pending<T> {
        let slot = usize::try_from(token).expect("the token is a slot's number");
        let pending = self.pending[slot]
            .take()
            .expect("a request ends once, and its slot is kept until then");
        self.free.push(slot);
        pending
    }
}
