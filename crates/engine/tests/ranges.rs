//! Operations on ranges of a file against a byte array, with requests in flight; e2fsck has nothing to say after each session.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{Rng, fsck, image, scaled, scratch};
use diorite::{File, OpenFlags, OpenOptions, Volume};
use diorite_block::Buf;
use std::path::{Path, PathBuf};

const KINDS: [(&str, &[&str]); 5] = [
    ("ext4-4k", &["-t", "ext4", "-b", "4096"]),
    ("ext4-1k", &["-t", "ext4", "-b", "1024", "-J", "size=1"]),
    (
        "ext4-nojournal",
        &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
    ),
    ("ext3-1k", &["-t", "ext3", "-b", "1024", "-J", "size=1"]),
    ("ext2-1k", &["-t", "ext2", "-b", "1024"]),
];

fn make(dir: &Path, size: &str, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("file"), vec![0x55; 100_001]).unwrap();
    image(dir, size, args, &tree)
}

fn open(image: &Path) -> (Volume, File) {
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
    let flags = OpenFlags {
        write: true,
        ..OpenFlags::default()
    };
    let file = volume.open_path("/file", flags).unwrap();
    (volume, file)
}

fn same(what: &str, file: &File, model: &[u8]) {
    assert_eq!(file.size(), model.len() as u64, "{what}: size");
    let mut bytes = vec![0xee; model.len()];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
    if let Some(at) = (0..bytes.len()).find(|i| bytes[*i] != model[*i]) {
        panic!(
            "{what}: byte {at} is {:#x}, not {:#x}",
            bytes[at], model[at]
        );
    }
}

fn write(file: &File, model: &mut Vec<u8>, pos: usize, data: &[u8]) {
    let mut buf = Buf::zeroed(data.len());
    buf.copy_in(0, data);
    assert_eq!(file.write_at(pos as u64, buf).1.unwrap(), data.len());
    if model.len() < pos + data.len() {
        model.resize(pos + data.len(), 0);
    }
    model[pos..pos + data.len()].copy_from_slice(data);
}

fn write_somewhere(file: &File, model: &mut Vec<u8>, rng: &mut Rng) {
    let mut data = vec![0; 512 * (1 + rng.below(40)) as usize];
    rng.fill(&mut data);
    write(file, model, 512 * rng.below(2000) as usize, &data);
}

/// Truncations up and down between writes; every byte as it should be, also behind a size that moved over it.
#[test]
fn truncations() {
    let mut rng = Rng::from_env("truncations");
    for (name, args) in KINDS {
        let dir = scratch();
        let image = make(dir.path(), "32M", args);
        let mut model = vec![0x55; 100_001];
        for _ in 0..3 {
            let (volume, file) = open(&image);
            for n in 0..scaled("DIORITE_ROUNDS", 40) {
                if rng.below(2) == 0 {
                    write_somewhere(&file, &mut model, &mut rng);
                } else {
                    let size = rng.below(1_000_000);
                    file.truncate(size).unwrap();
                    model.resize(size as usize, 0);
                }
                same(&format!("{name}, round {n}"), &file, &model);
            }
            drop(file);
            volume.close().unwrap();
            fsck(&image);
            let (_volume, file) = open(&image);
            same(name, &file, &model);
        }
    }
}

/// A file in many pieces takes many handles of a small journal; all its space comes back.
#[test]
fn a_fragmented_file_goes_in_many_handles() {
    for (name, args) in KINDS {
        let dir = scratch();
        let image = make(dir.path(), "64M", args);
        let (volume, file) = open(&image);
        file.truncate(0).unwrap();
        let mut model = Vec::new();
        for n in 0..3000usize {
            write(&file, &mut model, n * 8192, &[n as u8; 4096]);
        }
        for size in [3000 * 4096 + 17, 1_000_003, 0] {
            file.truncate(size).unwrap();
            model.truncate(size as usize);
            same(name, &file, &model);
        }
        assert_eq!(file.metadata().blocks, 0);
        drop(file);
        volume.close().unwrap();
        fsck(&image);
    }
}
