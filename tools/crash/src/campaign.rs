//! What it is: rounds of image, workload, cuts and checks.
//! Input: a [`Wish`]. Output: an [`Outcome`]; a line per round through `say`.
//! Invariants: every processor judges states of the same log, each with an image of its own; a state in which something is found is
//! stored before the next one is judged. Limit: the campaign ends after [`MOST_FOUND`] such states.

use crate::bed::{Bed, Mode};
use crate::check::{Also, Judge, Verdict};
use crate::error::Result;
use crate::expect::Expect;
use crate::history::{History, Note};
use crate::keep::Kept;
use crate::rng::Rng;
use crate::shares::on_all;
use crate::workload;
use diorite::policy::PRESETS;
use diorite::{OpenOptions, Volume};
use diorite_block::record::{Cut, Event, PowerCuts, plan};
use diorite_block::{RecordDevice, SimDevice, SimOptions};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// States judged per workload.
const PER_ROUND: usize = 250;
/// How often a workload opens and closes the volume.
const SESSIONS: u32 = 4;
/// Actions between an open and a close.
const ACTIONS: u32 = 100;
/// The commit intervals that a round chooses from.
const INTERVALS: [Duration; 3] = [
    Duration::from_millis(1),
    Duration::from_millis(20),
    Duration::from_secs(5),
];
/// The ages of write-back that a round chooses from; with the last one, only requests have pages written back.
const AGES: [Duration; 3] = [
    Duration::from_millis(1),
    Duration::from_millis(20),
    Duration::from_secs(30),
];
/// The campaign ends after this many states with findings.
pub const MOST_FOUND: usize = 5;

/// The parameters of a campaign.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The total number of states.
    pub states: usize,
    /// The seed of workloads and cuts.
    pub seed: u64,
    /// The size of the images in MiB.
    pub mib: u64,
    /// The journal modes; the rounds use them in turn.
    pub modes: Vec<Mode>,
    /// One in this many states is judged by the kernel and debugfs, too.
    pub sample: usize,
    /// True if the kernel may be used, which needs root.
    pub kernel: bool,
    /// Where states with findings are kept.
    pub keep: PathBuf,
}

/// The result of a campaign.
#[derive(Debug, Default)]
pub struct Outcome {
    /// States judged.
    pub states: usize,
    /// States that the kernel has judged, too.
    pub by_kernel: usize,
    /// States whose superblock was torn, had no backup, and could not be restored.
    pub lost: usize,
    /// The directories of states with findings, each with its first finding.
    pub found: Vec<(PathBuf, String)>,
}

/// A workload that has run, with its log.
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
/// A tool is missing, the host has no room, or the engine fails although the device below works.
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
            one.verdict(),
            began.elapsed().as_secs_f64(),
        ));
        outcome.add(one);
        number += 1;
    }
    Ok(outcome)
}

impl Outcome {
    /// The word that ends the line of a round.
    pub(crate) fn verdict(&self) -> &'static str {
        match self.found.is_empty() {
            true => "well",
            false => "FOUND",
        }
    }

    pub(crate) fn add(&mut self, other: Outcome) {
        self.states += other.states;
        self.by_kernel += other.by_kernel;
        self.lost += other.lost;
        self.found.extend(other.found);
    }
}

impl Round {
    /// Makes the image and runs the workload on it.
    fn new(wish: &Wish, number: usize, seed: u64) -> Result<Round> {
        let mut rng = Rng::new(seed);
        let mode = wish.modes[number % wish.modes.len()];
        let bed = Bed::make(mode, wish.mib, rng.next())?;
        let (policy, switches) = *rng.pick(&PRESETS);
        let device = RecordDevice::new(Arc::new(disk(&bed.image, &mut rng)?));
        let options = OpenOptions::writable()
            .policy(switches)
            .workers(2)
            .commit_interval(*rng.pick(&INTERVALS))
            .write_back_age(*rng.pick(&AGES));
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

/// A disk with a volatile cache that completes requests in random order, with the image on it.
pub(crate) fn disk(image: &[u8], rng: &mut Rng) -> Result<SimDevice> {
    let fua = if rng.one_in(2) { "yes" } else { "no" };
    let (size, seed) = (image.len(), rng.next());
    let text = format!("{size},clock=auto,cache=volatile,fua={fua},seed={seed}");
    let disk = SimDevice::new(SimOptions::parse(&text)?)?;
    disk.write_at(0, image);
    Ok(disk)
}

/// Judges all states on all processors; each processor takes its states in the order of the log.
fn judge_all(wish: &Wish, round: &Round, cuts: &[Cut]) -> Result<Outcome> {
    let total = Mutex::new(Outcome::default());
    on_all(|first, threads| judge_some(wish, round, cuts, (first, threads), &total))?;
    Ok(total.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Judges every `step`th cut from `first` on.
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
