//! Whether a device has the length that the old file system needs.
//!
//! Input: an undo file, its device. Output: reasons not to restore it; messages about its length. Invariants: nothing is written; the
//! superblock that would come back is compared with the length that the device would have. Limits: undo files of e2fsprogs say nothing of
//! lengths, so what resize2fs has cut off is in none of them.

use super::file::UndoFile;
use super::{SUPER, block_size_in, super_copy};
use crate::error::Error;
use diorite_block::{Blocking, Device};
use diorite_format::features::Incompat;
use std::sync::Arc;

impl UndoFile {
    /// Why a device should not be cut to `len` bytes, which its undo file says that it had: nothing, if it may be. Blocks.
    ///
    /// # Errors
    /// The device, or the undo file, cannot be read.
    pub fn judge_cut(&self, device: &Arc<dyn Device>, len: u64) -> Result<Option<String>, Error> {
        let now = super_copy(&Blocking::new(device.clone()))?;
        let says = format!("it says that the device had {len} bytes");
        if len < 2 * SUPER as u64 {
            let there = bytes_in(&now).filter(|bytes| *bytes > len);
            return Ok(there.map(|_| format!("{says}, too few for the file system that is there")));
        }
        let then = bytes_in(&self.old_super()?.unwrap_or(now));
        let more = then.filter(|bytes| *bytes > len);
        Ok(more.map(|bytes| format!("{says}, and its superblock of then says {bytes}")))
    }

    /// Why it should not be put back on a device that has `len` bytes then: somebody has cut off what the file system of then had behind
    /// these, and it is not in the undo file. Nothing, if it was as long before, or the file system of now needs as many bytes. Blocks.
    ///
    /// # Errors
    /// The device, or the undo file, cannot be read.
    pub fn judge_lost(&self, device: &Arc<dyn Device>, len: u64) -> Result<Option<String>, Error> {
        if self.sizes().is_some_and(|(before, _)| before == len) {
            return Ok(None);
        }
        let Some((then, unit)) = self.old_length_in_super()? else {
            return Ok(None);
        };
        let now = bytes_in(&super_copy(&Blocking::new(device.clone()))?);
        if then <= len || now.is_some_and(|now| now >= then) {
            return Ok(None);
        }
        let said = match self.sizes() {
            None => "the undo file says no length".to_owned(),
            Some((before, after)) => {
                format!("the undo file says {before} bytes before and {after} after")
            }
        };
        Ok(Some(format!(
            "the superblock in it is of a file system of {} blocks ({then} bytes), the device has {len} bytes, and {said}: what was in the \
             blocks behind these is lost",
            then / unit
        )))
    }

    /// Bytes of the file system that comes back, if that has become longer since and the undo file does not say what length its device of
    /// `len` bytes had: nobody cuts it. Blocks.
    ///
    /// # Errors
    /// The device, or the undo file, cannot be read.
    pub fn stays_longer(&self, device: &Arc<dyn Device>, len: u64) -> Result<Option<u64>, Error> {
        if self.sizes().is_some() {
            return Ok(None);
        }
        let then = self.old_length_in_super()?.map(|(then, _)| then);
        let now = bytes_in(&super_copy(&Blocking::new(device.clone()))?);
        Ok(then.filter(|then| *then < len && now.is_some_and(|now| now > *then)))
    }

    /// Bytes of the file system that the superblock of then is of, and of a block of it.
    fn old_length_in_super(&self) -> Result<Option<(u64, u64)>, Error> {
        let old = self.old_super()?;
        let both = old.and_then(|old| bytes_in(&old).zip(block_size_in(&old)));
        Ok(both.map(|(bytes, unit)| (bytes, u64::from(unit))))
    }
}

/// Bytes of the file system that a copied superblock is of, if it is of one.
fn bytes_in(copy: &[u8; SUPER]) -> Option<u64> {
    let u32_at = |at: usize| u64::from(u32::from_le_bytes(std::array::from_fn(|n| copy[at + n])));
    let block = u64::from(block_size_in(copy)?);
    let is_wide = Incompat::from_bits(u32::from_le_bytes(std::array::from_fn(|n| copy[0x60 + n])))
        .has(Incompat::BIT64);
    let high = if is_wide { u32_at(0x150) << 32 } else { 0 };
    Some((u32_at(4) | high).saturating_mul(block))
}
