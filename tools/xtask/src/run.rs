//! What it is: runs the tools of e2fsprogs and util-linux.
//! Input: a program and its arguments. Output: what it printed, or an error that contains that.
//! Every program runs with `LC_ALL=C`, `TZ=UTC` and no standard input, and is also searched in `/usr/sbin` and `/sbin`.
//! Invariant: debugfs exits with 0 even after errors, so any complaint of it on standard error is a failure.

use crate::error::{Error, Result};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// How often e2fsck is run at most to repair a volume.
const REPAIRS: usize = 8;

/// e2fsck 1.47 searches some damaged volumes for ever: after so many seconds it has failed.
const LONGEST_CHECK: &str = "180";

/// A tool with an environment that makes its output comparable. It is also searched in `/usr/sbin` and `/sbin`, which an ordinary
/// user's PATH does not have.
pub fn tool(program: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{path}:/usr/sbin:/sbin");
    // With its full path, the program is spawned. If std searched it in a changed PATH, it would fork instead, and every page of
    // this process would be copied when it is next written.
    let place = |program: &str| {
        let mut all = std::env::split_paths(&path).map(|dir| dir.join(program));
        let found = all.find(|path| path.is_file());
        found.unwrap_or_else(|| program.into())
    };
    let mut command = match program {
        "e2fsck" => Command::new(place("timeout")),
        _ => Command::new(place(program)),
    };
    if program == "e2fsck" {
        let limit = ["--foreground", "--kill-after=5", LONGEST_CHECK];
        command.args(limit).arg(place(program));
    }
    command
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .env("PATH", &path)
        .stdin(Stdio::null());
    command
}

/// The words of a command line, such as the arguments of mke2fs.
#[must_use]
pub fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// A scratch directory, on tmpfs if there is one.
#[must_use]
pub fn scratch() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let made = match shm.is_dir() {
        true => tempfile::tempdir_in(shm),
        false => tempfile::tempdir(),
    };
    made.expect("the host has room for tests")
}

/// Runs a program and returns its output, whatever its exit code.
fn output<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Result<Output> {
    tool(program)
        .args(args)
        .output()
        .map_err(|source| Error::Start {
            program: program.into(),
            package: package_of(program),
            source,
        })
}

/// The Debian package that a program comes from.
fn package_of(program: &str) -> &'static str {
    match program {
        "mke2fs" | "debugfs" | "e2fsck" | "tune2fs" => "e2fsprogs",
        _ => "mount or util-linux",
    }
}

/// The error of a command that failed.
fn failed<S: AsRef<OsStr>>(program: &str, args: &[S], output: &Output) -> Error {
    let args: Vec<_> = args
        .iter()
        .map(|a| a.as_ref().to_string_lossy().into_owned())
        .collect();
    // On standard output debugfs echoes the script.
    let text = if program == "debugfs" {
        output.stderr.clone()
    } else {
        [&output.stdout[..], &output.stderr[..]].concat()
    };
    Error::Tool {
        command: format!("{program} {}", args.join(" ")),
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&text).chars().take(4000).collect(),
    }
}

/// Runs a program that must exit with 0; returns its standard output.
///
/// # Errors
/// It cannot be started, or exits with another code; the error contains its output.
pub fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Result<Vec<u8>> {
    let output = output(program, args)?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(failed(program, args, &output))
    }
}

/// `e2fsck -fn`: succeeds with exit code 0, else the error contains what it found.
///
/// # Errors
/// As [`run`].
pub fn check(image: &Path) -> Result<()> {
    run("e2fsck", &[OsStr::new("-fn"), image.as_os_str()]).map(drop)
}

/// As [`check`], for a volume whose journal is in the file `journal`.
///
/// # Errors
/// As [`run`].
pub fn check_with(image: &Path, journal: &Path) -> Result<()> {
    let [options, j] = ["-fn", "-j"].map(OsStr::new);
    run(
        "e2fsck",
        &[options, j, journal.as_os_str(), image.as_os_str()],
    )
    .map(drop)
}

