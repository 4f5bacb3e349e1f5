//! The range room: operations that change a file's size or what its blocks are mapped to, but not by writing data.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `pieces` | a long range -> pieces of it that one handle can change, and the handles |
//! | `truncate` | a size -> the file with that size |
//!
//! Input: calls on [`File`]. Output: changed maps and sizes, each step in a journal handle. Invariants: direct requests are kept out, and those in
//! flight have ended, before the size is looked at (rules G13, G15); the turn that does that is all that is held: who submits parks
//! before the gate and waits for no lock; no handle is open while anything but metadata is waited for. Limits: blocking calls; files whose
//! data is in their inode, and volumes with clusters, are refused by name.

mod pieces;
mod truncate;

pub(crate) use truncate::shrink;

use crate::error::Error;
use crate::file::{File, Quiesced};
use crate::inode::Inode;

impl File {
    /// Makes the file `size` bytes long: what lies behind is given back, what is new reads as zeros. Waits for direct requests in flight.
    /// Blocks. A crash shows the old size or the new one.
    ///
    /// # Errors
    /// The file or the volume may not be changed; `TooBig`; damage; a device that fails.
    pub fn truncate(&self, size: u64) -> Result<(), Error> {
        let _turn = self.turn()?;
        truncate::truncate(self.inode(), size)
    }

    /// The right to change the file's map and size: it may be changed, and no request is in flight.
    fn turn(&self) -> Result<Quiesced<'_>, Error> {
        let inode = self.inode();
        inode.volume.check_open()?;
        self.check_writable()?;
        inode.check_writable()?;
        inode.check_can_grow()?;
        let turn = inode.quiesce();
        debug_assert!(
            inode.pending.is_empty(),
            "what is pending is counted in flight"
        );
        Ok(turn)
    }
}

impl Inode {
    /// A size that its map cannot have is refused.
    fn check_size(&self, end: u64) -> Result<(), Error> {
        let (ino, most) = (self.ino, self.max_size);
        if end > most {
            return Err(Error::TooBig { ino, end, most });
        }
        Ok(())
    }
}
