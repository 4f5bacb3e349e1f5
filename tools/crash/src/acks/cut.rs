//! What it is: power cuts: their positions in a log, and the images that each leaves.
//! Input: the images before the log's first event, the log, the positions of acknowledgements. Output: a plan of cuts; images, lent
//! one set at a time.
//! Invariants: a write that ended before the request of a flush of its disk is there once that flush has ended; a write that is
//! durable by itself is there once it has ended; any sectors of any other write may be there, also of writes in flight. Limits:
//! cuts are made in the order of the log.

use super::aim::Aims;
use super::disk::{Data, Event};
use crate::rng::Rng;
use crate::stamp::SECTOR;
use std::collections::{BTreeMap, HashMap};

/// What a disk keeps of its cached writes after the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing: writes that no flush and no FUA covers are lost. Reveals most.
    Nothing,
    /// All writes that had ended.
    Ended,
    /// Those, and the writes in flight.
    All,
    /// Any sectors, chosen by this seed.
    Some(u64),
}

/// One power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The number of events that had happened.
    pub at: usize,
    /// What the first disk keeps, and what the second keeps.
    pub left: [Left; 2],
}

/// How many events after an acknowledgement a late cut may be.
const BEHIND: u64 = 8;

/// Plans `count` cuts of a log of `len` events, in the order of the log: half of them right after suspicious promises, most others
/// right after any promise, the rest shortly after one or anywhere.
#[must_use]
pub fn plan(len: usize, mut aims: Aims, count: usize, seed: u64) -> Vec<Cut> {
    let mut rng = Rng::new(seed);
    shuffle(&mut aims.suspicious, &mut rng);
    shuffle(&mut aims.all, &mut rng);
    let (mut suspicious, mut all) = (aims.suspicious.iter(), aims.all.iter().cycle());
    let mut cuts: Vec<Cut> = (0..count)
        .map(|number| {
            let urgent = (number % 2 == 0).then(|| suspicious.next()).flatten();
            let place = urgent.map_or_else(|| place(&mut rng, len, all.next()), |at| at + 1);
            let first = match urgent {
                Some(_) => Left::Nothing,
                None => left(&mut rng),
            };
            let second = match rng.one_in(2) {
                true => left(&mut rng),
                false => first,
            };
            let (at, left) = (place.min(len), [first, second]);
            Cut { at, left }
        })
        .collect();
    cuts.sort_by_key(|cut| cut.at);
    cuts
}

/// A position right after this acknowledgement, shortly after it, or anywhere.
fn place(rng: &mut Rng, len: usize, ack: Option<&usize>) -> usize {
    let anywhere = usize::try_from(rng.below(len as u64 + 1)).unwrap_or(len);
    let later = usize::try_from(rng.below(BEHIND)).unwrap_or(0);
    match (rng.below(10), ack) {
        (0, _) | (_, None) => anywhere,
        (1, Some(ack)) => ack + 1 + later,
        (_, Some(ack)) => ack + 1,
    }
}

fn left(rng: &mut Rng) -> Left {
    let seed = rng.next();
    match rng.below(10) {
        0 => Left::Ended,
        1 => Left::All,
        2..=4 => Left::Some(seed),
        _ => Left::Nothing,
    }
}

fn shuffle(list: &mut [usize], rng: &mut Rng) {
    for last in (1..list.len()).rev() {
        let other = usize::try_from(rng.below(last as u64 + 1)).unwrap_or(0);
        list.swap(last, other);
    }
}

/// A write in the cache of its disk: no flush that has ended covers it, so it is durable only by itself (FUA).
struct CachedWrite {
    disk: usize,
    at: usize,
    data: Data,
    durable: bool,
    /// Its number among the writes that have ended.
    ended: Option<u64>,
}

/// What a flush makes durable when it ends: all writes to this disk that ended before the number `before`.
#[derive(Clone, Copy)]
struct Reach {
    disk: usize,
    before: u64,
}

/// Reads a log forward. Flushed writes are in the images; cached ones are laid over the images for each cut and removed again.
pub struct Walk<'a> {
    log: &'a [Event],
    at: usize,
    images: Vec<Vec<u8>>,
    writes: BTreeMap<u64, CachedWrite>,
    flushes: HashMap<u64, Reach>,
    ended: u64,
}

