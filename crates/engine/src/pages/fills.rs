//! Fills: reads of blocks from the device into the cache.
//!
//! Input: a range of blocks; what was read. Output: new folios. Invariants: a block is read by one fill at a time, unless it is read ahead;
//! blocks that were changed or claimed while they were read are not installed. Limits: none of its own.

use super::folio::Folio;
use super::{Marked, NewFolio, Pages, Reclaim, State, meet};
use std::ops::Range;
use std::sync::Weak;

/// What became of the wish to read blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// All are cached.
    Cached,
    /// Somebody else reads some of them already, or a direct request has them: wait.
    Busy,
    /// These are to be read; [`Pages::end_fill`] must follow.
    Begun(u64, Range<u64>),
}

impl Pages {
    /// Marks the first run of blocks in a range that are not cached, for a caller that is going to read them from the device.
    pub(crate) fn begin_fill(&self, blocks: Range<u64>) -> Fill {
        let mut state = self.state.write();
        let start = state.folios.end_of_valid(blocks.start, blocks.end);
        if start >= blocks.end {
            return Fill::Cached;
        }
        let blocks = start..state.folios.next_valid(start, blocks.end);
        let mut others = state.fills.iter().filter(|fill| !fill.is_ahead);
        if others.any(|fill| meet(&fill.blocks, &blocks)) || state.is_claimed(&blocks) {
            return Fill::Busy;
        }
        Fill::Begun(state.begin_fill(blocks.clone(), false), blocks)
    }

    /// As [`Pages::begin_fill`], for blocks that somebody may need later: others may read them from the device, too.
    pub(crate) fn begin_ahead(&self, blocks: Range<u64>) -> u64 {
        self.state.write().begin_fill(blocks, true)
    }

    /// Ends a fill with the bytes that were read, if all went well, as new folios; what became valid meanwhile stays as it is.
    pub(crate) fn end_fill(&self, id: u64, of: &Weak<dyn Reclaim>, read: Vec<NewFolio>) {
        let mut state = self.state.write();
        let fill = state.fills.iter().position(|fill| fill.id == id);
        let fill = state.fills.swap_remove(fill.expect("a fill ends once"));
        let (mut added, mut bytes) = (Vec::new(), 0);
        for new in read {
            bytes += u64::from(new.blocks()) << self.block_bits;
            if fill.is_stale {
                continue;
            }
            let start = new.start;
            if state
                .folios
                .overlaps(start..start + u64::from(new.blocks()))
            {
                state.folios.copy_missing(self.block_bits, &new);
                continue;
            }
            let folio = Folio::filled(new, state.id());
            added.push(((start, folio.id()), folio.alive()));
            state.folios.insert(start, folio);
        }
        self.count(&state);
        drop(state);
        self.cache.note_filled(bytes, fill.is_ahead);
        added
            .into_iter()
            .for_each(|(place, alive)| self.cache.enqueue(of.clone(), place, alive));
        self.tell();
    }
}

impl State {
    fn begin_fill(&mut self, blocks: Range<u64>, is_ahead: bool) -> u64 {
        // What has become valid since the caller looked may be newer than what is read, and gone before that is installed.
        let is_valid = self.folios.next_valid(blocks.start, blocks.end) < blocks.end;
        let is_stale = is_valid || self.is_claimed(&blocks);
        let id = self.id();
        self.fills.push(Marked {
            is_stale,
            is_ahead,
            ..Marked::new(id, blocks)
        });
        id
    }
}
