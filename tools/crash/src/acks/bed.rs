//! What it is: makes the images that a workload begins with.
//! Input: where the journal is, whether the volume is a file in another one, the block size. Output: an image per disk, and the
//! files on the volume under test.
//! Invariants: the bottom disk is filled with the stale pattern before mke2fs runs; `e2fsck -fn` finds nothing on any volume.
//! Limits: a journal on a disk of its own is made through a loop device of the host, so only root can make it.

use super::fsck;
use super::history::Start;
use super::names::{DIRS, SYNC_DIR, dir_path};
use crate::bed::scratch;
use crate::error::{Result, at};
use crate::stamp::{SECTOR, STALE, fill};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use xtask::loopback::Loop;
use xtask::run;

/// The arrangement of volume and journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The journal of the bottom volume has a disk of its own.
    pub apart: bool,
    /// The volume under test is a file in the bottom volume.
    pub inside: bool,
    /// Bytes per block.
    pub block: u32,
}

impl Place {
    /// All arrangements; those with a journal disk only if `apart` is set.
    #[must_use]
    pub fn all(apart: bool) -> Vec<Place> {
        let all = [1024, 4096].into_iter().flat_map(|block| {
            [(false, false), (false, true), (true, false), (true, true)].map(|(apart, inside)| {
                Place {
                    apart,
                    inside,
                    block,
                }
            })
        });
        all.filter(|place| apart || !place.apart).collect()
    }

    /// The name that the command line uses.
    #[must_use]
    pub fn short(self) -> &'static str {
        match (self.inside, self.apart) {
            (false, false) => "disk",
            (true, false) => "loop",
            (false, true) => "journal-disk",
            (true, true) => "loop-journal-disk",
        }
    }

    /// The arrangement in words, for reports.
    #[must_use]
    pub fn name(self) -> String {
        let inside = if self.inside { "a loop device, " } else { "" };
        let apart = if self.apart { "a journal disk, " } else { "" };
        format!("{inside}{apart}blocks of {}", self.block)
    }
}

/// The file that holds the volume, if it is inside another one.
pub const INNER: &str = "/inner";
/// A file in the bottom volume, beside that one.
pub const BESIDE: &str = "/beside";

/// The images of all disks. See the module.
#[derive(Debug)]
pub struct Bed {
    /// The arrangement.
    pub place: Place,
    /// The images of the disks: the volume's, then the journal's.
    pub images: Vec<Vec<u8>>,
    /// The files on the volume under test.
    pub files: Vec<Start>,
}

/// A file to be made.
#[derive(Clone, Copy)]
struct Plan {
    path: &'static str,
    size: u64,
    kind: Kind,
    /// Set the flag S (synchronous writes).
    sync: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Full,
    /// Every other block of 4 KiB is a hole.
    Comb,
    Hole,
    Unwritten,
}

/// The number of the file that is appended to.
pub const LOG: u32 = 3;

const PLANS: [Plan; 8] = [
    plan("/full", 48 << 10, Kind::Full, false),
    plan("/comb", 96 << 10, Kind::Comb, false),
    plan("/unwritten", 96 << 10, Kind::Unwritten, false),
    plan("/log", 0, Kind::Hole, false),
    plan("/sync-full", 16 << 10, Kind::Full, true),
    plan("/sync-unwritten", 64 << 10, Kind::Unwritten, true),
    plan("/hole", 96 << 10, Kind::Hole, false),
    plan("/small", 4 << 10, Kind::Full, false),
];

const fn plan(path: &'static str, size: u64, kind: Kind, sync: bool) -> Plan {
    Plan {
        path,
        size,
        kind,
        sync,
    }
}

/// True if the file with this number has the flag S from the beginning.
#[must_use]
pub fn is_sync(file: u32) -> bool {
    PLANS.get(file as usize).is_some_and(|p| p.sync)
}

const MIB: u64 = 1 << 20;

impl Bed {
    /// Makes the images.
    ///
    /// # Errors
    /// A tool is missing or fails; the host has no room.
    pub fn make(place: Place) -> Result<Bed> {
        let scratch = scratch()?;
        let dir = scratch.path();
        let source = dir.join("source");
        write_sources(&source)?;
        let (image, journal) = (dir.join("image"), dir.join("journal"));
        // The smallest journal that mke2fs accepts has 1024 blocks.
        let log = u64::from(place.block) * 1024 / MIB;
        if place.inside {
            let (outer, small) = (dir.join("outer"), u64::from(place.block.min(1024)));
            std::fs::create_dir(&outer).map_err(at(&outer))?;
            let inner = outer.join(&INNER[1..]);
            // The file begins as a hole, so writes to the inner volume allocate blocks in the outer one.
            File::create(&inner)
                .and_then(|f| f.set_len(6 * MIB))
                .map_err(at(&inner))?;
            make(&inner, small as u32, &["-J", "size=1"], &source)?;
            finish(&inner)?;
            std::fs::write(outer.join(&BESIDE[1..]), vec![1; 64 << 10]).map_err(at(&outer))?;
            bottom(place, (&image, &journal), 9 * MIB + log * MIB, &outer)?;
        } else {
            bottom(place, (&image, &journal), 5 * MIB + log * MIB, &source)?;
            finish(&image)?;
        }
        let mut images = vec![std::fs::read(&image).map_err(at(&image))?];
        if place.apart {
            images.push(std::fs::read(&journal).map_err(at(&journal))?);
        }
        let bed = Bed {
            place,
            images,
            files: PLANS.iter().map(start).collect(),
        };
        fsck::Scratch::new()?.check(place, &bed.images)?;
        Ok(bed)
    }
}

