//! The process that serves a mount.
//!
//! Input: an image, the keeper's socket. Output: requests served. Invariants: before it opens the image it is in a sandbox, which has the
//! image, what that names if it is trusted, and `/dev/fuse`; it ends when the mount is gone, or when its keeper says so, with everything
//! durable; signals count only once the keeper is gone. Limits: what it says after the mount can be used is for the foreground only.

use super::begin;
use super::keeper::{
    AGAIN, DONE, END, END_SOON, FAILED, GONE, HELD, OPENED, OPENED_READ_ONLY, READ_ONLY, SERVING,
    WRITABLE, let_go_of_terminal,
};
use crate::args::{Global, MountArgs};
use crate::host::sandbox::{Needs, Sandbox};
use crate::host::service::{Event, Signals};
use crate::images::image;
use crate::images::location::Location;
use crate::output::report::{Reason, Report};
use diorite::{AccessTimes, Caller, Error, OpenOptions, Volume};
use diorite_block::Locator;
use diorite_block::device::DeviceErrorKind;
use diorite_format::Ino;
use diorite_fuse::{Closer, MountOptions, Mounted, Stats, Times};
use rustix::mount::MountFlags;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Rings for blocking calls, write-back and read-ahead of a mount. What finds none does without.
const RINGS: usize = 64;

/// How long the kernel may take to hand over what it has collected, while users go on.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same, once the keeper was killed.
const MOMENT: Duration = Duration::from_millis(300);

pub(super) fn run(
    global: &Global,
    args: &MountArgs,
    mut options: MountOptions,
    socket: u32,
    report: &mut Report,
) -> Result<(), Reason> {
    let text = |what: &'static str| move |e: std::io::Error| Reason::new(format!("{what}: {e}"));
    let mut socket = socket_of(socket)?;
    let mut kept = super::descriptors(global, args);
    kept.push(super::raw(&socket));
    diorite_fuse::close_others(kept);
    // A thread and a queue of the engine has some of them.
    crate::host::process::raise_open_files();
    // The keeper gets the same signals, and knows what to do first.
    let signals = Signals::watch_patiently().map_err(text("cannot watch for signals"))?;
    let locator = locator(&args.locator, &options)?;
    let mut sandbox = match args.no_sandbox {
        true => None,
        false => Some(needs(global, &locator, &options).enter()?),
    };
    if let Some(gap) = sandbox.as_ref().and_then(Sandbox::gap) {
        report.warn(format_args!("{gap} (--no-sandbox does not say so)"));
    }
    if let Some(sandbox) = &mut sandbox {
        if options.wants_rings() {
            diorite_fuse::stock_rings(
                options
                    .threads
                    .unwrap_or_else(diorite_fuse::session::default_threads),
            );
        }
        sandbox.limit_calls(RINGS)?;
    }
    let volume = open(global, args, &locator, &mut options, (&mut socket, report))?;
    let how = match options.is_read_only() {
        true => OPENED_READ_ONLY,
        false => OPENED,
    };
    socket.write_all(&[how]).map_err(text("the keeper"))?;
    let fuse = diorite_fuse::receive(&socket).map_err(|e| Reason::host("the keeper", e))?;
    let Some(fuse) = fuse else {
        // It could not mount, and has said why.
        return Ok(());
    };
    // Memory that this process asks for must not wait for its own mount. Only root may say so.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let mounted = Mounted::serve(volume, fuse, options);
    let mut mounted = mounted.map_err(|e| Reason::new(e.to_string()))?;
    if sandbox.is_some() && rustix::process::geteuid().is_root() {
        // Everything is open that root is needed for.
        diorite_fuse::become_nobody().map_err(|e| Reason::host("the user nobody", e))?;
    }
    if let (Some(sandbox), true) = (&sandbox, args.verbose) {
        report.done(sandbox.state());
    }
    let closer = mounted.closer();
    let mut keeper = socket.try_clone().map_err(text("a socket"))?;
    let (by_keeper, of_keeper) = (mounted.closer(), mounted.stats());
    // Before anybody is told that the mount can be used: the host may have no thread for it.
    let begun = begin("server-orders", move || {
        obey(socket, signals, &by_keeper, &of_keeper);
    });
    if let Err(why) = begun {
        // Nothing was written, and the image is to be clean. Best effort: the journal recovers.
        let _ = closer.close();
        return Err(why);
    }
    keeper.write_all(&[SERVING]).map_err(text("the keeper"))?;
    if args.detached {
        let_go_of_terminal()?;
    }
    rustix::process::chdir("/").map_err(|e| Reason::host("/", e))?;
    mounted.wait();
    // It may have been killed.
    let _ = keeper.write_all(&[GONE]);
    if args.verbose {
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        let stats = mounted.stats();
        report.done(format_args!(
            "{} requests, {} of them answered with an error, {} interrupted",
            stats.requests(),
            count(&stats.errors),
            count(&stats.interrupted)
        ));
        let each: Vec<_> = stats
            .by_operation()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        report.done(format_args!("requests by operation: {}", each.join(", ")));
        if let Some((requests, calls)) = stats.through_rings() {
            report.done(format_args!(
                "requests through io_uring: {requests}, with {calls} system calls; {} were lent",
                count(&stats.lent)
            ));
        }
    }
    finish(closer)
}

