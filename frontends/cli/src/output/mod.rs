//! Standard output: the one place that prints. Messages and progress on standard error are modules of it.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `report` | errors, descriptions of changes -> messages, the exit code |
//! | `progress` | counts of files and bytes -> a bar, or a line now and then |
//!
//! Input: lines, bytes, values for JSON. Output: standard output, buffered. Invariants: if the reader of a pipe has closed it, the
//! process ends without a message, with the status that a shell shows for SIGPIPE; any other write error is a message and the
//! command's exit code for failures; a command that changes an image prints nothing more, and ends so when its image is closed; if
//! standard output was redirected to an image that this process has open, nothing is written there. Limits: one [`Out`] at a time; what
//! is buffered is lost if it is dropped without [`Out::finish`].

pub(crate) mod progress;
pub(crate) mod report;

use diorite_block::{held_as, reported_at_close, stdout_was_closed};
use rustix::io::Errno;
use serde::Serialize;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// What a shell reports for a process that SIGPIPE ended: 128 + 13.
const BROKEN_PIPE: u8 = 141;

/// See the module.
pub(crate) struct Out {
    inner: BufWriter<Guarded>,
    terminal: bool,
}

impl Out {
    /// Standard output.
    pub(crate) fn new() -> Out {
        let stdout = io::stdout();
        Out {
            terminal: stdout.is_terminal(),
            inner: BufWriter::with_capacity(64 << 10, Guarded(stdout.lock())),
        }
    }

    /// Whether standard output is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Prints a line.
    pub(crate) fn line(&mut self, text: impl fmt::Display) {
        let written = writeln!(self.inner, "{text}");
        printed(written);
    }

    /// Prints bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let written = self.inner.write_all(bytes);
        printed(written);
    }

    /// Prints one JSON value on a line of its own.
    pub(crate) fn json(&mut self, value: &impl Serialize) {
        let written = serde_json::to_writer(&mut self.inner, value).map_err(io::Error::from);
        printed(written);
        self.bytes(b"\n");
    }

    /// Writes out the buffer.
    pub(crate) fn flush(&mut self) {
        let flushed = self.inner.flush();
        printed(flushed);
    }

    /// Writes out the buffer at the end of the command, and reports what the host says only when the file is closed.
    pub(crate) fn finish(mut self) {
        self.flush();
        printed(reported_at_close(io::stdout()).map_err(io::Error::from));
    }
}

/// Standard output; a write fails if it is redirected to an image that this process has open.
pub(crate) struct Guarded(pub(crate) StdoutLock<'static>);

impl Write for Guarded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if FAILED.load(Ordering::Relaxed) != 0 {
            return Ok(bytes.len());
        }
        check_open()?;
        if let Some(path) = held_as(&self.0)? {
            let what = format!(
                "standard output is {}, which is in use as an image",
                path.display()
            );
            return Err(io::Error::other(what));
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Fails if the process was started without a standard output.
pub(crate) fn check_open() -> Result<(), Errno> {
    match stdout_was_closed() {
        true => Err(Errno::BADF),
        false => Ok(()),
    }
}

/// Prints a line on standard error. If it cannot be printed, or would be written into an image that this process has open, it
/// is dropped.
pub(crate) fn complain_best_effort(text: impl fmt::Display) {
    let mut stderr = io::stderr().lock();
    if matches!(held_as(&stderr), Ok(None)) {
        let _ = writeln!(stderr, "{text}");
    }
}

/// The exit code for a failure to print.
static FAILURE: AtomicU8 = AtomicU8::new(1);

/// Sets the exit code for a failure to print, for a command where it is not 1.
pub(crate) fn fail_with(code: u8) {
    FAILURE.store(code, Ordering::Relaxed);
}

/// Whether an image is open for writing, or was.
static CHANGES: AtomicBool = AtomicBool::new(false);

/// The exit code that a failure to print has led to; 0: none.
static FAILED: AtomicU8 = AtomicU8::new(0);

/// A failure to print does not end the process from now on: an image that is not closed may need e2fsck.
pub(crate) fn outlive_failures() {
    CHANGES.store(true, Ordering::Relaxed);
}

/// The process's exit code, from the command's: a failure to print takes the place of success, and the end of a pipe that of all.
pub(crate) fn exit_code(of_command: ExitCode) -> ExitCode {
    match FAILED.load(Ordering::Relaxed) {
        0 => of_command,
        BROKEN_PIPE => ExitCode::from(BROKEN_PIPE),
        code if of_command == ExitCode::SUCCESS => ExitCode::from(code),
        _ => of_command,
    }
}

/// If `written` is an error, ends the process, or notes that it is to fail; see [`outlive_failures`].
pub(crate) fn printed(written: io::Result<()>) {
    let Err(error) = written else { return };
    let code = match error.kind() {
        io::ErrorKind::BrokenPipe => BROKEN_PIPE,
        _ => FAILURE.load(Ordering::Relaxed),
    };
    let is_first = FAILED.swap(code, Ordering::Relaxed) == 0;
    if is_first && code != BROKEN_PIPE {
        let error = error.to_string();
        let words = error.split(" (os error").next().unwrap_or(&error);
        complain_best_effort(format_args!("diorite: write error: {words}"));
    }
    if !CHANGES.load(Ordering::Relaxed) {
        std::process::exit(i32::from(code));
    }
}
