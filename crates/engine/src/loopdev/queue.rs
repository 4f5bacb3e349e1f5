//! The queue of a loop device.
//!
//! Input: bios. Output: the same bios, ended, by way of requests on a queue of the volume below, or of the device's worker. Invariants:
//! submit and reap call the queue below directly; if that is full, bios stay in the submitter's list; flush is a sync of the file, FUA an
//! O_DSYNC write, discard a punched hole (rule L5); a bio without `nowait` never ends with `WouldBlock` (rule L6); bios in flight are all
//! of one mode (rule L1). Limits: none of its own.

use super::backing::Backing;
use super::flying::{Flight, Flying};
use super::words::{self, Abilities, Wish};
use super::worker::Lent;
use crate::error::Error;
use crate::op::Op;
use crate::policy::LoopMode;
use crate::queue::Queue;
use crate::request::{Completion, FileId, Request};
use diorite_block::sync::{DEVICE_SUBMIT, Mutex};
use diorite_block::{Bio, BioErrorKind, BioList, BioOp, DeviceQueue, Geometry, Waker};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct LoopQueue {
    queue: Queue,
    file: FileId,
    /// As it was when the queue was opened; only the size changes.
    geometry: Geometry,
    backing: Arc<Backing>,
    depth: usize,
    lent: Arc<Lent>,
    lists: Mutex<Lists>,
}

/// Lists for requests to be submitted and for reaped completions. They are kept so that no bio costs an allocation. `requests` is empty
/// whenever the lock is free.
#[derive(Debug)]
struct Lists {
    mode: LoopMode,
    requests: VecDeque<Request>,
    completions: Vec<Completion>,
    /// Bios that ended before they became requests.
    ended: Vec<Bio>,
    flying: Flying,
    /// Bios that the worker has, or has ended.
    lent: usize,
}

impl LoopQueue {
    pub(super) fn new(
        queue: Queue,
        file: FileId,
        backing: Arc<Backing>,
        depth: u32,
        waker: Arc<Waker>,
    ) -> LoopQueue {
        let level = backing.volume().level + 1;
        let lists = Lists {
            mode: backing.mode(),
            requests: VecDeque::new(),
            completions: Vec::new(),
            ended: Vec::new(),
            flying: Flying::default(),
            lent: 0,
        };
        LoopQueue {
            queue,
            file,
            geometry: backing.geometry(),
            depth: depth.clamp(1, crate::queue::MAX_DEPTH) as usize,
            lent: Arc::new(Lent::new(level, waker)),
            backing,
            lists: Mutex::at_level(&DEVICE_SUBMIT, level, lists),
        }
    }

    /// Ends a bio at once if it is refused, or if there is nothing to do.
    fn check(&self, lists: &mut Lists, able: Abilities, mut bio: Bio) -> Option<(Op, Bio)> {
        let geometry = Geometry {
            size: self.backing.size(),
            ..self.geometry
        };
        let checked = geometry.check(&bio);
        match checked.and_then(|()| able.wish(&bio)) {
            Ok(Wish::Ask(op)) => Some((op, bio)),
            other => {
                bio.result = other.map(|_| ());
                lists.ended.push(bio);
                None
            }
        }
    }

    /// Makes a request of a bio and puts it into `requests`; or ends the bio at once, into `ended`.
    fn take(&self, lists: &mut Lists, able: Abilities, bio: Bio) {
        let Some((op, mut bio)) = self.check(lists, able, bio) else {
            return;
        };
        let mut request = words::request(self.file, op, &mut bio);
        request.token = lists.flying.put(Flight {
            token: bio.token,
            flags: bio.flags,
            again: false,
            range: op.is_of_range().then(|| Box::new(bio)),
        });
        lists.requests.push_back(request);
    }

    /// Hands bios to the worker, as far as the queue has room.
    fn lend(&self, lists: &mut Lists, able: Abilities, bios: &mut BioList) {
        let room = self.depth.saturating_sub(lists.lent + lists.ended.len());
        let room = room.min(bios.len());
        let mut good = Vec::with_capacity(room);
        for bio in bios.drain(..room) {
            good.extend(self.check(lists, able, bio).map(|(_, bio)| bio));
        }
        lists.lent += good.len();
        if !good.is_empty() {
            self.backing.worker.push(good.into_iter(), &self.lent);
        }
    }

