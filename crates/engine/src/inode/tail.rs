//! What is known of the bytes behind the size in its block: whether they are zeros.
//!
//! Input: a size that is going to move, writes into the rest of that block. Output: zeros there before the size moves over them.
//! Invariants: the bytes count as unknown from when a write to that block is submitted, and as zeros again only after a write or zeroing
//! that succeeded (rule D9); a thread that zeros the block has an entry for it in the pending map, or the gate is closed (rules U11, B5);
//! after a failed flush the bytes are unknown, because it may have dropped the zeros. Limits: if the device fails a write there, and then
//! the zeroing of the same bytes, the next extending write makes visible what the failed write left; so does an extending write that is
//! already under way behind a write for which no worker could be started.

use super::Inode;
use crate::error::Error;
use crate::mapping::MappingState;
use diorite_block::sync::atomic::{AtomicU64, Ordering};
use std::ops::Range;

/// One of the three states below; `ZEROS` plus a count.
#[derive(Debug, Default)]
pub(super) struct Tail(AtomicU64);

/// There may be any bytes. The state of a file that was just read.
const UNKNOWN: u64 = 0;
/// A write that has the block in the pending map is on its way to it. The size does not move over the block before that write has ended
/// well, or the block has been zeroed.
const TOUCHED: u64 = 1;
/// Zeros. The number of failed flushes at that time is added: with a larger number the zeros count for nothing.
const ZEROS: u64 = 2;

/// The state that zeros have if no flush fails after this was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BeforeZeros(u64);

impl Inode {
    /// The block with the file's end, unless the rest of it is known to be zeros.
    pub(crate) fn tail_block(&self) -> Option<u64> {
        self.tail_unless(|tail| tail == self.zeros())
    }

    /// As [`Inode::tail_block`], for a write that makes the file longer: also None if an earlier write takes care of the block.
    pub(crate) fn tail_to_zero(&self) -> Option<u64> {
        self.tail_unless(|tail| tail == TOUCHED || tail == self.zeros())
    }

    fn tail_unless(&self, is_known: impl Fn(u64) -> bool) -> Option<u64> {
        let size = self.size();
        let block = u64::from(self.volume.block_size());
        let known = size.is_multiple_of(block) || is_known(self.tail.0.load(Ordering::Acquire));
        (!known).then_some(size / block)
    }

    fn zeros(&self) -> u64 {
        ZEROS + self.volume.blocking.flushes().failures()
    }

    /// For [`Inode::learn_tail`]: take it before the zeros go down.
    pub(crate) fn before_zeros(&self) -> BeforeZeros {
        BeforeZeros(self.zeros())
    }

    /// Notes that there may be any bytes behind the size.
    pub(crate) fn forget_tail(&self) {
        self.tail.0.store(UNKNOWN, Ordering::Release);
    }

    /// Notes that the bytes behind the size in its block are zeros, if no flush has failed since `before`.
    pub(crate) fn learn_tail(&self, before: BeforeZeros) {
        self.tail.0.store(before.0, Ordering::Release);
    }

    /// Call when data of an extending write goes down to these blocks. Returns the block with the file's end if it is one of them: the
    /// write may leave bytes behind the end there.
    pub(crate) fn touch_tail(&self, blocks: &Range<u64>) -> Option<u64> {
        let (size, block) = (self.size(), u64::from(self.volume.block_size()));
        let touches = size % block != 0 && blocks.contains(&(size / block));
        touches.then(|| {
            self.tail.0.store(TOUCHED, Ordering::Release);
            size / block
        })
    }

    /// Call when a write has failed that touched the rest of this block, while it still has its place among the extending requests. Zeros
    /// what it may have left there, before anything behind it is published. `places` are the places of jobs that the caller holds back.
    /// Blocks.
    pub(crate) fn zero_touched_tail(&self, block: u64, places: &[u64]) {
        self.forget_tail();
        // If another job is being published its place is behind this one's, but its publication began before this one got its place. Then
        // these bytes are inside the size at once.
        if self.tail_block() == Some(block) && !self.pending.moves_besides(places) {
            // If this fails too, the state stays unknown.
            let _best_effort = self.zero_tail();
        }
    }

    /// Zeros the bytes behind the end, if their block is in the entry of the pending map that starts with this unit. Blocks.
    pub(crate) fn zero_tail_in(&self, entry: u64) -> Result<(), Error> {
        match self.owes_tail(entry) {
            true => self.zero_tail(),
            false => Ok(()),
        }
    }

    /// Must an extending write with this entry in the pending map first zero the bytes behind the end?
    pub(crate) fn owes_tail(&self, entry: u64) -> bool {
        let unit = self.cluster_bits() - self.volume.block_size().trailing_zeros();
        self.tail_to_zero()
            .is_some_and(|tail| tail >> unit >= entry)
    }

    /// Zeros the bytes behind the end in its block. Blocks; the caller has exclusive use of that block.
    pub(crate) fn zero_tail(&self) -> Result<(), Error> {
        let before = self.before_zeros();
        if let Some(block) = self.tail_block() {
            let mappings = self.mappings(block..block + 1)?;
            if let Some(MappingState::Written(_)) = mappings.first().map(|m| m.state) {
                self.volume.journal()?.check_tail(self.ino, block)?;
            }
            self.zero_behind(self.size(), block)?;
            self.learn_tail(before);
        }
        Ok(())
    }
}
