//! Translation of bios into requests and back, operation by operation; tokens of requests under way.
//!
//! Input: bios, completions, errors. Output: none. Invariants: none of its own. Limits: the effects on files are tested in `tests/rules`.

use super::able::Able;
use super::flying::{Flight, Flying};
use super::words::{self, Abilities, Wish};
use crate::error::{Error, Wait};
use crate::op::Fallocate;
use crate::op::Op;
use crate::request::{Completion, FileId};
use diorite_block::{Bio, BioError, BioErrorKind, BioFlags, BioOp, Buf};
use diorite_format::{Ino, MapKind};

const PUNCH: Op = Op::Fallocate(Fallocate::PunchHole);
const ZERO: Op = Op::Fallocate(Fallocate::ZeroRange { keep_size: true });

/// Rule L5: the request for each operation, depending on what the file can do; none for an empty range; a discard that the file cannot do
/// is no error.
#[test]
fn what_a_bio_asks_of_the_file() {
    let wish = |able: Abilities, op, len| match able.wish(&Bio::range(op, 0, len, 0)) {
        Ok(Wish::Ask(op)) => Ok(Some(op)),
        Ok(Wish::Nothing) => Ok(None),
        Err(error) => Err(error.kind),
    };
    let refused = Err(BioErrorKind::Unsupported);
    for (punch, zero, unmap, zeroes) in [
        (true, true, Ok(Some(PUNCH)), Ok(Some(ZERO))),
        (true, false, Ok(Some(PUNCH)), refused),
        (false, true, Ok(Some(ZERO)), Ok(Some(ZERO))),
        (false, false, refused, refused),
    ] {
        let able = Abilities { punch, zero };
        let discard = if punch { Some(PUNCH) } else { None };
        assert_eq!(wish(able, BioOp::Discard, 512), Ok(discard));
        assert_eq!(wish(able, BioOp::WriteZeroesUnmap, 512), unmap);
        assert_eq!(wish(able, BioOp::WriteZeroes, 512), zeroes);
        for op in [BioOp::Discard, BioOp::WriteZeroes, BioOp::WriteZeroesUnmap] {
            assert_eq!(wish(able, op, 0), Ok(None), "{op:?} of nothing");
        }
        for (op, becomes) in [
            (BioOp::Read, Op::Read),
            (BioOp::Write, Op::Write),
            (BioOp::Flush, Op::DataSync),
        ] {
            assert_eq!(wish(able, op, 0), Ok(Some(becomes)));
        }
    }
}

/// Of several requests that were under way together, each takes away only what it asked for.
#[test]
fn what_was_refused_is_not_asked_again() {
    let able = Able::of_map(MapKind::Extents);
    let now = || (able.now().punch, able.now().zero);
    assert_eq!(now(), (true, true));
    for _ in 0..2 {
        able.note_refused(PUNCH);
        assert_eq!(now(), (false, true));
    }
    able.note_refused(Op::Write);
    assert_eq!(now(), (false, true));
    able.note_refused(ZERO);
    assert_eq!(now(), (false, false));
}

fn done(op: Op, len: usize, result: Result<usize, Error>) -> Completion {
    let mut buf = Buf::zeroed(len);
    buf.as_mut_slice().fill(0xEE);
    Completion {
        token: 99,
        op,
        pos: 4096,
        buf,
        result,
    }
}

