//! Maps an admitted request: finds where its bytes are on the device, or what it has to wait for.
//!
//! Input: an admitted request. Output: its bios; or an [`Attempt`] that says what is missing. Invariants: inline data is looked for before
//! the map, as it leaves the inode only after the map has it; the size is loaded before the map. Limits: blocks on nothing.

use super::{Attempt, issue, space, untorn};
use crate::map::MapView;
use crate::op::Op;
use crate::policy::NewSpace;
use crate::slots::QueueState;
use crate::slots::plan::{Obstacle, Purpose, plan};
use crate::turn::Hold;
use std::sync::Arc;

/// Maps the request by `view`, or by the latest view, and issues its bios.
#[inline]
pub(super) fn map_and_issue(
    state: &mut QueueState,
    index: u32,
    view: Option<&Arc<MapView>>,
) -> Attempt {
    let QueueState {
        slots,
        files,
        pieces,
        limits,
        ..
    } = state;
    let slot = &slots[index];
    // Inline data is looked for before the map is loaded: it leaves the inode only after the map has it.
    let file = files[slot.file as usize]
        .as_mut()
        .expect("a file with requests stays attached");
    let first = slot.pos >> limits.block_bits;
    let end =
        (slot.pos + u64::from(slot.moved) + ((1 << limits.block_bits) - 1)) >> limits.block_bits;
    if let Some(data) = file.inode.inline_data() {
        return issue::inline_data(state, index, &data);
    }
    if file.inode.is_journalled() {
        if slot.op == Op::WriteAtomic {
            return Attempt::refused(untorn::journalled(slot, file));
        }
        return Attempt::Buffered;
    }
    // Write-back of the last block writes bytes behind the end, too, which who extends the file may be reading and zeroing.
    let has_tail = file.of_cache && slot.done != slot.moved;
    let mapped = view.unwrap_or(file.with_latest_map().1);
    let purpose = match slot.op {
        Op::WriteAtomic => return untorn::attempt(state, index, view),
        Op::Write | Op::Append if slot.past_end || slot.extends || slot.entry.is_some() => {
            return space::attempt(state, index, view);
        }
        Op::Write if has_tail => return space::attempt(state, index, view),
        Op::Write | Op::Append => Purpose::Overwrite,
        Op::Read | Op::Sync | Op::DataSync | Op::SyncVolume | Op::Truncate | Op::Fallocate(_) => {
            Purpose::Read
        }
    };
    let (range, walk) = ((slot.pos, slot.moved), mapped.walk(first, end));
    match plan(
        purpose,
        walk,
        range,
        limits.block_bits,
        limits.max_transfer,
        pieces,
    ) {
        Ok(extents) => issue::issue_planned(state, index, extents),
        Err(Obstacle::NotLoaded(_)) => Attempt::NeedsMap(first..end),
        Err(Obstacle::NotWritten(_)) if runs_alone(state, index) => Attempt::Wants(Hold::Exclusive),
        Err(Obstacle::NotWritten(_)) => space::attempt(state, index, view),
    }
}

/// Does the policy want the exclusive turn for this write into new space, and has the request not got it yet?
fn runs_alone(state: &QueueState, index: u32) -> bool {
    let slot = &state.slots[index];
    let alone = match slot.policy.new_space {
        NewSpace::Concurrent => false,
        NewSpace::AlignedConcurrent => !state.limits.is_block_aligned(slot),
        NewSpace::Exclusive => true,
    };
    alone && slot.hold != Hold::Exclusive && !slot.is_waited_for()
}
