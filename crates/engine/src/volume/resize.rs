//! The size of a volume.
//!
//! Input: a size. Output: the volume with it, durable. Invariants: files stay open, and requests go on. Limits: the device is made larger
//! by its owner, before.

use super::Volume;
use crate::error::Error;
use crate::resize;
use std::sync::Arc;

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

    /// Makes the file system smaller, to at most `bytes` bytes, and closes it: whole blocks, and a last group only if it has room for more
    /// than its own metadata. Returns the bytes that it has then; what is behind them on the device is of no use any more. That it is not
    /// larger is no error. Nobody else may use the volume: it has no open file, no queue and no other handle. Blocks.
    ///
    /// # Errors
    /// `Invalid`: the volume is in use, or more bytes than it has, or too few for its structures; `NotSupported`; the volume may not be
    /// written; damage; errors of the device. The volume is closed then, too, and has one of the two sizes.
    pub fn shrink(self, bytes: u64) -> Result<u64, Error> {
        let (service, fs) = (self.service(), self.inner());
        fs.check_open()?;
        self.pool().rest();
        self.pool().end_blocking_calls();
        self.known().clear();
        fs.recent.close();
        let handles = Arc::strong_count(&self.shared) + Arc::strong_count(self.pool());
        if handles > 2 || !service.open_queues().is_empty() {
            return Err(Error::Invalid(format!(
                "{} is in use: it has open files, queues or other handles, and cannot become smaller",
                fs.name()
            )));
        }
        let size = u64::from(fs.block_size());
        let done = resize::shrink(fs, bytes / size);
        let closed = self.close();
        let blocks = done?;
        closed.map(|()| blocks * size)
    }

    /// About the smallest size in bytes to which [`Volume::shrink`] can make the file system, if `headroom` bytes of it are to be free
    /// afterwards. Does not block on I/O.
    ///
    /// # Errors
    /// The volume may not be written.
    pub fn least_bytes(&self, headroom: u64) -> Result<u64, Error> {
        let fs = self.inner();
        let size = u64::from(fs.block_size());
        Ok(resize::least(fs, headroom.div_ceil(size))?.saturating_mul(size))
    }
}
