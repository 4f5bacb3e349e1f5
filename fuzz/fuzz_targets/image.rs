//! A whole image, opened and walked by the engine: every directory, file, link and attribute within bounds, and nothing but data
//! and errors comes of it.
//!
//! The input is a seed image's number, then changes of it: two bytes that choose a word, four that are written there. A mutator that had
//! to get past megabytes of zeros would find nothing. The images are those of `seed.sh` in corpus/image-bases, or one that is
//! given whole where there are none.
#![no_main]

use diorite::{LoopDevice, OpenFlags, OpenOptions, Volume};
use diorite_block::{Buf, MemDevice};
use diorite_format::Ino;
use libfuzzer_sys::fuzz_target;
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, OnceLock};

/// A seed image.
struct Base {
    image: Vec<u8>,
    /// The places of its words that are not zero: what is not used is not worth a change.
    words: Vec<usize>,
    device: Arc<MemDevice>,
}

fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/image-bases");
        let mut paths: Vec<_> = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
        paths.sort();
        paths.iter().filter_map(|p| std::fs::read(p).ok()).map(base).collect()
    })
}

fn base(image: Vec<u8>) -> Base {
    let used = |at: &usize| image[*at..at + 4] != [0; 4] && image[*at..at + 4] != *b"xxxx";
    let words = (0..image.len() - 3).step_by(4).filter(used).collect();
    Base { words, device: device_of(&image), image }
}

fn device_of(image: &[u8]) -> Arc<MemDevice> {
    let device = MemDevice::new((image.len() as u64).next_multiple_of(512));
    device.write_at(0, image);
    Arc::new(device)
}

fuzz_target!(|data: &[u8]| {
    match (bases(), data) {
        ([], whole) => open_and_walk(device_of(whole)),
        (bases, [which, changes @ ..]) => {
            let base = &bases[usize::from(*which) % bases.len()];
            let places: Vec<usize> = changes.chunks_exact(6).map(|change| {
                let at = base.words[usize::from(u16::from_le_bytes([change[0], change[1]])) % base.words.len()];
                base.device.write_at(at as u64, &change[2..]);
                at
            }).collect();
            open_and_walk(base.device.clone());
            places.iter().for_each(|at| base.device.write_at(*at as u64, &base.image[*at..at + 4]));
        }
        (_, []) => {}
    }
});

fn open_and_walk(device: Arc<MemDevice>) {
    let options = OpenOptions { workers: 1, metadata_cache: 1 << 20, map_cache: 1 << 20, ..OpenOptions::default() };
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
            let (buf, result) = file.read_at(at - at % 512, Buf::zeroed(8192));
            assert!(result.is_err() || result.is_ok_and(|n| n <= buf.len()));
        }
        let _ = file.mappings(0, size.min(16 << 20));
        if file.metadata().is_file() {
            let _ = diorite_block::Device::geometry(&LoopDevice::new(file, "a file".into()));
        }
    }
    let _ = volume.resolve(b"/dir/sub/../a name of some length 7", true);
}
