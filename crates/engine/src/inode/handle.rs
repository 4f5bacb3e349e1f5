//! An attached file: what all requests of one queue for it share.
//!
//! Input: an open file. Output: [`Handle`]. Invariants: one per queue and attached file, so threads share no reference count. Limits:
//! when it is dropped, its shard of the in-flight count is idle.

use super::open_file::Opened;
use super::{From, Inode, OpenFile};
use crate::error::Error;
use crate::map::{MapView, Retired};
use crate::turn::gate::Shard;
use std::sync::Arc;

/// A file attached to one queue. Reference-counted per queue, so threads share no reference count.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) inode: Arc<Inode>,
    pub(crate) shard: Arc<Shard>,
    /// The views of the map that its own writes have replaced.
    pub(crate) retired: Arc<Retired<MapView>>,
    /// It was opened with O_DSYNC; with O_SYNC. The inode's flags are not included.
    pub(crate) dsync: bool,
    pub(crate) sync: bool,
    /// What was reported through the open file.
    pub(crate) opened: Arc<Opened>,
    /// Its requests are those of the page cache: they do not look at pages, and their callers were checked when they wrote to the cache.
    pub(crate) of_cache: bool,
    write_refused: Option<Error>,
}

impl Handle {
    pub(crate) fn new(file: &OpenFile) -> Handle {
        let shard = file.inode.gate.add_shard();
        Handle::with(file, shard)
    }

    fn with(file: &OpenFile, shard: Arc<Shard>) -> Handle {
        let inode = file.inode.clone();
        let write_refused = file.check_writable().err();
        Handle {
            shard,
            retired: inode.map_publishers.add(),
            dsync: file.is_dsync(),
            sync: file.is_sync(),
            opened: file.opened.clone(),
            of_cache: false,
            write_refused,
            inode,
        }
    }

    /// For the page cache: what it reads and writes back.
    pub(crate) fn of_cache(inode: &Arc<Inode>) -> Handle {
        let file = OpenFile::of_cache(inode);
        let mut handle = Handle::with(&file, inode.gate.add_cache_shard());
        (handle.of_cache, handle.write_refused) = (true, None);
        handle
    }

    /// Where the blocks that its writes claim are counted.
    pub(crate) fn claims_from(&self) -> From {
        match self.of_cache {
            true => From::Delayed,
            false => From::Free,
        }
    }

    /// Has write-back failed since its open file was told last?
    pub(crate) fn has_page_failure(&self) -> bool {
        self.opened.has_page_failure()
    }

    /// Reports that failure, once.
    pub(crate) fn tell_page_failure(&self) -> Result<(), Error> {
        self.opened.tell_page_failure()
    }

    /// The reason why changes through this handle are refused, if they are. `appends`: a write behind the end.
    #[inline]
    pub(crate) fn check_writable(&self, appends: bool) -> Result<(), Error> {
        match &self.write_refused {
            None => self.inode.check_writable(appends),
            Some(error) => Err(error.clone()),
        }
    }

    /// Must its requests be durable when they are acknowledged: data and map; times as well? The inode's flag `S` does not count while an
    /// atomic change is open: such changes become durable with it.
    #[inline]
    pub(crate) fn makes_durable(&self) -> (bool, bool) {
        if self.of_cache {
            return (false, false);
        }
        let by_flag = self.inode.is_sync() && !self.inode.volume.has_atomic();
        (self.dsync || by_flag, self.sync || by_flag)
    }

    /// Are writes allowed, and may they go down without further checks?
    #[inline]
    pub(crate) fn writes_plainly(&self) -> bool {
        self.write_refused.is_none() && self.inode.writes_plainly()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inode.take_over_times(&self.shard);
        self.inode.gate.remove_shard(&self.shard);
    }
}
