//! Search for the next data, or the next hole.
//!
//! Input: a position. Output: the first byte from there on that is data, or in a hole. Invariants: unwritten blocks are holes; the file's
//! end is one too; the map is read node by node, and no more blocks than the volume has. Limits: a write in progress is data once it is
//! published.

use crate::error::Error;
use crate::inode::Inode;
use crate::mapping::MappingState;
use crate::op::Seek;
use std::ops::ControlFlow;

/// See [`crate::File::seek_next`]. `size` is the size that the caller sees: blocks before it count, whatever the size on disk is.
fn seek(inode: &Inode, from: u64, what: Seek, size: u64) -> Result<Option<u64>, Error> {
    if from >= size {
        return Ok(None);
    }
    if let Some(inside) = inode.inline_data() {
        let end = inside.len() as u64;
        return Ok(match what {
            Seek::Data => (from < end).then_some(from),
            Seek::Hole => Some(from.max(end)),
        });
    }
    let block = u64::from(inode.volume.block_size());
    let mut found = None;
    inode.walk_map(from / block..size.div_ceil(block), |mapping| {
        let is_data = matches!(mapping.state, MappingState::Written(_));
        if is_data == (what == Seek::Data) {
            found = Some(from.max(mapping.start * block));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    Ok(found.or((what == Seek::Hole).then_some(size)))
}

/// As [`seek`], with dirty pages as data.
pub(crate) fn seek_with_pages(inode: &Inode, from: u64, what: Seek) -> Result<Option<u64>, Error> {
    let size = inode.visible_size();
    if !inode.pages.has_unwritten() || from >= size {
        return seek(inode, from, what, size);
    }
    let bits = inode.volume.block_size().trailing_zeros();
    let runs = inode
        .pages
        .unwritten_runs(&(from >> bits..size.div_ceil(1 << bits)));
    if what == Seek::Data {
        let cached = runs.first().map(|run| from.max(run.start << bits));
        let on_disk = seek(inode, from, what, size)?;
        return Ok(cached.into_iter().chain(on_disk).min());
    }
    let mut at = from;
    while at < size {
        let hole = seek(inode, at, what, size)?.unwrap_or(at);
        match runs.iter().find(|run| run.contains(&(hole >> bits))) {
            Some(run) => at = run.end << bits,
            None => return Ok(Some(hole)),
        }
    }
    Ok(Some(size))
}
