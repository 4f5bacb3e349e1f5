//! How far a long command is: a bar on a terminal, elsewhere a line now and then.
//!
//! Input: counts of files and bytes, and the number of bytes to expect. Output: a line on standard error that redraws itself; if standard
//! error is no terminal, a line every [`PERIOD`], so that a log shows that something goes on. Invariant: what ends sooner prints nothing in
//! a log. Limits: if the number of bytes to expect is not known, only counts are shown.

use crate::output::complain_best_effort;
use crate::output::report::Report;
use crate::words::sizes::human;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time between two lines.
const PERIOD: Duration = Duration::from_secs(10);

/// Time between two drawings of the bar.
const TICK: Duration = Duration::from_millis(200);

/// See the module.
pub(crate) struct Progress {
    shown: Shown,
    files: u64,
}

enum Shown {
    Nothing,
    /// It is drawn from the first count on: what is asked before stays on the terminal.
    Bar(ProgressBar, Once),
    Lines(Lines),
}

/// Lines for a log.
struct Lines {
    command: &'static str,
    began: Instant,
    /// Periods whose line is printed.
    printed: AtomicU64,
    /// Bytes to expect; 0 = not known.
    expected: AtomicU64,
}

impl Lines {
    /// The line that is due after so much time, if one is.
    fn due(&self, bytes: u64, time: Duration) -> Option<String> {
        let period = time.as_secs() / PERIOD.as_secs();
        if self.printed.fetch_max(period, Relaxed) >= period {
            return None;
        }
        let (command, seconds) = (self.command, time.as_secs());
        let done = human(bytes);
        Some(match self.expected.load(Relaxed) {
            0 => format!("diorite: {command}: {done} after {seconds} s"),
            all => {
                let percent = u128::from(bytes.min(all)) * 100 / u128::from(all);
                let all = human(all);
                format!("diorite: {command}: {done} of {all} ({percent} %) after {seconds} s")
            }
        })
    }
}

impl Progress {
    /// Nothing at all if `quiet` is set.
    pub(crate) fn new(quiet: bool, report: &mut Report) -> Progress {
        let shown = match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Shown::Nothing,
            (false, true) => {
                let target = ProgressDrawTarget::stderr_with_hz(10);
                let bar = ProgressBar::with_draw_target(None, target);
                report.bar = Some(bar.clone());
                Shown::Bar(bar, Once::new())
            }
            (false, false) => Shown::Lines(Lines {
                command: report.command(),
                began: Instant::now(),
                printed: AtomicU64::new(0),
                expected: AtomicU64::new(0),
            }),
        };
        Progress { shown, files: 0 }
    }

    /// Sets the number of bytes to expect, if it is known.
    pub(crate) fn expect(&self, known: Option<u64>) {
        let bar = match &self.shown {
            Shown::Bar(bar, _) => bar,
            Shown::Lines(lines) => return lines.expected.store(known.unwrap_or(0), Relaxed),
            Shown::Nothing => return,
        };
        let form = match known {
            Some(bytes) => {
                bar.set_length(bar.position().saturating_add(bytes));
                "{spinner} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {msg}"
            }
            None => "{spinner} {bytes} {bytes_per_sec} {msg}",
        };
        bar.set_style(
            ProgressStyle::with_template(form).expect("the template is a constant that parses"),
        );
    }

    /// Call for each entry of a directory, with the bytes copied so far.
    pub(crate) fn entry(&self, bytes: u64) {
        match &self.shown {
            Shown::Nothing => {}
            Shown::Bar(bar, is_begun) => {
                is_begun.call_once(|| bar.enable_steady_tick(TICK));
                bar.set_position(bytes);
            }
            Shown::Lines(lines) => {
                if let Some(line) = lines.due(bytes, lines.began.elapsed()) {
                    complain_best_effort(line);
                }
            }
        }
    }

    /// Call when a file is complete, with the bytes copied so far.
    pub(crate) fn file(&mut self, bytes: u64) {
        self.files += 1;
        self.entry(bytes);
        if let Shown::Bar(bar, _) = &self.shown {
            bar.set_message(format!("{} files", self.files));
        }
    }

    /// Removes the bar from the terminal.
    pub(crate) fn finish(&self) {
        if let Shown::Bar(bar, _) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_gets_a_line_each_period() {
        let lines = Lines {
            command: "import",
            began: Instant::now(),
            printed: AtomicU64::new(0),
            expected: AtomicU64::new(0),
        };
        let due = |bytes, secs| lines.due(bytes, Duration::from_secs(secs));
        assert_eq!(due(5, 9), None);
        let first = due(5 << 20, 10).expect("a period has gone by");
        assert_eq!(first, "diorite: import: 5.0M after 10 s");
        assert_eq!(due(6 << 20, 19), None);
        lines.expected.store(10 << 20, Relaxed);
        let later = due(9 << 20, 45).expect("some have");
        assert_eq!(later, "diorite: import: 9.0M of 10M (90 %) after 45 s");
        assert_eq!(due(9 << 20, 49), None);
    }
}
