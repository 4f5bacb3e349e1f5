//! Directories that map the same blocks again and again: the number of blocks that a check reads stays bounded.

use crate::common::stage::Stage;
use crate::common::watch::Watchdog;
use crate::common::{self, scratch};
use crate::{LIMIT, ino_of, inode_at};
use diorite_block::SimOptions;
use diorite_check::{CheckOptions, check_device};
use std::path::Path;

/// Blocks of the volume, 1 KiB each.
const BLOCKS: u64 = 4096;
/// The number of directories in it.
const COUNT: u64 = 300;
/// Offsets in an inode of its flags, its size and its map.
const FLAGS: usize = 0x20;
const SIZE: usize = 4;
const MAP: usize = 0x28;

/// A volume with many directories, with the offset of each inode and the number of its only block.
struct Crowd {
    bytes: Vec<u8>,
    dirs: Vec<(usize, usize)>,
}

impl Crowd {
    fn new(dir: &Path) -> Crowd {
        let source = dir.join("source");
        for n in 0..COUNT {
            std::fs::create_dir_all(source.join(format!("dir{n}/names"))).unwrap();
        }
        let features = "^metadata_csum,^64bit,^has_journal,^resize_inode";
        let args = format!("-t ext4 -b 1024 -N 1024 -I 128 -O {features}");
        let image = common::image(dir, "4M", &common::words(&args), &source);
        let (bytes, table) = (std::fs::read(&image).unwrap(), inode_at(&image, 1) as usize);
        // The directories are not looked up by name: any directory of one block will do.
        let first = ino_of(&image, "/dir0") as usize;
        let is_one = |at: &usize| {
            bytes[*at..at + 2] == 0o40755u16.to_le_bytes()
                && bytes[at + SIZE..at + SIZE + 4] == 1024u32.to_le_bytes()
        };
        let dirs = (first - 1..1024)
            .map(|n| table + n * 128)
            .filter(is_one)
            .map(|at| (at, word(&bytes, at + MAP + 20) as usize));
        let dirs: Vec<_> = dirs.take(COUNT as usize).collect();
        assert_eq!(dirs.len() as u64, COUNT);
        Crowd { bytes, dirs }
    }

    /// Gives directory `n` these extents (file block, length, block) and a size to match.
    fn map(&mut self, n: usize, extents: &[(u32, u16, u32)]) {
        let at = self.dirs[n].0;
        let mut map = Vec::new();
        for half in [0xf30a, extents.len() as u16, 4, 0, 0, 0] {
            map.extend(half.to_le_bytes());
        }
        for (file, len, start) in extents {
            map.extend(file.to_le_bytes());
            map.extend(u32::from(*len).to_le_bytes());
            map.extend(start.to_le_bytes());
        }
        self.bytes[at + MAP..][..map.len()].copy_from_slice(&map);
        let (file, len, _) = extents[extents.len() - 1];
        let size = (file + u32::from(len)) * 1024;
        self.bytes[at + SIZE..][..4].copy_from_slice(&size.to_le_bytes());
    }

    /// The number of blocks that a check reads.
    fn read_by_check(&self, dir: &Path) -> u64 {
        let image = dir.join("crowd");
        std::fs::write(&image, &self.bytes).unwrap();
        let stage = Stage::sim(&image, SimOptions::parse("0,latency=0us").unwrap());
        let options = CheckOptions::default().threads(2);
        let report = check_device(&stage.device, &options, &|_| ()).unwrap();
        assert!(!report.is_clean());
        stage.disk().counters().read_bytes / 1024
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Each of sixty directories maps the same blocks four times: 48 bytes of extents cause thousands of reads. The defect: the search
/// for paths, and the search for duplicate names, read all of them, for every directory.
#[test]
fn a_check_of_directories_that_share_their_blocks_is_bounded() {
    let dir = scratch();
    let mut crowd = Crowd::new(dir.path());
    let start = crowd.dirs[0].1 as u32;
    assert!(u64::from(start) + 1000 < BLOCKS);
    let four: Vec<_> = (0..4).map(|n| (n * 1000, 1000, start)).collect();
    (0..60).for_each(|n| crowd.map(n, &four));
    let read = crowd.read_by_check(dir.path());
    assert!(read < 10 * BLOCKS, "{read} blocks were read of {BLOCKS}");
}

/// The index root of each directory leads to a hundred nodes, in the same blocks for all directories. The defect: nodes were not
/// counted as blocks that the check reads.
#[test]
fn a_check_of_hash_trees_that_share_their_nodes_is_bounded() {
    let dir = scratch();
    let mut crowd = Crowd::new(dir.path());
    let start = crowd.dirs[0].1 as u32;
    for n in 0..COUNT as usize {
        let (inode, own) = crowd.dirs[n];
        crowd.map(n, &[(0, 1, own as u32), (1, 123, start)]);
        let flags = word(&crowd.bytes, inode + FLAGS) | 0x1000;
        crowd.bytes[inode + FLAGS..][..4].copy_from_slice(&flags.to_le_bytes());
        // The entry ".." fills the block; half MD4, one level; as many index entries as fit.
        let root = &mut crowd.bytes[own * 1024..][..1024];
        root[16..18].copy_from_slice(&1012u16.to_le_bytes());
        root[24..32].copy_from_slice(&[0, 0, 0, 0, 1, 8, 1, 0]);
        for (entry, raw) in (0u32..).zip(root[32..].chunks_exact_mut(8)) {
            raw[..4].copy_from_slice(&(entry * 2).to_le_bytes());
            raw[4..].copy_from_slice(&entry.clamp(1, 123).to_le_bytes());
        }
        root[32..36].copy_from_slice(&[124, 0, 123, 0]);
    }
    let read = crowd.read_by_check(dir.path());
    assert!(read < 10 * BLOCKS, "{read} blocks were read of {BLOCKS}");
}

/// More than a hundred thousand names, each of which is twice in its directory, because the directory maps the same blocks twice.
/// The defect: each was compared with all those met before, and the check did not end.
#[test]
fn a_check_of_a_directory_that_has_all_its_names_twice_ends() {
    let dir = scratch();
    let watchdog = Watchdog::new(LIMIT, "names that are there twice");
    let mut crowd = Crowd::new(dir.path());
    // Past everything that the volume uses.
    let start = BLOCKS as usize - 2000;
    let mut number = 0u32;
    for block in crowd.bytes[start * 1024..]
        .chunks_exact_mut(1024)
        .take(2000)
    {
        for entry in block.chunks_exact_mut(12) {
            let letters = [0, 6, 12, 18].map(|shift| b'0' + (number >> shift & 0x3f) as u8);
            entry[..8].copy_from_slice(&[11, 0, 0, 0, 12, 0, 4, 2]);
            entry[8..].copy_from_slice(&letters);
            number += 1;
        }
        // The last of 85 entries ends with the block.
        block[84 * 12 + 4] = 16;
    }
    crowd.map(0, &[(0, 2000, start as u32), (2000, 2000, start as u32)]);
    crowd.read_by_check(dir.path());
    watchdog.feed("it ended");
}
