//! Batches: runs of dirty blocks on their way to the device.
//!
//! Input: a range of blocks; how a write of them ended. Output: a run with its bytes, lent; blocks that are clean, or dropped after a
//! failure. Invariants: a block that is being written is not collected again before that has ended (rule B9); what moves the size goes down
//! behind all that is dirty before it. Limits: none of its own.

use super::Failure;
use super::folio::Folio;
use super::{Marked, Pages, bits, meet, short};
use diorite_block::Buf;
use diorite_block::sync::atomic::Ordering;
use std::ops::Range;

/// A run of dirty blocks on their way to the device.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) id: u64,
    pub(crate) blocks: Range<u64>,
    /// Their bytes, lent.
    pub(crate) buf: Buf,
    /// For how many of them space was reserved.
    pub(crate) reserved: u64,
    /// It moves the size: [`Pages::sent`] must be called once it is on its way.
    pub(crate) moves_size: bool,
    /// It has bytes of calls that have returned: syncs are told if it fails.
    pub(crate) is_acknowledged: bool,
    /// One past the last byte of the file, in bytes: what is appended later is not in `buf`.
    pub(crate) end: u64,
}

/// What write-back finds in a range.
#[derive(Debug)]
pub(crate) enum Collected {
    /// Nothing that can be written now.
    Nothing,
    /// What lies before it, behind the size on disk, has to go first: a run that was not sent down yet, or one that is being written and is
    /// dirty again.
    Kept,
    Run(Batch),
}

impl Pages {
    /// Takes the first run of dirty blocks in a range, at most `most` blocks, to write them. [`Pages::written`] must follow. `size`
    /// gives the file's size on disk, in bytes.
    pub(crate) fn collect(
        &self,
        blocks: Range<u64>,
        most: u64,
        size: impl FnOnce() -> u64,
    ) -> Collected {
        let mut state = self.state.write();
        // As for `visible_size`: first the end, which write-back forgets once the size has moved.
        let last = self.end();
        let size = size();
        let (mut parts, mut reserved, mut is_acknowledged) = (Vec::new(), 0, false);
        let Some(start) = state.folios.first_dirty(&blocks) else {
            return Collected::Nothing;
        };
        let behind = |block: u64| block << self.block_bits > size;
        if state.writes.iter().any(|batch| batch.is_kept) && behind((start + most).min(blocks.end))
        {
            return Collected::Kept;
        }
        let size_block = size >> self.block_bits;
        if size_block < start && state.folios.any(&(size_block..start), Folio::dirty) {
            return Collected::Kept;
        }
        let run = start;
        let (mut at, mut end) = (run, run);
        while at < blocks.end && at - run < most {
            let Some((start, folio)) = state.folios.of_mut(at) else {
                break;
            };
            let left = blocks.end.min(run + most) - at;
            let Some(taken) = folio.take_dirty(at - start, left) else {
                break;
            };
            reserved += taken.reserved;
            is_acknowledged |= taken.is_acknowledged;
            let bytes = |b: u32| (b as usize) << self.block_bits;
            parts.push(folio.lend(bytes(taken.blocks.start)..bytes(taken.blocks.end)));
            at = start + u64::from(taken.blocks.end);
            end = at;
        }
        let (id, moves_size) = (state.id(), behind(end));
        let watches = state.watches_of(&(run..end));
        state.writes.push(Marked {
            is_kept: moves_size,
            is_acknowledged,
            watches,
            ..Marked::new(id, run..end)
        });
        self.cache.note_collected((end - run) << self.block_bits);
        Collected::Run(Batch {
            id,
            blocks: run..end,
            buf: Buf::from_parts(parts),
            reserved,
            moves_size,
            is_acknowledged,
            end: last.max(size),
        })
    }

    /// Notes that a batch which moves the size is on its way: others may follow.
    pub(crate) fn sent(&self, id: u64) {
        let mut state = self.state.write();
        let batch = state.writes.iter_mut().find(|batch| batch.id == id);
        batch.expect("it has not ended").is_kept = false;
        drop(state);
        self.tell();
    }

    /// Ends the write-back of a batch. After a failure blocks that were not written again meanwhile are dropped, so that reads show what
    /// the device has, and the failure is noted. `size` is the file's size on disk.
    pub(crate) fn written(&self, id: u64, error: Option<Failure>, size: u64) {
        let mut state = self.state.write();
        let batch = state.writes.iter().position(|batch| batch.id == id);
        let batch = batch.expect("a batch ends once");
        let batch = state.writes.swap_remove(batch);
        let blocks = &batch.blocks;
        let mut clean = 0;
        let mut at = blocks.start;
        while at < blocks.end {
            let (start, folio) = state.folios.of_mut(at).expect("what is written stays");
            let end = blocks.end.min(start + u64::from(folio.blocks()));
            clean += folio.end_writing(short(at - start)..short(end - start), error.is_some());
            at = end;
        }
        if let Some(error) = error {
            self.cache.note_failed();
            let writers = self.writers.load(Ordering::SeqCst);
            let others = self.left_dirty.load(Ordering::SeqCst);
            state.note_failure(&batch, error, (writers, others));
            self.has_failed.store(true, Ordering::SeqCst);
            state.folios.drop_empty();
            self.count(&state);
        }
        let left = self.unwritten.fetch_sub(clean, Ordering::SeqCst) - clean;
        self.cache.sub_dirty(clean << self.block_bits);
        if left == 0 {
            self.left_dirty.store(false, Ordering::SeqCst);
        }
        if left == 0 || self.end() <= size {
            self.end.store(0, Ordering::Release);
        }
        drop(state);
        self.tell();
    }

    /// Is a block of the range dirty, or being written?
    pub(crate) fn is_unwritten(&self, blocks: &Range<u64>) -> bool {
        self.has_unwritten() && self.state.read().folios.any(blocks, |f| f.unwritten())
    }

    /// For [`Pages::is_writing`].
    pub(crate) fn mark(&self) -> u64 {
        self.state.write().id()
    }

    /// Is a block of the range still being written by a batch that was collected before the mark was made?
    pub(crate) fn is_writing(&self, blocks: &Range<u64>, mark: u64) -> bool {
        let state = self.state.read();
        let mut earlier = state.writes.iter().filter(|batch| batch.id < mark);
        earlier.any(|batch| meet(&batch.blocks, blocks))
    }

    /// The runs of blocks in a range that are dirty or being written.
    pub(crate) fn unwritten_runs(&self, blocks: &Range<u64>) -> Vec<Range<u64>> {
        let state = self.state.read();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (start, folio) in state.folios.meeting(blocks) {
            let mut from = 0;
            while let Some(run) = folio.unwritten().run(from) {
                from = run.end;
                let (a, b) = (start + u64::from(run.start), start + u64::from(run.end));
                let (a, b) = (a.max(blocks.start), b.min(blocks.end));
                match runs.last_mut() {
                    _ if a >= b => {}
                    Some(last) if last.end == a => last.end = b,
                    _ => runs.push(a..b),
                }
                if from >= bits::MOST {
                    break;
                }
            }
        }
        runs
    }
}
