//! The output: rows and ratios as text when they are measured, or one JSON object at the end.
//!
//! Input: measured arms, ratios, notes. Output: text or JSON. Invariant: with `--json` nothing but the object is on standard
//! output. Limits: if the reader of standard output closes it, the run ends without a message.

mod row;

use super::failure::{Failure, FailureKind};
use super::rounds::{Measured, Rounds, Spread};
use super::targets::{Goal, Good};
use row::Row;
use serde::Serialize;
use std::fmt;
use std::io::{self, ErrorKind};

#[derive(Clone, Debug, Serialize)]
pub(super) struct Ratio {
    pub(super) id: String,
    /// Of an id that many pairs of rows have: the ratio of the same rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) of: Option<String>,
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) runs: usize,
    pub(super) target: Option<f64>,
    pub(super) aa_min: Option<f64>,
    pub(super) aa_max: Option<f64>,
    pub(super) device: String,
}

/// A ratio as text.
struct RatioText<'a> {
    ratio: &'a Ratio,
    /// The median of the A/A pair.
    aa: Option<f64>,
    goal: Option<&'a Goal>,
}

impl fmt::Display for RatioText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = self.ratio;
        write!(
            f,
            "  = {}{}: {:.3} [{:.3} .. {:.3}] of {}",
            r.id,
            r.of.as_ref().map_or(String::new(), |of| format!(" ({of})")),
            r.median,
            r.min,
            r.max,
            r.runs
        )?;
        if let (Some(aa), Some(min), Some(max)) = (self.aa, r.aa_min, r.aa_max) {
            write!(f, "; A/A {aa:.3} [{min:.3} .. {max:.3}]")?;
        }
        let Some(goal) = self.goal else {
            return writeln!(f);
        };
        if r.target.is_some() {
            let (sign, met) = match goal.good {
                Good::AtLeast => (">=", r.median >= goal.value),
                Good::AtMost => ("<=", r.median <= goal.value),
            };
            let verdict = if met { "met" } else { "NOT MET" };
            write!(f, "; target {sign} {}: {verdict}", goal.value)?;
        }
        writeln!(f, "   ({})", goal.what)
    }
}

/// A published figure, to compare with the measured one.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Published {
    pub(super) what: &'static str,
    pub(super) before: f64,
    pub(super) after: f64,
    pub(super) unit: &'static str,
}

#[derive(Debug, Serialize)]
struct Whole<'a> {
    experiment: &'a str,
    device: &'a str,
    kernel: String,
    io_engine: &'a str,
    rows: &'a [Row],
    ratios: &'a [Ratio],
    published: &'a [Published],
    notes: &'a [String],
}

