//! The fixed pool of a queue's bios in flight: slots, and the ring of free slots between the two sides of the queue.
//!
//! Input: bios, from the submitting side. Output: the same bios, to the reaping side. Invariant: a slot has one owner at a time
//! (the free ring, the submitting side, the host, the reaping side), which passes it on by its number. Each pool has one
//! [`Taker`] and one [`Giver`], each behind its side's lock. Limits: the depth is fixed; nothing is allocated per request (the
//! iovecs of vectored bufs are kept in the slot and grow to the largest number seen).

use crate::bio::{Bio, BioError};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

/// The host operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostOp {
    /// The bio has already ended; the reaper has not seen it yet.
    Nothing,
    /// Read into the buf.
    Read,
    /// Write from the buf.
    Write,
    /// fdatasync.
    Sync,
    /// fallocate with this mode.
    Fallocate(i32),
}

/// A bio in flight and its progress.
pub(super) struct Slot {
    /// The bio; none only while the slot is free.
    pub(super) bio: Option<Bio>,
    /// The host operation for it.
    pub(super) op: HostOp,
    /// Bytes transferred by earlier rounds.
    pub(super) done: u64,
    /// Rounds without progress.
    pub(super) idle_rounds: u32,
    /// The result, if it was known before the host was called.
    pub(super) verdict: Result<(), BioError>,
    /// The host's view of a vectored buf; must not move while the host uses it.
    pub(super) iovecs: Vec<libc::iovec>,
}

impl Slot {
    pub(super) fn empty() -> Slot {
        Slot {
            bio: None,
            op: HostOp::Nothing,
            done: 0,
            idle_rounds: 0,
            verdict: Ok(()),
            iovecs: Vec::new(),
        }
    }

    /// Puts a bio into a free slot.
    #[inline]
    pub(super) fn fill(&mut self, bio: Bio, op: Result<HostOp, BioError>) {
        debug_assert!(self.bio.is_none(), "a free slot holds no bio");
        self.bio = Some(bio);
        self.done = 0;
        self.idle_rounds = 0;
        (self.op, self.verdict) = match op {
            Ok(op) => (op, Ok(())),
            Err(e) => (HostOp::Nothing, Err(e)),
        };
    }

    /// The bio of a slot that is in use.
    #[inline]
    pub(super) fn bio(&self) -> &Bio {
        self.bio.as_ref().expect("a slot in use holds its bio")
    }

    /// The bio of a slot that is in use.
    #[inline]
    pub(super) fn bio_mut(&mut self) -> &mut Bio {
        self.bio.as_mut().expect("a slot in use holds its bio")
    }
}

/// The right to take free slots: one per pool, behind the submitting side's lock.
pub(super) struct Taker {
    head: u32,
}

/// The right to give slots back: one per pool, behind the reaping side's lock.
pub(super) struct Giver {
    tail: u32,
}

/// The pool.
pub(super) struct Slots {
    cells: Box<[UnsafeCell<Slot>]>,
    /// The free slots are the entries between `head` and `tail`.
    free: Box<[AtomicU32]>,
    head: AtomicU32,
    tail: AtomicU32,
}

// SAFETY: a slot is reached only through `Slots::slot`, whose caller owns it; the pointers in `iovecs` point into the
// bio's own buf, which is Send.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

impl Slots {
    /// A pool of `depth` free slots.
    pub(super) fn new(depth: u32) -> (Slots, Taker, Giver) {
        let slots = Slots {
            cells: (0..depth).map(|_| UnsafeCell::new(Slot::empty())).collect(),
            free: (0..depth).map(AtomicU32::new).collect(),
            head: AtomicU32::new(0),
            tail: AtomicU32::new(depth),
        };
        (slots, Taker { head: 0 }, Giver { tail: depth })
    }

    /// The number of slots.
    pub(super) fn depth(&self) -> u32 {
        // The pool was made from a u32.
        self.cells.len() as u32
    }

    /// Whether a slot is free.
    #[inline]
    pub(super) fn has_free(&self, taker: &Taker) -> bool {
        self.tail.load(Ordering::Acquire) != taker.head
    }

    /// Takes a free slot, which then belongs to the caller.
    #[inline]
    pub(super) fn take(&self, taker: &mut Taker) -> Option<u32> {
        if !self.has_free(taker) {
            return None;
        }
        let at = taker.head as usize % self.free.len();
        let index = self.free[at].load(Ordering::Relaxed);
        taker.head = taker.head.wrapping_add(1);
        self.head.store(taker.head, Ordering::Release);
        Some(index)
    }

    /// Gives back a slot whose bio was taken out.
    #[inline]
    pub(super) fn give(&self, giver: &mut Giver, index: u32) {
        let at = giver.tail as usize % self.free.len();
        self.free[at].store(index, Ordering::Relaxed);
        giver.tail = giver.tail.wrapping_add(1);
        self.tail.store(giver.tail, Ordering::Release);
    }

    /// Slots that are not free.
    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        loop {
            let head = self.head.load(Ordering::Acquire);
            let tail = self.tail.load(Ordering::Acquire);
            // If the head is unchanged, both values are from one moment.
            if self.head.load(Ordering::Acquire) == head {
                return self.depth() - tail.wrapping_sub(head);
            }
        }
    }

    /// The slot of that number.
    ///
    /// # Safety
    /// The caller owns the slot: it took it, or the host, a list or another thread has just handed it over.
    #[inline]
    #[expect(
        clippy::mut_from_ref,
        reason = "ownership of a slot travels by its number"
    )]
    pub(super) unsafe fn slot(&self, index: u32) -> &mut Slot {
        // SAFETY: the caller is the only one with a right to this slot.
        unsafe { &mut *self.cells[index as usize].get() }
    }
}
