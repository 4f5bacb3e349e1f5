//! The bytes behind `mem:` and `sim:`: one lazily committed mapping, copied to and from under a lock per page.
//!
//! Input: ranges and buffers from the queues of this crate. Output: the bytes. Invariant: a page is accessed only under the
//! lock that it hashes to, so a sector always has one writer's content in full (rule G18) and no two accesses race. Limits: the
//! size must fit the address space; unwritten pages cost no memory.

use crate::buf::Buf;
use crate::device::{DeviceError, DeviceErrorKind, Run, Stored};
use crate::sync::Parts;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const PAGE: usize = 4096;
/// Locks that pages are hashed to: a power of two.
const LOCKS: usize = 4096;
/// Up to this size the host is asked for huge pages, because random access to many small pages costs more than the copy. Above
/// it, the memory that a sparse image wastes in huge pages could be too much.
const HUGE_PAGES: usize = 4 << 30;
/// The bytes that one bit of the map of touched space covers.
const CHUNK: usize = 64 << 10;

/// Bytes that start as zeros.
pub(crate) struct Arena {
    base: NonNull<u8>,
    len: usize,
    mapped: usize,
    /// Not from the `sync` module: these locks model the atomicity of a disk's sector. They are held for one copy of at most a
    /// page and never across anything that a scheduler could see, and counting them would hide the locks that matter.
    locks: Box<[Mutex<()>]>,
    /// One bit per chunk that was ever written.
    touched: Box<[AtomicU64]>,
}

// SAFETY: the mapping is plain memory; all access to it goes through the page locks.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: base..base+mapped is the mapping made in `new`; nobody else has its address.
        let result = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
        debug_assert!(result.is_ok(), "unmapping our own mapping succeeds");
    }
}

