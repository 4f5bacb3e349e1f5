//! What a file needs before it grows: a map that can grow, and zeros where there may be other bytes.
//!
//! Input: an inode whose size is going to move. Output: bytes of it that are zeros on the device. Invariants: whoever zeros a block has
//! exclusive use of it (rules U11, B5). Limits: inline data has been moved out before. `tail` records what is known of the bytes behind the
//! end.

use super::Inode;
use crate::alloc::{Loan, Run};
use crate::error::Error;
use crate::mapping::MappingState;
use diorite_block::{Bio, Buf};
use diorite_format::{Inode as DiskInode, MapKind};
use std::ops::Range;

impl Inode {
    /// Can blocks be added to this file or directory? Inline data has to be moved out before.
    pub(crate) fn check_can_grow(&self) -> Result<(), Error> {
        self.volume.check_writable()?;
        self.check_map(&self.disk())
    }

    /// Has it a kind of map that this volume allows? `disk`: the inode as it is now.
    pub(crate) fn check_map(&self, disk: &DiskInode) -> Result<(), Error> {
        let clusters = self.volume.sb.geometry().cluster_ratio() > 1;
        match disk.map_kind() {
            MapKind::Indirect if clusters => Err(Error::Damaged(format!(
                "inode {} has no extents, on a volume that allocates in clusters (bigalloc); run e2fsck",
                self.ino
            ))),
            _ => Ok(()),
        }
    }

    /// Zeros the bytes from `from` to the end of `block`, if that is a written block.
    pub(crate) fn zero_behind(&self, from: u64, block: u64) -> Result<(), Error> {
        self.zero_within(from..(block + 1) * u64::from(self.volume.block_size()))
    }

    /// Zeros bytes of the file, all in one block, if that is a written block. Blocks; the caller has exclusive use of the block.
    pub(crate) fn zero_within(&self, bytes: Range<u64>) -> Result<(), Error> {
        let (volume, size) = (&self.volume, u64::from(self.volume.block_size()));
        if bytes.is_empty() {
            return Ok(());
        }
        let block = bytes.start / size;
        let mappings = self.mappings(block..block + 1)?;
        let Some(MappingState::Written(at)) = mappings.first().map(|m| m.state) else {
            return Ok(());
        };
        // Rounded out to sectors, as the device transfers whole sectors.
        let logical = u64::from(volume.device.geometry().logical);
        let (from, to) = (bytes.start - block * size, bytes.end - block * size);
        let first = from / logical * logical;
        let end = to.next_multiple_of(logical);
        let pos = at.get() * size + first;
        let device = |error| Error::of_write(&*volume.device, pos, volume.block_size(), error);
        let inside = |n: u64| usize::try_from(n - first).expect("within a block");
        let mut buf = Buf::zeroed(inside(end));
        if (first, end) != (from, to) {
            buf = volume.blocking.read(pos, buf).map_err(device)?;
            buf.zero(inside(from)..inside(to));
        }
        volume
            .blocking
            .run(Bio::write(pos, buf, 0))
            .result
            .map_err(device)
    }

    /// Gives back what an entry of the pending map has claimed so far.
    pub(crate) fn give_back_claims(&self, entry: u64) {
        let claims = self.pending.take_claims(entry);
        claims.iter().for_each(|claim| self.give_back(claim.run));
    }

    /// Gives back blocks that were claimed for this file.
    pub(crate) fn give_back(&self, run: Run) {
        if let Some(alloc) = &self.volume.alloc {
            drop(Loan::new(alloc, &self.volume, run));
        }
    }
}
