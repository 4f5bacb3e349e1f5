//! A source tree: unpacked, read when nothing of it is cached, removed.
//!
//! Input: a tree of this machine, or one that is made: an archive. Output: `fuse-unpack`, `fuse-readall`, `fuse-rm`, each in files a
//! second. Invariants: the same archive on each mount; a run does all three, one after the other; the host's caches are dropped before it
//! is read. Limits: root, for the caches.

use super::super::super::args::Options;
use super::super::super::bed::Scratch;
use super::super::super::drive::Run;
use super::super::super::failure::Failure;
use super::super::super::job::{Job, Rw};
use super::super::super::report::Report;
use super::super::super::tool;
use super::{Bed, tell};
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Files of the tree, in directories of fifty.
const FILES: u32 = 20_000;
const PER_DIRECTORY: u32 = 50;

pub(super) fn run(
    bed: &Bed,
    dir: &Scratch,
    options: &Options,
    report: &mut Report,
) -> Result<(), Failure> {
    let archive = dir.path().join("tree.tar");
    make(dir, &archive)?;
    let unpack = |at: &Path| {
        let args = [
            "-C".as_ref(),
            at.as_os_str(),
            "-xf".as_ref(),
            archive.as_os_str(),
        ];
        tool::run("tar", args).map(drop)
    };
    let read = |at: &Path| {
        let command = format!(
            "find '{}' -type f -print0 | xargs -0 cat > /dev/null",
            at.display()
        );
        tool::run("sh", ["-c", &command]).map(drop)
    };
    let remove =
        |at: &Path| tool::run("rm", ["-rf".as_ref(), at.join("tree").as_os_str()]).map(drop);
    let job = |what: &str| Job {
        calls: Some(format!("{what} files, {FILES} of them")),
        ..Job::new(Rw::Write, 4096, 1)
    };
    let user = |at: &Path, _: &Job| {
        let unpacked = timed(|| unpack(at))?;
        tool::run("sync", ["-f".as_ref(), at.as_os_str()])?;
        fs::write("/proc/sys/vm/drop_caches", "3")
            .map_err(|e| Failure::host("cannot drop the host's caches", e))?;
        let (read, removed) = (timed(|| read(at))?, timed(|| remove(at))?);
        Ok(Run {
            also: vec![read.iops, removed.iops],
            ..unpacked
        })
    };
    report.heading("tar: unpack a source tree")?;
    let unpack = job("unpack");
    let rounds = bed.rounds(&unpack, options.short_plan(), options, &user);
    let all = "fuse-unpack, fuse-readall, fuse-rm";
    let Some(rounds) = report.unless_skipped(all, rounds)? else {
        return Ok(());
    };
    tell("fuse-unpack", &rounds, report)?;
    report.heading("find and cat all of it, nothing cached")?;
    tell("fuse-readall", &rounds.also(0, &job("read")), report)?;
    report.heading("rm -r")?;
    tell("fuse-rm", &rounds.also(1, &job("remove")), report)
}

/// Files a second.
fn timed(what: impl FnOnce() -> Result<(), Failure>) -> Result<Run, Failure> {
    let began = Instant::now();
    what()?;
    Ok(Run::of_calls(
        f64::from(FILES) / began.elapsed().as_secs_f64(),
    ))
}

/// Makes the archive: sizes as those of sources, most of them a few KiB, some of a hundred.
fn make(dir: &Scratch, archive: &Path) -> Result<(), Failure> {
    let context = |e| Failure::host("cannot make the source tree", e);
    let tree = dir.path().join("tree");
    let text = "a line of a source file, as long as most of them are\n".repeat(4000);
    for n in 0..FILES {
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
    fs::remove_dir_all(&tree).map_err(context)
}
