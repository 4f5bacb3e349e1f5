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
    let claims = inode.pending.claims(entry);
    let mut filled = Vec::new();
    for mapping in view.walk(blocks.start, blocks.end) {
        let Ok(mapping) = mapping else {
            return Ok(None);
        };
        if mapping.state != MappingState::Hole {
            filled.push(mapping);
            continue;
        }
        let mut at = mapping.start;
        while at < mapping.start + mapping.len {
            let left = mapping.start + mapping.len - at;
            let known = claims.iter().copied().find(|c| c.blocks().contains(&at));
            let claim = match known {
                Some(claim) => claim,
                None => match claim(inode, view, (at, left), (patience, from))? {
                    Some(claim) => {
                        inode.pending.add_claim(entry, claim);
                        claim
                    }
                    None => return Ok(None),
                },
            };
            let skip = at - claim.blocks().start;
            let len = (u64::from(claim.run.len) - skip).min(left);
            let state = MappingState::Unwritten(FsBlock::new(claim.run.start.get() + skip));
            filled.push(Mapping {
                start: at,
                len,
                state,
            });
            at += len;
        }
    }
    Ok(Some(filled))
}

/// Claims up to `len` blocks for the file blocks from `at` on.
fn claim(
    inode: &Inode,
    view: &MapView,
    (at, len): (u64, u64),
    (patience, from): (Patience, From),
) -> Result<Option<Claimed>, Error> {
    let file_block = u32::try_from(at).expect("the largest size was checked");
    let want = u32::try_from(len).unwrap_or(u32::MAX);
    let run = match patience {
        Patience::None => inode.claims.try_take(from, inode, view, (at, want))?,
        Patience::Waits => Some(inode.claims.take_from(from, inode, view, (at, want))?),
    };
    Ok(run.map(|run: Run| Claimed { file_block, run }))
}
