//! Data: ranges of many files as requests in flight, and their arrival on the host.
//!
//! Input: files, ranges of bytes. Output: writes to the copies; for each ended request its file. Invariants: a request has a buf
//! from a pool, so memory is bounded; an error stays with its file; a short read is the end of the file. Limits: those of the
//! pools: 192 requests of up to 64 KiB and 64 of up to 1 MiB in flight.

use super::tree::Dir;
use crate::pools::{DEPTH, Pools};
use crate::report::Reason;
use diorite::{Completion, Error, File, FileId, Queue, Request, Volume};
use diorite_block::Split;
use rustix::fd::OwnedFd;
use rustix::io::{Errno, pwrite};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Requests that are submitted together.
const BATCH: usize = 32;

/// A file whose data is on its way. Whoever holds the last reference finishes it.
pub(super) struct Copying {
    pub(super) file: File,
    pub(super) id: FileId,
    pub(super) out: OwnedFd,
    pub(super) dir: Rc<Dir>,
    pub(super) name: Box<[u8]>,
    /// The first thing that went wrong.
    pub(super) trouble: RefCell<Option<Reason>>,
}

impl Copying {
    pub(super) fn new(file: File, id: FileId, out: OwnedFd, dir: Rc<Dir>, name: &[u8]) -> Copying {
        Copying {
            file,
            id,
            out,
            dir,
            name: name.into(),
            trouble: RefCell::new(None),
        }
    }

    /// Notes that something went wrong; the first thing stays.
    pub(super) fn failed(&self, reason: Reason) {
        self.trouble.borrow_mut().get_or_insert(reason);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.trouble.borrow().is_some()
    }
}

/// A request in flight.
struct Pending {
    copying: Rc<Copying>,
    /// Keeps the rest of the pool's buf.
    split: Split,
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
    /// What a request's length must be a multiple of.
    unit: u64,
}

impl Flow {
    pub(super) fn new(volume: &Volume) -> Result<Flow, Error> {
        Ok(Flow {
            queue: volume.queue(u32::try_from(DEPTH).expect("the depth is a small constant"))?,
            pools: Pools::new(),
            pending: (0..DEPTH).map(|_| None).collect(),
            free: (0..DEPTH).rev().collect(),
            batch: VecDeque::with_capacity(BATCH),
            done: Vec::with_capacity(DEPTH),
            bytes: 0,
            unit: u64::from(volume.device().geometry().logical),
        })
    }

    pub(super) fn attach(&self, file: &File) -> Result<FileId, Error> {
        self.queue.attach(file)
    }

    pub(super) fn detach(&self, id: FileId) {
        self.queue.detach(id);
    }

    /// Bytes written to copies so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Is anything under way?
    pub(super) fn is_busy(&self) -> bool {
        self.free.len() < self.pending.len()
    }

    /// Asks for bytes from `from`, at most up to `until`; says where to go on. None if all bufs of the size are in use.
    pub(super) fn start(&mut self, copying: &Rc<Copying>, from: u64, until: u64) -> Option<u64> {
        let want = (until - from).next_multiple_of(self.unit);
        let buf = self.pools.get(want)?;
        let len = want.min(buf.len() as u64);
        let slot = self
            .free
            .pop()
            .expect("there are as many slots as bufs, and a buf was free");
        let mut split = Split::new(buf);
        let part = split.take(usize::try_from(len).expect("a buf's length is a usize"));
        self.batch
            .push_back(Request::read(copying.id, from, part, slot as u64));
        let copying = copying.clone();
        self.pending[slot] = Some(Pending { copying, split });
        if self.batch.len() >= BATCH {
            self.queue.submit(&mut self.batch);
        }
        Some(from + len)
    }

    /// Writes what has arrived to the copies; gives back one reference per ended request.
    pub(super) fn ended(&mut self, wait: bool) -> Vec<Rc<Copying>> {
        self.queue.submit(&mut self.batch);
        self.queue.reap(&mut self.done, usize::from(wait), None);
        let mut done = std::mem::take(&mut self.done);
        let files = done.drain(..).map(|c| self.arrive(c)).collect();
        self.done = done;
        files
    }

    fn arrive(&mut self, completion: Completion) -> Rc<Copying> {
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
        let Pending { copying, mut split } = pending;
        match result {
            Ok(len) if !copying.has_failed() => {
                self.bytes += len as u64;
                if let Err(errno) = write_all(&copying.out, &buf.as_slice()[..len], pos) {
                    copying.failed(Reason::host("cannot write the copy", errno));
                }
            }
            Ok(_) => {}
            Err(error) => copying.failed(error.into()),
        }
        split.absorb(buf);
        self.pools.put(split.join());
        self.free.push(slot);
        copying
    }
}

fn write_all(out: &OwnedFd, mut bytes: &[u8], mut pos: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match pwrite(out, bytes, pos) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => {
                bytes = &bytes[n..];
                pos += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
