//! Costs that hardly change from run to run: instructions per read and write, what each operation costs, cache lines that threads share,
//! memory and reads of opening, and the cost of many extents.
//!
//! Input: images made here. Output: what `operations` reports; `instructions`, `instructions-over-raw`, `instructions-overwrite`,
//! `instructions-append`, `instructions-fill`, `shared-lines-*`, `open-rss`, `open-bytes`, `extents-100k`. Invariant: instructions per read
//! and overwrite are the difference of two
//! runs, so that the startup cost cancels; those per append and fill are of the first 20,000, since a fill costs more in a larger map.
//! Limits: callgrind (valgrind) must be installed; a part that cannot be done is skipped with its reason; of appends and fills only the
//! instructions of the calling thread are counted, and hash tables with random keys make the figure differ by some per mille.

use super::super::args::Options;
use super::super::bed::{self, Image, Scratch, Shape};
use super::super::drive::drive;
use super::super::failure::Failure;
use super::super::image::{FileTarget, Region};
use super::super::job::{Job, Rw};
use super::super::report::Report;
use super::super::rounds::{Arm, Spread, interleave};
use super::super::targets::most;
use super::super::tool;
use super::{Experiment, OwnOptions, operations};
use diorite::{OpenFlags, OpenOptions, Volume};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "cost",
    about: "Instructions and shared cache lines per request; the cost of each operation, of opening, and of many extents",
    goals: &[
        most(
            "instructions",
            600.0,
            "instructions per 4k read, submit to reaped, on mem: without the copy",
        ),
        most(
            "instructions-over-raw",
            200.0,
            "the same, minus the raw device queue's",
        ),
        most(
            "shared-lines-read",
            0.0,
            "cache lines that more than one thread writes, per 4k read: 4 threads with a queue each on one file",
        ),
        most("shared-lines-overwrite", 0.0, "the same, per 4k overwrite"),
        most("shared-lines-fill", 4.0, "the same, per fill of a hole"),
        most("shared-lines-append", 6.0, "the same, per append"),
        most(
            "open-rss",
            24.0,
            "open a 1 TiB image and stat one file: resident memory, MiB",
        ),
        most(
            "open-bytes",
            4.0,
            "open a 1 TiB image and stat one file: bytes read from the device, MiB",
        ),
        most(
            "extents-100k",
            2.0,
            "time per random 4k read on mem:, file of 100,000 extents / of 1 extent",
        ),
        operations::GOALS[0],
        operations::GOALS[1],
        operations::GOALS[2],
        operations::GOALS[3],
    ],
    own: Some(OwnOptions::of::<Own>()),
    run,
};

#[derive(clap::Args)]
struct Own {
    /// Measure only this
    #[arg(long, value_enum)]
    part: Option<Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Instructions,
    Operations,
    SharedLines,
    Opening,
    Extents,
}

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    report.device("mem:", "mem")?;
    let only = options.own::<Own>()?.part;
    let asked = |part| only.is_none_or(|only| only == part);
    if asked(Part::Instructions) {
        part("instructions", report, instructions)?;
        part("instructions-append", report, new_space)?;
    }
    if asked(Part::Operations) {
        part("names-instructions", report, operations::count)?;
    }
    if asked(Part::SharedLines) {
        part("shared-lines-read", report, super::lines::run)?;
    }
    if asked(Part::Opening) {
        part("open-rss", report, opening)?;
    }
    if asked(Part::Extents) {
        part("extents-100k", report, |report| extents(options, report))?;
    }
    Ok(())
}

fn part(
    id: &str,
    report: &mut Report,
    f: impl FnOnce(&mut Report) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let done = f(report);
    report.unless_skipped(id, done).map(drop)
}

/// The number of requests in the shorter of the two runs.
const COUNT: u64 = 100_000;

