//! What a person and what a program get to see: rows and ratios as they come, or one JSON object at the end.
//!
//! Input: measured arms, ratios, notes. Output: text or JSON. Invariant: with `--json` nothing but the object is on
//! standard output. Limits: a reader that goes away ends the run quietly.

use super::drive::{Run, histogram};
use super::failure::{Failure, FailureKind};
use super::rounds::{Measured, Spread, median};
use super::targets::{self, Good};
use serde::Serialize;
use std::fmt;
use std::io::{ErrorKind, Write};

/// One row: an arm over all its runs. Rates are medians.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) load: String,
    pub(super) device: String,
    pub(super) runs: usize,
    pub(super) iops: f64,
    pub(super) iops_min: f64,
    pub(super) iops_max: f64,
    pub(super) mib_per_second: f64,
    pub(super) latency_us: Latency,
    pub(super) cpu: Cpu,
    pub(super) resident_mib: f64,
    pub(super) page_cache_mib: f64,
    /// Requests by how they completed, and what else the queues counted.
    pub(super) completions: Vec<(String, u64)>,
    pub(super) locks: Vec<LockRow>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) verified: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Latency {
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) max: f64,
}

/// Shares of one CPU, and switches per thousand requests.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Cpu {
    pub(super) user_percent: f64,
    pub(super) system_percent: f64,
    pub(super) voluntary_switches_per_1000: f64,
    pub(super) involuntary_switches_per_1000: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct LockRow {
    pub(super) class: &'static str,
    pub(super) acquired: u64,
    pub(super) contended: u64,
    pub(super) waited_us: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Ratio {
    pub(super) id: String,
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) runs: usize,
    pub(super) target: Option<f64>,
    pub(super) aa_min: Option<f64>,
    pub(super) aa_max: Option<f64>,
    pub(super) device: String,
}

/// A figure that somebody else published, beside ours.
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

/// Collects an experiment's results and prints them.
pub(super) struct Report {
    json: bool,
    experiment: String,
    device: String,
    io_engine: String,
    rows: Vec<Row>,
    ratios: Vec<Ratio>,
    published: Vec<Published>,
    notes: Vec<String>,
}

impl Report {
    pub(super) fn new(experiment: &str, json: bool) -> Report {
        Report {
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
        write_out(text)
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

    /// Something the reader should know: what was skipped, and why.
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
        self.print(format_args!("{}", RowText(&row)))?;
        self.rows.push(row);
        Ok(())
    }

    /// A ratio, with its target if it counts on this device.
    pub(super) fn ratio(
        &mut self,
        id: &str,
        spread: &Spread,
        device: &str,
        counts: bool,
    ) -> Result<(), Failure> {
        let goal = targets::goal(id).filter(|_| counts);
        let ratio = Ratio {
            id: id.into(),
            median: spread.median,
            min: spread.min,
            max: spread.max,
            runs: spread.runs,
            target: goal.map(|g| g.value),
            aa_min: spread.aa.map(|(_, min, _)| min),
            aa_max: spread.aa.map(|(_, _, max)| max),
            device: device.into(),
        };
        let verdict = goal.map_or(String::new(), |g| {
            let (sign, met) = match g.good {
                Good::AtLeast => (">=", ratio.median >= g.value),
                Good::AtMost => ("<=", ratio.median <= g.value),
            };
            format!(
                "; target {sign} {}: {}",
                g.value,
                if met { "met" } else { "NOT MET" }
            )
        });
        let aa = spread.aa.map_or(String::new(), |(median, min, max)| {
            format!("; A/A {median:.3} [{min:.3} .. {max:.3}]")
        });
        let Ratio {
            median,
            min,
            max,
            runs,
            ..
        } = ratio;
        let what = targets::goal(id).map_or("", |g| g.what);
        self.print(format_args!(
            "  = {id}: {median:.3} [{min:.3} .. {max:.3}] of {runs}{aa}{verdict}   ({what})\n"
        ))?;
        self.ratios.push(ratio);
        Ok(())
    }

    /// The end: prints the object, if that was asked for.
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
        write_out(format_args!("{text}\n"))
    }
}

/// Writes to standard output. A reader that went away is the end of the run, not an error of it.
pub(super) fn write_out(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => {
            Err(Failure::new(FailureKind::NobodyReads, "nobody reads"))
        }
        Err(e) => Err(Failure::host("cannot write to standard output", e)),
    }
}

