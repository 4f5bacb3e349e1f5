//! Shared by commands that serve until a signal ends them.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `signals` | SIGTERM, SIGINT, SIGHUP, SIGUSR1 -> what to do |
//! | `service` | a moment -> the pid file and the ready descriptor say that clients may come |
//!
//! Input: options. Output: files, lines. Invariant: the pid file is there only while the process serves. Limits: none of its own.

mod signals;

pub(crate) use signals::{Event, Signals};

use crate::output::report::Reason;
use std::fs::{File, Metadata};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file with the process's number, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    file: File,
}

impl PidFile {
    /// Writes the file. One that is there is replaced by a new one, so that its writer does not remove this one. A symbolic link is not
    /// followed.
    pub(crate) fn write(path: &Path) -> Result<PidFile, Reason> {
        PidFile::write_of(path, std::process::id())
    }

    /// As [`PidFile::write`], with another process's number.
    pub(crate) fn write_of(path: &Path, process: u32) -> Result<PidFile, Reason> {
        let context = |e: std::io::Error| Reason::new(format!("{}: {e}", path.display()));
        let path = std::path::absolute(path).map_err(context)?;
        if std::fs::symlink_metadata(&path).is_ok_and(|there| there.is_file()) {
            std::fs::remove_file(&path).map_err(context)?;
        }
        crate::host::new_file::check_not_among_devices(&path)
            .map_err(|why| Reason::new(format!("{}: {why}", path.display())))?;
        let new = File::options().write(true).create_new(true).open(&path);
        let mut file = new.map_err(context)?;
        let written = writeln!(file, "{process}");
        written.map_err(context)?;
        Ok(PidFile { path, file })
    }

    fn is_there(&self) -> bool {
        let number = |of: &Metadata| (of.dev(), of.ino());
        let there = std::fs::symlink_metadata(&self.path);
        let (there, ours) = (there.as_ref().map(number), self.file.metadata());
        there.is_ok_and(|there| ours.is_ok_and(|ours| number(&ours) == there))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Another process may have written its own meanwhile.
        if self.is_there() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The ready descriptor.
#[derive(Debug)]
pub(crate) struct Ready(File);

impl Ready {
    /// A second descriptor for what the number names, as the number itself belongs to nobody here.
    pub(crate) fn open(fd: u32) -> Result<Ready, Reason> {
        let opened = diorite_fuse::inherited(fd);
        opened
            .map(|fd| Ready(fd.into()))
            .map_err(|e| Reason::host(format_args!("descriptor {fd}"), e))
    }

    /// Has whoever waits for the line given up? Only a pipe says so.
    pub(crate) fn is_forsaken(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.0, PollFlags::empty())];
        let now = Timespec::default();
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::ERR)
    }

    /// The descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Writes the line, and closes the descriptor.
    pub(crate) fn tell(mut self) -> Result<(), Reason> {
        let told = self.0.write_all(b"ready\n");
        told.map_err(|e| Reason::new(format!("the ready descriptor: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name below /dev that is not there is a typing error.
    #[test]
    fn no_pid_file_among_devices() {
        let path = format!("/dev/diorite-pid-{}", std::process::id());
        // Removed when dropped.
        let refused = PidFile::write(Path::new(&path)).map(drop);
        let why = refused.expect_err("no place for files").to_string();
        assert!(why.contains("no file is made among devices"), "{why}");
    }
}
