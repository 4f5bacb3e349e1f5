//! What it is: makes the image that a workload begins with.
//! Input: a journal mode, a size, a seed. Output: the image's bytes, and a list of the files in it, which have a stamp in every
//! sector.
//! The host file is filled with the stale pattern before mke2fs runs, so space that nobody wrote to can be recognised.
//! Invariant: `e2fsck -fn` finds nothing in it. Limit: the files are small; most of the image is free space.

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

/// How data and the journal work together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A journal, `data=ordered`.
    Ordered,
    /// A journal, `data=writeback` as the volume's default.
    Writeback,
    /// A journal, `data=journal` as the volume's default.
    Journal,
    /// No journal. A power cut then tears no block (see [`Bed::tear_unit`]).
    None,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 4] = [Mode::Ordered, Mode::Writeback, Mode::Journal, Mode::None];

    /// The mode with this name, as the command line and reports use it.
    #[must_use]
    pub fn named(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// The name of this mode; see [`Mode::named`].
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

/// An image for a workload to begin with.
#[derive(Debug)]
pub struct Bed {
    /// The image.
    pub image: Vec<u8>,
    /// Its stamped files.
    pub files: Vec<Start>,
    /// Bytes per block.
    pub block: u32,
    /// The options of mke2fs, except the block size.
    pub shape: String,
    /// How data and journal go together.
    pub mode: Mode,
}

/// Blocks of the file in which every other block is a hole: it has more extents than a leaf of 1 KiB holds.
const COMB: u64 = 200;

/// The same for the files of large truncations: more leaves than one handle changes, if blocks are small.
const LONG_COMB: u64 = 1600;
/// The size limit of these files in bytes.
const LONGEST: u64 = 1600 << 10;

/// Names of files that a workload creates and removes.
const NEW: [&str; 3] = ["/new-0", "/dir/new-1", "/dir/new-2"];

/// The block sizes of [`SHAPES`] in bytes.
pub(crate) const SMALLEST_BLOCK: u64 = 1024;
pub(crate) const LARGEST_BLOCK: u64 = 4096;

/// Combinations that the seed chooses from: bytes per block, and options of mke2fs.
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
    /// Makes an image.
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

    /// A torn write ends at a multiple of this many bytes. Without a journal, metadata blocks must not be torn, and the device
    /// cannot distinguish them from data.
    #[must_use]
    pub fn tear_unit(&self) -> usize {
        match self.mode {
            Mode::None => self.block as usize,
            Mode::Ordered | Mode::Writeback | Mode::Journal => SECTOR,
        }
    }
}

/// A scratch directory, in memory if the host has `/dev/shm`.
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
    // The smallest journal that mke2fs accepts (1,024 blocks), so that the log wraps.
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

/// A file that mke2fs copies into the image.
struct Source {
    size: u64,
    /// The bytes that hold data; the rest is holes.
    data: Vec<Range<u64>>,
    /// Blocks to preallocate, if the volume has extents.
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

    /// A file in which every other block is a hole.
    fn comb(blocks: u64, block: u64) -> Source {
        let teeth = (0..blocks).step_by(2);
        Source::sparse(blocks * block, teeth.map(|n| n * block..(n + 1) * block))
    }

    fn cached(self) -> Source {
        let usage = Usage::Cached;
        Source { usage, ..self }
    }

    fn alone(self) -> Source {
        let usage = Usage::Alone;
        Source { usage, ..self }
    }
}

/// The files: whole blocks, odd ends, a few bytes, every other block a hole, a few blocks in a large hole, empty, preallocated; the
/// last six are changed by one request at a time, the last three of them mostly through the page cache.
fn sources(block: u64, rng: &mut Rng) -> Vec<Source> {
    let middle = (400 << 10)..(400 << 10) + 4 * block;
    vec![
        Source::full(4096),
        Source::full(16 << 10),
        Source::full((48 << 10) + 700),
        Source::full(64 << 10),
        Source::full(256 << 10),
        Source::full((4096 + rng.below(200 << 10)) & !511),
        // Stored in its inode, if the volume has inline_data.
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
        Source::full(24 << 10).cached(),
        Source::comb(24, block).cached(),
        Source::sparse(0, []).cached(),
    ]
}

/// Writes the sources below `root`, every other one in a subdirectory.
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

/// Preallocates the `unwritten` blocks of the sources; call it only if files have extents. With `inside` (inline_data), empty files
/// are left out, as they may be stored in their inodes. On volumes with inline_data, mke2fs ends every file after its last data, so
/// the sizes are set again.
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
