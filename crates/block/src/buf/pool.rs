//! Pools of bufs of one size, cut from one region so that a ring registers them all at once.
//!
//! Input: a size and a count. Output: bufs, handed out and taken back. Invariant: two bufs of a pool never overlap. Limits: a
//! pool does not grow.

use super::{BUF_ALIGN, Buf, Region, next_region_id};
use std::fmt;
use std::sync::{Arc, Mutex};

/// A pool of bufs of one size, cut from one region so that a ring registers them all at once.
///
/// Send and Sync; get and put take one short lock. A buf that is dropped instead of put back is lost to the pool and keeps the
/// pool's memory alive.
pub struct BufPool {
    free: Mutex<Vec<Buf>>,
    size: usize,
}

impl fmt::Debug for BufPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufPool")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl BufPool {
    /// `count` bufs of `size` bytes each, every one aligned to `size` rounded up to a power of two, at most a page.
    ///
    /// # Panics
    /// If memory is exhausted, or the product exceeds the address space.
    #[must_use]
    pub fn new(size: usize, count: usize) -> BufPool {
        let (step, total) = Self::layout(size, count).expect("a pool fits an address space");
        Self::over(
            &Region::allocate(total, next_region_id()),
            step,
            size,
            count,
        )
    }

    /// As [`BufPool::new`]; None if memory is exhausted, or the product exceeds the address space.
    #[must_use]
    pub fn try_new(size: usize, count: usize) -> Option<BufPool> {
        let (step, total) = Self::layout(size, count)?;
        let region = Region::try_allocate(total, next_region_id()).ok()?;
        Some(Self::over(&region, step, size, count))
    }

    /// Bytes from one buf to the next, and of all.
    fn layout(size: usize, count: usize) -> Option<(usize, usize)> {
        let align = size.checked_next_power_of_two()?.clamp(512, BUF_ALIGN);
        let step = size.checked_next_multiple_of(align)?;
        Some((step, step.checked_mul(count)?))
    }

    fn over(region: &Arc<Region>, step: usize, size: usize, count: usize) -> BufPool {
        let free = (0..count)
            .rev()
            .map(|i| Buf::over(region.clone(), i * step, size))
            .collect();
        BufPool {
            free: Mutex::new(free),
            size,
        }
    }

    /// A buf, or none if all are in use. Its bytes are those of its last user.
    #[must_use]
    pub fn get(&self) -> Option<Buf> {
        self.free
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .pop()
    }

    /// Returns a buf to the pool. A buf that is not of this pool's size is dropped.
    pub fn put(&self, buf: Buf) {
        if buf.len() == self.size && !buf.is_vectored() {
            self.free
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .push(buf);
        }
    }
}
