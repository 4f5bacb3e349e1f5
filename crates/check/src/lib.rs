//! A consistency check of a whole volume that changes nothing: judges as `e2fsck -n`, in passes with large reads, by several
//! threads.
//!
//! It trusts no number. It uses only the parsers of `diorite-format` and a device that shows the recovered volume; the engine's
//! code that reads a volume for users takes no part in judging it.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `source` | a device -> superblock and descriptors, with the journal replayed in memory |
//! | `fixed`, `space` | structures at fixed places -> clusters in use, one bit each |
//! | `context`, `met`, `parents` | shared by the passes: the volume, the inodes found, the parents of directories |
//! | `orphans` | the superblock -> orphaned inodes |
//! | `inodes`, `judge`, `own`, `bad_blocks` | inode tables -> every inode judged by itself |
//! | `remnants` | the superblock -> what it names without the feature |
//! | `walk`, `maps` | an inode -> the blocks of its map, claimed |
//! | `attributes`, `values` | inodes, blocks -> attributes judged, references counted, values read |
//! | `directories`, `entries`, `hashed` | directories -> names counted, hash trees judged |
//! | `link_counts`, `links` | names counted -> link counts judged, lost inodes |
//! | `bitmaps` | what is in use -> bitmaps and counters judged |
//! | `copies` | copies of superblock and descriptors -> notes |
//! | `usage`, `quota` | space of inodes -> usage files of quotas judged |
//! | `owners`, `paths` | findings -> the owners of shared blocks, and the paths |
//! | `report`, `threads`, `reader` | the findings; threads; reads |
//!
//! Input: a device or a locator. Output: a [`Report`]. Invariants: nothing is written; memory grows with the size of the device
//! and with what is in use, never with an unchecked number; the findings do not depend on the number of threads. Limits: copies
//! of the superblock and of descriptors are used only if the first ones are invalid, and a useless copy is a note: `e2fsck -fn`
//! does not notice wiped copies either.
//!
//! # Passes
//!
//! `check` opens the volume as a reader does, so a journal is replayed in memory. Then it reads that device in passes:
//!
//! 1. Structures at fixed places are claimed.
//! 2. All threads read the inode tables in stripes of a MiB, group by group. Every inode is judged by itself, and the blocks of
//!    its map are claimed, with one atomic bit per cluster.
//! 3. Attribute blocks and targets of links are read in the order in which they lie on the volume.
//! 4. All threads read directories, count names and judge hash trees.
//! 5. Link counts, the way from each directory to the root, bitmaps, counters, copies and usage files of quotas are compared.
//!
//! Orphans are judged as what they will be: neither their sizes nor the names in an orphaned directory count. Memory: eight
//! bytes per inode in groups with an inode in use, one bit per cluster, and with quotas an entry for each user, group and
//! project that has an inode. A block of a map that was claimed before is not read again, so the passes end whatever the bytes
//! are. The owners of shared blocks and the paths of findings are searched in passes of their own, and only if there are
//! findings.

#![deny(unsafe_code)]

mod attributes;
mod bad_blocks;
mod bitmaps;
mod context;
mod copies;
mod directories;
mod entries;
mod fixed;
mod hashed;
mod inodes;
mod judge;
mod link_counts;
mod links;
mod maps;
mod met;
mod orphans;
mod own;
mod owners;
mod parents;
mod paths;
mod quota;
mod reader;
mod remnants;
mod report;
mod source;
mod space;
mod threads;
mod usage;
mod values;
mod walk;

/// Compiles the examples in the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use report::{Finding, Findings, Kind, Report, Stale, Totals};
pub use threads::{Progress, Watch};

use context::Check;
use diorite::Error;
use diorite::OpenOptions;
use diorite_block::{Device, Locator};
use link_counts::LinkCounts;
use orphans::Orphans;
use parents::Directories;
use report::Collector;
use space::Space;
use std::sync::Arc;
use threads::Threads;

/// How to check.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckOptions {
    /// Number of threads, 1 or more.
    pub threads: usize,
    /// The number of findings of each kind that are kept; all are counted.
    pub per_kind: usize,
    /// How the volume is opened; never for writing.
    pub open: OpenOptions,
}

