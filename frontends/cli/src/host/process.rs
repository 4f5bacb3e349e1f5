//! Settings of the process for the commands that copy whole trees or devices, and the signals that end them.
//!
//! Input: signals. Output: the umask and the limit of open files of this process; a flag. Invariant: a limit that the host does not let us
//! change stays unchanged. Limits: none of its own.

use crate::output::report::Reason;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

/// The last signal that asked for the end; 0: none did.
static SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// The exit code of a command that a signal ended: 128 and its number, as of a process that it kills. None if no signal came.
pub(crate) fn ended() -> Option<u8> {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(128 + signal as u8),
    }
}

/// The same, of a command that was told to end.
pub(crate) fn interrupted() -> u8 {
    ended().unwrap_or(128 + SIGINT as u8)
}

/// Set by the first signal that asks for the end; the second ends the process.
pub(crate) fn watch() -> Result<Arc<AtomicBool>, Reason> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())
            .and_then(|_| {
                signal_hook::flag::register_usize(signal, SIGNAL.clone(), signal as usize)
            })
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|e| Reason::new(format!("cannot watch for signals: {e}")))?;
    }
    Ok(stop)
}

/// Writes over the limit of a file's size (`ulimit -f`) fail from now on, as on a full disk. By default they end the process, also one
/// that serves a mount.
pub(crate) fn outlive_limits() {
    outlive(&[SIGXFSZ]);
}

/// The least stack of the main thread, in bytes: reading the command line takes the most.
const LEAST_STACK: u64 = 512 << 10;

/// Fails if a limit of this process (`ulimit -s`) would end it in the middle of its work. A soft limit is raised as far as it may be.
pub(crate) fn check_limits() -> Result<(), Reason> {
    let mut limit = getrlimit(Resource::Stack);
    let is_less = |limit: &Rlimit| limit.current.is_some_and(|now| now < LEAST_STACK);
    if is_less(&limit) {
        limit.current = Some(
            limit
                .maximum
                .map_or(LEAST_STACK, |most| most.min(LEAST_STACK)),
        );
        let _raised = setrlimit(Resource::Stack, limit);
    }
    let now = getrlimit(Resource::Stack);
    match is_less(&now) {
        true => Err(Reason::new(format!(
            "the limit of the stack is {} KiB, and at least {} are needed (ulimit -s)",
            now.current.unwrap_or(0) >> 10,
            LEAST_STACK >> 10
        ))),
        false => Ok(()),
    }
}

/// Fails if the host would not give this process so many bytes of memory (`ulimit -v`): where memory is used, it is too late.
pub(crate) fn check_memory(bytes: usize) -> Result<(), Reason> {
    let answer = Vec::<u8>::new().try_reserve_exact(bytes);
    answer.map_err(|_| no_memory(bytes))
}

/// The failure of [`check_memory`].
pub(crate) fn no_memory(bytes: usize) -> Reason {
    let mib = bytes >> 20;
    Reason::new(format!("no memory: {mib} MiB are needed (ulimit -v)"))
}

/// Signals that end servers, or ask them for statistics, do nothing to this process from now on.
pub(crate) fn outlive_signals() {
    outlive(&[SIGHUP, SIGINT, SIGTERM, SIGUSR1]);
}

fn outlive(signals: &[i32]) {
    for signal in signals {
        // Without it the process only ends as it would have.
        let _ = signal_hook::flag::register(*signal, Arc::default());
    }
}

/// Whether descriptors have paths: in /proc, which a chroot may lack.
pub(crate) fn has_procfs() -> bool {
    Path::new("/proc/self/fd").exists()
}

/// Clears the umask, because copies have exact modes, and raises the limit of open files, because a deep tree needs a
/// descriptor per level.
pub(crate) fn prepare() {
    umask(Mode::empty());
    // If the limit cannot be raised, very deep trees fail with their own message.
    raise_open_files();
}

/// Has the kernel end other processes first when memory is short: the death of this one takes unsynced data of many with it. Only root may
/// say so; a process that was told more stays as it is.
pub(crate) fn spare_from_oom() {
    /// All processes that the kernel would end have larger ones. -1000 would exclude this one, also if it takes all memory itself.
    const SPARED: i32 = -900;
    const FILE: &str = "/proc/self/oom_score_adj";
    let now = std::fs::read_to_string(FILE).ok();
    let now = now.and_then(|text| text.trim().parse::<i32>().ok());
    if now.is_some_and(|now| now > SPARED) {
        // Where it is not permitted nothing changes.
        let _ = std::fs::write(FILE, SPARED.to_string());
    }
}

/// How many processes the kernel has ended for lack of memory since it runs. None: it does not say.
pub(crate) fn count_oom_kills() -> Option<u64> {
    let counts = std::fs::read_to_string("/proc/vmstat").ok()?;
    let mut lines = counts.lines();
    lines.find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())
}

/// Raises the limit of open files to what this process may have.
pub(crate) fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // It works with fewer, too.
    let _ = setrlimit(Resource::Nofile, limit);
}
