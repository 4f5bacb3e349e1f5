//! Progress of a change while it runs, and notes afterwards.
//!
//! Input: steps of a conversion; the superblock afterwards. Output: a line that redraws itself on a terminal, else one now and then; notes.
//! Invariant: a short change prints nothing into a log. Limits: standard error only.

use crate::output::complain_best_effort;
use diorite::Step;
use diorite_format::Superblock;
use diorite_format::features::{Incompat, RoCompat};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Time between two lines.
const PERIOD: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Steps {
    bar: Option<ProgressBar>,
    began: Instant,
    printed: u64,
}

impl Steps {
    pub(super) fn new() -> Steps {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}");
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Steps {
            bar,
            began: Instant::now(),
            printed: 0,
        }
    }

    pub(super) fn show(&mut self, step: &Step) {
        if let Some(bar) = &self.bar {
            bar.set_length(step.of);
            bar.set_message(step.what);
            bar.set_position(step.done);
            return;
        }
        let seconds = self.began.elapsed().as_secs();
        let period = seconds / PERIOD.as_secs();
        if period > self.printed {
            self.printed = period;
            let Step { what, done, of } = step;
            complain_best_effort(format_args!(
                "diorite: tune: {what}: {done} of {of} after {seconds} s"
            ));
        }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Features that a volume has now and had not, with which diorite reads it and does not write it.
pub(super) fn unwritten(before: &Superblock, after: &Superblock) -> Vec<String> {
    let has = |sb: &Superblock| {
        let (incompat, ro) = (sb.features().incompat, sb.features().ro_compat);
        [
            ("quota", ro.has(RoCompat::QUOTA)),
            ("project", ro.has(RoCompat::PROJECT)),
            ("mmp", incompat.has(Incompat::MMP)),
        ]
    };
    let pairs = has(before).into_iter().zip(has(after));
    let new = pairs.filter(|((_, before), (_, after))| !before && *after);
    new.map(|((name, _), _)| {
        format!("with {name} diorite reads the files, and writes none: 'diorite tune -O ^{name}' takes it off again")
    })
    .collect()
}
