//! Discarding free blocks (fstrim).
//!
//! Input: a range of the volume's bytes. Output: its free runs discarded. Invariants: a run is claimed while it is discarded, so nobody
//! writes to it; blocks freed by a transaction that is not durable are not discarded (rule G17). Limits: runs of fewer than `least` bytes
//! are skipped.

use crate::alloc::{Loan, Run};
use crate::error::Error;
use crate::inode::Fs;
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
        let unsupported = || Error::NotSupported(format!("{} has no discard", volume.name()));
        if !volume.device.geometry().discard {
            volume.alloc()?;
            return Err(unsupported());
        }
        let block = u64::from(volume.block_size());
        let blocks = FsBlock::new(range.start.div_ceil(block))..FsBlock::new(range.end / block);
        let least = u32::try_from(least.div_ceil(block)).unwrap_or(u32::MAX);
        let mut bytes = 0;
        each_free_run(volume, blocks, (least, u32::MAX), |run| {
            let (pos, len) = (run.start.get() * block, u64::from(run.len) * block);
            let bio = volume.blocking.run(Bio::range(BioOp::Discard, pos, len, 0));
            bio.result.map_err(|error| match error.kind {
                BioErrorKind::Unsupported => unsupported(),
                _ => Error::of_write(&*volume.device, pos, u32::MAX, error),
            })?;
            // A file ignores a discard that its host refuses, and says so only from then on.
            if !volume.device.geometry().discard {
                return Err(unsupported());
            }
            bytes += len;
            Ok(())
        })?;
        Ok(bytes)
    }
}

/// Goes through the free runs of at least `least` blocks in a range. Each is claimed while `of_run` has it, in parts of about `most`
/// blocks. Blocks.
pub(super) fn each_free_run(
    fs: &Fs,
    range: Range<FsBlock>,
    (least, most): (u32, u32),
    mut of_run: impl FnMut(Run) -> Result<(), Error>,
) -> Result<(), Error> {
    let alloc = fs.alloc()?;
    let mut at = range.start;
    while let Some(run) = alloc.claim_free_run(fs, at..range.end, (least, most))? {
        let loan = Loan::new(alloc, fs, run);
        let done = of_run(run);
        drop(loan);
        done?;
        at = run.end();
    }
    Ok(())
}
