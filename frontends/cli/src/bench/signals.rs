//! Interrupts: a signal makes the bench stop early and still put away what it made.
//!
//! Input: SIGINT, SIGTERM, SIGHUP. Output: a flag that every wait looks at. Invariant: nothing is done in a signal's
//! handler but to set it. Limits: a second signal of the same kind ends the process at once.

use super::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on signals end waits instead of the process.
pub(super) fn watch() -> Result<(), Failure> {
    let stop = STOP.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|e| Failure::host("cannot watch for signals", e))?;
    }
    Ok(())
}

/// An error once a signal has come.
pub(super) fn check() -> Result<(), Failure> {
    match STOP.get() {
        Some(stop) if stop.load(Ordering::Relaxed) => Err(Failure::interrupted()),
        _ => Ok(()),
    }
}

/// Sleeps as long as there is a reason to, unless a signal comes.
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
