//! The fixed pool of slots of a queue: one for each request that was accepted and not yet handed back.
//!
//! Input: requests. Output: the same, with what became of them. Invariant: a slot is in one [`SlotState`] at a time, and
//! only the holder of the queue's lock changes it. Limits: the pool never grows.

use crate::error::Error;
use crate::ioend::Gather;
use crate::op::Op;
use crate::policy::{CompletionPolicy, Policy};
use crate::request::{Completion, Request, RequestFlags};
use crate::turn::Hold;
use diorite_block::{Bio, BioError, BioOp, Buf, Epoch, Split};

/// No slot.
const NONE: u32 = u32::MAX;

/// Where a slot's request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// Nowhere: the slot is free.
    Free,
    /// In hand, or with the device.
    Active,
    /// With the device in a single bio that carries all its memory, counted in flight, and owing nothing at its end.
    Single,
    /// On a gate's list.
    Parked,
    /// With a worker, before submission or for its completion.
    Worker,
    /// Finished: waits to be handed back.
    Ready,
}

/// One request in the pool.
#[derive(Debug)]
pub(crate) struct Slot {
    /// While it is free: the next free slot.
    next_free: u32,
    pub(crate) state: SlotState,
    pub(crate) hold: Hold,
    /// What it will hold once the gate that it is parked on releases it.
    pub(crate) wanted: Hold,
    pub(crate) op: Op,
    pub(crate) flags: RequestFlags,
    /// The volume's policy when it began (rule D6).
    pub(crate) policy: Policy,
    /// A flush must follow the data before the request is acknowledged.
    pub(crate) owes_flush: bool,
    /// Of a write that has to be mapped, or be durable: an epoch before its first bio went down. Of a sync: of which failed flush its open file had been
    /// told when it began.
    pub(crate) began: Option<Epoch>,
    /// Its first block in the pending map, if it is there.
    pub(crate) entry: Option<u64>,
    /// It ended past the size when that was looked at last.
    pub(crate) past_end: bool,
    /// It is counted in the order in which the size moves.
    pub(crate) extends: bool,
    /// It has ended and waits for the size to move over others, which may be another queue's.
    pub(crate) held: bool,
    /// The block behind the file's end in which it may leave bytes.
    pub(crate) tail: Option<u64>,
    /// What it wrote is not mapped yet.
    pub(crate) owes_map: bool,
    /// The transaction that last changed the file must be durable before the request is acknowledged.
    pub(crate) owes_commit: bool,
    /// Several bios carry parts of the buffer: see [`Slots::splits`].
    pub(crate) in_parts: bool,
    /// Index of the attached file.
    pub(crate) file: u32,
    /// Bytes asked; fewer than the buffer has only for [`Request::write_last`].
    pub(crate) len: u32,
    /// The same, where no buffer holds them: of an operation on a range.
    pub(crate) range_len: u64,
    /// Bytes that a success reports.
    pub(crate) done: u32,
    /// Bytes that move. Those in `done..moved` are past the end of the file: of a read they are zeroed at the end, of a write at the start.
    pub(crate) moved: u32,
    pub(crate) pos: u64,
    pub(crate) token: u64,
    pub(crate) gather: Gather,
    /// The request's memory, unless bios have it.
    pub(crate) buf: Buf,
    pub(crate) error: Option<Box<Error>>,
}

impl Slot {
    pub(crate) fn free(next: u32) -> Slot {
        Slot {
            next_free: next,
            state: SlotState::Free,
            hold: Hold::None,
            wanted: Hold::None,
            op: Op::Read,
            flags: RequestFlags::default(),
            policy: Policy::DIORITE,
            owes_flush: false,
            began: None,
            entry: None,
            past_end: false,
            extends: false,
            held: false,
            tail: None,
            owes_map: false,
            owes_commit: false,
            in_parts: false,
            file: 0,
            len: 0,
            range_len: 0,
            done: 0,
            moved: 0,
            pos: 0,
            token: 0,
            gather: Gather::default(),
            buf: Buf::empty(),
            error: None,
        }
    }

