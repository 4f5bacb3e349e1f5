//! Memory for the contents of reads and writes.
//!
//! Input: lengths. Output: bufs, and their return. Invariants: bufs of the usual sizes are kept and cost no allocation once they were used;
//! everything that is in use or kept is counted, but the reserve. Limits: at most [`BUDGET`] bytes of a connection, and no more than half
//! of what is left of the server's budget, so that many connections leave something for the next one. The reserve of a connection, one buf
//! of [`RESERVE`] bytes, is its own: a request that gets nothing else moves through it piece by piece.

use diorite_block::{Buf, BufPool, Shared};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that a connection has at most, in use and kept.
pub(super) const BUDGET: u64 = 64 << 20;

/// The length of the reserve. No other buf has it.
pub(super) const RESERVE: usize = 128 << 10;

/// What a connection has beside the budget: its receive buffer, its reserve, heads and extents of replies, the buffers of TLS.
const FIXED: u64 = 1 << 20;

/// What the connections of a server may use, and use.
#[derive(Debug)]
pub(crate) struct Budget {
    most: u64,
    /// Bytes that connections have.
    taken: AtomicU64,
    /// Bytes in use.
    used: AtomicU64,
}

impl Budget {
    /// The budget of a server with so much memory for so many connections. What they have beside it is put aside, up to a half.
    pub(crate) fn new(memory: u64, connections: usize) -> Budget {
        let fixed = (connections as u64).saturating_mul(FIXED);
        Budget {
            most: memory - fixed.min(memory / 2),
            taken: AtomicU64::new(0),
            used: AtomicU64::new(0),
        }
    }

    /// Bytes of memory for contents in use, a moment late.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Takes `bytes` for a connection that has `own`. False: it would have more than half of what is left.
    fn take(&self, own: u64, bytes: u64) -> bool {
        let fair = |taken: u64| {
            let left = self.most.saturating_sub(taken);
            (own + bytes <= left / 2).then_some(taken + bytes)
        };
        self.taken.fetch_update(Relaxed, Relaxed, fair).is_ok()
    }
}

/// Sizes of kept bufs. What is larger is not kept.
const CLASSES: [usize; 4] = [4 << 10, 32 << 10, 256 << 10, LARGEST];

/// The largest of them.
pub(super) const LARGEST: usize = 2 << 20;

/// Larger bufs have a length that is a multiple of this, and go back to the host as soon as they are not in use.
const HUGE_PAGE: usize = 2 << 20;

/// The kept bufs of a size. As many are made as there were before, so that few regions hold all of them.
#[derive(Debug, Default)]
struct Class {
    free: Vec<Buf>,
    /// Bufs that were made.
    made: usize,
}

/// What there is for a request.
#[derive(Debug)]
pub(super) enum Got {
    /// A buf for all of it.
    Whole(Buf),
    /// The reserve, which is shorter.
    Part(Buf),
    /// Nothing before another request of the connection ends.
    Later,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Memory {
    classes: [Class; CLASSES.len()],
    reserve: Option<Buf>,
    in_use: u64,
    budget: Arc<Budget>,
    /// Bytes taken from the budget.
    taken: u64,
    /// What the budget was told of `in_use` last.
    told: u64,
    /// Bufs went back to the host since [`Memory::has_dropped`].
    dropped: bool,
}

impl Memory {
    /// The memory of a connection. None: the host has none for its reserve.
    pub(super) fn new(budget: Arc<Budget>) -> Option<Memory> {
        Some(Memory {
            classes: Default::default(),
            reserve: Some(Buf::try_zeroed(RESERVE)?),
            in_use: 0,
            budget,
            taken: 0,
            told: 0,
            dropped: false,
        })
    }

    /// Memory for `len` bytes.
    pub(super) fn get(&mut self, len: usize) -> Got {
        let buf = match CLASSES.iter().position(|size| *size >= len) {
            Some(class) => self.kept(class),
            None => self.large(len),
        };
        let Some(buf) = buf.or_else(|| self.reserve.take()) else {
            return Got::Later;
        };
        self.in_use += buf.len() as u64;
        match buf.len() >= len {
            true => Got::Whole(buf),
            false => Got::Part(buf),
        }
    }

    /// A buf of a class.
    fn kept(&mut self, class: usize) -> Option<Buf> {
        if let Some(buf) = self.classes[class].free.pop() {
            return Some(buf);
        }
        let size = CLASSES[class];
        for count in [self.classes[class].made.max(1), 1] {
            let bytes = (size * count) as u64;
            if !self.charge(bytes) {
                continue;
            }
            let Some(made) = BufPool::try_new(size, count) else {
                self.give_back(bytes);
                continue;
            };
            let class = &mut self.classes[class];
            class.free.extend(std::iter::from_fn(|| made.get()));
            class.made += count;
            return class.free.pop();
        }
        None
    }

    /// A buf that is not kept.
    fn large(&mut self, len: usize) -> Option<Buf> {
        let len = len.next_multiple_of(HUGE_PAGE);
        if !self.charge(len as u64) {
            return None;
        }
        let made = Shared::try_zeroed(len).map(Shared::into_buf);
        if made.is_none() {
            self.give_back(len as u64);
        }
        made
    }

