//! A device that panics at a bio of the test's choice: in submit, in reap, or in the caller's thread.
//!
//! Input: bios on their way to another device. Output: the same bios, or a panic. Invariant: it panics once each time that it is armed.
//! Limits: none of its own.

use super::make;
use crate::common::answers_as_below;
use crate::common::scratch;
use crate::common::stage::Stage;
use diorite::{OpenOptions, Volume};
use diorite_block::{
    Bio, BioList, BioOp, Blocking, Device, DeviceError, DeviceQueue, QueueOptions,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A test for bios: the device panics, once, at the first bio for which it returns true.
pub(super) type Fuse = Box<dyn Fn(&Bio) -> bool + Send>;

/// A device that panics at a bio of the test's choice.
#[derive(Clone)]
pub(super) struct Bomb {
    pub(super) below: Arc<dyn Device>,
    pub(super) fuse: Arc<Mutex<Option<Fuse>>>,
    /// It runs no bio in the calling thread.
    pub(super) queued: bool,
    /// Bios submitted together with such a bio are lost in the panic.
    pub(super) eats: bool,
    /// It panics in reap, when the bio comes back, instead of in submit.
    pub(super) at_reap: bool,
    /// The number of bios that it accepts at a time.
    pub(super) most: Arc<AtomicUsize>,
}

impl Bomb {
    pub(super) fn new(stage: &Stage) -> Bomb {
        Bomb::over(stage.device.clone())
    }

    pub(super) fn over(below: Arc<dyn Device>) -> Bomb {
        Bomb {
            below,
            fuse: Arc::default(),
            queued: true,
            eats: false,
            at_reap: false,
            most: Arc::new(usize::MAX.into()),
        }
    }

    pub(super) fn arm(&self, fuse: impl Fn(&Bio) -> bool + Send + 'static) {
        *self.fuse.lock().unwrap() = Some(Box::new(fuse));
    }

    /// Panics at a write that begins like a block of the log.
    pub(super) fn arm_journal(&self) {
        let magic = |b: &[u8]| b.starts_with(&0xC03B_3998u32.to_be_bytes());
        self.arm(move |bio| bio.op == BioOp::Write && bio.buf.parts().next().is_some_and(magic));
    }

    /// Has it panicked since it was armed?
    pub(super) fn has_panicked(&self) -> bool {
        self.fuse.lock().unwrap().is_none()
    }

    fn look(&self, bio: &Bio) {
        let hit = {
            let mut fuse = self.fuse.lock().unwrap();
            let hit = fuse.as_ref().is_some_and(|fuse| fuse(bio));
            hit.then(|| fuse.take())
        };
        assert!(hit.is_none(), "the device panics, as it was told to");
    }

    pub(super) fn open(&self, options: &OpenOptions) -> Volume {
        Volume::open_device(Arc::new(self.clone()), options).unwrap()
    }
}

impl Device for Bomb {
    answers_as_below!();

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        Ok(Box::new(BombQueue {
            below: self.below.open_queue(options)?,
            bomb: self.clone(),
        }))
    }

    fn run_here(&self, bio: Bio) -> Result<Bio, Bio> {
        if self.queued {
            return Err(bio);
        }
        self.look(&bio);
        Ok(Blocking::new(self.below.clone()).run(bio))
    }

    /// So that callers run several bios of a request here.
    fn is_memory(&self) -> bool {
        !self.queued
    }
}

struct BombQueue {
    below: Box<dyn DeviceQueue>,
    bomb: Bomb,
}

impl DeviceQueue for BombQueue {
    diorite_block::forward_queue! { below => below, wait, in_flight }

    fn submit(&self, bios: &mut BioList) {
        if self.bomb.at_reap {
            return self.below.submit(bios);
        }
        let mut mine = BioList::new();
        if self.bomb.eats {
            mine.append(bios);
        }
        mine.iter()
            .chain(&*bios)
            .for_each(|bio| self.bomb.look(bio));
        bios.append(&mut mine);
        let most = self.bomb.most.load(Ordering::SeqCst);
        let room = most.saturating_sub(self.below.in_flight() as usize);
        let mut later = bios.split_off(room.min(bios.len()));
        self.below.submit(bios);
        bios.append(&mut later);
    }

    fn reap(&self, out: &mut BioList) -> usize {
        if !self.bomb.at_reap {
            return self.below.reap(out);
        }
        let mut mine = BioList::new();
        self.below.reap(&mut mine);
        mine.iter().for_each(|bio| self.bomb.look(bio));
        let count = mine.len();
        out.append(&mut mine);
        count
    }
}

/// Options for a volume on which only a test's own requests commit.
pub(super) fn quiet() -> OpenOptions {
    OpenOptions::writable().commit_interval(Duration::from_secs(3600))
}

/// A volume in memory that an error makes read-only.
pub(super) fn staged() -> (tempfile::TempDir, Stage) {
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
    (dir, stage)
}
