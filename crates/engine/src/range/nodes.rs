//! Blocks for nodes of the map that a range operation may need, reserved before it changes anything: so a lack of space changes nothing.
//!
//! Input: whole blocks, and what becomes of them. Output: a part of the free count from which only this file's map takes, until it is
//! dropped. Invariant: an operation that splits no extent needs no reserve, so on a full volume a hole can be punched if that frees
//! blocks. Limits: the operation has the turn; blocks.

use super::allocate::mapping_at;
use crate::error::Error;
use crate::inode::Inode;
use crate::map::edit;
use crate::mapping::{Mapping, MappingState};
use crate::turn::NodesNeeded;
use std::ops::Range;

/// What becomes of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Becomes {
    /// A hole: it is removed from the map.
    Hole,
    /// Unwritten blocks.
    Unwritten,
    /// Written zeros; the blocks are unwritten in between.
    Zeros,
    /// Its start is separated from what lies before it, as for an insertion.
    Apart,
}

/// A reserve, given back when it is dropped.
pub(super) struct Nodes<'a> {
    inode: &'a Inode,
    share: NodesNeeded,
}

impl Drop for Nodes<'_> {
    fn drop(&mut self) {
        self.inode.node_reserve.end(self.share);
    }
}

/// Reserves the nodes that the change may need if it splits extents.
pub(super) fn set_aside(
    inode: &Inode,
    blocks: Range<u64>,
    becomes: Becomes,
) -> Result<Nodes<'_>, Error> {
    let mut splits = Vec::new();
    if !blocks.is_empty() {
        let points = match becomes {
            Becomes::Apart => &[blocks.start][..],
            Becomes::Hole | Becomes::Unwritten | Becomes::Zeros => &[blocks.start, blocks.end],
        };
        for at in points {
            splits.extend(inside(inode, *at)?);
        }
        match becomes {
            Becomes::Hole => {
                // Only if both ends are in the same extent does the map get an extent more.
                let first = mapping_at(inode, blocks.start, blocks.end)?;
                let one = splits.len() == 2 && first.start + first.len >= blocks.end;
                splits.truncate(usize::from(one));
            }
            Becomes::Unwritten => {
                splits.retain(|m| matches!(m.state, MappingState::Written(_)));
            }
            Becomes::Apart | Becomes::Zeros => {}
        }
    }
    let share = inode.set_aside_for_splits(&splits)?;
    Ok(Nodes { inode, share })
}

/// Reserves the nodes that one handle writes anew when it moves a part of the map.
pub(super) fn set_aside_to_move(inode: &Inode) -> Result<Nodes<'_>, Error> {
    let leaves = inode.leaves_per_handle();
    let nodes = edit::most_moved(&inode.volume, &inode.disk(), leaves);
    let share = inode.set_aside_nodes(nodes)?;
    Ok(Nodes { inode, share })
}

/// The mapping of the blocks before and at `at`, if both are in one extent.
fn inside(inode: &Inode, at: u64) -> Result<Option<Mapping>, Error> {
    if at == 0 {
        return Ok(None);
    }
    let around = mapping_at(inode, at - 1, at + 1)?;
    let is_one = around.len == 2 && around.state != MappingState::Hole;
    Ok(is_one.then_some(around))
}
