//! Cache lines that several threads write: what limits how far a load on many processors scales, counted, not timed.
//!
//! Input: four threads with a queue each, on one file and on four, in memory. Output: `shared-lines-*`, lines written by more than one
//! thread per request, and the owners of these lines. Invariants: the child's threads take turns, so the trace says whose each access is,
//! and the counts hardly differ from run to run; a shared counter is found before anything else is counted, and counters of each thread's
//! own are not. Limits: lackey (valgrind) must be installed; what the kernel writes is not seen, and no device takes part but memory.

pub(in super::super) mod child;
mod owners;
mod sharing;
mod trace;

use super::super::args::LinesLoad;
use super::super::bed::Scratch;
use super::super::failure::Failure;
use super::super::report::Report;
use super::super::rounds::Spread;
use super::super::tool;
use child::{Layout, THREADS};
use clap::ValueEnum;
use owners::Owners;
use sharing::{Found, Line, Sharing};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

/// Measured requests of each thread.
const REQUESTS: usize = 256;
/// Requests that a thread submits at a time, as where instructions are counted.
const BATCH: usize = 32;
/// So many owners are named for each load.
const OWNERS: usize = 12;

pub(super) fn run(report: &mut Report) -> Result<(), Failure> {
    report.heading(&format!(
        "cache lines written by several threads: {THREADS} threads, a queue each, 4k requests in batches of {BATCH}"
    ))?;
    let dir = Scratch::in_memory()?;
    let image = dir.path().join("image");
    // What need not be written is not, as the child loads it under lackey.
    let lazy = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
    let words = ["-q", "-t", "ext4", "-b", "4096", "-E", lazy].map(OsStr::new);
    let size = OsStr::new("128M");
    tool::run("mke2fs", words.into_iter().chain([image.as_os_str(), size]))?;
    check_itself(&image)?;
    let loads = [
        LinesLoad::Read,
        LinesLoad::Overwrite,
        LinesLoad::Fill,
        LinesLoad::Append,
    ];
    let ways = [
        (1, BATCH, ""),
        (1, 1, "-single"),
        (THREADS, BATCH, "-four-files"),
    ];
    for load in loads {
        for (files, batch, suffix) in ways {
            let what = What { load, files, batch };
            let id = format!("shared-lines-{}{suffix}", word(load));
            measure(&id, what, &image, report)?;
        }
    }
    Ok(())
}

/// A load.
#[derive(Clone, Copy)]
struct What {
    load: LinesLoad,
    files: usize,
    batch: usize,
}

fn word(load: LinesLoad) -> String {
    let value = load.to_possible_value();
    value.map_or_else(String::new, |v| v.get_name().to_owned())
}

/// Fails unless a counter that all threads write is found, as one line, and counters of each thread's own are not.
fn check_itself(image: &Path) -> Result<(), Failure> {
    for (load, expected) in [(LinesLoad::KnownShared, 1), (LinesLoad::KnownOwn, 0)] {
        let what = What {
            load,
            files: 0,
            batch: BATCH,
        };
        let (found, _) = trace(what, image)?;
        if found.lines.len() != expected {
            return Err(Failure::failed(format!(
                "{} counts {} shared lines, not {expected}: the trace cannot be trusted",
                word(load),
                found.lines.len()
            )));
        }
    }
    Ok(())
}

fn measure(id: &str, what: What, image: &Path, report: &mut Report) -> Result<(), Failure> {
    let (found, owners) = trace(what, image)?;
    let requests = (REQUESTS * THREADS) as f64;
    let (recycled, lines): (Vec<&Line>, Vec<&Line>) = found.lines.iter().partition(|l| l.recycled);
    let per_request =
        |lines: &[&Line]| lines.iter().map(|l| l.turns).sum::<u64>() as f64 / requests;
    let stores: u64 = lines.iter().map(|l| l.stores).sum();
    report.ratio(id, &Spread::of(&[per_request(&lines)]), "mem:", true)?;
    report.note(format!(
        "{} lines, {:.2} stores to them per request; allocator: {} lines, {:.2} per request; \
         fetched from another thread: {:.2} lines per request",
        lines.len(),
        stores as f64 / requests,
        recycled.len(),
        per_request(&recycled),
        found.fetched as f64 / requests,
    ))?;
    if found.by_others > 0 {
        let by_others = found.by_others as f64 / requests;
        report.note(format!(
            "{by_others:.1} accesses per request by other threads than the load's"
        ))?;
    }
    for (name, (count, turns)) in by_owner(&lines, &owners).into_iter().take(OWNERS) {
        let turns = turns as f64 / requests;
        report.note(format!("  {turns:.3} per request, {count} lines: {name}"))?;
    }
    Ok(())
}

