//! Owned, aligned memory for requests: allocated here, cut from a pool, or wrapped around foreign memory.
//!
//! Input: sizes, or foreign memory with the object that keeps it alive. Output: [`Buf`]s inside requests and bios. Invariant:
//! every [`Buf`] is the only owner of its bytes; two live bufs never overlap. To let several bios fill one buf, a [`Split`]
//! cuts it, and gets every part back before the whole can be touched again. The exception is a buf that a [`Shared`] has lent: it can be
//! read only. Limits: one buf is at most 2 GiB.

mod copy;
mod foreign;
mod pool;
mod shared;
mod split;

pub use copy::copy;
pub use foreign::Foreign;
pub use pool::BufPool;
pub use shared::Shared;
pub use split::Split;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The alignment of memory that is allocated here: a page, enough for the DMA alignment of every device we open.
pub const BUF_ALIGN: usize = 4096;

/// From this size on, memory comes from the host as zero pages and is not touched here.
const HUGE: usize = 64 << 20;

/// The size and alignment of huge pages of the host.
const HUGE_PAGE: usize = 2 << 20;

/// The address of empty bufs: aligned like allocated memory, so that no alignment check refuses an empty buf.
#[repr(align(4096))]
struct Aligned;

/// What keeps a region's memory alive.
enum Keeper {
    /// Allocated here, at this address with this layout: the region begins at its first page boundary.
    Owned(NonNull<u8>, Layout),
    /// A mapping of this length, which begins at the address.
    Mapped(NonNull<u8>, usize),
    /// Foreign memory: alive as long as this value.
    Foreign(#[expect(dead_code, reason = "held for its Drop only")] Arc<dyn Any + Send + Sync>),
}

/// One piece of memory that bufs are cut from.
struct Region {
    base: NonNull<u8>,
    len: usize,
    keeper: Keeper,
    /// Unique in the process and never reused, so a ring may remember it; 0 if the region is not worth registering.
    id: u64,
}

// SAFETY: a region is plain memory without thread affinity; who may touch which bytes is governed by Buf.
unsafe impl Send for Region {}
// SAFETY: as above; Region itself gives no access to the bytes.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        match self.keeper {
            Keeper::Owned(start, layout) => {
                // SAFETY: `start` came from alloc_zeroed with this very layout, and the last Buf over it is gone.
                unsafe { dealloc(start.as_ptr(), layout) };
            }
            Keeper::Mapped(start, len) => {
                // SAFETY: the mapping was made in `try_map`, and the last Buf over it is gone.
                let unmapped = unsafe { munmap(start.as_ptr().cast(), len) };
                debug_assert!(unmapped.is_ok(), "unmapping our own mapping succeeds");
            }
            Keeper::Foreign(_) => {}
        }
    }
}

impl Region {
    /// Memory with another owner: whoever makes bufs over it answers for that.
    fn foreign(
        (base, len): (NonNull<u8>, usize),
        keeper: Arc<dyn Any + Send + Sync>,
        id: u64,
    ) -> Arc<Region> {
        Arc::new(Region {
            base,
            len,
            keeper: Keeper::Foreign(keeper),
            id,
        })
    }

    fn allocate(len: usize, id: u64) -> Arc<Region> {
        Region::try_allocate(len, id).unwrap_or_else(|layout| handle_alloc_error(layout))
    }

    fn try_allocate(len: usize, id: u64) -> Result<Arc<Region>, Layout> {
        let size = len.next_multiple_of(BUF_ALIGN).max(BUF_ALIGN);
        // With an alignment, `alloc_zeroed` writes the zeros itself. Large allocations come from the host as zero pages, so for
        // them no alignment is requested and no page is touched before it is used.
        let (more, align) = match size >= HUGE {
            true => (BUF_ALIGN, 1),
            false => (0, BUF_ALIGN),
        };
        let layout = Layout::from_size_align(size + more, align)
            .expect("a buf is at most 2 GiB, which any layout can hold");
        // SAFETY: the layout's size is at least BUF_ALIGN, so not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            return Err(layout);
        };
        let skip = start.as_ptr().align_offset(BUF_ALIGN);
        // SAFETY: `skip` is 0 for memory that is aligned, and else less than BUF_ALIGN, which was allocated in addition to `size`.
        let base = unsafe { start.add(skip) };
        Ok(Arc::new(Region {
            base,
            len: size,
            keeper: Keeper::Owned(start, layout),
            id,
        }))
    }
}