/// `e2fsck -fy` of a volume whose journal is in the file `journal`, once.
///
/// # Errors
/// e2fsck cannot be started, or something could not be repaired.
pub fn repair_with(image: &Path, journal: &Path) -> Result<()> {
    let [options, j] = ["-fy", "-j"].map(OsStr::new);
    changing(
        "e2fsck",
        &[options, j, journal.as_os_str(), image.as_os_str()],
    )
    .map(drop)
}

/// What e2fsck has made of a volume whose journal it was to replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replayed {
    /// The journal is replayed, and orphans are deleted or truncated.
    Whole,
    /// e2fsck (1.47) gave up a truncation: of a map of extents with several leaves it frees one leaf, reports the next one as
    /// "already cleared", and leaves the rest; also of a file that the kernel wrote. Its tree and its bitmaps are wrong then.
    TruncatedWrongly,
}

/// `e2fsck -E journal_only -y`: replays the journal, finishes what is on the orphan list, and does nothing else.
///
/// # Errors
/// e2fsck cannot be started, or fails.
pub fn replay_journal(image: &Path) -> Result<Replayed> {
    let words = ["-E", "journal_only", "-y"].map(OsStr::new);
    let said = changing("e2fsck", &[&words[..], &[image.as_os_str()]].concat())?;
    let gave_up = said.contains("Already cleared indirect block (");
    Ok(if gave_up {
        Replayed::TruncatedWrongly
    } else {
        Replayed::Whole
    })
}

/// `e2fsck -fy`, repeated until it finds nothing more: when it clears an entry of a node, it skips the next one.
///
/// # Errors
/// e2fsck cannot be started, or something could not be repaired, or `REPAIRS` runs are not enough.
pub fn repair(image: &Path) -> Result<()> {
    for _ in 0..REPAIRS {
        changing("e2fsck", &[OsStr::new("-fy"), image.as_os_str()])?;
        if check(image).is_ok() {
            return Ok(());
        }
    }
    check(image)
}

/// `e2fsck -fyD`: indexes directories, and corrects the counts that debugfs leaves wrong.
pub(crate) fn rebuild_dirs(image: &Path) -> Result<()> {
    changing("e2fsck", &[OsStr::new("-fyD"), image.as_os_str()]).map(drop)
}

/// Runs e2fsck where its exit code 1, "changed something", is a success; returns its whole output.
fn changing(program: &str, args: &[&OsStr]) -> Result<String> {
    let output = output(program, args)?;
    if matches!(output.status.code(), Some(0 | 1)) {
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        Ok(String::from_utf8_lossy(&said).into_owned())
    } else {
        Err(failed(program, args, &output))
    }
}

/// Runs one debugfs request and returns its output.
pub(crate) fn debugfs(image: &Path, request: &str) -> Result<Vec<u8>> {
    debugfs_with(&[OsStr::new("-R"), OsStr::new(request), image.as_os_str()])
}

/// Runs a file of debugfs requests, for reading or for writing.
pub(crate) fn debugfs_script(image: &Path, script: &Path, write: bool) -> Result<Vec<u8>> {
    let mut args = vec![OsStr::new("-f"), script.as_os_str(), image.as_os_str()];
    if write {
        args.insert(0, OsStr::new("-w"));
    }
    debugfs_with(&args)
}

fn debugfs_with(args: &[&OsStr]) -> Result<Vec<u8>> {
    let output = output("debugfs", args)?;
    let complaint = String::from_utf8_lossy(&output.stderr)
        .lines()
        .any(|line| !line.starts_with("debugfs 1.") && !line.trim().is_empty());
    if output.status.success() && !complaint {
        Ok(output.stdout)
    } else {
        Err(failed("debugfs", args, &output))
    }
}

/// Starts a program whose output is read as a stream.
pub(crate) fn stream(program: &str, args: &[&OsStr]) -> Result<std::process::Child> {
    let started = tool(program)
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    started.map_err(|source| Error::Start {
        program: program.into(),
        package: package_of(program),
        source,
    })
}
