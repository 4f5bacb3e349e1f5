//! Reads of an open file through the page cache: any position, any length, any memory.
//!
//! Input: slices. Output: bytes, counts. Invariants: bytes that are not written back are seen by every reader; a reader does not wait for
//! direct requests. Limits: a reader may see some of a longer write, unless that is atomic; blocks, unless all is cached.

use super::read_ahead::ReadAhead;
use super::{File, page_io};
use crate::alloc::MOST_UNIT;
use crate::error::Error;
use crate::op::Op;
use crate::request::RequestFlags;
use diorite_block::Buf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of one fill, at most.
const MOST_FILLED: u64 = 4 << 20;

/// The position of an open file, and what read-ahead knows of its reader.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) position: AtomicU64,
    /// Where a sequential reader reads next.
    next: AtomicU64,
    ahead: ReadAhead,
}

impl Reading {
    pub(super) fn new(level: u8) -> Reading {
        Reading {
            position: AtomicU64::new(0),
            next: AtomicU64::new(0),
            ahead: ReadAhead::new(level),
        }
    }
}

/// The bytes of a read that has gone on behind the first `done`: an error behind them is met again by who reads there.
fn behind(done: usize, more: Result<usize, Error>) -> Result<usize, Error> {
    match more {
        Err(_) if done > 0 => Ok(done),
        more => more.map(|more| done + more),
    }
}

impl File {
    /// Reads any range, aligned or not, through the page cache; with [`crate::OpenFlags::direct`] through a bounce buffer. Returns how many
    /// bytes were read: all of `out`, or fewer if the file ends before. Blocks, unless all is cached.
    ///
    /// # Errors
    /// Those of [`File::read_buf`]; `NoMemory`.
    pub fn read_bytes(&self, pos: u64, out: &mut [u8]) -> Result<usize, Error> {
        if self.open_file().is_direct() {
            return self.read_bounced(pos, out);
        }
        let inode = self.inode();
        inode.volume.check_open()?;
        let left = inode.visible_size().saturating_sub(pos);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(out.len());
        let out = &mut out[..len];
        let untorn = inode.untorn_begun();
        let mut done = inode.pages.read(pos, out);
        if len > 0 {
            inode.note_read();
        }
        let reading = &self.reading;
        let is_sequential = pos == reading.next.load(Relaxed);
        if done < len {
            let more = self.read_missing(pos + done as u64, &mut out[done..], is_sequential);
            done = behind(done, more)?;
            if inode.untorn_begun() != untorn {
                // The parts may be from before and after an atomic write. One request sees it whole.
                done = self.read_bounced(pos, out)?;
            }
        }
        let end = pos + done as u64;
        reading.next.store(end, Relaxed);
        if is_sequential && reading.ahead.is_short(end) {
            reading.ahead.extend(self.pool(), inode, end, 0);
        }
        Ok(done)
    }

    fn read_missing(&self, pos: u64, out: &mut [u8], is_sequential: bool) -> Result<usize, Error> {
        let (inode, pool) = (self.inode(), self.pool());
        inode.volume.check_open()?;
        inode.check_data_access()?;
        if inode.volume.check_holds_data(inode).is_err() {
            // Blocks of metadata change without the cache.
            return self.read_bounced(pos, out);
        }
        let bits = inode.volume.block_size().trailing_zeros();
        let mut done = 0;
        // Pages may go before they are copied, if the budget is small.
        let mut tries = 0;
        while done < out.len() {
            let at = pos + done as u64;
            let more = inode.pages.read(at, &mut out[done..]);
            done += more;
            if more > 0 {
                tries = 0;
                continue;
            }
            tries += 1;
            let bringing = inode.volume.cached.keep(inode);
            if tries > 8 || bringing.is_none() {
                return behind(done, self.read_bounced(at, &mut out[done..]));
            }
            let left = (out.len() - done) as u64;
            let end = self.end_of_fill(at, left);
            let ahead = &self.reading.ahead;
            if ahead.finish(at >> bits) {
                continue;
            }
            if is_sequential && end < inode.visible_size() {
                ahead.extend(pool, inode, at, left.min(MOST_FILLED));
                if ahead.finish(at >> bits) {
                    continue;
                }
            }
            if !inode.try_make_pages_ready(&(at..end)) {
                // A reader does not wait for direct requests.
                return behind(done, self.read_bounced(at, &mut out[done..]));
            }
            let blocks = at >> bits..end.div_ceil(1 << bits);
            // If memory is short, or something behind cannot be read, the bytes asked for are read alone.
            if page_io::fill(pool, inode, blocks).is_err() {
                return behind(done, self.read_bounced(at, &mut out[done..]));
            }
        }
        Ok(done)
    }

    /// Where a fill ends that begins at `at`, for a reader who wants `len` bytes.
    fn end_of_fill(&self, at: u64, len: u64) -> u64 {
        let cache = self.inode().pages.cache().cache_bytes();
        let most = len.min(MOST_FILLED).min((cache / 2).max(1));
        at.saturating_add(most)
            .min(self.inode().visible_size().max(at + 1))
    }

    /// Reads through a bounce buffer, without the cache; through a smaller one where memory is short, unless an atomic write could be seen
    /// in part by that.
    fn read_bounced(&self, pos: u64, out: &mut [u8]) -> Result<usize, Error> {
        let logical = u64::from(self.inode().volume.device.geometry().logical);
        let mut bounce = (1 << 20).max(logical);
        let (mut done, mut may_divide) = (0, false);
        while done < out.len() {
            let at = pos.saturating_add(done as u64);
            let start = at - at % logical;
            let all = ((out.len() - done) as u64 + (at - start)).next_multiple_of(logical);
            // No atomic write is read in two parts.
            let whole = start.saturating_add(bounce) / MOST_UNIT * MOST_UNIT;
            let most = whole.checked_sub(start).filter(|most| *most > 0);
            let want = all.min(most.unwrap_or(bounce));
            let Some(buf) = Buf::try_zeroed(want as usize) else {
                if want <= logical {
                    return Err(Error::NoMemory { asked: want });
                }
                bounce = (want / 2).next_multiple_of(logical);
                continue;
            };
            may_divide |= want < all && !(start + want).is_multiple_of(MOST_UNIT);
            let (buf, got) = self.call(Op::Read, start, buf, RequestFlags::default());
            let skip = (at - start) as usize;
            let whole = match got {
                Err(_) if done > 0 => break,
                got => got?,
            };
            let got = whole.saturating_sub(skip).min(out.len() - done);
            out[done..done + got].copy_from_slice(&buf.as_slice()[skip..skip + got]);
            done += got;
            // The file ended there. What is behind that now may be the rest of an atomic write that has moved the end.
            if (whole as u64) < want {
                break;
            }
        }
        if may_divide && self.inode().untorn_begun() > 0 {
            return Err(Error::NoMemory { asked: MOST_UNIT });
        }
        Ok(done)
    }
}
