//! Memory of somebody else, from which bufs are made without an allocation: for frontends whose callers bring their own buffers.
//!
//! Input: a piece of memory, or none in particular. Output: [`Buf`]s over it. Invariants: a buf lies inside the piece. Limits: who may
//! touch the bytes meanwhile is the caller's promise; one buf is at most 2 GiB.

use super::{Buf, Mem, Region, next_region_id};
use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory with another owner. Send and Sync. A buf of it costs one reference count.
pub struct Foreign(Arc<Region>);

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Foreign({} bytes)", self.0.len)
    }
}

impl Foreign {
    /// A piece of memory that requests will use again and again: a ring may register it.
    ///
    /// # Safety
    /// `start..start+len` must be valid for reads and writes as long as `keeper` lives.
    #[must_use]
    pub unsafe fn piece(
        start: NonNull<u8>,
        len: usize,
        keeper: Arc<dyn Any + Send + Sync>,
    ) -> Foreign {
        Foreign(Region::foreign((start, len), keeper, next_region_id()))
    }

    /// All memory of the process; no ring registers it.
    #[must_use]
    pub fn anywhere() -> Foreign {
        let all = (NonNull::dangling(), usize::MAX);
        Foreign(Region::foreign(all, Arc::new(()), 0))
    }

    /// A buf over `len` bytes at `start`. None if they are not inside the piece, or more than 2 GiB.
    ///
    /// # Safety
    /// The bytes must be valid for reads and writes, and nobody else may touch them, until the buf and all its parts are dropped. A buf
    /// that is only written from may be read by others meanwhile, and need not be valid for writes.
    #[inline]
    #[must_use]
    pub unsafe fn buf(&self, start: NonNull<u8>, len: usize) -> Option<Buf> {
        let region = &self.0;
        let at = (start.as_ptr() as usize).wrapping_sub(region.base.as_ptr() as usize);
        let most = region.len.checked_sub(at)?;
        let short = u32::try_from(len).ok().filter(|len| *len <= 1 << 31)?;
        // SAFETY: the caller's promise.
        (len <= most).then(|| unsafe { self.buf_anywhere(start, short) })
    }

    /// As [`Foreign::buf`], without a look where the bytes are.
    ///
    /// # Safety
    /// As of [`Foreign::buf`]; they are inside the piece, and at most 2 GiB.
    #[inline]
    #[must_use]
    pub unsafe fn buf_anywhere(&self, start: NonNull<u8>, len: u32) -> Buf {
        Buf {
            mem: ManuallyDrop::new(Mem::Part(self.0.clone())),
            start,
            len,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(bytes: &mut [u8]) -> (NonNull<u8>, Foreign) {
        let start = NonNull::new(bytes.as_mut_ptr()).expect("memory of a slice");
        // SAFETY: the tests keep the slice until the bufs are gone.
        (start, unsafe {
            Foreign::piece(start, bytes.len(), Arc::new(()))
        })
    }

    #[test]
    fn a_buf_lies_inside_its_piece() {
        let mut bytes = vec![0; 8192];
        let (start, piece) = over(&mut bytes);
        // SAFETY: nobody else touches the bytes while the bufs live; those outside are refused.
        let (inside, behind, before) = unsafe {
            let before = NonNull::new(start.as_ptr().wrapping_sub(1)).expect("not null");
            (
                piece.buf(start.add(4096), 4096),
                piece.buf(start.add(4096), 4097),
                piece.buf(before, 1),
            )
        };
        assert!(behind.is_none() && before.is_none());
        let mut inside = inside.expect("it lies inside");
        assert!(
            inside
                .registrable()
                .is_some_and(|(base, len, _)| base == start && len == 8192)
        );
        inside.copy_in(0, &[7; 4096]);
        drop(inside);
        assert!(bytes[..4096].iter().all(|b| *b == 0) && bytes[4096..].iter().all(|b| *b == 7));
    }

    #[test]
    fn memory_anywhere_is_not_registered() {
        let mut bytes = [0_u8; 512];
        let start = NonNull::from(&mut bytes).cast();
        let foreign = Foreign::anywhere();
        // SAFETY: nobody else touches the bytes while the buf lives.
        let buf = unsafe { foreign.buf(start, 512) }.expect("any memory");
        assert!(buf.registrable().is_none());
        // SAFETY: refused before it is used.
        assert!(unsafe { foreign.buf(start, (1 << 31) + 1) }.is_none());
    }
}
