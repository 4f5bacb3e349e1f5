//! What it is: the judge of a file without a journal whose last changes were not durable: any part of them may be on the disk, and
//! e2fsck repaired the rest.
//! Input: the file's states from the last durable one on, and what it holds. Output: nothing, or the first sector that does not
//! fit.
//! Invariants: a sector is zeros, or what that position of the file held in one of these states; never what it held before the
//! durable state, nor another file's data. Limits: after collapsed or inserted ranges, a sector may come from any position of these
//! states; the file may be missing.

use super::{Seen, is};
use crate::bed::LARGEST_BLOCK;
use crate::stamp::{Held, SECTOR};
use crate::states::{Block, Change, Content, State, States};

pub(super) fn judge(
    number: u32,
    states: &States,
    changes: &[&Change],
    durable: usize,
    seen: &Seen,
) -> Result<(), String> {
    let Some(sectors) = &seen.sectors else {
        return Ok(());
    };
    let list = &states.list[durable..];
    let longest = list.iter().map(|state| state.sectors).max().unwrap_or(0);
    let most = longest.next_multiple_of(LARGEST_BLOCK / SECTOR as u64);
    if sectors.len() as u64 > most {
        let is = sectors.len();
        return Err(format!(
            "{is} sectors, and it never had more than {longest}"
        ));
    }
    let shifted = |change: &&Change| matches!(change, Change::Collapse(_) | Change::Insert(_));
    let from_anywhere = changes[durable..].iter().any(shifted).then(|| {
        let mut all: Vec<Content> = Vec::new();
        let cells = list.iter().flat_map(|state| &state.blocks).filter_map(cell);
        let mut cells: Vec<usize> = cells.collect();
        cells.sort_unstable();
        cells.dedup();
        for first in cells {
            for cell in first..first + per(states) {
                all.extend(held(states, durable, cell));
            }
        }
        all
    });
    for (sector, seen) in (0u64..).zip(sectors) {
        let fits = |content: &Content| is(number, *content, seen);
        let well = *seen == Held::Zeros
            || match &from_anywhere {
                Some(all) => all.iter().any(fits),
                None => list.iter().any(|state| {
                    let there = at(states, state, sector);
                    there.is_some_and(|cell| held(states, durable, cell).iter().any(fits))
                }),
            };
        if !well {
            return Err(format!(
                "sector {sector} holds {seen:?}, which it held in none of its states from {durable} on, of {}",
                states.list.len()
            ));
        }
    }
    Ok(())
}

fn per(states: &States) -> usize {
    usize::try_from(states.per_block()).unwrap_or(usize::MAX)
}

fn cell(block: &Block) -> Option<usize> {
    match block {
        Block::Hole => None,
        Block::Unwritten(cell) | Block::Written(cell) => Some(*cell),
    }
}

/// The cell that a sector is mapped to in this state.
fn at(states: &States, state: &State, sector: u64) -> Option<usize> {
    let (block, within) = (sector / states.per_block(), sector % states.per_block());
    let block = state.blocks.get(usize::try_from(block).ok()?)?;
    Some(cell(block)? + usize::try_from(within).ok()?)
}

/// Everything that a cell may hold.
fn held(states: &States, durable: usize, cell: usize) -> Vec<Content> {
    states.may_hold(cell, durable, states.list.len() - 1)
}