/// Owners with their lines and the turns in which these were written, the most frequent first. A line with several has them all.
fn by_owner(lines: &[&Line], owners: &Owners) -> Vec<(String, (u64, u64))> {
    let mut all: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for line in lines {
        let mut names: Vec<_> = line
            .places
            .iter()
            .map(|place| owners.name(*place))
            .collect();
        names.sort();
        names.dedup();
        let (count, turns) = all.entry(names.join(", ")).or_default();
        *count += 1;
        *turns += line.turns;
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(_, (_, turns))| std::cmp::Reverse(*turns));
    all
}

/// Runs the load under lackey.
fn trace(what: What, image: &Path) -> Result<(Found, Owners), Failure> {
    let program =
        std::env::current_exe().map_err(|e| Failure::host("cannot find this program", e))?;
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=lackey", "--trace-mem=yes", "--fair-sched=try"])
        .arg(&program)
        .args(["bench", "cost-child", "lines"])
        .arg(image)
        .args(["--load", &word(what.load)])
        .args(["--files", &what.files.to_string()])
        .args(["--batch", &what.batch.to_string()])
        .args(["--count", &(REQUESTS / what.batch).to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Failure::unavailable("valgrind is not installed"),
        _ => Failure::host("cannot run valgrind", e),
    })?;
    let followed = follow(&mut child, &program);
    if followed.is_err() {
        // It may be waiting for an answer. It may also have ended by itself.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|e| Failure::host("valgrind", e))?;
    let (found, owners, said) = followed?;
    if !status.success() || !found.complete {
        return Err(Failure::failed(format!(
            "valgrind ended with {status}: {said}"
        )));
    }
    Ok((found, owners))
}

/// Reads the trace, which is the child's standard error, while the child runs, and answers it.
fn follow(child: &mut Child, program: &Path) -> Result<(Found, Owners, String), Failure> {
    let failed = |e| Failure::host("the traced program", e);
    let missing = || Failure::failed("valgrind has no pipes");
    let process = child.id();
    let mut to = child.stdin.take().ok_or_else(missing)?;
    let from = child.stdout.take().ok_or_else(missing)?;
    let stream = child.stderr.take().ok_or_else(missing)?;
    let (tell, told) = mpsc::channel::<Sharing>();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut sharing = None;
            let said = trace::read(stream, |access| {
                // The child waits for an answer until the other thread has sent this.
                if sharing.is_none() {
                    sharing = told.try_recv().ok();
                }
                if let Some(sharing) = &mut sharing {
                    sharing.take(access);
                }
            });
            (sharing, said)
        });
        let mut line = String::new();
        BufReader::new(from).read_line(&mut line).map_err(failed)?;
        let layout = serde_json::from_str::<Layout>(&line);
        let owners = layout.ok().map(|layout| {
            // A process that has ended meanwhile has no mappings, and no complete trace either.
            let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
            let sharing = Sharing::new(&layout, &owners::stacks(&maps));
            // Both fail only if the child has ended: then the trace is incomplete, too.
            let _ = tell.send(sharing);
            let _ = to.write_all(b"\n");
            Owners::new(layout.parts, &maps, program)
        });
        drop((to, tell));
        let (sharing, said) = reader
            .join()
            .map_err(|_| Failure::failed("the trace cannot be read"))?;
        let said = said.map_err(failed)?;
        match (sharing, owners) {
            (Some(sharing), Some(owners)) => Ok((sharing.found(), owners, said)),
            _ => Err(Failure::failed(format!(
                "the traced program has not begun: {said}"
            ))),
        }
    })
}
