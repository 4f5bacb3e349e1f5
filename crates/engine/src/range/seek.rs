//! The next data, or the next hole.
//!
//! Input: a position. Output: the first byte from there on that is data, or is none. Invariants: unwritten blocks are holes; the file's end is one too.
//! Limits: what is being written is data when it is published.

use super::Seek;
use super::allocate::mapping_at;
use crate::error::Error;
use crate::inode::Inode;
use crate::map::MappingState;

/// See [`crate::File::seek`].
pub(super) fn seek(inode: &Inode, from: u64, what: Seek) -> Result<Option<u64>, Error> {
    let size = inode.size();
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
    let (mut at, end) = (from / block, size.div_ceil(block));
    while at < end {
        let mapping = mapping_at(inode, at, end)?;
        let is_data = matches!(mapping.state, MappingState::Written(_));
        if is_data == (what == Seek::Data) {
            return Ok(Some(from.max(at * block)));
        }
        at = mapping.start + mapping.len;
    }
    Ok((what == Seek::Hole).then_some(size))
}
