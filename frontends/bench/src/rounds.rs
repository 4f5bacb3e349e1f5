//! Interleaving: the arms run in turn, round after round, and one of them twice per round, which shows drift and noise.
//!
//! Input: arms, each of which becomes a row. Output: their runs and the ratios between them. Invariants: every round runs every
//! arm, the reference twice; the order rotates, so that each arm is equally often first and last; the reference's two runs are
//! the A/A pair, and which of them is divided by the other alternates; rounds are added until its median is within half a
//! percent of one, up to a bound. Limits: arms are run one at a time; the order repeats after twice as many rounds as a round
//! has runs.

use super::drive::Run;
use super::failure::Failure;
use super::job::Job;
use super::signals;

/// The minimum and maximum number of rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) least: usize,
    pub(super) most: usize,
}

/// How close to one the median of the A/A pair has to come.
const QUIET: f64 = 0.005;

type Runner<'a> = Box<dyn Fn(&Job) -> Result<Run, Failure> + 'a>;

/// An arm: a function that is run and becomes one row.
pub(super) struct Arm<'a> {
    pub(super) name: String,
    pub(super) job: Job,
    run: Runner<'a>,
}

impl<'a> Arm<'a> {
    pub(super) fn new(
        name: impl Into<String>,
        job: Job,
        run: impl Fn(&Job) -> Result<Run, Failure> + 'a,
    ) -> Arm<'a> {
        Arm {
            name: name.into(),
            job,
            run: Box::new(run),
        }
    }
}

/// The runs of one arm: one a round, two for the reference.
pub(super) struct Measured {
    pub(super) name: String,
    pub(super) job: Job,
    pub(super) runs: Vec<Run>,
}

/// The results of all arms. The first one is the reference.
pub(super) struct Rounds {
    pub(super) arms: Vec<Measured>,
    /// The reference's second run over its first, per round.
    pub(super) aa: Vec<f64>,
}

/// A ratio over the rounds, with the A/A pair of the same rounds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) runs: usize,
    pub(super) aa: Option<(f64, f64, f64)>,
}