    /// Takes more of the budget. What is kept and not in use goes first if there is no more otherwise.
    fn charge(&mut self, bytes: u64) -> bool {
        for again in [false, true] {
            if again && !self.drop_idle() {
                break;
            }
            if self.taken + bytes <= BUDGET && self.budget.take(self.taken, bytes) {
                self.taken += bytes;
                return true;
            }
        }
        false
    }

    fn give_back(&mut self, bytes: u64) {
        self.taken -= bytes;
        self.budget.taken.fetch_sub(bytes, Relaxed);
    }

    /// Gives the bufs of classes back to the host of which none is in use. Returns whether there were some.
    fn drop_idle(&mut self) -> bool {
        let mut bytes = 0;
        for (size, class) in CLASSES.iter().zip(&mut self.classes) {
            if class.free.len() == class.made {
                bytes += (size * class.made) as u64;
                *class = Class::default();
            }
        }
        self.give_back(bytes);
        self.dropped |= bytes > 0;
        bytes > 0
    }

    /// Takes a buf back.
    pub(super) fn put(&mut self, buf: Buf) {
        let len = buf.len();
        self.in_use -= len as u64;
        if len == RESERVE {
            self.reserve = Some(buf);
        } else if let Some(class) = CLASSES.iter().position(|size| *size == len) {
            self.classes[class].free.push(buf);
        } else {
            drop(buf);
            self.give_back(len as u64);
        }
    }

    /// Tells the budget what is in use.
    pub(super) fn settle(&mut self) {
        let change = self.in_use.wrapping_sub(self.told);
        if change != 0 {
            self.budget.used.fetch_add(change, Relaxed);
            self.told = self.in_use;
        }
    }

    /// Whether bufs are kept, and nothing is in use.
    pub(super) fn can_trim(&self) -> bool {
        self.in_use == 0 && self.taken > 0
    }

    /// Gives the kept bufs back to the host.
    pub(super) fn trim(&mut self) {
        self.drop_idle();
    }

    /// Whether bufs went back to the host that a device may still know, since this was asked last.
    pub(super) fn has_dropped(&mut self) -> bool {
        std::mem::take(&mut self.dropped)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.taken, Relaxed);
        self.budget.used.fetch_sub(self.told, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(budget: &Budget) -> u64 {
        budget.taken.load(Relaxed)
    }

    fn memory(budget: &Arc<Budget>) -> Memory {
        Memory::new(budget.clone()).expect("little memory")
    }

    #[track_caller]
    fn whole(memory: &mut Memory, len: usize) -> Buf {
        match memory.get(len) {
            Got::Whole(buf) => buf,
            other => panic!("{len}: {other:?}"),
        }
    }

    /// Rule D8: bufs of each size come back; rule M7: what is kept is counted.
    #[test]
    fn what_is_put_back_can_be_had_again() {
        let budget = Arc::new(Budget::new(1 << 30, 1));
        let mut memory = memory(&budget);
        for len in [1, 512, 4096, 5000, 1 << 20, 32 << 20] {
            for _ in 0..3 {
                let buf = whole(&mut memory, len);
                assert!(buf.len() >= len && taken(&budget) >= buf.len() as u64);
                memory.put(buf);
            }
        }
        assert_eq!(
            taken(&budget),
            CLASSES[..2].iter().sum::<usize>() as u64 + (2 << 20)
        );
        assert!(memory.can_trim());
        memory.trim();
        assert!(!memory.can_trim() && memory.has_dropped() && !memory.has_dropped());
        assert_eq!(taken(&budget), 0);
        let mut all = Vec::new();
        while let Got::Whole(buf) = memory.get(32 << 10) {
            all.push(buf);
        }
        assert_eq!(all.len() as u64, BUDGET / (32 << 10) + 1, "and the reserve");
        assert!(matches!(memory.get(1), Got::Later));
        memory.settle();
        assert_eq!(budget.used(), BUDGET + RESERVE as u64);
        assert_eq!(taken(&budget), BUDGET);
        all.drain(..).for_each(|buf| memory.put(buf));
        memory.settle();
        assert_eq!(budget.used(), 0);
        // What is kept of one size makes room for another.
        let large = whole(&mut memory, 32 << 20);
        memory.put(large);
        assert_eq!(taken(&budget), 0);
    }

    /// Rule M7: all together stay inside the budget, each later one finds something, and the reserve is nobody else's.
    #[test]
    fn connections_share_a_budget() {
        let budget = Arc::new(Budget::new(66 << 20, 2));
        let mut all: Vec<Memory> = (0..40).map(|_| memory(&budget)).collect();
        let mut held = Vec::new();
        for memory in &mut all {
            let before = held.len();
            while let Got::Whole(buf) = memory.get(256 << 10) {
                held.push(buf);
            }
            let has = (held.len() - before) as u64 * (256 << 10);
            assert_eq!(memory.taken, has);
            assert!(taken(&budget) <= 64 << 20);
            assert!(
                memory.reserve.is_none(),
                "it was there for the last request"
            );
        }
        assert!(all[..8].iter().all(|memory| memory.taken > 0));
        drop(all);
        assert_eq!(taken(&budget), 0);
    }
}
