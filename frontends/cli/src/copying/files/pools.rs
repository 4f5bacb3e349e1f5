//! The bufs of the requests in flight: many small ones and some large ones.
//!
//! Input: a number of bytes. Output: bufs, which io_uring registers as one region each, and which are returned when a request
//! has ended. Invariant: memory is bounded: when all bufs of a size are in use, the caller gets none. Limits: 192 of 64 KiB and
//! 64 of 1 MiB: 76 MiB.

use diorite_block::{Buf, BufPool};
use std::cell::OnceCell;

const SMALL: usize = 64 << 10;
const LARGE: usize = 1 << 20;
const SMALLS: usize = 192;
const LARGES: usize = 64;

/// The greatest number of requests in flight: one for each buf.
pub(super) const DEPTH: usize = SMALLS + LARGES;

/// See the module.
pub(super) struct Pools {
    small: BufPool,
    /// Created when it is first needed, because registering it with a ring makes all of its memory resident.
    large: OnceCell<BufPool>,
}

impl Pools {
    pub(super) fn new() -> Pools {
        Pools {
            small: BufPool::new(SMALL, SMALLS),
            large: OnceCell::new(),
        }
    }

    /// A buf for `want` bytes, or the largest buf if none holds as many; none if all bufs of that size are in use.
    pub(super) fn get(&self, want: u64) -> Option<Buf> {
        if want > SMALL as u64 {
            self.large().get()
        } else {
            self.small.get()
        }
    }

    /// Returns a whole buf to its pool.
    pub(super) fn put(&self, buf: Buf) {
        if buf.len() == SMALL {
            self.small.put(buf);
        } else {
            self.large().put(buf);
        }
    }

    fn large(&self) -> &BufPool {
        self.large.get_or_init(|| BufPool::new(LARGE, LARGES))
    }
}
