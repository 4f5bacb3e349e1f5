//! The size of a volume.
//!
//! Input: a size. Output: the volume with it, durable. Invariants: files stay open, and requests go on. Limits: the device is made larger
//! by its owner, before.

use super::Volume;
use crate::error::Error;
use crate::resize;

impl Volume {
    /// Makes the file system larger, to at most `bytes` bytes, while it is in use: whole blocks, and a last group only if it has room for
    /// more than its own metadata. The device must have that size already ([`diorite_block::Device::refresh`] looks at it again). Returns
    /// the bytes that the file system has afterwards; that it has these already is no error. Blocks, requests of others do not.
    ///
    /// # Errors
    /// `Invalid`: fewer bytes than it has, or more than the format allows, or more than the device has; `NotSupported`: the group
    /// descriptors cannot grow that far; the volume may not be written; damage; errors of the device. After an error of the device the
    /// copies of the superblock may be those of the old size; e2fsck replaces them.
    pub fn grow(&self, bytes: u64) -> Result<u64, Error> {
        let fs = self.inner();
        fs.check_open()?;
        resize::grow(fs, bytes / u64::from(fs.block_size()))?;
        Ok(fs.sb.geometry().volume_bytes())
    }
}
