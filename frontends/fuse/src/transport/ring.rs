//! Requests and replies through io_uring.
//!
//! The kernel has a queue of requests for each processor. A ring has one place in the queue of one processor: the kernel puts a request
//! into its memory; with the reply the place is free for the next. So a reply and the next request are one system call. Nobody on another
//! processor has to wake up, unless callers have many requests under way: then the ring's thread may run anywhere.
//!
//! Input: a descriptor of `/dev/fuse` whose mount has settled [`OVER_IO_URING`](crate::wire::can::OVER_IO_URING), a processor. Output:
//! requests. Invariants: the memory is there as long as the kernel knows its address: if the kernel has not said that it is done with it,
//! it is never freed. Limits: FORGET and INTERRUPT come through `/dev/fuse` all the same; Linux 6.14, and the fuse module's parameter
//! `enable_uring`. Source: the kernel's uapi header `linux/fuse.h` (BSD-2-Clause), its documentation of FUSE over io_uring.

use super::incoming::{OPERATION, ROOM};
use super::nearby::{Judge, Where};
use super::{Channel, Incoming, Reply};
use crate::wire::input::{HEADER, Header};
use crate::wire::output;
use diorite_block::Shared;
use io_uring::register::Restriction;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock};

/// With more processors the places would take too much memory: each processor must have some.
pub const MOST_PROCESSORS: u16 = 64;

/// FUSE_IO_URING_CMD_REGISTER
const REGISTER: u32 = 1;
/// FUSE_IO_URING_CMD_COMMIT_AND_FETCH
const COMMIT_AND_FETCH: u32 = 2;

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

type Uring = IoUring<Entry128, cqueue::Entry>;

/// Rings that were made ahead.
static STOCK: OnceLock<Mutex<Vec<Uring>>> = OnceLock::new();

/// A ring that takes FUSE's commands only. It is started by the thread that uses it.
fn make() -> Option<Uring> {
    let mut builder = Uring::builder();
    builder
        .setup_r_disabled()
        .setup_single_issuer()
        .setup_defer_taskrun();
    let ring: Uring = builder.build(2).ok()?;
    let mut only = [Restriction::sqe_op(opcode::UringCmd80::CODE)];
    ring.submitter().register_restrictions(&mut only).ok()?;
    Some(ring)
}

/// Makes rings ahead for a mount that `threads` serve, and none later: for a process that is about to give up the right to make them. Some
/// of them are for requests that may block. Once they are in use others wait.
pub fn stock_rings(threads: u16) {
    let processors = processors().filter(|n| *n <= MOST_PROCESSORS).unwrap_or(0);
    let count = usize::from(processors * (each(threads, processors.max(1)) + SPARE));
    STOCK.get_or_init(|| Mutex::new(std::iter::from_fn(make).take(count).collect()));
}

/// Rings of a processor beside those that a mount begins with.
const SPARE: u16 = 8;

/// How many rings of each processor a mount begins with: two at least, so that one that blocks does not hold up the others.
pub(crate) fn each(threads: u16, processors: u16) -> u16 {
    threads.div_ceil(processors).max(2)
}

/// What the kernel has the addresses of.
struct Place {
    headers: UnsafeCell<Headers>,
    payload: NonNull<u8>,
    parts: UnsafeCell<[libc::iovec; 2]>,
}

// SAFETY: it is plain memory. The ring's owner alone touches it, and only while the kernel does not; see `Ring`.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    fn layout() -> Layout {
        Layout::from_size_align(ROOM, 4096).expect("a page's alignment")
    }

    fn try_new() -> Option<Arc<Place>> {
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
        Some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: it came from `try_new` with this layout, and the last one who knew of it is gone.
        unsafe { dealloc(self.payload.as_ptr(), Place::layout()) };
    }
}

/// See the module.
pub struct Ring {
    ring: Uring,
    channel: Channel,
    processor: u16,
    place: Arc<Place>,
    /// The kernel knows the place's addresses, and has not said that it is done with them.
    is_known: bool,
    /// What the kernel counts the request by that has no reply yet.
    commit: Option<u64>,
    judge: Judge,
    /// The processors that the thread may use where it need not stay on its own. None: it stays.
    anywhere: Option<CpuSet>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("processor", &self.processor)
            .finish_non_exhaustive()
    }
}

/// How many processors the host may have: each must have a place. None if the host does not say.
#[must_use]
pub fn processors() -> Option<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    // "0-3", or "0"; gaps count.
    let last = text.trim().rsplit(['-', ',']).next()?;
    last.parse::<u16>().ok()?.checked_add(1)
}

impl Ring {
    /// A ring for requests of one processor, and the memory of its requests. None if the host has no io_uring, or no memory.
    #[must_use]
    pub fn new(channel: &Channel, processor: u16) -> Option<(Ring, Incoming)> {
        let ring = match STOCK.get() {
            Some(stock) => stock.lock().ok()?.pop()?,
            None => make()?,
        };
        let place = Place::try_new()?;
        // SAFETY: the payload is that long, and lives as long as the place. Only its owner touches it while the kernel does not, by the
        // invariant of this module.
        let payload = unsafe { Shared::from_foreign(place.payload, ROOM, place.clone()) };
        let request = Incoming::over(payload)?;
        let ring = Ring {
            ring,
            channel: channel.clone(),
            processor,
            place,
            is_known: false,
            commit: None,
            judge: Judge::default(),
            anywhere: None,
        };
        Some((ring, request))
    }

