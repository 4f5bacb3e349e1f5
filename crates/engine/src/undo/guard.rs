//! A device whose writes wait until the old contents are in an undo file.
//!
//! Input: bios. Output: the same, ended by the device below. Invariants: a write reaches that device after what it overwrites is durable in
//! the undo file; if that fails, so does the write, and all later ones. When the device is dropped, the undo file is finished. Limits: no
//! discard and no write-zeroes, so that nothing is lost that was not kept; bios are blocking calls.

use super::Undo;
use crate::error::Error;
use diorite_block::{
    Bio, BioError, BioErrorKind, BioOp, Blocking, CallPool, CallQueue, Device, DeviceError,
    DeviceQueue, Geometry, QueueOptions, Run, RunsBios,
};
use std::ops::Range;
use std::sync::Arc;

/// The largest bio.
const MOST: u32 = 1 << 20;

struct Guard {
    undo: Undo,
    below: Blocking,
}

struct Guarded {
    below: Arc<dyn Device>,
    pool: Arc<CallPool<Guard>>,
}

impl Undo {
    /// The device, with its writes guarded. Blocks.
    ///
    /// # Errors
    /// The undo file that is there cannot be continued.
    pub(crate) fn guard(&self, below: Arc<dyn Device>) -> Result<Arc<dyn Device>, Error> {
        self.attach(&below)?;
        let guard = Guard {
            undo: self.clone(),
            below: Blocking::new(below.clone()),
        };
        let pool = Arc::new(CallPool::new("undo", guard));
        Ok(Arc::new(Guarded { below, pool }))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.undo.finish(&self.below);
    }
}

impl RunsBios for Guard {
    fn run(&self, bio: &mut Bio) {
        if let Err(error) = self.below.device().geometry().check(bio) {
            bio.result = Err(error);
            return;
        }
        let overwrites = !matches!(bio.op, BioOp::Read | BioOp::Flush);
        let kept = match bio.end().filter(|_| overwrites) {
            Some(end) => self.undo.keep(&self.below, bio.pos..end),
            None => Ok(()),
        };
        if kept.is_err() {
            bio.result = Err(BioError::new(BioErrorKind::Io));
            return;
        }
        let down = std::mem::replace(bio, Bio::flush(0));
        *bio = self.below.run(down);
    }
}

impl Device for Guarded {
    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.below)
    }

    fn geometry(&self) -> Geometry {
        let below = self.below.geometry();
        Geometry {
            discard: false,
            write_zeroes: false,
            max_transfer: below.max_transfer.min(MOST),
            ..below
        }
    }

    fn stored(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, DeviceError> {
        self.below.stored(range, most)
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        let queue = CallQueue::new(self.pool.clone(), options);
        let queue =
            queue.map_err(|e| DeviceError::host(format!("{}: no thread", self.name()), e))?;
        Ok(Box::new(queue))
    }

    fn run_here(&self, bio: Bio) -> Result<Bio, Bio> {
        let mut bio = bio;
        self.pool.runner().run(&mut bio);
        Ok(bio)
    }
}
