//! `diorite check` against e2fsck, on an image with many files; and its memory.
//!
//! Input: an image made here. Output: `check-e2fsck`, with the image in the page cache; the same with an empty page cache,
//! without a target; `check-rss`. Invariants: both run as processes of their own on the same file, and are timed from start to
//! end; both must find it clean. Limits: the files' blocks are unwritten, so that making the image is fast: a check reads the
//! same metadata.

use super::super::args::{ChildOptions, Options};
use super::super::bed::Scratch;
use super::super::drive::Run;
use super::super::failure::Failure;
use super::super::host;
use super::super::job::{Job, Rw};
use super::super::report::{Print, Report, write_out};
use super::super::rounds::{Arm, Spread, interleave};
use super::super::targets::{least, most};
use super::super::{signals, tool};
use super::{Experiment, OwnOptions};
use diorite::{Fallocate, OpenOptions, Volume};
use diorite_check::{CheckOptions, check};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The size of each file: 500,000 of them have 21 GiB.
const EACH: u64 = 44 << 10;
/// The number of files in each directory.
const TOGETHER: u64 = 1000;
const THREADS: u64 = 2;
/// The number of files that the targets are for.
const WHOLE: u64 = 500_000;

const DEVICE: &str = "image file";

/// The options of its own.
#[derive(clap::Args)]
struct Files {
    /// Files in the image, of 44 KiB each; the targets apply to the default number
    #[arg(long, default_value_t = 500_000)]
    files: u64,
}

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "check",
    about: "The consistency check, against e2fsck; its memory",
    goals: &[
        least(
            "check-e2fsck",
            2.0,
            "an image of 500,000 files, 20 GiB used, all cached: time of e2fsck -fn / of check",
        ),
        most(
            "check-rss",
            256.0,
            "checking that image: resident memory, MiB",
        ),
    ],
    own: Some(OwnOptions::of::<Files>()),
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    if options.image.is_some() {
        return Err(Failure::usage(
            "this experiment makes an image of its own: --image is not for it",
        ));
    }
    let files = options.own::<Files>()?.files;
    report.device(DEVICE, "buffered")?;
    report.heading(&format!(
        "{files} files, {:.1} GiB used",
        (files * EACH) as f64 / 1_073_741_824.0
    ))?;
    let dir = Scratch::new(&std::env::temp_dir())?;
    let image = make(&dir, files)?;
    let counts = files == WHOLE;
    for (id, cold) in [("check-e2fsck", false), ("check-e2fsck-cold", true)] {
        let ratio = beside_e2fsck(options, &image, cold, report);
        if let Some(ratio) = report.unless_skipped(id, ratio)? {
            report.ratio(id, &ratio, DEVICE, counts)?;
        }
    }
    let said: serde_json::Value = serde_json::from_str(&ours(&image)?)
        .map_err(|e| Failure::host("the child printed no JSON", e))?;
    let resident = said["resident"].as_f64().unwrap_or(f64::NAN) / 1_048_576.0;
    report.ratio("check-rss", &Spread::of(&[resident]), DEVICE, counts)
}

/// Runs both in turn and reports the ratio of their times.
fn beside_e2fsck(
    options: &Options,
    image: &Path,
    cold: bool,
    report: &mut Report,
) -> Result<Spread, Failure> {
    let cache = if cold { "nothing cached" } else { "all cached" };
    let job = Job {
        calls: Some(format!("one check, {cache}")),
        ..options.job(Rw::Read, 512, 1)
    };
    // One run before the measurement fills the page cache.
    tool::run("e2fsck", ["-fn".as_ref(), image.as_os_str()])?;
    let diorite = Arm::new("diorite check", job.clone(), |_| {
        timed(image, cold, || ours(image).map(drop))
    });
    let e2fsck = Arm::new("e2fsck -fn", job, |_| {
        let run = || tool::run("e2fsck", ["-fn".as_ref(), image.as_os_str()]);
        timed(image, cold, || run().map(drop))
    });
    let rounds = interleave(&[diorite, e2fsck], options.plan())?;
    report.rows(&rounds, DEVICE)?;
    Ok(rounds.ratio(0, 1))
}

/// Runs the check in a process of its own.
fn ours(image: &Path) -> Result<String, Failure> {
    let exe = std::env::current_exe().map_err(|e| Failure::host("cannot find this program", e))?;
    let words = ["bench", "cost-child", "check"].map(AsRef::as_ref);
    let mut command = std::process::Command::new(exe);
    command.args::<_, &std::ffi::OsStr>(words).arg(image);
    tool::output("diorite", &mut command)
}

fn timed(
    image: &Path,
    cold: bool,
    work: impl FnOnce() -> Result<(), Failure>,
) -> Result<Run, Failure> {
    signals::check()?;
    if cold {
        let file = File::open(image).map_err(|e| Failure::host("the image", e))?;
        fadvise(&file, 0, None, Advice::DontNeed)
            .map_err(|e| Failure::host("the page cache cannot be emptied", e))?;
    }
    Run::of_one(work)
}

/// The child process: the work of the command, without its output.
pub(super) fn child(options: &ChildOptions, out: Print) -> Result<(), Failure> {
    let image = options.image.to_string_lossy();
    let found = check(&image, &CheckOptions::default(), &|_| ())?;
    if !found.is_clean() {
        let first = found.kept().next().map(|(_, what)| what.to_string());
        return Err(Failure::failed(first.unwrap_or_default()));
    }
    let object = serde_json::json!({
        "resident": host::own_status("VmHWM:"),
        "inodes": found.totals.inodes,
    });
    write_out(out, format_args!("{object}\n"))
}

/// Makes a sparse image with this number of files.
fn make(dir: &Scratch, files: u64) -> Result<PathBuf, Failure> {
    let path = dir.path().join("image");
    let size = (files * EACH * 8 / 5)
        .max(64 << 20)
        .next_multiple_of(1 << 20);
    let made = File::create(&path).and_then(|f| f.set_len(size));
    made.map_err(|e| Failure::unavailable(format!("no sparse file of {size} bytes here: {e}")))?;
    let words = ["-q", "-F", "-t", "ext4", "-i", "16384"].map(AsRef::as_ref);
    tool::run("mke2fs", words.into_iter().chain([path.as_os_str()]))?;
    let volume = Volume::open(&path.to_string_lossy(), &OpenOptions::writable())?;
    std::thread::scope(|scope| {
        let volume = &volume;
        let start = |thread| scope.spawn(move || fill(volume, thread, files));
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        let panicked = |_| Err(Failure::failed("a thread that makes files panicked"));
        let ended = threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(panicked));
        ended.collect::<Result<(), Failure>>()
    })?;
    volume.close()?;
    let file = File::open(&path).and_then(|f| f.sync_all());
    file.map_err(|e| Failure::host("the image", e))?;
    Ok(path)
}

/// Makes every second directory, with its files: each of two threads makes one half.
fn fill(volume: &Volume, thread: u64, files: u64) -> Result<(), Failure> {
    for dir in (thread..files.div_ceil(TOGETHER)).step_by(THREADS as usize) {
        signals::check()?;
        volume.mkdir(&format!("/d{dir:04}"), 0o755)?;
        for n in dir * TOGETHER..files.min((dir + 1) * TOGETHER) {
            let file = volume.create(&format!("/d{dir:04}/file-{n:07}"), 0o644)?;
            file.fallocate(Fallocate::Allocate { keep_size: false }, 0, EACH)?;
        }
    }
    Ok(())
}
