//! Fills holes that are going to be written: the mappings of a range, with claimed blocks in the place of holes.
//!
//! Input: a view of the map, a range with an entry in the pending map. Output: mappings without a hole. Invariants: each claim is added
//! to the entry at once. Limits: blocks only if the caller allows it.

use super::{From, Inode};
use crate::alloc::Run;
use crate::error::Error;
use crate::map::MapView;
use crate::mapping::{Mapping, MappingState};
use crate::turn::Claimed;
use diorite_format::FsBlock;
use std::ops::Range;

/// May filling wait for the device, to read a bitmap?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    Waits,
}

/// The mappings of `blocks`, in which claimed blocks, as unwritten ones, replace holes. None if it would have to wait for that.
pub(crate) fn fill(
    inode: &Inode,
    view: &MapView,
    entry: u64,
    blocks: Range<u64>,
    (patience, from): (Patience, From),
) -> Result<Option<Vec<Mapping>>, Error> {
    // What the entry has already, asked for at the first hole.
    let mut claims = None;
    let mut filled = Vec::new();
    for mapping in view.walk(blocks.start, blocks.end) {
        let Ok(mapping) = mapping else {
            return Ok(None);
        };
        if mapping.state != MappingState::Hole {
            filled.push(mapping);
            continue;
        }
        let hole = mapping.start..mapping.start + mapping.len;
        let claim = |blocks| claim(inode, view, blocks, (patience, from));
        let claims = claims.get_or_insert_with(|| inode.pending.claims(entry));
        if !fill_claimed(inode, (entry, claims), hole, &mut filled, claim)? {
            return Ok(None);
        }
    }
    Ok(Some(filled))
}

/// Adds mappings of all of `blocks` to claimed blocks: those that the entry has in `claims`, and new ones, which it gets. `claim` claims
/// blocks for the beginning of a range, or returns None if it would have to wait for that; then the result is false.
pub(super) fn fill_claimed(
    inode: &Inode,
    (entry, claims): (u64, &[Claimed]),
    blocks: Range<u64>,
    filled: &mut Vec<Mapping>,
    claim: impl Fn(Range<u64>) -> Result<Option<Run>, Error>,
) -> Result<bool, Error> {
    let mut at = blocks.start;
    while at < blocks.end {
        let known = claims.iter().copied().find(|c| c.blocks().contains(&at));
        let claim = match known {
            Some(claim) => claim,
            None => {
                let Some(run) = claim(at..blocks.end)? else {
                    return Ok(false);
                };
                let file_block = u32::try_from(at).expect("the largest size was checked");
                let claim = Claimed { file_block, run };
                inode.pending.add_claim(entry, claim);
                claim
            }
        };
        let skip = at - claim.blocks().start;
        let len = (u64::from(claim.run.len) - skip).min(blocks.end - at);
        let state = MappingState::Unwritten(FsBlock::new(claim.run.start.get() + skip));
        filled.push(Mapping {
            start: at,
            len,
            state,
        });
        at += len;
    }
    Ok(true)
}

/// Claims blocks for the first file blocks of a range.
fn claim(
    inode: &Inode,
    view: &MapView,
    blocks: Range<u64>,
    (patience, from): (Patience, From),
) -> Result<Option<Run>, Error> {
    let want = u32::try_from(blocks.end - blocks.start).unwrap_or(u32::MAX);
    let asked = (blocks.start, want);
    match patience {
        Patience::None => inode.claims.try_take(from, inode, view, asked),
        Patience::Waits => Ok(Some(inode.claims.take_from(from, inode, view, asked)?)),
    }
}
