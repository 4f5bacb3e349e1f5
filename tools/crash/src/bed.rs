//! What it is: the image that a workload begins with.
//! Input: a mode, a size, a seed. Output: the image's bytes, and the files in it with every sector stamped.
//! The host file is full of the stale pattern before mke2fs runs, so space that nobody wrote to betrays itself.
//! Invariant: `e2fsck -fn` is silent on it. Limit: the files are small; most of the image is free space.

use crate::error::{Result, at};
use crate::history::{Start, Usage};
use crate::names::TOP;
use crate::rng::Rng;
use crate::stamp::{SECTOR, STALE, fill};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use xtask::run;

/// How data and journal go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A journal, `data=ordered`.
    Ordered,
    /// A journal, `data=writeback` as the volume's default.
    Writeback,
    /// A journal, `data=journal` as the volume's default.
    Journal,
    /// No journal. No power cut tears a block then.
    None,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 4] = [Mode::Ordered, Mode::Writeback, Mode::Journal, Mode::None];

    /// By the name that the command line and reports use.
    #[must_use]
    pub fn named(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// See [`Mode::named`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Ordered => "ordered",
            Mode::Writeback => "writeback",
            Mode::Journal => "journal",
            Mode::None => "none",
        }
    }
}

/// An image to begin with.
#[derive(Debug)]
pub struct Bed {
    /// The image.
    pub image: Vec<u8>,
    /// Its stamped files.
    pub files: Vec<Start>,
    /// Bytes per block.
    pub block: u32,
    /// What mke2fs was told beside that.
    pub shape: String,
    /// How data and journal go together.
    pub mode: Mode,
}

/// Blocks of the file in which every other one is a hole: more pieces than a leaf of 1 KiB holds extents.
const COMB: u64 = 200;

/// The same of a file for large truncations: more leaves than one handle changes, where blocks are small.
const LONG_COMB: u64 = 1600;
/// Its bytes at most.
const LONGEST: u64 = 1600 << 10;

/// Names of files that a workload makes and removes.
const NEW: [&str; 3] = ["/new-0", "/dir/new-1", "/dir/new-2"];

/// Bytes of the blocks of [`SHAPES`].
pub(crate) const SMALLEST_BLOCK: u64 = 1024;
pub(crate) const LARGEST_BLOCK: u64 = 4096;

/// Combinations that the seed chooses from: bytes per block, and what mke2fs is told.
const SHAPES: [(u32, &[&str]); 8] = [
    (4096, &["-t", "ext4"]),
    (1024, &["-t", "ext4", "-O", "metadata_csum,64bit"]),
    (1024, &["-t", "ext4", "-O", "^metadata_csum,^64bit"]),
    (4096, &["-t", "ext3"]),
    (4096, &["-t", "ext4", "-O", "inline_data,ea_inode"]),
    (
        1024,
        &[
            "-t",
            "ext4",
            "-I",
            "512",
            "-O",
            "inline_data,ea_inode,^metadata_csum",
        ],
    ),
    (
        1024,
        &["-t", "ext4", "-O", "bigalloc,ea_inode", "-C", "4096"],
    ),
    (
        4096,
        &["-t", "ext4", "-O", "bigalloc,inline_data", "-C", "16384"],
    ),
];

impl Bed {
    /// Makes one.
    ///
    /// # Errors
    /// A tool is missing or fails; the host has no room.
    pub fn make(mode: Mode, mib: u64, seed: u64) -> Result<Bed> {
        let mut rng = Rng::new(seed);
        let (block, args) = *rng.pick(&SHAPES);
        let scratch = scratch()?;
        let (image, source) = (scratch.path().join("image"), scratch.path().join("source"));
        let sources = sources(u64::from(block), &mut rng);
        let files = write_sources(&source, &sources)?;
        let size = usize::try_from(mib << 20).unwrap_or(usize::MAX);
        std::fs::write(&image, vec![STALE; size]).map_err(at(&image))?;
        mke2fs(&image, &source, block, args, mode)?;
        if args.contains(&"ext4") {
            let inside = args.iter().any(|arg| arg.contains("inline_data"));
            preallocate(&image, &files, &sources, inside)?;
        }
        run::check(&image)?;
        Ok(Bed {
            image: std::fs::read(&image).map_err(at(&image))?,
            files,
            block,
            shape: args.join(" "),
            mode,
        })
    }

    /// Between which multiples a write may be torn. Without a journal metadata blocks must not be, and nobody below can tell
    /// them from data.
    #[must_use]
    pub fn tear_unit(&self) -> usize {
        match self.mode {
            Mode::None => self.block as usize,
            Mode::Ordered | Mode::Writeback | Mode::Journal => SECTOR,
        }
    }
}

/// A scratch directory, in memory where the host offers that.
pub(crate) fn scratch() -> Result<tempfile::TempDir> {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() {
        shm.to_path_buf()
    } else {
        std::env::temp_dir()
    };
    let made = tempfile::Builder::new()
        .prefix("diorite-crash-")
        .tempdir_in(&parent);
    made.map_err(at(&parent))
}

