//! Making rings: with the newest flags first, then plainer, and the probe that says whether this process may at all.
//!
//! Input: a depth. Output: a ring whose completion queue can hold all that may be in flight, or the reason why not.
//! Invariant: neither SINGLE_ISSUER nor DEFER_TASKRUN is set, so any thread may submit and reap. Limits: kernels without
//! EXT_ARG and NODROP (before 5.11) are refused.

use io_uring::{IoUring, Probe, opcode};
use std::io;

/// Entries of the submission queue at most: a longer list is submitted in several calls.
const MAX_SQ: u32 = 1024;

/// A ring for `depth` bios in flight.
pub(super) fn make(depth: u32) -> io::Result<IoUring> {
    let sq = (depth + 2).next_power_of_two().clamp(8, MAX_SQ);
    let cq = (depth + 8).next_power_of_two().max(sq * 2);
    let ring = match build(sq, cq, true) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => build(sq, cq, false)?,
        other => other?,
    };
    let params = ring.params();
    if !params.is_feature_ext_arg() || !params.is_feature_nodrop() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel's io_uring is too old (EXT_ARG, NODROP)",
        ));
    }
    Ok(ring)
}

fn build(sq: u32, cq: u32, modern: bool) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp().setup_cqsize(cq);
    if modern {
        // Completions wait for the issuer's next system call instead of interrupting it, and a flag says that they do.
        builder
            .setup_submit_all()
            .setup_coop_taskrun()
            .setup_taskrun_flag();
    }
    builder.build(sq)
}

/// May this process use io_uring, with all the operations that we need?
pub(in crate::file) fn probe() -> io::Result<()> {
    let ring = make(2)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
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
        opcode::Timeout::CODE,
    ];
    if let Some(code) = needed.iter().find(|c| !probe.is_supported(**c)) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("this kernel's io_uring lacks operation {code}"),
        ));
    }
    Ok(())
}
