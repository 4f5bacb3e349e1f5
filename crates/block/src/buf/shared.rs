//! Memory that a cache keeps, and that writes to a device read meanwhile without a copy.
//!
//! Input: a length, or a [`Buf`]. Output: its bytes; bufs that are lent to writes. Invariants: while a part is lent nobody can write to the
//! memory: lent bufs give no mutable bytes, no device reads into them, and the owner gets mutable bytes only when all are back. Limits: one
//! contiguous piece of at most 2 GiB.

use super::{BUF_ALIGN, Buf, HUGE_PAGE, Mem, Region};
use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory with one owner, who lends parts of it to writes. Send and Sync.
pub struct Shared {
    /// That of the region, so that a look at the bytes does not have to look at the region first.
    base: NonNull<u8>,
    len: usize,
    region: Arc<Region>,
}

// SAFETY: `base` points into the region, which is Send and Sync; who may touch the bytes is governed by the methods.
unsafe impl Send for Shared {}
// SAFETY: as above: a shared reference gives shared bytes only.
unsafe impl Sync for Shared {}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({} bytes)", self.len)
    }
}

impl Shared {
    /// `len` zeroed bytes, aligned to [`BUF_ALIGN`]; a multiple of 2 MiB lies in huge pages if the host has them. None if memory is
    /// exhausted, or for more than 2 GiB.
    #[must_use]
    pub fn try_zeroed(len: usize) -> Option<Shared> {
        if len > 1 << 31 {
            return None;
        }
        if len > 0 && len.is_multiple_of(HUGE_PAGE) {
            return Region::try_map(len).map(|region| Shared::over(region, len));
        }
        let region = Region::try_allocate(len.next_multiple_of(BUF_ALIGN), 0).ok()?;
        Some(Shared::over(region, len))
    }

    /// The first `len` bytes of a region, which has so many.
    fn over(region: Arc<Region>, len: usize) -> Shared {
        let base = region.base;
        Shared { base, len, region }
    }

    /// `len` bytes from `start` on, which belong to somebody else.
    ///
    /// # Safety
    /// `start..start+len` must be valid for reads and writes as long as `keeper` lives, and nobody else may touch it while this, or a buf
    /// over it, is used. What somebody else writes meanwhile by agreement with the owner is the owner's to order.
    ///
    /// # Panics
    /// If `len` is more than 2 GiB.
    #[must_use]
    pub unsafe fn from_foreign(
        start: NonNull<u8>,
        len: usize,
        keeper: Arc<dyn Any + Send + Sync>,
    ) -> Shared {
        assert!(len <= 1 << 31, "a buf has at most 2 GiB");
        Shared::over(Region::foreign((start, len), keeper, 0), len)
    }

    /// The memory of a buf that has it alone and from its first byte on, as [`Buf::zeroed`] makes them.
    ///
    /// # Errors
    /// Any other buf is given back.
    pub fn from_buf(mut buf: Buf) -> Result<Shared, Buf> {
        let len = buf.len();
        let start = buf.start;
        let whole = match &mut *buf.mem {
            Mem::Part(region) if region.base == start && region.id == 0 => {
                Arc::get_mut(region).is_some()
            }
            _ => false,
        };
        match buf.region().cloned().filter(|_| whole) {
            Some(region) => Ok(Shared::over(region, len)),
            None => Err(buf),
        }
    }

