//! What is known of the bytes behind the size in its block: they are zeros, or may be anything.
//!
//! Input: a size that shall move, writes into the rest of that block. Output: zeros there before the size moves over them. Invariants:
//! what is known is forgotten when a write goes down to that block, and learnt again only from a success (rule D9); the block is in the
//! pending map for who zeros it, or the gate is closed (rules U11, B5); a flush that fails makes it unknown, for it may have dropped the
//! zeros. Limits: where a device fails a write there and then the zeros over it, who comes behind shows what was written; so does who is
//! under way already behind a write that no worker could be started for.

use super::Inode;
use crate::error::Error;
use crate::mapping::MappingState;
use diorite_block::sync::atomic::{AtomicU64, Ordering};
use std::ops::Range;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Tail(AtomicU64);

/// It may be anything: all that is known of a file that was just read.
const UNKNOWN: u64 = 0;
/// A write is on its way to it, by who has the block in the pending map. The size does not move over it before that has ended well, or has
/// been zeroed.
const TOUCHED: u64 = 1;
/// Zeros, since so many failures of flushes.
const ZEROS: u64 = 2;

/// Which flush had failed last before zeros went down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BeforeZeros(u64);

impl Inode {
    /// The block with the file's end, if something other than zeros may lie behind that.
    pub(crate) fn tail_block(&self) -> Option<u64> {
        self.tail_unless(|tail| tail == self.zeros())
    }

    /// The same for a write that shall make the file longer: none also if a write that comes before it sees to that.
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

    /// For [`Inode::learn_tail`]: to be asked before the zeros go down.
    pub(crate) fn before_zeros(&self) -> BeforeZeros {
        BeforeZeros(self.zeros())
    }

    /// Nothing is known of what lies behind the size.
    pub(crate) fn forget_tail(&self) {
        self.tail.0.store(UNKNOWN, Ordering::Release);
    }

    /// All that lies behind the size in its block is zeros.
    pub(crate) fn learn_tail(&self, before: BeforeZeros) {
        self.tail.0.store(before.0, Ordering::Release);
    }

    /// Data goes down to these blocks by a write that makes the file longer: the block behind whose end it may leave bytes, if it is one
    /// of them.
    pub(crate) fn touch_tail(&self, blocks: &Range<u64>) -> Option<u64> {
        let (size, block) = (self.size(), u64::from(self.volume.block_size()));
        let touches = size % block != 0 && blocks.contains(&(size / block));
        touches.then(|| {
            self.tail.0.store(TOUCHED, Ordering::Release);
            size / block
        })
    }

    /// A write that touched the rest of this block has failed, and is still in the order in which the size moves. What it has left there
    /// becomes zeros before anybody behind it is published; the caller holds back those with `places`. Blocks.
    pub(crate) fn settle_tail(&self, block: u64, places: &[u64]) {
        self.forget_tail();
        // Who is being published comes after it in the file, but began to be before it came: then its bytes are inside the size at once.
        if self.tail_block() == Some(block) && !self.pending.moves_besides(places) {
            // If this fails too, it stays unknown.
            let _best_effort = self.zero_tail();
        }
    }

    /// Zeros what lies behind the end in its block, if that is of the entry in the pending map that begins with this unit. Blocks.
    pub(crate) fn zero_tail_in(&self, entry: u64) -> Result<(), Error> {
        match self.owes_tail(entry) {
            true => self.zero_tail(),
            false => Ok(()),
        }
    }

    /// Has an extending write, with this entry in the pending map, to zero what lies behind the end first?
    pub(crate) fn owes_tail(&self, entry: u64) -> bool {
        let unit = self.cluster_bits() - self.volume.block_size().trailing_zeros();
        self.tail_to_zero()
            .is_some_and(|tail| tail >> unit >= entry)
    }

    /// Zeros what lies behind the end in its block. Blocks; the caller has that block to itself.
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
