//! Memory that the kernel puts a request into, and takes the reply from.
//!
//! Input: a request, by the kernel; a reply. Output: the request's parts; the reply, for the kernel. Invariants: the owner of a ring
//! touches a place only while the kernel has no command of it; the payload is that of one [`Incoming`]. Limits: [`ROOM`] bytes of payload.
//! Source: the kernel's uapi header `linux/fuse.h` (BSD-2-Clause).

use super::incoming::{OPERATION, ROOM};
use super::{Incoming, Reply};
use crate::wire::input::{HEADER, Header};
use crate::wire::output;
use diorite_block::Shared;
use rustix::io::Errno;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Arc;

/// FUSE_URING_IN_OUT_HEADER_SZ
const IN_OUT: usize = 128;

/// `fuse_uring_req_header`.
#[repr(C)]
struct Headers {
    in_out: [u8; IN_OUT],
    operation: [u8; OPERATION],
    flags: u64,
    commit: u64,
    payload: u32,
    padding: u32,
    reserved: u64,
}

/// What the kernel has the addresses of.
pub(super) struct Place {
    headers: UnsafeCell<Headers>,
    payload: NonNull<u8>,
    parts: UnsafeCell<[libc::iovec; 2]>,
}

// SAFETY: it is plain memory. The ring's owner alone touches it, and only while the kernel does not; see the module.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    fn layout() -> Layout {
        Layout::from_size_align(ROOM, 4096).expect("a page's alignment")
    }

    /// A place, and the request that has its payload. None: the host gives no memory.
    pub(super) fn try_new() -> Option<(Arc<Place>, Incoming)> {
        // SAFETY: the layout has a size.
        let payload = NonNull::new(unsafe { alloc_zeroed(Place::layout()) })?;
        let none = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let place = Arc::new(Place {
            headers: UnsafeCell::new(Headers {
                in_out: [0; IN_OUT],
                operation: [0; OPERATION],
                flags: 0,
                commit: 0,
                payload: 0,
                padding: 0,
                reserved: 0,
            }),
            payload,
            parts: UnsafeCell::new([none, none]),
        });
        let part = |start: *mut libc::c_void, iov_len| libc::iovec {
            iov_base: start,
            iov_len,
        };
        let parts = [
            part(place.headers.get().cast(), size_of::<Headers>()),
            part(place.payload.as_ptr().cast(), ROOM),
        ];
        // SAFETY: nobody else knows of it yet.
        unsafe { *place.parts.get() = parts };
        let payload = Place::payload(&place);
        Some((place, Incoming::over(payload)?))
    }

    /// The payload. Call while nobody has it.
    fn payload(place: &Arc<Place>) -> Shared {
        // SAFETY: the payload is that long, and lives as long as the place. Only its owner touches it while the kernel does not, by the
        // invariant of this module.
        unsafe { Shared::from_foreign(place.payload, ROOM, place.clone()) }
    }

    /// A request that has lost the payload of this place by a panic gets it back, unless somebody else still has it.
    pub(super) fn restore(place: &mut Arc<Place>, request: &mut Incoming) {
        if request.has_lost_memory() && Arc::get_mut(place).is_some() {
            request.has_memory_again(Place::payload(place));
        }
    }

    /// The address and the number of the parts that a command names.
    pub(super) fn parts(&self) -> (u64, u32) {
        (self.parts.get() as u64, 2)
    }

    /// The request that the kernel has put here, and what the kernel counts it by.
    ///
    /// # Safety
    /// The kernel has completed the last command of this place, and the next one is not submitted before this returns.
    ///
    /// # Errors
    /// EIO: it makes no sense.
    pub(super) unsafe fn came(&self, request: &mut Incoming) -> Result<u64, Errno> {
        // SAFETY: by the caller's promise the kernel does not touch it.
        let headers = unsafe { &*self.headers.get() };
        let (header, data) = (&headers.in_out[..HEADER], headers.payload as usize);
        let len = Header::parse(header)?.len as usize;
        let operation = len.checked_sub(HEADER + data);
        let operation = operation.and_then(|len| headers.operation.get(..len));
        let operation = operation.ok_or(Errno::IO)?;
        if data > ROOM {
            return Err(Errno::IO);
        }
        request.came_apart(header, operation, data);
        Ok(headers.commit)
    }

    /// Puts a reply here, for the next command. `request` has the payload of this place.
    ///
    /// # Safety
    /// As of [`Place::came`].
    pub(super) unsafe fn answer(&self, unique: u64, request: &mut Incoming, reply: Reply<'_>) {
        let (len, error) = match reply {
            Reply::Out(bytes) => match request.memory_mut(bytes.len()) {
                Some(payload) => {
                    payload.copy_from_slice(bytes);
                    (bytes.len(), 0)
                }
                None => (0, -Errno::IO.raw_os_error()),
            },
            Reply::Data(len) => (len, 0),
            Reply::Failed(error) => (0, -error.raw_os_error()),
        };
        let header = output::header(len, error, unique);
        // SAFETY: by the caller's promise the kernel does not touch it.
        let headers = unsafe { &mut *self.headers.get() };
        headers.in_out[..header.len()].copy_from_slice(&header);
        headers.payload = u32::try_from(len).expect("the payload's length");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: it came from `try_new` with this layout, and the last one who knew of it is gone.
        unsafe { dealloc(self.payload.as_ptr(), Place::layout()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// The defect: each further request of the place had an input/output error for its reply.
    #[test]
    #[expect(clippy::unwrap_used, reason = "a test fails by it")]
    fn a_place_has_its_payload_again_after_a_panic() {
        let (mut place, mut request) = Place::try_new().unwrap();
        let kept = request.lend(4096);
        let read = || request.with_buf::<()>(4096, |_buf| panic!("in the middle of a read"));
        assert!(catch_unwind(AssertUnwindSafe(read)).is_err());
        Place::restore(&mut place, &mut request);
        assert!(request.has_lost_memory(), "somebody else has it");
        drop(kept);
        Place::restore(&mut place, &mut request);
        assert!(request.memory_mut(ROOM).is_some());
    }
}
