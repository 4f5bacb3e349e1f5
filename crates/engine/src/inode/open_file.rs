//! An open file as requests need it: the inode, how it was opened, and which failed flush it has reported.
//!
//! Input: an inode and flags. Output: [`OpenFile`]. Invariants: clones are one open file, which reports a failed flush once. Limits: none.

use super::Inode;
use crate::error::Error;
use crate::options::OpenFlags;
use diorite_block::Told;
use diorite_block::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// An open file; clones share `told`.
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    pub(crate) inode: Arc<Inode>,
    flags: OpenFlags,
    /// The last failed flush that was reported through this open file.
    pub(crate) told: Arc<Told>,
    /// How many failed write-backs of the file need not be reported through it any more.
    pub(crate) known_failures: Arc<AtomicU64>,
}

impl Drop for OpenFile {
    /// The last clone gives back what the file keeps ahead: pages, or a frontend that was told its number, may keep the inode in memory.
    fn drop(&mut self) {
        if Arc::strong_count(&self.told) == 1 {
            self.inode.claims.close(&self.inode);
        }
    }
}

impl OpenFile {
    pub(crate) fn new(inode: Arc<Inode>, flags: OpenFlags) -> OpenFile {
        let told = Arc::new(inode.volume.flushes().all_told());
        let known_failures = Arc::new(AtomicU64::new(inode.pages.failures_known()));
        OpenFile {
            inode,
            flags,
            told,
            known_failures,
        }
    }

    /// Was it opened with O_DSYNC, or O_SYNC?
    pub(crate) fn is_dsync(&self) -> bool {
        self.flags.dsync || self.flags.sync
    }

    pub(crate) fn is_sync(&self) -> bool {
        self.flags.sync
    }

    /// Was it opened with O_DIRECT?
    pub(crate) fn is_direct(&self) -> bool {
        self.flags.direct
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

    /// Reports a failed write-back that was not reported through this open file, once.
    pub(crate) fn tell_page_failure(&self) -> Result<(), Error> {
        tell_page_failure(&self.inode, &self.known_failures)
    }

    /// Are these the same open file?
    pub(crate) fn is_same(&self, other: &OpenFile) -> bool {
        Arc::ptr_eq(&self.told, &other.told)
    }
}

/// Reports a failed write-back that was not reported through this open file, once.
pub(super) fn tell_page_failure(inode: &Inode, known: &AtomicU64) -> Result<(), Error> {
    match inode.pages.failure_since(known.load(Ordering::Acquire)) {
        None => Ok(()),
        // Of several syncs of one open file one reports it.
        Some((count, error)) => match known.fetch_max(count, Ordering::AcqRel) < count {
            true => Err(error),
            false => Ok(()),
        },
    }
}
