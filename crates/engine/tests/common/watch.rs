//! A watchdog: if a test does not end in time, it prints what was being done and aborts the process.
//!
//! Input: a limit and a label. Output: nothing, or an abort that names the label. Invariant: it measures no speed; the limits are
//! long enough that only a hang exceeds them. Limits: one thread per guard.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Aborts the process unless it is dropped, or fed, within `limit`.
pub struct Watchdog {
    state: Arc<(AtomicBool, Mutex<(Instant, String)>)>,
}

impl Watchdog {
    pub fn new(limit: Duration, label: impl Into<String>) -> Watchdog {
        let state = Arc::new((
            AtomicBool::new(false),
            Mutex::new((Instant::now(), label.into())),
        ));
        let mine = state.clone();
        std::thread::spawn(move || {
            while !mine.0.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(50));
                let now = mine.1.lock().unwrap();
                if now.0.elapsed() > limit && !mine.0.load(Ordering::Relaxed) {
                    // Written past the capture of the test's output, which is lost with the process.
                    let said = writeln!(
                        std::io::stderr(),
                        "HANG: no progress for {limit:?} at: {}",
                        now.1
                    );
                    said.unwrap();
                    std::process::abort();
                }
            }
        });
        Watchdog { state }
    }

    /// Notes progress: the limit starts anew, with this label.
    pub fn feed(&self, label: impl Into<String>) {
        *self.state.1.lock().unwrap() = (Instant::now(), label.into());
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.state.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `what` and aborts if it takes longer than a minute.
pub fn within<T>(label: &str, what: impl FnOnce() -> T) -> T {
    let _watchdog = Watchdog::new(Duration::from_secs(60), label);
    what()
}

/// Resident memory of this process, in bytes.
pub fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// The most that this process ever had resident, in bytes.
pub fn most_resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}