    fn owe_nothing(&mut self) {
        self.owes_flush = false;
        self.began = None;
        self.entry = None;
        self.past_end = false;
        self.extends = false;
        self.tail = None;
        self.owes_map = false;
        self.owes_commit = false;
    }

    /// One past the last byte asked. Cannot wrap: the position was checked when the request started.
    pub(crate) fn end(&self) -> u64 {
        self.pos.saturating_add(u64::from(self.len))
    }

    /// It writes the last bytes of a file, and zeros behind them. To be asked before the buffer goes down.
    pub(crate) fn is_last(&self) -> bool {
        self.op == Op::Write && self.len as usize != self.buf.len()
    }

    /// Others may wait for its range, or for the size to move over it: it must not wait for them to end (rule D6).
    pub(crate) fn is_waited_for(&self) -> bool {
        self.entry.is_some() || self.extends
    }

    /// Notes why the request fails; the first reason sticks.
    pub(crate) fn fail(&mut self, error: Box<Error>) {
        self.error.get_or_insert(error);
    }
}

/// The pool.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    /// The buffers of the slots that are `in_parts`.
    splits: Box<[Option<Split>]>,
    /// The first free slot, which names the next; [`NONE`] if all are taken.
    first_free: u32,
    free: usize,
}

impl Slots {
    pub(crate) fn new(depth: u32) -> Slots {
        Slots {
            slots: (0..depth)
                .map(|i| Slot::free(if i + 1 < depth { i + 1 } else { NONE }))
                .collect(),
            splits: (0..depth).map(|_| None).collect(),
            first_free: 0,
            free: depth as usize,
        }
    }

    /// Slots that could take a request.
    #[inline]
    pub(crate) fn free(&self) -> usize {
        self.free
    }

    /// Slots with a request.
    #[inline]
    pub(crate) fn used(&self) -> usize {
        self.slots.len() - self.free
    }

    /// Puts a request of `len` bytes into a free slot, to be served under this policy from its beginning to its end.
    ///
    /// # Panics
    /// If there is none: the caller counted.
    #[inline]
    pub(crate) fn put(&mut self, request: &mut Request, len: u32, policy: Policy) -> u32 {
        let index = self.first_free;
        let slot = self
            .slots
            .get_mut(index as usize)
            .expect("the caller counted the free slots");
        self.first_free = slot.next_free;
        self.free -= 1;
        debug_assert_eq!(slot.state, SlotState::Free);
        slot.state = SlotState::Active;
        slot.op = request.op;
        slot.flags = request.flags;
        slot.policy = policy;
        slot.owe_nothing();
        slot.file = request.file.index;
        slot.len = len;
        slot.range_len = request.len;
        slot.done = 0;
        slot.moved = 0;
        slot.pos = request.pos;
        slot.token = request.token;
        slot.buf = std::mem::take(&mut request.buf);
        index
    }

    /// Puts a request into a free slot whose memory goes straight into its only bio.
    ///
    /// # Panics
    /// If there is none: the caller counted.
    #[inline(always)]
    pub(crate) fn put_single(&mut self, request: &Request) -> u32 {
        let index = self.first_free;
        let slot = self
            .slots
            .get_mut(index as usize)
            .expect("the caller counted the free slots");
        self.first_free = slot.next_free;
        self.free -= 1;
        debug_assert_eq!(slot.state, SlotState::Free);
        slot.state = SlotState::Single;
        slot.file = request.file.index;
        slot.pos = request.pos;
        slot.token = request.token;
        index
    }

    /// Did the request go straight down, in one bio?
    #[inline(always)]
    pub(crate) fn is_single(&self, index: u32) -> bool {
        self.slots[index as usize].state == SlotState::Single
    }

    /// Ends a request that went straight down: frees its slot, moves its completion to `out`, gives the index of its file; none,
    /// and nothing done, for any other. [`Slots::note_ended`] follows, once for the batch.
    #[inline(always)]
    pub(crate) fn end_single(
        &mut self,
        index: u32,
        bio: &mut Bio,
        out: &mut Vec<Completion>,
    ) -> Option<u32> {
        let slot = &mut self.slots[index as usize];
        if slot.state != SlotState::Single {
            return None;
        }
        slot.state = SlotState::Free;
        slot.next_free = self.first_free;
        self.first_free = index;
        let op = if bio.op == BioOp::Read {
            Op::Read
        } else {
            Op::Write
        };
        let result = Ok(usize::try_from(bio.len).unwrap_or(usize::MAX));
        let buf = std::mem::take(&mut bio.buf);
        out.push(Completion {
            token: slot.token,
            op,
            pos: slot.pos,
            buf,
            result,
        });
        Some(slot.file)
    }

