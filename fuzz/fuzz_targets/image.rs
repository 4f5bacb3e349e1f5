//! A whole image, opened and read by the engine: every directory, file, link and attribute within bounds. Each call returns data or
//! an error; none panics or hangs.
//!
//! The input has the form of `images` in src.
#![no_main]

use diorite::{LoopDevice, OpenFlags, OpenOptions, Volume};
use diorite_block::{Buf, MemDevice};
use diorite_format::Ino;
use diorite_fuzz::images::changed;
use libfuzzer_sys::fuzz_target;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

fuzz_target!(|data: &[u8]| changed(data, |device, _| open_and_walk(device)));

fn open_and_walk(device: Arc<MemDevice>) {
    let options = OpenOptions::default().workers(1).metadata_cache(1 << 20).map_cache(1 << 20);
    if let Ok(volume) = Volume::open_device(device, &options) {
        walk(&volume);
        let _ = volume.close();
    }
}

fn walk(volume: &Volume) {
    let (mut seen, mut todo) = (HashSet::new(), VecDeque::from([Ino::ROOT]));
    while let Some(ino) = todo.pop_front() {
        if seen.len() >= 500 || !seen.insert(ino.get()) {
            continue;
        }
        let Ok(file) = volume.open_ino(ino, OpenFlags::default()) else { continue };
        let _ = volume.xattrs(ino);
        if let Ok(entries) = volume.read_dir(ino) {
            for entry in entries.take(1000).flatten() {
                let _ = volume.resolve(&entry.name, true);
                todo.push_back(entry.ino);
            }
        } else {
            let _ = volume.read_link(ino);
        }
        let size = file.size();
        for at in [0, 64 << 10, 70 << 20, size / 2, size.saturating_sub(700), size] {
            let (buf, result) = file.read_buf(at - at % 512, Buf::zeroed(8192));
            assert!(result.is_err() || result.is_ok_and(|n| n <= buf.len()));
        }
        let _ = file.mappings(0, size.min(16 << 20));
        if file.metadata().is_file() {
            let _ = diorite_block::Device::geometry(&LoopDevice::new(file, "a file".into()));
        }
    }
    let _ = volume.resolve(b"/dir/sub/../a name of some length 7", true);
}