impl Row {
    fn of(arm: &Measured, device: &str) -> Row {
        let runs = &arm.runs;
        let rates: Vec<f64> = runs.iter().map(|r| r.iops).collect();
        let spread = Spread::of(&rates);
        let middle = |f: fn(&Run) -> f64| median(&runs.iter().map(f).collect::<Vec<_>>());
        let per_wall = |f: fn(&Run) -> f64| {
            let wall: f64 = runs.iter().map(|r| r.wall.as_secs_f64()).sum();
            100.0 * runs.iter().map(f).sum::<f64>() / wall.max(1e-9)
        };
        let ios: f64 = runs.iter().map(|r| r.iops * r.wall.as_secs_f64()).sum();
        let per_1000 =
            |f: fn(&Run) -> u64| 1000.0 * runs.iter().map(f).sum::<u64>() as f64 / ios.max(1.0);
        const MIB: f64 = 1_048_576.0;
        Row {
            name: arm.name.clone(),
            load: arm.job.words(),
            device: device.into(),
            runs: runs.len(),
            iops: spread.median,
            iops_min: spread.min,
            iops_max: spread.max,
            mib_per_second: middle(|r| r.bytes_per_second) / MIB,
            latency_us: Latency::of(runs),
            cpu: Cpu {
                user_percent: per_wall(|r| r.usage.user.as_secs_f64()),
                system_percent: per_wall(|r| r.usage.system.as_secs_f64()),
                voluntary_switches_per_1000: per_1000(|r| r.usage.voluntary),
                involuntary_switches_per_1000: per_1000(|r| r.usage.involuntary),
            },
            resident_mib: middle(|r| r.usage.resident as f64) / MIB,
            page_cache_mib: middle(|r| r.usage.page_cache as f64) / MIB,
            completions: sum_counters(runs),
            locks: sum_locks(runs),
            verified: runs.iter().map(|r| r.verified).sum(),
        }
    }
}

impl Latency {
    fn of(runs: &[Run]) -> Latency {
        let mut all = histogram();
        for run in runs {
            all.add(&run.latency)
                .expect("all histograms are made alike");
        }
        if all.is_empty() {
            return Latency::default();
        }
        let at = |q: f64| all.value_at_quantile(q) as f64 / 1000.0;
        Latency {
            mean: all.mean() / 1000.0,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: all.max() as f64 / 1000.0,
        }
    }
}

fn sum_counters(runs: &[Run]) -> Vec<(String, u64)> {
    let mut sum: Vec<(String, u64)> = Vec::new();
    for (name, count) in runs.iter().flat_map(|r| &r.counters) {
        match sum.iter_mut().find(|(n, _)| n == name) {
            Some((_, total)) => *total += count,
            None => sum.push((name.clone(), *count)),
        }
    }
    sum.retain(|(_, count)| *count > 0);
    sum
}

fn sum_locks(runs: &[Run]) -> Vec<LockRow> {
    let mut sum: Vec<LockRow> = Vec::new();
    for (class, stats) in runs.iter().flat_map(|r| &r.locks) {
        let waited_us = stats.waited.as_secs_f64() * 1e6;
        match sum.iter_mut().find(|row| row.class == *class) {
            Some(row) => {
                row.acquired += stats.acquired;
                row.contended += stats.contended;
                row.waited_us += waited_us;
            }
            None => sum.push(LockRow {
                class,
                acquired: stats.acquired,
                contended: stats.contended,
                waited_us,
            }),
        }
    }
    sum
}

struct RowText<'a>(&'a Row);

impl fmt::Display for RowText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = self.0;
        writeln!(
            f,
            "  {:<26} {:>10.0} IOPS [{:.0} .. {:.0}] {:>8.1} MiB/s   {}",
            r.name, r.iops, r.iops_min, r.iops_max, r.mib_per_second, r.load
        )?;
        let (l, c) = (&r.latency_us, &r.cpu);
        writeln!(
            f,
            "    us: mean {:.1} p50 {:.1} p90 {:.1} p99 {:.1} p99.9 {:.1} max {:.0} | cpu {:.0} % user {:.0} % system, \
             {:.1}+{:.1} switches per 1000 | {:.0} MiB resident, {:.0} MiB page cache",
            l.mean,
            l.p50,
            l.p90,
            l.p99,
            l.p999,
            l.max,
            c.user_percent,
            c.system_percent,
            c.voluntary_switches_per_1000,
            c.involuntary_switches_per_1000,
            r.resident_mib,
            r.page_cache_mib
        )?;
        if r.completions.is_empty() && r.locks.is_empty() {
            return Ok(());
        }
        write!(f, "    ")?;
        for (name, count) in &r.completions {
            write!(f, "{name} {count}  ")?;
        }
        for lock in &r.locks {
            write!(f, "{}: {} taken", lock.class, lock.acquired)?;
            if lock.contended > 0 {
                write!(
                    f,
                    ", {} contended, {:.0} us",
                    lock.contended, lock.waited_us
                )?;
            }
            write!(f, "; ")?;
        }
        if r.verified > 0 {
            write!(f, "{} reads verified", r.verified)?;
        }
        writeln!(f)
    }
}
