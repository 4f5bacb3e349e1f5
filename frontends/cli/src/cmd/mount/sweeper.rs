//! Ends a mount whose keeper was killed, or whose server was killed and does not end.
//!
//! A process of its own, which waits for the end of the keeper's socket. If the keeper has not said that it ends, the mount is ended as the
//! keeper would have: it is unmounted, also if it is in use, and the server, if it lives, is told to make everything durable and end. Its
//! users get errors soon.
//!
//! Input: a directory; the keeper's socket to the server; descriptors of the server's process and of the mount. Output: the mount is gone.
//! Invariants: nothing but the keeper's mount is unmounted; nothing is read of the image, and no request but those of a dead server.
//! Limits: if it is killed, too, the mount stays until its server is ended by an unmount or a signal. A mount whose server is dead stays
//! until the next mount or unmount at its place, and a server that is stuck stays so.

use super::keeper::END_SOON;
use super::place::Mount;
use super::{stuck, unmount_dead};
use crate::args::MountArgs;
use crate::cmd::sweeper;
use crate::output::report::Reason;
use diorite_fuse::{Instead, MountOptions, receive, send};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ExitCode};
use std::thread::{Builder, JoinHandle};

/// What it is told, and says: it knows the mount; the keeper has unmounted.
const WATCHED: u8 = b'w';
const ENDED: u8 = b'e';

/// The keeper's end.
pub(super) struct Sweeper {
    socket: File,
    process: Child,
}

impl Sweeper {
    /// Starts the other process. Until [`Sweeper::watch`] it takes away a mount there whose server is dead, and no other.
    pub(super) fn start(args: &MountArgs, dir: &Path) -> Result<Sweeper, Reason> {
        let (socket, process) = sweeper::start(|option| {
            let (image, dir) = (args.locator.as_str().into(), dir.into());
            vec!["mount".into(), option.into(), "--".into(), image, dir]
        })?;
        Ok(Sweeper { socket, process })
    }

    /// What is mounted there now is the keeper's: it has this descriptor, and a server at the other end of this socket.
    pub(super) fn watch(&mut self, socket: &UnixStream, server: &Child, fuse: &OwnedFd) {
        let sent = send(&self.socket, socket).and_then(|()| {
            // Without it a server that is stuck stays so. What is sent instead names no process.
            match pidfd_open(Pid::from_child(server), PidfdFlags::empty()) {
                Ok(process) => send(&self.socket, &process),
                Err(_) => send(&self.socket, socket),
            }?;
            send(&self.socket, fuse)
        });
        // The mount is as good without it.
        let _ = sent.map(|()| self.socket.read_exact(&mut [0]));
    }
}

impl Drop for Sweeper {
    /// The mount is gone, or was never made.
    fn drop(&mut self) {
        // If it was killed there is nobody to be told.
        let _ = self.socket.write_all(&[ENDED]);
        // A keeper that mounts anew would keep a dead child.
        let _ = self.process.wait();
    }
}

/// The other process.
pub(super) fn run(socket: u32, dir: &Path) -> ExitCode {
    let Some(mut keeper) = sweeper::begin(socket) else {
        return ExitCode::FAILURE;
    };
    // A daemon keeps no file system busy.
    let _ = rustix::process::chdir("/");
    let Some((server, process, fuse)) = received(&keeper) else {
        // The keeper was killed before its server had the mount's descriptor, or has ended.
        let _ = unmount_dead(dir, &MountOptions::default());
        return ExitCode::SUCCESS;
    };
    let mount = Mount::new(dir);
    let watched = watch(&server, process, fuse, mount.device.clone());
    // A keeper that has gone is noticed next.
    let _ = keeper.write_all(&[WATCHED]);
    if keeper.read_exact(&mut [0]).is_err() {
        mount.end();
        // It may have ended, too.
        let _ = File::from(server).write_all(&[END_SOON]);
        // Nobody else would help it.
        let _ = watched.map(JoinHandle::join);
    }
    ExitCode::SUCCESS
}

/// What [`Sweeper::watch`] sends.
fn received(keeper: &File) -> Option<(OwnedFd, OwnedFd, OwnedFd)> {
    let next = || receive(keeper).ok().flatten();
    Some((next()?, next()?, next()?))
}

/// Starts a thread that waits for the server's end. Without one, a server that is stuck stays so.
fn watch(
    server: &OwnedFd,
    process: OwnedFd,
    fuse: OwnedFd,
    device: Option<String>,
) -> Option<JoinHandle<()>> {
    let server = server.try_clone().ok()?;
    let work = move || {
        let mount = Instead::new(fuse);
        stuck::until_gone(&server, &process, &mount, device.as_deref());
    };
    let thread = Builder::new().name("sweeper-server".to_owned());
    thread.spawn(work).ok()
}
