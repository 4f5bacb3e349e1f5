//! The bufs of the parts in flight: twice as many small ones as large ones.
//!
//! Input: a number of bytes. Output: bufs, which a ring registers as one region each, and which come back when their part is finished.
//! Invariant: memory is bounded: when all bufs of a size are in use, the caller gets none. Limits: 64 KiB and 1 MiB.

use diorite_block::{Buf, BufPool};
use std::cell::OnceCell;

const SMALL: usize = 64 << 10;
/// The largest part with bytes.
pub(crate) const LARGE: usize = 1 << 20;

/// See the module.
pub(crate) struct Bufs {
    small: BufPool,
    /// Made when it is first needed, because registering it with a ring makes all of its memory resident.
    large: OnceCell<BufPool>,
    larges: usize,
}

impl Bufs {
    /// `larges` large bufs and twice as many small ones: 1.125 MiB for each.
    pub(crate) fn new(larges: usize) -> Bufs {
        Bufs {
            small: BufPool::new(SMALL, 2 * larges),
            large: OnceCell::new(),
            larges,
        }
    }

    /// The number of bufs.
    pub(crate) fn count(&self) -> usize {
        3 * self.larges
    }

    /// A buf of at least `want` bytes, at most [`LARGE`]; none if all bufs of its size are in use.
    pub(crate) fn get(&self, want: usize) -> Option<Buf> {
        match want > SMALL {
            true => self.large().get(),
            false => self.small.get(),
        }
    }

    /// Takes a whole buf back.
    pub(crate) fn put(&self, buf: Buf) {
        match buf.len() == SMALL {
            true => self.small.put(buf),
            false => self.large().put(buf),
        }
    }

    fn large(&self) -> &BufPool {
        self.large.get_or_init(|| BufPool::new(LARGE, self.larges))
    }
}
