//! What it is: the image that a workload begins with.
//! Input: a mode, a size, a seed. Output: the image's bytes, and the files in it with every sector stamped.
//! The host file is full of the stale pattern before mke2fs runs, so space that nobody wrote to betrays itself.
//! Invariant: `e2fsck -fn` is silent on it. Limit: the files are small; most of the image is free space.

use crate::error::{Result, at};
use crate::history::Start;
use crate::rng::Rng;
use crate::stamp::{SECTOR, STALE, fill};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use xtask::run;

/// How data and journal go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A journal, `data=ordered`.
    Ordered,
    /// A journal, `data=writeback` as the volume's default.
    Writeback,
    /// No journal. No power cut tears a block then.
    None,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 3] = [Mode::Ordered, Mode::Writeback, Mode::None];

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
    /// How data and journal go together.
    pub mode: Mode,
}

/// Combinations that the seed chooses from: bytes per block, and what mke2fs is told.
const SHAPES: [(u32, &[&str]); 4] = [
    (4096, &["-t", "ext4"]),
    (1024, &["-t", "ext4", "-O", "metadata_csum,64bit"]),
    (1024, &["-t", "ext4", "-O", "^metadata_csum,^64bit"]),
    (4096, &["-t", "ext3"]),
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
        let files = sources(&source, &mut rng)?;
        let size = usize::try_from(mib << 20).unwrap_or(usize::MAX);
        std::fs::write(&image, vec![STALE; size]).map_err(at(&image))?;
        mke2fs(&image, &source, block, args, mode)?;
        run::check(&image)?;
        Ok(Bed {
            image: std::fs::read(&image).map_err(at(&image))?,
            files,
            block,
            mode,
        })
    }

    /// Between which multiples a write may be torn. Without a journal metadata blocks must not be, and nobody below can tell
    /// them from data.
    #[must_use]
    pub fn tear_unit(&self) -> usize {
        match self.mode {
            Mode::None => self.block as usize,
            Mode::Ordered | Mode::Writeback => SECTOR,
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
    let block = block.to_string();
    let mut all = vec![
        "-q",
        "-F",
        "-E",
        "nodiscard,lazy_itable_init=0",
        "-d",
        &source,
    ];
    all.extend(["-b", &block]);
    all.extend(args);
    if mode == Mode::None {
        all.extend(["-O", "^has_journal"]);
    }
    all.push(&image);
    run::run("mke2fs", &all)?;
    if mode == Mode::Writeback {
        run::run("tune2fs", &["-o", "journal_data_writeback", &image])?;
    }
    Ok(())
}

/// The files that mke2fs copies in: whole blocks, odd ends, one in a directory.
fn sources(root: &Path, rng: &mut Rng) -> Result<Vec<Start>> {
    let inner = root.join("dir");
    std::fs::create_dir_all(&inner).map_err(at(&inner))?;
    let sizes = [
        4096,
        16 << 10,
        (48 << 10) + 700,
        64 << 10,
        256 << 10,
        (4096 + rng.below(200 << 10)) & !511,
    ];
    let mut files = Vec::new();
    for (number, size) in (0..).zip(sizes) {
        let path = if number % 2 == 0 {
            format!("/file-{number}")
        } else {
            format!("/dir/file-{number}")
        };
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        fill(&mut bytes, number, 0, 0);
        let source: PathBuf = root.join(&path[1..]);
        std::fs::write(&source, bytes).map_err(at(&source))?;
        files.push(Start { path, size });
    }
    Ok(files)
}
