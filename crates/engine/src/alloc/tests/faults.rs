//! Failing reads: whichever read fails, the operation has changed nothing, and succeeds when it is repeated.

use super::super::{Alloc, MARK_CREDITS, NEW_INODE_CREDITS};
use super::Image;
use super::free_credits;
use crate::alloc::Reach;
use crate::error::Error;
use crate::inode::Fs;
use crate::options::OpenOptions;
use crate::volume::Volume;
use diorite_block::locator::{self, Locator};
use diorite_block::{BioErrorKind, BioOp, Fault, FaultDevice, FaultPlan, When};
use diorite_format::{FsBlock, Ino};
use std::sync::Arc;
use std::time::Duration;

/// Over a device whose `nth` read and the next fail: the first may be a look ahead whose failure nobody minds.
fn open(image: &Image, nth: u64) -> (Arc<FaultDevice>, Result<Volume, Error>) {
    let locator = Locator::parse(image.path.to_str().unwrap()).unwrap();
    let below = locator::open(&locator, &locator::OpenOptions::default()).unwrap();
    let when = When::Span {
        first: nth,
        count: 2,
    };
    let fault = Fault::new(BioErrorKind::Io, when).on(BioOp::Read);
    let device = Arc::new(FaultDevice::new(below, FaultPlan::new(vec![fault], 0)));
    let options = OpenOptions {
        commit_interval: Duration::from_secs(3600),
        ..OpenOptions::writable()
    };
    let volume = Volume::open_device(device.clone(), &options);
    (device, volume)
}

/// Tries until the device does what it shall; what fails must have changed no count.
fn insist<R>(
    volume: &Fs,
    alloc: &Alloc,
    attempt: impl Fn() -> Result<R, Error>,
) -> Result<R, Error> {
    let counts = || {
        let (free, inodes) = (alloc.free_blocks(), alloc.free_inodes());
        (free, inodes, alloc.usable_blocks(Reach::All))
    };
    loop {
        let before = counts();
        match attempt() {
            Err(Error::Device { .. }) => {
                volume.check_writable()?;
                assert_eq!(counts(), before);
            }
            done => return done,
        }
    }
}

/// Takes blocks and inodes in two groups and gives all back.
fn work(volume: &Fs) -> Result<(), Error> {
    let alloc = volume.alloc()?;
    for group in [1, 3] {
        let goal = volume
            .sb
            .group_first_block(diorite_format::GroupNo::new(group));
        let goal = FsBlock::new(goal.get() + 500);
        let parent = Ino::new(group * volume.sb.geometry().inodes_per_group() + 1);
        let run = insist(volume, alloc, || alloc.claim(volume, goal, 10, Reach::All))?;
        insist(volume, alloc, || {
            alloc.mark_used(&volume.begin(MARK_CREDITS)?, run)
        })?;
        let ino = insist(volume, alloc, || {
            alloc.new_inode(&volume.begin(NEW_INODE_CREDITS)?, parent, true)
        })?;
        volume.journal()?.commit_running(volume)?;
        insist(volume, alloc, || {
            let credits = free_credits(&volume.sb, run.len);
            alloc.free(&volume.begin(credits)?, run.start, run.len)
        })?;
        insist(volume, alloc, || {
            alloc.free_inode(&volume.begin(NEW_INODE_CREDITS)?, ino, true)
        })?;
    }
    Ok(())
}

#[test]
fn what_fails_has_not_happened() {
    for name in ["ext3", "meta-bg"] {
        let image = Image::of(name);
        let before = image.dump();
        let clean = std::fs::read(&image.path).unwrap();
        let (mut nth, mut worked) = (1, 0);
        loop {
            let (device, volume) = open(&image, nth);
            if let Ok(volume) = volume {
                if work(volume.inner()).is_ok() {
                    worked += 1;
                }
                // After a failure to mark the volume as in use nothing was changed, and nothing can be.
                let closed = volume.close();
                assert!(closed.is_ok() || device.plan().failed() > 0);
                if closed.is_err() {
                    // It is written down; the next turn needs a volume that may be written.
                    std::fs::write(&image.path, &clean).unwrap();
                }
            }
            image.fsck();
            assert_eq!(image.dump(), before);
            if device.plan().failed() == 0 {
                break;
            }
            nth += 1;
        }
        assert!(worked > 4, "{worked} of {nth}");
    }
}
