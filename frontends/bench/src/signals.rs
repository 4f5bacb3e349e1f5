//! Interrupts: after a signal the bench stops early, and still removes what it made.
//!
//! Input: SIGINT, SIGTERM, SIGHUP. Output: a flag that every wait checks. Invariant: the signal handler only sets the flag.
//! Limits: a second signal of the same kind ends the process at once.

use super::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Installs the handlers: from now on a signal ends waits instead of the process.
pub(super) fn watch() -> Result<(), Failure> {
    let stop = STOP.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|e| Failure::host("cannot watch for signals", e))?;
    }
    Ok(())
}

/// Returns an error if a signal has arrived.
pub(super) fn check() -> Result<(), Failure> {
    match STOP.get() {
        Some(stop) if stop.load(Ordering::Relaxed) => Err(Failure::interrupted()),
        _ => Ok(()),
    }
}

/// Sleeps for `time`, or until `reason` returns false or a signal arrives.
pub(super) fn sleep_while(time: Duration, reason: impl Fn() -> bool) -> Result<(), Failure> {
    let end = Instant::now() + time;
    loop {
        check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || !reason() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(10)));
    }
}
