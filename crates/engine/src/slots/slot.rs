//! The fixed pool of slots of a queue: one for each request that was accepted and not yet reaped.
//!
//! Input: requests. Output: their completions. Invariant: a slot is in one [`SlotState`] at a time, and only the holder of the queue's
//! lock changes it. Limits: the pool never grows.

use crate::error::Error;
use crate::inode::PageClaim;
use crate::ioend::{CachedPages, Gather};
use crate::op::Op;
use crate::policy::{CompletionPolicy, Policy};
use crate::request::{Completion, Request, RequestFlags};
use crate::turn::Hold;
use diorite_block::{Bio, BioError, BioOp, Buf, Epoch, Split};

/// The end of the list of free slots.
const NONE: u32 = u32::MAX;

/// Where a slot's request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// There is no request: the slot is free.
    Free,
    /// Being processed by the queue, or with the device.
    Active,
    /// With the device, as a single bio that has the whole buffer; counted in flight; owes nothing when it ends.
    Single,
    /// Parked, on the list of its file's gate or pending map.
    Parked,
    /// With a worker, either before its data goes down or for its deferred completion.
    Worker,
    /// Finished, not reaped yet.
    Ready,
}

/// One request in the pool.
#[derive(Debug)]
pub(crate) struct Slot {
    /// While it is free: the next free slot.
    next_free: u32,
    pub(crate) state: SlotState,
    pub(crate) hold: Hold,
    /// The hold that it gets when the gate on which it is parked releases it.
    pub(crate) wanted: Hold,
    pub(crate) op: Op,
    pub(crate) flags: RequestFlags,
    /// The volume's policy when the request began. It keeps this policy until it ends (rule D6).
    pub(crate) policy: Policy,
    /// The device must be flushed after the data before the request is acknowledged.
    pub(crate) owes_flush: bool,
    /// For a write that has to be mapped or to be durable: an epoch before its first bio went down. For a sync: what its open file said
    /// when the sync began, of the last failed flush that it had been told of.
    pub(crate) began: Option<Epoch>,
    /// The first block of its entry in the pending map, if it has one.
    pub(crate) entry: Option<u64>,
    /// Its end was behind the size when they were compared last.
    pub(crate) past_end: bool,
    /// It is counted among the extending requests, over which the size moves in offset order.
    pub(crate) extends: bool,
    /// It runs with the exclusive turn, as the map has to be changed before its data goes down.
    pub(crate) alone: bool,
    /// What it has is being released, and then it starts again.
    pub(crate) begins_again: bool,
    /// It has ended, and waits until the size has moved over earlier extending requests, which may belong to other queues.
    pub(crate) held: bool,
    /// The block behind the file's end in which it may leave bytes that are not zeros.
    pub(crate) tail: Option<u64>,
    /// What it wrote has to be mapped before it is seen.
    pub(crate) owes_map: bool,
    /// The transaction that changed the file last must be durable before the request is acknowledged.
    pub(crate) owes_commit: bool,
    /// The cached pages that it keeps others from, what it found there, and whether they were written back for it.
    pub(crate) claim: Option<Box<PageClaim>>,
    pub(crate) cached: CachedPages,
    pub(crate) pages_done: bool,
    /// Several bios have parts of the buffer: see [`Slots::splits`].
    pub(crate) in_parts: bool,
    /// Index of the attached file in the queue.
    pub(crate) file: u32,
    /// Bytes asked for; less than the buffer's length only for [`Request::write_last`].
    pub(crate) len: u32,
    /// Bytes asked for by an operation on a range, which has no buffer.
    pub(crate) range_len: u64,
    /// Bytes that the completion reports if the request succeeds.
    pub(crate) done: u32,
    /// Bytes that are transferred. Those in `done..moved` are behind the end of the file: they become zeros in the buffer, of a read when
    /// it ends, of a write before it goes down.
    pub(crate) moved: u32,
    pub(crate) pos: u64,
    pub(crate) token: u64,
    pub(crate) gather: Gather,
    /// The request's buffer, unless bios have it.
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
            alone: false,
            begins_again: false,
            held: false,
            tail: None,
            owes_map: false,
            owes_commit: false,
            claim: None,
            cached: CachedPages::None,
            pages_done: false,
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
        self.alone = false;
        self.begins_again = false;
        self.tail = None;
        self.owes_map = false;
        self.owes_commit = false;
        self.cached = CachedPages::None;
        self.pages_done = false;
    }

    /// One past the last byte asked for. Cannot wrap: the position was checked when the request started.
    pub(crate) fn end(&self) -> u64 {
        self.pos.saturating_add(u64::from(self.len))
    }

    /// It is a [`Request::write_last`]: the last bytes of a file, and zeros behind them. Valid only before the buffer goes down.
    pub(crate) fn is_last(&self) -> bool {
        self.op == Op::Write && self.len as usize != self.buf.len()
    }

    /// Others may wait for its range, or for the size to move over it. So it must not wait for them to end (rule D6).
    pub(crate) fn is_waited_for(&self) -> bool {
        self.entry.is_some() || self.extends
    }

    /// Notes why the request fails, unless it has failed already.
    pub(crate) fn fail(&mut self, error: Box<Error>) {
        self.error.get_or_insert(error);
    }
}

