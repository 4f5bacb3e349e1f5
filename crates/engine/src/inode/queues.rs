//! The queues above a file system, as the trait [`Queues`] through which modules below use them.
//!
//! Input: callers that wait until a file has no request under way; files that lost their last name. Output: drains on behalf of the
//! queues' owners. Invariants: set once, when the volume begins to be served; held weakly, as queues hold the file system. Limits: none
//! of its own.

use super::{Fs, Inode};
use crate::error::Error;
use crate::turn::gate::Gate;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// All queues of a volume.
pub(crate) trait Queues: std::fmt::Debug + Send + Sync {
    /// Drains every queue of the volume on behalf of its owner; returns whether any of them had anything to take in.
    fn drain_all(&self) -> bool;

    /// Writes back the dirty pages of these files in a range of blocks, and waits until what was dirty at the time of the call is on the
    /// device and mapped. Blocks; no lock may be held.
    fn write_back(&self, inodes: &[Arc<Inode>], blocks: Range<u64>) -> Result<(), Error>;

    /// Makes idle queues for blocking calls detach files that have no name any more.
    fn let_go_of_unlinked(&self);
}

impl Fs {
    /// Sets the queues, once.
    pub(crate) fn set_queues(&self, queues: Weak<dyn Queues>) {
        self.queues.get_or_init(|| queues);
    }

    fn queues(&self) -> Option<Arc<dyn Queues>> {
        self.queues.get().and_then(Weak::upgrade)
    }

    /// See [`Queues::drain_all`].
    pub(crate) fn drain_all(&self) -> bool {
        self.queues().is_some_and(|queues| queues.drain_all())
    }

    /// See [`Queues::write_back`].
    pub(crate) fn write_back(
        &self,
        inodes: &[Arc<Inode>],
        blocks: Range<u64>,
    ) -> Result<(), Error> {
        let queues = self.queues().ok_or(Error::ShutDown)?;
        queues.write_back(inodes, blocks)
    }

    /// See [`Queues::let_go_of_unlinked`].
    pub(crate) fn let_go_of_unlinked(&self) {
        if let Some(queues) = self.queues() {
            queues.let_go_of_unlinked();
        }
    }
}

impl Inode {
    /// See [`crate::File::quiesce`].
    pub(crate) fn quiesce(&self) -> Quiesced<'_> {
        self.gate.wait_turn(|| self.volume.drain_all());
        Quiesced { gate: &self.gate }
    }
}

/// A file without direct requests in flight. See [`crate::File::quiesce`].
#[derive(Debug)]
pub struct Quiesced<'a> {
    gate: &'a Gate,
}

impl Drop for Quiesced<'_> {
    fn drop(&mut self) {
        self.gate.end_turn();
    }
}
