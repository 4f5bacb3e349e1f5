//! Files that have lost their last name and that the kernel is about to forget.
//!
//! Input: removals, and files without a name that are closed. Output: for whoever asks for free space, a wait until those files are deleted.
//! Invariants: nobody waits longer than [`MOMENT`], and nobody without such an event just before; a file that somebody has open is not waited for. Limits: a file
//! without a name that is held by a path alone (O_PATH) is waited for in vain, once for each event.
//!
//! The kernel forgets a file before unlink(2) returns, but its FORGET has no reply, and another thread may receive it after the next
//! request: then df showed the space as used, and a write that needed it failed.

use super::FileSystem;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long the kernel's FORGET may take.
const MOMENT: Duration = Duration::from_millis(100);

/// How often it is looked for.
const PAUSE: Duration = Duration::from_micros(50);

/// When a file may have begun to leave, last.
#[derive(Debug)]
pub(super) struct Leaving {
    began: Instant,
    /// In nanoseconds since `began`; 0: never.
    last: AtomicU64,
}

impl Default for Leaving {
    fn default() -> Self {
        Leaving {
            began: Instant::now(),
            last: AtomicU64::new(0),
        }
    }
}

impl Leaving {
    /// A name was removed, or a file without one was closed.
    pub(super) fn note(&self) {
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last.store(now.max(1), Relaxed);
    }

    /// Was that just now?
    fn is_recent(&self) -> bool {
        match self.last.load(Relaxed) {
            0 => false,
            last => self.began.elapsed() < Duration::from_nanos(last) + MOMENT,
        }
    }
}

impl FileSystem {
    /// Waits for the files that the kernel is about to forget. True: there were some, and they are gone.
    pub(super) fn wait_for_forgotten(&self) -> bool {
        let is_alone = self.options.threads == Some(1);
        let leave = || {
            let nameless = self.volume.known_without_name();
            nameless.into_iter().any(|ino| !self.files.is_open(ino))
        };
        if is_alone || !self.leaving.is_recent() || !leave() {
            return false;
        }
        self.kernel.hand_over();
        let began = Instant::now();
        while began.elapsed() < MOMENT {
            std::thread::sleep(PAUSE);
            if !leave() {
                return true;
            }
        }
        false
    }
}
