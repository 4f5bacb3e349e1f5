//! Signals as events.
//!
//! Input: SIGTERM, SIGINT and SIGHUP, which end the server; SIGUSR1, which asks for statistics. Output: one event at a time.
//! Invariants: the handlers only set flags and write to a socket; no signal is lost between two calls. Limits: a second signal that
//! ends the server ends the process at once, unless another process decides about its end.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    End,
    Stats,
}

/// See the module.
pub(crate) struct Signals {
    bell: UnixStream,
    /// More than one may come.
    is_patient: bool,
    end: Arc<AtomicBool>,
    stats: Arc<AtomicBool>,
}

impl Signals {
    /// Installs the handlers.
    pub(crate) fn watch() -> io::Result<Signals> {
        Signals::install(true)
    }

    /// As [`Signals::watch`], for a process whose end is another one's decision: no number of signals ends it by itself.
    pub(crate) fn watch_patiently() -> io::Result<Signals> {
        Signals::install(false)
    }

    fn install(second_ends: bool) -> io::Result<Signals> {
        let (bell, rope) = UnixStream::pair()?;
        let (end, stats) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        // Handlers run in the order in which they are installed: the flag is set before the bell rings.
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            if second_ends {
                let end = end.clone();
                signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, end)?;
            }
            signal_hook::flag::register(signal, end.clone())?;
            signal_hook::low_level::pipe::register(signal, rope.try_clone()?)?;
        }
        signal_hook::flag::register(SIGUSR1, stats.clone())?;
        signal_hook::low_level::pipe::register(SIGUSR1, rope)?;
        Ok(Signals {
            bell,
            is_patient: !second_ends,
            end,
            stats,
        })
    }

    /// The next event. Blocks.
    pub(crate) fn next(&mut self) -> io::Result<Event> {
        loop {
            if self.end.load(Ordering::SeqCst) {
                if self.is_patient {
                    self.end.store(false, Ordering::SeqCst);
                }
                return Ok(Event::End);
            }
            if self.stats.swap(false, Ordering::SeqCst) {
                return Ok(Event::Stats);
            }
            match self.bell.read(&mut [0; 16]) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
        }
    }
}