/// The slots of a queue.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    /// The divided buffers of the slots that are `in_parts`.
    splits: Box<[Option<Split>]>,
    /// The first free slot, head of a list through `next_free`; [`NONE`] if all are taken.
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

    /// How many slots are free.
    #[inline]
    pub(crate) fn free(&self) -> usize {
        self.free
    }

    /// How many slots have a request.
    #[inline]
    pub(crate) fn used(&self) -> usize {
        self.slots.len() - self.free
    }

    /// Puts a request of `len` bytes into a free slot. It is served under `policy` until it ends. Returns the slot's index.
    ///
    /// # Panics
    /// If no slot is free: the caller has to count.
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

    /// Puts a request into a free slot whose buffer goes straight into its only bio. Returns the slot's index.
    ///
    /// # Panics
    /// If no slot is free: the caller has to count.
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

    /// Was the request sent by the fast attempt, in one bio?
    #[inline(always)]
    pub(crate) fn is_single(&self, index: u32) -> bool {
        self.slots[index as usize].state == SlotState::Single
    }

    /// Completes a request of the fast attempt that ended well: frees its slot, moves its completion to `out`, and returns the index of
    /// its file. Does nothing and returns None for any other request. The caller calls [`Slots::note_ended`] once for the batch.
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

    /// Counts slots as free that [`Slots::end_single`] has freed.
    pub(crate) fn note_ended(&mut self, count: usize) {
        self.free += count;
    }

    /// Fills in the slot of a request of the fast attempt, so that it can be ended like any other; its only bio has just come back.
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
        // The fast attempt took it because it ends inline; so it does, even if the policy has changed since.
        slot.policy = Policy {
            completion: CompletionPolicy::Inline,
            ..Policy::DIORITE
        };
        slot.owe_nothing();
        slot.len = u32::try_from(bio.len).expect("a request is at most 1 GiB");
        (slot.done, slot.moved) = (slot.len, slot.len);
        slot.gather.start();
    }

    /// Takes back a bio's buffer and its result. True if it was the request's last reference.
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

    /// Takes back the result of a bio that wrote zeros around the request's data. True if it was the last reference.
    pub(crate) fn take_back_pad(&mut self, index: u32, result: Result<(), BioError>) -> bool {
        self.slots[index as usize].gather.put(result)
    }

    fn take_back_part(&mut self, index: u32, part: Buf) {
        let split = self.splits[index as usize].as_mut();
        split.expect("a slot in parts has its split").absorb(part);
    }

    /// The request's buffer, to be divided among several bios.
    pub(crate) fn split_for(&mut self, index: u32) -> &mut Split {
        let slot = &mut self.slots[index as usize];
        slot.in_parts = true;
        self.splits[index as usize].get_or_insert_with(|| Split::new(std::mem::take(&mut slot.buf)))
    }

    /// How many bios of the request are with the device.
    pub(crate) fn with_device(&self, index: u32) -> u32 {
        let slot = &self.slots[index as usize];
        match slot.state {
            SlotState::Single => 1,
            _ => slot.gather.refs(),
        }
    }

    /// The number of slots.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("the depth has 32 bits")
    }

    /// Drops the divided buffer: a part of it is lost, so it cannot be joined.
    pub(crate) fn forget_split(&mut self, index: u32) {
        self.splits[index as usize] = None;
        self.slots[index as usize].in_parts = false;
    }

    /// Joins the parts of the buffer, which all are back.
    pub(crate) fn join(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if let Some(split) = self.splits[index as usize].take() {
            slot.buf = split.join();
        }
        slot.in_parts = false;
    }

    /// Takes a finished request out, and frees its slot.
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
