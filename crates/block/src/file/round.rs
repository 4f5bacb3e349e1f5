//! Translates a bio into host operations, and the host's result into the bio's result: the same for every I/O engine.
//!
//! Input: a bio and the target's geometry; then the host's result (bytes, or a negated errno). Output: a [`HostOp`]; then
//! whether the bio has ended ([`Round::Ended`], with its result set) or the rest must be requested again. Invariants: short
//! transfers continue; EINTR, ECANCELED and EAGAIN without NOWAIT are retried; a read past the end of the backing file is
//! zero-filled (rule L2). Limits: a bio fails after [`MAX_IDLE`] rounds without progress.

use super::slots::{HostOp, Slot};
use super::target::Target;
use crate::bio::{Bio, BioError, BioErrorKind, BioOp};
use std::sync::atomic::Ordering;

/// Rounds without progress before a bio fails: a host that always answers EAGAIN must not block a reaper for ever.
const MAX_IDLE: u32 = 10_000;
/// The most bytes of one round; a multiple of every block size.
pub(super) const MAX_ROUND: u64 = 1 << 30;
/// The most iovecs that the host accepts at once.
const MAX_IOVECS: usize = 1024;

/// The result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// The bio's result is set.
    Ended,
    /// Request the rest.
    Again,
}

const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;

/// The first host operation for `bio`.
#[inline]
pub(super) fn plan(target: &Target, bio: &Bio) -> Result<HostOp, BioError> {
    target.sized().check(bio)?;
    match bio.op {
        BioOp::Read | BioOp::Write if bio.len != bio.buf.len() as u64 => {
            Err(BioError::new(BioErrorKind::Invalid))
        }
        BioOp::Flush if target.flush_is_free() => Ok(HostOp::Nothing),
        BioOp::Flush => Ok(HostOp::Sync),
        _ if bio.len == 0 => Ok(HostOp::Nothing),
        BioOp::Read => Ok(HostOp::Read),
        BioOp::Write => Ok(HostOp::Write),
        BioOp::Discard | BioOp::WriteZeroes | BioOp::WriteZeroesUnmap => plan_range(target, bio.op),
    }
}

fn plan_range(target: &Target, op: BioOp) -> Result<HostOp, BioError> {
    let unsupported = Err(BioError::new(BioErrorKind::Unsupported));
    match op {
        BioOp::Discard if target.punch_off.load(Ordering::Relaxed) => Ok(HostOp::Nothing),
        BioOp::Discard => Ok(HostOp::Fallocate(PUNCH)),
        BioOp::WriteZeroesUnmap if !target.punch_off.load(Ordering::Relaxed) => {
            Ok(HostOp::Fallocate(PUNCH))
        }
        _ if target.zero_off.load(Ordering::Relaxed) => unsupported,
        _ => Ok(HostOp::Fallocate(ZERO)),
    }
}

/// The RWF_ flags that the bio asks for.
#[inline]
pub(super) fn rw_flags(bio: &Bio) -> i32 {
    let fua = if bio.flags.fua && bio.op == BioOp::Write {
        libc::RWF_DSYNC
    } else {
        0
    };
    let nowait = if bio.flags.nowait {
        libc::RWF_NOWAIT
    } else {
        0
    };
    let atomic = if bio.flags.atomic {
        libc::RWF_ATOMIC
    } else {
        0
    };
    fua | nowait | atomic
}

/// The rest of a contiguous buf: address and length.
#[inline]
pub(super) fn rest(slot: &Slot) -> (*mut u8, u32) {
    let bio = slot.bio();
    let left = (bio.len - slot.done).min(MAX_ROUND);
    let (start, _) = bio
        .buf
        .raw_parts()
        .next()
        .expect("a buf has at least one part");
    // `done` is less than the part's length, so the result lies inside; left is at most MAX_ROUND.
    (start.as_ptr().wrapping_add(slot.done as usize), left as u32)
}

/// Writes the iovecs for the rest of a vectored buf. Returns their number, or none if no valid round can be cut.
pub(super) fn fill_iovecs(slot: &mut Slot, logical: u32) -> Option<usize> {
    let mut skip = slot.done;
    let mut total = 0u64;
    let mut iovecs = std::mem::take(&mut slot.iovecs);
    iovecs.clear();
    for (start, len) in slot.bio().buf.raw_parts() {
        let from = skip.min(u64::from(len));
        skip -= from;
        let len = (u64::from(len) - from).min(MAX_ROUND - total);
        if len > 0 {
            total += len;
            iovecs.push(libc::iovec {
                iov_base: start.as_ptr().wrapping_add(from as usize).cast(),
                iov_len: len as usize,
            });
        }
        if iovecs.len() == MAX_IOVECS || total == MAX_ROUND {
            break;
        }
    }
    // A round that does not reach the end must be a multiple of the logical block.
    let mut excess = (total % u64::from(logical)) as usize;
    while excess > 0 {
        let last = iovecs.last_mut()?;
        let cut = excess.min(last.iov_len);
        last.iov_len -= cut;
        excess -= cut;
        if last.iov_len == 0 {
            iovecs.pop();
        }
    }
    let count = iovecs.len();
    slot.iovecs = iovecs;
    (count > 0).then_some(count)
}

