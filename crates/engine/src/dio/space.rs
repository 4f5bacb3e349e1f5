//! Writes into new space (holes, unwritten blocks) and past the end: what they need before their data goes down.
//!
//! Input: an admitted write that is no pure overwrite. Output: its bios, those for padding zeros included, with its range in the pending
//! map and blocks claimed for its holes; or what it has to wait for. Invariants: the range is registered before the mapping is looked up;
//! nothing of it is mapped before its data is on the device; sectors of a new block that nobody writes are zeroed by exactly one request
//! (rules B4, B5). Limits: [`attempt`] blocks on nothing; what has to be read first is read by a worker, in `jobs/prepare`.

use super::check::not_last;
use super::{Attempt, issue};
use crate::error::{Error, Wait};
use crate::inode::{Patience, fill, fill_anew, is_mapped};
use crate::map::{MapView, NotLoaded};
use crate::mapping::{Mapping, MappingState};
use crate::op::Op;
use crate::slots::QueueState;
use crate::slots::plan::{Obstacle, Purpose, plan};
use crate::turn::Wanted;
use std::sync::Arc;

/// Registers the write, claims what it needs, and issues it. For a write that a worker has prepared, `view` has its part of the map. A
/// view from before the registration is not used.
#[cold]
pub(super) fn attempt(state: &mut QueueState, index: u32, view: Option<&Arc<MapView>>) -> Attempt {
    let bits = state.limits.block_bits;
    let slot = &mut state.slots[index];
    let file = state.files[slot.file as usize]
        .as_mut()
        .expect("a file with requests stays attached");
    let inode = file.inode.clone();
    if let Err(error) = inode.check_can_grow() {
        return Attempt::refused(error);
    }
    let blocks = slot.pos >> bits..slot.end().div_ceil(1 << bits);
    let unit = inode.cluster_bits();
    // The worker's view is used, as the latest view may lose what was loaded at any time, when the maps exceed their budget.
    let prepared = view.filter(|_| slot.entry.is_some());
    if slot.entry.is_none() {
        let grows = slot.past_end || slot.extends;
        let tail = inode.tail_to_zero().filter(|_| grows);
        let first = tail.map_or(blocks.start, |tail| tail.min(blocks.start));
        let from = first >> (unit - bits);
        let wanted = Wanted {
            units: from..slot.end().div_ceil(1 << unit),
            extends: grows.then(|| slot.pos..slot.end()),
            counted: slot.extends,
            bits: unit,
        };
        if !inode.pending.register(&wanted) {
            if slot.extends && !slot.flags.nowait {
                inode.pending.make_sure(slot.pos);
            }
            return Attempt::WantsRange(wanted);
        }
        slot.entry = Some(from);
        // Taken before zeros behind the old end go down, too.
        slot.began = Some(inode.volume.data_epoch());
        slot.extends = grows;
        // If the size has moved over its last sector since it was checked, that was before the range was registered. Then it is refused.
        if slot.done != slot.moved && !file.of_cache && inode.visible_size() >= slot.end() {
            return Attempt::refused(not_last(slot, &inode));
        }
    }
    let entry = slot.entry.expect("it was registered above");
    if slot.extends && inode.owes_tail(entry) {
        return Attempt::NeedsSpace(entry, blocks);
    }
    let (of_cache, how) = (file.of_cache, (Patience::None, file.claims_from()));
    let view = prepared.unwrap_or_else(|| file.with_latest_map().1);
    let anew = slot.op == Op::WriteAtomic;
    let filled = match anew {
        true => fill_anew(&inode, view, entry, blocks.clone(), Patience::None),
        false => fill(&inode, view, entry, blocks.clone(), how),
    };
    let filled = filled.and_then(|filled| {
        // The nodes for write-back were reserved when its pages became dirty.
        if let Some(mappings) = filled.as_ref().filter(|_| !of_cache) {
            inode.set_aside(entry, mappings, anew && is_mapped(view, &blocks))?;
        }
        Ok(filled)
    });
    match filled {
        Ok(Some(mappings)) => {
            let slot = &mut state.slots[index];
            if slot.extends {
                inode.pending.make_sure(slot.pos);
                slot.tail = inode.touch_tail(&blocks);
            }
            issue_filled(state, index, mappings)
        }
        Ok(None) => Attempt::NeedsSpace(entry, blocks),
        // The worker finds out whether there really is no space: it may wait for a commit that makes freed blocks usable.
        Err(Error::NoSpace { .. } | Error::WouldBlock(Wait::Commit)) => {
            // Others can use what it has claimed, as it may wait for a worker.
            if !of_cache {
                inode.give_back_claims(entry);
            }
            Attempt::NeedsSpace(entry, blocks)
        }
        Err(error) => Attempt::refused(error),
    }
}

fn issue_filled(state: &mut QueueState, index: u32, mappings: Vec<Mapping>) -> Attempt {
    let slot = &mut state.slots[index];
    slot.owes_map = mappings
        .iter()
        .any(|m| !matches!(m.state, MappingState::Written(_)));
    let range = (slot.pos, slot.moved);
    let planned = plan(
        Purpose::Fill,
        mappings.into_iter().map(Ok::<_, NotLoaded>),
        range,
        state.limits.block_bits,
        state.limits.max_transfer,
        &mut state.pieces,
    );
    match planned {
        Ok(extents) => issue::issue_planned(state, index, extents),
        Err(Obstacle::NotLoaded(_) | Obstacle::NotWritten(_)) => {
            unreachable!("every mapping is loaded, and holes were filled")
        }
    }
}