    pub(super) fn another(&self) -> Option<(Ring, Incoming)> {
        let (mut ring, request) = Ring::new(&self.channel, self.processor)?;
        ring.anywhere = self.anywhere;
        Some((ring, request))
    }

    /// Takes its place, by the thread that will use it, on its processor. Does not wait.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(super) fn start(&mut self) -> Result<(), Errno> {
        // A thread that a ring's thread has started has that one's processor only.
        let mine = || sched_getaffinity(None).ok();
        self.anywhere = self.anywhere.or_else(mine);
        self.run_on(Where::Own);
        let enabled = self.ring.submitter().register_enable_rings();
        enabled.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        self.is_known = true;
        self.push(REGISTER, 0);
        self.enter(0)?;
        match self.ring.completion().next() {
            Some(refused) => {
                self.is_known = false;
                Err(Errno::from_raw_os_error(-refused.result()))
            }
            None => Ok(()),
        }
    }

    /// The thread runs there from now on.
    fn run_on(&self, place: Where) {
        let mut own = CpuSet::new();
        own.set(usize::from(self.processor));
        let set = match place {
            Where::Own => Some(own),
            Where::Any => self.anywhere,
        };
        // A processor that is not there, or not for this process, sends no requests; only speed is lost otherwise.
        let _ = set.map(|set| sched_setaffinity(None, &set));
    }

    fn push(&mut self, operation: u32, commit: u64) {
        let mut command = [0; 80];
        command[8..16].copy_from_slice(&commit.to_ne_bytes());
        command[16..18].copy_from_slice(&self.processor.to_ne_bytes());
        let fd = types::Fd(self.channel.fd.as_raw_fd());
        let parts = self.place.parts.get();
        let mut entry = opcode::UringCmd80::new(fd, operation)
            .cmd(command)
            .addr(Some(parts as u64))
            .build();
        /// Where `io_uring_sqe` has `len`, the number of parts.
        const LEN: usize = 24;
        // SAFETY: an entry is an `io_uring_sqe` of 128 bytes, whose field `len` is the u32 at this offset (uapi linux/io_uring.h).
        unsafe {
            (&raw mut entry)
                .cast::<u8>()
                .add(LEN)
                .cast::<u32>()
                .write(2)
        };
        // SAFETY: the descriptor and the parts live as long as self, and beyond if the kernel may use them: see `drop`.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the ring has room for one entry, and there is only one");
    }

    fn enter(&self, wait_for: usize) -> Result<(), Errno> {
        loop {
            match self.ring.submitter().submit_and_wait(wait_for) {
                Ok(_) => return Ok(()),
                Err(e) => match Errno::from_io_error(&e) {
                    Some(Errno::INTR | Errno::AGAIN) => {}
                    error => return Err(error.unwrap_or(Errno::IO)),
                },
            }
        }
    }

    fn wait(&mut self) -> Result<cqueue::Entry, Errno> {
        loop {
            self.enter(1)?;
            if let Some(done) = self.ring.completion().next() {
                return Ok(done);
            }
        }
    }

    /// As [`super::Line::receive`].
    pub(super) fn receive(&mut self, request: &mut Incoming) -> Result<bool, Errno> {
        if let Some(commit) = self.commit.take() {
            self.push(COMMIT_AND_FETCH, commit);
        }
        let mut at_once = None;
        if self.judge.is_asking() {
            self.enter(0)?;
            at_once = self.ring.completion().next();
        }
        if let Some(place) = self.judge.came(at_once.is_some()) {
            self.run_on(place);
        }
        let done = match at_once {
            Some(done) => done,
            None => self.wait()?,
        };
        match done.result() {
            0 => {}
            gone => {
                self.is_known = false;
                return match Errno::from_raw_os_error(-gone) {
                    Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV => Ok(false),
                    error => Err(error),
                };
            }
        }
        // SAFETY: the kernel has completed the command: it does not touch the place until the next one.
        let headers = unsafe { &*self.place.headers.get() };
        self.commit = Some(headers.commit);
        let (header, data) = (&headers.in_out[..HEADER], headers.payload as usize);
        let len = Header::parse(header)?.len as usize;
        let operation = len.checked_sub(HEADER + data);
        let operation = operation.and_then(|len| headers.operation.get(..len));
        let operation = operation.ok_or(Errno::IO)?;
        if data > ROOM {
            return Err(Errno::IO);
        }
        request.came_apart(header, operation, data);
        Ok(true)
    }

    /// As [`super::Line::reply`].
    pub(super) fn reply(&mut self, unique: u64, request: &mut Incoming, reply: Reply<'_>) {
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
        // SAFETY: the kernel does not touch the place before the next command, which `receive` sends.
        let headers = unsafe { &mut *self.place.headers.get() };
        headers.in_out[..header.len()].copy_from_slice(&header);
        headers.payload = u32::try_from(len).expect("the payload's length");
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.is_known {
            std::mem::forget(self.place.clone());
        }
    }
}
