//! What it is: rounds of bed, workload, cuts and checks.
//! Input: a [`Wish`]. Output: an [`Outcome`]; a line per round through `say`.
//! Invariants: every processor judges states of the same log, each with an image of its own; a state in which something is
//! found is kept before anything else is done. Limit: after [`MOST_FOUND`] such states the campaign ends.

use crate::bed::{Bed, Mode};
use crate::check::{Also, Judge, Verdict};
use crate::error::Result;
use crate::expect::Expect;
use crate::history::{History, Note};
use crate::keep::Kept;
use crate::rng::Rng;
use crate::workload;
use diorite::policy::PRESETS;
use diorite::{OpenOptions, Volume};
use diorite_block::record::{Cut, Event, PowerCuts, plan};
use diorite_block::{RecordDevice, SimDevice, SimOptions};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// States of one workload.
const PER_ROUND: usize = 250;
/// Times that a workload opens the volume and closes it.
const SESSIONS: u32 = 4;
/// Actions between the two.
const ACTIONS: u32 = 100;
/// How old a transaction may become.
const INTERVALS: [Duration; 3] = [
    Duration::from_millis(1),
    Duration::from_millis(20),
    Duration::from_secs(5),
];
/// States with findings, after which the campaign ends.
pub const MOST_FOUND: usize = 5;

/// What to do.
#[derive(Debug, Clone)]
pub struct Wish {
    /// States in all.
    pub states: usize,
    /// Another seed, other workloads and other cuts.
    pub seed: u64,
    /// Size of the images.
    pub mib: u64,
    /// The rounds take turns at these.
    pub modes: Vec<Mode>,
    /// Every so many states the kernel and debugfs are asked too.
    pub sample: usize,
    /// May the kernel be asked?
    pub kernel: bool,
    /// Where states with findings are kept.
    pub keep: PathBuf,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// States judged.
    pub states: usize,
    /// States that the kernel was asked about too.
    pub by_kernel: usize,
    /// States whose superblock was torn, had no copy, and could not be mended.
    pub lost: usize,
    /// Directories of the states in which something was found, with the first finding.
    pub found: Vec<(PathBuf, String)>,
}

/// A workload that has run.
struct Round {
    number: usize,
    seed: u64,
    bed: Bed,
    policy: &'static str,
    log: Vec<Event>,
    history: History,
}

/// See the module.
///
/// # Errors
/// A tool is missing, the host has no room, or the engine fails where the device below is well.
pub fn run(wish: &Wish, say: &mut dyn FnMut(&str)) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut seeds = Rng::new(wish.seed);
    let mut number = 0;
    while outcome.states < wish.states && outcome.found.len() < MOST_FOUND {
        let began = Instant::now();
        let round = Round::new(wish, number, seeds.next())?;
        let states = PER_ROUND.min(wish.states - outcome.states);
        let cuts = plan(&round.log, states, round.seed, round.bed.tear_unit());
        let one = judge_all(wish, &round, &cuts)?;
        say(&format!(
            "round {number} ({}, blocks of {}, {}, {}): {} actions, {} events, {} states, {} by the kernel too: {} ({:.1} s)",
            round.bed.mode.name(),
            round.bed.block,
            round.bed.shape,
            round.policy,
            round.history.len(),
            round.log.len(),
            one.states,
            one.by_kernel,
            if one.found.is_empty() {
                "well"
            } else {
                "FOUND"
            },
            began.elapsed().as_secs_f64(),
        ));
        outcome.add(one);
        number += 1;
    }
    Ok(outcome)
}

impl Outcome {
    fn add(&mut self, other: Outcome) {
        self.states += other.states;
        self.by_kernel += other.by_kernel;
        self.lost += other.lost;
        self.found.extend(other.found);
    }
}

