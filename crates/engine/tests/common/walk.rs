//! Visits everything that an image holds (directories, files, links, attributes), within bounds, without judging what it finds.
//!
//! Input: a device with any bytes. Output: how far it got. Invariants: errors are counted and skipped; the number of requests is
//! bounded, so a walk that does not end is the engine's fault. Limits: 4,000 inodes, 256 KiB per file.

use diorite::{Error, LoopDevice, OpenFlags, OpenOptions, Volume};
use diorite_block::{Buf, Device};
use diorite_check::{CheckOptions, check_device};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Walked {
    pub opened: bool,
    pub inodes: usize,
    pub errors: usize,
    pub bytes: usize,
}

/// Opens the volume, visits everything in it, and runs the consistency check.
pub fn open_and_walk(device: Arc<dyn Device>) -> Walked {
    let mut walked = Walked::default();
    let options = OpenOptions::default()
        .workers(1)
        .metadata_cache(1 << 20)
        .map_cache(1 << 20);
    if let Ok(volume) = Volume::open_device(device.clone(), &options) {
        walked.opened = true;
        walk(&volume, &mut walked);
        let _ = volume.close();
    }
    let options = CheckOptions::default().threads(1).open(options);
    if let Err(error) = check_device(&device, &options, &|_| ()) {
        assert!(!error.to_string().is_empty());
    }
    walked
}

pub fn walk(volume: &Volume, walked: &mut Walked) {
    let mut seen = HashSet::new();
    let mut todo = VecDeque::from([diorite_format::Ino::ROOT]);
    while let Some(ino) = todo.pop_front() {
        if walked.inodes >= 4000 || !seen.insert(ino.get()) {
            continue;
        }
        walked.inodes += 1;
        let Ok(file) = volume.open_ino(ino, OpenFlags::default()) else {
            walked.errors += 1;
            continue;
        };
        let mut note = |e: Option<Error>| {
            if let Some(e) = e {
                // Formatting an error message must not fail.
                assert!(!e.to_string().is_empty());
                walked.errors += 1;
            }
        };
        note(volume.xattrs(ino).err());
        if file.metadata().is_dir() {
            match volume.read_dir(ino) {
                Ok(entries) => {
                    for (n, entry) in entries.take(5000).enumerate() {
                        match entry {
                            Ok(entry) => {
                                if n < 8 && ino.get() == 2 {
                                    let path = [b"/".as_slice(), &entry.name].concat();
                                    note(volume.resolve(&path, true).err());
                                }
                                todo.push_back(entry.ino);
                            }
                            Err(e) => note(Some(e)),
                        }
                    }
                }
                Err(e) => note(Some(e)),
            }
        } else {
            note(volume.read_link(ino).err());
        }
        walked.bytes += read_some(&file, &mut walked.errors);
    }
    for path in [
        "/dir/name7",
        "/big/name123",
        "/link",
        "/nowhere",
        "/sub/deep/../../file",
    ] {
        walked.errors += usize::from(volume.resolve(path.as_bytes(), true).is_err());
    }
}

/// Reads the beginning, the middle and the end of a file, and its map.
fn read_some(file: &diorite::File, errors: &mut usize) -> usize {
    let size = file.size();
    let mut bytes = 0;
    let mut places = vec![
        0,
        12 << 10,
        300 << 10,
        70 << 20,
        size / 2,
        size.saturating_sub(1000),
        size,
        u64::MAX,
    ];
    places.push(size.saturating_add(1 << 20));
    for at in places {
        let pos = at - at % 512;
        let (buf, result) = file.read_buf(pos, Buf::zeroed(16 << 10));
        match result {
            Ok(n) => {
                assert!(n <= buf.len() && n as u64 <= size.saturating_sub(pos));
                bytes += n;
            }
            Err(_) => *errors += 1,
        }
    }
    *errors += usize::from(file.mappings(0, size.min(32 << 20)).is_err());
    *errors += usize::from(
        file.mappings(size.saturating_sub(1 << 20), 1 << 20)
            .is_err(),
    );
    if file.metadata().is_file() {
        let _ = LoopDevice::new(file.clone(), "a file".into()).geometry();
    }
    bytes
}