fn start(plan: &Plan) -> Start {
    let sector = SECTOR as u64;
    let sectors = |range: std::ops::Range<u64>| range.start / sector..range.end / sector;
    Start {
        path: Some(plan.path.into()),
        size: plan.size,
        data: pieces(plan).into_iter().map(sectors).collect(),
    }
}

/// The ranges of bytes that hold data.
fn pieces(plan: &Plan) -> Vec<std::ops::Range<u64>> {
    const TOOTH: u64 = 4096;
    match plan.kind {
        Kind::Full => vec![std::ops::Range {
            start: 0,
            end: plan.size,
        }],
        Kind::Comb => (0..plan.size / TOOTH)
            .step_by(2)
            .map(|n| n * TOOTH..(n + 1) * TOOTH)
            .collect(),
        Kind::Hole | Kind::Unwritten => Vec::new(),
    }
}

fn write_sources(root: &Path) -> Result<()> {
    for dir in 0..DIRS {
        let dir = root.join(&dir_path(dir)[1..]);
        std::fs::create_dir_all(&dir).map_err(at(&dir))?;
    }
    for (number, plan) in (0..).zip(&PLANS) {
        let path = root.join(&plan.path[1..]);
        write_source(&path, number, plan).map_err(at(&path))?;
    }
    Ok(())
}

fn write_source(path: &Path, number: u32, plan: &Plan) -> std::io::Result<()> {
    let file = File::create(path)?;
    file.set_len(plan.size)?;
    for piece in pieces(plan) {
        let len = usize::try_from(piece.end - piece.start).unwrap_or(0);
        let mut bytes = vec![0; len];
        fill(&mut bytes, number, piece.start / SECTOR as u64, 0);
        file.write_all_at(&bytes, piece.start)?;
    }
    Ok(())
}

/// Makes the bottom volume with the files below `source`, and its journal.
fn bottom(place: Place, (image, journal): (&Path, &Path), size: u64, source: &Path) -> Result<()> {
    let stale = |path: &Path, size: u64| {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        std::fs::write(path, vec![STALE; size]).map_err(at(path))
    };
    stale(image, size)?;
    if !place.apart {
        let log = format!("size={}", u64::from(place.block) * 1024 / MIB);
        return make(image, place.block, &["-J", &log], source);
    }
    stale(journal, u64::from(place.block) * 1100)?;
    let device = Loop::attach(journal, &[])?;
    let block = place.block.to_string();
    let args = [
        "-q",
        "-F",
        "-O",
        "journal_dev",
        "-b",
        &block,
        device.device(),
    ];
    run::run("mke2fs", &args)?;
    let log = format!("device={}", device.device());
    make(image, place.block, &["-J", &log], source)
}

fn make(image: &Path, block: u32, log: &[&str], source: &Path) -> Result<()> {
    let (image, source) = (image.display().to_string(), source.display().to_string());
    let block = block.to_string();
    let mut args = vec!["-q", "-F", "-t", "ext4", "-b", &block, "-I", "256"];
    args.extend(["-m", "0", "-N", "512", "-d", &source]);
    args.extend(["-E", "nodiscard,lazy_itable_init=0"]);
    args.extend(log);
    args.push(&image);
    run::run("mke2fs", &args)?;
    Ok(())
}

/// Preallocates blocks and sets flags with debugfs.
fn finish(image: &Path) -> Result<()> {
    let name = image.display().to_string();
    let of_image = |request: &str| run::run("debugfs", &["-w", "-R", request, &name]);
    let block = block_of(image)?;
    for plan in &PLANS {
        if plan.kind == Kind::Unwritten {
            let last = plan.size / block - 1;
            of_image(&format!("fallocate {} 0 {last}", plan.path))?;
        }
        if plan.sync {
            // EXT4_EXTENTS_FL and EXT4_SYNC_FL.
            of_image(&format!("sif {} flags 0x80008", plan.path))?;
        }
    }
    // EXT4_EXTENTS_FL and EXT4_DIRSYNC_FL.
    of_image(&format!("sif {} flags 0x90000", dir_path(SYNC_DIR)))?;
    Ok(())
}

fn block_of(image: &Path) -> Result<u64> {
    let mut bytes = [0; 4];
    let file = File::open(image).map_err(at(image))?;
    // s_log_block_size.
    file.read_exact_at(&mut bytes, 1024 + 24)
        .map_err(at(image))?;
    Ok(1024 << u32::from_le_bytes(bytes).min(6))
}
