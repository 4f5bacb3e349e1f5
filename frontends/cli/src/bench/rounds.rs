//! Interleaving: arms run in turn, round after round, one of them twice, so that drift and noise show.
//!
//! Input: arms, each a row to be. Output: their runs and the ratios between them. Invariants: every round runs every arm,
//! odd rounds in reverse; the reference arm runs first and last, and the ratio of its two runs is the A/A pair; rounds are
//! added until its median is within half a percent of one, up to a bound. Limits: arms are run one at a time.

use super::drive::Run;
use super::failure::Failure;
use super::job::Job;
use super::signals;

/// How many rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) least: usize,
    pub(super) most: usize,
}

/// How close to one the median of the A/A pair has to come.
const QUIET: f64 = 0.005;

type Runner<'a> = Box<dyn Fn(&Job) -> Result<Run, Failure> + 'a>;

/// One row to be.
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

/// What came of all arms. The reference is the first.
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
        let reverse = self.aa.len() % 2 == 1;
        let mut order: Vec<usize> = (1..arms.len()).collect();
        if reverse {
            order.reverse();
        }
        let run = |at: usize| {
            signals::check()?;
            (arms[at].run)(&arms[at].job)
        };
        let first = run(0)?;
        for at in order {
            let result = run(at)?;
            self.arms[at].runs.push(result);
        }
        let last = run(0)?;
        let (a, b) = if reverse {
            (last, first)
        } else {
            (first, last)
        };
        self.aa.push(b.iops / a.iops);
        self.arms[0].runs.extend([a, b]);
        Ok(())
    }

    /// IOPS of one arm over those of another, round by round.
    pub(super) fn ratio(&self, over: usize, under: usize) -> Spread {
        let each: Vec<f64> = (0..self.aa.len())
            .map(|round| self.rate(over, round) / self.rate(under, round))
            .collect();
        Spread::of(&each).beside(&self.aa)
    }

    /// The reference runs twice a round: their mean.
    fn rate(&self, arm: usize, round: usize) -> f64 {
        let runs = &self.arms[arm].runs;
        if arm == 0 {
            f64::midpoint(runs[2 * round].iops, runs[2 * round + 1].iops)
        } else {
            runs[round].iops
        }
    }
}

impl Spread {
    /// Of these values; there must be one.
    pub(super) fn of(values: &[f64]) -> Spread {
        Spread {
            median: median(values),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            runs: values.len(),
            aa: None,
        }
    }

    /// With the A/A pair of the same rounds.
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
    use super::super::job::Rw;
    use super::*;
    use std::cell::Cell;

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
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
