//! The first request, INIT: what kernel and server can both do.
//!
//! Input: its body, what is wanted of the kernel. Output: the reply, what was settled. Invariants: nothing is promised that the kernel does
//! not offer. Limits: protocol 7.31 or newer.

use super::StartError;
use crate::wire::input::Body;
use crate::wire::output::Put;
use crate::wire::{MAJOR, MINOR, MOST_DATA, OLDEST_MINOR, can};

/// Requests that the kernel may have under way without a caller who waits: read-ahead, write-back, asynchronous direct I/O.
const BACKGROUND: u16 = 4096;

/// Puts out the reply to INIT. Returns what both sides can do, of what is `wanted`; None: the kernel asks again, in an older protocol.
/// `granularity`: that of times, in nanoseconds.
///
/// # Errors
/// The kernel's protocol is too old, or its request makes no sense.
pub fn settle(
    body: &[u8],
    (wanted, granularity): (u64, u32),
    out: &mut Vec<u8>,
) -> Result<Option<u64>, StartError> {
    let short = |_| StartError::Protocol("its first request is too short".to_owned());
    let mut body = Body::new(body);
    let (major, minor) = (body.u32().map_err(short)?, body.u32().map_err(short)?);
    if major > MAJOR {
        out.u32(MAJOR);
        out.u32(MINOR);
        return Ok(None);
    }
    if (major, minor) < (MAJOR, OLDEST_MINOR) {
        return Err(StartError::Protocol(format!(
            "it speaks version {major}.{minor}; {MAJOR}.{OLDEST_MINOR} (Linux 5.4) or newer is needed"
        )));
    }
    let read_ahead = body.u32().map_err(short)?;
    let mut theirs = u64::from(body.u32().map_err(short)?);
    if theirs & can::INIT_EXT != 0 {
        theirs |= u64::from(body.u32().map_err(short)?) << 32;
    }
    let both = wanted & theirs;
    let low = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("masked");
    out.u32(MAJOR);
    out.u32(MINOR.min(minor));
    out.u32(read_ahead.max(u32::try_from(MOST_DATA).expect("1 MiB")));
    out.u32(low(both));
    out.u16(BACKGROUND);
    out.u16(BACKGROUND / 4 * 3);
    out.u32(u32::try_from(MOST_DATA).expect("1 MiB"));
    out.u32(granularity);
    out.u16(u16::try_from(MOST_DATA / 4096).expect("256"));
    out.u16(0);
    out.u32(low(both >> 32));
    out.zeros(28);
    Ok(Some(both))
}
