//! Discarding free blocks (fstrim).
//!
//! Input: a range of the volume's bytes. Output: its free runs discarded. Invariants: a run is claimed while it is discarded, so nobody
//! writes to it; blocks freed by a transaction that is not durable are not discarded (rule G17). Limits: runs of fewer than `least` bytes
//! are skipped.

use crate::alloc::Loan;
use crate::error::Error;
use crate::volume::Volume;
use diorite_block::{Bio, BioErrorKind, BioOp};
use diorite_format::FsBlock;
use std::ops::Range;

impl Volume {
    /// Discards the free blocks that lie in a range of the volume's bytes, in runs of at least `least` bytes. Returns how many bytes were
    /// discarded. Blocks.
    ///
    /// # Errors
    /// `NotSupported` if the device cannot discard; the volume may not be written; damage; a device that fails.
    pub fn trim(&self, range: Range<u64>, least: u64) -> Result<u64, Error> {
        let volume = self.inner();
        volume.check_open()?;
        let alloc = volume.alloc()?;
        let unsupported = || Error::NotSupported(format!("{} has no discard", volume.name()));
        if !volume.device.geometry().discard {
            return Err(unsupported());
        }
        let block = u64::from(volume.block_size());
        let end = FsBlock::new(range.end / block);
        let mut at = FsBlock::new(range.start.div_ceil(block));
        let least = u32::try_from(least.div_ceil(block)).unwrap_or(u32::MAX);
        let mut bytes = 0;
        while let Some(run) = alloc.claim_to_trim(volume, at..end, least)? {
            let (pos, len) = (run.start.get() * block, u64::from(run.len) * block);
            let loan = Loan::new(alloc, volume, run);
            let bio = volume.blocking.run(Bio::range(BioOp::Discard, pos, len, 0));
            drop(loan);
            bio.result.map_err(|error| match error.kind {
                BioErrorKind::Unsupported => unsupported(),
                _ => Error::of_write(&*volume.device, pos, u32::MAX, error),
            })?;
            bytes += len;
            at = run.end();
        }
        Ok(bytes)
    }
}
