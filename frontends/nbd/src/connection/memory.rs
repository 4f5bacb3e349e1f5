//! Memory for the contents of reads and writes.
//!
//! Input: lengths. Output: bufs of at least that length, and their return. Invariants: bufs of the usual sizes are kept and cost no
//! allocation once they were used; what is in use is counted. Limits: at most [`BUDGET`] bytes are in use, but one request is always
//! possible.

use diorite_block::{Buf, BufPool};

/// Bytes in use at once.
pub(super) const BUDGET: u64 = 64 << 20;

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
    /// The value when the change was taken last.
    reported: u64,
}

impl Memory {
    pub(super) fn new() -> Memory {
        Memory {
            pools: [const { None }; CLASSES.len()],
            in_use: 0,
            reported: 0,
        }
    }

    /// A buf of at least `len` bytes; none if there is no room for it now. If nothing is in use, and there is none nevertheless, there is
    /// no memory.
    pub(super) fn get(&mut self, len: usize) -> Option<Buf> {
        let class = CLASSES.iter().position(|(size, _)| *size >= len);
        let size = class.map_or(len, |class| CLASSES[class].0);
        if self.in_use > 0 && self.in_use + size as u64 > BUDGET {
            return None;
        }
        let pooled = class.and_then(|class| {
            let (size, count) = CLASSES[class];
            let pool = self.pools[class].get_or_insert_with(|| BufPool::new(size, count));
            pool.get()
        });
        let buf = pooled.or_else(|| Buf::try_zeroed(len))?;
        self.in_use += buf.len() as u64;
        Some(buf)
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

    /// The change of what is in use since the last call.
    pub(super) fn take_change(&mut self) -> i64 {
        let change = self.in_use.cast_signed() - self.reported.cast_signed();
        self.reported = self.in_use;
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule D8: bufs of each size come back, and the budget holds, but for the first request.
    #[test]
    fn what_is_put_back_can_be_had_again() {
        let mut memory = Memory::new();
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
        assert_eq!(memory.take_change(), BUDGET as i64);
        all.drain(..).for_each(|buf| memory.put(buf));
        assert_eq!(
            (memory.take_change(), memory.is_idle()),
            (-(BUDGET as i64), true)
        );
    }
}
