//! Makes the pid file of a server, and removes it and the socket at the end, because the server may not do that in its sandbox.
//!
//! Input: single bytes of the server; the paths of its own arguments. Output: files made and removed. Invariants: no path comes from the
//! server; what is removed is the socket that was there when the server began, and the pid file that was made here; a server that is killed
//! leaves its socket, as every server does. Limits: it is a process of its own, outside of the sandbox, which opens no image and reads
//! nothing from clients.

use crate::args::NbdArgs;
use crate::cmd::sweeper::{self, text};
use crate::host::service::PidFile;
use crate::output::report::Reason;
use rustix::fs::{FileType, Stat, lstat};
use rustix::process::getppid;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

/// What it is told, one byte each, and answers with the same when it is done: the socket is there; clients may come; the server ends.
const MADE: u8 = b'm';
const READY: u8 = b'r';
const SWEEP: u8 = b's';
/// The answer otherwise. Why follows, and the end.
const FAILED: u8 = b'f';

/// The server's end.
pub(super) struct Sweeper(File);

impl Sweeper {
    /// Starts the other process.
    pub(super) fn start() -> Result<Sweeper, Reason> {
        let (socket, _) = sweeper::start(|option| {
            let (mut words, behind) = crate::usage::around("nbd");
            words.push(option.into());
            words.extend(behind);
            words
        })?;
        Ok(Sweeper(socket))
    }

    /// Says that the socket is there.
    pub(super) fn made(mut self) -> Result<Sweeper, Reason> {
        self.tell(MADE)?;
        Ok(self)
    }

    /// Has the pid file written.
    pub(super) fn write_pid_file(&mut self) -> Result<(), Reason> {
        self.tell(READY)
    }

    /// Tells it something, and waits until that is done.
    fn tell(&mut self, what: u8) -> Result<(), Reason> {
        let mut answer = [0];
        self.0.write_all(&[what]).map_err(text)?;
        self.0.read_exact(&mut answer).map_err(text)?;
        if answer == [what] {
            return Ok(());
        }
        let mut why = String::new();
        self.0.read_to_string(&mut why).map_err(text)?;
        Err(Reason::new(why))
    }
}

impl Drop for Sweeper {
    /// Has the files removed.
    fn drop(&mut self) {
        // If it is gone, the files stay, and the next server replaces them.
        let _ = self.tell(SWEEP);
    }
}

/// The other process.
pub(super) fn run(socket: u32, args: &NbdArgs) -> ExitCode {
    let served = sweeper::begin(socket).map(|mut server| serve(&mut server, args));
    match served {
        Some(Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn serve(server: &mut File, args: &NbdArgs) -> std::io::Result<()> {
    let number = getppid().map_or(0, |pid| pid.as_raw_nonzero().get().cast_unsigned());
    let (mut made, mut pid_file, mut byte) = (None, None, [0]);
    loop {
        server.read_exact(&mut byte)?;
        match (byte[0], args.pid_file.as_deref()) {
            (MADE, _) => made = args.socket.as_deref().and_then(socket_at),
            (READY, Some(path)) => match PidFile::write_of(path, number) {
                Ok(file) => pid_file = Some(file),
                Err(why) => {
                    server.write_all(&[FAILED])?;
                    return write!(server, "{why}");
                }
            },
            (SWEEP, _) => {
                drop(pid_file.take());
                sweep(args, made);
                return server.write_all(&byte);
            }
            _ => {}
        }
        server.write_all(&byte)?;
    }
}

fn sweep(args: &NbdArgs, made: Option<Stat>) {
    let number = |stat: Stat| (stat.st_dev, stat.st_ino);
    let made = made.map(number);
    for path in args.socket.iter() {
        if made.is_some() && socket_at(path).map(number) == made {
            // Best effort: nobody hears of it.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn socket_at(path: &Path) -> Option<Stat> {
    let is_socket = |there: &Stat| FileType::from_raw_mode(there.st_mode) == FileType::Socket;
    lstat(path).ok().filter(is_socket)
}