impl Arena {
    /// `size` zero bytes, none of them committed yet.
    pub(crate) fn new(size: u64) -> Result<Arena, DeviceError> {
        let too_large = || {
            DeviceError::new(
                DeviceErrorKind::Unsupported,
                format!(
                    "a memory device of {size} bytes does not fit this process's address space"
                ),
            )
        };
        let len = usize::try_from(size).map_err(|_| too_large())?;
        let mapped = len
            .checked_next_multiple_of(PAGE)
            .ok_or_else(too_large)?
            .max(PAGE);
        // SAFETY: a fresh private mapping at an address of the kernel's choice overlaps nothing of ours.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|e| DeviceError::host(format!("cannot map {size} bytes of memory"), e.into()))?;
        if mapped <= HUGE_PAGES {
            // SAFETY: advice on our own fresh mapping, which changes no byte. That it is not taken is no error.
            let _ = unsafe { madvise(base, mapped, Advice::LinuxHugepage) };
        }
        let chunks = mapped.div_ceil(CHUNK);
        Ok(Arena {
            base: NonNull::new(base.cast()).ok_or_else(too_large)?,
            len,
            mapped,
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
            touched: (0..chunks.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
        })
    }

    /// Makes the host commit all memory now, so that no access waits for that later. Best effort: otherwise each access waits.
    pub(crate) fn populate(&self) {
        let base = self.base.as_ptr().cast();
        // SAFETY: our own mapping; populating changes no byte.
        let _ = unsafe { madvise(base, self.mapped, Advice::LinuxPopulateWrite) };
    }

    /// See [`crate::MemDevice::parts_in_memory`].
    pub(crate) fn parts_in_memory(&self, parts: &mut Parts) {
        parts.add("device: locks of pages", &*self.locks);
        parts.add("device: written chunks", &*self.touched);
        parts.add_range("device: contents", self.base.addr().get(), self.mapped);
    }

    /// How many bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    /// Copies the bytes from `pos` on into `dst`.
    pub(crate) fn read(&self, pos: u64, dst: &mut [u8]) {
        let mut at = self.start(pos, dst.len() as u64);
        let mut rest = dst;
        while !rest.is_empty() {
            let n = (PAGE - at % PAGE).min(rest.len());
            let (head, tail) = rest.split_at_mut(n);
            if self.is_touched(at) {
                let _page = self.lock(at);
                // SAFETY: at + n <= len, checked by `start`; the lock keeps every other access to the page away; `head`
                // is the caller's own memory, never a part of this mapping.
                unsafe {
                    std::ptr::copy_nonoverlapping(self.base.as_ptr().add(at), head.as_mut_ptr(), n)
                };
            } else {
                head.fill(0);
            }
            rest = tail;
            at += n;
        }
    }

    /// Copies `src` to the bytes from `pos` on.
    pub(crate) fn write(&self, pos: u64, src: &[u8]) {
        let mut at = self.start(pos, src.len() as u64);
        let mut rest = src;
        while !rest.is_empty() {
            let (head, tail) = rest.split_at((PAGE - at % PAGE).min(rest.len()));
            self.touch(at);
            let _page = self.lock(at);
            // SAFETY: as in `read`, the other way round.
            unsafe {
                std::ptr::copy_nonoverlapping(head.as_ptr(), self.base.as_ptr().add(at), head.len())
            };
            rest = tail;
            at += head.len();
        }
    }

    /// Fills a buf, whatever its parts.
    pub(crate) fn read_buf(&self, pos: u64, buf: &mut Buf) {
        if cuts_sectors(buf) {
            let mut whole = vec![0; buf.len()];
            self.read(pos, &mut whole);
            return buf.copy_in(0, &whole);
        }
        let mut at = pos;
        for part in buf.parts_mut() {
            self.read(at, part);
            at += part.len() as u64;
        }
    }

    /// Stores a buf, whatever its parts.
    pub(crate) fn write_buf(&self, pos: u64, buf: &Buf) {
        if cuts_sectors(buf) {
            let whole: Vec<u8> = buf.parts().flatten().copied().collect();
            return self.write(pos, &whole);
        }
        let mut at = pos;
        for part in buf.parts() {
            self.write(at, part);
            at += part.len() as u64;
        }
    }

    /// Makes a range read as zeros; `unmap` returns whole pages to the host.
    pub(crate) fn zero(&self, pos: u64, len: u64, unmap: bool) {
        let mut at = self.start(pos, len);
        let end =
            at + usize::try_from(len).expect("the range lies inside the mapping, checked by start");
        while at < end {
            if !self.is_touched(at) {
                at = ((at / CHUNK + 1) * CHUNK).min(end);
                continue;
            }
            let n = (PAGE - at % PAGE).min(end - at);
            let _page = self.lock(at);
            if !(unmap && n == PAGE && self.give_back(at)) {
                // SAFETY: as in `write`.
                unsafe { std::ptr::write_bytes(self.base.as_ptr().add(at), 0, n) };
            }
            at += n;
        }
    }

    /// How the bytes of a range are stored: a chunk that was never written is a hole. The range lies inside; see
    /// [`crate::device::Device::stored`].
    pub(crate) fn stored(&self, range: Range<u64>, most: usize) -> Vec<Run> {
        let mut at = self.start(range.start, range.end - range.start);
        let end = at + (range.end - range.start) as usize;
        let mut runs: Vec<Run> = Vec::new();
        while at < end {
            let next = self.same_until(at).min(end);
            let len = (next - at) as u64;
            let stored = match self.is_touched(at) {
                true => Stored::Data,
                false => Stored::Hole,
            };
            let count = runs.len();
            match runs.last_mut() {
                Some(last) if last.stored == stored => last.len += len,
                _ if count >= most => break,
                _ => runs.push(Run { len, stored }),
            }
            at = next;
        }
        runs
    }

    /// A position behind `at` up to which all chunks are touched, or none is: that of 64 chunks if they are alike, else of one.
    fn same_until(&self, at: usize) -> usize {
        const WORD: usize = 64 * CHUNK;
        match self.touched[at / WORD].load(Ordering::Relaxed) {
            0 | u64::MAX => (at / WORD + 1) * WORD,
            _ => (at / CHUNK + 1) * CHUNK,
        }
    }

    /// Copies every touched chunk to `to`, which must have the same length and be untouched.
    pub(crate) fn copy_to(&self, to: &Arena) {
        let mut bytes = vec![0; CHUNK];
        for at in (0..self.len)
            .step_by(CHUNK)
            .filter(|at| self.is_touched(*at))
        {
            let n = CHUNK.min(self.len - at);
            self.read(at as u64, &mut bytes[..n]);
            to.write(at as u64, &bytes[..n]);
        }
    }

    /// Makes the page at `at` read as zeros and cost nothing. The caller holds its lock.
    fn give_back(&self, at: usize) -> bool {
        // SAFETY: the page lies inside our private anonymous mapping and its lock is held; DONTNEED makes it zeros.
        unsafe {
            madvise(
                self.base.as_ptr().add(at).cast(),
                PAGE,
                Advice::LinuxDontNeed,
            )
        }
        .is_ok()
    }

    fn start(&self, pos: u64, len: u64) -> usize {
        assert!(
            pos.checked_add(len)
                .is_some_and(|end| end <= self.len as u64),
            "the range {pos}+{len} lies inside the {} bytes of this memory",
            self.len
        );
        usize::try_from(pos).expect("a position inside the mapping is a usize")
    }

    #[inline]
    fn lock(&self, at: usize) -> MutexGuard<'_, ()> {
        self.locks[(at / PAGE) & (LOCKS - 1)]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn is_touched(&self, at: usize) -> bool {
        let chunk = at / CHUNK;
        self.touched[chunk / 64].load(Ordering::Relaxed) >> (chunk % 64) & 1 != 0
    }

    /// Notes that the chunk is about to be written. Relaxed: a thread that must see the data is synchronised with the writer by
    /// other means.
    #[inline]
    fn touch(&self, at: usize) {
        if !self.is_touched(at) {
            let chunk = at / CHUNK;
            self.touched[chunk / 64].fetch_or(1 << (chunk % 64), Ordering::Relaxed);
        }
    }
}

/// Whether parts of the buf meet inside a sector. Such a buf is copied in one piece; otherwise another writer could come
/// between the parts.
fn cuts_sectors(buf: &Buf) -> bool {
    buf.is_vectored() && buf.parts().any(|p| p.len() % 512 != 0)
}
