//! Ends a mount whose server was killed and whose process does not end.
//!
//! The kernel ends the connection of a mount when the last descriptor of it is closed. A thread of a server that was killed may be in the
//! kernel, where no signal reaches it, and wait there for pages that only its dead siblings could have written: so it keeps the descriptor
//! open, and neither it nor any caller ever gets an answer. Another process then ends the connection, or answers in the server's place.
//!
//! Input: a descriptor of the mount; the numbers of its device. Output: every caller has an error. Invariants: no other connection is
//! ended, though its device may have got the same numbers; nothing of the requests is used but the number that a reply needs. Limits: where
//! neither root nor the host's file system of connections helps, requests that the dead server had taken are answered from Linux 6.9 on.
//! Source: the kernel's documentation of FUSE, its uapi header `linux/fuse.h` (BSD-2-Clause).

use super::{Channel, Incoming, Reply};
use crate::wire::input::Header;
use crate::wire::{NOTIFY_RESEND, output};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, IoSlice, write, writev};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::time::{Duration, Instant};

/// Where a host has the connections of its FUSE mounts: a directory each, by the number of the device.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Whoever can end a mount in its server's place.
#[derive(Debug)]
pub struct Instead(Channel);

impl Instead {
    /// Of the mount of this descriptor. As long as this lives the kernel does not end the mount by itself when its server has gone.
    #[must_use]
    pub fn new(fuse: OwnedFd) -> Instead {
        Instead(Channel::new(fuse, false))
    }

    /// Ends the mount. Call it when the server can answer nobody any more. `device`: the numbers of the mount's device. `server`: a socket
    /// whose other end only the server has. Blocks until the kernel has ended the connection, or the server has gone.
    ///
    /// # Errors
    /// It goes on: the host permits none of the ways.
    pub fn end(&self, device: Option<&str>, server: &impl AsFd) -> Result<(), Errno> {
        match device.map(|device| self.abort(device)) {
            Some(Ok(())) => Ok(()),
            _ => self.answer(server),
        }
    }

    /// Tells the kernel to end the connection.
    fn abort(&self, device: &str) -> Result<(), Errno> {
        // The device of a mount without a disk has the major number 0, and the connection is named by the whole number.
        let number = device.strip_prefix("0:").ok_or(Errno::INVAL)?;
        let file = abort_file(CWD, &format!("{CONNECTIONS}/{number}/abort"))
            .or_else(|_| abort_file(all_connections()?.as_fd(), &format!("{number}/abort")))?;
        // The number was another mount's only if this one had ended before the file was opened. The file stays that of one connection.
        match self.has_ended()? {
            true => Ok(()),
            false => write(&file, b"1").map(drop),
        }
    }

    fn has_ended(&self) -> Result<bool, Errno> {
        let mut fds = [PollFd::new(&self.0, PollFlags::empty())];
        poll(&mut fds, Some(&Timespec::default()))?;
        Ok(fds[0].revents().contains(PollFlags::ERR))
    }

    /// Answers every request as the kernel does when it ends a connection.
    fn answer(&self, server: &impl AsFd) -> Result<(), Errno> {
        /// A dying thread may have taken a request after the first time.
        const AGAIN: Duration = Duration::from_millis(200);
        let pause = Timespec::try_from(AGAIN).map_err(|_| Errno::INVAL)?;
        let mut request = Incoming::try_new().ok_or(Errno::NOMEM)?;
        let mut asked = None;
        loop {
            if asked.is_none_or(|asked: Instant| asked.elapsed() >= AGAIN) {
                self.ask_again()?;
                asked = Some(Instant::now());
            }
            let mut fds = [
                PollFd::new(&self.0, PollFlags::IN),
                PollFd::from_borrowed_fd(server.as_fd(), PollFlags::empty()),
            ];
            match poll(&mut fds, Some(&pause)) {
                Err(Errno::INTR) => continue,
                polled => polled?,
            };
            if !fds[1].revents().is_empty() {
                return Ok(());
            }
            match self.0.receive_once(&mut request)? {
                Some(true) => self.refuse(&request),
                Some(false) => return Ok(()),
                None => {}
            }
        }
    }

    /// Has the kernel give all requests again that were taken and not answered.
    fn ask_again(&self) -> Result<(), Errno> {
        let notice = output::header(0, NOTIFY_RESEND, 0);
        match writev(&self.0, &[IoSlice::new(&notice)]) {
            // It has ended.
            Err(Errno::NOTCONN | Errno::NODEV | Errno::CONNABORTED) => Ok(()),
            sent => sent.map(drop),
        }
    }

    fn refuse(&self, request: &Incoming) {
        if let Ok(header) = Header::parse(request.before()) {
            let failed = Reply::Failed(Errno::CONNABORTED);
            // Its caller may have gone, or waits for no reply.
            let _ = self.0.reply(header.unique, request, failed);
        }
    }
}

fn abort_file(dir: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    openat(dir, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

/// The directory of all connections, where the host has it mounted nowhere: in no mount table. For root.
fn all_connections() -> Result<OwnedFd, Errno> {
    let fs = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(fs.as_fd())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    fsmount(fs.as_fd(), flags, MountAttrFlags::empty())
}
