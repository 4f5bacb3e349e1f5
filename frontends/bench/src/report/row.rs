//! Rows: the combined runs of an arm, and their form as text.
//!
//! Input: measured arms. Output: [`Row`]s, serialisable and printable. Invariant: rates are medians over the runs, counters are
//! sums. Limits: percentiles are over all runs together.

use super::super::drive::{Run, histogram};
use super::super::host::CpuTime;
use super::super::rounds::{Measured, Spread, median};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

const MIB: f64 = 1_048_576.0;

/// One row: an arm over all its runs. Rates are medians.
#[derive(Clone, Debug, Default, Serialize)]
pub(in super::super) struct Row {
    pub(in super::super) name: String,
    pub(in super::super) load: String,
    pub(in super::super) device: String,
    /// The runs are calls, not requests to a device: they have no bandwidth.
    #[serde(skip)]
    calls: bool,
    pub(in super::super) runs: usize,
    pub(in super::super) iops: f64,
    pub(in super::super) iops_min: f64,
    pub(in super::super) iops_max: f64,
    pub(in super::super) mib_per_second: f64,
    /// None for runs that another program measured.
    pub(in super::super) latency_us: Option<Latency>,
    pub(in super::super) cpu: Option<Cpu>,
    pub(in super::super) resident_mib: f64,
    pub(in super::super) page_cache_mib: f64,
    /// Numbers of requests by the way they completed, and the other counters of the queues.
    pub(in super::super) completions: Vec<(String, u64)>,
    pub(in super::super) locks: Vec<LockRow>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(in super::super) verified: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(in super::super) struct Latency {
    pub(in super::super) mean: f64,
    pub(in super::super) p50: f64,
    pub(in super::super) p90: f64,
    pub(in super::super) p99: f64,
    pub(in super::super) p999: f64,
    pub(in super::super) max: f64,
}

/// Shares of one CPU, time per request, and switches per thousand requests.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(in super::super) struct Cpu {
    pub(in super::super) user_percent: f64,
    pub(in super::super) system_percent: f64,
    pub(in super::super) user_us_per_request: f64,
    pub(in super::super) system_us_per_request: f64,
    pub(in super::super) voluntary_switches_per_1000: f64,
    pub(in super::super) involuntary_switches_per_1000: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(in super::super) struct LockRow {
    pub(in super::super) class: &'static str,
    pub(in super::super) acquired: u64,
    pub(in super::super) contended: u64,
    pub(in super::super) waited_us: f64,
}

impl Row {
    /// Combines the runs of an arm.
    pub(in super::super) fn of(arm: &Measured, device: &str) -> Row {
        let runs = &arm.runs;
        let rates: Vec<f64> = runs.iter().map(|r| r.iops).collect();
        let spread = Spread::of(&rates);
        let middle = |f: fn(&Run) -> f64| median(&runs.iter().map(f).collect::<Vec<_>>());
        Row {
            name: arm.name.clone(),
            load: arm.job.words(),
            device: device.into(),
            calls: arm.job.calls.is_some(),
            runs: runs.len(),
            iops: spread.median,
            iops_min: spread.min,
            iops_max: spread.max,
            mib_per_second: middle(|r| r.bytes_per_second) / MIB,
            latency_us: Latency::of(runs),
            cpu: Cpu::of(runs),
            resident_mib: middle(|r| r.usage.resident as f64) / MIB,
            page_cache_mib: middle(|r| r.usage.page_cache as f64) / MIB,
            completions: sum_counters(runs),
            locks: sum_locks(runs),
            verified: runs.iter().map(|r| r.verified).sum(),
        }
    }
}

impl Cpu {
    fn of(runs: &[Run]) -> Option<Cpu> {
        let wall: f64 = runs.iter().map(|r| r.wall.as_secs_f64()).sum();
        let ios = runs.iter().map(Run::counted_requests).sum::<f64>().max(1.0);
        let seconds = |part: fn(&CpuTime) -> Duration| {
            let all = runs.iter().map(|r| part(&r.usage.cpu).as_secs_f64());
            all.sum::<f64>()
        };
        let (user, system) = (seconds(|cpu| cpu.user), seconds(|cpu| cpu.system));
        let per_1000 = |f: fn(&Run) -> u64| 1000.0 * runs.iter().map(f).sum::<u64>() as f64 / ios;
        (wall > 0.0).then(|| Cpu {
            user_percent: 100.0 * user / wall,
            system_percent: 100.0 * system / wall,
            user_us_per_request: 1e6 * user / ios,
            system_us_per_request: 1e6 * system / ios,
            voluntary_switches_per_1000: per_1000(|r| r.usage.voluntary),
            involuntary_switches_per_1000: per_1000(|r| r.usage.involuntary),
        })
    }
}

impl Latency {
    fn of(runs: &[Run]) -> Option<Latency> {
        let mut all = histogram();
        for run in runs {
            all.add(&run.latency)
                .expect("all histograms are made alike");
        }
        if all.is_empty() {
            return None;
        }
        let at = |q: f64| all.value_at_quantile(q) as f64 / 1000.0;
        Some(Latency {
            mean: all.mean() / 1000.0,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: all.max() as f64 / 1000.0,
        })
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

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, load) = (&self.name, &self.load);
        let (iops, min, max) = (self.iops, self.iops_min, self.iops_max);
        let (unit, bytes) = match self.calls {
            true => ("calls/s", String::new()),
            false => ("IOPS", format!(" {:>8.1} MiB/s", self.mib_per_second)),
        };
        writeln!(
            f,
            "  {name:<26} {iops:>10.0} {unit} [{min:.0} .. {max:.0}]{bytes}   {load}"
        )?;
        if let Some(cpu) = &self.cpu {
            let latency = self.latency_us.map_or(String::new(), |l| format!("{l} | "));
            let (resident, cache) = (self.resident_mib, self.page_cache_mib);
            writeln!(
                f,
                "    {latency}{cpu} | {resident:.0} MiB resident, {cache:.0} MiB page cache"
            )?;
        }
        if self.completions.is_empty() && self.locks.is_empty() {
            return Ok(());
        }
        let completions = self.completions.iter().map(|(n, c)| format!("{n} {c}"));
        let locks = self.locks.iter().map(LockRow::to_string);
        let verified = (self.verified > 0).then(|| format!("{} reads verified", self.verified));
        let all: Vec<String> = completions.chain(locks).chain(verified).collect();
        writeln!(f, "    {}", all.join("; "))
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latency {
            mean,
            p50,
            p90,
            p99,
            p999,
            max,
        } = self;
        write!(
            f,
            "us: mean {mean:.1} p50 {p50:.1} p90 {p90:.1} p99 {p99:.1} p99.9 {p999:.1} max {max:.0}"
        )
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cpu {:.0} % user {:.0} % system, {:.2}+{:.2} us per request, {:.1}+{:.1} switches per 1000",
            self.user_percent,
            self.system_percent,
            self.user_us_per_request,
            self.system_us_per_request,
            self.voluntary_switches_per_1000,
            self.involuntary_switches_per_1000
        )
    }
}

