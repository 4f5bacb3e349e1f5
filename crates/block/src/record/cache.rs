//! A model of a volatile cache: the writes that are not durable yet, and what a power cut leaves of them.
//!
//! Input: writes and flushes when they are taken and when they end. Output: the writes that become durable; of the others, the
//! pieces that survive. Invariants: a write that ended before a flush was submitted is durable when the flush has ended; a
//! write with FUA is durable when it has ended; every other write may survive or not, unit by unit, in any combination. Limits:
//! a failed write leaves no trace; a device that emulates FUA by a flush is the caller's to model.

use super::log::Data;
use crate::rng::Rng;
use std::collections::BTreeMap;

/// The unit that a power cut never tears.
pub(crate) const SECTOR: usize = 512;

/// A write that is not durable, or not yet applied to the durable image.
#[derive(Clone)]
pub(crate) struct CachedWrite {
    pub(crate) pos: u64,
    pub(crate) data: Data,
    /// Its position among the ended writes; none while it is in flight.
    pub(crate) ended: Option<u64>,
    /// Durable when it ends: earlier data of its sectors cannot come back then.
    pub(crate) fua: bool,
    /// All of it survives, or nothing.
    pub(crate) atomic: bool,
}

/// The writes that a flush would still have to make durable.
#[derive(Default)]
pub(crate) struct Cache {
    writes: BTreeMap<u64, CachedWrite>,
    next_end: u64,
}

impl Cache {
    /// A write was taken under the number `id`; numbers increase.
    pub(crate) fn taken(&mut self, id: u64, pos: u64, data: Data, (fua, atomic): (bool, bool)) {
        let write = CachedWrite {
            pos,
            data,
            ended: None,
            fua,
            atomic,
        };
        self.writes.insert(id, write);
    }

    /// The horizon of a flush that is taken now: see [`Cache::take_durable`].
    pub(crate) fn horizon(&self) -> u64 {
        self.next_end
    }

    /// The write has succeeded.
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

    /// Removes the writes that ended before `horizon`, in the order in which they ended: they are durable.
    pub(crate) fn take_durable(&mut self, horizon: u64) -> Vec<CachedWrite> {
        let early = |w: &CachedWrite| w.ended.is_some_and(|e| e < horizon);
        let ids: Vec<u64> = self
            .writes
            .iter()
            .filter_map(|(id, w)| early(w).then_some(*id))
            .collect();
        let mut durable: Vec<CachedWrite> =
            ids.iter().filter_map(|id| self.writes.remove(id)).collect();
        durable.sort_by_key(|w| w.ended);
        durable
    }

    /// The writes that are not durable: ended ones in their order, then those in flight. So a durable write overlays everything before it.
    pub(crate) fn not_durable(&self) -> Vec<&CachedWrite> {
        let mut order: Vec<(&u64, &CachedWrite)> = self.writes.iter().collect();
        order.sort_by_key(|(id, w)| (w.ended.unwrap_or(u64::MAX), **id));
        order.into_iter().map(|(_, w)| w).collect()
    }
}

impl CachedWrite {
    /// Whether it must survive a power cut.
    pub(crate) fn is_durable(&self) -> bool {
        self.fua && self.ended.is_some()
    }

    /// Passes what is left of the write to `put`: all, nothing, or some of its pieces of `unit` bytes.
    pub(crate) fn by_chance(&self, rng: &mut Rng, unit: usize, mut put: impl FnMut(u64, &[u8])) {
        let luck = if self.is_durable() { 0 } else { rng.below(4) };
        if luck == 1 {
            return;
        }
        let pos = self.pos;
        // The position of an atomic write is a multiple of its length.
        let unit = if self.atomic {
            self.data.len().max(unit)
        } else {
            unit
        };
        // Pieces begin at multiples of the unit on the device, wherever the write starts.
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

    /// Passes the whole write to `put`.
    pub(crate) fn whole(&self, mut put: impl FnMut(u64, &[u8])) {
        let pos = self.pos;
        self.data
            .pieces(4096, |at, piece| put(pos + at as u64, piece));
    }
}
