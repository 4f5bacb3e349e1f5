//! What is kept of each request under way.
//!
//! Input: requests that are started. Output: their numbers, which bios carry as tokens; the slots. Invariants: a slot is free, or
//! belongs to one request from its header to its reply, or to a piece of one; contents of a read keep theirs until they are sent; a request
//! in pieces outlives its pieces. Limits: a fixed number.

use crate::wire::{Errno, Heads};
use diorite_block::{Buf, Split};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// `whole`: in one chunk.
    Read {
        whole: bool,
    },
    Write,
    /// `keep`: the space stays allocated. `fast`: fails rather than writes zeros.
    Zero {
        keep: bool,
        fast: bool,
    },
    Trim,
    Flush,
    Status,
}

impl Work {
    /// Whether the reply consists of chunks if structured replies were agreed on.
    pub(super) fn is_chunked(self) -> bool {
        matches!(self, Work::Read { .. } | Work::Status)
    }
}

/// Where a request's contents are.
#[derive(Debug, Default)]
pub(super) enum Contents {
    /// There are none.
    #[default]
    None,
    /// Here: a buf of at least the request's length.
    Here(Buf),
    /// The one bio of the request has the buf.
    Away,
    /// Several bios have parts, or one has a part.
    Cut(Split),
}

/// A range that is being filled with zeros by writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    pub(super) next: u64,
    pub(super) end: u64,
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) heads: Heads,
    pub(super) work: Work,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// A flush has to follow before the reply.
    pub(super) sync: bool,
    /// Bios that have not ended, or pieces.
    pub(super) open: u32,
    /// A job aside has not been answered.
    pub(super) aside: bool,
    pub(super) fill: Option<Fill>,
    /// The request that this is a piece of.
    pub(super) of: Option<u32>,
    /// Bytes of a request in pieces that have no piece yet.
    pub(super) left: u64,
    /// The first error.
    pub(super) errno: Option<Errno>,
    pub(super) contents: Contents,
}

impl Slot {
    /// A request of which nothing is under way.
    pub(super) fn new(heads: Heads, work: Work, offset: u64, len: u64) -> Slot {
        Slot {
            heads,
            work,
            offset,
            len,
            sync: false,
            open: 0,
            aside: false,
            fill: None,
            of: None,
            left: 0,
            errno: None,
            contents: Contents::None,
        }
    }
}

/// All slots.
#[derive(Debug)]
pub(super) struct Slots {
    all: Vec<Option<Slot>>,
    free: Vec<u32>,
    aside: u32,
    /// Jobs aside that ask how a range is stored.
    asking: u32,
    /// Requests and pieces that have ended.
    ended: u64,
}

impl Slots {
    pub(super) fn new(count: usize) -> Slots {
        let last = u32::try_from(count).expect("slots are few");
        Slots {
            all: (0..count).map(|_| None).collect(),
            free: (0..last).rev().collect(),
            aside: 0,
            asking: 0,
            ended: 0,
        }
    }

    /// How many requests and pieces have ended so far.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    pub(super) fn in_use(&self) -> usize {
        self.all.len() - self.free.len()
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// How many of them ask how a range is stored.
    pub(super) fn asking(&self) -> u32 {
        self.asking
    }

    /// How many jobs aside have not been answered.
    pub(super) fn aside(&self) -> u32 {
        self.aside
    }

    /// Puts a request into a free slot.
    pub(super) fn put(&mut self, slot: Slot) -> u32 {
        let index = self.free.pop().expect("the caller looked for a free slot");
        self.all[index as usize] = Some(slot);
        index
    }

    pub(super) fn get(&self, index: u32) -> &Slot {
        self.all[index as usize]
            .as_ref()
            .expect("who has the number of a slot has the slot")
    }

    pub(super) fn get_mut(&mut self, index: u32) -> &mut Slot {
        self.all[index as usize]
            .as_mut()
            .expect("who has the number of a slot has the slot")
    }

    /// Ends a request, or a piece of one.
    pub(super) fn take(&mut self, index: u32) -> Slot {
        let slot = self.all[index as usize].take();
        self.free.push(index);
        self.ended += 1;
        let slot = slot.expect("who has the number of a slot has the slot");
        if let Some(whole) = slot.of {
            self.get_mut(whole).open -= 1;
        }
        slot
    }

    /// Notes that a job aside was given.
    pub(super) fn give_aside(&mut self, index: u32) {
        let slot = self.get_mut(index);
        slot.aside = true;
        let asks = slot.work == Work::Status;
        self.aside += 1;
        self.asking += u32::from(asks);
    }

    /// Notes that a job aside was answered.
    pub(super) fn back_from_aside(&mut self, index: u32) -> &mut Slot {
        let asks = self.get(index).work == Work::Status;
        self.aside -= 1;
        self.asking -= u32::from(asks);
        let slot = self.get_mut(index);
        slot.aside = false;
        slot
    }

    /// The numbers of requests that neither the device nor a thread aside has.
    pub(super) fn idle(&self) -> Vec<u32> {
        let used = (0u32..).zip(&self.all);
        used.filter_map(|(index, slot)| {
            slot.as_ref()
                .filter(|s| s.open == 0 && !s.aside)
                .map(|_| index)
        })
        .collect()
    }
}
