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

/// See [`crate::File::seek`].
pub(crate) fn seek(inode: &Inode, from: u64, what: Seek) -> Result<Option<u64>, Error> {
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