fn mke2fs(image: &Path, source: &Path, block: u32, args: &[&str], mode: Mode) -> Result<()> {
    let (image, source) = (image.display().to_string(), source.display().to_string());
    let block = (block.to_string(), block);
    let mut all = vec![
        "-q",
        "-F",
        "-E",
        "nodiscard,lazy_itable_init=0",
        "-d",
        &source,
    ];
    all.extend(["-b", &block.0]);
    all.extend(args);
    // The smallest journal that there may be, so that the log wraps.
    let journal = format!("size={}", (u64::from(block.1) * 1024) >> 20);
    if mode == Mode::None {
        all.extend(["-O", "^has_journal"]);
    } else {
        all.extend(["-J", &journal]);
    }
    all.push(&image);
    run::run("mke2fs", &all)?;
    let default = match mode {
        Mode::Writeback => Some("journal_data_writeback"),
        Mode::Journal => Some("journal_data"),
        Mode::Ordered | Mode::None => None,
    };
    if let Some(default) = default {
        run::run("tune2fs", &["-o", default, &image])?;
    }
    Ok(())
}

/// A file to be copied in.
struct Source {
    size: u64,
    /// Bytes that hold data; the rest is holes.
    data: Vec<Range<u64>>,
    /// Blocks to be preallocated, on volumes that can.
    unwritten: Option<Range<u64>>,
    usage: Usage,
}

impl Source {
    fn full(size: u64) -> Source {
        Source::sparse(size, std::iter::once(0..size))
    }

    fn sparse(size: u64, data: impl IntoIterator<Item = Range<u64>>) -> Source {
        Source {
            size,
            data: data.into_iter().collect(),
            unwritten: None,
            usage: Usage::Together,
        }
    }

    /// Every other block is a hole.
    fn comb(blocks: u64, block: u64) -> Source {
        let teeth = (0..blocks).step_by(2);
        Source::sparse(blocks * block, teeth.map(|n| n * block..(n + 1) * block))
    }

    fn alone(self) -> Source {
        let usage = Usage::Alone;
        Source { usage, ..self }
    }
}

/// Whole blocks, odd ends, a few bytes, every other block a hole, few blocks in a large hole, nothing at all, preallocated; then those that are changed by one
/// request at a time.
fn sources(block: u64, rng: &mut Rng) -> Vec<Source> {
    let middle = (400 << 10)..(400 << 10) + 4 * block;
    vec![
        Source::full(4096),
        Source::full(16 << 10),
        Source::full((48 << 10) + 700),
        Source::full(64 << 10),
        Source::full(256 << 10),
        Source::full((4096 + rng.below(200 << 10)) & !511),
        // In its inode, where the volume can.
        Source::full(100),
        Source::comb(COMB, block),
        Source::sparse(1 << 20, [middle]),
        Source::sparse(0, []),
        Source {
            unwritten: Some(1..40),
            ..Source::sparse(24 * block, std::iter::once(0..block))
        },
        Source {
            unwritten: Some(0..30),
            ..Source::sparse(0, [])
        },
        Source::full(160 << 10).alone(),
        Source::comb(LONG_COMB.min(LONGEST / block), block).alone(),
        Source::comb(LONG_COMB.min(LONGEST / block), block).alone(),
    ]
}

/// Writes the sources below `root`, every other one in a directory.
fn write_sources(root: &Path, sources: &[Source]) -> Result<Vec<Start>> {
    let inner = root.join("dir");
    std::fs::create_dir_all(&inner).map_err(at(&inner))?;
    let tree = root.join(&TOP[1..]);
    std::fs::create_dir_all(&tree).map_err(at(&tree))?;
    let mut files = Vec::new();
    for (number, source) in (0..).zip(sources) {
        let path = if number % 2 == 0 {
            format!("/file-{number}")
        } else {
            format!("/dir/file-{number}")
        };
        let on_host = root.join(&path[1..]);
        write_source(&on_host, number, source).map_err(at(&on_host))?;
        let sector = SECTOR as u64;
        let sectors = source.data.iter();
        files.push(Start {
            path,
            size: source.size,
            data: sectors
                .map(|d| d.start / sector..d.end.div_ceil(sector))
                .collect(),
            usage: source.usage,
        });
    }
    files.extend(NEW.map(|path| Start {
        path: path.into(),
        size: 0,
        data: Vec::new(),
        usage: Usage::New,
    }));
    Ok(files)
}

fn write_source(path: &Path, number: u32, source: &Source) -> std::io::Result<()> {
    let file = File::create(path)?;
    file.set_len(source.size)?;
    for data in &source.data {
        let len = usize::try_from(data.end - data.start).unwrap_or(0);
        let mut bytes = vec![0; len];
        fill(&mut bytes, number, data.start / SECTOR as u64, 0);
        file.write_all_at(&bytes, data.start)?;
    }
    Ok(())
}

/// Preallocates what the sources ask for, where files have extents: of the empty ones not those that may be `inside` their inodes. On volumes with such
/// files mke2fs makes every file end with its data, so sizes are set again.
fn preallocate(image: &Path, files: &[Start], sources: &[Source], inside: bool) -> Result<()> {
    let image = image.display().to_string();
    for (file, source) in files.iter().zip(sources) {
        let (path, size) = (&file.path, source.size);
        let blocks = source.unwritten.as_ref();
        let allocate = blocks.filter(|_| !inside || size > 0).map(|blocks| {
            let last = blocks.end - 1;
            format!("fallocate {path} {} {last}", blocks.start)
        });
        let ends = source.data.last().is_some_and(|data| data.end == size);
        let grow = (inside && !ends && size > 0).then(|| format!("sif {path} size {size}"));
        for request in allocate.into_iter().chain(grow) {
            run::run("debugfs", &["-w", "-R", &request, &image])?;
        }
    }
    Ok(())
}
