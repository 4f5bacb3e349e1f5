//! What a write through the page cache does when it lacks memory or space.
//!
//! Input: a write that cannot change pages, because too many are dirty or the volume is full. Output: fewer dirty pages, less reserved
//! space, or a map with more room; then the write tries again. Invariants: the caller holds no lock and is not counted in flight; failures
//! of other files' write-back are noted, and reported to syncs. Limits: all of it blocks.

use super::{File, page_io};
use crate::attr::prepare_first_write;
use crate::error::Error;
use crate::inode::Shortage;
use crate::mapping::MappingState;
use crate::range::zero_out;
use std::ops::Range;

/// What became of a search for the space that a write lacks.
pub(super) enum Found {
    /// There may be some now.
    Some,
    /// Its blocks need no space any more, or their map has more room.
    Room,
    /// None, but the blocks are there: single ones may be written.
    Little,
    Nothing,
}

impl File {
    /// Call when a write of these blocks found no space.
    pub(super) fn find_space(
        &self,
        shortage: &mut Shortage,
        blocks: &Range<u64>,
    ) -> Result<Found, Error> {
        if shortage.relieve(&self.inode().volume) {
            match shortage.is_first() {
                true => self.make_space()?,
                false => self.write_back_for_space(),
            }
            return Ok(Found::Some);
        }
        Ok(match self.has_blocks(blocks)? {
            false => Found::Nothing,
            true if self.zero_out(blocks)? => Found::Room,
            true if blocks.end - blocks.start > 1 => Found::Little,
            true => Found::Nothing,
        })
    }

    pub(super) fn prepare_first(&self) -> Result<(), Error> {
        match prepare_first_write(self.inode()) {
            Err(Error::NoSpace { .. }) => {
                self.make_space()?;
                prepare_first_write(self.inode())
            }
            done => done,
        }
    }

    /// Makes a writer wait while too much is dirty.
    pub(super) fn throttle(&self) {
        let inode = self.inode();
        if inode.pages.cache().is_too_dirty() {
            inode.pages.cache().note_throttled();
            // Failures are noted, and reported to syncs.
            let _noted = page_io::write_back(self.pool(), std::slice::from_ref(inode), 0..u64::MAX);
            if inode.pages.cache().is_too_dirty() {
                self.write_back_for_memory();
            }
        }
    }

    /// Writes back all that is dirty in the volume, and asks other volumes of its budget for the same if that is not enough.
    pub(super) fn write_back_for_memory(&self) {
        let inode = self.inode();
        let dirty = inode.volume.cached.dirty_unheld();
        let _noted = page_io::write_back(self.pool(), &dirty, 0..u64::MAX);
        if inode.pages.cache().is_too_dirty() {
            inode.pages.cache().ask_for_write_back();
        }
    }

    /// Gives back space that is reserved for too much: everything is written back, windows are closed, deleted files are freed.
    fn make_space(&self) -> Result<(), Error> {
        let fs = &self.inode().volume;
        self.write_back_for_space();
        fs.close_windows();
        crate::delete::free_deleted(fs)
    }

    fn write_back_for_space(&self) {
        let dirty = self.inode().volume.cached.dirty_unheld();
        let _noted = page_io::write_back(self.pool(), &dirty, 0..u64::MAX);
    }

    /// Is none of these blocks a hole? Then only room in the map can be missing.
    fn has_blocks(&self, blocks: &Range<u64>) -> Result<bool, Error> {
        let mappings = self.inode().mappings(blocks.clone())?;
        Ok(mappings.iter().all(|m| m.state != MappingState::Hole))
    }

    fn zero_out(&self, blocks: &Range<u64>) -> Result<bool, Error> {
        let inode = self.inode();
        let _turn = inode.quiesce();
        zero_out(inode, blocks.clone())
    }
}
