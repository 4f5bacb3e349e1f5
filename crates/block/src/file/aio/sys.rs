//! System calls and structures of Linux AIO, as in io_submit(2), io_getevents(2) and linux/aio_abi.h (UAPI).
//!
//! Input: control blocks. Output: events. Invariant: a control block and all memory that it names stay in place until its event
//! was seen; the caller guarantees that. Limits: Linux.

use std::io;

pub(super) const PREAD: u16 = 0;
pub(super) const PWRITE: u16 = 1;
pub(super) const FDSYNC: u16 = 3;
pub(super) const PREADV: u16 = 7;
pub(super) const PWRITEV: u16 = 8;
/// `resfd` is signalled when the request ends.
pub(super) const FLAG_RESFD: u32 = 1;

/// A request to the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct ControlBlock {
    pub(super) data: u64,
    #[cfg(target_endian = "little")]
    pub(super) key: u32,
    pub(super) rw_flags: i32,
    #[cfg(target_endian = "big")]
    pub(super) key: u32,
    pub(super) opcode: u16,
    pub(super) reqprio: i16,
    pub(super) fd: u32,
    pub(super) buf: u64,
    pub(super) nbytes: u64,
    pub(super) offset: i64,
    pub(super) reserved: u64,
    pub(super) flags: u32,
    pub(super) resfd: u32,
}

/// The kernel's answer.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Event {
    pub(super) data: u64,
    pub(super) obj: u64,
    pub(super) res: i64,
    pub(super) res2: i64,
}

const _: () = assert!(size_of::<ControlBlock>() == 64 && size_of::<Event>() == 32);

/// A context; destroyed when dropped.
pub(super) struct Context(libc::c_ulong);

impl Context {
    /// A context for `depth` requests.
    pub(super) fn new(depth: u32) -> io::Result<Context> {
        let mut id: libc::c_ulong = 0;
        // SAFETY: io_setup writes one context id to the address, which must hold 0 before.
        let res = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut id) };
        if res == 0 {
            Ok(Context(id))
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Submits control blocks. Returns how many the kernel took, or the error of the first.
    ///
    /// # Safety
    /// Every pointer names a control block that, with all it names, stays in place until its event has been seen.
    pub(super) unsafe fn submit(&self, blocks: &[*mut ControlBlock]) -> io::Result<usize> {
        // SAFETY: the slice lives through the call; the rest is the caller's promise.
        let res =
            unsafe { libc::syscall(libc::SYS_io_submit, self.0, blocks.len(), blocks.as_ptr()) };
        usize::try_from(res).map_err(|_| io::Error::last_os_error())
    }

    /// The events that are available now.
    pub(super) fn events(&self, events: &mut [Event]) -> usize {
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let (room, at) = (events.len(), events.as_mut_ptr());
        // SAFETY: the kernel writes at most `room` events to `at`, which is a slice of that length.
        let res =
            unsafe { libc::syscall(libc::SYS_io_getevents, self.0, 0, room, at, &raw const now) };
        usize::try_from(res).unwrap_or(0)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is ours and is not used after this; the queue has waited for its requests.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}