/// Does what the keeper says, and, once that is gone, what signals say.
fn obey(mut socket: UnixStream, mut signals: Signals, closer: &Closer, stats: &Stats) {
    let mut byte = [0];
    while socket.read_exact(&mut byte).is_ok() {
        let done = match byte[0] {
            how @ (END | END_SOON) => {
                // A mount that is in use does not end with a signal; this process does.
                until_quiet(stats, if how == END { PATIENCE } else { MOMENT });
                finish(closer.clone());
            }
            READ_ONLY => closer.set_read_only(true),
            WRITABLE => closer.set_read_only(false),
            _ => continue,
        };
        let answer = match done {
            Ok(()) => DONE,
            Err(_) => FAILED,
        };
        if socket.write_all(&[answer]).is_err() {
            break;
        }
    }
    // What came before is no reason to end: the keeper has seen it, too.
    while let Ok(event) = signals.next() {
        if event == Event::End {
            until_quiet(stats, PATIENCE);
            finish(closer.clone());
        }
    }
}

/// Waits until the kernel has handed over what it has collected: it begins with that when the keeper asks for it, and does not say when it
/// is done. Users who go on are not waited for.
fn until_quiet(stats: &Stats, most: Duration) {
    const QUIET: Duration = Duration::from_millis(50);
    let began = Instant::now();
    let mut seen = None;
    while began.elapsed() < most {
        let now = stats.requests();
        let is_busy = stats.ended.load(Relaxed) != now;
        if seen.replace(now) == Some(now) && !is_busy {
            return;
        }
        std::thread::sleep(QUIET);
    }
}

/// Closes the volume and ends the process.
fn finish(closer: diorite_fuse::Closer) -> ! {
    let code = match closer.close() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("diorite: mount: {error}: data that was written may be lost");
            1
        }
    };
    std::process::exit(code)
}

/// The keeper's socket. It came with this process, so it is opened by its number.
fn socket_of(fd: u32) -> Result<UnixStream, Reason> {
    diorite_fuse::inherited(fd)
        .map(UnixStream::from)
        .map_err(|e| Reason::host(format_args!("descriptor {fd}"), e))
}

/// The locator with the offset of the options.
fn locator(text: &str, options: &MountOptions) -> Result<Locator, Reason> {
    let mut locator = Locator::parse(text).map_err(|e| Reason::new(e.to_string()))?;
    if let Some(bytes) = options.offset {
        match &mut locator {
            Locator::File(file) => file.offset = bytes,
            _ => {
                return Err(Reason::new(
                    "the option offset= is for files and devices of the host",
                ));
            }
        }
    }
    Ok(locator)
}

fn needs(global: &Global, locator: &Locator, options: &MountOptions) -> Needs {
    let mut needs = Needs::new();
    needs.write(Path::new("/dev/fuse"));
    needs.write(Path::new("/dev/null"));
    if options.busy_poll {
        needs.write(Path::new(diorite_fuse::LATENCY));
    }
    let journal = global.journal.iter().flat_map(|text| Locator::parse(text));
    for locator in std::iter::once(locator.clone()).chain(journal) {
        Location::of(locator).permit(&mut needs, options.is_read_only());
    }
    needs
}

