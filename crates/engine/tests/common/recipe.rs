//! Images whose every byte is known: files with holes, unwritten ranges and many extents; free space is filled with poison.
//!
//! Input: mke2fs arguments. Output: the image, and for each file its contents and which of its blocks are written. Invariants: free
//! space holds poison before mke2fs runs, so a read of a block that was never written shows it; e2fsck finds nothing before the
//! image is handed out. Limits: uses the installed tools.

use super::{Rng, fsck, run};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

pub const POISON: u8 = 0xA5;

/// The expected contents of a file.
#[derive(Clone)]
pub struct Known {
    pub path: String,
    pub bytes: Vec<u8>,
    pub block: u64,
    /// For each block: is it written, so that a write to it is an overwrite?
    pub written: Vec<bool>,
}

impl Known {
    fn new(path: &str, bytes: Vec<u8>, block: u64) -> Known {
        let blocks = (bytes.len() as u64).div_ceil(block) as usize;
        Known {
            path: path.into(),
            bytes,
            block,
            written: vec![true; blocks],
        }
    }

    fn unwrite(&mut self, from: u64, to: u64) {
        for block in from..to.min(self.written.len() as u64) {
            self.written[block as usize] = false;
            let start = (block * self.block) as usize;
            let end = (start + self.block as usize).min(self.bytes.len());
            self.bytes[start..end].fill(0);
        }
    }

    /// Records that these bytes were written.
    pub fn write(&mut self, pos: u64, bytes: &[u8]) {
        let (at, end) = (pos as usize, pos as usize + bytes.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(bytes);
        let blocks = (self.bytes.len() as u64).div_ceil(self.block) as usize;
        self.written.resize(blocks, false);
        let last = (end as u64).div_ceil(self.block) as usize;
        self.written[(pos / self.block) as usize..last].fill(true);
    }

    /// Takes over a range from another model of the same file.
    pub fn take_over(&mut self, other: &Known, range: std::ops::Range<u64>) {
        let (from, to) = (
            range.start as usize,
            other.bytes.len().min(range.end as usize),
        );
        if self.bytes.len() < to {
            self.bytes.resize(to, 0);
            self.written.resize(other.written.len(), false);
        }
        if from < to {
            self.bytes[from..to].copy_from_slice(&other.bytes[from..to]);
            let block = self.block as usize;
            for n in from / block..to.div_ceil(block) {
                // A block that two regions share is written if either wrote it.
                self.written[n] |= other.written[n];
            }
        }
    }

    /// Would this write be a pure overwrite?
    pub fn overwrites(&self, pos: u64, len: u64) -> bool {
        pos + len <= self.bytes.len() as u64
            && (pos / self.block..(pos + len).div_ceil(self.block))
                .all(|b| self.written[b as usize])
    }
}

/// One kind of volume: mke2fs options, and what follows from them.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    pub name: &'static str,
    pub args: &'static [&'static str],
    pub size: &'static str,
    pub block: u64,
    /// Holes are punched at multiples of this many blocks.
    pub cluster: u64,
    pub extents: bool,
}

pub const RECIPES: [Recipe; 5] = [
    Recipe {
        name: "ext4-4k",
        args: &["-t", "ext4", "-b", "4096"],
        size: "24M",
        block: 4096,
        cluster: 1,
        extents: true,
    },
    Recipe {
        name: "ext4-1k-deep",
        args: &["-t", "ext4", "-b", "1024", "-O", "metadata_csum,64bit"],
        size: "24M",
        block: 1024,
        cluster: 1,
        extents: true,
    },
    Recipe {
        name: "ext2-1k",
        args: &["-t", "ext2", "-b", "1024"],
        size: "24M",
        block: 1024,
        cluster: 1,
        extents: false,
    },
    Recipe {
        name: "ext3-4k-no-csum",
        args: &["-t", "ext3", "-b", "4096"],
        size: "24M",
        block: 4096,
        cluster: 1,
        extents: false,
    },
    Recipe {
        name: "bigalloc",
        args: &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"],
        size: "48M",
        block: 4096,
        cluster: 4,
        extents: true,
    },
];

/// Makes the recipe's image in `dir`.
pub fn make(dir: &Path, recipe: &Recipe, rng: &mut Rng) -> (PathBuf, Vec<Known>) {
    let source = dir.join("source");
    let _ = std::fs::remove_dir_all(&source);
    std::fs::create_dir_all(source.join("pads")).unwrap();
    for n in 0..800 {
        std::fs::write(source.join(format!("pads/{n}")), [n as u8; 512]).unwrap();
    }
    let mut files = plain_files(&source, recipe, rng);
    let image = poisoned(dir, recipe, &source);
    let mut script = String::new();
    // Delete every other pad file, so that what is written next is fragmented.
    for n in (0..800).step_by(2) {
        writeln!(script, "rm /pads/{n}").unwrap();
    }
    let mut pieces = vec![0; 700 * recipe.block as usize + 700];
    rng.fill(&mut pieces);
    std::fs::write(dir.join("pieces"), &pieces).unwrap();
    writeln!(script, "write {} pieces", dir.join("pieces").display()).unwrap();
    files.push(Known::new("/pieces", pieces, recipe.block));
    let mut holed = vec![0; 1500 * recipe.block as usize + 513];
    rng.fill(&mut holed);
    let mut holed = Known::new("/holed", holed, recipe.block);
    if recipe.extents {
        std::fs::write(dir.join("holed"), &holed.bytes).unwrap();
    } else {
        // debugfs 1.47 punches more of an indirect map than requested, so the source file has the holes already.
        write_sparse(&dir.join("holed"), &mut holed, rng);
    }
    writeln!(script, "write {} holed", dir.join("holed").display()).unwrap();
    if recipe.extents {
        punch_and_allocate(&mut script, &mut holed, recipe, rng);
    }
    files.push(holed);
    debugfs(&image, dir, &script);
    fsck(&image);
    (image, files)
}

