//! An open file as requests need it: the inode, how it was opened, and which failed flush it has reported.
//!
//! Input: an inode and flags. Output: [`OpenFile`]. Invariants: clones are one open file, which reports a failed flush once. Limits: none.

use super::Inode;
use crate::error::Error;
use crate::options::OpenFlags;
use diorite_block::Told;
use std::sync::Arc;

/// An open file; clones share `told`.
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    pub(crate) inode: Arc<Inode>,
    flags: OpenFlags,
    /// The last failed flush that was reported through this open file.
    pub(crate) told: Arc<Told>,
}

impl OpenFile {
    pub(crate) fn new(inode: Arc<Inode>, flags: OpenFlags) -> OpenFile {
        let told = Arc::new(inode.volume.flushes().all_told());
        OpenFile { inode, flags, told }
    }

    /// Was it opened with O_DSYNC, or O_SYNC?
    pub(crate) fn is_dsync(&self) -> bool {
        self.flags.dsync || self.flags.sync
    }

    pub(crate) fn is_sync(&self) -> bool {
        self.flags.sync
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if !self.flags.write {
            return Err(Error::ReadOnly(format!(
                "inode {} was opened for reading only",
                self.inode.ino
            )));
        }
        self.inode.volume.check_writable()
    }

    /// Are these the same open file?
    pub(crate) fn is_same(&self, other: &OpenFile) -> bool {
        Arc::ptr_eq(&self.told, &other.told)
    }
}
