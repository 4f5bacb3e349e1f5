//! What is kept of each request under way.
//!
//! Input: requests that are started. Output: their numbers, which bios carry as tokens; the slots. Invariants: a slot is free, or
//! belongs to one request from its header to its reply; contents of a read keep theirs until they are sent. Limits: a fixed
//! number.

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
    /// Bios that have not ended.
    pub(super) open: u32,
    /// A job aside has not been answered.
    pub(super) aside: bool,
    pub(super) fill: Option<Fill>,
    /// The first error.
    pub(super) errno: Option<Errno>,
    pub(super) contents: Contents,
}

/// All slots.
#[derive(Debug)]
pub(super) struct Slots {
    all: Vec<Option<Slot>>,
    free: Vec<u32>,
    aside: u32,
    /// Requests that have ended.
    ended: u64,
}

impl Slots {
    pub(super) fn new(count: usize) -> Slots {
        let last = u32::try_from(count).expect("slots are few");
        Slots {
            all: (0..count).map(|_| None).collect(),
            free: (0..last).rev().collect(),
            aside: 0,
            ended: 0,
        }
    }

    /// How many requests have ended so far.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    pub(super) fn in_use(&self) -> usize {
        self.all.len() - self.free.len()
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether any job aside has not been answered.
    pub(super) fn any_aside(&self) -> bool {
        self.aside > 0
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

    /// Ends a request.
    pub(super) fn take(&mut self, index: u32) -> Slot {
        let slot = self.all[index as usize].take();
        self.free.push(index);
        self.ended += 1;
        slot.expect("who has the number of a slot has the slot")
    }

    /// Notes that a job aside was given.
    pub(super) fn give_aside(&mut self, index: u32) {
        self.get_mut(index).aside = true;
        self.aside += 1;
    }

    /// Notes that a job aside was answered.
    pub(super) fn back_from_aside(&mut self, index: u32) -> &mut Slot {
        self.aside -= 1;
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
