//! `edit --batch`: commits between two lines whenever the running transaction is getting full.
//!
//! Input: the lines of a transaction. Output: as many transactions as necessary. Invariants: all changes of a line are in one
//! transaction; the committed lines are the first lines of the script, without a gap; a line that does not fit any more is
//! repeated in a new transaction, after the lines before it are committed. Limits: a line that does not fit into an empty
//! transaction fails; the lines before one that does not fit are applied twice, and read their sources on the host twice.

use super::place;
use super::script::Transaction;
use crate::args::{EditArgs, Global};
use crate::images::image;
use crate::output::report::Report;
use diorite::{Atomic, AtomicFill, Error, Volume};

/// Applies the lines and returns the volume. If a line fails, the volume is closed, and a message says which lines are not
/// applied.
pub(super) fn run(
    volume: Volume,
    global: &Global,
    args: &EditArgs,
    lines: &Transaction,
    report: &mut Report,
) -> Option<Volume> {
    let mut batch = Batch {
        volume,
        args,
        lines,
        first: 0,
    };
    loop {
        match batch.go_on(report) {
            Ok(End::Done) => return Some(batch.volume),
            Ok(End::Failed) => {
                batch.give_up(report);
                return None;
            }
            Ok(End::Full(next)) => {
                // An atomic change that is abandoned closes its volume.
                drop(batch.volume);
                let volume = image::open_for_writing(&args.img, global, report)?;
                batch = Batch { volume, ..batch };
                match batch.again(next, report) {
                    Ok(true) => {}
                    Ok(false) => {
                        batch.give_up(report);
                        return None;
                    }
                    Err(error) => {
                        report.image(error);
                        return None;
                    }
                }
            }
            Err(error) => {
                report.image(error);
                return None;
            }
        }
    }
}

/// The result of applying a number of lines.
enum End {
    Done,
    /// A line failed; the lines that are not committed are discarded.
    Failed,
    /// The line with this index did not fit; the lines that are not committed are discarded.
    Full(usize),
}

struct Batch<'a> {
    volume: Volume,
    args: &'a EditArgs,
    lines: &'a Transaction,
    /// The first line that is not committed.
    first: usize,
}

impl Batch<'_> {
    /// Applies lines until all are done or one fails.
    fn go_on(&mut self, report: &mut Report) -> Result<End, Error> {
        let mut atomic = self.volume.atomic()?;
        for next in self.first..self.lines.len() {
            let trial = self.step(next, report);
            let fill = atomic.fill();
            if trial.has_failed() && fill.is_full && next > self.first {
                atomic.abandon()?;
                return Ok(End::Full(next));
            }
            let has_failed = trial.has_failed();
            report.absorb(trial);
            if has_failed {
                self.explain(next, fill, report);
                atomic.abandon()?;
                return Ok(End::Failed);
            }
            if fill.changed > fill.most / 2 {
                atomic = self.commit(atomic, next + 1)?;
            }
        }
        self.first = self.lines.len();
        atomic.commit()?;
        Ok(End::Done)
    }

    /// Applies the lines before `next` again and commits them. Their messages are not printed again.
    fn again(&mut self, next: usize, report: &mut Report) -> Result<bool, Error> {
        let atomic = self.volume.atomic()?;
        for line in self.first..next {
            let trial = self.step(line, report);
            if trial.has_failed() {
                report.absorb(trial);
                atomic.abandon()?;
                return Ok(false);
            }
        }
        atomic.commit()?;
        self.first = next;
        Ok(true)
    }

    fn step(&self, line: usize, report: &Report) -> Report {
        let (number, step) = &self.lines[line];
        let mut trial = report.trial(place(self.args, *number));
        step.apply(&self.volume, &mut trial);
        trial
    }

    fn commit(&mut self, atomic: Atomic, next: usize) -> Result<Atomic, Error> {
        atomic.commit()?;
        self.first = next;
        self.volume.atomic()
    }

    /// Explains the failure of a line that does not fit into an empty transaction.
    fn explain(&self, line: usize, fill: AtomicFill, report: &mut Report) {
        if fill.is_full {
            report.host(format_args!(
                "{}: this line alone does not fit into a transaction of this image, which may change {} blocks of metadata: divide it",
                place(self.args, self.lines[line].0),
                fill.most
            ));
        }
    }

    /// Prints from which line on the script is not in the image.
    fn give_up(&self, report: &mut Report) {
        let first = self.lines.get(self.first).map_or(0, |line| line.0);
        report.host(format_args!(
            "{}: nothing from this line on is done; all lines before it are in the image",
            place(self.args, first)
        ));
    }
}
