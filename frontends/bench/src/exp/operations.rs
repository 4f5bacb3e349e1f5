//! What one operation costs: instructions, acquisitions of locks, allocations and system calls.
//!
//! Input: an image made here, with a directory of 1,000 names and one of 1,000,000. Output: a table, `names-instructions`,
//! `locks-create`, `locks-rename`, `locks-unlink`. Invariant: the calls are made by a child under callgrind, on a volume in memory with a
//! journal, so the figures depend on the code alone. Limits: callgrind (valgrind) must be installed; instructions, allocations and system
//! calls are those of the calling thread, locks are those of all threads. Reading the clock is a system call under callgrind, and only
//! there. Allocations and system calls include some of those that prepare the measured calls, as callgrind's counts of calls do. A build
//! without link-time optimisation takes more instructions than those that it is compared with.

use super::super::bed::Scratch;
use super::super::failure::Failure;
use super::super::report::Report;
use super::super::rounds::Spread;
use super::super::targets::{Goal, most};
use super::cost::{Counted, callgrind};
use diorite::mkfs::{MkfsOptions, mkfs};
use diorite::{OpenOptions, Volume};
use diorite_block::{Locator, locator};
use std::path::PathBuf;

/// The directories of the lookups: names and their number.
pub(super) const FEW: (&str, u64) = ("few", 1000);
pub(super) const MANY: (&str, u64) = ("many", 1_000_000);
/// Names of one inode: an inode has at most 65,000.
const PER_INODE: u64 = 50_000;
/// The size from which blocks have 4 KiB: with smaller ones a directory has no room for that many names.
const SIZE: u64 = 512 << 20;

/// An operation, how often it is made, and the instructions that it took before it was made cheaper.
struct Operation {
    word: &'static str,
    what: &'static str,
    count: u64,
    before: Option<f64>,
}

const OPERATIONS: [Operation; 9] = [
    named("create", "create an empty file, and close it", BEFORE[0]),
    named("rename", "move a name to another directory", BEFORE[1]),
    named("unlink", "remove a file's only name", BEFORE[2]),
    one("lookup-few", "look a path up, 1,000 names", 10_000),
    one("lookup-many", "look a path up, 1,000,000 names", 10_000),
    one("small-file", "create, write 8 KiB cached, close", 2_000),
    one("fsync", "overwrite 4 KiB, fsync", 1_000),
    one("fill", "fill 4 KiB of a hole, depth 64", 10_000),
    one("append", "append 4 KiB, depth 64", 10_000),
];

/// Instructions per create, rename and unlink of November 2026 (commit 322d46b3), when each looked up names, inodes and blocks many times.
/// Counted in a release build, with link-time optimisation, by a program with the calls of this experiment's child.
const BEFORE: [f64; 3] = [38_734.0, 56_775.0, 25_411.0];

const fn one(word: &'static str, what: &'static str, count: u64) -> Operation {
    Operation {
        word,
        what,
        count,
        before: None,
    }
}

const fn named(word: &'static str, what: &'static str, before: f64) -> Operation {
    Operation {
        before: Some(before),
        ..one(word, what, 10_000)
    }
}

pub(super) const GOALS: [Goal; 4] = [
    most(
        "names-instructions",
        0.5,
        "instructions per create, rename and unlink / those of November 2026: the largest of the three",
    ),
    most("locks-create", 12.0, "acquisitions of locks per create"),
    most("locks-rename", 16.0, "acquisitions of locks per rename"),
    most("locks-unlink", 14.0, "acquisitions of locks per unlink"),
];

/// Counts each operation, and prints a line for it.
pub(super) fn count(report: &mut Report) -> Result<(), Failure> {
    report.heading(
        "per operation on mem:, one thread: instructions, locks, allocations, system calls",
    )?;
    let dir = Scratch::in_memory()?;
    let image = image(&dir)?;
    let mut largest = 0.0_f64;
    for operation in &OPERATIONS {
        let counted = callgrind(operation.word, &image, operation.count, &dir)?;
        report.note(line(operation, &counted)?)?;
        if let Some(before) = operation.before {
            let (each, word) = (operation.count as f64, operation.word);
            largest = largest.max(counted.instructions / each / before);
            let locks = Spread::of(&[counted.locks()?.1 / each]);
            report.ratio(&format!("locks-{word}"), &locks, "mem:", true)?;
        }
    }
    let largest = Spread::of(&[largest]);
    report.ratio("names-instructions", &largest, "mem:", true)
}

/// An operation's line of the table. Classes that are taken by few of the calls are left out.
fn line(operation: &Operation, counted: &Counted) -> Result<String, Failure> {
    let each = operation.count as f64;
    let (classes, locks) = counted.locks()?;
    let classes = classes.iter().map(|(name, n)| (name, n / each));
    let classes = classes.filter(|(_, n)| *n >= 0.05);
    let classes: Vec<_> = classes.map(|(name, n)| format!("{name} {n:.1}")).collect();
    Ok(format!(
        "{}: {:.0} instructions, {:.1} locks, {:.1} allocations, {:.2} system calls ({})",
        operation.what,
        counted.instructions / each,
        locks / each,
        counted.allocations / each,
        counted.system_calls / each,
        classes.join(", ")
    ))
}

/// The path of a name that is looked up.
pub(super) fn name_in(dir: &str, n: u64) -> String {
    format!("/{dir}/name-{n:07}")
}

/// An image with the directories of the lookups. Their names are links to few inodes, whose number does not matter to a lookup.
fn image(dir: &Scratch) -> Result<PathBuf, Failure> {
    let path = dir.path().join("image");
    let made = std::fs::File::create(&path).and_then(|file| file.set_len(SIZE));
    made.map_err(|e| Failure::host("cannot make an image", e))?;
    let below = locator::open(
        &Locator::file(&path),
        &diorite_block::OpenOptions::default(),
    )?;
    // Any time and numbers: the same ones make the same image.
    let options = MkfsOptions::new([1; 16], [2; 16], 1_700_000_000);
    mkfs(&below, &options).map_err(|e| Failure::host("cannot make a file system", e))?;
    let volume = Volume::open_device(below, &OpenOptions::writable())?;
    for (dir, names) in [FEW, MANY] {
        volume.mkdir(&format!("/{dir}"), 0o755)?;
        let mut first = String::new();
        for n in 0..names {
            let name = name_in(dir, n);
            if n % PER_INODE == 0 {
                volume.create(&name, 0o644).map(drop)?;
                first = name;
            } else {
                volume.link(&first, &name)?;
            }
        }
    }
    volume.close()?;
    Ok(path)
}