/// Rule L2: a read that meets the end of the file is filled with zeros; a read behind the end fails. Writes and flushes are not changed.
#[test]
fn how_a_request_ends() {
    for (count, good) in [(1024, true), (512, true), (1, true), (0, false)] {
        let bio = words::ended(done(Op::Read, 1024, Ok(count)), 7);
        assert_eq!(
            (bio.token, bio.op, bio.pos, bio.len),
            (7, BioOp::Read, 4096, 1024)
        );
        let want = if good {
            Ok(())
        } else {
            Err(BioError::new(BioErrorKind::Io))
        };
        assert_eq!(bio.result, want, "{count} bytes");
        let (got, rest) = bio.buf.as_slice().split_at(count);
        assert!(
            got.iter().all(|b| *b == 0xEE) && rest.iter().all(|b| *b == 0),
            "{count} bytes"
        );
    }
    let nothing = words::ended(done(Op::Read, 0, Ok(0)), 7);
    assert_eq!(nothing.result, Ok(()), "all of nothing was read");
    let written = words::ended(done(Op::Write, 1024, Ok(1024)), 7);
    assert_eq!((written.op, written.result), (BioOp::Write, Ok(())));
    assert!(
        written.buf.as_slice().iter().all(|b| *b == 0xEE),
        "what was written is not touched"
    );
    let flushed = words::ended(done(Op::DataSync, 0, Ok(0)), 7);
    assert_eq!((flushed.op, flushed.result), (BioOp::Flush, Ok(())));
    let refused = words::ended(done(Op::Read, 512, Err(Error::ShutDown)), 7);
    assert_eq!(refused.result, Err(BioError::new(BioErrorKind::Gone)));
}

/// Rule L4: the kinds of errors of the file become the corresponding kinds of errors of a device.
#[test]
fn errors_in_the_words_of_devices() {
    let ino = Ino::ROOT;
    let denied = BioError::new(BioErrorKind::Invalid);
    let device = |error| Error::Device {
        op: Op::Write,
        pos: 0,
        len: 512,
        error,
    };
    for (error, kind) in [
        (device(denied), BioErrorKind::Invalid),
        (
            device(BioError::new(BioErrorKind::Gone)),
            BioErrorKind::Gone,
        ),
        (Error::WouldBlock(Wait::Gate), BioErrorKind::WouldBlock),
        (Error::NoSpace { asked: 2, free: 1 }, BioErrorKind::NoSpace),
        (Error::Invalid("so".into()), BioErrorKind::Invalid),
        (
            Error::TooBig {
                ino,
                end: 2,
                most: 1,
            },
            BioErrorKind::Invalid,
        ),
        (Error::NotSupported("so".into()), BioErrorKind::Unsupported),
        (Error::ReadOnly("so".into()), BioErrorKind::ReadOnly),
        (
            Error::NotPermitted {
                ino,
                flag: "immutable",
            },
            BioErrorKind::ReadOnly,
        ),
        (Error::ShutDown, BioErrorKind::Gone),
        (Error::Panicked, BioErrorKind::Io),
    ] {
        assert_eq!(words::bio_error(&error).kind, kind, "{error}");
    }
}

/// Rule L6: a request that is submitted again has no `nowait`, and the same durability.
#[test]
fn what_is_done_again() {
    for durable in [true, false] {
        let told = done(Op::Write, 512, Err(Error::WouldBlock(Wait::Gate)));
        let request = words::again(FileId::NONE, told, durable, 3);
        assert_eq!(
            (request.op, request.pos, request.token),
            (Op::Write, 4096, 3)
        );
        assert_eq!(
            (request.flags.dsync, request.flags.nowait),
            (durable, false)
        );
        assert!(request.buf.as_slice().iter().all(|b| *b == 0xEE));
    }
}

/// No two requests under way have the same token; those that have ended give theirs to later ones.
#[test]
fn tokens_of_requests_under_way() {
    let flight = |token| Flight {
        token,
        flags: BioFlags::default(),
        again: false,
        range: None,
    };
    let mut flying = Flying::default();
    let tokens: Vec<u64> = (10..14).map(|token| flying.put(flight(token))).collect();
    assert_eq!(tokens, [0, 1, 2, 3]);
    assert_eq!(flying.take(1).token, 11);
    assert_eq!(flying.put(flight(20)), 1);
    assert_eq!(flying.put(flight(21)), 4);
    let taken = [3, 1, 0, 4, 2].map(|token| flying.take(token).token);
    assert_eq!(taken, [13, 20, 10, 21, 12]);
}