fn instructions(report: &mut Report) -> Result<(), Failure> {
    report.heading(
        "instructions per 4k read and overwrite, depth 64, batches of 32, without the copy",
    )?;
    let dir = Scratch::in_memory()?;
    let image = bed::make_image(&dir, Image::with_file(128 << 20, 32 << 20))?;
    let engine = per_request("engine", &image, COUNT, &dir)?;
    let raw = per_request("raw", &image, COUNT, &dir)?;
    let overwrite = per_request("overwrite", &image, COUNT, &dir)?;
    report.note(format!(
        "read {engine:.1}, overwrite {overwrite:.1}, raw device queue {raw:.1}"
    ))?;
    report.ratio("instructions", &Spread::of(&[engine]), "mem:", true)?;
    report.ratio(
        "instructions-over-raw",
        &Spread::of(&[engine - raw]),
        "mem:",
        true,
    )?;
    let overwrite = Spread::of(&[overwrite]);
    report.ratio("instructions-overwrite", &overwrite, "mem:", true)
}

/// Requests in a run of appends or fills, and how many such runs are made.
const NEW_BLOCKS: u64 = 20_000;
const NEW_ROUNDS: usize = 5;

fn new_space(report: &mut Report) -> Result<(), Failure> {
    report.heading("instructions per 4k append and fill of a hole, the same, with the copy")?;
    let dir = Scratch::in_memory()?;
    let image = bed::make_image(&dir, Image::with_file(512 << 20, 1 << 20))?;
    for what in ["append", "fill"] {
        let round = |_| callgrind(what, &image, NEW_BLOCKS, &dir);
        let rounds: Vec<Counted> = (0..NEW_ROUNDS).map(round).collect::<Result<_, _>>()?;
        let each = |counted: &Counted| counted.instructions / NEW_BLOCKS as f64;
        let rounds: Vec<f64> = rounds.iter().map(each).collect();
        let spread = Spread::of(&rounds);
        report.ratio(&format!("instructions-{what}"), &spread, "mem:", true)?;
    }
    Ok(())
}

/// Instructions per request, from a run of `count` requests and one of twice as many.
fn per_request(what: &str, image: &Path, count: u64, dir: &Scratch) -> Result<f64, Failure> {
    let once = callgrind(what, image, count, dir)?.instructions;
    let twice = callgrind(what, image, 2 * count, dir)?.instructions;
    Ok((twice - once) / count as f64)
}

/// What callgrind counted in the measured functions of a child, and what the child printed.
pub(super) struct Counted {
    pub(super) instructions: f64,
    pub(super) system_calls: f64,
    pub(super) allocations: f64,
    said: String,
}

impl Counted {
    /// The acquisitions of locks, by class and in all, that the child has printed.
    pub(super) fn locks(&self) -> Result<(Vec<(String, f64)>, f64), Failure> {
        let each: BTreeMap<String, f64> = serde_json::from_str(&self.said)
            .map_err(|e| Failure::host("the child printed no JSON", e))?;
        let all = each.values().sum();
        Ok((each.into_iter().collect(), all))
    }
}

/// Functions of the C library that allocate memory. None of them calls another one.
const ALLOCATE: [&str; 5] = [
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
];

/// What the measured functions of a child cost for `count` requests.
pub(super) fn callgrind(
    what: &str,
    image: &Path,
    count: u64,
    dir: &Scratch,
) -> Result<Counted, Failure> {
    let out = dir.path().join("callgrind");
    let exe = std::env::current_exe().map_err(|e| Failure::host("cannot find this program", e))?;
    let mut command = Command::new("valgrind");
    command
        .args([
            "--tool=callgrind",
            "--collect-atstart=no",
            "--toggle-collect=*measured_*",
            "--collect-systime=yes",
            "--compress-strings=no",
        ])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(exe)
        .args(["bench", "cost-child", what])
        .arg(image)
        .args(["--count", &count.to_string()]);
    let said = tool::output("valgrind", &mut command)?;
    let text = std::fs::read_to_string(&out).map_err(|e| Failure::host("callgrind's output", e))?;
    let nothing = || Failure::failed("callgrind counted nothing");
    let total = text.lines().find_map(|l| {
        l.strip_prefix("summary:")
            .or_else(|| l.strip_prefix("totals:"))
    });
    let mut totals = total.ok_or_else(nothing)?.split_whitespace();
    let mut next = || totals.next().and_then(|n| n.parse::<f64>().ok());
    Ok(Counted {
        instructions: next().filter(|n| *n > 0.0).ok_or_else(nothing)?,
        system_calls: next().unwrap_or(0.0),
        allocations: calls_of(&text, &ALLOCATE),
        said,
    })
}