    /// The memory as a buf, to be read into. If a part is lent it is a copy.
    #[must_use]
    pub fn into_buf(mut self) -> Buf {
        if self.bytes_mut().is_none() {
            let mut copy = Buf::zeroed(self.len);
            copy.copy_in(0, self.bytes());
            return copy;
        }
        let len = self.len;
        Buf::over(self.region, 0, len)
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the region has at least `len` bytes and lives as long as self. Nobody writes to them while this borrow lives: self gives
        // mutable bytes for `&mut self` only, and lent bufs give none.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// The bytes, to write to. None while a part is lent.
    #[must_use]
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Arc::get_mut(&mut self.region)?;
        // SAFETY: as in `bytes`; no lent buf is left, as each has a reference to the region, and `&mut self` excludes other borrows.
        Some(unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) })
    }

    /// A buf over a part of the bytes, for a write to a device.
    ///
    /// # Panics
    /// If the range is not inside.
    #[must_use]
    pub fn lend(&self, range: Range<usize>) -> Buf {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "a lent buf lies inside"
        );
        let len = u32::try_from(range.end - range.start).expect("at most 2 GiB");
        Buf {
            mem: ManuallyDrop::new(Mem::Lent(self.region.clone())),
            // SAFETY: `start` is inside the region, checked above.
            start: unsafe { self.base.add(range.start) },
            len,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bio, MemDevice};

    #[test]
    fn nobody_writes_while_a_part_is_lent() {
        let mut shared = Shared::try_zeroed(8192).expect("little memory");
        shared.bytes_mut().expect("nothing is lent")[4096..].fill(7);
        let lent = shared.lend(4096..8192);
        assert!(lent.is_lent() && shared.bytes_mut().is_none());
        assert_eq!(lent.as_slice(), &[7; 4096]);
        let mut both = Buf::from_parts(vec![Buf::zeroed(512), lent]);
        assert!(both.is_lent());
        let behind = both.split_off(1024);
        assert!(both.is_lent() && behind.is_lent() && shared.bytes_mut().is_none());
        drop(both);
        drop(behind);
        assert_eq!(shared.bytes_mut().map(|b| b[8191]), Some(7));
        assert!(Shared::try_zeroed(usize::MAX).is_none());
    }

    #[test]
    fn huge_memory_is_aligned_zeroed_and_writable() {
        let mut shared = Shared::try_zeroed(4 << 20).expect("little memory");
        let bytes = shared.bytes_mut().expect("nothing is lent");
        assert_eq!(bytes.as_ptr().align_offset(HUGE_PAGE), 0);
        assert!(bytes.iter().all(|b| *b == 0));
        bytes[(4 << 20) - 1] = 9;
        let buf = shared.into_buf();
        let shared = Shared::from_buf(buf).expect("whole, alone");
        assert_eq!(shared.bytes().last(), Some(&9));
    }

    #[test]
    fn only_a_whole_buf_becomes_shared() {
        let mut buf = Buf::zeroed(8192);
        buf.copy_in(0, &[5]);
        let tail = buf.split_off(4096);
        let (tail, buf) = (Shared::from_buf(tail), Shared::from_buf(buf));
        let (tail, buf) = (
            tail.expect_err("not the start"),
            buf.expect_err("not alone"),
        );
        drop(tail);
        let mut shared = Shared::from_buf(buf).expect("alone now");
        assert_eq!((shared.len(), shared.bytes()[0]), (4096, 5));
        assert!(shared.bytes_mut().is_some());
        assert!(Shared::from_buf(shared.lend(0..512)).is_err());
    }

    #[test]
    #[should_panic(expected = "nobody writes")]
    fn a_lent_buf_gives_no_mutable_bytes() {
        let shared = Shared::try_zeroed(4096).expect("little memory");
        shared.lend(0..4096).zero(0..1);
    }

    /// A device may write a lent buf, and refuses to read into one.
    #[test]
    fn nothing_is_read_into_a_lent_buf() {
        let shared = Shared::try_zeroed(4096).expect("little memory");
        let blocking = crate::Blocking::new(std::sync::Arc::new(MemDevice::new(1 << 20)));
        assert!(
            blocking
                .run(Bio::write(0, shared.lend(0..4096), 0))
                .result
                .is_ok()
        );
        assert!(
            blocking
                .run(Bio::read(0, shared.lend(0..4096), 0))
                .result
                .is_err()
        );
    }
}
