//! What removes the socket and the pid file of a server that is not root's any more, and so may not remove them itself.
//!
//! Input: single bytes of the server; the paths of its own arguments. Output: the files are gone. Invariants: no path comes from the server;
//! only a socket that was there when the server began, and a pid file of that server, are removed; a server that is killed leaves its files,
//! as every server does. Limits: a process of its own, outside of the sandbox, that opens nothing of an image and hears no client.

use crate::args::NbdArgs;
use crate::cmd::mount::{raw, this_program};
use crate::report::Reason;
use rustix::fs::{FileType, Stat, lstat};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, getppid, setsid};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

/// What it is told, one byte each: the socket is there; the server ends.
const MADE: u8 = b'm';
const SWEEP: u8 = b's';

/// The server's end.
pub(super) struct Sweeper(File);

impl Sweeper {
    /// Starts the other process.
    pub(super) fn start() -> Result<Sweeper, Reason> {
        let text = |e: std::io::Error| Reason::new(format!("another process: {e}"));
        let (ours, theirs) = UnixStream::pair().map_err(text)?;
        fcntl_setfd(&theirs, FdFlags::empty()).map_err(|e| Reason::host("a socket", e))?;
        let mut program = this_program()?;
        let (upto, behind) = crate::usage::around("nbd");
        program.args(upto);
        program.arg(format!("--sweep={}", theirs.as_raw_fd()));
        program.args(behind);
        program
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        program.spawn().map_err(text)?;
        Ok(Sweeper(OwnedFd::from(ours).into()))
    }

    /// Says that the socket is there, and waits until that is noted.
    pub(super) fn made(mut self) -> Result<Sweeper, Reason> {
        let text = |e: std::io::Error| Reason::new(format!("another process: {e}"));
        self.0.write_all(&[MADE]).map_err(text)?;
        self.0.read_exact(&mut [0]).map_err(text)?;
        Ok(self)
    }
}

impl Drop for Sweeper {
    /// Has the files removed, and waits for that.
    fn drop(&mut self) {
        // If it is gone, the files stay, and the next server replaces them.
        let _ = self.0.write_all(&[SWEEP]);
        let _ = self.0.read(&mut [0]);
    }
}

/// The other process.
pub(super) fn run(socket: u32, args: &NbdArgs) -> ExitCode {
    let Ok(socket) = diorite_fuse::inherited(socket) else {
        return ExitCode::FAILURE;
    };
    diorite_fuse::close_others(vec![raw(&socket)]);
    // Signals from a terminal are for the server.
    let _ = setsid();
    let server = getppid();
    let mut socket = File::from(socket);
    let (mut made, mut byte) = (None, [0]);
    while socket.read_exact(&mut byte).is_ok() {
        match byte[0] {
            MADE => {
                made = args.socket.as_deref().and_then(socket_at);
                if socket.write_all(&[MADE]).is_err() {
                    break;
                }
            }
            SWEEP => {
                sweep(args, made, server);
                break;
            }
            _ => {}
        }
    }
    ExitCode::SUCCESS
}

fn sweep(args: &NbdArgs, made: Option<Stat>, server: Option<Pid>) {
    let number = |stat: Stat| (stat.st_dev, stat.st_ino);
    let made = made.map(number);
    let is_made = |path: &&PathBuf| made.is_some() && socket_at(path).map(number) == made;
    let pid = server.map(|pid| format!("{}\n", pid.as_raw_nonzero()));
    let is_ours = |path: &&PathBuf| {
        let is_file = path.symlink_metadata().is_ok_and(|there| there.is_file());
        is_file && std::fs::read_to_string(path).ok() == pid
    };
    let socket = args.socket.iter().filter(is_made);
    for path in socket.chain(args.pid_file.iter().filter(is_ours)) {
        // Best effort: nobody hears of it.
        let _ = std::fs::remove_file(path);
    }
}

fn socket_at(path: &Path) -> Option<Stat> {
    let is_socket = |there: &Stat| FileType::from_raw_mode(there.st_mode) == FileType::Socket;
    lstat(path).ok().filter(is_socket)
}
