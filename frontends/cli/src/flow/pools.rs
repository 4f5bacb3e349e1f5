//! Memory for requests in flight: many small bufs, and some large ones.
//!
//! Input: how many bytes are wanted. Output: bufs that a ring registers at once, taken back when a request has ended. Invariant: bounded: when all
//! of a size are out there is none. Limits: 192 of 64 KiB and 64 of 1 MiB: 76 MiB.

use diorite_block::{Buf, BufPool};
use std::cell::OnceCell;

const SMALL: usize = 64 << 10;
const LARGE: usize = 1 << 20;
const SMALLS: usize = 192;
const LARGES: usize = 64;

/// As many requests as there are bufs.
pub(super) const DEPTH: usize = SMALLS + LARGES;

/// See the module.
pub(super) struct Pools {
    small: BufPool,
    /// Made when it is first needed: a ring that registers it makes all of it resident.
    large: OnceCell<BufPool>,
}

impl Pools {
    pub(super) fn new() -> Pools {
        Pools {
            small: BufPool::new(SMALL, SMALLS),
            large: OnceCell::new(),
        }
    }

    /// A buf for so many bytes, or as many of them as one holds; none if all of that size are in use.
    pub(super) fn get(&self, want: u64) -> Option<Buf> {
        if want > SMALL as u64 {
            self.large().get()
        } else {
            self.small.get()
        }
    }

    /// Takes a whole buf back.
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
