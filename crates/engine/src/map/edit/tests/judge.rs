//! What e2fsck and debugfs say of a volume whose maps were edited.
//!
//! Input: a rig at its end. Output: what e2fsck offers to optimise. Invariants: every free block is mapped to the pool, so bitmaps and
//! counts have to fit to the last bit; e2fsck finds no fault, debugfs lists what the model has. Limits: skips where the tools are not
//! installed.

use super::super::NewRun;
use super::rig::{Blocks, Rig};
use diorite_format::{FsBlock, Inode as DiskInode, MapKind};
use std::collections::BTreeMap;

/// Runs a tool; its output, or None where it is not installed.
pub(super) fn run(program: &str, args: &[&str]) -> Option<(i32, String)> {
    match xtask::run::tool(program).args(args).output() {
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            Some((out.status.code().unwrap_or(-1), text))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            xtask::skip::skipped(format_args!("{program} is not installed"));
            None
        }
        Err(e) => panic!("{program}: {e}"),
    }
}

impl Rig {
    fn write_inode(&mut self) {
        let model = &self.file;
        let volume = self.volume.inner();
        let handle = volume.begin(4).unwrap();
        let change = |d: &mut DiskInode| {
            d.size = model
                .blocks
                .last_key_value()
                .map_or(0, |(b, _)| u64::from(*b) + 1)
                * 1024;
            d.blocks = (model.blocks.len() as u64 + model.nodes) * 2;
        };
        model.inode.change(&handle, change).unwrap();
    }

    /// Gives the free blocks to the pool and the image to e2fsck; says what e2fsck offers to do better.
    pub(super) fn finish_with_e2fsck(mut self) -> String {
        self.check_disk();
        self.write_inode();
        self.with_pool(Rig::take_all);
        let depth = self.depth();
        let is_extents = self.file.inode.disk().map_kind() == MapKind::Extents;
        let blocks = std::mem::take(&mut self.file.blocks);
        let Rig {
            dir: _dir,
            image,
            device,
            volume,
            file,
            pool,
            ..
        } = self;
        drop((file, pool));
        volume.close().unwrap();
        let mut bytes = std::fs::read(&image).unwrap();
        device.read_at(0, &mut bytes);
        std::fs::write(&image, bytes).unwrap();
        let path = image.to_str().unwrap();
        let (code, text) = run("e2fsck", &["-fn", path]).unwrap();
        assert_eq!(code, 0, "depth {depth}: {text}");
        if is_extents {
            check_listing(path, &blocks);
        }
        let noise = |l: &&str| !l.is_empty() && !l.starts_with("Pass ") && !l.starts_with(path);
        text.lines()
            .filter(noise)
            .map(|l| format!("{l}\n"))
            .collect()
    }

    /// Maps every free block, run by run; the map takes its own from them too.
    fn take_all(&mut self) {
        let mut block = 0;
        while let Some(first) = self.free.blocks.first().copied() {
            let long = self.free.blocks.iter().zip(first..);
            let long = long.take_while(|(a, b)| *a == b).count() as u32;
            let len = long.saturating_sub(8).max(1);
            let start = FsBlock::new(first);
            let run = NewRun {
                file_block: block,
                len,
                start,
                unwritten: false,
            };
            while self.try_replace(block..block + len, &[run]).is_err() {
                self.shorten_one();
            }
            block += len + 1;
        }
        self.write_inode();
    }

    /// Frees the last block of an extent of several, so that there are no fewer extents.
    fn shorten_one(&mut self) {
        let pairs = self.file.blocks.iter().zip(self.file.blocks.iter().skip(1));
        let ends_long = |n: &u32| {
            let at = |n: u32| self.file.blocks.get(&n).map(|b| b.0);
            at(n - 1).is_some() && at(n + 1).is_none()
        };
        let mut ends = pairs.map(|(_, (n, _))| *n);
        let end = ends.find(ends_long).expect("the pool has long extents");
        self.replace(end..end + 1, &[]);
    }
}

/// debugfs lists the same blocks.
fn check_listing(path: &str, blocks: &Blocks) {
    let (_, text) = run("debugfs", &["-R", "ex -l f", path]).unwrap();
    let mut listed = BTreeMap::new();
    for line in text.lines().skip(1) {
        let spread = line.replace(['/', '-'], " ");
        let words: Vec<&str> = spread.split_whitespace().collect();
        let number = |n: usize| words[n].parse::<u64>().unwrap();
        let unwritten = words.last() == Some(&"Uninit");
        for (n, block) in (number(4)..=number(5)).enumerate() {
            listed.insert(block as u32, (number(6) + n as u64, unwritten));
        }
    }
    assert!(listed == *blocks, "debugfs lists other blocks");
}
