//! Requests of C, checked, as requests of the engine.
//!
//! Input: a caller's array. Output: the engine's requests, submitted. Invariants: what is refused has taken no slot; nothing is allocated
//! but for vectors. Limits: whether a range is aligned, and what it does to the file, the engine judges; that is in the completion.

use crate::args::{check_flags, null};
use crate::error::Fault;
use crate::file::{fallocate_mode, gather, vector};
use diorite::device::Foreign;
use diorite::queue::MAX_REQUEST;
use diorite::{Buf, FileId, Op, Queue, RequestFlags};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

/// Fill the buffer from `offset`.
pub const DIORITE_OP_READ: u32 = 1;
/// Write the buffer at `offset`.
pub const DIORITE_OP_WRITE: u32 = 2;
/// Write the buffer at the end of the file; the completion says where.
pub const DIORITE_OP_APPEND: u32 = 3;
/// As diorite_fsync: durable is what was acknowledged when the request is submitted.
pub const DIORITE_OP_FSYNC: u32 = 4;
/// As diorite_fdatasync.
pub const DIORITE_OP_FDATASYNC: u32 = 5;
/// As diorite_volume_sync; `file` is not used.
pub const DIORITE_OP_SYNCFS: u32 = 6;
/// Make the file `offset` bytes long.
pub const DIORITE_OP_TRUNCATE: u32 = 7;
/// As diorite_fallocate with `mode` for `length` bytes at `offset`.
pub const DIORITE_OP_FALLOCATE: u32 = 8;

/// Fail with EAGAIN instead of waiting for a lock, for metadata or for another request.
pub const DIORITE_REQUEST_NOWAIT: u32 = 1;
/// The write is durable when it is acknowledged, with what is needed to read it back.
pub const DIORITE_REQUEST_DSYNC: u32 = 2;
/// As DIORITE_REQUEST_DSYNC, and the inode's times are durable too.
pub const DIORITE_REQUEST_SYNC: u32 = 4;
/// Of a write: readers, and whoever opens the volume after a power cut, find all of it or nothing (RWF_ATOMIC).
pub const DIORITE_REQUEST_ATOMIC: u32 = 8;
/// Of a write: the file ends behind it. `length` need not be aligned; the buffer's memory reaches to the next multiple of `direct_align` of
/// diorite_volume_stat, and its bytes behind `length` become zeros. The file has to become longer by it.
pub const DIORITE_REQUEST_LAST: u32 = 16;

const FLAGS: u32 = 31;
const REGIONS: usize = 1024;

/// A request: 64 bytes. Set what is not used to zero. Reads, writes and appends go past the page cache: positions, lengths and addresses
/// are aligned as for DIORITE_O_DIRECT, and at most 1 GiB is transferred.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Request {
    /// What diorite_queue_attach has given.
    pub file: u64,
    /// The position in bytes; the new size for DIORITE_OP_TRUNCATE.
    pub offset: u64,
    /// Bytes of the buffer, or of the range of DIORITE_OP_FALLOCATE. 0 with a vector.
    pub length: u64,
    /// The buffer; with @iov_count an array of so many struct iovec, which is not needed any more when diorite_submit returns.
    pub buffer: *mut c_void,
    /// The caller's: it comes back with the completion.
    pub token: u64,
    /// DIORITE_OP_...
    pub op: u32,
    /// DIORITE_REQUEST_...
    pub flags: u32,
    /// The region of diorite_queue_register that the buffer lies in; 0: none.
    pub region: u32,
    /// Parts of a vector, at most 1,024; 0: @buffer is the buffer.
    pub iov_count: u32,
    /// DIORITE_FALLOC_...
    pub mode: u32,
    /// Zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<Request>() == 64);

/// What turns requests into those of the engine.
pub(super) struct Batch {
    /// Empty between calls; its memory is used again.
    requests: Vec<diorite::Request>,
    anywhere: Foreign,
    regions: Vec<Option<Foreign>>,
    /// Bytes of the device's logical block.
    logical: u32,
}

impl Batch {
    pub(super) fn new(logical: u32) -> Batch {
        Batch {
            requests: Vec::new(),
            anywhere: Foreign::anywhere(),
            regions: Vec::new(),
            logical,
        }
    }

