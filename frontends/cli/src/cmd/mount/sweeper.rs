//! What ends a mount whose keeper was killed.
//!
//! A process of its own, which waits for the end of the keeper's socket. If the keeper has not said that it ends, the mount is ended as the
//! keeper would have: it is unmounted, also if it is in use, and the server, if it lives, is told to make everything durable and end. Its
//! users get errors soon.
//!
//! Input: a directory; the keeper's socket to the server. Output: the mount is gone. Invariants: nothing but the keeper's mount is
//! unmounted; nothing is read of the image. Limits: if it is killed, too, the mount stays until its server is ended by an unmount or a
//! signal, and a mount whose server is dead until the next mount or unmount at its place.

use super::keeper::END_SOON;
use super::place::Mount;
use super::unmount_dead;
use crate::args::MountArgs;
use crate::cmd::sweeper;
use crate::report::Reason;
use diorite_fuse::MountOptions;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ExitCode};

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

    /// What is mounted there now is the keeper's, and has a server at the other end of this socket.
    pub(super) fn watch(&mut self, server: &impl std::os::fd::AsFd) {
        // The mount is as good without it.
        let _ = diorite_fuse::send(&self.socket, server);
        let _ = self.socket.read_exact(&mut [0]);
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
    let Ok(Some(server)) = diorite_fuse::receive(&keeper) else {
        // The keeper was killed before its server had the mount's descriptor, or has ended.
        let _ = unmount_dead(dir, &MountOptions::default());
        return ExitCode::SUCCESS;
    };
    let mount = Mount::new(dir);
    // A keeper that has gone is noticed next.
    let _ = keeper.write_all(&[WATCHED]);
    if keeper.read_exact(&mut [0]).is_err() {
        mount.end();
        // It may have ended, too.
        let _ = File::from(server).write_all(&[END_SOON]);
    }
    ExitCode::SUCCESS
}
