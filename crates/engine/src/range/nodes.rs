//! Nodes of a map that a range operation may need, set aside before it changes anything: so it fails for space with all as it was.
//!
//! Input: whole blocks, and what happens to them. Output: a part of the free count that this file's map takes from, until it is dropped. Invariant: what splits
//! no extent needs nothing, so on a full volume a hole can be made where that frees something. Limits: the operation has the turn; blocks.

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
    /// Nothing: it is taken out of the map.
    Hole,
    /// Unwritten.
    Unwritten,
    /// Written, after it was made unwritten.
    Zeros,
    /// What begins there moves away from what lies before it.
    Apart,
}

/// See the module.
pub(super) struct Nodes<'a> {
    inode: &'a Inode,
    share: NodesNeeded,
}

impl Drop for Nodes<'_> {
    fn drop(&mut self) {
        self.inode.node_reserve.end(self.share);
    }
}

/// Sets aside what the change may need, if it splits extents.
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
                // Both ends of one extent, of which two remain.
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

/// Sets aside the nodes that one handle writes anew when it moves a part of the map.
pub(super) fn set_aside_to_move(inode: &Inode) -> Result<Nodes<'_>, Error> {
    let leaves = inode.leaves_per_handle();
    let nodes = edit::most_moved(&inode.volume, &inode.disk(), leaves);
    let share = inode.set_aside_nodes(nodes)?;
    Ok(Nodes { inode, share })
}

/// The blocks before and at this one, if they are in one extent.
fn inside(inode: &Inode, at: u64) -> Result<Option<Mapping>, Error> {
    if at == 0 {
        return Ok(None);
    }
    let around = mapping_at(inode, at - 1, at + 1)?;
    let is_one = around.len == 2 && around.state != MappingState::Hole;
    Ok(is_one.then_some(around))
}
