//! The bufs of the parts in flight: twice as many small ones as large ones.
//!
//! Input: a number of bytes. Output: bufs, which a ring registers as one region each, and which come back when their part is finished.
//! Invariant: memory is bounded: when all bufs of a size are in use, the caller gets none. Limits: 64 KiB and 1 MiB.

use crate::host::process::{check_memory, no_memory};
use crate::output::report::Reason;
use diorite_block::{Buf, BufPool};

const SMALL: usize = 64 << 10;
/// The largest part with bytes.
pub(crate) const LARGE: usize = 1 << 20;

/// What a run needs besides: two queues, and the stack of the thread that reads.
const ROOM: usize = 8 << 20;

/// See the module.
pub(crate) struct Bufs {
    small: BufPool,
    large: BufPool,
    larges: usize,
}

impl Bufs {
    /// `larges` large bufs and twice as many small ones: 1.125 MiB for each.
    ///
    /// # Errors
    /// The host does not give this process so much memory.
    pub(crate) fn new(larges: usize) -> Result<Bufs, Reason> {
        let needed = larges * (2 * SMALL + LARGE);
        // All of them now, as it is too late where they are used. Their pages come from the host when they are touched.
        check_memory(needed + ROOM)?;
        let pools = BufPool::try_new(SMALL, 2 * larges).zip(BufPool::try_new(LARGE, larges));
        let (small, large) = pools.ok_or_else(|| no_memory(needed))?;
        Ok(Bufs {
            small,
            large,
            larges,
        })
    }

    /// The number of bufs.
    pub(crate) fn count(&self) -> usize {
        3 * self.larges
    }

    /// A buf of at least `want` bytes, at most [`LARGE`]; none if all bufs of its size are in use.
    pub(crate) fn get(&self, want: usize) -> Option<Buf> {
        match want > SMALL {
            true => self.large.get(),
            false => self.small.get(),
        }
    }

    /// Takes a whole buf back.
    pub(crate) fn put(&self, buf: Buf) {
        match buf.len() == SMALL {
            true => self.small.put(buf),
            false => self.large.put(buf),
        }
    }
}
