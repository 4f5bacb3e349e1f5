//! Translation between bios and requests of a file, in both directions.
//!
//! Input: bios; completions of the requests that were made of them. Output: requests; ended bios. Invariants: a discard that the file
//! cannot do succeeds without effect, as a discard promises nothing; write-zeroes that it cannot do is refused. Limits: pure functions.

use crate::error::Error;
use crate::op::Fallocate;
use crate::op::Op;
use crate::request::{Completion, FileId, Request, RequestFlags};
use diorite_block::{Bio, BioError, BioErrorKind, BioFlags, BioOp};

/// Zeroing that keeps the blocks, and the size.
pub(super) const ZERO: Fallocate = Fallocate::ZeroRange { keep_size: true };

/// Which operations on ranges the file supports. Depends on the kind of its map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abilities {
    pub(super) punch: bool,
    pub(super) zero: bool,
}

/// What is to be done for a bio.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    /// A request of the file.
    Ask(Op),
    /// Nothing: the bio ends at once, successfully.
    Nothing,
}

impl Abilities {
    /// The operation on the file that a bio asks for (rule L5).
    pub(super) fn wish(self, bio: &Bio) -> Result<Wish, BioError> {
        let ask = |mode| Ok(Wish::Ask(Op::Fallocate(mode)));
        match bio.op {
            BioOp::Read => Ok(Wish::Ask(Op::Read)),
            BioOp::Write => Ok(Wish::Ask(Op::Write)),
            BioOp::Flush => Ok(Wish::Ask(Op::DataSync)),
            _ if bio.len == 0 => Ok(Wish::Nothing),
            BioOp::Discard if !self.punch => Ok(Wish::Nothing),
            BioOp::Discard => ask(Fallocate::PunchHole),
            BioOp::WriteZeroesUnmap if self.punch => ask(Fallocate::PunchHole),
            BioOp::WriteZeroes | BioOp::WriteZeroesUnmap if self.zero => ask(ZERO),
            BioOp::WriteZeroes | BioOp::WriteZeroesUnmap => {
                Err(BioError::new(BioErrorKind::Unsupported))
            }
        }
    }
}

/// The request of `file` for a bio. It takes the bio's buffer.
pub(super) fn request(file: FileId, op: Op, bio: &mut Bio) -> Request {
    let flags = RequestFlags {
        nowait: bio.flags.nowait,
        dsync: bio.flags.fua,
        sync: false,
    };
    Request {
        op,
        file,
        pos: bio.pos,
        buf: std::mem::take(&mut bio.buf),
        len: if op.is_of_range() { bio.len } else { 0 },
        token: bio.token,
        flags,
    }
}

/// The same request once more, without `nowait`, after it ended with `WouldBlock` (rule L6).
pub(super) fn again(file: FileId, done: Completion, durable: bool, token: u64) -> Request {
    let flags = RequestFlags {
        dsync: durable,
        ..RequestFlags::default()
    };
    Request {
        op: done.op,
        len: 0,
        file,
        pos: done.pos,
        buf: done.buf,
        token,
        flags,
    }
}

/// The ended bio of a request with data or of a flush, with its submitter's token.
pub(super) fn ended(done: Completion, token: u64) -> Bio {
    let (pos, len) = (done.pos, done.buf.len() as u64);
    let op = match done.op {
        Op::Read => BioOp::Read,
        Op::Write | Op::WriteAtomic | Op::Append => BioOp::Write,
        Op::Sync | Op::DataSync | Op::SyncVolume | Op::Truncate | Op::Fallocate(_) => BioOp::Flush,
    };
    let mut bio = Bio {
        buf: done.buf,
        pos,
        len,
        token,
        op,
        flags: BioFlags::default(),
        result: Ok(()),
    };
    bio.result = match done.result {
        Err(error) => Err(bio_error(&error)),
        Ok(count) if op == BioOp::Read && count < bio.buf.len() => {
            bio.buf.zero(count..bio.buf.len());
            read_result(count, len)
        }
        // Rule L3: a write is done wholly, or fails.
        Ok(count) if op == BioOp::Write && (count as u64) < len => {
            Err(BioError::new(BioErrorKind::Io))
        }
        Ok(_) => Ok(()),
    };
    bio
}

/// Rule L2: the rest of the last sector reads as zeros; a read wholly past the end of the file fails.
pub(super) fn read_result(count: usize, len: u64) -> Result<(), BioError> {
    match count == 0 && len > 0 {
        true => Err(BioError::new(BioErrorKind::Io)),
        false => Ok(()),
    }
}

pub(super) fn bio_error(error: &Error) -> BioError {
    match error.root() {
        Error::Device { error, .. } => *error,
        Error::WouldBlock(_) => BioError::new(BioErrorKind::WouldBlock),
        Error::NoSpace { .. } | Error::DeviceFull(_) => BioError::new(BioErrorKind::NoSpace),
        Error::Unaligned { .. } | Error::Invalid(_) | Error::TooBig { .. } => {
            BioError::new(BioErrorKind::Invalid)
        }
        Error::NotYet(_) | Error::NotSupported(_) => BioError::new(BioErrorKind::Unsupported),
        Error::ReadOnly(_) | Error::Aborted(_) | Error::NotPermitted { .. } => {
            BioError::new(BioErrorKind::ReadOnly)
        }
        Error::ShutDown => BioError::new(BioErrorKind::Gone),
        _ => BioError::new(BioErrorKind::Io),
    }
}
