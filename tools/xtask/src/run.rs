//! What it is: how the tools of e2fsprogs and util-linux are run.
//! Input: a program and its arguments. Output: what it printed, or an error that shows it.
//! Everything runs with `LC_ALL=C`, `TZ=UTC` and no standard input; `/sbin` is on the path.
//! Invariant: debugfs exits 0 whatever happens, so for it any complaint on stderr is a failure.

use crate::error::{Error, Result};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Times that e2fsck may need to put a volume in order.
const REPAIRS: usize = 8;

/// A tool with the environment that makes answers comparable, found in `/usr/sbin` and `/sbin` too: an ordinary user's PATH has neither.
pub fn tool(program: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{path}:/usr/sbin:/sbin");
    // By its full path the program is spawned; searched for along a changed PATH it would be forked, and every page of
    // this process copied when it is next written.
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file());
    let mut command = Command::new(found.unwrap_or_else(|| program.into()));
    command
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .env("PATH", path)
        .stdin(Stdio::null());
    command
}

/// Runs a program and gives its output, whatever its exit code.
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

/// The error of a command that did not do what it should.
fn failed<S: AsRef<OsStr>>(program: &str, args: &[S], output: &Output) -> Error {
    let args: Vec<_> = args
        .iter()
        .map(|a| a.as_ref().to_string_lossy().into_owned())
        .collect();
    // What debugfs prints on stdout is an echo of the script.
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

/// Runs a program that must exit with 0; gives its standard output.
///
/// # Errors
/// When it cannot be started or exits with anything else: the error shows what it printed.
pub fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Result<Vec<u8>> {
    let output = output(program, args)?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(failed(program, args, &output))
    }
}

/// `e2fsck -fn`: exit code 0, or an error with what it found.
///
/// # Errors
/// As [`run`].
pub fn check(image: &Path) -> Result<()> {
    run("e2fsck", &[OsStr::new("-fn"), image.as_os_str()]).map(drop)
}

/// As [`check`], of a volume whose journal is in the file `journal`.
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
/// When e2fsck cannot be started, or something could not be repaired.
pub fn repair_with(image: &Path, journal: &Path) -> Result<()> {
    let [options, j] = ["-fy", "-j"].map(OsStr::new);
    changing(
        "e2fsck",
        &[options, j, journal.as_os_str(), image.as_os_str()],
    )
    .map(drop)
}

/// `e2fsck -E journal_only -y`: replays the journal and does nothing else.
///
/// # Errors
/// When e2fsck cannot be started, or finds more than a journal to replay.
pub fn replay_journal(image: &Path) -> Result<()> {
    let words = ["-E", "journal_only", "-y"].map(OsStr::new);
    changing("e2fsck", &[&words[..], &[image.as_os_str()]].concat()).map(drop)
}

/// `e2fsck -fy`: repairs whatever it finds, again and again: where it clears one entry of a node it passes over the next.
///
/// # Errors
/// When e2fsck cannot be started, or something could not be repaired, or a few times are not enough.
pub fn repair(image: &Path) -> Result<()> {
    for _ in 0..REPAIRS {
        changing("e2fsck", &[OsStr::new("-fy"), image.as_os_str()])?;
        if check(image).is_ok() {
            return Ok(());
        }
    }
    check(image)
}

/// `e2fsck -fyD`: indexes directories, and squares accounts that debugfs leaves open.
pub(crate) fn rebuild_dirs(image: &Path) -> Result<()> {
    changing("e2fsck", &[OsStr::new("-fyD"), image.as_os_str()]).map(drop)
}

/// Runs e2fsck where its exit code 1, "changed something", is what was asked for; gives all that it says.
fn changing(program: &str, args: &[&OsStr]) -> Result<String> {
    let output = output(program, args)?;
    if matches!(output.status.code(), Some(0 | 1)) {
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        Ok(String::from_utf8_lossy(&said).into_owned())
    } else {
        Err(failed(program, args, &output))
    }
}

/// Runs one debugfs request and gives its output.
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

/// A program whose output is read as a stream.
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