    /// Keeps a region; gives its number.
    pub(super) fn register(&mut self, region: Foreign) -> Result<c_int, Fault> {
        let free = self.regions.iter().position(Option::is_none);
        let index = free.unwrap_or(self.regions.len());
        if index == REGIONS {
            return Err(Fault::new(libc::ENOSPC, "a queue has at most 1024 regions"));
        }
        match free {
            Some(index) => self.regions[index] = Some(region),
            None => self.regions.push(Some(region)),
        }
        Ok(index as c_int + 1)
    }

    pub(super) fn unregister(&mut self, region: u32) -> Result<(), Fault> {
        let index = (region as usize).checked_sub(1);
        let place = index.and_then(|index| self.regions.get_mut(index));
        let known = place.and_then(Option::take);
        known.map(drop).ok_or_else(|| no_region(region))
    }

    /// Submits requests up to the first that makes no sense; gives the number of those that were accepted.
    ///
    /// # Safety
    /// The memory that the requests name is valid, and touched by nobody else, until they are completed.
    #[inline]
    pub(super) unsafe fn submit(
        &mut self,
        queue: &Queue,
        requests: &[Request],
    ) -> Result<c_int, Fault> {
        // Of a call that has panicked.
        self.requests.clear();
        self.requests.reserve(requests.len());
        // SAFETY: the caller's promise.
        let count = unsafe { self.plain(requests) };
        let mut refused = None;
        for request in &requests[count..] {
            // SAFETY: the caller's promise.
            match unsafe { self.request(request) } {
                Ok(request) => self.requests.push(request),
                Err(fault) => {
                    refused = Some(fault);
                    break;
                }
            }
        }
        if let (Some(fault), true) = (refused, self.requests.is_empty()) {
            return Err(fault);
        }
        let accepted = queue.submit_from(&mut self.requests);
        // Those for which there was no slot: the caller has them still.
        self.requests.clear();
        Ok(accepted as c_int)
    }

    /// Takes plain reads and writes from the front: each is made where the engine takes it from. Gives their number.
    ///
    /// # Safety
    /// As of [`Batch::submit`].
    #[inline]
    unsafe fn plain(&mut self, requests: &[Request]) -> usize {
        let Batch {
            requests: made,
            anywhere,
            regions,
            ..
        } = self;
        let mut count = 0;
        for (place, from) in made.spare_capacity_mut().iter_mut().zip(requests) {
            let is_plain = (from.flags | from.mode | from.reserved | from.iov_count) == 0
                && matches!(from.op, DIORITE_OP_READ | DIORITE_OP_WRITE)
                && from.length <= MAX_REQUEST as u64;
            let (true, Some(start)) = (is_plain, NonNull::new(from.buffer.cast())) else {
                break;
            };
            let buf = if from.region == 0 {
                // SAFETY: the caller's promise; the length was checked, and all memory is inside.
                unsafe { anywhere.buf_anywhere(start, from.length as u32) }
            } else {
                let region = regions.get(from.region as usize - 1);
                let region = region.and_then(Option::as_ref);
                // SAFETY: the caller's promise.
                let buf = region.and_then(|r| unsafe { r.buf(start, from.length as usize) });
                let Some(buf) = buf else { break };
                buf
            };
            place.write(diorite::Request {
                op: match from.op {
                    DIORITE_OP_READ => Op::Read,
                    _ => Op::Write,
                },
                file: FileId::from_bits(from.file),
                pos: from.offset,
                buf,
                len: 0,
                token: from.token,
                flags: RequestFlags::default(),
            });
            count += 1;
        }
        // SAFETY: so many places behind the requests, of which there were none, were written.
        unsafe { made.set_len(count) };
        count
    }

