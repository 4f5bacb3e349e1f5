//! An open file as requests need it: the inode, how it was opened, and which failures it has reported.
//!
//! Input: an inode and flags. Output: [`OpenFile`]. Invariants: clones, and queues that have it attached, are one open file, which reports
//! a failure once; the last of them gives back what the file keeps ahead. Limits: none.

use super::Inode;
use crate::error::Error;
use crate::options::OpenFlags;
use diorite_block::Told;
use diorite_block::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// An open file; clones share `opened`.
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    pub(crate) inode: Arc<Inode>,
    flags: OpenFlags,
    pub(crate) opened: Arc<Opened>,
}

/// What all users of an open file share.
#[derive(Debug)]
pub(crate) struct Opened {
    inode: Arc<Inode>,
    /// The last failed flush that was reported through this open file.
    pub(crate) told: Told,
    /// How many failed write-backs of the file need not be reported through it any more.
    known_failures: AtomicU64,
    /// What the file keeps ahead is given back with this.
    ends_claims: bool,
}

impl Drop for Opened {
    /// Pages, or a frontend that was told its number, may keep the inode in memory.
    fn drop(&mut self) {
        if self.ends_claims {
            self.inode.claims.close(&self.inode);
        }
    }
}

impl Opened {
    fn new(inode: &Arc<Inode>, ends_claims: bool) -> Arc<Opened> {
        Arc::new(Opened {
            told: inode.volume.flushes().all_told(),
            known_failures: AtomicU64::new(inode.pages.failures_known()),
            inode: inode.clone(),
            ends_claims,
        })
    }

    /// Has write-back failed since this open file was told last?
    pub(crate) fn has_page_failure(&self) -> bool {
        self.inode.pages.count_failures() > self.known_failures.load(Ordering::Acquire)
    }

    /// Reports a failed write-back that was not reported through this open file, once.
    pub(crate) fn tell_page_failure(&self) -> Result<(), Error> {
        let known = &self.known_failures;
        match self
            .inode
            .pages
            .failure_since(known.load(Ordering::Acquire))
        {
            None => Ok(()),
            // Of several syncs of one open file one reports it.
            Some((count, error)) => match known.fetch_max(count, Ordering::AcqRel) < count {
                true => Err(error),
                false => Ok(()),
            },
        }
    }
}

impl OpenFile {
    pub(crate) fn new(inode: Arc<Inode>, flags: OpenFlags) -> OpenFile {
        let opened = Opened::new(&inode, true);
        OpenFile {
            inode,
            flags,
            opened,
        }
    }

    /// For the page cache, which comes back again and again while the file is written: what it keeps ahead stays.
    pub(super) fn of_cache(inode: &Arc<Inode>) -> OpenFile {
        OpenFile {
            inode: inode.clone(),
            flags: OpenFlags::default(),
            opened: Opened::new(inode, false),
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

    /// See [`Opened::tell_page_failure`].
    pub(crate) fn tell_page_failure(&self) -> Result<(), Error> {
        self.opened.tell_page_failure()
    }

    /// Are these the same open file?
    pub(crate) fn is_same(&self, other: &OpenFile) -> bool {
        Arc::ptr_eq(&self.opened, &other.opened)
    }
}
