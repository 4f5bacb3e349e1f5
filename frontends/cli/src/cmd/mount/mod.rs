//! `diorite mount`: an image at a directory, until it is unmounted or a signal ends it.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `mod` | options -> a command line that makes sense; a process in the background |
//! | `keeper` | a mount point -> a mount, kept until its end |
//! | `place` | a directory -> the mount that is there now, and its end |
//! | `sweeper` | a keeper that was killed -> the end of its mount |
//! | `stuck` | a server that is dead, but does not go -> the end of its mount |
//! | `server` | an image, a descriptor -> requests served, in a sandbox |
//! | `death` | a server's exit status -> messages |
//! | `anew` | a keeper whose read-only mount has ended -> one that mounts for writing |
//! | `control` | a mount's device -> its keeper's answers, to umount and remount |
//! | `descriptor` | an image named by a descriptor -> its path |
//! | `holders` | an image that somebody has -> who, and whether to wait |
//!
//! Four processes have a part. The first one starts the keeper in a session of its own, unless it stays in the foreground and is the
//! keeper itself, and waits for the keeper's line. The keeper starts the server, mounts when the server has opened the image, hands the
//! descriptor over, and waits for signals. The server reads the image; it could not mount or unmount, and needs no rights to. The sweeper
//! waits for the keeper's death, and for a server that is dead and cannot go.
//!
//! Input: options. Output: a mount; an exit code. Invariants: the first process ends with success only after the mount can be used; a mount
//! is gone when the keeper ends. Limits: if keeper and sweeper are killed, the mount stays until its server is ended by an unmount or a
//! signal.

mod anew;
pub(super) mod control;
mod death;
pub(crate) mod descriptor;
mod holders;
mod keeper;
mod place;
mod server;
mod stuck;
mod sweeper;

use crate::args::{Global, MountArgs};
use crate::host::process::has_procfs;
use crate::host::service::Ready;
use crate::images::location::Location;
use crate::output::report::{Reason, Report, errno_text};
use diorite_block::Locator;
use diorite_fuse::{Entry, MountOptions, mounted_at};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mount::MountFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::Builder;
use std::time::Duration;

/// The exit code of mount(8) for a mount that failed.
pub(super) const MOUNT_FAILED: u8 = 32;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &MountArgs) -> ExitCode {
    if let Some(socket) = args.sweep {
        return sweeper::run(socket, &args.dir);
    }
    let mut args = args.clone();
    if args.image.is_none() {
        args.image = descriptor::settled(&args.locator);
    }
    if let Some(image) = &args.image {
        args.locator.clone_from(image);
    }
    let args = &args;
    let mut report = Report::new("mount", &args.locator);
    let options = match options(args) {
        Ok(options) => options,
        Err(why) => {
            report.host(why);
            return ExitCode::from(if args.helper { 1 } else { 2 });
        }
    };
    // Whoever waits for the mount knows that it can be used.
    let is_told = Cell::new(false);
    let done = match args.server {
        Some(socket) => server::run(global, args, options, socket, &mut report),
        None => front(global, args, options, (&is_told, &mut report)),
    };
    let has_failed = done.is_err() || report.has_failed();
    if let Err(why) = done {
        report.image(why);
    }
    if has_failed && args.anew_fd.is_some() && args.server.is_none() && !is_told.get() {
        report.image(anew::go_back(args));
    }
    match report.has_failed() && args.helper {
        true => ExitCode::from(MOUNT_FAILED),
        false => report.exit_code(),
    }
}

fn options(args: &MountArgs) -> Result<MountOptions, Reason> {
    let mut options = MountOptions::default().source(source(&args.locator).into_bytes());
    for list in &args.options {
        let added = match args.sloppy {
            true => options.add_sloppily(list),
            false => options.add(list),
        };
        added.map_err(|e| Reason::new(e.to_string()))?;
    }
    if args.anew_fd.is_some() {
        options.flags -= MountFlags::RDONLY;
        options.is_said_writable = true;
    } else if args.read_only || (!options.remount && says_read_only(&args.locator)) {
        options.add("ro").map_err(|e| Reason::new(e.to_string()))?;
    }
    Ok(options)
}

/// Whether the locator says `?ro`: then the mount is read-only, whatever `-o` says. mount(8) says `rw` by itself.
fn says_read_only(locator: &str) -> bool {
    Locator::parse(locator).is_ok_and(|locator| Location::of(locator).says_read_only())
}

