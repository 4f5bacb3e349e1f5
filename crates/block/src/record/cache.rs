//! What a volatile cache may lose: the writes that are not durable yet, and what is left of them after a power cut.
//!
//! Input: writes and flushes as they are taken and as they end. Output: the writes that become durable; for those that are
//! not, the pieces that survive. Invariants: what ended before a flush was submitted is durable when the flush has ended; a
//! write with FUA is durable when it has ended; everything else may be there or not, unit by unit, in any combination.
//! Limits: a failed write leaves no trace; that a device emulates FUA by a flush is left to whoever feeds the cache.

use super::log::Data;
use crate::rng::Rng;
use std::collections::BTreeMap;

/// What no power cut tears.
pub(crate) const SECTOR: usize = 512;

/// A write that is not durable, or not yet folded into what is.
#[derive(Clone)]
pub(crate) struct Unsettled {
    pub(crate) pos: u64,
    pub(crate) data: Data,
    /// Its place among the ended ones; none while it is in flight.
    pub(crate) ended: Option<u64>,
    /// Durable when it ends: nothing before it in its sectors can come back then.
    pub(crate) fua: bool,
}

/// The writes that a flush would still have to settle.
#[derive(Default)]
pub(crate) struct Cache {
    writes: BTreeMap<u64, Unsettled>,
    next_end: u64,
}

impl Cache {
    /// A write was taken under the number `id`; numbers rise.
    pub(crate) fn taken(&mut self, id: u64, pos: u64, data: Data, fua: bool) {
        let write = Unsettled {
            pos,
            data,
            ended: None,
            fua,
        };
        self.writes.insert(id, write);
    }

    /// How far a flush that is taken now reaches: see [`Cache::settle`].
    pub(crate) fn horizon(&self) -> u64 {
        self.next_end
    }

    /// The write has ended well.
    pub(crate) fn ended(&mut self, id: u64) {
        let write = self
            .writes
            .get_mut(&id)
            .expect("a write stays here until it has ended");
        write.ended = Some(self.next_end);
        self.next_end += 1;
    }

    /// The write has failed.
    pub(crate) fn failed(&mut self, id: u64) {
        self.writes.remove(&id);
    }

    /// Takes out what ended before `horizon`, in the order in which it ended: it is durable.
    pub(crate) fn settle(&mut self, horizon: u64) -> Vec<Unsettled> {
        let early = |w: &Unsettled| w.ended.is_some_and(|e| e < horizon);
        let ids: Vec<u64> = self
            .writes
            .iter()
            .filter_map(|(id, w)| early(w).then_some(*id))
            .collect();
        let mut settled: Vec<Unsettled> =
            ids.iter().filter_map(|id| self.writes.remove(id)).collect();
        settled.sort_by_key(|w| w.ended);
        settled
    }

    /// What is not settled: ended writes in their order, then those in flight. A durable one thus covers all that came
    /// before it.
    pub(crate) fn unsettled(&self) -> Vec<&Unsettled> {
        let mut order: Vec<(&u64, &Unsettled)> = self.writes.iter().collect();
        order.sort_by_key(|(id, w)| (w.ended.unwrap_or(u64::MAX), **id));
        order.into_iter().map(|(_, w)| w).collect()
    }
}

impl Unsettled {
    /// Must it be there after a power cut?
    pub(crate) fn is_durable(&self) -> bool {
        self.fua && self.ended.is_some()
    }

    /// Hands what is left of the write to `put`: all, nothing, or some of its pieces of `unit` bytes.
    pub(crate) fn by_chance(&self, rng: &mut Rng, unit: usize, mut put: impl FnMut(u64, &[u8])) {
        let luck = if self.is_durable() { 0 } else { rng.below(4) };
        if luck == 1 {
            return;
        }
        let pos = self.pos;
        // Pieces begin at multiples of the unit on the device, whatever the write's own start.
        let skew = usize::try_from(pos % unit as u64).expect("a remainder of a usize");
        let mut last = None;
        let mut there = true;
        self.data.pieces(SECTOR, |at, piece| {
            let number = (at + skew) / unit;
            if luck != 0 && last != Some(number) {
                (last, there) = (Some(number), rng.below(2) == 0);
            }
            if there {
                put(pos + at as u64, piece);
            }
        });
    }

    /// Hands the whole write to `put`.
    pub(crate) fn whole(&self, mut put: impl FnMut(u64, &[u8])) {
        let pos = self.pos;
        self.data
            .pieces(4096, |at, piece| put(pos + at as u64, piece));
    }
}
