//! Collapse and insertion of ranges: what lies behind the range moves.
//!
//! Input: an inode with extents whose gate is closed; a range of whole blocks, or clusters. Output: the map behind it shifted, and the
//! size changed. Invariants: if one handle can hold the change, a crash leaves all of it or nothing. Else the map is shifted leaf by
//! leaf, and each handle leaves a consistent tree: after a crash the hole of the range is somewhere behind its place, and no data is
//! lost. Collapse moves from the front and sets the size last, insertion moves from the end and sets the size first. Without a journal
//! each such handle is a round of its own, and its nodes are written anew, for which blocks are reserved. Limits: the work grows with the
//! leaves behind the range.

use super::nodes::{self, Becomes};
use super::{bounds, long, punch};
use crate::error::{Error, Wait};
use crate::inode::pieces::END;
use crate::inode::{Inode, timestamp};
use crate::map::edit::{self, End};
use std::ops::Range;

/// Removes a range that ends before the file does.
pub(super) fn collapse(inode: &Inode, bytes: Range<u64>) -> Result<(), Error> {
    let out = whole_blocks(inode, &bytes)?;
    let (size, len) = (inode.size(), bytes.end - bytes.start);
    if bytes.end >= size {
        let pos = bytes.start;
        return Err(Error::Invalid(format!(
            "inode {}: {len} bytes at {pos} reach the end of the file ({size} bytes): truncate it",
            inode.ino
        )));
    }
    inode.claims.close(inode);
    let _nodes = nodes::set_aside(inode, long(&out), Becomes::Hole)?;
    let moved = nodes::set_aside_to_move(inode)?;
    if at_once(inode, &out, size - len)? {
        return Ok(());
    }
    drop(moved);
    inode.check_nodes(&inode.disk(), out.start)?;
    punch::punch(inode, out.clone())?;
    let by = -i64::from(out.end - out.start);
    let mut at = out.end;
    while at < END {
        let part = next_part(inode, at..END, End::First)?;
        let size = if part.blocks.end == END {
            size - len
        } else {
            size
        };
        shift_part(inode, &part, by, size)?;
        at = part.blocks.end;
    }
    Ok(())
}

/// Inserts a hole that begins before the file's end.
pub(super) fn insert(inode: &Inode, bytes: Range<u64>) -> Result<(), Error> {
    let new = whole_blocks(inode, &bytes)?;
    let (size, pos, len) = (inode.size(), bytes.start, bytes.end - bytes.start);
    if pos >= size {
        return Err(Error::Invalid(format!(
            "inode {}: byte {pos} is not before the end of the file ({size} bytes): truncate it",
            inode.ino
        )));
    }
    let size_then = bounds::of_size(inode, size.saturating_add(len))?.end;
    inode.claims.close(inode);
    let _nodes = nodes::set_aside(inode, long(&new), Becomes::Apart)?;
    // Checked before the first handle, which sets the size.
    inode.check_nodes(&inode.disk(), new.start)?;
    let by = i64::from(new.end - new.start);
    let mut end = END;
    while new.start < end {
        let part = next_part(inode, new.start..end, End::Last)?;
        shift_part(inode, &part, by, size_then)?;
        end = part.blocks.start;
    }
    Ok(())
}

fn whole_blocks(inode: &Inode, bytes: &Range<u64>) -> Result<Range<u32>, Error> {
    // Whole clusters, as blocks that move keep their offsets in clusters.
    let (pos, end) = (bytes.start, bytes.end);
    let unit = u64::from(inode.volume.sb.geometry().cluster_size());
    if pos % unit != 0 || end % unit != 0 {
        return Err(Error::Invalid(format!(
            "inode {}: bytes {pos} to {end} are no whole units of allocation, of {unit} bytes",
            inode.ino
        )));
    }
    let block = u64::from(inode.volume.block_size());
    let short = |b: u64| u32::try_from(b / block).expect("the largest size was checked");
    Ok(short(bytes.start)..short(bytes.end))
}

/// Collapses the range in one handle, if everything that it touches fits. Returns false if it does not fit, or if there is no space now;
/// then the range is unchanged, or has become a hole.
fn at_once(inode: &Inode, out: &Range<u32>, size: u64) -> Result<bool, Error> {
    let piece = inode.piece_to_free(out.clone(), End::First)?;
    let rest = next_part(inode, out.end..END, End::First)?;
    if piece.blocks != *out || rest.blocks != (out.end..END) {
        return Ok(false);
    }
    let credits = piece.credits + inode.credits_to_change(rest.leaves, &[]);
    let now = timestamp(inode.volume.now_nanos());
    let by = -i64::from(out.end - out.start);
    inode.volume.in_handle(credits, |handle| {
        let mut remap = inode.remap(handle)?;
        remap.replace(out.clone(), &[])?;
        let moved = match remap.shift(out.end..END, by) {
            Ok(()) => true,
            Err(Error::NoSpace { .. } | Error::WouldBlock(Wait::Commit)) => false,
            Err(error) => return handle.or_abort(Err(error)),
        };
        if moved {
            remap.disk.size = size;
        }
        remap.written_at(now);
        remap.publish()?;
        Ok(moved)
    })
}

/// The part of the map that one handle moves.
struct Part {
    blocks: Range<u32>,
    /// How many leaves it touches at most.
    leaves: u32,
}

/// The part at one end of the range. It ends at a cluster's end: after a crash no cluster may have blocks at two places of the file.
fn next_part(inode: &Inode, range: Range<u32>, end: End) -> Result<Part, Error> {
    let ratio = inode.volume.sb.geometry().cluster_ratio();
    let mut leaves = inode.leaves_per_handle();
    loop {
        let mut blocks = edit::part(&inode.volume, &inode.disk(), range.clone(), leaves, end)?;
        if blocks.end < range.end {
            blocks.end = blocks.end / ratio * ratio;
        }
        // The range begins with a whole cluster.
        let next = blocks.start.checked_next_multiple_of(ratio);
        blocks.start = next.unwrap_or(blocks.end);
        if !blocks.is_empty() || range.is_empty() {
            return Ok(Part { blocks, leaves });
        }
        // The blocks of one cluster are in more leaves than that.
        leaves *= 2;
    }
}

/// Shifts one part, in one handle, and sets the size. Without a journal that is a round of its own, since the next part may move to the
/// place of this one.
fn shift_part(inode: &Inode, part: &Part, by: i64, size: u64) -> Result<(), Error> {
    let _nodes = nodes::set_aside_to_move(inode)?;
    let credits = inode.credits_to_change(part.leaves, &[]);
    let now = timestamp(inode.volume.now_nanos());
    inode.volume.in_handle(credits, |handle| {
        let mut remap = inode.remap(handle)?;
        remap.shift(part.blocks.clone(), by)?;
        remap.disk.size = size;
        remap.written_at(now);
        remap.publish()
    })?;
    if inode.volume.has_journal() || inode.volume.has_atomic() {
        return Ok(());
    }
    inode.volume.commit_running()
}