/// What the mount table names as the source: the locator, from the root, so that it means the same elsewhere.
fn source(locator: &str) -> String {
    let Ok(here) = std::env::current_dir() else {
        return locator.to_owned();
    };
    let whole = here.join(locator).to_str().map(str::to_owned);
    // The directory's name may have letters with a meaning in locators.
    let means_the_same =
        |whole: &String| base_path(whole) == base_path(locator).map(|path| here.join(path));
    whole
        .filter(means_the_same)
        .unwrap_or_else(|| locator.to_owned())
}

/// The path of the file or device of the host that a locator's image is in.
fn base_path(locator: &str) -> Option<PathBuf> {
    match Location::of(Locator::parse(locator).ok()?).base {
        Locator::File(file) => Some(file.path),
        _ => None,
    }
}

/// The descriptors that the processes of the mount must keep for its image.
fn descriptors(global: &Global, args: &MountArgs) -> Vec<u32> {
    descriptor::named(std::iter::once(&args.locator).chain(&global.journal))
}

/// Another process of the mount, without its input, unless the image is that.
fn another(args: &MountArgs, more: &[String]) -> Result<Command, Reason> {
    let mut program = this_program()?;
    program.args(again(args, more));
    if !descriptor::named([&args.locator]).contains(&0) {
        program.stdin(Stdio::null());
    }
    Ok(program)
}

/// The processes that do not serve.
fn front(
    global: &Global,
    args: &MountArgs,
    options: MountOptions,
    (is_told, report): (&Cell<bool>, &mut Report),
) -> Result<(), Reason> {
    let is_keeper = args.foreground || args.detached;
    let mut ready = None;
    if is_keeper {
        // Whoever waited for the mount before has been told.
        ready = args
            .anew_fd
            .or(args.front_fd)
            .or(args.ready_fd)
            .map(Ready::open)
            .transpose()?;
        // What this process was started with would stay open for as long as the mount lasts.
        let mut kept = descriptors(global, args);
        kept.extend(ready.as_ref().map(|ready| raw(&ready.fd())));
        diorite_fuse::close_others(kept);
    }
    let (point, dir) = mount_point(&args.dir, &options)?;
    if options.remount {
        drop(point);
        return remount(&dir, &options);
    }
    for locator in std::iter::once(&args.locator).chain(&global.journal) {
        refuse_own_directory(locator, &dir)?;
    }
    if args.fake {
        return Ok(());
    }
    match is_keeper {
        true => keeper::run(args, (ready, is_told), point, &dir, options, report),
        false => in_background(args, report),
    }
}

/// Takes away what a server that was killed has left mounted there.
fn unmount_dead(dir: &Path, options: &MountOptions) -> Result<(), Reason> {
    let why = |what: String| Reason::new(format!("{}: {what}", dir.display()));
    // Not by stat(2), which the kernel may answer by itself. A server that is just dying still gets the request, which is aborted then.
    let is_dead = |e: Errno| matches!(e, Errno::NOTCONN | Errno::CONNABORTED);
    if !rustix::fs::statfs(dir).is_err_and(is_dead) {
        return Ok(());
    }
    let absolute = std::path::absolute(dir).map_err(|e| why(e.to_string()))?;
    let kind = format!("fuse.{}", options.subtype);
    match mounted_at(&absolute) {
        // Its keeper takes it away, too.
        Some(entry) if entry.kind == kind => match diorite_fuse::unmount(&absolute, true) {
            Err(error) if mounted_at(&absolute).is_some() => Err(why(error.to_string())),
            _ => Ok(()),
        },
        Some(_) => Err(why(errno_text(Errno::NOTCONN))),
        None => Ok(()),
    }
}

/// The mount point, open, and its absolute path. What a server that was killed has left there is unmounted first.
fn mount_point(dir: &Path, options: &MountOptions) -> Result<(OwnedFd, PathBuf), Reason> {
    let why = |what: String| Reason::new(format!("{}: {what}", dir.display()));
    unmount_dead(dir, options)?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let point = rustix::fs::open(dir, flags, Mode::empty());
    let point = point.map_err(|e| why(errno_text(e)))?;
    let mode = rustix::fs::fstat(&point)
        .map_err(|e| why(errno_text(e)))?
        .st_mode;
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::Directory => {}
        _ => return Err(why("not a directory".to_owned())),
    }
    // Of the directory that is open: the path may lead elsewhere by now.
    let path = std::fs::read_link(format!("/proc/self/fd/{}", point.as_raw_fd()));
    let path = path.map_err(|e| match has_procfs() {
        true => why(e.to_string()),
        false => why("/proc is not mounted, and mounts need it".to_owned()),
    })?;
    Ok((point, path))
}

