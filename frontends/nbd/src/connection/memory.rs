//! Memory for the contents of reads and writes.
//!
//! Input: lengths. Output: bufs of at least that length, and their return. Invariants: bufs of the usual sizes are kept and cost no
//! allocation once they were used; what is in use is counted. Limits: at most [`BUDGET`] bytes of a connection and [`SERVER_BUDGET`] of all
//! are in use, but one request of each connection is always possible. What is kept for later, at most 35 MiB of a connection, is not
//! counted; [`Memory::trim`] gives it back.

use diorite_block::{Buf, BufPool};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a connection in use at once.
pub(super) const BUDGET: u64 = 64 << 20;
/// Bytes of all connections of a server in use at once.
const SERVER_BUDGET: u64 = 1 << 30;
/// A connection takes so many bytes of the server's budget at a time, so that few requests touch what all share.
const SHARE: u64 = 8 << 20;

/// What the connections of a server may use, and use.
#[derive(Debug)]
pub(crate) struct Budget {
    most: u64,
    /// Bytes that connections have taken for themselves.
    taken: AtomicU64,
    /// Bytes in use.
    used: AtomicU64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            most: SERVER_BUDGET,
            taken: AtomicU64::new(0),
            used: AtomicU64::new(0),
        }
    }
}

impl Budget {
    /// Bytes of memory for contents in use, a moment late.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let room = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.most);
        self.taken.fetch_update(Relaxed, Relaxed, room).is_ok()
    }
}

/// Sizes of kept bufs, and how many are kept of each. Pools are made when first needed.
const CLASSES: [(usize, usize); 4] = [
    (4 << 10, 256),
    (32 << 10, 64),
    (256 << 10, 64),
    (2 << 20, 8),
];

/// See the module.
#[derive(Debug)]
pub(super) struct Memory {
    pools: [Option<BufPool>; CLASSES.len()],
    in_use: u64,
    budget: Arc<Budget>,
    /// Bytes taken from the budget.
    taken: u64,
    /// What the budget was told of `in_use` last.
    told: u64,
}

impl Memory {
    pub(super) fn new(budget: Arc<Budget>) -> Memory {
        Memory {
            pools: [const { None }; CLASSES.len()],
            in_use: 0,
            budget,
            taken: 0,
            told: 0,
        }
    }

    /// A buf of at least `len` bytes; none if there is no room for it now. If nothing is in use, and there is none nevertheless, there is
    /// no memory.
    pub(super) fn get(&mut self, len: usize) -> Option<Buf> {
        let class = CLASSES.iter().position(|(size, _)| *size >= len);
        let size = class.map_or(len, |class| CLASSES[class].0);
        let sum = self.in_use + size as u64;
        if self.in_use > 0 && (sum > BUDGET || !self.may_use(sum)) {
            return None;
        }
        let pooled = class.and_then(|class| {
            let (size, count) = CLASSES[class];
            if self.pools[class].is_none() {
                self.pools[class] = BufPool::try_new(size, count);
            }
            self.pools[class].as_ref()?.get()
        });
        let buf = pooled.or_else(|| Buf::try_zeroed(len))?;
        self.in_use += buf.len() as u64;
        Some(buf)
    }

    /// Takes more of the server's budget if that is needed. False if there is no more.
    fn may_use(&mut self, bytes: u64) -> bool {
        if bytes > self.taken {
            let needed = bytes - self.taken;
            let all = [needed.next_multiple_of(SHARE), needed];
            let Some(more) = all.into_iter().find(|more| self.budget.take(*more)) else {
                return false;
            };
            self.taken += more;
        }
        true
    }

    /// Takes a buf back.
    pub(super) fn put(&mut self, buf: Buf) {
        self.in_use -= buf.len() as u64;
        let class = CLASSES.iter().position(|(size, _)| *size == buf.len());
        if let Some(pool) = class.and_then(|class| self.pools[class].as_ref()) {
            pool.put(buf);
        }
    }

    /// Whether nothing is in use.
    pub(super) fn is_idle(&self) -> bool {
        self.in_use == 0
    }

    /// Tells the budget what is in use, and gives back what is not needed now: for a thread that is about to sleep.
    pub(super) fn settle(&mut self) {
        let change = self.in_use.wrapping_sub(self.told);
        if change != 0 {
            self.budget.used.fetch_add(change, Relaxed);
            self.told = self.in_use;
        }
        let spare = self.taken - self.in_use.next_multiple_of(SHARE).min(self.taken);
        if spare > 0 {
            self.budget.taken.fetch_sub(spare, Relaxed);
            self.taken -= spare;
        }
    }

    /// Whether bufs are kept that nobody uses.
    pub(super) fn can_trim(&self) -> bool {
        self.is_idle() && self.pools.iter().any(Option::is_some)
    }

    /// Gives the kept bufs back to the host.
    pub(super) fn trim(&mut self) {
        self.pools = [const { None }; CLASSES.len()];
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

    /// Rule D8: bufs of each size come back, and the budget holds, but for the first request.
    #[test]
    fn what_is_put_back_can_be_had_again() {
        let budget = Arc::new(Budget::default());
        let mut memory = Memory::new(budget.clone());
        for len in [1, 512, 4096, 5000, 1 << 20, 32 << 20] {
            for _ in 0..3 {
                let buf = memory.get(len).expect("there is room");
                assert!(buf.len() >= len);
                memory.put(buf);
                assert!(memory.is_idle());
            }
        }
        let first = memory.get(BUDGET as usize + 1).expect("the first");
        assert!(memory.get(1).is_none());
        memory.put(first);
        let mut all: Vec<Buf> = std::iter::from_fn(|| memory.get(32 << 10)).collect();
        assert_eq!(all.len() as u64, BUDGET / (32 << 10));
        memory.settle();
        assert_eq!(
            (budget.used(), budget.taken.load(Relaxed)),
            (BUDGET, BUDGET)
        );
        assert!(!memory.can_trim());
        all.drain(..).for_each(|buf| memory.put(buf));
        memory.settle();
        assert_eq!((budget.used(), budget.taken.load(Relaxed)), (0, 0));
        assert!(memory.is_idle() && memory.can_trim());
        memory.trim();
        assert!(!memory.can_trim());
    }

    /// What one connection has, another one of the server has not; each may have one request nevertheless.
    #[test]
    fn connections_share_a_budget() {
        let budget = Arc::new(Budget {
            most: 2 * SHARE,
            ..Budget::default()
        });
        let [mut one, mut other] = [0; 2].map(|_| Memory::new(budget.clone()));
        let held: Vec<Buf> = std::iter::from_fn(|| one.get(256 << 10)).collect();
        assert_eq!(held.len() as u64, 2 * SHARE / (256 << 10));
        let first = other.get(256 << 10).expect("the first");
        assert!(other.get(1).is_none());
        drop(one);
        assert!(other.get(1).is_some());
        other.put(first);
        drop(other);
        assert_eq!(budget.taken.load(Relaxed), 0);
    }
}