/// Memory that lies in huge pages of the host, if it has them.
impl Region {
    /// `len` zero bytes, a multiple of [`HUGE_PAGE`]. None if the host gives no memory.
    fn try_map(len: usize) -> Option<Arc<Region>> {
        let mapped = len.checked_add(HUGE_PAGE)?;
        // SAFETY: a fresh private mapping at an address of the host's choice overlaps nothing of ours.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let start = NonNull::new(start.ok()?.cast::<u8>())?;
        let skip = start.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: `skip` is less than HUGE_PAGE, which was mapped in addition to `len`.
        let base = unsafe { start.add(skip) };
        // SAFETY: advice on our own mapping, which changes no byte. That it is not taken is no error.
        let _ = unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        Some(Arc::new(Region {
            base,
            len,
            keeper: Keeper::Mapped(start, mapped),
            id: 0,
        }))
    }
}

fn next_region_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Owned memory for I/O: contiguous, or a vector of contiguous parts.
///
/// Send and Sync. Dropping the last buf over a region frees its memory.
pub struct Buf {
    mem: ManuallyDrop<Mem>,
    /// Start and length of the first part.
    start: NonNull<u8>,
    len: u32,
}

/// What a buf owns. One discriminant separates all three cases, because bufs are moved and dropped for every request.
enum Mem {
    /// Nothing.
    None,
    /// A part of this region.
    Part(Arc<Region>),
    /// A part of a region, followed by further parts.
    Parts(Box<Vectored>),
    /// A part of a region that a [`Shared`] has lent: nobody may write to it.
    Lent(Arc<Region>),
}

struct Vectored {
    region: Arc<Region>,
    /// The first part is lent.
    lent: bool,
    /// The parts after the first, each of them contiguous; never empty.
    rest: Vec<Buf>,
}

impl Mem {
    fn of(region: Arc<Region>, lent: bool) -> Mem {
        match lent {
            true => Mem::Lent(region),
            false => Mem::Part(region),
        }
    }
}

impl Drop for Buf {
    /// Dropping a buf without memory costs one comparison: most places hold such a buf after the memory was moved on.
    #[inline(always)]
    fn drop(&mut self) {
        if !matches!(*self.mem, Mem::None) {
            self.release();
        }
    }
}

// SAFETY: Buf is the only owner of its bytes, like Vec<u8>.
unsafe impl Send for Buf {}
// SAFETY: a shared Buf gives only shared slices, like Vec<u8>.
unsafe impl Sync for Buf {}

impl Default for Buf {
    fn default() -> Self {
        Buf::empty()
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Buf({} bytes, {} parts)",
            self.len(),
            self.parts().count()
        )
    }
}

impl Buf {
    /// An empty buf, for requests without data.
    #[must_use]
    pub const fn empty() -> Buf {
        Buf {
            mem: ManuallyDrop::new(Mem::None),
            start: NonNull::<Aligned>::dangling().cast(),
            len: 0,
        }
    }

    /// `len` zeroed bytes, aligned to [`BUF_ALIGN`].
    ///
    /// # Panics
    /// If `len` is more than 2 GiB, or memory is exhausted.
    #[must_use]
    pub fn zeroed(len: usize) -> Buf {
        Buf::over(Region::allocate(len, 0), 0, len)
    }

    /// As [`Buf::zeroed`]; None if memory is exhausted, or for more than 2 GiB.
    #[must_use]
    pub fn try_zeroed(len: usize) -> Option<Buf> {
        if len > 1 << 31 {
            return None;
        }
        let region = Region::try_allocate(len, 0).ok()?;
        Some(Buf::over(region, 0, len))
    }

    /// Wraps memory with another owner: guest RAM, a FUSE payload.
    ///
    /// # Safety
    /// `start..start+len` must be valid for reads and writes as long as `keeper` lives, and nobody else may touch it while this
    /// buf, or any part of it, is alive.
    ///
    /// # Panics
    /// If `len` is more than 2 GiB.
    #[must_use]
    pub unsafe fn from_foreign(
        start: NonNull<u8>,
        len: usize,
        keeper: Arc<dyn Any + Send + Sync>,
    ) -> Buf {
        Buf::over(
            Region::foreign((start, len), keeper, next_region_id()),
            0,
            len,
        )
    }

    /// A vectored buf of `parts` in this order, of any sizes.
    #[must_use]
    pub fn from_parts(parts: Vec<Buf>) -> Buf {
        let mut flat = Vec::with_capacity(parts.len());
        for mut part in parts {
            let rest = part.take_rest();
            flat.push(part);
            flat.extend(rest);
        }
        flat.retain(|p| p.len > 0);
        let mut parts = flat.into_iter();
        let Some(mut first) = parts.next() else {
            return Buf::empty();
        };
        first.put_rest(parts.collect());
        first
    }