/// An image, or its journal, that lies below its own mount point could be reached only through itself.
fn refuse_own_directory(locator: &str, dir: &Path) -> Result<(), Reason> {
    let locator = Locator::parse(locator).map_err(|e| Reason::new(e.to_string()))?;
    let Locator::File(file) = Location::of(locator).base else {
        return Ok(());
    };
    match file.path.canonicalize() {
        Ok(path) if path.starts_with(dir) => Err(Reason::new(format!(
            "{} lies below the mount point {}, which would hide it",
            path.display(),
            dir.display()
        ))),
        _ => Ok(()),
    }
}

/// Changes the flags of a mount that were named, and no others.
fn remount(dir: &Path, options: &MountOptions) -> Result<(), Reason> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let why = |what: String| Reason::new(format!("{}: {what}", dir.display()));
    let entry = mounted_at(dir).filter(Entry::is_fuse);
    let entry = entry.ok_or_else(|| why("no mount of diorite".to_owned()))?;
    let answer = |keeper: Option<control::Asked>| {
        keeper
            .ok_or_else(|| why("no keeper of this mount answers".to_owned()))
            .and_then(|mut keeper| keeper.answer(PATIENCE))
    };
    let ask = |what| answer(control::ask(&entry.device, what));
    // The words of the mount table and of fstab come again.
    for word in &options.fixed {
        if answer(control::ask_word(&entry.device, word))? != control::DONE {
            return Err(Reason::new(format!(
                "a remount cannot change '{word}': unmount it, and mount it anew"
            )));
        }
    }
    let is_named = options.named_flags.contains(MountFlags::RDONLY);
    if is_named && !options.is_read_only() && ask(control::WRITABLE)? != control::DONE {
        control::mount_anew(&entry.device, PATIENCE)?;
    }
    let now = rustix::fs::statvfs(dir)
        .map_err(|e| why(errno_text(e)))?
        .f_flag;
    // statvfs(3) has these at the places of mount(2).
    let now = MountFlags::from_bits_truncate((now.bits() & 31) as _);
    let named = options.named_flags;
    let flags = options.flags & named | now & !named;
    let changed = diorite_fuse::remount(dir, flags);
    changed.map_err(|e| Reason::new(format!("remount: {e}")))?;
    if is_named && options.is_read_only() && ask(control::READ_ONLY)? != control::DONE {
        return Err(why("not everything could be made durable".to_owned()));
    }
    Ok(())
}

/// The keeper in a session of its own. Returns when it says that the mount can be used, or ends.
fn in_background(args: &MountArgs, report: &mut Report) -> Result<(), Reason> {
    let host = |what: &'static str| move |e: Errno| Reason::host(what, e);
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(host("a pipe"))?;
    fcntl_setfd(&theirs, FdFlags::empty()).map_err(host("a pipe"))?;
    let detached = [
        "--detached".into(),
        format!("--front-fd={}", theirs.as_raw_fd()),
    ];
    let mut keeper = another(args, &detached)?
        .spawn()
        .map_err(|e| Reason::new(format!("another process: {e}")))?;
    drop(theirs);
    let mut line = [0; 6];
    let read = File::from(ours).read_exact(&mut line);
    if read.is_ok() && line == *b"ready\n" {
        if let Some(fd) = args.ready_fd {
            Ready::open(fd)?.tell()?;
        }
        return Ok(());
    }
    // It has said why.
    let code = keeper.wait().ok().and_then(|status| status.code());
    report.failed(
        code.and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1)
            .max(1),
    );
    Ok(())
}

/// Starts a thread that ends with the process.
///
/// # Errors
/// The host has no thread for it.
fn begin(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Reason> {
    let thread = Builder::new().name(name.to_owned()).spawn(work);
    // It is not waited for.
    thread
        .map(drop)
        .map_err(|e| Reason::new(format!("a thread: {e}")))
}

/// This program, whatever its name is.
pub(crate) fn this_program() -> Result<Command, Reason> {
    let path = std::env::current_exe().map_err(|e| Reason::new(format!("this program: {e}")))?;
    Ok(Command::new(path))
}

/// The number of a descriptor.
pub(crate) fn raw(fd: &impl AsRawFd) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// The arguments of this process for another one that does a part of its work, with `more` behind the name of the command.
fn again(args: &MountArgs, more: &[String]) -> Vec<OsString> {
    let (mut all, behind) = crate::usage::around("mount");
    all.extend(more.iter().map(OsString::from));
    let image = args
        .image
        .as_ref()
        .map(|image| OsString::from(format!("--image={image}")));
    // It may have come with this process.
    all.extend(image.filter(|image| !behind.contains(image)));
    all.extend(behind);
    all
}
