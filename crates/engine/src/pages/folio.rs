//! A folio: consecutive blocks of a file in one piece of memory.
//!
//! Input: memory, and bytes for it. Output: the bytes of valid blocks; blocks to be written, lent without a copy. Invariants: dirty,
//! written, reserved and acknowledged blocks are valid; bytes that are lent do not change: the folio gets a copy first. Limits: at most 512
//! blocks.

use super::bits::{Bits, MOST};
use super::budget::Counted;
use super::failures::Told;
use super::memory::{Memory, Writable};
use crate::error::Error;
use diorite_block::Buf;
use diorite_block::buf::copy;
use diorite_block::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::ops::Range;
use std::sync::{Arc, Weak};

/// A folio that nobody has yet.
#[derive(Debug)]
pub(crate) struct NewFolio {
    pub(crate) start: u64,
    blocks: u32,
    memory: Memory,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Folio {
    memory: Memory,
    blocks: u32,
    /// All blocks are valid: then a read does not look at the sets.
    is_whole: bool,
    /// Used since the last turn of the budget.
    used: AtomicBool,
    /// Apart: so a folio takes little space in the list of its file, in which each read searches.
    sets: Box<Sets>,
}

/// Sets of blocks, and what else a read does not look at.
#[derive(Debug)]
struct Sets {
    id: u64,
    counted: Arc<Counted>,
    /// Blocks whose bytes are those of the file.
    valid: Bits,
    /// Changed since they were read or collected.
    dirty: Bits,
    /// On their way to the device.
    writing: Bits,
    /// Dirty, with space reserved.
    reserved: Bits,
    /// Dirty, with bytes of calls that do not wait for their write-back.
    acknowledged: Bits,
    /// Memory that is lent to writes, and of which the folio has a copy now.
    lent: Vec<Memory>,
}

/// Blocks that were taken for write-back.
pub(super) struct Taken {
    pub(super) blocks: Range<u32>,
    pub(super) reserved: u64,
    pub(super) is_acknowledged: bool,
}

impl NewFolio {
    pub(crate) fn new(start: u64, blocks: u64, memory: Memory) -> NewFolio {
        let blocks = u32::try_from(blocks).expect("a folio has at most 512 blocks");
        debug_assert!(blocks <= MOST);
        NewFolio {
            start,
            blocks,
            memory,
        }
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }
}

impl Folio {
    /// Without valid blocks.
    pub(super) fn new(new: NewFolio, id: u64) -> Folio {
        let none = Bits::default();
        let sets = Sets {
            id,
            counted: new.memory.cache().count_folio(),
            valid: none,
            dirty: none,
            writing: none,
            reserved: none,
            acknowledged: none,
            lent: Vec::new(),
        };
        Folio {
            memory: new.memory,
            blocks: new.blocks,
            is_whole: false,
            used: AtomicBool::new(true),
            sets: Box::new(sets),
        }
    }

    /// All its blocks are valid.
    pub(super) fn filled(new: NewFolio, id: u64) -> Folio {
        let all = Bits::of(0..new.blocks);
        let mut folio = Folio::new(new, id);
        folio.set_valid(all);
        folio
    }

    fn set_valid(&mut self, valid: Bits) {
        self.is_whole = valid == Bits::of(0..self.blocks);
        self.sets.valid = valid;
    }

    /// For the budget: is it still there?
    pub(super) fn alive(&self) -> Weak<Counted> {
        Arc::downgrade(&self.sets.counted)
    }

    pub(super) fn id(&self) -> u64 {
        self.sets.id
    }

    #[inline]
    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    pub(super) fn valid(&self) -> Bits {
        self.sets.valid
    }

    pub(super) fn is_valid(&self, block: u64) -> bool {
        self.sets.valid.has(super::short(block))
    }

    pub(super) fn is_dirty(&self, block: u64) -> bool {
        self.sets.dirty.has(super::short(block))
    }

    pub(super) fn dirty(&self) -> Bits {
        self.sets.dirty
    }

    pub(super) fn unwritten(&self) -> Bits {
        self.sets.dirty.or(self.sets.writing)
    }

    /// Blocks that can be written back now.
    pub(super) fn collectable(&self) -> Bits {
        self.sets.dirty.without(self.sets.writing)
    }

    /// It was used lately, unless that does not matter, or has something that is not on the device. Its next turn finds it unused.
    pub(super) fn must_stay(&self, may_be_used: bool) -> bool {
        let was_used = self.used.swap(false, Relaxed);
        (was_used && !may_be_used) || !self.unwritten().is_empty()
    }

    pub(super) fn is_invalid(&self) -> bool {
        self.sets.valid.is_empty() && self.sets.writing.is_empty()
    }

    /// Copies bytes from byte `from` on, as long as they are valid; returns how many.
    #[inline]
    pub(super) fn read(&self, bits: u32, from: u64, out: &mut [u8]) -> usize {
        let wanted = from + out.len() as u64;
        let last = match self.is_whole {
            true => self.blocks,
            false => self.sets.valid.end_of_run(super::short(from >> bits)),
        };
        let end = (u64::from(last) << bits).min(wanted);
        let len = end.saturating_sub(from) as usize;
        if len > 0 {
            let from = from as usize;
            copy(&mut out[..len], &self.memory.bytes()[from..from + len]);
            if !self.used.load(Relaxed) {
                self.used.store(true, Relaxed);
            }
        }
        len
    }