    /// Moves the parts after the first out of this buf.
    fn take_rest(&mut self) -> Vec<Buf> {
        match std::mem::replace(&mut *self.mem, Mem::None) {
            Mem::Parts(v) => {
                *self.mem = Mem::of(v.region, v.lent);
                v.rest
            }
            other => {
                *self.mem = other;
                Vec::new()
            }
        }
    }

    /// Sets the parts after the first.
    fn put_rest(&mut self, rest: Vec<Buf>) {
        if let (false, Some(region)) = (rest.is_empty(), self.region().cloned()) {
            let lent = self.first_is_lent();
            *self.mem = Mem::Parts(Box::new(Vectored { region, lent, rest }));
        }
    }

    /// The slow part of `drop`.
    #[inline(never)]
    fn release(&mut self) {
        // SAFETY: called by `drop` only, so the value is never used again.
        unsafe { ManuallyDrop::drop(&mut self.mem) };
    }

    fn region(&self) -> Option<&Arc<Region>> {
        match &*self.mem {
            Mem::None => None,
            Mem::Part(region) | Mem::Lent(region) => Some(region),
            Mem::Parts(v) => Some(&v.region),
        }
    }

    fn first_is_lent(&self) -> bool {
        match &*self.mem {
            Mem::None | Mem::Part(_) => false,
            Mem::Lent(_) => true,
            Mem::Parts(v) => v.lent,
        }
    }

