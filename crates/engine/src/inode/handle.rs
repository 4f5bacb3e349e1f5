//! An attached file: what all requests of one queue for it share.
//!
//! Input: an open file. Output: [`Handle`]. Invariants: one per queue and attached file, so threads share no reference count. Limits:
//! when it is dropped, its shard of the in-flight count is idle.

use super::{Inode, OpenFile};
use crate::error::Error;
use crate::turn::gate::Shard;
use diorite_block::Told;
use std::sync::Arc;

/// A file attached to one queue. Reference-counted per queue, so threads share no reference count.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) inode: Arc<Inode>,
    pub(crate) shard: Arc<Shard>,
    /// It was opened with O_DSYNC; with O_SYNC. The inode's flags are not included.
    pub(crate) dsync: bool,
    pub(crate) sync: bool,
    /// The last failed flush that was reported through the open file.
    pub(crate) told: Arc<Told>,
    write_refused: Option<Error>,
}

impl Handle {
    pub(crate) fn new(file: &OpenFile) -> Handle {
        let inode = file.inode.clone();
        let write_refused = file.check_writable().err();
        Handle {
            shard: inode.gate.add_shard(),
            dsync: file.is_dsync(),
            sync: file.is_sync(),
            told: file.told.clone(),
            write_refused,
            inode,
        }
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
        self.inode.gate.remove_shard(&self.shard);
    }
}