    /// Follows the policy, if nothing is in flight (rule L1). Returns whether bios may be taken.
    fn follow(&self, lists: &mut Lists) -> bool {
        let mode = self.backing.mode();
        if lists.mode == mode {
            return true;
        }
        if self.queue.in_use() + lists.ended.len() + lists.lent > 0 {
            return false;
        }
        if mode == LoopMode::DirectAsync && self.backing.file.inode().pages.has_unwritten() {
            self.backing.worker.clean();
        }
        lists.mode = mode;
        true
    }

    /// The end of a request.
    #[inline]
    fn end(&self, lists: &mut Lists, done: Completion, out: &mut BioList) {
        let mut flight = lists.flying.take(done.token);
        if let Some(mut bio) = flight.range.take() {
            let result = done.result.as_ref();
            bio.result = result.map(|_| ()).map_err(words::bio_error);
            if bio
                .result
                .is_err_and(|e| e.kind == BioErrorKind::Unsupported)
            {
                self.backing.able.note_refused(done.op);
            }
            self.judge(&mut bio);
            return out.push_back(*bio);
        }
        let told = matches!(done.result, Err(Error::WouldBlock(_)));
        if told && !flight.flags.nowait && !flight.again {
            flight.again = true;
            let durable = flight.flags.fua;
            let token = lists.flying.put(flight);
            let request = words::again(self.file, done, durable, token);
            return lists.requests.push_back(request);
        }
        out.push_back(words::ended(done, flight.token));
        if let Some(bio) = out.back_mut() {
            self.judge(bio);
        }
    }

    /// Looks at the result of a bio.
    #[inline]
    fn judge(&self, bio: &mut Bio) {
        if let Err(error) = bio.result {
            self.judge_failed(bio, error.kind);
        }
    }

    /// Counts reads behind the end; a discard that the file does not support succeeds (rules L2, L5).
    fn judge_failed(&self, bio: &mut Bio, kind: BioErrorKind) {
        match (bio.op, kind) {
            (BioOp::Read, BioErrorKind::Io) if bio.pos >= self.backing.file.size() => {
                self.backing.beyond_end.fetch_add(1, Relaxed);
            }
            (BioOp::Discard, BioErrorKind::Unsupported) => bio.result = Ok(()),
            _ => {}
        }
    }
}

impl DeviceQueue for LoopQueue {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        None
    }

    fn submit(&self, bios: &mut BioList) {
        let mut lists = self.lists.lock();
        if !self.follow(&mut lists) {
            return;
        }
        let able = self.backing.able.now();
        if lists.mode == LoopMode::BufferedSync {
            self.lend(&mut lists, able, bios);
        } else {
            let free = self.queue.free().saturating_sub(lists.ended.len());
            let room = free.min(bios.len());
            for bio in bios.drain(..room) {
                self.take(&mut lists, able, bio);
            }
            self.queue.submit(&mut lists.requests);
        }
        if !lists.ended.is_empty() {
            self.queue.kick();
        }
    }

    fn reap(&self, out: &mut BioList) -> usize {
        let mut lists = self.lists.lock();
        let before = out.len();
        if lists.lent > 0 {
            lists.lent -= self.lent.take(out);
            for bio in out.range_mut(before..) {
                self.judge(bio);
            }
        }
        let mut completions = std::mem::take(&mut lists.completions);
        self.queue.reap_below(&mut completions);
        for done in completions.drain(..) {
            self.end(&mut lists, done, out);
        }
        lists.completions = completions;
        out.extend(lists.ended.drain(..));
        if !lists.requests.is_empty() {
            self.queue.submit(&mut lists.requests);
        }
        out.len() - before
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        let lists = self.lists.lock();
        let (ended, lent) = (!lists.ended.is_empty(), lists.lent > 0);
        drop(lists);
        if !ended && (!lent || self.lent.is_empty()) {
            self.queue.wait(min as usize, timeout);
        }
    }

    fn in_flight(&self) -> u32 {
        let lists = self.lists.lock();
        let here = lists.ended.len() + lists.lent;
        drop(lists);
        u32::try_from(self.queue.in_use() + here).unwrap_or(u32::MAX)
    }

    fn signal_waker(&self) {
        self.queue.signal_waker();
    }

    fn forget_memory(&self) {
        self.queue.forget_memory();
    }
}

impl Drop for LoopQueue {
    /// The worker has done all that it was given.
    fn drop(&mut self) {
        let lent = self.lists.lock().lent;
        self.lent.wait_for(lent);
    }
}