impl Round {
    /// Makes the bed and runs the workload on it.
    fn new(wish: &Wish, number: usize, seed: u64) -> Result<Round> {
        let mut rng = Rng::new(seed);
        let mode = wish.modes[number % wish.modes.len()];
        let bed = Bed::make(mode, wish.mib, rng.next())?;
        let (policy, switches) = *rng.pick(&PRESETS);
        let device = RecordDevice::new(Arc::new(disk(&bed.image, &mut rng)?));
        let options = OpenOptions {
            policy: switches,
            workers: 2,
            commit_interval: *rng.pick(&INTERVALS),
            ..OpenOptions::writable()
        };
        let mut history = History::new(bed.files.clone());
        let mut sink = |note: Note| {
            let mark = device.mark(0);
            history.note(&note, mark);
            Ok(())
        };
        let mut next = 1;
        for _ in 0..SESSIONS {
            let volume = Volume::open_device(Arc::new(device.clone()), &options)?;
            let (seed, actions) = (rng.next(), (next, ACTIONS));
            next = workload::run(volume, &bed.files, seed, actions, &mut sink)?;
        }
        Ok(Round {
            number,
            seed,
            bed,
            policy,
            log: device.log(),
            history,
        })
    }

    fn origin(&self, wish: &Wish, cut: Cut) -> String {
        format!(
            "seed {}, round {} ({}, blocks of {}, {}, {}), after event {} of {}, {:?}",
            wish.seed,
            self.number,
            self.bed.mode.name(),
            self.bed.block,
            self.bed.shape,
            self.policy,
            cut.at,
            self.log.len(),
            cut.survival
        )
    }
}

/// A disk with a volatile cache that ends requests in an order of its own, with the image on it.
fn disk(image: &[u8], rng: &mut Rng) -> Result<SimDevice> {
    let fua = if rng.one_in(2) { "yes" } else { "no" };
    let (size, seed) = (image.len(), rng.next());
    let text = format!("{size},clock=auto,cache=volatile,fua={fua},seed={seed}");
    let disk = SimDevice::new(SimOptions::parse(&text)?)?;
    disk.write_at(0, image);
    Ok(disk)
}

/// Judges the states, those of each processor in the order of the log.
fn judge_all(wish: &Wish, round: &Round, cuts: &[Cut]) -> Result<Outcome> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let total = Mutex::new(Outcome::default());
    std::thread::scope(|scope| {
        let work = |first: usize| judge_some(wish, round, cuts, (first, threads), &total);
        let others: Vec<_> = (0..threads)
            .map(|first| scope.spawn(move || work(first)))
            .collect();
        let ended = others.into_iter().map(|t| t.join());
        let ended: Vec<_> = ended
            .map(|r| r.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        ended.into_iter().collect::<Result<()>>()
    })?;
    Ok(total.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Every `step`th cut from `first` on.
fn judge_some(
    wish: &Wish,
    round: &Round,
    cuts: &[Cut],
    (first, step): (usize, usize),
    total: &Mutex<Outcome>,
) -> Result<()> {
    let mut judge = Judge::new(round.bed.image.len())?;
    let mut walk = PowerCuts::new(round.bed.image.clone(), &round.log);
    for (number, cut) in cuts.iter().enumerate().skip(first).step_by(step) {
        let sampled = wish.sample > 0 && number % wish.sample == wish.sample / 2;
        let also = Also {
            kernel: sampled && wish.kernel,
            debugfs: sampled,
            again: wish.sample > 0 && (number % wish.sample).is_multiple_of(5),
        };
        let one = walk.with_image(*cut, |image| {
            judge_one(wish, round, &mut judge, (number, *cut), image, also)
        })?;
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.add(one);
        if total.found.len() >= MOST_FOUND {
            break;
        }
    }
    Ok(())
}

fn judge_one(
    wish: &Wish,
    round: &Round,
    judge: &mut Judge,
    (number, cut): (usize, Cut),
    image: &[u8],
    also: Also,
) -> Result<Outcome> {
    let expect = Expect {
        history: round.history.clone(),
        at: cut.at,
    };
    let verdict = judge.judge(round.bed.mode, image, &expect, also)?;
    let found = round.history.findings(&verdict);
    let mut outcome = Outcome {
        states: 1,
        by_kernel: also.kernel.into(),
        lost: usize::from(verdict == Verdict::Lost),
        found: Vec::new(),
    };
    if let Some(first) = found.first().cloned() {
        let kept = Kept {
            mode: round.bed.mode,
            origin: round.origin(wish, cut),
            expect,
        };
        let name = format!("seed-{}-round-{}-state-{number}", wish.seed, round.number);
        let dir = kept.store(&wish.keep, &name, image, &found)?;
        outcome.found.push((dir, first));
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests;