/// Writes to the standard output of the command.
pub type Print = fn(fmt::Arguments<'_>) -> io::Result<()>;

/// Collects an experiment's results and prints them.
pub(super) struct Report {
    out: Print,
    json: bool,
    goals: Vec<&'static Goal>,
    experiment: String,
    device: String,
    io_engine: String,
    rows: Vec<Row>,
    ratios: Vec<Ratio>,
    published: Vec<Published>,
    notes: Vec<String>,
}

impl Report {
    /// `goals` are the targets by whose ids its ratios are judged.
    pub(super) fn new(
        experiment: &str,
        json: bool,
        goals: Vec<&'static Goal>,
        out: Print,
    ) -> Report {
        Report {
            goals,
            out,
            json,
            experiment: experiment.into(),
            device: String::new(),
            io_engine: String::new(),
            rows: Vec::new(),
            ratios: Vec::new(),
            published: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn print(&self, text: fmt::Arguments<'_>) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        write_out(self.out, text)
    }

    /// The device that the following rows are about. The first one heads the report.
    pub(super) fn device(&mut self, label: &str, io_engine: &str) -> Result<(), Failure> {
        if self.device.is_empty() {
            self.device = label.into();
            self.io_engine = io_engine.into();
        }
        let kernel = super::host::kernel_version();
        let name = &self.experiment;
        self.print(format_args!(
            "\n{name}: {label}, {io_engine}, Linux {kernel}\n"
        ))
    }

    pub(super) fn heading(&self, text: &str) -> Result<(), Failure> {
        self.print(format_args!("\n{text}\n"))
    }

    /// Adds a note for the reader, such as what was skipped and why.
    pub(super) fn note(&mut self, text: impl Into<String>) -> Result<(), Failure> {
        let text = text.into();
        let printed = self.print(format_args!("  {text}\n"));
        self.notes.push(text);
        printed
    }

    pub(super) fn published(&mut self, figures: &[Published]) -> Result<(), Failure> {
        for p in figures {
            let (what, before, after, unit) = (p.what, p.before, p.after, p.unit);
            let ratio = after / before;
            self.print(format_args!(
                "  published: {what}: {before} -> {after} {unit} ({ratio:.2})\n"
            ))?;
        }
        self.published.extend_from_slice(figures);
        Ok(())
    }

    /// A row for an arm. `device` is the label of what it ran on.
    pub(super) fn row(&mut self, arm: &Measured, device: &str) -> Result<(), Failure> {
        let row = Row::of(arm, device);
        self.print(format_args!("{row}"))?;
        self.rows.push(row);
        Ok(())
    }

    /// A row for every arm.
    pub(super) fn rows(&mut self, rounds: &Rounds, device: &str) -> Result<(), Failure> {
        rounds.arms.iter().try_for_each(|arm| self.row(arm, device))
    }

    /// What was measured, or a note that this machine cannot do it.
    pub(super) fn unless_skipped<T>(
        &mut self,
        id: &str,
        measured: Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        match measured {
            Err(e) if e.kind == FailureKind::Unavailable => {
                self.note(format!("{id}: skipped: {e}"))?;
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// A ratio, with its target if it counts on this device.
    pub(super) fn ratio(
        &mut self,
        id: &str,
        spread: &Spread,
        device: &str,
        counts: bool,
    ) -> Result<(), Failure> {
        self.judge(id, None, spread, device, counts)
    }

    /// A ratio whose id many pairs of rows have, of the rows of the ratio `of`.
    pub(super) fn ratio_beside(
        &mut self,
        id: &str,
        of: &str,
        spread: &Spread,
        device: &str,
        counts: bool,
    ) -> Result<(), Failure> {
        self.judge(id, Some(of.into()), spread, device, counts)
    }

    fn judge(
        &mut self,
        id: &str,
        of: Option<String>,
        spread: &Spread,
        device: &str,
        counts: bool,
    ) -> Result<(), Failure> {
        let known = self.goals.iter().copied().find(|goal| goal.id == id);
        let goal = known.filter(|_| counts);
        let ratio = Ratio {
            id: id.into(),
            of,
            median: spread.median,
            min: spread.min,
            max: spread.max,
            runs: spread.runs,
            target: goal.map(|g| g.value),
            aa_min: spread.aa.map(|(_, min, _)| min),
            aa_max: spread.aa.map(|(_, _, max)| max),
            device: device.into(),
        };
        let aa = spread.aa.map(|(median, _, _)| median);
        let text = RatioText {
            ratio: &ratio,
            aa,
            goal: known,
        };
        self.print(format_args!("{text}"))?;
        self.ratios.push(ratio);
        Ok(())
    }

    /// Ends the report; with `--json` prints the object.
    pub(super) fn finish(self) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let whole = Whole {
            experiment: &self.experiment,
            device: &self.device,
            kernel: super::host::kernel_version(),
            io_engine: &self.io_engine,
            rows: &self.rows,
            ratios: &self.ratios,
            published: &self.published,
            notes: &self.notes,
        };
        let text = serde_json::to_string_pretty(&whole)
            .map_err(|e| Failure::host("cannot write JSON", e))?;
        write_out(self.out, format_args!("{text}\n"))
    }
}

/// Writes to standard output. If the reader has closed it, the run ends, without an error for the user.
pub(super) fn write_out(out: Print, text: fmt::Arguments<'_>) -> Result<(), Failure> {
    match out(text) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => {
            Err(Failure::new(FailureKind::NobodyReads, "nobody reads"))
        }
        Err(e) => Err(Failure::host("cannot write to standard output", e)),
    }
}
