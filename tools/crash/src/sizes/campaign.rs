//! What it is: rounds of workload, cuts and judgement.
//! Input: a [`Wish`]. Output: an [`Outcome`]; a line per round through `say`. Invariants: the rounds use the shapes of volumes in turn; a
//! state in which something is found is stored before the next one is judged. Limit: the campaign ends after [`MOST_FOUND`] such states.

use super::judge::Judge;
use super::keep::Kept;
use super::workload::{self, Ran};
use crate::campaign::{MOST_FOUND, Outcome};
use crate::error::Result;
use crate::rng::Rng;
use crate::shares::on_all;
use crate::stamp::SECTOR;
use diorite_block::record::{Cut, PowerCuts, plan};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// States judged per workload.
const PER_ROUND: usize = 30;

/// The parameters of a campaign.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The total number of states.
    pub states: usize,
    /// The seed of workloads and cuts.
    pub seed: u64,
    /// One in this many states is judged by the kernel, too.
    pub sample: usize,
    /// True if the kernel may be used, which needs root.
    pub kernel: bool,
    /// Where states with findings are kept.
    pub keep: PathBuf,
}

/// See the module.
///
/// # Errors
/// A tool is missing, the host has no room, or the engine fails although the device below works.
pub fn run(wish: &Wish, say: &mut dyn FnMut(&str)) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut seeds = Rng::new(wish.seed);
    for number in 0.. {
        if outcome.states >= wish.states || outcome.found.len() >= MOST_FOUND {
            break;
        }
        let (began, seed) = (Instant::now(), seeds.next());
        let ran = workload::run(number, seed)?;
        let states = PER_ROUND.min(wish.states - outcome.states);
        // Without a journal no block is torn: nothing says which half is the newer one.
        let unit = if ran.told.journal { SECTOR } else { 4096 };
        let cuts = plan(&ran.log, states, seed, unit);
        let one = judge_all(wish, (&ran, number), &cuts)?;
        let sizes: Vec<String> = ran
            .told
            .sizes
            .iter()
            .map(|s| (s.bytes.0 >> 10).to_string())
            .collect();
        say(&format!(
            "sizes, round {number} ({}): {} KiB, {} files, {} events, {} states, {} by the kernel too: {} ({:.1} s)",
            ran.shape,
            sizes.join(", "),
            ran.told.files.len(),
            ran.log.len(),
            one.states,
            one.by_kernel,
            one.verdict(),
            began.elapsed().as_secs_f64(),
        ));
        outcome.add(one);
    }
    Ok(outcome)
}

/// Judges all states on all processors; each processor takes its states in the order of the log.
fn judge_all(wish: &Wish, round: (&Ran, usize), cuts: &[Cut]) -> Result<Outcome> {
    let total = Mutex::new(Outcome::default());
    on_all(|first, threads| judge_some(wish, round, cuts, (first, threads), &total))?;
    Ok(total.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Judges every `step`th cut from `first` on.
fn judge_some(
    wish: &Wish,
    (ran, round): (&Ran, usize),
    cuts: &[Cut],
    (first, step): (usize, usize),
    total: &Mutex<Outcome>,
) -> Result<()> {
    let judge = Judge::new()?;
    let mut walk = PowerCuts::new(ran.image.clone(), &ran.log);
    for (number, cut) in cuts.iter().enumerate().skip(first).step_by(step) {
        let kernel = wish.kernel && wish.sample > 0 && number % wish.sample == wish.sample / 2;
        let mut one = Outcome {
            states: 1,
            by_kernel: kernel.into(),
            ..Outcome::default()
        };
        walk.with_image(*cut, |image| {
            let found = judge.judge(image, (&ran.told, cut.at), kernel)?;
            let Some(first) = found.first().cloned() else {
                return Ok(());
            };
            let origin = format!(
                "seed {}, round {round} ({}), after event {} of {}, {:?}",
                wish.seed,
                ran.shape,
                cut.at,
                ran.log.len(),
                cut.survival
            );
            let kept = Kept {
                origin,
                told: ran.told.clone(),
                cut: cut.at,
            };
            let name = format!("sizes-seed-{}-round-{round}-state-{number}", wish.seed);
            let dir = wish.keep.join(name);
            kept.store(&dir, image, &found)?;
            one.found.push((dir, first));
            Ok::<_, crate::error::Error>(())
        })?;
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.add(one);
        if total.found.len() >= MOST_FOUND {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