/// Applies the host's result `res` to the bio in `slot`.
#[inline]
pub(super) fn apply_result(target: &Target, slot: &mut Slot, res: i64) -> Round {
    match slot.op {
        HostOp::Read | HostOp::Write if res > 0 && slot.done + res as u64 == slot.bio().len => {
            slot.bio_mut().result = Ok(());
            Round::Ended
        }
        HostOp::Nothing => {
            let verdict = slot.verdict;
            slot.bio_mut().result = verdict;
            Round::Ended
        }
        _ => apply_any_result(target, slot, res),
    }
}

#[cold]
fn apply_any_result(target: &Target, slot: &mut Slot, res: i64) -> Round {
    if res < 0 {
        let errno = i32::try_from(-res).unwrap_or(libc::EIO);
        return apply_error(target, slot, errno);
    }
    match slot.op {
        HostOp::Read => short_read(target, slot, res as u64),
        HostOp::Write => short_write(target, slot, res as u64),
        _ => end(slot, Ok(())),
    }
}

fn end(slot: &mut Slot, result: Result<(), BioError>) -> Round {
    slot.bio_mut().result = result;
    Round::Ended
}

fn again(slot: &mut Slot, errno: i32) -> Round {
    slot.idle_rounds += 1;
    if slot.idle_rounds > MAX_IDLE {
        // Not the kind of EAGAIN: the caller did not ask for NOWAIT.
        let stuck = BioError {
            kind: BioErrorKind::Io,
            os: BioError::from_errno(errno).os,
        };
        return end(slot, Err(stuck));
    }
    Round::Again
}

fn apply_error(target: &Target, slot: &mut Slot, errno: i32) -> Round {
    let nowait = slot.bio().flags.nowait;
    let failed = Err(BioError::from_errno(errno));
    match (errno, slot.op) {
        // ECANCELED: the submitting thread has exited, and the host cancelled the requests that it had queued.
        (libc::EINTR | libc::ECANCELED, _) => again(slot, errno),
        (libc::EAGAIN, _) if !nowait => again(slot, errno),
        (libc::EOPNOTSUPP, HostOp::Read | HostOp::Write) if nowait => {
            // The file system does not support NOWAIT. No engine blocks in the submitter's thread anyway.
            slot.bio_mut().flags.nowait = false;
            Round::Again
        }
        (libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV, HostOp::Fallocate(mode)) => {
            fallocate_refused(target, slot, mode, failed)
        }
        _ => end(slot, failed),
    }
}

fn fallocate_refused(
    target: &Target,
    slot: &mut Slot,
    mode: i32,
    failed: Result<(), BioError>,
) -> Round {
    if mode == PUNCH {
        target.punch_off.store(true, Ordering::Relaxed);
    } else {
        target.zero_off.store(true, Ordering::Relaxed);
    }
    match slot.bio().op {
        // The contents of a discarded range are undefined, so leaving them unchanged is allowed.
        BioOp::Discard => end(slot, Ok(())),
        BioOp::WriteZeroesUnmap if mode == PUNCH => {
            slot.op = HostOp::Fallocate(ZERO);
            Round::Again
        }
        _ => end(
            slot,
            failed.map_err(|e| BioError {
                kind: BioErrorKind::Unsupported,
                ..e
            }),
        ),
    }
}

/// Adds `n` bytes, rounded down to whole blocks. Returns whether there was progress.
fn advance(target: &Target, slot: &mut Slot, n: u64) -> bool {
    let block = u64::from(target.geometry.logical);
    let done = (slot.done + n) / block * block;
    let progress = done > slot.done;
    slot.done = done;
    if progress {
        slot.idle_rounds = 0;
    }
    progress
}

fn short_write(target: &Target, slot: &mut Slot, n: u64) -> Round {
    if advance(target, slot, n) {
        Round::Again
    } else {
        again(slot, libc::EIO)
    }
}

fn short_read(target: &Target, slot: &mut Slot, n: u64) -> Round {
    let reached = slot.done + n;
    let len = slot.bio().len;
    let at_end = n == 0 || target.is_past_end(slot.bio().pos + reached);
    if !at_end {
        return if advance(target, slot, n) {
            Round::Again
        } else {
            again(slot, libc::EIO)
        };
    }
    // Rule L2: the backing file ends inside the request. The sector with the end is zero-filled and valid; sectors entirely
    // past the end are zero-filled, too, and an error.
    let block = u64::from(target.geometry.logical);
    let whole = reached.next_multiple_of(block).min(len);
    slot.bio_mut().buf.zero(reached as usize..len as usize);
    slot.done = whole;
    if whole == len {
        return end(slot, Ok(()));
    }
    target.beyond_end.fetch_add(1, Ordering::Relaxed);
    end(slot, Err(BioError::new(BioErrorKind::Io)))
}
