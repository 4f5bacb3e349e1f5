//! The process that owns a mount: it mounts, unmounts, and waits for signals and for requests of other processes.
//!
//! Input: a mount point, signals, the server's messages and end. Output: a mount; the pid file and the ready descriptor. Invariants: it
//! reads nothing of the image; it unmounts nothing but its own mount; when it ends the mount is gone, and if the server ended well
//! everything is durable; if anything fails after the mount, the mount is gone, too. Limits: a mount that is in use when a signal comes is
//! detached, and its users get errors; a second signal ends the server at once.

use super::control;
use super::death::Before;
use super::holders::{Announced, Image, Waiting};
use super::place::Mount;
use super::sweeper::Sweeper;
use super::{anew, another, begin, says_read_only};
use crate::args::MountArgs;
use crate::host::process::spare_from_oom;
use crate::host::service::{Event, PidFile, Ready, Signals};
use crate::images::location::Location;
use crate::output::report::{Reason, Report};
use diorite_block::Locator;
use diorite_block::locator::FileLocator;
use diorite_fuse::{MountError, MountOptions};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mount::MountFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, channel};

/// What the server says, one byte each.
pub(super) const OPENED: u8 = b'o';
pub(super) const OPENED_READ_ONLY: u8 = b'r';
pub(super) const SERVING: u8 = b's';
/// Somebody has the image. The answer has three bytes, and as many as the last two of them say: why it stays so.
pub(super) const HELD: u8 = b'h';
/// The answers: it may be free by now; it is not.
pub(super) const AGAIN: u8 = b'a';
const REFUSED: u8 = b'n';
/// It has done what it was told, or could not.
pub(super) const DONE: u8 = b'd';
pub(super) const FAILED: u8 = b'f';
/// The mount is gone; what is left to write is being written.
pub(super) const GONE: u8 = b'g';

/// What the server is told, one byte each: end, end without a long wait for users, refuse changes, permit them.
pub(super) const END: u8 = b'e';
pub(super) const END_SOON: u8 = b's';
pub(super) const READ_ONLY: u8 = control::READ_ONLY;
pub(super) const WRITABLE: u8 = control::WRITABLE;

/// What the keeper waits for.
enum News {
    Signal(Event),
    Ended(std::io::Result<ExitStatus>),
    Said(u8),
    Asked(UnixStream, u8),
}

pub(super) fn run(
    args: &MountArgs,
    (ready, is_told): (Option<Ready>, &Cell<bool>),
    point: OwnedFd,
    dir: &Path,
    mut options: MountOptions,
    report: &mut Report,
) -> Result<(), Reason> {
    let text = |what: &'static str| move |e: std::io::Error| Reason::new(format!("{what}: {e}"));
    let here = std::env::current_dir().ok();
    if args.detached {
        own_session()?;
    }
    // The server inherits it.
    spare_from_oom();
    let before = Before::now();
    let mut sweeper = Sweeper::start(args, dir)?;
    let (mut socket, theirs) = UnixStream::pair().map_err(text("a socket"))?;
    fcntl_setfd(&theirs, FdFlags::empty()).map_err(|e| Reason::host("a socket", e))?;
    let mut server = another(args, &[format!("--server={}", theirs.as_raw_fd())])?;
    let mut server = server.spawn().map_err(text("another process"))?;
    drop(theirs);
    let file = image(args);
    match opened(&mut socket, file.as_ref()) {
        Some(OPENED) => {}
        Some(OPENED_READ_ONLY) => options.flags |= MountFlags::RDONLY,
        _ => return end_of(&mut server, &before, report),
    }
    // Whoever has waited for the mount may be gone: then nobody wants it.
    if ready.as_ref().is_some_and(Ready::is_forsaken) {
        drop(socket);
        return end_of(&mut server, &before, report);
    }
    let pid_file = args.pid_file.as_deref().map(PidFile::write).transpose()?;
    // From here on a signal must not leave a mount behind.
    let signals = Signals::watch_patiently().map_err(text("cannot watch for signals"))?;
    let fuse = match diorite_fuse::mount(dir, &point, &options) {
        Ok(fuse) => fuse,
        Err(error) => {
            drop((socket, pid_file));
            // It ends when nobody is at the other end.
            let _ = server.wait();
            return Err(unmounted(&error));
        }
    };
    drop(point);
    let mount = Mount::new(dir);
    sweeper.watch(&socket, &server, &fuse);
    let sent = diorite_fuse::send(&socket, &fuse);
    // Whoever asks the mount now gets no answer from here.
    drop(fuse);
    sent.map_err(|e| Reason::host("the server", e))?;
    if said(&mut socket) != Some(SERVING) {
        drop(mount);
        return end_of(&mut server, &before, report);
    }
    if args.verbose {
        report.done(format_args!(
            "mounted {} at {}",
            args.locator,
            dir.display()
        ));
    }
    // Without it nobody can ask; the mount is as good.
    let listener = mount.device.as_deref().map(control::listen);
    let listener = listener.transpose().unwrap_or_else(|error| {
        report.warn(format_args!("no control socket: {error}"));
        None
    });
    let is_read_only = options.is_read_only();
    let announced = announce(file.as_ref(), &mount, &options);
    let name = listener.as_ref().and_then(|it| it.try_clone().ok());
    let pid = server.id();
    // Before anybody is told: the host may have no threads for it.
    let news = gather(signals, server, &socket, listener, options)?;
    ready.map_or(Ok(()), Ready::tell)?;
    is_told.set(true);
    if args.detached {
        let_go_of_terminal()?;
    }
    // A daemon keeps no file system busy.
    rustix::process::chdir("/").map_err(|e| Reason::host("/", e))?;
    let End {
        status,
        waiting,
        anew,
    } = until_the_end(
        &news,
        (pid, socket),
        (name, announced),
        &mount,
        (&args.locator, is_read_only, args.verbose),
        report,
    )?;
    let place = mount.dir.display().to_string();
    drop((mount, pid_file));
    before.tell(status, waiting);
    drop(sweeper);
    if let Some(client) = anew {
        return Err(anew::begin(args, &client, here.as_deref()));
    }
    if args.detached {
        before.log(status, &format!("{} at {place}", args.locator));
    }
    before.judge(status, report)
}

