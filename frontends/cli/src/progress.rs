//! The progress bar on a terminal: files and bytes so far, and the number of bytes to expect.
//!
//! Input: counts. Output: a line on standard error that redraws itself. Invariant: nothing is drawn unless standard error is a
//! terminal. Limits: if the number of bytes to expect is not known, only counts are shown.

use crate::report::Report;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// See the module.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    files: u64,
}

impl Progress {
    /// A bar, if standard error is a terminal and `quiet` is not set.
    pub(crate) fn new(quiet: bool, report: &mut Report) -> Progress {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        report.bar.clone_from(&bar);
        Progress { bar, files: 0 }
    }

    /// Sets the number of bytes to expect, if it is known.
    pub(crate) fn expect(&self, known: Option<u64>) {
        let Some(bar) = &self.bar else { return };
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
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        }
    }

    /// Call when a file is complete, with the bytes copied so far.
    pub(crate) fn file(&mut self, bytes: u64) {
        self.files += 1;
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
            bar.set_message(format!("{} files", self.files));
        }
    }

    /// Removes the bar from the terminal.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
