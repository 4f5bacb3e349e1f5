//! The common part of the queues of all three I/O engines, and the blocking way to run a slot.
//!
//! Input: slots with bios. Output: ended slots on a list that the reaper empties. Invariant: a thread puts only slots that it
//! owns on the ended list, and kicks the waker afterwards. Limits: the list is as long as the queue is deep.

use super::round::{MAX_ROUND, Round, apply_result, fill_iovecs, plan, rest, rw_flags};
use super::slots::{Giver, HostOp, Slot, Slots, Taker};
use super::target::Target;
use crate::bio::{Bio, BioList};
use crate::device::Waker;
use crate::sync::{DEVICE_SHARED, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A queue's shared part; pool threads that work for the queue hold it, too.
pub(super) struct Core {
    pub(super) target: Arc<Target>,
    pub(super) waker: Arc<Waker>,
    pub(super) slots: Slots,
    /// Slots that ended without the host's own completion queue.
    ended: Mutex<Vec<u32>>,
    ended_count: AtomicU32,
}

impl Core {
    /// The core of a queue of `depth`, with the rights of its two sides.
    pub(super) fn new(target: Arc<Target>, waker: Arc<Waker>, depth: u32) -> (Core, Taker, Giver) {
        let (slots, taker, giver) = Slots::new(depth);
        let core = Core {
            target,
            waker,
            slots,
            ended: Mutex::new(&DEVICE_SHARED, Vec::with_capacity(depth as usize)),
            ended_count: AtomicU32::new(0),
        };
        (core, taker, giver)
    }

    /// Adds an ended slot to the list of the reaper and wakes the waiter.
    pub(super) fn push_ended(&self, index: u32) {
        let mut ended = self.ended.lock();
        ended.push(index);
        self.ended_count
            .store(ended.len() as u32, Ordering::Release);
        drop(ended);
        self.waker.kick();
    }

    /// Slots on the ended list.
    #[inline]
    pub(super) fn ended(&self) -> u32 {
        self.ended_count.load(Ordering::Acquire)
    }

    /// The wait of a queue whose waker is kicked for each slot on the ended list: until there are `min`, or the time is over.
    pub(super) fn wait(&self, min: u32, timeout: Option<Duration>) {
        let enough = self.ended() >= min.max(1);
        let nothing = self.slots.in_flight() == 0 && timeout.is_some_and(|t| t.is_zero());
        if !enough && !nothing {
            self.waker.wait(timeout);
        }
    }

    /// Moves the ended list's bios to `out`.
    pub(super) fn reap_ended(&self, giver: &mut Giver, out: &mut BioList) -> usize {
        if self.ended() == 0 {
            return 0;
        }
        let mut ended = self.ended.lock();
        let count = ended.len();
        for index in ended.drain(..) {
            self.hand_out(giver, index, out);
        }
        self.ended_count.store(0, Ordering::Release);
        count
    }

    /// Takes the bio out of an ended slot that the caller owns, and frees the slot.
    #[inline]
    pub(super) fn hand_out(&self, giver: &mut Giver, index: u32, out: &mut BioList) {
        // SAFETY: the slot has ended and its number came to the caller from the host or from the ended list, once.
        let slot = unsafe { self.slots.slot(index) };
        out.extend(slot.bio.take());
        self.slots.give(giver, index);
    }

    /// Runs a slot that the caller owns to its end, blocking.
    pub(super) fn run_blocking(&self, index: u32) {
        // SAFETY: the number came to this thread through the pool's list, from the queue that owned the slot.
        run_slot(&self.target, unsafe { self.slots.slot(index) });
    }
}

/// Runs a bio to its end without a queue, blocking.
pub(super) fn run_here(target: &Target, bio: Bio) -> Bio {
    let mut slot = Slot::empty();
    let op = plan(target, &bio);
    slot.fill(bio, op);
    run_slot(target, &mut slot);
    slot.bio.take().expect("it was put in a few lines above")
}

fn run_slot(target: &Target, slot: &mut Slot) {
    loop {
        let res = call(target, slot);
        if apply_result(target, slot, res) == Round::Ended {
            return;
        }
    }
}

/// One blocking round; returns the bytes, or a negated errno.
fn call(target: &Target, slot: &mut Slot) -> i64 {
    let fd = target.raw_fd();
    let pos = position(target, slot);
    let res = match slot.op {
        HostOp::Nothing => return 0,
        HostOp::Read | HostOp::Write => return transfer(target, slot, pos),
        // SAFETY: fdatasync touches no memory of ours; the descriptor is the target's own.
        HostOp::Sync => i64::from(unsafe { libc::fdatasync(fd) }),
        HostOp::Fallocate(mode) => {
            let len = i64::try_from(slot.bio().len).unwrap_or(i64::MAX);
            // SAFETY: fallocate touches no memory of ours; the descriptor is the target's own.
            i64::from(unsafe { libc::fallocate(fd, mode, pos, len) })
        }
    };
    if res < 0 { -last_errno() } else { res }
}

fn last_errno() -> i64 {
    i64::from(
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
    )
}

/// The position in the file where the rest of the bio begins.
#[inline]
pub(super) fn position(target: &Target, slot: &Slot) -> i64 {
    // Geometry::check has kept pos inside the device, and the device lies inside a file, whose size is an i64.
    i64::try_from(target.base + slot.bio().pos + slot.done).unwrap_or(i64::MAX)
}

fn transfer(target: &Target, slot: &mut Slot, pos: i64) -> i64 {
    if slot.bio().buf.is_vectored() {
        if fill_iovecs(slot, target.geometry.logical).is_none() {
            return -i64::from(libc::EINVAL);
        }
    } else {
        let (start, len) = rest(slot);
        slot.iovecs.clear();
        slot.iovecs.push(libc::iovec {
            iov_base: start.cast(),
            iov_len: len as usize,
        });
    }
    debug_assert!(slot.iovecs.iter().map(|v| v.iov_len as u64).sum::<u64>() <= MAX_ROUND);
    let (fd, iov, flags) = (target.raw_fd(), slot.iovecs.as_ptr(), rw_flags(slot.bio()));
    let count = i32::try_from(slot.iovecs.len()).unwrap_or(i32::MAX);
    let res = if slot.op == HostOp::Read {
        // SAFETY: the iovecs name bytes of the slot's own buf, which nobody else touches while the slot is in use.
        unsafe { libc::preadv2(fd, iov, count, pos, flags) }
    } else {
        // SAFETY: as above; the bytes are only read.
        unsafe { libc::pwritev2(fd, iov, count, pos, flags) }
    };
    if res < 0 { -last_errno() } else { res as i64 }
}

/// The drop of a queue without a ring: waits for the bios in flight.
pub(super) fn drain_all(queue: &dyn crate::device::DeviceQueue) {
    let mut ended = BioList::new();
    while queue.in_flight() > 0 {
        if queue.reap(&mut ended) == 0 {
            // Not on the waker: other queues may share it, and its kicks are for them.
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        ended.clear();
    }
}
