//! The log of an image, found by debugfs: where its blocks are, and which are in use; can rotate the log.
//!
//! Input: an image's bytes. Output: places. Invariant: independent of the code under test except for the checksum of the journal
//! superblock. Limits: logs inside the volume.

use super::run;
use diorite_format::Tid;
use diorite_format::journal::write::{LogPosition, set_position};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

pub const MAGIC: u32 = 0xC03B_3998;

pub struct Log {
    pub block: usize,
    /// The location of each block of the log, its superblock first.
    places: Vec<u64>,
    all: HashSet<u64>,
    start: u32,
    sequence: u32,
}

fn be32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(b[at..at + 4].try_into().unwrap())
}

impl Log {
    pub fn of(dir: &Path, image: &[u8]) -> Log {
        let block = 1024 << image[1024 + 0x18];
        let path = dir.join("looked-at");
        std::fs::write(&path, image).unwrap();
        let numbers = |script: String| -> Vec<u64> {
            let file = dir.join("bmap");
            std::fs::write(&file, script).unwrap();
            let out = run(
                "debugfs",
                &["-f", file.to_str().unwrap(), path.to_str().unwrap()],
            );
            let lines = out.lines().filter(|l| !l.starts_with("debugfs"));
            lines
                .flat_map(str::split_whitespace)
                .filter_map(|w| w.parse().ok())
                .collect()
        };
        let all: HashSet<u64> = numbers("blocks <8>\n".into()).into_iter().collect();
        let first = numbers("bmap <8> 0\n".into())[0] as usize * block;
        let script = (0..be32(image, first + 0x10)).fold(String::new(), |mut s, n| {
            writeln!(s, "bmap <8> {n}").unwrap();
            s
        });
        Log {
            block,
            places: numbers(script),
            all,
            start: be32(image, first + 0x1C),
            sequence: be32(image, first + 0x18),
        }
    }

    pub fn is_journal(&self, block: u64) -> bool {
        self.all.contains(&block)
    }

    /// The offset in the image of block `at` of the log.
    pub fn byte_of(&self, at: u32) -> usize {
        self.places[at as usize] as usize * self.block
    }

    pub fn position(&self) -> (u32, u32) {
        (self.start, self.sequence)
    }

    /// The blocks from the log's start to its last commit block.
    pub fn used(&self, image: &[u8]) -> Vec<u32> {
        let end = self.places.len() as u32;
        let is_commit = |at: &u32| {
            let b = &image[self.byte_of(*at)..];
            be32(b, 0) == MAGIC && be32(b, 4) == 2 && be32(b, 8) >= self.sequence
        };
        let last = (self.start..end).rfind(is_commit).unwrap();
        (self.start..=last).collect()
    }

    /// Moves all blocks of the log backwards by `by`, wrapping at its beginning, as if the log had started elsewhere.
    pub fn rotate(&self, image: &mut [u8], by: u32) {
        let count = self.places.len() as u32 - 1;
        let old = image.to_vec();
        for at in 0..count {
            let (from, to) = (self.byte_of(1 + (at + by) % count), self.byte_of(1 + at));
            image[to..to + self.block].copy_from_slice(&old[from..from + self.block]);
        }
        let start = 1 + (self.start - 1 + count - by) % count;
        let sequence = Tid::new(self.sequence);
        let at = self.byte_of(0);
        set_position(&mut image[at..at + 1024], LogPosition { start, sequence });
    }
}