    /// Whether a part of the buf is lent by a [`Shared`]: it can be written to a device, but nothing can be read into it.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.first_is_lent() || self.rest().iter().any(Buf::first_is_lent)
    }

    #[inline]
    fn rest(&self) -> &[Buf] {
        match &*self.mem {
            Mem::Parts(v) => &v.rest,
            Mem::None | Mem::Part(_) | Mem::Lent(_) => &[],
        }
    }

    fn over(region: Arc<Region>, at: usize, len: usize) -> Buf {
        assert!(
            at.checked_add(len).is_some_and(|end| end <= region.len),
            "a buf lies inside its region"
        );
        let len = u32::try_from(len)
            .ok()
            .filter(|l| *l <= 1 << 31)
            .expect("a buf is at most 2 GiB");
        // SAFETY: `at` is inside the region, checked above.
        let start = unsafe { region.base.add(at) };
        Buf {
            mem: ManuallyDrop::new(Mem::Part(region)),
            start,
            len,
        }
    }

    /// Length in bytes, over all parts.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match &*self.mem {
            Mem::Parts(v) => {
                self.len as usize + v.rest.iter().map(|p| p.len as usize).sum::<usize>()
            }
            Mem::None | Mem::Part(_) | Mem::Lent(_) => self.len as usize,
        }
    }

    /// Whether the buf has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address and length of a buf with one part, as numbers; none if it is vectored.
    #[inline]
    #[must_use]
    pub fn contiguous(&self) -> Option<(usize, u64)> {
        (!self.is_vectored()).then(|| (self.start.as_ptr() as usize, u64::from(self.len)))
    }

    /// Whether the buf has more than one part.
    #[inline]
    #[must_use]
    pub fn is_vectored(&self) -> bool {
        matches!(*self.mem, Mem::Parts(_))
    }

    /// The bytes of a contiguous buf.
    ///
    /// # Panics
    /// If the buf is vectored; use [`Buf::parts`] then.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        assert!(!self.is_vectored(), "as_slice is for contiguous bufs");
        self.part_slice()
    }

    /// The bytes of a contiguous buf, to write to.
    ///
    /// # Panics
    /// If the buf is vectored; use [`Buf::parts_mut`] then. If it is lent by a [`Shared`].
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        assert!(!self.is_vectored(), "as_mut_slice is for contiguous bufs");
        self.part_slice_mut()
    }

    fn part_slice(&self) -> &[u8] {
        // SAFETY: start..start+len lies inside the region, which lives as long as self, and self owns these bytes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len as usize) }
    }

    fn part_slice_mut(&mut self) -> &mut [u8] {
        assert!(!self.first_is_lent(), "nobody writes to a lent buf");
        // SAFETY: as in part_slice; &mut self makes the access exclusive, as the memory is not lent.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len as usize) }
    }

    /// Every contiguous part, in order.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.part_slice()).chain(self.rest().iter().map(Buf::part_slice))
    }

    /// Every contiguous part, in order, to write to.
    ///
    /// # Panics
    /// If a part is lent by a [`Shared`].
    pub fn parts_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        assert!(!self.first_is_lent(), "nobody writes to a lent buf");
        let Buf { start, len, mem } = self;
        // SAFETY: as in part_slice_mut; the borrow of self is held by the iterator, and the rest are other bytes.
        let first = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), *len as usize) };
        let rest = match &mut **mem {
            Mem::Parts(v) => &mut v.rest[..],
            Mem::None | Mem::Part(_) | Mem::Lent(_) => &mut [],
        };
        std::iter::once(first).chain(rest.iter_mut().map(Buf::part_slice_mut))
    }

    /// Address bits of all parts ORed: the lowest set bit is the alignment of the whole buf.
    #[must_use]
    pub fn alignment_bits(&self) -> usize {
        self.raw_parts()
            .fold(0, |bits, (start, _)| bits | start.as_ptr() as usize)
    }

    /// Writes zeros to `range` (bytes from the buf's start, over all parts).
    ///
    /// # Panics
    /// If the range does not lie inside the buf.
    pub fn zero(&mut self, range: std::ops::Range<usize>) {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "zero inside the buf"
        );
        let mut at = 0;
        for part in self.parts_mut() {
            let (from, to) = (
                range.start.clamp(at, at + part.len()),
                range.end.clamp(at, at + part.len()),
            );
            part[from - at..to - at].fill(0);
            at += part.len();
        }
    }

    /// Copies `src` into the buf from byte `at` on, over all parts.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn copy_in(&mut self, at: usize, src: &[u8]) {
        let room = self.len().checked_sub(at);
        assert!(
            room.is_some_and(|room| src.len() <= room),
            "copy inside the buf"
        );
        let (mut skip, mut src) = (at, src);
        for part in self.parts_mut() {
            let from = skip.min(part.len());
            skip -= from;
            let n = src.len().min(part.len() - from);
            copy(&mut part[from..from + n], &src[..n]);
            src = &src[n..];
        }
    }

    /// Splits the buf at byte `at`: self keeps the bytes before it, the rest is returned. Allocates only for vectored bufs.
    ///
    /// # Panics
    /// If `at` is past the end.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Buf {
        let first = self.len as usize;
        if at >= first && self.is_vectored() {
            return self.split_off_later(at - first);
        }
        assert!(at <= first, "split inside the buf");
        let rest = self.take_rest();
        let tail_len = self.len - u32::try_from(at).expect("at is at most len, which is a u32");
        let mut tail = Buf {
            mem: ManuallyDrop::new(
                self.region()
                    .map_or(Mem::None, |r| Mem::of(r.clone(), self.first_is_lent())),
            ),
            // SAFETY: at <= len, so the result is inside the region or one past the part's end.
            start: unsafe { self.start.add(at) },
            len: tail_len,
        };
        tail.put_rest(rest);
        self.len -= tail_len;
        tail
    }

    fn split_off_later(&mut self, mut at: usize) -> Buf {
        let mut rest = self.take_rest();
        let mut keep = 0;
        while keep < rest.len() && at >= rest[keep].len as usize {
            at -= rest[keep].len as usize;
            keep += 1;
        }
        let mut tail = rest.split_off(keep);
        if at > 0 {
            let behind = tail
                .first_mut()
                .expect("split inside the buf")
                .split_off(at);
            rest.push(std::mem::replace(&mut tail[0], behind));
        }
        self.put_rest(rest);
        Buf::from_parts(tail)
    }

    /// Start and length of every part, for the kernel's iovecs. Only the ring touches the memory.
    pub(crate) fn raw_parts(&self) -> impl Iterator<Item = (NonNull<u8>, u32)> {
        std::iter::once((self.start, self.len)).chain(self.rest().iter().map(|p| (p.start, p.len)))
    }

    /// The region's base, length and never-reused id, if a ring may register it: the buf is contiguous and its region will be
    /// seen again.
    pub(crate) fn registrable(&self) -> Option<(NonNull<u8>, usize, u64)> {
        match &*self.mem {
            Mem::Part(region) if region.id != 0 => Some((region.base, region.len, region.id)),
            _ => None,
        }
    }

    /// A second buf over the same bytes. Nobody may access it while the first is alive.
    fn ghost(&self) -> Buf {
        let mem = match &*self.mem {
            Mem::None => Mem::None,
            Mem::Part(region) => Mem::Part(region.clone()),
            Mem::Lent(region) => Mem::Lent(region.clone()),
            Mem::Parts(v) => {
                let rest = v.rest.iter().map(Buf::ghost).collect();
                Mem::Parts(Box::new(Vectored {
                    region: v.region.clone(),
                    lent: v.lent,
                    rest,
                }))
            }
        };
        Buf {
            mem: ManuallyDrop::new(mem),
            start: self.start,
            len: self.len,
        }
    }

    fn lies_in(&self, other: &Buf) -> bool {
        let (a, b) = (self.start.as_ptr() as usize, other.start.as_ptr() as usize);
        a >= b && a + self.len as usize <= b + other.len as usize
    }
}

#[cfg(test)]
mod tests;
