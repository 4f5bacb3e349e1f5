//! Standard output: the one place that prints.
//!
//! Input: lines, bytes, facts. Output: standard output, buffered. Invariants: a reader that went away ends the process quietly, with the
//! status that a shell shows for SIGPIPE; any other failure to write is a message and the command's code for failures; nothing is written
//! into an image that is open here, to which standard output may have been redirected. Limits: one [`Out`] at a time; what is buffered is
//! lost if it is dropped without [`Out::finish`].

use diorite_block::held_as;
use serde::Serialize;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::sync::atomic::{AtomicI32, Ordering};

/// What a shell reports for a process that SIGPIPE ended: 128 + 13.
const BROKEN_PIPE: i32 = 141;

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

    /// Is somebody looking at it?
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

    /// Sends what is buffered.
    pub(crate) fn flush(&mut self) {
        let flushed = self.inner.flush();
        printed(flushed);
    }

    /// Sends what is buffered, at the end.
    pub(crate) fn finish(mut self) {
        self.flush();
    }
}

/// Standard output, if it leads to nothing that is in use here.
pub(crate) struct Guarded(pub(crate) StdoutLock<'static>);

impl Write for Guarded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
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

/// Prints a line on standard error; that it cannot be printed is no reason to stop. Nor is that it would end up in an image.
pub(crate) fn complain_best_effort(text: impl fmt::Display) {
    let mut stderr = io::stderr().lock();
    if matches!(held_as(&stderr), Ok(None)) {
        let _ = writeln!(stderr, "{text}");
    }
}

/// The code of a command that cannot do what it was asked.
static FAILURE: AtomicI32 = AtomicI32::new(1);

/// The command of this process ends with another code than 1 where it cannot do what it was asked.
pub(crate) fn fail_with(code: i32) {
    FAILURE.store(code, Ordering::Relaxed);
}

/// What becomes of a failure to print.
pub(crate) fn printed(written: io::Result<()>) {
    let Err(error) = written else { return };
    if error.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(BROKEN_PIPE);
    }
    let error = error.to_string();
    let words = error.split(" (os error").next().unwrap_or(&error);
    complain_best_effort(format_args!("diorite: write error: {words}"));
    std::process::exit(FAILURE.load(Ordering::Relaxed));
}
