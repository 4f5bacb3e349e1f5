//! The images that a power cut may leave, at any position of a log.
//!
//! Input: the image before the log's first event, and the log. Output: images, lent one at a time; a plan of which ones to look
//! at. Invariants: those of [`super::cache`]; the same plan gives the same images. Limits: the image is in memory; a walk only
//! goes forward; an image costs what is cached at its position, not the image's size.

use super::cache::{Cache, CachedWrite, SECTOR};
use super::log::Event;
use crate::rng::Rng;
use std::collections::HashMap;

/// Which of the cached writes survive the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Only durable ones.
    Durable,
    /// All that had ended: a device that writes in order, at once.
    Ended,
    /// All, including those in flight.
    All,
    /// Some: each write survives in whole, not at all, or torn between units of this many bytes.
    Chance {
        /// The seed of the choice.
        seed: u64,
        /// A multiple of 512.
        unit: usize,
    },
}

/// One power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The number of events before the cut.
    pub at: usize,
    /// What survives.
    pub survival: Survival,
}

/// `states` power cuts spread evenly over the log, in its order; writes are torn only between units of `unit` bytes. Positions
/// with four or more cuts have the three ordered survivals among them.
#[must_use]
pub fn plan(log: &[Event], states: usize, seed: u64, unit: usize) -> Vec<Cut> {
    let changes = log.iter().enumerate();
    let changes = changes.filter(|(_, e)| e.changes_what_survives());
    let places: Vec<usize> = std::iter::once(0)
        .chain(changes.map(|(n, _)| n + 1))
        .collect();
    // The number of states before the nth position.
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

/// A walk along a log. One image holds what is durable; for each cut the rest is overlaid temporarily.
pub struct PowerCuts<'a> {
    log: &'a [Event],
    at: usize,
    durable: Vec<u8>,
    cache: Cache,
    /// The horizon of each running flush.
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
    /// A walk from the log's beginning; `base` is the device's content at that time.
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
    /// If the cut lies before the last one, or past the log's end.
    pub fn with_image<R>(&mut self, cut: Cut, look: impl FnOnce(&[u8]) -> R) -> R {
        assert!(cut.at >= self.at, "a walk goes forward only");
        while self.at < cut.at {
            self.step();
        }
        let mut undo = Undo::default();
        let writes = self.cache.not_durable();
        overlay(&writes, cut.survival, |pos, bytes| {
            undo.put(&mut self.durable, pos, bytes);
        });
        let result = look(&self.durable);
        undo.take_back(&mut self.durable);
        result
    }

    /// Goes one event forward.
    fn step(&mut self) {
        let event = &self.log[self.at];
        self.at += 1;
        match event {
            Event::Write { id, pos, data, fua } => {
                self.cache.taken(*id, *pos, data.clone(), (*fua, false));
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
        for write in self.cache.take_durable(horizon) {
            write.whole(|pos, bytes| {
                let at = index(pos);
                self.durable[at..at + bytes.len()].copy_from_slice(bytes);
            });
        }
    }
}

/// Overlays the surviving writes on the durable image.
fn overlay(writes: &[&CachedWrite], survival: Survival, mut put: impl FnMut(u64, &[u8])) {
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

/// The bytes that were overwritten temporarily.
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
