//! Without a journal: metadata goes home in ordered rounds.
//!
//! Input: frozen transactions. Output: blocks at home. Invariants: data first, by a flush; then blocks that nothing on disk points to; a
//! flush; then the rest; a flush; only then may what the round freed be used again (design: no file shows bytes never written to it
//! once e2fsck has run). Limits: names and counts may be torn by a crash between the flushes; e2fsck mends them.

use super::commit::{Frozen, FrozenBlock};
use crate::error::Error;
use crate::volume::VolumeShared;

/// See the module.
#[derive(Debug)]
pub(super) struct Rounds;

impl Rounds {
    /// Writes a transaction home.
    pub(super) fn commit(&self, volume: &VolumeShared, frozen: &Frozen) -> Result<(), Error> {
        let (unreachable, rest): (Vec<&FrozenBlock>, Vec<_>) =
            frozen.blocks.iter().partition(|b| b.unreachable);
        volume.flush()?;
        if !unreachable.is_empty() {
            volume.write_blocks(unreachable.iter().map(|b| (b.at, &*b.bytes)))?;
            volume.flush()?;
        }
        volume.write_blocks(rest.iter().map(|b| (b.at, &*b.bytes)))?;
        volume.flush()?;
        for block in &frozen.blocks {
            volume.cache.is_home(block.at, &block.bytes);
        }
        Ok(())
    }
}
