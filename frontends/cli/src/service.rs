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
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file with the process's number, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file. A symbolic link is not followed.
    pub(crate) fn write(path: &Path) -> Result<PidFile, Reason> {
        let context = |e: std::io::Error| Reason::new(format!("{}: {e}", path.display()));
        let path = std::path::absolute(path).map_err(context)?;
        let mut options = File::options();
        options.write(true).create(true).truncate(true);
        options.custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(&path).map_err(context)?;
        file.write_all(PidFile::line().as_bytes())
            .map_err(context)?;
        Ok(PidFile(path))
    }

    fn line() -> String {
        format!("{}\n", std::process::id())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Another process may have written its own number meanwhile, or removed the file.
        if std::fs::read(&self.0).is_ok_and(|text| text == PidFile::line().as_bytes()) {
            let _ = std::fs::remove_file(&self.0);
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
