//! Bytes of a device, at any position.
//!
//! Input: a position; a length, or bytes. Output: the bytes. Invariant: reads are rounded out to the logical blocks of the device. Limits:
//! blocks; the bytes are copied.

use super::Blocking;
use crate::bio::{Bio, BioError};
use crate::buf::Buf;

/// Why [`Blocking::read_bytes`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotRead {
    /// The range ends behind the device's last byte.
    PastEnd {
        /// Bytes of the device.
        size: u64,
    },
    /// The device failed the read.
    Device {
        /// Where the read began: at a logical block.
        pos: u64,
        /// Its bytes: whole logical blocks.
        len: u32,
        /// The device's error.
        error: BioError,
    },
}

impl std::fmt::Display for NotRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotRead::PastEnd { size } => write!(f, "past the end: the device has {size} bytes"),
            NotRead::Device { pos, len, error } => {
                write!(f, "reading {len} bytes at {pos}: {error}")
            }
        }
    }
}

impl std::error::Error for NotRead {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NotRead::PastEnd { .. } => None,
            NotRead::Device { error, .. } => Some(error),
        }
    }
}

impl Blocking {
    /// Reads any range of the device. Blocks.
    ///
    /// # Errors
    /// See [`NotRead`].
    pub fn read_bytes(&self, at: u64, len: usize) -> Result<Vec<u8>, NotRead> {
        let geometry = self.device().geometry();
        let logical = u64::from(geometry.logical);
        let start = at - at % logical;
        let end = at.checked_add(len as u64);
        let end = end.and_then(|end| end.checked_next_multiple_of(logical));
        let fits = end.filter(|end| *end <= geometry.size);
        let end = fits.ok_or(NotRead::PastEnd {
            size: geometry.size,
        })?;
        let whole = (end - start) as usize;
        let failed = |error| NotRead::Device {
            pos: start,
            len: u32::try_from(whole).unwrap_or(u32::MAX),
            error,
        };
        let buf = self.read(start, Buf::zeroed(whole)).map_err(failed)?;
        let skip = (at - start) as usize;
        Ok(buf.as_slice()[skip..skip + len].to_vec())
    }

    /// Writes bytes at a position that is a multiple of the device's logical block. Blocks.
    ///
    /// # Errors
    /// The device's.
    pub fn write_bytes(&self, pos: u64, bytes: &[u8]) -> Result<(), BioError> {
        let mut buf = Buf::zeroed(bytes.len());
        buf.copy_in(0, bytes);
        self.run(Bio::write(pos, buf, 0)).result
    }
}
