//! The registered buffers of one ring: which regions the kernel has pinned, and under which index.
//!
//! Input: bufs to submit. Output: the index for READ_FIXED or WRITE_FIXED, or none for an unregistered transfer. Invariant: an
//! index is only given for the region id that it was registered for, and ids are never reused. Limits: [`TABLE`] regions per
//! ring. A region is registered when it is seen for the second time, so memory wrapped for one request costs nothing. After
//! [`MAX_FAILURES`] refusals (memory lock limit) the ring stops trying.

use crate::buf::Buf;
use crate::file::target::Target;
use io_uring::IoUring;
use std::sync::atomic::Ordering;

/// The most regions that one ring registers.
const TABLE: u32 = 64;
/// Entries of the look-up table; a power of two.
const CACHE: usize = 256;
/// Refusals after which a ring stops trying.
const MAX_FAILURES: u32 = 4;

/// What is known of the region that hashes to an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    SeenOnce,
    Registered(u16),
    Plain,
}

/// A ring's table.
pub(super) struct Regs {
    cache: Box<[(u64, Known)]>,
    /// The region of every index of the kernel's table, in order of registration.
    table: Vec<u64>,
    failures: u32,
    /// The kernel has a buffer table.
    usable: bool,
}

impl Regs {
    /// A ring's empty table.
    pub(super) fn new(ring: &IoUring) -> Regs {
        Regs {
            cache: vec![(0, Known::Plain); CACHE].into_boxed_slice(),
            table: Vec::with_capacity(TABLE as usize),
            failures: 0,
            usable: ring.submitter().register_buffers_sparse(TABLE).is_ok(),
        }
    }

    /// Lets go of all regions. What is in flight keeps its own.
    pub(super) fn forget(&mut self, ring: &IoUring) {
        if self.table.is_empty() {
            return;
        }
        let none = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let all = vec![none; self.table.len()];
        // SAFETY: no memory is named.
        let gone = unsafe { ring.submitter().register_buffers_update(0, &all, None) };
        if gone.is_ok() {
            self.table.clear();
        }
        self.cache.fill((0, Known::Plain));
    }

    /// The index under which the buf's region is registered.
    #[inline]
    pub(super) fn look_up(&mut self, ring: &IoUring, target: &Target, buf: &Buf) -> Option<u16> {
        let (_, _, id) = buf.registrable()?;
        match self.cache[id as usize % CACHE] {
            (known, Known::Registered(number)) if known == id => Some(number),
            (known, Known::Plain) if known == id => None,
            _ => self.meet(ring, target, buf),
        }
    }

    /// A new region, or one whose cache entry another region has taken.
    #[cold]
    fn meet(&mut self, ring: &IoUring, target: &Target, buf: &Buf) -> Option<u16> {
        let (_, _, id) = buf.registrable()?;
        let entry = self.cache[id as usize % CACHE];
        let known = if let Some(number) = self.table.iter().position(|t| *t == id) {
            Known::Registered(number as u16)
        } else if entry != (id, Known::SeenOnce) {
            Known::SeenOnce
        } else if let Some(number) = self.register(ring, buf) {
            target.registered.fetch_add(1, Ordering::Relaxed);
            Known::Registered(number)
        } else {
            target.plain.fetch_add(1, Ordering::Relaxed);
            Known::Plain
        };
        self.cache[id as usize % CACHE] = (id, known);
        match known {
            Known::Registered(number) => Some(number),
            Known::SeenOnce | Known::Plain => None,
        }
    }

    fn register(&mut self, ring: &IoUring, buf: &Buf) -> Option<u16> {
        let number = self.table.len() as u32;
        if !self.usable || self.failures >= MAX_FAILURES || number >= TABLE {
            return None;
        }
        let (base, len, id) = buf.registrable()?;
        let iovec = libc::iovec {
            iov_base: base.as_ptr().cast(),
            iov_len: len,
        };
        // SAFETY: the kernel pins the pages, so they outlive even the region's own mapping; the number is named only in
        // requests for live bufs of this very region id.
        let done = unsafe {
            ring.submitter()
                .register_buffers_update(number, &[iovec], None)
        };
        match done {
            Ok(()) => {
                self.table.push(id);
                Some(number as u16)
            }
            Err(_) => {
                self.failures += 1;
                None
            }
        }
    }
}
