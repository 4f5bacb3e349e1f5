//! `fallocate -d`: turns blocks of zeros into holes.
//!
//! Input: a file, a range of its bytes. Output: the file with the same contents and fewer blocks. Invariants: only blocks that
//! are completely inside the range, or reach the end of the file, are freed; holes and unwritten extents are not read. Limits:
//! reads 1 MiB at a time; assumes that nobody else writes the file, which the lock of the image ensures.

use crate::output::report::Reason;
use diorite::{Fallocate, File, Seek, Volume};
use std::ops::Range;

/// The number of bytes that are read at once: a multiple of every block size.
const WINDOW: u64 = 1 << 20;

/// Punches holes where the range has blocks of zeros.
pub(crate) fn dig(volume: &Volume, file: &File, bytes: Range<u64>) -> Result<(), Reason> {
    let block = u64::from(volume.superblock().block_size());
    let size = file.size();
    let end = if bytes.end >= size {
        size
    } else {
        bytes.end - bytes.end % block
    };
    let mut at = bytes.start.saturating_add(block - 1) / block * block;
    while at < end {
        let Some(data) = file.seek_next(at, Seek::Data)?.filter(|data| *data < end) else {
            break;
        };
        let hole = file.seek_next(data, Seek::Hole)?.unwrap_or(size);
        dig_data(file, block, data..hole.min(end))?;
        at = hole;
    }
    Ok(())
}

/// Like [`dig`], for a range that is all data. Zeros in adjacent windows become one hole.
fn dig_data(file: &File, block: u64, bytes: Range<u64>) -> Result<(), Reason> {
    let mut zeros = bytes.start..bytes.start;
    let mut at = bytes.start;
    let short = |n: u64| usize::try_from(n).expect("at most a window");
    let mut window = vec![0; short(WINDOW)];
    while at < bytes.end {
        let len = short(WINDOW.min(bytes.end - at));
        let got = file.read_bytes(at, &mut window[..len])?;
        for part in window[..got].chunks(short(block)) {
            let next = at + part.len() as u64;
            if part.iter().all(|b| *b == 0) {
                zeros.end = next;
            } else {
                punch(file, &zeros)?;
                zeros = next..next;
            }
            at = next;
        }
        if got == 0 {
            break;
        }
    }
    punch(file, &zeros)
}

fn punch(file: &File, bytes: &Range<u64>) -> Result<(), Reason> {
    if bytes.is_empty() {
        return Ok(());
    }
    let len = bytes.end - bytes.start;
    Ok(file.fallocate(Fallocate::PunchHole, bytes.start, len)?)
}
