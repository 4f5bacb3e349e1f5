//! What it is: whole images, changed in a few places.
//! Input: the number of a seed image, then changes of it: two bytes that choose a word, four that are written there. A mutator that
//! had to find the used words among megabytes of zeros would find nothing. Output: a device with the changed image; the changes are
//! undone afterwards.
//! Limit: the seed images are those that `seed.sh` puts into corpus/image-bases; without them the input itself is the image.

use diorite_block::MemDevice;
use std::sync::{Arc, OnceLock};

/// A seed image.
struct Base {
    image: Vec<u8>,
    /// The positions of its words that are neither zeros nor file contents; only these are changed.
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

/// Calls `look` with the image that the input describes, and with the input's first byte.
pub fn changed(data: &[u8], look: impl FnOnce(Arc<MemDevice>, u8)) {
    match (bases(), data) {
        ([], whole) => look(device_of(whole), 0),
        (bases, [which, changes @ ..]) => {
            let base = &bases[usize::from(*which) % bases.len()];
            let places: Vec<usize> = changes.chunks_exact(6).map(|change| {
                let at = base.words[usize::from(u16::from_le_bytes([change[0], change[1]])) % base.words.len()];
                base.device.write_at(at as u64, &change[2..]);
                at
            }).collect();
            look(base.device.clone(), *which);
            places.iter().for_each(|at| base.device.write_at(*at as u64, &base.image[*at..at + 4]));
        }
        (_, []) => {}
    }
}