/// The host's file or device that the image is in.
fn image(args: &MountArgs) -> Option<FileLocator> {
    match Location::of(Locator::parse(&args.locator).ok()?).base {
        Locator::File(file) => Some(file),
        _ => None,
    }
}

/// What the server says of the image; as long as somebody has that, it is told whether to wait.
fn opened(socket: &mut UnixStream, file: Option<&FileLocator>) -> Option<u8> {
    let waiting = Waiting::new(file);
    loop {
        match said(socket) {
            Some(HELD) => {}
            other => return other,
        }
        let (verdict, why) = match waiting.wait() {
            Ok(()) => (AGAIN, String::new()),
            Err(why) => (REFUSED, why.to_string()),
        };
        let why = why.as_bytes();
        let len = u16::try_from(why.len()).unwrap_or(u16::MAX);
        let answer = [&[verdict][..], &len.to_ne_bytes(), &why[..usize::from(len)]].concat();
        // It may have ended: then it says nothing more.
        let _ = socket.write_all(&answer);
    }
}

/// Tells other mounts of the image about this one. Without it they wait for a moment, and do not know the place.
fn announce(
    file: Option<&FileLocator>,
    mount: &Mount,
    options: &MountOptions,
) -> Option<Announced> {
    let image = file
        .filter(|_| !options.is_read_only())
        .and_then(Image::of)?;
    Announced::new(&image, mount.device.as_deref()?, &mount.dir).ok()
}

/// What the server says next. None if it has ended.
fn said(socket: &mut UnixStream) -> Option<u8> {
    let mut byte = [0];
    socket.read_exact(&mut byte).ok()?;
    Some(byte[0])
}

/// The end of a server that could not begin: it has said why.
fn end_of(server: &mut Child, before: &Before, report: &mut Report) -> Result<(), Reason> {
    let status = server.wait().map_err(|e| Reason::new(e.to_string()))?;
    match status.code() {
        Some(_) => report.failed(1),
        None => return before.judge(status, report),
    }
    Ok(())
}

/// Starts the threads that wait for what concerns the keeper.
///
/// # Errors
/// The host has no threads for them.
fn gather(
    mut signals: Signals,
    mut server: Child,
    socket: &UnixStream,
    listener: Option<UnixListener>,
    options: MountOptions,
) -> Result<Receiver<News>, Reason> {
    let (to, news) = channel();
    let of_signals = to.clone();
    begin("keeper-signals", move || {
        while let Ok(event) = signals.next() {
            if of_signals.send(News::Signal(event)).is_err() {
                return;
            }
        }
    })?;
    let of_server = to.clone();
    let mut theirs = socket
        .try_clone()
        .map_err(|e| Reason::new(format!("a socket: {e}")))?;
    begin("keeper-server", move || {
        while let Some(byte) = said(&mut theirs) {
            if of_server.send(News::Said(byte)).is_err() {
                return;
            }
        }
    })?;
    if let Some(listener) = listener {
        let of_clients = to.clone();
        begin("keeper-clients", move || {
            while let Ok(client) = control::accept(&listener) {
                let Some((mut client, what)) = client else {
                    continue;
                };
                if control::answer_word(&mut client, what, |word| options.is_changed_by(word)) {
                    continue;
                }
                let waits = (what == control::WAIT).then(|| client.try_clone());
                if of_clients.send(News::Asked(client, what)).is_err() {
                    return;
                }
                // The news of the end that it may bring about comes behind it.
                if let Some(Ok(mut client)) = waits {
                    control::heard(&mut client);
                }
            }
        })?;
    }
    begin("keeper-end", move || {
        // Who has gone does not need it.
        let _ = to.send(News::Ended(server.wait()));
    })?;
    Ok(news)
}

