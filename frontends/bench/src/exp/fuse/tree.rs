//! A source tree: unpacked, read when nothing of it is cached, removed.
//!
//! Input: a tree that is made: an archive. Output: `fuse-unpack`, `fuse-readall`, `fuse-rm`, each in files a second. Invariants: the same
//! archive on each mount of a comparison; one run does all three; the host's caches are dropped before the tree is read. Limits: root, for
//! the caches; fuse2fs gets a smaller tree, with diorite beside it.

use super::super::super::args::Options;
use super::super::super::bed::Scratch;
use super::super::super::drive::Run;
use super::super::super::failure::Failure;
use super::super::super::job::{Job, Rw};
use super::super::super::report::Report;
use super::super::super::tool;
use super::{Bed, Beside, LABEL};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Files of the tree.
const FILES: u32 = 12_000;
/// Of the one that fuse2fs is compared on, which takes several times as long as the others.
const FEW: u32 = 4_000;
const PER_DIRECTORY: u32 = 50;

/// What is done with a tree, one after the other, in each run: the counters of a run have how long that took, in nanoseconds.
const STEPS: [(&str, &str); 3] = [
    ("unpack", "tar: unpack a source tree"),
    ("readall", "find and cat all of it, nothing cached"),
    ("rm", "rm -r"),
];

pub(super) fn run(
    bed: &Bed,
    dir: &Scratch,
    options: &Options,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut peers = vec![super::KERNEL];
    if super::mounts::why_no_rings().is_none() {
        peers.push(super::RINGS);
    }
    on(bed, dir, FILES, &peers, options, report)?;
    on(bed, dir, FEW, &[super::FUSE2FS], options, report)
}

fn on(
    bed: &Bed,
    dir: &Scratch,
    files: u32,
    peers: &[Beside],
    options: &Options,
    report: &mut Report,
) -> Result<(), Failure> {
    let archive = make(dir, files)?;
    let job = |what: &str| Job {
        calls: Some(format!("{what}, {files} files")),
        ..Job::new(Rw::Write, 4096, 1)
    };
    let user = |at: &Path, _: &Job| steps(at, &archive);
    let rounds = bed.interleave(peers, &job("all"), options.short_plan(), &user);
    let Some(rounds) = report.unless_skipped("fuse-unpack", rounds)? else {
        return Ok(());
    };
    for (step, heading) in STEPS {
        report.heading(heading)?;
        let rate = |run: &Run| f64::from(files) * 1e9 / run.counted(step) as f64;
        let one = rounds.by(&job(step), rate);
        match files {
            FILES => super::say(&format!("fuse-{step}"), peers, &one, report)?,
            // The server that does nothing was compared with the larger tree.
            _ => {
                report.rows(&one, LABEL)?;
                let id = format!("fuse-{step}-f2");
                report.ratio(&id, &one.ratio(0, 1), LABEL, true)?;
            }
        }
    }
    Ok(())
}

/// Does the steps.
fn steps(at: &Path, archive: &Path) -> Result<Run, Failure> {
    let unpacked = timed(|| unpack(at, archive))?;
    tool::run("sync", ["-f".as_ref(), at.as_os_str()])?;
    fs::write("/proc/sys/vm/drop_caches", "3")
        .map_err(|e| Failure::host("cannot drop the host's caches", e))?;
    let command = format!(
        "find '{}' -type f -print0 | xargs -0 cat > /dev/null",
        at.join("tree").display()
    );
    let read = timed(|| tool::run("sh", ["-c", &command]).map(drop))?;
    let removed = timed(|| {
        let tree = at.join("tree");
        tool::run("rm", ["-rf".as_ref(), tree.as_os_str()]).map(drop)
    })?;
    let all = unpacked + read + removed;
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let times = [unpacked, read, removed].map(nanos);
    Ok(Run {
        counters: std::iter::zip(STEPS, times)
            .map(|((step, _), time)| (step.to_owned(), time))
            .collect(),
        ..Run::of_calls(1.0 / all.as_secs_f64())
    })
}

fn unpack(at: &Path, archive: &Path) -> Result<(), Failure> {
    let args = [
        "-C".as_ref(),
        at.as_os_str(),
        "-xf".as_ref(),
        archive.as_os_str(),
    ];
    tool::run("tar", args).map(drop)
}

pub(super) fn timed(what: impl FnOnce() -> Result<(), Failure>) -> Result<Duration, Failure> {
    let began = Instant::now();
    what()?;
    Ok(began.elapsed())
}

/// Makes an archive of a tree: sizes as those of sources, most of them a few KiB, some of a hundred.
pub(super) fn make(dir: &Scratch, files: u32) -> Result<PathBuf, Failure> {
    let archive = dir.path().join(format!("tree-{files}.tar"));
    let context = |e| Failure::host("cannot make the source tree", e);
    let tree = dir.path().join("tree");
    let text = "a line of a source file, as long as most of them are\n".repeat(4000);
    for n in 0..files {
        let place = tree.join(format!("directory-{:04}", n / PER_DIRECTORY));
        if n % PER_DIRECTORY == 0 {
            fs::create_dir_all(&place).map_err(context)?;
        }
        let len = match n % 20 {
            0 => 100_000 + n as usize,
            small => 200 + small as usize * 631 + n as usize % 512,
        };
        let path = place.join(format!("source-file-{n:05}.rs"));
        fs::write(path, &text.as_bytes()[..len]).map_err(context)?;
    }
    let args = [
        "-C".as_ref(),
        dir.path().as_os_str(),
        "-cf".as_ref(),
        archive.as_os_str(),
        "tree".as_ref(),
    ];
    tool::run("tar", args)?;
    fs::remove_dir_all(&tree).map_err(context)?;
    Ok(archive)
}
