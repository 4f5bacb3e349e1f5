//! What it is: rounds of image, workload, cuts and judgement.
//! Input: a [`Wish`]. Output: the number of states judged, and those in which something was found; a line per round through `say`.
//! Invariants: the rounds use the arrangements and caches in turn; a state in which something is found is stored before the next
//! one is judged. Limit: the campaign ends after [`MOST_FOUND`] such states.

use super::aim::Aims;
use super::bed::{BESIDE, Bed, Place};
use super::cut::{Cut, Walk, plan};
use super::disk::{Cache, Disks, Event, Pace};
use super::fsck::Scratch;
use super::history::{Of, Promise, Sync};
use super::judge::Told;
use super::keep::Kept;
use super::recover::{Bench, Stack};
use super::state::judge_state;
use super::workload;
use crate::campaign::MOST_FOUND;
use crate::error::Result;
use crate::rng::Rng;
use crate::shares::on_all;
use diorite::policy::PRESETS;
use diorite::{OpenFlags, OpenOptions, Policy, Volume};
use diorite_block::{Buf, Device};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// States judged per workload.
const PER_ROUND: usize = 60;
/// The least and the most threads of a workload.
const THREADS: (u32, u32) = (2, 5);
/// The number of steps of a thread.
const STEPS: u32 = 48;
/// A workload that takes longer counts as hanging.
const HANGS: Duration = Duration::from_secs(120);
/// The commit intervals that a round chooses from, in milliseconds.
const INTERVALS: [u64; 4] = [1, 4, 20, 5000];

/// The ages of write-back that a round chooses from, in milliseconds; with the last one, only requests have pages written back.
const AGES: [u64; 3] = [2, 20, 30_000];

/// The parameters of a campaign.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The total number of states.
    pub states: usize,
    /// The seed of workloads and cuts.
    pub seed: u64,
    /// The arrangements; the rounds use them in turn.
    pub places: Vec<Place>,
    /// The caches; the rounds use them in turn.
    pub caches: Vec<Cache>,
    /// One in this many states is judged by e2fsck, too.
    pub sample: usize,
    /// Where states with findings are kept.
    pub keep: PathBuf,
}

/// The result of a campaign.
#[derive(Debug, Default)]
pub struct Outcome {
    /// States judged.
    pub states: usize,
    /// The directories of states with findings, each with its first finding.
    pub found: Vec<(PathBuf, String)>,
    /// How many states had been judged after the first round with a finding.
    pub first: Option<usize>,
}

/// A workload that has run, with its log.
struct Round {
    number: usize,
    bed: Arc<Bed>,
    cache: Cache,
    log: Vec<Event>,
    told: Told,
}

/// See the module.
///
/// # Errors
/// A tool is missing, the host has no room, or a request fails although the disks work.
pub fn run(wish: &Wish, say: &mut dyn FnMut(&str)) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut seeds = Rng::new(wish.seed);
    let mut beds = BTreeMap::new();
    for number in 0.. {
        if outcome.states >= wish.states || outcome.found.len() >= MOST_FOUND {
            break;
        }
        let (began, seed) = (Instant::now(), seeds.next());
        let (place, cache) = wish.turn(number);
        let bed = match beds.get(&place) {
            Some(bed) => Arc::clone(bed),
            None => Arc::clone(beds.entry(place).or_insert(Arc::new(Bed::make(place)?))),
        };
        let watch = watch(format!("seed {}, round {number}", wish.seed));
        let round = Round::run((number, seed), bed, cache)?;
        drop(watch);
        let worked = began.elapsed();
        let states = PER_ROUND.min(wish.states - outcome.states);
        let aims = Aims::of(&round.log, &round.told);
        let (promises, suspicious) = (aims.all.len(), aims.suspicious.len());
        let cuts = plan(round.log.len(), aims, states, seed);
        let found = judge_all(wish, &round, &cuts)?;
        say(&format!(
            "round {number} ({}): {} events, {promises} promises, {suspicious} of them suspicious, {states} states: {} \
             ({:.2} s, {:.2} s of it work)",
            round.name(),
            round.log.len(),
            if found.is_empty() { "well" } else { "FOUND" },
            began.elapsed().as_secs_f64(),
            worked.as_secs_f64(),
        ));
        outcome.states += states;
        if !found.is_empty() {
            outcome.first = outcome.first.or(Some(outcome.states));
        }
        outcome.found.extend(found);
    }
    Ok(outcome)
}

impl Wish {
    /// The arrangement and the cache of a round.
    fn turn(&self, number: usize) -> (Place, Cache) {
        let cache = self.caches[number % self.caches.len()];
        let place = self.places[number / self.caches.len() % self.places.len()];
        (place, cache)
    }
}