impl fmt::Display for LockRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} taken", self.class, self.acquired)?;
        if self.contended > 0 {
            let (contended, waited) = (self.contended, self.waited_us);
            write!(f, ", {contended} contended, {waited:.0} us")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::host::Usage;
    use super::*;

    /// Time per request is a mean over all requests of all runs, not one of the runs' means.
    #[test]
    fn cpu_time_per_request() {
        let run = |iops, wall_ms, user_ms, system_ms| Run {
            wall: Duration::from_millis(wall_ms),
            usage: Usage {
                cpu: CpuTime {
                    user: Duration::from_millis(user_ms),
                    system: Duration::from_millis(system_ms),
                },
                ..Usage::default()
            },
            ..Run::of_calls(iops)
        };
        // 100,000 and 300,000 requests.
        let runs = [
            run(200_000.0, 500, 100, 300),
            run(150_000.0, 2000, 260, 940),
        ];
        let cpu = Cpu::of(&runs).expect("time was taken");
        let near = |is: f64, should: f64| assert!((is - should).abs() < 1e-9, "{is}, not {should}");
        near(cpu.user_us_per_request, 0.9);
        near(cpu.system_us_per_request, 3.1);
        near(cpu.user_percent, 14.4);
        near(cpu.system_percent, 49.6);
        near(runs[0].cpu_us(), 4.0);
        near(runs[1].cpu_us(), 4.0);
    }

    /// Another program's rate comes without times.
    #[test]
    fn a_run_of_another_program_has_no_cpu_time() {
        assert!(Cpu::of(&[Run::of_calls(100.0)]).is_none());
        assert!(Run::of_calls(100.0).cpu_us().is_nan());
    }
}