/// Runs the arms; the first is the reference.
pub(super) fn interleave(arms: &[Arm<'_>], plan: Plan) -> Result<Rounds, Failure> {
    let mut rounds = Rounds {
        arms: arms
            .iter()
            .map(|a| Measured {
                name: a.name.clone(),
                job: a.job.clone(),
                runs: Vec::new(),
            })
            .collect(),
        aa: Vec::new(),
    };
    while rounds.aa.len() < plan.most.max(1) {
        rounds.one(arms)?;
        if rounds.aa.len() >= plan.least && (median(&rounds.aa) - 1.0).abs() <= QUIET {
            break;
        }
    }
    Ok(rounds)
}

impl Rounds {
    fn one(&mut self, arms: &[Arm<'_>]) -> Result<(), Failure> {
        let round = self.aa.len();
        let mut pair = Vec::with_capacity(2);
        for at in order(arms.len(), round) {
            signals::check()?;
            let run = (arms[at].run)(&arms[at].job)?;
            if at == 0 {
                pair.push(run);
            } else {
                self.arms[at].runs.push(run);
            }
        }
        // The extra cost of the first run of a round must not always be on the same side of the pair.
        if round % 2 == 1 {
            pair.reverse();
        }
        self.aa.push(pair[1].iops / pair[0].iops);
        self.arms[0].runs.extend(pair);
        Ok(())
    }

    /// The same rounds, with another number of each run as its rate: `rate` gives calls a second.
    pub(super) fn by(&self, job: &Job, rate: impl Fn(&Run) -> f64) -> Rounds {
        let runs = |runs: &[Run]| runs.iter().map(|run| Run::of_calls(rate(run))).collect();
        let arms: Vec<Measured> = self
            .arms
            .iter()
            .map(|arm| Measured {
                name: arm.name.clone(),
                job: job.clone(),
                runs: runs(&arm.runs),
            })
            .collect();
        let pairs = arms
            .first()
            .map_or(&[][..], |arm| &arm.runs)
            .chunks_exact(2);
        let aa = pairs.map(|pair| pair[1].iops / pair[0].iops).collect();
        Rounds { arms, aa }
    }

    /// IOPS of one arm over those of another, round by round.
    pub(super) fn ratio(&self, over: usize, under: usize) -> Spread {
        self.ratio_of(over, under, |run| run.iops)
    }

    /// A number that each run has, of one arm over that of another, round by round.
    pub(super) fn ratio_of(
        &self,
        over: usize,
        under: usize,
        number: impl Fn(&Run) -> f64,
    ) -> Spread {
        // For the reference the mean of its two runs.
        let of = |arm: usize, round: usize| {
            let runs = &self.arms[arm].runs;
            match arm {
                0 => f64::midpoint(number(&runs[2 * round]), number(&runs[2 * round + 1])),
                _ => number(&runs[round]),
            }
        };
        let rounds = 0..self.aa.len();
        let each: Vec<f64> = rounds.map(|r| of(over, r) / of(under, r)).collect();
        let pairs = self.arms[0].runs.chunks_exact(2);
        let aa: Vec<f64> = pairs.map(|p| number(&p[1]) / number(&p[0])).collect();
        Spread::of(&each).beside(&aa)
    }
}

/// Which arms run in a round, one after the other; the reference, 0, twice.
///
/// Example with two arms, so three runs: 010 and its reverse, then rotated by one place: 100, 001, then 001, 100; then it
/// repeats.
fn order(arms: usize, round: usize) -> Vec<usize> {
    let mut runs: Vec<usize> = (0..arms).chain([0]).collect();
    let places = runs.len();
    runs.rotate_left(round / 2 % places);
    if round % 2 == 1 {
        runs.reverse();
    }
    runs
}

impl Spread {
    /// The spread of these values; there must be at least one.
    pub(super) fn of(values: &[f64]) -> Spread {
        Spread {
            median: median(values),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            runs: values.len(),
            aa: None,
        }
    }

    /// Adds the A/A pair of the same rounds.
    fn beside(self, aa: &[f64]) -> Spread {
        let aa = Spread::of(aa);
        Spread {
            aa: Some((aa.median, aa.min, aa.max)),
            ..self
        }
    }
}

/// The middle value; the mean of the two in the middle.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::host::{CpuTime, Usage};
    use super::super::job::Rw;
    use super::*;
    use std::cell::Cell;
    use std::time::Duration;

    fn arm<'a>(calls: &'a Cell<u32>, iops: impl Fn(u32) -> f64 + 'a) -> Arm<'a> {
        Arm::new("x", Job::new(Rw::Randread, 4096, 1), move |job| {
            calls.set(calls.get() + 1);
            Ok(Run::of_rate(iops(calls.get()), job))
        })
    }

    #[test]
    fn a_quiet_pair_needs_the_least_rounds() {
        let (a, b) = (Cell::new(0), Cell::new(0));
        let arms = [arm(&a, |_| 100.0), arm(&b, |_| 150.0)];
        let rounds = interleave(&arms, Plan { least: 3, most: 9 }).expect("it runs");
        assert_eq!((a.get(), b.get()), (6, 3));
        let spread = rounds.ratio(1, 0);
        assert_eq!(
            (spread.median, spread.min, spread.max, spread.runs),
            (1.5, 1.5, 1.5, 3)
        );
        assert_eq!(spread.aa, Some((1.0, 1.0, 1.0)));
    }

    #[test]
    fn a_noisy_pair_gets_rounds_up_to_the_bound() {
        let (a, b) = (Cell::new(0), Cell::new(0));
        // Odd rounds run in reverse, so noise that falls on every first run of a round cancels out of the pairs: this one
        // follows the pair, not the place.
        let arms = [
            arm(&a, |n| if matches!(n % 4, 2 | 3) { 110.0 } else { 100.0 }),
            arm(&b, |_| 100.0),
        ];
        let rounds = interleave(&arms, Plan { least: 3, most: 6 }).expect("it runs");
        assert_eq!(rounds.aa.len(), 6);
        assert!(rounds.aa.iter().all(|r| *r > 1.05));
    }

    #[test]
    fn every_arm_is_equally_often_first_and_last() {
        for arms in 1..6 {
            let all: Vec<_> = (0..2 * (arms + 1)).map(|r| order(arms, r)).collect();
            assert!(all.iter().all(|o| o.len() == arms + 1));
            for arm in 0..arms {
                let runs = if arm == 0 { 4 } else { 2 };
                let at = |place: usize| all.iter().filter(|o| o[place] == arm).count();
                assert!((0..=arms).all(|place| at(place) == runs), "{arms} {arm}");
            }
        }
    }

    #[test]
    fn a_slow_first_run_of_a_round_is_on_no_side_of_the_pair() {
        for least in [3, 5, 6] {
            let calls = Cell::new(0);
            // Three runs per round, of which the first is slow, whichever arm it belongs to.
            let rate = |n: u32| [90.0, 100.0, 101.0][(n as usize - 1) % 3];
            let arms = [arm(&calls, rate), arm(&calls, rate)];
            let most = Plan { least, most: least };
            let rounds = interleave(&arms, most).expect("it runs");
            let aa = rounds.ratio(1, 0).aa.expect("there is a pair").0;
            assert!((aa - 1.0).abs() < 0.011, "{least} rounds: {aa}");
        }
    }

    /// CPU time per request is compared like a rate, with the mean of the reference's two runs.
    #[test]
    fn ratios_of_cpu_time() {
        let calls = Cell::new(0);
        let arm = |cost: u64| {
            let calls = &calls;
            Arm::new("x", Job::new(Rw::Randread, 4096, 1), move |job| {
                calls.set(calls.get() + 1);
                let cpu = CpuTime {
                    user: Duration::from_millis(cost),
                    system: Duration::from_millis(2 * cost),
                };
                Ok(Run {
                    wall: Duration::from_secs(1),
                    usage: Usage {
                        cpu,
                        ..Usage::default()
                    },
                    ..Run::of_rate(1000.0, job)
                })
            })
        };
        let rounds = interleave(&[arm(10), arm(12)], Plan { least: 3, most: 3 }).expect("it runs");
        let spread = rounds.ratio_of(1, 0, Run::cpu_us);
        let near = |is: f64, should: f64| assert!((is - should).abs() < 1e-9, "{is}, not {should}");
        near(spread.median, 1.2);
        assert_eq!((spread.runs, spread.aa), (3, Some((1.0, 1.0, 1.0))));
        near(rounds.arms[1].runs[0].cpu_us(), 36.0);
    }

    #[test]
    fn another_number_of_the_same_rounds() {
        let calls = Cell::new(0);
        let arms = [arm(&calls, |_| 100.0), arm(&calls, f64::from)];
        let rounds = interleave(&arms, Plan { least: 2, most: 2 }).expect("it runs");
        let halves = rounds.by(&Job::new(Rw::Write, 4096, 1), |run| run.iops / 2.0);
        assert_eq!(halves.arms[0].runs.len(), 4);
        assert_eq!(halves.arms[0].runs[0].iops, 50.0);
        assert_eq!(halves.aa, rounds.aa);
        assert_eq!(halves.ratio(1, 0), rounds.ratio(1, 0));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