/// Opens the volume. If somebody has the image the keeper knows whether to wait; an image that cannot be written is mounted read-only.
fn open(
    global: &Global,
    args: &MountArgs,
    locator: &Locator,
    options: &mut MountOptions,
    (keeper, report): (&mut UnixStream, &Report),
) -> Result<Volume, Reason> {
    let mut stays_written = false;
    loop {
        let write = !options.is_read_only();
        let error = match Volume::open_locator(locator, &open_options(global, args, options)) {
            // A mount that ends is still writing what a reader of now would see a part of.
            Ok(volume) if !stays_written && image::is_being_written(&volume) => {
                drop(volume);
                stays_written = refused(keeper)?.is_some();
                continue;
            }
            Ok(volume) => {
                match args.verbose {
                    true => volume.notes().iter().for_each(|note| report.done(note)),
                    false => image::warn_of_doubts(&args.locator, &volume, report),
                }
                if let Some(why) = changes_little(&volume, options) {
                    report.warn(format_args!("{}: {why}", args.locator));
                }
                return Ok(volume);
            }
            Err(error) => error,
        };
        match kind(&error) {
            Some(DeviceErrorKind::Held) => {
                if let Some(why) = refused(keeper)? {
                    return Err(Reason::new(format!("{}{why}", Reason::from(&error))));
                }
            }
            // As mount(8): a file that may not be written, or on a read-only file system.
            Some(DeviceErrorKind::Denied) if write && !options.is_said_writable => {
                report.warn(format_args!("{}; mounting read-only", Reason::from(&error)));
                options.flags |= MountFlags::RDONLY;
            }
            _ => return Err(image::why_refused(&args.locator, &error)),
        }
    }
}

/// Why an ordinary user can change little in a mount for writing: the files belong to others.
fn changes_little(volume: &Volume, options: &MountOptions) -> Option<String> {
    let user = rustix::process::geteuid();
    let is_mapped = options.fakeroot || options.uid.is_some() || options.gid.is_some();
    if user.is_root() || is_mapped || options.is_read_only() {
        return None;
    }
    let root = image::file(volume, Ino::ROOT).ok()?.metadata();
    let other = root.uid != user.as_raw() && root.mode & 0o002 == 0;
    other.then(|| {
        format!(
            "its root directory belongs to user {}; with '-o fakeroot' you may change everything",
            root.uid
        )
    })
}

/// Asks the keeper what to do about an image that somebody has. None: it may be free by now. Some: what it knows of the holder.
fn refused(keeper: &mut UnixStream) -> Result<Option<String>, Reason> {
    let text = |e: std::io::Error| Reason::new(format!("the keeper: {e}"));
    keeper.write_all(&[HELD]).map_err(text)?;
    let mut head = [0; 3];
    keeper.read_exact(&mut head).map_err(text)?;
    let [verdict, low, high] = head;
    let mut why = vec![0; usize::from(u16::from_ne_bytes([low, high]))];
    keeper.read_exact(&mut why).map_err(text)?;
    let why = String::from_utf8_lossy(&why);
    Ok(match (verdict, why.is_empty()) {
        (AGAIN, _) => None,
        (_, true) => Some(String::new()),
        (_, false) => Some(format!(" ({why})")),
    })
}

fn kind(error: &Error) -> Option<DeviceErrorKind> {
    match error.root() {
        Error::Open(error) => Some(error.kind),
        _ => None,
    }
}

fn open_options(global: &Global, args: &MountArgs, options: &MountOptions) -> OpenOptions {
    let write = !options.is_read_only();
    let defaults = image::options(global);
    let interval = options.commit.unwrap_or(defaults.commit_interval);
    defaults
        .write(write)
        .force(write && global.ignore_lock)
        .data_journal(options.data_journal)
        .recover(options.recovers)
        .mounted_on(write.then(|| args.dir.display().to_string()))
        .commit_interval(interval)
        .access_times(match options.times {
            Times::Never => AccessTimes::Never,
            Times::Relative => AccessTimes::Relative,
            Times::Always => AccessTimes::Always,
        })
        .directory_access_times(!options.nodiratime)
        .lazy_times(options.lazytime)
        .caller(match options.fakeroot {
            true => Caller {
                uid: 0,
                gids: vec![0],
            },
            false => Caller::of_process(),
        })
}
