//! Random operations on the contents of files.
//!
//! Input: an open file and its bytes in the model. Output: both changed alike. Invariant: an operation that fails for lack of space
//! has changed nothing. Limits: files without extents are only written, truncated and punched; on a nearly full volume, all files
//! are.

use super::{Says, called};
use crate::common::Rng;
use crate::common::bytes;
use diorite::{Fallocate, File};
use diorite_block::Buf;
use diorite_format::MapKind;

/// Most operations are below this offset; a few are further away.
const NEAR: u64 = 60_000;
const FAR: u64 = 900_000;

/// Makes one random operation. Returns false if there was no room for it.
pub(super) fn step(
    file: &File,
    known: &mut Vec<u8>,
    rng: &mut Rng,
    (unit, all): (u64, bool),
) -> bool {
    let reach = if rng.below(8) == 0 { FAR } else { NEAR };
    let (pos, len) = (rng.below(reach), 1 + rng.below(30_000));
    let extents = file.metadata().map_kind() == MapKind::Extents;
    let what = rng.below(if all && extents { 12 } else { 7 });
    let done = match what {
        0..4 => write(file, known, rng, (pos / 512, len / 512 + 1)),
        4 => file.truncate(pos).map(|()| known.resize(pos as usize, 0)),
        _ => {
            let (mode, pos, len) = range(rng, what, (pos, len), unit);
            let size = known.len() as u64;
            let refused = match mode {
                Fallocate::CollapseRange => pos + len >= size,
                Fallocate::InsertRange => pos >= size,
                _ => false,
            };
            let done = file.fallocate(mode, pos, len);
            if refused {
                assert_eq!(called(done), Says::Said(Err("Invalid")), "{mode:?}");
                return true;
            }
            done.map(|()| bytes::fallocate(known, mode, pos as usize, len as usize))
        }
    };
    match called(done) {
        Says::NoRoom => {
            assert_eq!(
                file.size(),
                known.len() as u64,
                "no room: {what} at {pos}+{len} {:?}",
                file.metadata().flags.letters()
            );
            false
        }
        Says::Said(said) => {
            assert_eq!(said, Ok(()), "{what} at {pos}+{len}");
            assert_eq!(file.size(), known.len() as u64, "{what} at {pos}+{len}");
            true
        }
    }
}

fn range(rng: &mut Rng, what: u64, (pos, len): (u64, u64), unit: u64) -> (Fallocate, u64, u64) {
    let keep_size = rng.below(2) == 0;
    let whole = (pos / unit * unit, len.next_multiple_of(unit));
    match what {
        5 | 6 => (Fallocate::PunchHole, pos, len),
        7 => (Fallocate::Allocate { keep_size }, pos, len),
        8 => (Fallocate::ZeroRange { keep_size }, pos, len),
        9 => (Fallocate::WriteZeroes { keep_size }, pos, len),
        10 => (Fallocate::CollapseRange, whole.0, whole.1),
        _ => (Fallocate::InsertRange, whole.0, whole.1),
    }
}

fn write(
    file: &File,
    known: &mut Vec<u8>,
    rng: &mut Rng,
    (sector, sectors): (u64, u64),
) -> Result<(), diorite::Error> {
    let mut data = vec![0; sectors as usize * 512];
    rng.fill(&mut data);
    let mut buf = Buf::zeroed(data.len());
    buf.copy_in(0, &data);
    let done = file.write_at(sector * 512, buf).1?;
    assert_eq!(done, data.len());
    bytes::write(known, sector as usize * 512, &data);
    Ok(())
}

/// Asserts that the file reads as expected.
pub(super) fn same(what: &str, file: &File, known: &[u8]) {
    assert_eq!(file.size(), known.len() as u64, "{what}: size");
    let mut found = vec![0xEE; known.len()];
    assert_eq!(
        file.read_bytes(0, &mut found).unwrap(),
        known.len(),
        "{what}"
    );
    if let Some(at) = (0..known.len()).find(|n| found[*n] != known[*n]) {
        panic!(
            "{what}: byte {at} is {:#x}, not {:#x}",
            found[at], known[at]
        );
    }
}