impl std::fmt::Debug for Walk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl<'a> Walk<'a> {
    /// Begins at the start of the log, when the disks held these images.
    #[must_use]
    pub fn new(images: Vec<Vec<u8>>, log: &'a [Event]) -> Walk<'a> {
        Walk {
            log,
            at: 0,
            images,
            writes: BTreeMap::new(),
            flushes: HashMap::new(),
            ended: 0,
        }
    }

    /// Calls `look` with the images that `cut` leaves.
    ///
    /// # Panics
    /// If the cut is before the last one, or after the end of the log.
    pub fn with_images<R>(&mut self, cut: Cut, look: impl FnOnce(&[Vec<u8>]) -> R) -> R {
        assert!(cut.at >= self.at, "a walk goes forward only");
        while self.at < cut.at {
            self.step();
        }
        let mut undo = Undo::default();
        let mut order: Vec<(&u64, &CachedWrite)> = self.writes.iter().collect();
        order.sort_by_key(|(id, w)| (w.ended.unwrap_or(u64::MAX), **id));
        for (id, write) in order {
            let image = &mut self.images[write.disk];
            let left = cut.left[write.disk.min(1)];
            write.survive(left, *id, |at, bytes| {
                undo.put((write.disk, image), at, bytes);
            });
        }
        let result = look(&self.images);
        undo.take_back(&mut self.images);
        result
    }

    /// Processes one event.
    fn step(&mut self) {
        let event = &self.log[self.at];
        self.at += 1;
        match event {
            Event::Write {
                id,
                disk,
                pos,
                data,
                durable,
                flushes,
            } => {
                let write = CachedWrite {
                    disk: *disk,
                    at: usize::try_from(*pos).unwrap_or(usize::MAX),
                    data: data.clone(),
                    durable: *durable,
                    ended: None,
                };
                self.writes.insert(*id, write);
                if *flushes {
                    self.reaches(*id, *disk);
                }
            }
            Event::Flush { id, disk } => self.reaches(*id, *disk),
            Event::Ended { id } => self.end(*id),
            Event::Mark => {}
        }
    }

    fn reaches(&mut self, id: u64, disk: usize) {
        let before = self.ended;
        self.flushes.insert(id, Reach { disk, before });
    }

    fn end(&mut self, id: u64) {
        if let Some(write) = self.writes.get_mut(&id) {
            write.ended = Some(self.ended);
            self.ended += 1;
        }
        if let Some(reach) = self.flushes.remove(&id) {
            self.make_durable(reach);
        }
    }

    /// Puts the writes into the images that a flush has made durable.
    fn make_durable(&mut self, reach: Reach) {
        let early = |w: &CachedWrite| {
            w.disk == reach.disk && w.ended.is_some_and(|ended| ended < reach.before)
        };
        let ids = self.writes.iter();
        let ids: Vec<u64> = ids.filter_map(|(id, w)| early(w).then_some(*id)).collect();
        let mut writes: Vec<CachedWrite> =
            ids.iter().filter_map(|id| self.writes.remove(id)).collect();
        writes.sort_by_key(|w| w.ended);
        for write in writes {
            let image = &mut self.images[write.disk];
            write.sectors(|at, bytes| image[at..at + bytes.len()].copy_from_slice(bytes));
        }
    }
}

impl CachedWrite {
    /// Calls `put` with what is left of the write.
    fn survive(&self, left: Left, id: u64, mut put: impl FnMut(usize, &[u8])) {
        match left {
            _ if self.durable && self.ended.is_some() => self.sectors(put),
            Left::Nothing => {}
            Left::Ended if self.ended.is_none() => {}
            Left::Ended | Left::All => self.sectors(put),
            Left::Some(seed) => {
                let mut rng = Rng::new(seed ^ id.rotate_left(32));
                let fate = rng.below(3);
                let (mut there, mut rest) = (false, 0..0);
                self.sectors(|at, bytes| {
                    if !rest.contains(&at) {
                        there = fate == 0 || fate == 1 && rng.one_in(2);
                        rest = together(at, bytes);
                    }
                    if there {
                        put(at, bytes);
                    }
                });
            }
        }
    }

    fn sectors(&self, mut put: impl FnMut(usize, &[u8])) {
        const ZEROS: [u8; SECTOR] = [0; SECTOR];
        match &self.data {
            Data::Bytes(bytes) => {
                for (n, sector) in bytes.chunks(SECTOR).enumerate() {
                    put(self.at + n * SECTOR, sector);
                }
            }
            Data::Zeros(len) => (0..*len)
                .step_by(SECTOR)
                .for_each(|n| put(self.at + n, &ZEROS[..SECTOR.min(len - n)])),
        }
    }
}

/// The range that survives or is lost together with this sector: a whole superblock. Half of one is of no use, and no writer can
/// prevent that.
fn together(at: usize, sector: &[u8]) -> std::ops::Range<usize> {
    const SUPERBLOCK: usize = 1024;
    const MAGIC: std::ops::Range<usize> = 0x38..0x3a;
    let begins = at.is_multiple_of(SUPERBLOCK) && sector.get(MAGIC) == Some(&[0x53, 0xef][..]);
    at..at + if begins { SUPERBLOCK } else { 0 }
}

/// The bytes that the writes of a cut replaced.
#[derive(Default)]
struct Undo {
    bytes: Vec<u8>,
    places: Vec<(usize, usize, usize)>,
}

impl Undo {
    fn put(&mut self, (disk, image): (usize, &mut [u8]), at: usize, bytes: &[u8]) {
        let old = &mut image[at..at + bytes.len()];
        self.places.push((disk, at, bytes.len()));
        self.bytes.extend_from_slice(old);
        old.copy_from_slice(bytes);
    }

    fn take_back(&self, images: &mut [Vec<u8>]) {
        let mut end = self.bytes.len();
        for &(disk, at, len) in self.places.iter().rev() {
            images[disk][at..at + len].copy_from_slice(&self.bytes[end - len..end]);
            end -= len;
        }
    }
}

#[cfg(test)]
mod tests;