    /// Any request.
    ///
    /// # Safety
    /// As of [`Batch::submit`].
    #[inline(never)]
    unsafe fn request(&self, from: &Request) -> Result<diorite::Request, Fault> {
        check_flags(from.flags, FLAGS, "the request's flags")?;
        let transfers = [DIORITE_OP_READ, DIORITE_OP_WRITE, DIORITE_OP_APPEND].contains(&from.op);
        let is_write = from.op == DIORITE_OP_WRITE;
        let has = |flag| from.flags & flag != 0;
        let odd = [
            (from.reserved != 0, "the request's reserved field is not 0"),
            (
                from.mode != 0 && from.op != DIORITE_OP_FALLOCATE,
                "a mode is for fallocate",
            ),
            (
                from.iov_count != 0 && !transfers,
                "a vector is for reads and writes",
            ),
            (
                from.region != 0 && !transfers,
                "a region is for reads and writes",
            ),
            (
                has(DIORITE_REQUEST_ATOMIC) && !is_write,
                "only a write can be atomic",
            ),
            (
                has(DIORITE_REQUEST_LAST) && !is_write,
                "only a write can be the last of a file",
            ),
            (
                has(DIORITE_REQUEST_LAST) && (has(DIORITE_REQUEST_ATOMIC) || from.iov_count != 0),
                "the last write of a file has one buffer, and is not atomic",
            ),
        ];
        if let Some((_, why)) = odd.iter().find(|(is, _)| *is) {
            return Err(Fault::invalid(*why));
        }
        let (op, len) = match from.op {
            DIORITE_OP_READ => (Op::Read, 0),
            DIORITE_OP_WRITE if has(DIORITE_REQUEST_ATOMIC) => (Op::WriteAtomic, 0),
            DIORITE_OP_WRITE if has(DIORITE_REQUEST_LAST) => (Op::Write, from.length),
            DIORITE_OP_WRITE => (Op::Write, 0),
            DIORITE_OP_APPEND => (Op::Append, 0),
            DIORITE_OP_FSYNC => (Op::Sync, 0),
            DIORITE_OP_FDATASYNC => (Op::DataSync, 0),
            DIORITE_OP_SYNCFS => (Op::SyncVolume, 0),
            DIORITE_OP_TRUNCATE => (Op::Truncate, 0),
            DIORITE_OP_FALLOCATE => (Op::Fallocate(fallocate_mode(from.mode)?), from.length),
            op => return Err(Fault::invalid(format!("no operation has the number {op}"))),
        };
        // SAFETY: the caller's promise.
        let buf = unsafe {
            if !transfers {
                Buf::empty()
            } else if from.iov_count > 0 {
                let count = c_int::try_from(from.iov_count).unwrap_or(c_int::MAX);
                gather(
                    self.region(from.region)?,
                    vector(from.buffer.cast_const().cast(), count)?,
                )?
            } else {
                let whole = match has(DIORITE_REQUEST_LAST) {
                    true => from
                        .length
                        .checked_next_multiple_of(u64::from(self.logical)),
                    false => Some(from.length),
                };
                self.buffer(from, whole.map_or(usize::MAX, |whole| whole as usize))?
            }
        };
        Ok(with(from, op, buf, len))
    }

    /// The memory of a request.
    ///
    /// # Safety
    /// As of [`Batch::submit`].
    #[inline]
    unsafe fn buffer(&self, from: &Request, len: usize) -> Result<Buf, Fault> {
        let Some(start) = NonNull::new(from.buffer.cast()) else {
            return match len {
                0 => Ok(Buf::empty()),
                _ => Err(null("the buffer")),
            };
        };
        if len > MAX_REQUEST {
            return Err(Fault::invalid("a request has at most 1 GiB"));
        }
        // SAFETY: the caller's promise.
        let buf = unsafe { self.region(from.region)?.buf(start, len) };
        buf.ok_or_else(|| Fault::new(libc::EFAULT, "the buffer is not in the registered region"))
    }

    #[inline]
    fn region(&self, region: u32) -> Result<&Foreign, Fault> {
        if region == 0 {
            return Ok(&self.anywhere);
        }
        let known = self.regions.get(region as usize - 1);
        known
            .and_then(Option::as_ref)
            .ok_or_else(|| no_region(region))
    }
}

#[cold]
fn no_region(region: u32) -> Fault {
    Fault::invalid(format!("the queue has no region {region}"))
}

#[inline]
fn with(from: &Request, op: Op, buf: Buf, len: u64) -> diorite::Request {
    let has = |flag| from.flags & flag != 0;
    diorite::Request {
        op,
        file: FileId::from_bits(from.file),
        pos: from.offset,
        buf,
        len,
        token: from.token,
        flags: RequestFlags::none()
            .nowait(has(DIORITE_REQUEST_NOWAIT))
            .dsync(has(DIORITE_REQUEST_DSYNC))
            .sync(has(DIORITE_REQUEST_SYNC)),
    }
}
