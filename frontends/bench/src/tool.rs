//! Runs programs of the host that make and check file systems and devices.
//!
//! Input: a program and its arguments. Output: its standard output, or a failure with its standard error. Invariant: a missing
//! program is "unavailable", not "failed". Limits: waits for the program to end.

use super::failure::Failure;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// Runs a program to its end.
pub(super) fn run<A: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = A>,
) -> Result<String, Failure> {
    let program = program.as_ref();
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    // mke2fs and similar programs are in directories that an ordinary user's PATH does not contain.
    if let Some(path) = std::env::var_os("PATH") {
        let mut path = path;
        path.push(":/usr/sbin:/sbin");
        command.env("PATH", path);
    }
    output(&program.to_string_lossy(), &mut command)
}

/// Runs a prepared command to its end.
pub(super) fn output(program: &str, command: &mut Command) -> Result<String, Failure> {
    let output = command.output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Failure::unavailable(format!("{program} is not installed")),
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
