//! An attached file: what all requests of one queue to it share.
//!
//! Input: an open file. Output: [`Handle`]. Invariants: counted once per queue, so no reference count is shared by threads. Limits: its shard of
//! the count in flight is idle when it goes.

use super::{Inode, OpenFile};
use crate::error::Error;
use crate::turn::gate::Shard;
use diorite_block::Told;
use std::sync::Arc;

/// What all requests of one attached file share: counted once per queue, so no reference count is shared by threads.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) inode: Arc<Inode>,
    pub(crate) shard: Arc<Shard>,
    /// It was opened with O_DSYNC; O_SYNC. What its flags ask is asked of the inode.
    pub(crate) dsync: bool,
    pub(crate) sync: bool,
    /// The failed flushes that were told of through the open file.
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

    /// The reason why changes through this handle are refused, if they are. Of writes, `appends` ones go behind the end.
    #[inline]
    pub(crate) fn check_writable(&self, appends: bool) -> Result<(), Error> {
        match &self.write_refused {
            None => self.inode.check_writable(appends),
            Some(error) => Err(error.clone()),
        }
    }

    /// Is what its requests do to be durable when they are acknowledged: data and map, and times too? What only the inode's flag asks
    /// for comes with the group where one is open, as every other change that the flag is about.
    #[inline]
    pub(crate) fn makes_durable(&self) -> (bool, bool) {
        let by_flag = self.inode.is_sync() && !self.inode.volume.has_group();
        (self.dsync || by_flag, self.sync || by_flag)
    }

    /// Are writes allowed, with nothing to be done before them?
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