/// How a mount has ended.
struct End {
    status: ExitStatus,
    /// Those who want to know.
    waiting: Vec<UnixStream>,
    /// Who wants it mounted anew.
    anew: Option<UnixStream>,
}

/// Passes on what signals and clients ask for, until the server has ended.
fn until_the_end(
    news: &Receiver<News>,
    (pid, mut socket): (u32, UnixStream),
    (mut name, announced): (Option<UnixListener>, Option<Announced>),
    mount: &Mount,
    (locator, is_read_only, is_verbose): (&str, bool, bool),
    report: &mut Report,
) -> Result<End, Reason> {
    let mut anew = None;
    let (mut waiting, mut asked) = (Vec::new(), Vec::new());
    let mut is_ending = false;
    loop {
        match news.recv() {
            Ok(News::Ended(status)) => {
                let status = status.map_err(|e| Reason::new(e.to_string()))?;
                return Ok(End {
                    status,
                    waiting,
                    anew,
                });
            }
            Ok(News::Signal(Event::Stats)) => tell_server(pid, Signal::USR1),
            // It has waited long enough; the journal keeps what was synced.
            Ok(News::Signal(Event::End)) if is_ending => tell_server(pid, Signal::KILL),
            Ok(News::Signal(Event::End)) => {
                is_ending = true;
                announced.iter().for_each(Announced::ends);
                // It is in use: the server ends all the same, and users get errors.
                if !mount.end() && is_verbose {
                    report.warn(format_args!("{} stays mounted", mount.dir.display()));
                }
                // It may have ended meanwhile.
                let _ = socket.write_all(&[END]);
            }
            Ok(News::Said(GONE)) => {
                announced.iter().for_each(Announced::ends);
                if let Some(listener) = name.take() {
                    control::end(&listener);
                }
            }
            Ok(News::Said(byte)) => {
                let code = [if byte == DONE {
                    control::DONE
                } else {
                    control::FAILED
                }];
                if !asked.is_empty() {
                    let mut client: UnixStream = asked.remove(0);
                    let _ = client.write_all(&code);
                }
            }
            Ok(News::Asked(mut client, control::MOUNT_ANEW)) if says_read_only(locator) => {
                // Who has gone does not need it.
                drop(client.write_all(anew::READ_ONLY));
            }
            Ok(News::Asked(mut client, control::MOUNT_ANEW)) => {
                let may_end = is_read_only && anew.is_none() && mount.is_the_only_one();
                let is_free = may_end && mount.unmount(false);
                match is_free {
                    true => anew = Some(client),
                    // Who has gone does not need it.
                    false => drop(client.write_all(anew::IN_USE)),
                }
            }
            Ok(News::Asked(client, control::WAIT)) => waiting.push(client),
            Ok(News::Asked(client, what @ (READ_ONLY | WRITABLE))) => {
                if socket.write_all(&[what]).is_ok() {
                    asked.push(client);
                }
            }
            Ok(News::Asked(..)) => {}
            Err(_) => return Err(Reason::new("the server is gone")),
        }
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

/// Why nothing is mounted.
fn unmounted(error: &MountError) -> Reason {
    let why = error.to_string();
    Reason::new(match why.contains("no write access to mountpoint") {
        true => format!("{why}; an ordinary user mounts on a directory of their own ('mkdir m')"),
        false => why,
    })
}

/// Leaves the session of the terminal. A leader of a process group is refused, and needs none: whoever made it the leader
/// has taken it out of the terminal's group. The session's number is not asked for: in a PID namespace whose session began
/// outside of it, that number is 0.
fn own_session() -> Result<(), Reason> {
    match rustix::process::setsid() {
        Ok(_) | Err(Errno::PERM) => Ok(()),
        Err(e) => Err(Reason::host("a session", e)),
    }
}
