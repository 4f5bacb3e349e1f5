//! Creates rings: first with the newest flags, then with fewer; and probes whether this process may use io_uring.
//!
//! Input: a depth, and whether one thread will own the ring. Output: a ring whose completion queue holds all bios that may be
//! in flight, or the reason why there is none. Invariant: unless it is owned, any thread may submit and reap: neither
//! SINGLE_ISSUER nor DEFER_TASKRUN is set. Limits: kernels without EXT_ARG and NODROP (before 5.11) are refused.

use super::stock;
use io_uring::{IoUring, Probe, opcode};
use std::io;

/// The most entries of the submission queue: a longer list is submitted in several calls.
const MAX_SQ: u32 = 1024;

/// Who may use a ring.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Users {
    /// Any thread.
    All,
    /// The thread that enables it: completions wait for that thread, and wake it once, when there are as many as
    /// it waits for.
    One,
    /// Any thread, on a kernel that does not know the newer flags.
    Plain,
    /// As `All`, once what the ring may do has been restricted.
    Restricted,
    /// As `Plain`, once what the ring may do has been restricted.
    PlainRestricted,
    /// Any thread, for reads and writes of devices whose drivers are polled: without an io_uring_enter nothing ends.
    Polled,
}

/// The operations that queues use.
pub(super) const OPERATIONS: [u8; 12] = [
    opcode::Nop::CODE,
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::Readv::CODE,
    opcode::Writev::CODE,
    opcode::ReadFixed::CODE,
    opcode::WriteFixed::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
    opcode::PollAdd::CODE,
    opcode::PollRemove::CODE,
    opcode::Timeout::CODE,
];

/// A ring for `depth` bios in flight. It is an owned ring if the kernel supports that, and must then be enabled first.
pub(super) fn make_for(depth: u32, owned: bool) -> io::Result<(IoUring, Users)> {
    let (sq, cq) = sizes(depth);
    let wanted = if owned { Users::One } else { Users::All };
    make(sq, cq, &[wanted, Users::All, Users::Plain])
}

/// A ring whose reads and writes end by polling, for `depth` in flight.
pub(super) fn make_polled(depth: u32) -> io::Result<IoUring> {
    let (sq, cq) = sizes(depth);
    make(sq, cq, &[Users::Polled]).map(|(ring, _)| ring)
}

/// Gives all entries of the submission queue to the kernel. Returns whether it took them; those that it did not take stay.
///
/// # Errors
/// What the kernel says.
///
/// # Safety
/// The caller holds the lock of the submission queue, and the memory of the entries is held until they have ended.
#[inline]
pub(super) unsafe fn submit_all(ring: &IoUring) -> io::Result<bool> {
    loop {
        // SAFETY: the caller holds the lock, so this is the only view of the submission queue.
        let waiting = unsafe { ring.submission_shared() }.len();
        if waiting == 0 {
            return Ok(true);
        }
        // SAFETY: no argument is passed; the entries' memory is held.
        let taken = unsafe {
            ring.submitter()
                .enter::<libc::sigset_t>(waiting as u32, 0, 0, None)
        };
        match taken {
            Ok(n) if n > 0 => {}
            Ok(_) => return Ok(false),
            Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
}

fn sizes(depth: u32) -> (u32, u32) {
    let sq = (depth + 2).next_power_of_two().clamp(8, MAX_SQ);
    (sq, (depth + 8).next_power_of_two().max(sq * 2))
}

/// A ring with so many entries, in the first of these ways whose flags the kernel knows.
pub(super) fn make(sq: u32, cq: u32, ways: &[Users]) -> io::Result<(IoUring, Users)> {
    let mut last = None;
    for &users in ways {
        match build(sq, cq, users) {
            Ok(ring) => return check(ring).map(|ring| (ring, users)),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => last = Some(e),
            Err(e) => return Err(e),
        }
    }
    Err(last.expect("the loop has run"))
}

fn check(ring: IoUring) -> io::Result<IoUring> {
    let params = ring.params();
    if params.is_feature_ext_arg() && params.is_feature_nodrop() {
        return Ok(ring);
    }
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "this kernel's io_uring is too old (EXT_ARG, NODROP)",
    ))
}

fn build(sq: u32, cq: u32, users: Users) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp().setup_cqsize(cq);
    match users {
        Users::Plain => {}
        Users::PlainRestricted => {
            builder.setup_r_disabled();
        }
        Users::Polled => {
            builder.setup_iopoll();
        }
        // Completions wait for the submitter's next system call instead of interrupting it, and a flag tells that there are
        // some.
        Users::All => {
            builder
                .setup_submit_all()
                .setup_coop_taskrun()
                .setup_taskrun_flag();
        }
        Users::Restricted => {
            builder
                .setup_submit_all()
                .setup_coop_taskrun()
                .setup_taskrun_flag()
                .setup_r_disabled();
        }
        Users::One => {
            builder
                .setup_submit_all()
                .setup_single_issuer()
                .setup_defer_taskrun()
                .setup_taskrun_flag()
                .setup_r_disabled();
        }
    }
    builder.build(sq)
}

/// Whether this process may use io_uring with all operations that diorite needs.
pub(in crate::file) fn probe() -> io::Result<()> {
    if let Some(probed) = stock::probe() {
        return probed;
    }
    let (mut ring, _) = make_for(2, false)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if let Some(code) = OPERATIONS.iter().find(|c| !probe.is_supported(**c)) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("this kernel's io_uring lacks operation {code}"),
        ));
    }
    // A filter may allow the creation of rings and refuse their use; a queue that meets that has bios which never end.
    // SAFETY: the entry refers to no memory.
    unsafe { ring.submission().push(&opcode::Nop::new().build()) }
        .map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
    loop {
        match ring.submit_and_wait(1) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            submitted => return submitted.map(drop),
        }
    }
}
