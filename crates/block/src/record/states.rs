//! The images that a power cut may leave, at any place of a log.
//!
//! Input: the image before the log's first event, and the log. Output: images, one at a time, lent and taken back; a plan
//! of which ones to look at. Invariants: those of [`super::cache`]; the same plan gives the same images. Limits: the image
//! lives in memory; a walk goes forward only; an image costs what is not settled at its place, not the image's size.

use super::cache::{Cache, SECTOR, Unsettled};
use super::log::Event;
use crate::rng::Rng;
use std::collections::HashMap;

/// What of the unsettled writes is there after the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Nothing but what must be.
    Durable,
    /// All that had ended: a device that writes in order, at once.
    Ended,
    /// What was in flight, too.
    All,
    /// Some of it: each write whole, not at all, or torn between units of so many bytes.
    Chance {
        /// Another seed, another choice.
        seed: u64,
        /// A multiple of 512.
        unit: usize,
    },
}

/// One power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// So many events of the log had happened.
    pub at: usize,
    /// And this was left of them.
    pub survival: Survival,
}

/// `states` power cuts spread evenly over the log, in its order; with `unit` no write is torn but between units of so many
/// bytes. Places that get four or more have the three ordered survivals among them.
#[must_use]
pub fn plan(log: &[Event], states: usize, seed: u64, unit: usize) -> Vec<Cut> {
    let changes = log.iter().enumerate();
    let changes = changes.filter(|(_, e)| e.changes_what_survives());
    let places: Vec<usize> = std::iter::once(0)
        .chain(changes.map(|(n, _)| n + 1))
        .collect();
    // How many states come before the nth place.
    let before = |n: usize| (n * states).div_ceil(places.len());
    let mut rng = Rng::new(seed);
    let mut cuts = Vec::with_capacity(states);
    for (n, &at) in places.iter().enumerate() {
        let here = before(n + 1) - before(n);
        for nth in 0..here as u64 {
            let kind = if here >= 4 { nth } else { rng.below(6) };
            let seed = rng.next();
            let survival = match kind {
                0 => Survival::Durable,
                1 => Survival::Ended,
                2 => Survival::All,
                _ => Survival::Chance { seed, unit },
            };
            cuts.push(Cut { at, survival });
        }
    }
    cuts
}

/// A walk along a log. What is durable lies in one image; the rest is laid over it for a moment per cut.
pub struct PowerCuts<'a> {
    log: &'a [Event],
    at: usize,
    durable: Vec<u8>,
    cache: Cache,
    /// How far each flush that is under way will reach.
    horizons: HashMap<u64, u64>,
}

impl std::fmt::Debug for PowerCuts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PowerCuts")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl<'a> PowerCuts<'a> {
    /// A walk from the log's beginning; `base` is what the device held then.
    #[must_use]
    pub fn new(base: Vec<u8>, log: &'a [Event]) -> PowerCuts<'a> {
        PowerCuts {
            log,
            at: 0,
            durable: base,
            cache: Cache::default(),
            horizons: HashMap::new(),
        }
    }

    /// Lends the image of `cut` to `look`.
    ///
    /// # Panics
    /// If the cut lies before the last one, or behind the log's end.
    pub fn with_image<R>(&mut self, cut: Cut, look: impl FnOnce(&[u8]) -> R) -> R {
        assert!(cut.at >= self.at, "a walk goes forward only");
        while self.at < cut.at {
            self.step();
        }
        let mut undo = Undo::default();
        let writes = self.cache.unsettled();
        overlay(&writes, cut.survival, |pos, bytes| {
            undo.put(&mut self.durable, pos, bytes);
        });
        let result = look(&self.durable);
        undo.take_back(&mut self.durable);
        result
    }

    /// One event further.
    fn step(&mut self) {
        let event = &self.log[self.at];
        self.at += 1;
        match event {
            Event::Write { id, pos, data, fua } => {
                self.cache.taken(*id, *pos, data.clone(), *fua);
            }
            Event::Flush { id } => {
                self.horizons.insert(*id, self.cache.horizon());
            }
            Event::Ended { id } => self.ended(*id),
            Event::Failed { id } => {
                self.horizons.remove(id);
                self.cache.failed(*id);
            }
            Event::Mark(_) => {}
        }
    }

    fn ended(&mut self, id: u64) {
        let Some(horizon) = self.horizons.remove(&id) else {
            return self.cache.ended(id);
        };
        for write in self.cache.settle(horizon) {
            write.whole(|pos, bytes| {
                let at = index(pos);
                self.durable[at..at + bytes.len()].copy_from_slice(bytes);
            });
        }
    }
}

/// Lays over what is durable what else survives.
fn overlay(writes: &[&Unsettled], survival: Survival, mut put: impl FnMut(u64, &[u8])) {
    let seed = match survival {
        Survival::Chance { seed, .. } => seed,
        _ => 0,
    };
    let mut rng = Rng::new(seed);
    for write in writes {
        match survival {
            Survival::Durable if !write.is_durable() => {}
            Survival::Ended if write.ended.is_none() => {}
            Survival::Durable | Survival::Ended | Survival::All => write.whole(&mut put),
            Survival::Chance { unit, .. } => write.by_chance(&mut rng, unit.max(SECTOR), &mut put),
        }
    }
}

/// What was overwritten for a moment.
#[derive(Default)]
struct Undo {
    bytes: Vec<u8>,
    places: Vec<(u64, usize)>,
}

impl Undo {
    fn put(&mut self, image: &mut [u8], pos: u64, bytes: &[u8]) {
        let at = index(pos);
        let old = &mut image[at..at + bytes.len()];
        self.places.push((pos, bytes.len()));
        self.bytes.extend_from_slice(old);
        old.copy_from_slice(bytes);
    }

    fn take_back(&self, image: &mut [u8]) {
        let mut end = self.bytes.len();
        for &(pos, len) in self.places.iter().rev() {
            let at = index(pos);
            image[at..at + len].copy_from_slice(&self.bytes[end - len..end]);
            end -= len;
        }
    }
}

fn index(pos: u64) -> usize {
    usize::try_from(pos).expect("the write lies inside an image in memory")
}
