//! The fixed pool of slots of a queue: one for each request that was accepted and not yet handed back.
//!
//! Input: requests. Output: the same, with what became of them. Invariant: a slot is in one [`SlotState`] at a time, and
//! only the holder of the queue's lock changes it. Limits: the pool never grows.

use super::request::{Completion, Op, Request, RequestFlags};
use crate::error::Error;
use crate::ioend::Gather;
use diorite_block::{BioError, Buf, Split};

/// Where a slot's request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// Nowhere: the slot is free.
    Free,
    /// In hand: being checked, mapped, planned or gathered by the thread that holds the queue's lock.
    Active,
    /// With the device.
    InFlight,
    /// On a gate's list.
    Parked,
    /// With a worker, before submission or for its completion.
    Worker,
    /// Finished: waits to be handed back.
    Ready,
}

/// The memory of a request, wherever it is.
#[derive(Debug)]
pub(crate) enum SlotBuf {
    /// Here, whole; or, in flight, away whole with the only bio.
    Whole(Buf),
    /// Cut into parts that several bios carry.
    Parts(Split),
}

impl Default for SlotBuf {
    fn default() -> Self {
        SlotBuf::Whole(Buf::empty())
    }
}

/// What a request holds of its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Nothing.
    None,
    /// It is counted in flight.
    InFlight,
    /// It has the exclusive turn.
    Turn,
}

/// One request in the pool.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) state: SlotState,
    pub(crate) hold: Hold,
    /// What it will hold once the gate that it is parked on releases it.
    pub(crate) wanted: Hold,
    pub(crate) op: Op,
    pub(crate) flags: RequestFlags,
    /// A flush must follow the data before the request is acknowledged.
    pub(crate) owes_flush: bool,
    /// Index of the attached file.
    pub(crate) file: u32,
    pub(crate) pos: u64,
    /// Bytes asked.
    pub(crate) len: u32,
    /// Bytes that a success reports.
    pub(crate) done: u32,
    /// After a read, bytes `done..zero_to` of the buffer are past the end of the file and are zeroed.
    pub(crate) zero_to: u32,
    pub(crate) token: u64,
    pub(crate) gather: Gather,
    pub(crate) buf: SlotBuf,
    pub(crate) error: Option<Error>,
}

impl Slot {
    fn free() -> Slot {
        Slot {
            state: SlotState::Free,
            hold: Hold::None,
            wanted: Hold::None,
            op: Op::Read,
            flags: RequestFlags::default(),
            owes_flush: false,
            file: 0,
            pos: 0,
            len: 0,
            done: 0,
            zero_to: 0,
            token: 0,
            gather: Gather::default(),
            buf: SlotBuf::default(),
            error: None,
        }
    }

    /// One past the last byte asked. Cannot wrap: the position was checked when the request started.
    pub(crate) fn end(&self) -> u64 {
        self.pos.saturating_add(u64::from(self.len))
    }

    /// Notes why the request fails; the first reason sticks.
    pub(crate) fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    /// Takes back a bio's buffer and its verdict. True if it was the last reference.
    #[inline]
    pub(crate) fn take_back(&mut self, buf: Buf, result: Result<(), BioError>) -> bool {
        match &mut self.buf {
            SlotBuf::Whole(whole) => *whole = buf,
            SlotBuf::Parts(split) => split.absorb(buf),
        }
        self.gather.put(result)
    }
}

/// The pool.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    free: Vec<u32>,
}

impl Slots {
    pub(crate) fn new(depth: u32) -> Slots {
        Slots {
            slots: (0..depth).map(|_| Slot::free()).collect(),
            free: (0..depth).rev().collect(),
        }
    }

    /// Slots that could take a request.
    #[inline]
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Slots with a request.
    #[inline]
    pub(crate) fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Puts a request into a free slot; hands it back if there is none.
    #[inline]
    pub(crate) fn put(&mut self, request: Request) -> Result<u32, Request> {
        let Some(index) = self.free.pop() else {
            return Err(request);
        };
        let slot = &mut self.slots[index as usize];
        debug_assert_eq!(slot.state, SlotState::Free);
        slot.state = SlotState::Active;
        slot.op = request.op;
        slot.flags = request.flags;
        slot.file = request.file.index;
        slot.pos = request.pos;
        slot.token = request.token;
        slot.owes_flush = false;
        slot.len = u32::try_from(request.buf.len()).expect("a buf is at most 2 GiB");
        slot.done = 0;
        slot.zero_to = 0;
        slot.buf = SlotBuf::Whole(request.buf);
        Ok(index)
    }

    /// Takes a finished request out and frees its slot.
    #[inline]
    pub(crate) fn take(&mut self, index: u32) -> Completion {
        let slot = &mut self.slots[index as usize];
        debug_assert_eq!((slot.state, slot.hold), (SlotState::Ready, Hold::None));
        slot.state = SlotState::Free;
        let buf = match std::mem::take(&mut slot.buf) {
            SlotBuf::Whole(buf) => buf,
            SlotBuf::Parts(split) => split.join(),
        };
        let result = match slot.error.take() {
            None => Ok(slot.done as usize),
            Some(error) => Err(error),
        };
        let completion = Completion {
            token: slot.token,
            op: slot.op,
            pos: slot.pos,
            buf,
            result,
        };
        self.free.push(index);
        completion
    }
}

impl std::ops::Index<u32> for Slots {
    type Output = Slot;
    #[inline]
    fn index(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Slots {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }
}
