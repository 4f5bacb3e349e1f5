//! What commands share that serve until a signal ends them.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `signals` | SIGTERM, SIGINT, SIGHUP, SIGUSR1 -> what to do |
//! | `service` | a moment -> the pid file and the ready descriptor say that clients may come |
//!
//! Input: options. Output: files, lines. Invariant: the pid file is there only while the process serves. Limits: none of its own.

mod signals;

pub(crate) use signals::{Event, Signals};

use crate::report::Reason;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file with the process's number, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file.
    pub(crate) fn write(path: &Path) -> Result<PidFile, Reason> {
        let written = std::fs::write(path, format!("{}\n", std::process::id()));
        written.map_err(|e| Reason::new(format!("{}: {e}", path.display())))?;
        Ok(PidFile(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Somebody else has removed it if that fails.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The ready descriptor.
#[derive(Debug)]
pub(crate) struct Ready(File);

impl Ready {
    /// Opens the descriptor through its name, as the descriptor itself belongs to nobody here.
    pub(crate) fn open(fd: u32) -> Result<Ready, Reason> {
        let opened = File::options()
            .append(true)
            .open(format!("/proc/self/fd/{fd}"));
        opened
            .map(Ready)
            .map_err(|e| Reason::new(format!("descriptor {fd}: {e}")))
    }

    /// Writes the line, and closes the descriptor.
    pub(crate) fn tell(mut self) -> Result<(), Reason> {
        let told = self.0.write_all(b"ready\n");
        told.map_err(|e| Reason::new(format!("the ready descriptor: {e}")))
    }
}
