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
    /// None if it cannot write, or if nobody writes through this clone.
    _writer: Option<Arc<Writer>>,
}

/// Shared by the clones of an open file through which somebody may write.
#[derive(Debug)]
struct Writer(Arc<Opened>);

impl Drop for Writer {
    fn drop(&mut self) {
        let (opened, pages) = (&self.0, &self.0.inode.pages);
        let since = opened.may_write_since.unwrap_or(u64::MAX);
        pages.end_writer(opened.has_page_failure() && pages.count_failures() > since);
    }
}

/// What all users of an open file share.
#[derive(Debug)]
pub(crate) struct Opened {
    inode: Arc<Inode>,
    /// The last failed flush that was reported through this open file.
    pub(crate) told: Told,
    /// How many failed write-backs of the file need not be reported through it any more.
    known_failures: AtomicU64,
    /// If it may write: how many there had been when it was opened.
    may_write_since: Option<u64>,
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
    fn new(inode: &Arc<Inode>, ends_claims: bool, may_write: bool) -> Arc<Opened> {
        let may_write_since = may_write.then(|| {
            inode.pages.begin_writer();
            inode.pages.count_failures()
        });
        Arc::new(Opened {
            told: inode.volume.flushes().all_told(),
            known_failures: AtomicU64::new(inode.pages.failures_known()),
            may_write_since,
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
                true => {
                    self.note_told(count);
                    Err(error)
                }
                false => Ok(()),
            },
        }
    }

    /// Syncs of the volume need not report what was reported to everybody who may have written it.
    fn note_told(&self, count: u64) {
        let inode = &self.inode;
        let concerns = self.may_write_since.is_some_and(|since| since < count);
        if let Some(number) = concerns.then(|| inode.pages.told_writer(count)).flatten() {
            inode.volume.cached.settle_failure(inode.ino, number);
        }
    }
}

impl OpenFile {
    pub(crate) fn new(inode: Arc<Inode>, flags: OpenFlags) -> OpenFile {
        let opened = Opened::new(&inode, true, flags.write);
        let writer = flags.write.then(|| Arc::new(Writer(opened.clone())));
        OpenFile {
            inode,
            flags,
            opened,
            _writer: writer,
        }
    }

    /// A clone that is kept for later calls of the others: nobody writes through it when they are gone.
    pub(crate) fn kept(&self) -> OpenFile {
        OpenFile {
            _writer: None,
            ..self.clone()
        }
    }

    /// For the page cache, which comes back again and again while the file is written: what it keeps ahead stays.
    pub(super) fn of_cache(inode: &Arc<Inode>) -> OpenFile {
        OpenFile {
            inode: inode.clone(),
            flags: OpenFlags::default(),
            opened: Opened::new(inode, false, false),
            _writer: None,
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
