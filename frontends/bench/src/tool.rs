//! Runs programs of the host that make and check file systems and devices.
//!
//! Input: a program and its arguments. Output: its standard output, or a failure with its standard error. Invariant: a missing
//! program is "unavailable", not "failed". Limits: waits for the program to end.

use super::failure::Failure;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Runs a program to its end.
pub(super) fn run<A: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = A>,
) -> Result<String, Failure> {
    let program = program.as_ref();
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    command.env("PATH", search_path());
    output(&program.to_string_lossy(), &mut command)
}

/// The directories of programs: mke2fs and similar ones are in directories that an ordinary user's PATH does not contain.
fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    path.push(":/usr/sbin:/sbin");
    path
}

/// The path of a program that [`run`] would run.
pub(super) fn find(program: &str) -> Result<PathBuf, Failure> {
    let path = search_path();
    let mut all = std::env::split_paths(&path).map(|dir| dir.join(program));
    let found = all.find(|file| file.is_file());
    found.ok_or_else(|| not_installed(program))
}

fn not_installed(program: &str) -> Failure {
    Failure::unavailable(format!("{program} is not installed"))
}

/// Runs a prepared command to its end.
pub(super) fn output(program: &str, command: &mut Command) -> Result<String, Failure> {
    let output = command.output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => not_installed(program),
        _ => Failure::host(format_args!("cannot run {program}"), e),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let last = complaint
        .lines()
        .rfind(|l| !l.trim().is_empty())
        .unwrap_or("no reason given");
    Err(Failure::failed(format!(
        "{program} ended with {}: {last}",
        output.status
    )))
}
