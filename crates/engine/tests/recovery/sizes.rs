//! Logs with blocks behind the end of the volume.

use crate::common::log::Log;
use crate::common::{debugfs_script, scratch};
use crate::recovery::{in_memory, mke2fs, on_disk};
use diorite::{OpenOptions, Volume};
use diorite_block::MemDevice;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

const BLOCK: usize = 1024;
const MIB: usize = 1 << 20;

/// An image of 24 MiB whose log has these blocks, with 8 MiB behind it. debugfs writes no blocks behind the end into a log: it gets other
/// numbers, which are replaced afterwards.
fn logged(dir: &Path, blocks: &[(usize, &[u8])]) -> Vec<u8> {
    // No checksums in the log, and few changes when it grows.
    let features = "^metadata_csum,^resize_inode";
    let words = ["-b", "1024", "-O", features, "-U", UUID, "-E", SEED];
    let image = mke2fs(dir, &words, "24M");
    let numbers: Vec<String> = (0..blocks.len()).map(|n| (OTHER + n).to_string()).collect();
    let data = blocks.iter().flat_map(|(_, bytes)| bytes.iter().copied());
    let path = dir.join("data");
    std::fs::write(&path, data.collect::<Vec<u8>>()).unwrap();
    let mut script = "jo\n".to_owned();
    writeln!(script, "jw -b {} {}", numbers.join(","), path.display()).unwrap();
    script.push_str("jc\n");
    // What it prints is not checked: the comparison with e2fsck judges the result.
    debugfs_script(&image, &script);
    let mut bytes = std::fs::read(&image).unwrap();
    bytes.resize(32 * MIB, 0);
    let log = Log::of(dir, &bytes);
    let descriptor = log.byte_of(log.position().0);
    let tags = &mut bytes[descriptor + 12..descriptor + BLOCK];
    for (n, (block, _)) in blocks.iter().enumerate() {
        let mut words = tags.chunks_exact_mut(4);
        let tag = words.find(|word| **word == ((OTHER + n) as u32).to_be_bytes());
        tag.unwrap().copy_from_slice(&(*block as u32).to_be_bytes());
    }
    bytes
}

/// The first of the other numbers.
const OTHER: usize = 19_000;
const UUID: &str = "6f1c9d1e-31b4-4c7e-9d0a-0123456789ab";
const SEED: &str = "hash_seed=6f1c9d1e-31b4-4c7e-9d0a-0123456789ac";

/// The defects: such a block was written, to whatever lies behind the volume on its device; then the whole log was refused, which may be
/// that of a growth that did not come to its superblock.
#[test]
fn a_block_behind_the_volume_is_not_written() {
    let dir = scratch();
    for block in [24 * 1024, 31 * 1024] {
        let image = logged(dir.path(), &[(9000, &[1; BLOCK]), (block, &[2; BLOCK])]);
        let disk = on_disk(&image).unwrap();
        assert!(disk.bytes[9000 * BLOCK..][..BLOCK] == [1; BLOCK]);
        assert!(disk.bytes[24 * MIB..] == image[24 * MIB..], "block {block}");
    }
}

#[test]
fn a_block_behind_the_device_is_refused() {
    let dir = scratch();
    let image = logged(dir.path(), &[(9000, &[1; BLOCK]), (32 * 1024, &[2; BLOCK])]);
    let error = on_disk(&image).err().unwrap().to_string();
    assert!(error.contains("block 32768"), "{error}");
    assert!(error.contains("outside the device"), "{error}");
    let memory = in_memory(&image).unwrap();
    assert!(
        memory.said.contains("outside the device"),
        "{}",
        memory.said
    );
}

/// As the kernel leaves it when it grows a volume.
#[test]
fn a_log_with_a_larger_superblock_may_have_blocks_behind_the_smaller_one() {
    let dir = scratch();
    let before = logged(dir.path(), &[(9000, &[1; BLOCK])]);
    let device = Arc::new(MemDevice::new(before.len() as u64));
    device.write_at(0, &before);
    let open = || Volume::open_device(device.clone(), &OpenOptions::writable()).unwrap();
    let volume = open();
    volume.grow(25 * MIB as u64).unwrap();
    volume.close().unwrap();
    let mut after = vec![0; before.len()];
    device.read_at(0, &mut after);
    let log = Log::of(dir.path(), &before);
    let pairs = before.chunks(BLOCK).zip(after.chunks(BLOCK)).enumerate();
    let changed: Vec<(usize, &[u8])> = pairs
        .filter(|(n, (old, new))| old != new && !log.is_journal(*n as u64))
        .map(|(n, (_, new))| (n, new))
        .collect();
    assert!(changed.iter().any(|(n, _)| *n == 1) && changed.last().unwrap().0 > 24 * 1024);
    let image = logged(dir.path(), &changed);
    let disk = on_disk(&image).unwrap();
    for (n, bytes) in changed.iter().filter(|(n, _)| *n != 1) {
        assert!(disk.bytes[n * BLOCK..][..BLOCK] == **bytes, "block {n}");
    }
    let size = Volume::open_device(device, &OpenOptions::default()).unwrap();
    assert_eq!(size.superblock().geometry().volume_bytes(), 25 * MIB as u64);
    std::fs::write(dir.path().join("grown"), &disk.bytes).unwrap();
    crate::common::fsck(&dir.path().join("grown"));
}
