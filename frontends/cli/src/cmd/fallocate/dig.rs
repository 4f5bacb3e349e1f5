//! Blocks of zeros become holes.
//!
//! Input: a file, a range of its bytes. Output: the file, its bytes as they were, with fewer blocks. Invariants: only blocks that lie whole in the
//! range, or reach the end of the file, are given back; what holds no data is not read. Limits: reads a MiB at a time; nobody else writes
//! the file meanwhile, as nobody else has the image.

use crate::report::Reason;
use diorite::{Fallocate, File, Seek, Volume};
use std::ops::Range;

/// Bytes looked at in one go: a multiple of every block size.
const WINDOW: u64 = 1 << 20;

/// Digs the holes.
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
        let Some(data) = file.seek(at, Seek::Data)?.filter(|data| *data < end) else {
            break;
        };
        let hole = file.seek(data, Seek::Hole)?.unwrap_or(size);
        dig_data(file, block, data..hole.min(end))?;
        at = hole;
    }
    Ok(())
}

/// The same where all is data. Zeros of neighbouring windows become one hole.
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