    /// Makes the memory one that nobody reads. If the budget has no room for a copy it returns how many bytes that takes.
    ///
    /// # Errors
    /// `NoMemory`.
    pub(super) fn make_writable(&mut self) -> Result<Option<u64>, Error> {
        match self.memory.make_writable()? {
            Writable::Yes => Ok(None),
            Writable::Copied(lent) => {
                self.sets.lent.push(lent);
                Ok(None)
            }
            Writable::NoRoom(bytes) => Ok(Some(bytes)),
        }
    }

    /// Writes bytes from byte `from` on; the memory is writable. Returns how many blocks are dirty that were neither dirty nor being
    /// written.
    pub(super) fn write(&mut self, bits: u32, from: u64, data: &[u8], told: Told<'_>) -> u64 {
        let end = from + data.len() as u64;
        let blocks = super::short(from >> bits)..super::short(end.div_ceil(1 << bits));
        let all = Bits::of(blocks.clone());
        let bytes = self.memory.bytes_mut().expect("it was made writable");
        // A partly written block that is not valid lies behind the file's end: the rest of it becomes zeros.
        for block in [blocks.start, blocks.end - 1] {
            if !self.sets.valid.has(block) {
                let at = (block as usize) << bits;
                bytes[at..at + (1 << bits)].fill(0);
            }
        }
        copy(&mut bytes[from as usize..end as usize], data);
        let more = all.without(self.unwritten()).count();
        self.set_valid(self.sets.valid.or(all));
        self.sets.dirty = self.sets.dirty.or(all);
        if matches!(told, Told::Syncs) {
            self.sets.acknowledged = self.sets.acknowledged.or(all);
        }
        self.used.store(true, Relaxed);
        u64::from(more)
    }

    /// Notes that space was reserved for those of its dirty blocks that are in `holes`. Returns how many are new.
    pub(super) fn reserve(&mut self, start: u64, holes: &[Range<u64>]) -> u64 {
        let mut more = Bits::default();
        for hole in holes {
            let from = super::short(hole.start.saturating_sub(start));
            let to = super::short(hole.end.saturating_sub(start));
            more = more.or(Bits::of(from..to.min(self.blocks)));
        }
        let more = more.and(self.sets.dirty).without(self.sets.reserved);
        self.sets.reserved = self.sets.reserved.or(more);
        u64::from(more.count())
    }

    /// Takes dirty blocks from `from` on, at most `most`, if that one can be written back.
    pub(super) fn take_dirty(&mut self, from: u64, most: u64) -> Option<Taken> {
        let from = super::short(from);
        let run = self
            .collectable()
            .run(from)
            .filter(|run| run.start == from)?;
        let blocks = run.start..run.end.min(run.start.saturating_add(super::short(most)));
        let all = Bits::of(blocks.clone());
        let reserved = u64::from(self.sets.reserved.and(all).count());
        self.sets.dirty = self.sets.dirty.without(all);
        self.sets.reserved = self.sets.reserved.without(all);
        let is_acknowledged = !self.sets.acknowledged.and(all).is_empty();
        self.sets.acknowledged = self.sets.acknowledged.without(all);
        self.sets.writing = self.sets.writing.or(all);
        Some(Taken {
            blocks,
            reserved,
            is_acknowledged,
        })
    }

    pub(super) fn lend(&self, bytes: Range<usize>) -> Buf {
        self.memory.lend(bytes)
    }

    /// Ends the write-back of blocks; returns how many of them are clean now. If it has failed these are dropped.
    pub(super) fn end_writing(&mut self, blocks: Range<u32>, has_failed: bool) -> u64 {
        let all = Bits::of(blocks).and(self.sets.writing);
        self.sets.writing = self.sets.writing.without(all);
        if self.sets.writing.is_empty() {
            self.sets.lent.clear();
        }
        let clean = all.without(self.sets.dirty);
        if has_failed {
            self.set_valid(self.sets.valid.without(clean));
        }
        u64::from(clean.count())
    }

    /// Drops the blocks of a range that are clean; returns whether there were any.
    pub(super) fn drop_clean(&mut self, blocks: Range<u32>) -> bool {
        let gone = Bits::of(blocks)
            .and(self.sets.valid)
            .without(self.unwritten());
        self.set_valid(self.sets.valid.without(gone));
        !gone.is_empty()
    }

    /// Takes over the bytes of blocks that are not valid here. Does nothing if there is no room for a copy of what is lent.
    pub(super) fn copy_missing(&mut self, bits: u32, start: u64, new: &NewFolio) {
        if !matches!(self.make_writable(), Ok(None)) {
            return;
        }
        let bytes = self.memory.bytes_mut().expect("it was made writable");
        let mut valid = self.sets.valid;
        for block in 0..self.blocks {
            let there = (start + u64::from(block)).checked_sub(new.start);
            let there = there.filter(|there| *there < u64::from(new.blocks));
            if let (Some(there), false) = (there, valid.has(block)) {
                let (to, from) = ((block as usize) << bits, (there as usize) << bits);
                bytes[to..to + (1 << bits)]
                    .copy_from_slice(&new.memory.bytes()[from..from + (1 << bits)]);
                valid = valid.or(Bits::of(block..block + 1));
            }
        }
        self.set_valid(valid);
    }
}