diorite_block::setters! {
    CheckOptions {
        threads: usize,
        per_kind: usize,
        open: OpenOptions,
    } option {
    }
}

impl Default for CheckOptions {
    /// One thread per CPU, 20 findings of each kind.
    fn default() -> CheckOptions {
        CheckOptions {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            per_kind: 20,
            open: OpenOptions::default(),
        }
    }
}

/// Checks the volume at a locator, through the host's page cache. Blocks; `watch` is called from several threads.
///
/// ```no_run
/// use diorite_check::{CheckOptions, check};
///
/// # fn main() -> Result<(), diorite::Error> {
/// let report = check("disk.img", &CheckOptions::default(), &|_progress| ())?;
/// for (kind, finding) in report.kept() {
///     println!("{kind}: {finding}");
/// }
/// println!("{}", if report.is_clean() { "clean" } else { "damaged" });
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// What prevents a check: the locator, the device, no file system, or one with unknown features. Damage is in the report.
pub fn check(locator: &str, options: &CheckOptions, watch: Watch<'_>) -> Result<Report, Error> {
    let open = read_only(&options.open);
    let device = diorite::probe::open(&Locator::parse(locator)?, &open)?;
    check_device(&device, options, watch)
}

/// Checks the volume on a given device. Blocks.
///
/// ```
/// use diorite::device::{Device, MemDevice};
/// use diorite::mkfs::{MkfsOptions, mkfs};
/// use diorite_check::{CheckOptions, check_device};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), diorite::Error> {
/// let device: Arc<dyn Device> = Arc::new(MemDevice::new(16 << 20));
/// mkfs(&device, &MkfsOptions::new([1; 16], [2; 16], 1_700_000_000))?;
/// let options = CheckOptions::default().threads(2).per_kind(5);
/// assert!(check_device(&device, &options, &|_progress| ())?.is_clean());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`check`].
pub fn check_device(
    device: &Arc<dyn Device>,
    options: &CheckOptions,
    watch: Watch<'_>,
) -> Result<Report, Error> {
    let found = Collector::new(options.per_kind);
    let Some(source) = source::look(device, &read_only(&options.open), &found)? else {
        return Ok(found.snapshot(Totals::default()));
    };
    let orphans = Orphans::find(&source, &found)?;
    let check = Check {
        space: &Space::new(&source.sb),
        link_counts: &LinkCounts::new(&source.sb, &source.groups),
        orphans: &orphans,
        found: &found,
        threads: Threads {
            threads: options.threads,
            watch,
        },
        source: &source,
    };
    let (totals, directories) = passes(&check)?;
    let mut report = found.snapshot(totals);
    paths::fill(&check, &directories, &mut report)?;
    Ok(report)
}

fn read_only(options: &OpenOptions) -> OpenOptions {
    options.clone().write(false)
}

/// Runs all passes, in an order in which each has the data that it compares with.
fn passes(check: &Check<'_>) -> Result<(Totals, Directories), Error> {
    let fixed = fixed::claim(check.source, check.space, check.found)?;
    let mut met = inodes::all(check)?;
    let attributes = met.attributes.clone();
    own::journal(check)?;
    remnants::all(check)?;
    attributes::blocks(check, &mut met)?;
    values::all(check, &mut met)?;
    attributes::targets(check, &met)?;
    let blocks = check.source.sb.geometry().blocks_count();
    let directories = Directories::new(&met.directories, blocks);
    directories::all(check, &directories)?;
    links::counts(check);
    links::ways(check, &directories);
    bitmaps::all(check, &fixed)?;
    copies::all(check)?;
    quota::all(check, &mut met.usage)?;
    if check.space.doubles() > 0 && check.space.is_shared() {
        let what = "files share blocks, as the feature shared_blocks says";
        check.found.note(what);
    } else if check.space.doubles() > 0 {
        owners::name(check, &attributes)?;
    }
    let used = |g: &diorite_format::GroupDesc| u64::from(check.space.used_in(g.group));
    let clusters: u64 = check.source.groups.iter().map(used).sum();
    let totals = Totals {
        inodes: met.inodes,
        directories: met.directories.len() as u64,
        names: directories.names(),
        blocks: clusters * u64::from(check.source.sb.geometry().cluster_ratio()),
    };
    Ok((totals, directories))
}
