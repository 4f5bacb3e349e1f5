//! Whether a request makes sense for an export.
//!
//! Input: a header, the geometry, the form of replies. Output: nothing, or the error for the client. Invariants: every number of
//! the client is checked here, once, without wrapping (rule D7); what fails here has taken no slot and no memory. Limits: none.

use super::slots::Work;
use crate::wire::{Command, Errno, Header, MAX_PAYLOAD, Mode, request_flag as flag};
use diorite_block::Geometry;

/// What the check depends on besides the header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) mode: Mode,
    pub(super) meta: bool,
}

/// What an acceptable request does; none for those that do nothing.
pub(super) fn accept(rules: Rules<'_>, header: &Header) -> Result<Option<Work>, Errno> {
    let (work, flags) = work(rules, header)?;
    if header.misframed || header.flags & !(flags | flag::FUA) != 0 {
        return Err(Errno::Inval);
    }
    let geometry = rules.geometry;
    let changes = matches!(work, Some(Work::Write | Work::Trim | Work::Zero { .. }));
    if changes && geometry.read_only {
        return Err(Errno::Perm);
    }
    if work == Some(Work::Flush) {
        return Ok(work);
    }
    let end = header.offset.checked_add(header.len);
    if end.is_none_or(|end| end > geometry.size) {
        let grows = matches!(work, Some(Work::Write | Work::Zero { .. }));
        return Err(if grows { Errno::NoSpc } else { Errno::Inval });
    }
    let moves = matches!(work, Some(Work::Read { .. } | Work::Write));
    if moves && header.len > u64::from(MAX_PAYLOAD) {
        let divided = header.has(flag::DF);
        return Err(if divided {
            Errno::Overflow
        } else {
            Errno::Inval
        });
    }
    let aligned = (header.offset | header.len) & u64::from(geometry.logical - 1) == 0;
    if (moves || changes) && !aligned {
        return Err(Errno::Inval);
    }
    match work {
        Some(Work::Status) if !rules.meta || header.len == 0 => Err(Errno::Inval),
        _ => Ok(work),
    }
}

/// The work of a command, and the flags that it may have.
fn work(rules: Rules<'_>, header: &Header) -> Result<(Option<Work>, u16), Errno> {
    let whole = header.has(flag::DF);
    Ok(match header.command {
        Command::Read => {
            let flags = if rules.mode == Mode::Simple {
                0
            } else {
                flag::DF
            };
            (Some(Work::Read { whole }), flags)
        }
        Command::Write => (Some(Work::Write), 0),
        Command::Flush => (Some(Work::Flush), 0),
        Command::Trim => (Some(Work::Trim), 0),
        // The device has no cache that could be filled: a hint without effect.
        Command::Cache => (None, 0),
        Command::WriteZeroes => {
            let zero = Work::Zero {
                keep: header.has(flag::NO_HOLE),
                fast: header.has(flag::FAST_ZERO),
            };
            (Some(zero), flag::NO_HOLE | flag::FAST_ZERO)
        }
        Command::BlockStatus => (Some(Work::Status), flag::REQ_ONE),
        Command::Disconnect | Command::Unknown(_) => return Err(Errno::Inval),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Framing;

    fn header(kind: u16, flags: u16, offset: u64, len: u64) -> Header {
        let mut bytes = crate::wire::EXTENDED_REQUEST_MAGIC.to_be_bytes().to_vec();
        let flags = if kind == 1 {
            flags | flag::PAYLOAD_LEN
        } else {
            flags
        };
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        for word in [7, offset, len] {
            bytes.extend(word.to_be_bytes());
        }
        Header::parse(Framing::Extended, &bytes).expect("a valid header")
    }

    fn answer(read_only: bool, header: Header) -> Result<Option<Work>, Errno> {
        let geometry = Geometry {
            read_only,
            ..Geometry::plain(1 << 30)
        };
        let rules = Rules {
            geometry: &geometry,
            mode: Mode::Extended,
            meta: true,
        };
        accept(rules, &header)
    }

    /// Rule D7: no sum wraps, and each refusal has the protocol's error.
    #[test]
    fn requests_that_make_no_sense_are_refused() {
        let far = u64::MAX - 511;
        for (kind, flags, offset, len, errno) in [
            (0, 0, 1 << 30, 512, Errno::Inval),
            (0, 0, far, 512, Errno::Inval),
            (0, 0, far, 1024, Errno::Inval),
            (0, 0, 0, 513, Errno::Inval),
            (0, 0, 1, 512, Errno::Inval),
            (0, 0, 0, 64 << 20, Errno::Inval),
            (0, flag::DF, 0, 64 << 20, Errno::Overflow),
            (0, flag::NO_HOLE, 0, 512, Errno::Inval),
            (1, 0, 1 << 30, 512, Errno::NoSpc),
            (1, 0, far, u64::MAX, Errno::NoSpc),
            (1, flag::DF, 0, 512, Errno::Inval),
            (4, 0, far, 512, Errno::Inval),
            (4, flag::FAST_ZERO, 0, 512, Errno::Inval),
            (5, 0, 0, u64::MAX, Errno::Inval),
            (6, 0, 0, u64::MAX, Errno::NoSpc),
            (6, flag::REQ_ONE, 0, 512, Errno::Inval),
            (7, 0, 0, 0, Errno::Inval),
            (7, 0, 1, u64::MAX, Errno::Inval),
            (2, 0, 0, 0, Errno::Inval),
            (99, 0, 0, 0, Errno::Inval),
        ] {
            let found = answer(false, header(kind, flags, offset, len));
            assert_eq!(found, Err(errno), "{kind} {flags:#x} {offset} {len}");
        }
        for kind in [1, 4, 6] {
            assert_eq!(answer(true, header(kind, 0, 0, 512)), Err(Errno::Perm));
        }
    }

    #[test]
    fn requests_that_make_sense_are_accepted() {
        let last = (1 << 30) - 512;
        for (kind, flags, work) in [
            (0, 0, Some(Work::Read { whole: false })),
            (0, flag::DF | flag::FUA, Some(Work::Read { whole: true })),
            (1, flag::FUA, Some(Work::Write)),
            (3, flag::FUA, Some(Work::Flush)),
            (4, flag::FUA, Some(Work::Trim)),
            (5, 0, None),
            (
                6,
                flag::NO_HOLE,
                Some(Work::Zero {
                    keep: true,
                    fast: false,
                }),
            ),
            (
                6,
                flag::FAST_ZERO,
                Some(Work::Zero {
                    keep: false,
                    fast: true,
                }),
            ),
            (7, flag::REQ_ONE, Some(Work::Status)),
        ] {
            assert_eq!(answer(false, header(kind, flags, last, 512)), Ok(work));
        }
    }
}
