//! A host that gives no device queue after a volume was opened, for example because file descriptors have run out.
//!
//! Input: a device that can run bios in the caller's thread. Output: none. Invariant: nothing fails that can be done in this way.
//! Limits: none of its own.

use super::make;
use crate::common::answers_as_below;
use crate::common::fixture::{filled, writable};
use crate::common::scratch;
use crate::common::stage::Stage;
use crate::common::watch::within;
use diorite::{OpenOptions, Volume};
use diorite_block::device::DeviceErrorKind;
use diorite_block::{Bio, Blocking, Device, DeviceError, DeviceQueue, QueueOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

struct Scarce {
    below: Arc<dyn Device>,
    gives: AtomicBool,
    refused: AtomicU32,
}

impl Device for Scarce {
    answers_as_below!();

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        if self.gives.load(Ordering::SeqCst) {
            return self.below.open_queue(options);
        }
        self.refused.fetch_add(1, Ordering::SeqCst);
        Err(DeviceError::new(DeviceErrorKind::Io, "no queue"))
    }

    fn run_here(&self, bio: Bio) -> Result<Bio, Bio> {
        match bio.flags.fua {
            true => Err(bio),
            false => Ok(Blocking::new(self.below.clone()).run(bio)),
        }
    }
}

/// The defect: the first commit needed a queue, got none, and aborted the journal.
#[test]
fn a_commit_without_a_queue_is_made() {
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
    let device = Arc::new(Scarce {
        below: stage.device.clone(),
        gives: AtomicBool::new(true),
        refused: AtomicU32::new(0),
    });
    within("a commit without a queue", || {
        let volume = Volume::open_device(device.clone(), &OpenOptions::writable()).unwrap();
        let file = volume.open_path("/empty", writable()).unwrap();
        file.write_buf(0, filled(7, 4096)).1.unwrap();
        device.gives.store(false, Ordering::SeqCst);
        for n in 1..4 {
            file.write_buf(n * 4096, filled(7, 4096)).1.unwrap();
            file.sync().unwrap();
        }
        assert!(
            device.refused.load(Ordering::SeqCst) > 0,
            "none was asked for"
        );
        drop(file);
        volume.close().unwrap();
    });
    stage.fsck();
}
