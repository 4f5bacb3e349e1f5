//! Names an inode of a volume.
//!
//! Input: a number, or a path. Output: the number. Invariants: symbolic links of a path are followed. Limits: blocks while metadata is
//! read.

use super::Volume;
use crate::error::Error;
use diorite_format::Ino;

/// An inode of a volume: its number, or a path from the root, as text or bytes.
pub trait Which {
    /// The number.
    ///
    /// # Errors
    /// Those of [`Volume::resolve`].
    fn ino(self, volume: &Volume) -> Result<Ino, Error>;
}

impl Which for Ino {
    fn ino(self, _: &Volume) -> Result<Ino, Error> {
        Ok(self)
    }
}

impl<T: AsRef<[u8]> + ?Sized> Which for &T {
    fn ino(self, volume: &Volume) -> Result<Ino, Error> {
        volume.resolve(self, true)
    }
}