impl Round {
    /// Runs the workload.
    fn run((number, seed): (usize, u64), bed: Arc<Bed>, cache: Cache) -> Result<Round> {
        let mut rng = Rng::new(seed);
        let disks = Disks::new(bed.images.clone());
        let devices: Vec<Arc<dyn Device>> = (0..bed.images.len())
            .map(|disk| disks.device(disk, cache, pace(&mut rng)))
            .collect();
        let policy = match rng.one_in(3) {
            true => rng.pick(&PRESETS).1,
            false => Policy::DIORITE,
        };
        let options = OpenOptions::writable()
            .policy(policy)
            .data_journal(rng.one_in(8).then_some(true))
            .workers(2)
            .commit_interval(Duration::from_millis(*rng.pick(&INTERVALS)))
            .write_back_age(Duration::from_millis(*rng.pick(&AGES)));
        let stack = Stack::open(bed.place, &devices, &options)?;
        let (least, most) = THREADS;
        let more = u32::try_from(rng.below(u64::from(most - least + 1))).unwrap_or(0);
        let work = (least + more, STEPS);
        let mut told = beside(stack.below.as_ref(), || {
            workload::run((&stack.top, &bed, &disks), rng.next(), work)
        })?;
        let asked = disks.mark();
        stack.close(|| {
            told.history.syncs.push(Sync {
                of: Of::Volume,
                promise: Promise::Times,
                asked,
                acked: Some(disks.mark()),
            });
        })?;
        let log = disks.log();
        Ok(Round {
            number,
            bed,
            cache,
            log,
            told,
        })
    }

    fn name(&self) -> String {
        format!(
            "{}, cache {:?}, {} threads",
            self.bed.place.name(),
            self.cache,
            self.told.threads
        )
    }
}

/// Does `work` while another file of the volume below is written and synced, so that commits run there, too.
fn beside(below: Option<&Volume>, work: impl FnOnce() -> Result<Told>) -> Result<Told> {
    let Some(below) = below else { return work() };
    let flags = OpenFlags::writable();
    let file = below.open_path(BESIDE, flags)?;
    let ended = AtomicBool::new(false);
    let write = || {
        while !ended.load(Ordering::SeqCst) {
            file.write_buf(0, Buf::zeroed(4096)).1?;
            file.sync()?;
        }
        Ok::<_, diorite::Error>(())
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(write);
        let end = End(&ended);
        let told = work();
        drop(end);
        other
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        told
    })
}

/// Sets the flag when it is dropped, on every path.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A usual disk: latencies of 20 to 480 microseconds, and one to five times that for a flush.
fn pace(rng: &mut Rng) -> Pace {
    let micros = |n: u64| Duration::from_micros(n);
    Pace {
        least: micros(20 + rng.below(150)),
        more: micros(10 + rng.below(300)),
        flush: u32::try_from(1 + rng.below(5)).unwrap_or(1),
        seed: rng.next(),
    }
}

/// Aborts the process with a message if the returned sender is not dropped within [`HANGS`]: threads then wait for each other.
fn watch(what: String) -> Sender<()> {
    let (alive, watch) = channel();
    std::thread::spawn(move || {
        if watch.recv_timeout(HANGS) == Err(RecvTimeoutError::Timeout) {
            eprintln!("crash: {what}: the workload hangs");
            std::process::abort();
        }
    });
    alive
}

/// Judges all states on all processors, each processor its states in the order of the log; returns those with findings.
fn judge_all(wish: &Wish, round: &Round, cuts: &[Cut]) -> Result<Vec<(PathBuf, String)>> {
    let found = Mutex::new(Vec::new());
    on_all(|first, threads| {
        let own = cuts.iter().enumerate().skip(first).step_by(threads);
        judge_some(wish, round, own, &found)
    })?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn judge_some<'a>(
    wish: &Wish,
    round: &Round,
    cuts: impl Iterator<Item = (usize, &'a Cut)>,
    all: &Mutex<Vec<(PathBuf, String)>>,
) -> Result<()> {
    let bench = Bench::new(&round.bed.images)?;
    let scratch = Scratch::new()?;
    let mut walk = Walk::new(round.bed.images.clone(), &round.log);
    for (number, cut) in cuts {
        let found = walk.with_images(*cut, |images| {
            let asks = wish.sample > 0 && number % wish.sample == wish.sample / 2;
            let fsck = asks.then_some(&scratch);
            let found = judge_state(
                (&bench, fsck),
                round.bed.place,
                images,
                (&round.told, cut.at),
            );
            let Some(first) = found.first().cloned() else {
                return Ok(None);
            };
            let dir = round.keep(wish, (number, *cut), images, &found)?;
            Ok::<_, crate::error::Error>(Some((dir, first)))
        })?;
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(found);
        if all.len() >= MOST_FOUND {
            break;
        }
    }
    Ok(())
}

impl Round {
    fn keep(
        &self,
        wish: &Wish,
        (number, cut): (usize, Cut),
        images: &[Vec<u8>],
        found: &[String],
    ) -> Result<PathBuf> {
        let name = format!(
            "acks-seed-{}-round-{}-state-{number}",
            wish.seed, self.number
        );
        let dir = wish.keep.join(name);
        let kept = Kept {
            place: self.bed.place,
            origin: self.origin(wish, cut),
            told: self.told.clone(),
            cut: cut.at,
        };
        kept.store(&dir, images, found)?;
        Ok(dir)
    }

    fn origin(&self, wish: &Wish, cut: Cut) -> String {
        format!(
            "seed {}, round {} ({}), after event {} of {}, left {:?}",
            wish.seed,
            self.number,
            self.name(),
            cut.at,
            self.log.len(),
            cut.left
        )
    }
}

#[cfg(test)]
mod tests;
