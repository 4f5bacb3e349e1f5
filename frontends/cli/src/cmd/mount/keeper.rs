//! The process that keeps a mount: it mounts, unmounts, and waits for signals.
//!
//! Input: a mount point, signals, the server's messages and end. Output: a mount; the pid file and the ready descriptor. Invariants: it
//! reads nothing of the image; when it ends the mount is gone, and if the server ended well everything is durable. Limits: a mount that is
//! in use when a signal comes is detached, and its users get errors.

use super::{again, this_program};
use crate::args::MountArgs;
use crate::report::{Reason, Report};
use crate::service::{Event, PidFile, Ready, Signals};
use diorite_fuse::MountOptions;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mount::MountFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

/// What the server says, one byte each.
pub(super) const OPENED: u8 = b'o';
pub(super) const OPENED_READ_ONLY: u8 = b'r';
pub(super) const SERVING: u8 = b's';

/// What the keeper waits for.
enum News {
    Signal(Event),
    Ended(std::io::Result<ExitStatus>),
}

pub(super) fn run(
    args: &MountArgs,
    dir: &Path,
    mut options: MountOptions,
    report: &mut Report,
) -> Result<(), Reason> {
    let text = |what: &'static str| move |e: std::io::Error| Reason::new(format!("{what}: {e}"));
    if args.detached {
        rustix::process::setsid().map_err(|e| Reason::host("a session", e))?;
    }
    let signals = Signals::watch().map_err(text("cannot watch for signals"))?;
    let ready = args.ready_fd.map(Ready::open).transpose()?;
    if let Some(fd) = args.ready_fd {
        // The server must not keep it open.
        diorite_fuse::inherited(fd)
            .map_err(|e| Reason::host(format_args!("descriptor {fd}"), e))?;
    }
    let (mut socket, theirs) = UnixStream::pair().map_err(text("a socket"))?;
    fcntl_setfd(&theirs, FdFlags::empty()).map_err(|e| Reason::host("a socket", e))?;
    let mut server = this_program()?;
    server.args(again(&[format!("--server={}", theirs.as_raw_fd())]));
    server.stdin(Stdio::null());
    let mut server = server.spawn().map_err(text("another process"))?;
    drop(theirs);
    match said(&mut socket) {
        Some(OPENED) => {}
        Some(OPENED_READ_ONLY) => options.flags |= MountFlags::RDONLY,
        _ => return end_of(&mut server, report),
    }
    let fuse = diorite_fuse::mount(dir, &options);
    let fuse = match fuse {
        Ok(fuse) => fuse,
        Err(error) => {
            drop(socket);
            // It ends when nobody is at the other end.
            let _ = server.wait();
            return Err(Reason::new(error.to_string()));
        }
    };
    let mount = Mount { dir };
    diorite_fuse::send(&socket, &fuse).map_err(|e| Reason::host("the server", e))?;
    drop(fuse);
    if said(&mut socket) != Some(SERVING) {
        return end_of(&mut server, report);
    }
    let pid_file = args.pid_file.as_deref().map(PidFile::write).transpose()?;
    if args.verbose {
        report.done(format_args!(
            "mounted {} at {}",
            args.locator,
            dir.display()
        ));
    }
    ready.map_or(Ok(()), Ready::tell)?;
    if args.detached {
        let_go_of_terminal()?;
    }
    // The server closes its end when it does, too.
    let status = until_the_end(signals, server, &mount, args, report)?;
    drop((mount, pid_file, socket));
    judge(status, report)
}

/// What the server says next. None if it has ended.
fn said(socket: &mut UnixStream) -> Option<u8> {
    let mut byte = [0];
    socket.read_exact(&mut byte).ok()?;
    Some(byte[0])
}

/// The end of a server that could not begin: it has said why.
fn end_of(server: &mut Child, report: &mut Report) -> Result<(), Reason> {
    let status = server.wait().map_err(|e| Reason::new(e.to_string()))?;
    match status.code() {
        Some(_) => report.failed(1),
        None => return judge(status, report),
    }
    Ok(())
}

fn judge(status: ExitStatus, report: &mut Report) -> Result<(), Reason> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(_), _) => {
            report.failed(1);
            Ok(())
        }
        (None, signal) => Err(Reason::new(format!(
            "the process that served it was ended by signal {}; the next mount recovers by the journal",
            signal.unwrap_or(0)
        ))),
    }
}

/// A mount point; what a dead server has left there is unmounted when this is dropped.
struct Mount<'a> {
    dir: &'a Path,
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // Not by stat(2), which the kernel may answer by itself.
        if rustix::fs::statfs(self.dir).err() == Some(Errno::NOTCONN) {
            // The next mount tries again.
            let _ = diorite_fuse::unmount(self.dir, true);
        }
    }
}

/// Waits for the server, and passes on what signals ask for.
fn until_the_end(
    mut signals: Signals,
    mut server: Child,
    mount: &Mount<'_>,
    args: &MountArgs,
    report: &mut Report,
) -> Result<ExitStatus, Reason> {
    let pid = server.id();
    let (to, news): (Sender<News>, Receiver<News>) = channel();
    let of_signals = to.clone();
    std::thread::spawn(move || {
        while let Ok(event) = signals.next() {
            if of_signals.send(News::Signal(event)).is_err() || event == Event::End {
                return;
            }
        }
    });
    std::thread::spawn(move || to.send(News::Ended(server.wait())));
    loop {
        match news.recv() {
            Ok(News::Ended(status)) => return status.map_err(|e| Reason::new(e.to_string())),
            Ok(News::Signal(Event::Stats)) => tell_server(pid, Signal::USR1),
            Ok(News::Signal(Event::End)) => {
                let gone = diorite_fuse::unmount(mount.dir, false);
                if gone.is_err() {
                    // It is in use, or somebody has unmounted it: the server ends in either case, and users get errors. What the kernel
                    // has collected is written first.
                    sync(mount.dir);
                    let detached = diorite_fuse::unmount(mount.dir, true);
                    if let (Err(error), true) = (detached, args.verbose) {
                        report.warn(error);
                    }
                    tell_server(pid, Signal::TERM);
                }
            }
            Err(_) => return Err(Reason::new("the server is gone")),
        }
    }
}

/// Hands what the kernel has collected to the server. Whoever has written it without a sync has no promise, so a failure is none of ours.
fn sync(dir: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(root) = rustix::fs::open(dir, flags, Mode::empty()) {
        let _ = rustix::fs::syncfs(&root);
    }
}

fn tell_server(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // It may have ended meanwhile.
    let _ = pid.map(|pid| kill_process(pid, signal));
}

/// Who waits for the end of this process's output must not wait for the end of the mount.
pub(super) fn let_go_of_terminal() -> Result<(), Reason> {
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|e| Reason::new(format!("/dev/null: {e}")))?;
    std::io::stdout()
        .flush()
        .map_err(|e| Reason::new(e.to_string()))?;
    let host = |e| Reason::host("/dev/null", e);
    rustix::stdio::dup2_stdin(&null).map_err(host)?;
    rustix::stdio::dup2_stdout(&null).map_err(host)?;
    rustix::stdio::dup2_stderr(&null).map_err(host)
}