/// How often functions with these names were called. A line with the name of a callee is followed by one with the number of calls.
fn calls_of(profile: &str, names: &[&str]) -> f64 {
    let (mut calls, mut concerns) = (0.0, false);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("cfn=") {
            concerns = names.contains(&name);
        } else if let Some(count) = line.strip_prefix("calls=").filter(|_| concerns) {
            let count = count.split_whitespace().next();
            calls += count.and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
        }
    }
    calls
}

fn opening(report: &mut Report) -> Result<(), Failure> {
    report.heading("opening a sparse image of 1 TiB, and one file in it")?;
    let dir = Scratch::new(&std::env::temp_dir())?;
    let image = bed::make_sparse_image(&dir, 1 << 40)?;
    let exe = std::env::current_exe().map_err(|e| Failure::host("cannot find this program", e))?;
    let mut command = Command::new(exe);
    command.args(["bench", "cost-child", "open"]).arg(&image);
    let text = tool::output("diorite", &mut command)?;
    let said: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| Failure::host("the child printed no JSON", e))?;
    let mib = |key: &str| said[key].as_f64().unwrap_or(f64::NAN) / 1_048_576.0;
    report.ratio(
        "open-rss",
        &Spread::of(&[mib("resident")]),
        "1 TiB image file",
        true,
    )?;
    report.ratio(
        "open-bytes",
        &Spread::of(&[mib("read")]),
        "1 TiB image file",
        true,
    )
}

const EXTENTS: u64 = 100_000;
const BLOCK: u64 = 4096;

fn extents(options: &Options, report: &mut Report) -> Result<(), Failure> {
    report.heading("4k random reads of a file of one extent, and of 100,000")?;
    let (one, many) = files(report)?;
    let job = options.job(Rw::Randread, 4096, 64);
    let gaps = Job {
        stride: 2 * BLOCK,
        ..job.clone()
    };
    let arms = [
        Arm::new("one extent", job, |job| drive(&one, job)),
        Arm::new("100,000 extents", gaps, |job| drive(&many, job)),
    ];
    let rounds = interleave(&arms, options.plan())?;
    report.rows(&rounds, "mem:")?;
    report.ratio("extents-100k", &rounds.ratio(0, 1), "mem:", true)
}

/// A contiguous file, and a file with as many extents as blocks.
fn files(report: &mut Report) -> Result<(FileTarget, FileTarget), Failure> {
    let size = EXTENTS * BLOCK + (256 << 20);
    // Both use the same amount of memory; otherwise the CPU's caches would be compared.
    let one = mem_file(Image {
        shape: Shape::OneRun,
        ..Image::with_file(size, EXTENTS * BLOCK)
    })?;
    let many = mem_file(Image {
        shape: Shape::Holed,
        ..Image::with_file(size, 2 * EXTENTS * BLOCK)
    })?;
    let region = Region::longest(&one.volume, &one.file)?;
    let one = FileTarget {
        base: region.file_pos,
        len: region.len,
        ..one
    };
    let count = many
        .file
        .mappings(0, many.len)?
        .iter()
        .filter(|m| m.len == 1)
        .count();
    report.note(format!(
        "one run of {} MiB; {count} blocks and holes one by one",
        one.len >> 20
    ))?;
    Ok((one, many))
}

/// The bench file of an image in memory.
fn mem_file(image: Image) -> Result<FileTarget, Failure> {
    let device = bed::mem_with(image)?;
    let volume = Volume::open_device(Arc::new(device), &OpenOptions::default())?;
    let file = volume.open_path(bed::FILE, OpenFlags::default())?;
    let len = file.size();
    Ok(FileTarget {
        volume,
        file,
        base: 0,
        len,
    })
}
