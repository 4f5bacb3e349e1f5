//! Servers of NBD as programs of their own, at a Unix socket.
//!
//! Input: a command. Output: a server that accepts clients, until it is dropped. Invariant: it does not outlive this process: on Linux the
//! kernel ends it with its parent where the program has an option for that, otherwise the guard does. Limits: one export.

use super::super::super::failure::Failure;
use super::super::super::peer::Peer;
use super::super::super::signals;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to accept clients.
const START: Duration = Duration::from_secs(10);

/// The programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Diorite,
    /// With io_uring, past the page cache.
    Qemu,
    NbdKit,
    /// nbdkit's file plugin below its ext2 filter.
    NbdKitExt2,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::Diorite => "diorite",
            Program::Qemu => "qemu-nbd",
            Program::NbdKit => "nbdkit file",
            Program::NbdKitExt2 => "nbdkit's ext2 filter",
        }
    }

    fn command(self, socket: &Path, path: &str) -> Result<Command, Failure> {
        let (program, args): (PathBuf, &[&str]) = match self {
            Program::Diorite => {
                let this = std::env::current_exe()
                    .map_err(|e| Failure::host("cannot find this program", e))?;
                (this, &["serve", "nbd", "--exit-with-parent", "--socket"])
            }
            Program::Qemu => {
                let args = &[
                    "--aio=io_uring",
                    "--cache=none",
                    "-f",
                    "raw",
                    "-t",
                    "-e",
                    "16",
                    "-k",
                ];
                ("qemu-nbd".into(), args)
            }
            Program::NbdKit | Program::NbdKitExt2 => (
                "nbdkit".into(),
                &["--foreground", "--exit-with-parent", "-U"],
            ),
        };
        let mut command = Command::new(program);
        command.args(args).arg(socket);
        match self {
            Program::Diorite | Program::Qemu => command.arg(path),
            Program::NbdKit => command.args(["file", path]),
            Program::NbdKitExt2 => {
                let (image, inside) = path.split_once('!').unwrap_or((path, "/"));
                let inside = format!("ext2file={inside}");
                command.args(["--filter=ext2", "file", image, &inside])
            }
        };
        Ok(command)
    }
}

/// A program that serves a file, or `image!/path`, with its socket in a directory.
pub(super) struct Server<'a> {
    pub(super) program: Program,
    pub(super) dir: &'a Path,
    pub(super) path: &'a str,
}

impl Peer for Server<'_> {
    type Running = Served;

    fn name(&self) -> &'static str {
        self.program.name()
    }

    fn start(&self) -> Result<Served, Failure> {
        Served::start(self.program, self.dir, self.path)
    }

    fn stop(&self, served: Served) -> Result<(), Failure> {
        drop(served);
        Ok(())
    }
}

/// A running server; it is ended and its socket is removed with the guard.
pub(super) struct Served {
    child: Child,
    socket: PathBuf,
}

impl Served {
    /// Starts a server; returns when it accepts clients.
    fn start(program: Program, dir: &Path, path: &str) -> Result<Served, Failure> {
        let (socket, log) = (dir.join("nbd.sock"), dir.join("nbd.log"));
        // A client that only tries whether a server accepts is an error to some servers: what they print matters only if they do not start.
        let messages = File::create(&log)
            .map_err(|e| Failure::host(format_args!("cannot make {}", log.display()), e))?;
        let child = program
            .command(&socket, path)?
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(messages)
            .spawn()
            .map_err(|e| Failure::unavailable(format!("{}: {e}", program.name())))?;
        let mut served = Served { child, socket };
        let started = Instant::now();
        while UnixStream::connect(&served.socket).is_err() {
            signals::check()?;
            let ended = served.child.try_wait();
            if !matches!(ended, Ok(None)) || started.elapsed() > START {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                let (name, said) = (program.name(), said.trim_end());
                return Err(Failure::unavailable(format!(
                    "{name} accepts no clients: {said}"
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(served)
    }

    pub(super) fn uri(&self) -> String {
        uri(&self.socket)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Best effort, like the removal of its socket: it may have ended, and then there is nothing to do.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// The URI of the default export at a socket.
pub(super) fn uri(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", socket.display())
}