    /// Counts the slots that [`Slots::end_single`] freed.
    pub(crate) fn note_ended(&mut self, count: usize) {
        self.free += count;
    }

    /// Makes a single bio's request like any other, its bio just back.
    pub(crate) fn generalise(&mut self, index: u32, bio: &Bio) {
        let slot = &mut self.slots[index as usize];
        slot.state = SlotState::Active;
        slot.op = if bio.op == BioOp::Read {
            Op::Read
        } else {
            Op::Write
        };
        slot.hold = Hold::InFlight;
        slot.flags = RequestFlags {
            nowait: bio.flags.nowait,
            dsync: false,
            sync: false,
        };
        // It was let go straight down because it ends inline, whatever the policy is by now.
        slot.policy = Policy {
            completion: CompletionPolicy::Inline,
            ..Policy::DIORITE
        };
        slot.owe_nothing();
        slot.len = u32::try_from(bio.len).expect("a request is at most 1 GiB");
        (slot.done, slot.moved) = (slot.len, slot.len);
        slot.gather.start();
    }

    /// Takes back a bio's buffer and its verdict. True if it was the last reference.
    #[inline]
    pub(crate) fn take_back(&mut self, index: u32, bio: Bio) -> bool {
        let slot = &mut self.slots[index as usize];
        let last = slot.gather.put(bio.result);
        if slot.in_parts {
            self.take_back_part(index, bio.buf);
        } else {
            slot.buf = bio.buf;
        }
        last
    }

    /// A bio that wrote zeros around the request's data is back. True if it was the last reference.
    pub(crate) fn take_back_pad(&mut self, index: u32, result: Result<(), BioError>) -> bool {
        self.slots[index as usize].gather.put(result)
    }

    fn take_back_part(&mut self, index: u32, part: Buf) {
        let split = self.splits[index as usize].as_mut();
        split.expect("a slot in parts has its split").absorb(part);
    }

    /// The buffer, cut for several bios.
    pub(crate) fn split_for(&mut self, index: u32) -> &mut Split {
        let slot = &mut self.slots[index as usize];
        slot.in_parts = true;
        self.splits[index as usize].get_or_insert_with(|| Split::new(std::mem::take(&mut slot.buf)))
    }

    /// References of the request that bios have.
    pub(crate) fn with_device(&self, index: u32) -> u32 {
        let slot = &self.slots[index as usize];
        match slot.state {
            SlotState::Single => 1,
            _ => slot.gather.refs(),
        }
    }

    /// Slots in all.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("the depth has 32 bits")
    }

    /// A part of the buffer will not come back, and so the whole does not.
    pub(crate) fn forget_split(&mut self, index: u32) {
        self.splits[index as usize] = None;
        self.slots[index as usize].in_parts = false;
    }

    /// The buffer is whole again.
    pub(crate) fn join(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if let Some(split) = self.splits[index as usize].take() {
            slot.buf = split.join();
        }
        slot.in_parts = false;
    }

    /// Takes a finished request out and frees its slot.
    #[inline]
    pub(crate) fn take(&mut self, index: u32) -> Completion {
        let slot = &mut self.slots[index as usize];
        debug_assert_eq!(
            (slot.state, slot.hold, slot.in_parts),
            (SlotState::Ready, Hold::None, false)
        );
        slot.state = SlotState::Free;
        let result = match slot.error.take() {
            None => Ok(slot.done as usize),
            Some(error) => Err(*error),
        };
        slot.next_free = self.first_free;
        self.first_free = index;
        self.free += 1;
        Completion {
            token: slot.token,
            op: slot.op,
            pos: slot.pos,
            buf: std::mem::take(&mut slot.buf),
            result,
        }
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