/// Makes an almost empty volume with poison in its free space: `/empty`; `/odd` of 100,001 bytes; `/sparse`, a hole of 1 MiB.
pub fn bare(dir: &Path, recipe: &Recipe) -> PathBuf {
    let source = dir.join("source");
    std::fs::create_dir_all(&source).unwrap();
    std::fs::write(source.join("empty"), b"").unwrap();
    std::fs::write(source.join("odd"), vec![0x55; 100_001]).unwrap();
    let sparse = std::fs::File::create(source.join("sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    poisoned(dir, recipe, &source)
}

fn plain_files(source: &Path, recipe: &Recipe, rng: &mut Rng) -> Vec<Known> {
    let mut files = Vec::new();
    for (name, size) in [
        ("empty", 0),
        ("tiny", 700),
        ("odd", 3 * 65536 + 777),
        ("even", 1 << 20),
    ] {
        let mut bytes = vec![0; size];
        rng.fill(&mut bytes);
        std::fs::write(source.join(name), &bytes).unwrap();
        files.push(Known::new(&format!("/{name}"), bytes, recipe.block));
    }
    // A sparse file: 64 KiB of data, 64 KiB of hole, and so on; it ends in a hole.
    let size = 10 * 65536 + 4096 + 100;
    let mut sparse = Known::new("/sparse", vec![0; size], recipe.block);
    let file = std::fs::File::create(source.join("sparse")).unwrap();
    file.set_len(size as u64).unwrap();
    for run in 0..11u64 {
        let (from, to) = (run * 65536, ((run + 1) * 65536).min(size as u64));
        if run % 2 == 0 && run < 10 {
            let part = &mut sparse.bytes[from as usize..to as usize];
            rng.fill(part);
            std::os::unix::fs::FileExt::write_all_at(&file, part, from).unwrap();
        } else {
            sparse.unwrite(from / recipe.block, to.div_ceil(recipe.block));
        }
    }
    files.push(sparse);
    files
}

/// Writes a host file with a hole for every other page in its first half, and with holes of several pages in the second.
fn write_sparse(path: &Path, known: &mut Known, rng: &mut Rng) {
    let file = std::fs::File::create(path).unwrap();
    let size = known.bytes.len() as u64;
    file.set_len(size).unwrap();
    let (pages, mut data) = (size.div_ceil(4096), true);
    for page in 0..pages {
        data = if page < pages / 2 {
            !data
        } else {
            data ^ (rng.below(8) == 0)
        };
        let (from, to) = (page * 4096, ((page + 1) * 4096).min(size));
        if data {
            let part = &known.bytes[from as usize..to as usize];
            std::os::unix::fs::FileExt::write_all_at(&file, part, from).unwrap();
        } else {
            known.unwrite(from / known.block, to.div_ceil(known.block));
        }
    }
}

fn poisoned(dir: &Path, recipe: &Recipe, source: &Path) -> PathBuf {
    let image = dir.join("image");
    let megabytes: usize = recipe.size.trim_end_matches('M').parse().unwrap();
    std::fs::write(&image, vec![POISON; megabytes << 20]).unwrap();
    let (p, s) = (image.to_str().unwrap(), source.to_str().unwrap());
    let all: Vec<&str> = ["-q", "-F", "-E", "nodiscard,lazy_itable_init=0", "-d", s]
        .into_iter()
        .chain(recipe.args.iter().copied())
        .chain([p])
        .collect();
    run("mke2fs", &all);
    image
}

/// Punches two of three groups of blocks in places, every other block in one stretch, and allocates some of the holes unwritten.
fn punch_and_allocate(script: &mut String, file: &mut Known, recipe: &Recipe, rng: &mut Rng) {
    let cluster = recipe.cluster;
    let mut punch = |file: &mut Known, from: u64, to: u64| {
        writeln!(script, "punch {} {from} {}", file.path, to - 1).unwrap();
        file.unwrite(from, to);
    };
    let stretch = 1000 / cluster;
    for n in (0..stretch).step_by(2) {
        punch(file, n * cluster, (n + 1) * cluster);
    }
    for _ in 0..10 {
        let from = (1000 / cluster + rng.below(400 / cluster)) * cluster;
        punch(file, from, from + cluster * (1 + rng.below(20 / cluster)));
    }
    if recipe.extents && cluster == 1 {
        // One long unwritten run, whatever the seed.
        punch(file, 1440, 1450);
        writeln!(script, "fallocate {} 1440 1449", file.path).unwrap();
        for _ in 0..40 {
            let from = rng.below(1400);
            // Allocates unwritten blocks in what were holes; written blocks stay.
            writeln!(
                script,
                "fallocate {} {from} {}",
                file.path,
                from + rng.below(12)
            )
            .unwrap();
        }
    }
}

pub fn debugfs(image: &Path, dir: &Path, script: &str) {
    let path = dir.join("script");
    std::fs::write(&path, script).unwrap();
    let out = run(
        "debugfs",
        &["-w", "-f", path.to_str().unwrap(), image.to_str().unwrap()],
    );
    let complaints: Vec<&str> = out
        .lines()
        .filter(|l| !(l.is_empty() || l.starts_with("debugfs") || l.starts_with("Allocated inode")))
        .collect();
    assert!(complaints.is_empty(), "{complaints:?}");
}
