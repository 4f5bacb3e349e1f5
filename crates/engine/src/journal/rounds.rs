//! Without a journal: metadata goes home in ordered rounds.
//!
//! Input: frozen transactions. Output: blocks at home. Invariants: data first, by a flush; then blocks that nothing on disk points to; a
//! flush; then descriptors of groups more of whose inodes are used than before, a flush, because e2fsck looks at no others and may give away what these have;
//! then the rest; a flush; only then may what the round freed be used again (design: no file shows bytes never written to it
//! once e2fsck has run). Limits: names and counts may be torn by a crash between the flushes; e2fsck mends them.

use super::commit::{Frozen, Turn};
use crate::error::Error;
use crate::volume::VolumeShared;

/// See the module.
#[derive(Debug)]
pub(super) struct Rounds;

impl Rounds {
    /// Writes a transaction home.
    pub(super) fn commit(&self, volume: &VolumeShared, frozen: &Frozen) -> Result<(), Error> {
        volume.flush()?;
        for turn in [Turn::Unreachable, Turn::Leading, Turn::Rest] {
            let mut blocks = frozen.blocks.iter().filter(|b| b.turn == turn).peekable();
            if blocks.peek().is_some() {
                volume.write_blocks_durably(blocks.map(|b| (b.at, &*b.bytes)))?;
            }
        }
        for block in &frozen.blocks {
            volume.cache.is_home(block.at, &block.bytes);
        }
        Ok(())
    }
}
