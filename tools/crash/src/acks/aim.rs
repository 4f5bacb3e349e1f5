//! What it is: the positions in the log to cut at: right after acknowledgements, first those that seem to have come too early.
//! Input: a log, and what was requested and acknowledged. Output: positions in the log, the suspicious ones separately. A promise
//! is suspicious if a write to a disk that has the stamp of promised data is not covered by a flush or FUA when the promise is
//! given.
//! Invariant: suspicion only orders the cuts; only the judge of the recovered volume decides what is wrong. Limits: metadata that a
//! promise needs is not examined here.

use super::disk::{Data, Event};
use super::history::{Of, Promise};
use super::judge::Told;
use crate::stamp::{Held, SECTOR, held};
use std::collections::HashMap;

/// The positions to cut after.
#[derive(Debug, Default)]
pub struct Aims {
    /// Promises that seem to have come too early.
    pub suspicious: Vec<usize>,
    /// All promises.
    pub all: Vec<usize>,
}

/// A write to a disk with promised data: the positions where it began and where it was durable.
#[derive(Clone, Copy)]
struct Carrier {
    began: usize,
    durable_at: usize,
}

impl Aims {
    /// The positions of a log. See the module.
    #[must_use]
    pub fn of(log: &[Event], told: &Told) -> Aims {
        let durable_at = durable_at(log);
        let mut carriers: HashMap<u32, Vec<Carrier>> = HashMap::new();
        for (began, event) in log.iter().enumerate() {
            let Event::Write { id, data, .. } = event else {
                continue;
            };
            let durable_at = durable_at.get(id).copied().unwrap_or(usize::MAX);
            for write in stamps(data) {
                let carrier = Carrier { began, durable_at };
                carriers.entry(write).or_default().push(carrier);
            }
        }
        let early = |write: u32, ack: usize| {
            let mut all = carriers.get(&write).into_iter().flatten();
            all.any(|c| c.began < ack && c.durable_at > ack)
        };
        let covered = covered(told);
        let mut suspicious: Vec<usize> = covered
            .iter()
            .filter(|(ack, writes)| writes.iter().any(|w| early(*w, *ack)))
            .map(|(ack, _)| *ack)
            .collect();
        suspicious.sort_unstable();
        Aims {
            suspicious,
            all: told.promises(),
        }
    }
}

/// For each promise the position of its acknowledgement, and the writes that it covers.
fn covered(told: &Told) -> Vec<(usize, Vec<u32>)> {
    let history = &told.history;
    let writes = || (1..).zip(&history.writes);
    let own = writes().filter(|(_, w)| w.promise > Promise::Nothing);
    let mut all: Vec<(usize, Vec<u32>)> = own
        .filter_map(|(number, w)| Some((w.acked?, vec![number])))
        .collect();
    for sync in &history.syncs {
        let Some(ack) = sync.acked else { continue };
        let of = |file: u32| sync.of == Of::File(file) || sync.of == Of::Volume;
        let before =
            writes().filter(|(_, w)| of(w.file) && w.acked.is_some_and(|at| at < sync.asked));
        all.push((ack, before.map(|(number, _)| number).collect()));
    }
    all
}

/// The numbers of the writes whose stamps are in the data.
fn stamps(data: &Data) -> Vec<u32> {
    let Data::Bytes(bytes) = data else {
        return Vec::new();
    };
    let mut found: Vec<u32> = bytes
        .chunks(SECTOR)
        .filter_map(|sector| match held(sector) {
            Held::Stamp(stamp) => Some(stamp.write),
            _ => None,
        })
        .collect();
    found.dedup();
    found
}

/// The position at which each write to a disk became durable.
fn durable_at(log: &[Event]) -> HashMap<u64, usize> {
    let mut durable_at = HashMap::new();
    // For a write: its disk, and whether it is durable when it ends. For a flush: the writes that it covers.
    let mut writes: HashMap<u64, (usize, bool)> = HashMap::new();
    let mut flushes: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut ended: Vec<(u64, usize)> = Vec::new();
    for (place, event) in log.iter().enumerate() {
        let covers = |disk: usize, ended: &[(u64, usize)]| {
            let here = ended.iter().filter(|(_, on)| *on == disk);
            here.map(|(id, _)| *id).collect()
        };
        match event {
            Event::Write {
                id,
                disk,
                durable,
                flushes: also,
                ..
            } => {
                writes.insert(*id, (*disk, *durable));
                if *also {
                    flushes.insert(*id, covers(*disk, &ended));
                }
            }
            Event::Flush { id, disk } => {
                flushes.insert(*id, covers(*disk, &ended));
            }
            Event::Ended { id } => {
                let reached = flushes.remove(id).unwrap_or_default();
                reached.iter().for_each(|id| {
                    durable_at.entry(*id).or_insert(place);
                });
                ended.retain(|(id, _)| !reached.contains(id));
                match writes.get(id) {
                    Some((_, true)) => {
                        durable_at.insert(*id, place);
                    }
                    Some((disk, false)) => ended.push((*id, *disk)),
                    None => {}
                }
            }
            Event::Mark => {}
        }
    }
    durable_at
}
