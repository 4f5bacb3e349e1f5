//! What a loop device reports in its geometry, and what a locator with layers means (rules D2, L5, L9).
//!
//! Input: files of volumes on devices that report any geometry that a test wants. Output: none. Invariants: none of its own.
//! Limits: no I/O.

use crate::common::fixture::{made, writable};
use crate::common::stage::Stage;
use crate::common::{image, run, scratch};
use diorite::{Error, JournalDevice, LoopDevice, OpenFlags, OpenOptions, Volume};
use diorite_block::device::DeviceError;
use diorite_block::{Device, DeviceQueue, DeviceReport, Geometry, MemDevice, QueueOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A device that reports the given geometry.
struct Says(Arc<dyn Device>, Geometry);

impl Device for Says {
    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.0)
    }

    fn geometry(&self) -> Geometry {
        self.1
    }

    fn name(&self) -> String {
        "below".into()
    }

    fn report(&self) -> DeviceReport {
        DeviceReport {
            engine: "says".into(),
            direct: true,
            block_device: true,
            ..DeviceReport::default()
        }
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        self.0.open_queue(options)
    }
}

fn loop_over(below: &Arc<dyn Device>, geometry: Geometry, write: bool) -> LoopDevice {
    let says = Arc::new(Says(below.clone(), geometry));
    let volume = Volume::open_device(says, &OpenOptions::writable()).unwrap();
    let flags = OpenFlags::default().write(write);
    LoopDevice::new(volume.open_path("/odd", flags).unwrap(), "loop".into())
}

/// Rules D2, L5. A loop device has a volatile cache, whatever is below it. It has FUA where FUA costs less than a flush and flushes
/// nothing else. It can punch holes and write zeros where its file can and is writable. Its requests are no larger than those of
/// the device below, or than a queue takes.
#[test]
fn a_loop_device_says_what_it_can_do() {
    // A volume with extents, and one without.
    for (recipe, extents) in [(0, true), (2, false)] {
        let (_dir, image, _) = made(recipe);
        let stage = Stage::mem(&image);
        for (fua, cache, want) in [
            (true, true, true),
            (true, false, true),
            (false, true, false),
            (false, false, true),
        ] {
            for (write, able) in [(true, false), (true, true), (false, true)] {
                let below = Geometry {
                    fua,
                    fua_flushes: true,
                    volatile_cache: cache,
                    discard: able,
                    write_zeroes: able,
                    max_transfer: if able { 1 << 31 } else { 1 << 20 },
                    ..stage.device.geometry()
                };
                let device = loop_over(&stage.device, below, write);
                let size = device.geometry().size;
                assert_eq!(size % 512, 0, "whole sectors");
                let says = Geometry {
                    size,
                    read_only: !write,
                    discard: write,
                    write_zeroes: write && extents,
                    max_transfer: if able { 1 << 30 } else { 1 << 20 },
                    volatile_cache: true,
                    fua: want,
                    fua_flushes: false,
                    ..below
                };
                assert_eq!(device.geometry(), says, "on {below:?}");
            }
        }
    }
}

/// What `info -v` shows: every layer, and direct I/O only for the lowest one.
#[test]
fn a_loop_device_reports_what_it_stands_on() {
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let device = loop_over(&stage.device, stage.device.geometry(), true);
    assert_eq!((device.name(), device.level()), ("loop".to_owned(), 1));
    let report = device.report();
    assert_eq!((report.engine.as_str(), report.direct), ("loop", true));
    assert!(!report.block_device, "it is none of the host's");
    let below = report.below.unwrap();
    assert_eq!((below.engine.as_str(), below.direct), ("says", true));
    assert!(below.block_device && below.below.is_none());
}

/// An image that contains an image as `/inner`.
fn layered(dir: &Path, outer: &[&str]) -> PathBuf {
    let (source, within) = (dir.join("source"), dir.join("within"));
    for path in [&source, &within] {
        std::fs::create_dir(path).unwrap();
    }
    let inner = image(&within, "8M", &["-t", "ext4", "-b", "1024"], &source);
    std::fs::rename(inner, source.join("inner")).unwrap();
    image(dir, "24M", outer, &source)
}

/// What follows a question mark in the path of an inner file and is no known parameter is taken as part of the name, and is mostly a
/// mistake: "not found" then comes with an explanation. Other errors, and other names, are reported as usual.
#[test]
fn a_parameter_at_an_inner_path_is_explained() {
    let dir = scratch();
    let image = layered(dir.path(), &["-t", "ext4", "-b", "4096"]);
    let image = image.to_str().unwrap();
    let error = |path: &str| {
        let opened = Volume::open(&format!("{image}!{path}"), &OpenOptions::default());
        opened.unwrap_err()
    };
    let explained = |error: &Error| error.to_string().contains("not all known parameters");
    let parameter = error("/inner?partition=1");
    assert!(explained(&parameter), "{parameter}");
    let missing = error("/missing");
    assert!(matches!(missing.root(), Error::NotFound { .. }) && !explained(&missing));
    let no_folder = error("/inner/file?part=1");
    let root = no_folder.root();
    assert!(!matches!(root, Error::NotFound { .. }) && !explained(&no_folder));
    Volume::open(&format!("{image}!/inner"), &OpenOptions::default()).unwrap();
}

/// A journal device that is given belongs to the innermost volume. An outer volume whose journal is on another device, too, is
/// opened without it.
#[test]
fn a_named_journal_is_not_that_of_the_volumes_below() {
    let dir = scratch();
    let options = ["-t", "ext4", "-b", "4096", "-O", "^has_journal"];
    let image = layered(dir.path(), &options);
    let image = image.to_str().unwrap();
    // Its superblock says that its journal is on another device.
    for request in [
        "feature has_journal",
        "ssv journal_inum 0",
        "ssv journal_dev 1",
        "ssv journal_uuid 01234567-89ab-cdef-0123-456789abcdef",
    ] {
        run("debugfs", &["-w", "-R", request, image]);
    }
    let named = OpenOptions::default().journal("mem:1M".to_owned());
    let handed =
        OpenOptions::default().journal_device(JournalDevice(Arc::new(MemDevice::new(1 << 20))));
    for options in [named, handed] {
        assert!(Volume::open(image, &options).is_err(), "it is no journal");
        let inner = Volume::open(&format!("{image}!/inner"), &options).unwrap();
        assert_eq!(inner.superblock().block_size(), 1024);
        drop(inner);
        // The failed opening holds the image no longer.
        let again = Volume::open(image, &OpenOptions::default()).unwrap();
        drop(again.open_path("/inner", OpenFlags::default()).unwrap());
    }
    // Opened for writing without its journal, the outer volume accepts no change.
    let volume = Volume::open(image, &OpenOptions::writable()).unwrap();
    assert!(
        volume
            .open_path("/inner", writable())
            .unwrap()
            .truncate(0)
            .is_err()
    );
}
