//! The folios of one file, found by block.
//!
//! Input: folios with their first blocks. Output: the folio of a block, those of a range. Invariants: folios do not overlap; a hint may be
//! wrong: its folio is used if it has the block, else the tree is searched. Limits: of folios in one unit of [`UNIT`] blocks, only the last
//! that came has a hint.

use super::bits::{Bits, MOST};
use super::folio::{Folio, NewFolio};
use super::short;
use crate::error::Error;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;

/// Blocks of a file that have one hint: those of the longest folio.
const UNIT: u64 = MOST as u64;

/// A file with fewer folios has no hints: its tree is one node.
const FEW: usize = 4;

/// The most hints of a file.
const MOST_HINTS: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Folios {
    /// By their first blocks: places in `slots`.
    tree: BTreeMap<u64, u32>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// By unit, modulo their number, which is a power of two or 0: places in `slots`.
    hints: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    start: u64,
    folio: Folio,
}

impl Slot {
    #[inline]
    fn has(&self, block: u64) -> bool {
        block.wrapping_sub(self.start) < u64::from(self.folio.blocks())
    }
}

impl Folios {
    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }

    /// The folio with this block, and its first block.
    #[inline]
    pub(super) fn of(&self, block: u64) -> Option<(u64, &Folio)> {
        let slot = match self.hinted(block) {
            Some(slot) => slot,
            None => self.searched(block)?,
        };
        Some((slot.start, &slot.folio))
    }

    /// As [`Folios::of`], to change it.
    pub(super) fn of_mut(&mut self, block: u64) -> Option<(u64, &mut Folio)> {
        let place = self.place_of(block)?;
        let slot = self.slots[place as usize].as_mut()?;
        slot.has(block).then_some((slot.start, &mut slot.folio))
    }

    #[inline]
    fn hinted(&self, block: u64) -> Option<&Slot> {
        let hint = self.hints.get(self.hint_of(block / UNIT))?;
        let slot = self.slots.get(*hint as usize)?.as_ref()?;
        slot.has(block).then_some(slot)
    }

    /// Without hints this is the number of no hint.
    #[inline]
    fn hint_of(&self, unit: u64) -> usize {
        unit as usize & self.hints.len().wrapping_sub(1)
    }

    fn searched(&self, block: u64) -> Option<&Slot> {
        let slot = self.slots[self.place_of(block)? as usize].as_ref()?;
        slot.has(block).then_some(slot)
    }

    /// The place of the last folio that starts at this block or before.
    fn place_of(&self, block: u64) -> Option<u32> {
        let (_, place) = self.tree.range(..=block).next_back()?;
        Some(*place)
    }

    /// The folio that starts at this block.
    pub(super) fn starting_at(&self, start: u64) -> Option<&Folio> {
        let place = self.tree.get(&start)?;
        self.slots[*place as usize].as_ref().map(|slot| &slot.folio)
    }

    /// Adds a folio that overlaps no other.
    pub(super) fn insert(&mut self, start: u64, folio: Folio) {
        let units = units(start, &folio);
        let slot = Some(Slot { start, folio });
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place as usize] = slot;
                place
            }
            None => {
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).expect("folios are fewer than pages of memory")
            }
        };
        self.tree.insert(start, place);
        if self.tree.len() >= FEW
            && self.tree.len() > self.hints.len() / 2
            && self.hints.len() < MOST_HINTS
        {
            self.make_hints();
        } else {
            self.hint(units, place);
        }
    }

    fn hint(&mut self, units: Range<u64>, place: u32) {
        for unit in units {
            let at = self.hint_of(unit);
            if let Some(hint) = self.hints.get_mut(at) {
                *hint = place;
            }
        }
    }

    /// Makes four hints per folio, as far as there may be so many.
    fn make_hints(&mut self) {
        let count = (4 * self.tree.len()).next_power_of_two().min(MOST_HINTS);
        self.hints = vec![u32::MAX; count];
        for place in self.tree.values().copied().collect::<Vec<_>>() {
            if let Some(slot) = &self.slots[place as usize] {
                let units = units(slot.start, &slot.folio);
                self.hint(units, place);
            }
        }
    }

    /// Removes the folio that starts at this block.
    pub(super) fn remove(&mut self, start: u64) {
        let Some(place) = self.tree.remove(&start) else {
            return;
        };
        self.slots[place as usize] = None;
        self.free.push(place);
        if self.tree.is_empty() {
            // A file that had many does not keep their places.
            *self = Folios::default();
        }
    }

    /// Removes the folios without a valid block that nobody writes.
    pub(super) fn drop_empty(&mut self) {
        let all = self.meeting(&(0..u64::MAX));
        let empty: Vec<u64> = all
            .filter(|(_, folio)| folio.is_invalid())
            .map(|(start, _)| start)
            .collect();
        empty.into_iter().for_each(|start| self.remove(start));
    }

    /// The first block of the first folio that starts in a range.
    pub(super) fn next_start(&self, blocks: Range<u64>) -> Option<u64> {
        self.tree.range(blocks).next().map(|(start, _)| *start)
    }

    pub(super) fn overlaps(&self, blocks: Range<u64>) -> bool {
        self.of(blocks.start).is_some() || self.next_start(blocks).is_some()
    }

    /// The first blocks of the folios with a part of a range.
    fn starts(&self, blocks: &Range<u64>) -> Range<u64> {
        let first = self
            .of(blocks.start)
            .map_or(blocks.start, |(start, _)| start);
        first..blocks.end.max(first)
    }

    /// The folios with a part of a range, with their first blocks.
    pub(super) fn meeting(&self, blocks: &Range<u64>) -> impl Iterator<Item = (u64, &Folio)> {
        let places = self.tree.range(self.starts(blocks));
        let slots = places.filter_map(|(_, place)| self.slots[*place as usize].as_ref());
        slots.map(|slot| (slot.start, &slot.folio))
    }

    /// Changes the folios with a part of a range, up to the first for which `change` breaks off.
    pub(super) fn change<E>(
        &mut self,
        blocks: &Range<u64>,
        mut change: impl FnMut(u64, &mut Folio) -> Result<(), E>,
    ) -> Result<(), E> {
        for place in self
            .tree
            .range(self.starts(blocks))
            .map(|(_, place)| *place)
        {
            if let Some(slot) = self.slots[place as usize].as_mut() {
                change(slot.start, &mut slot.folio)?;
            }
        }
        Ok(())
    }

    /// Does a folio have a block of the range in this set?
    pub(super) fn any(&self, blocks: &Range<u64>, which: impl Fn(&Folio) -> Bits) -> bool {
        self.meeting(blocks).any(|(start, folio)| {
            let from = short(blocks.start.saturating_sub(start));
            let to = short((blocks.end - start).min(u64::from(folio.blocks())));
            !which(folio).and(Bits::of(from..to)).is_empty()
        })
    }

    /// The first block from `at` on, before `end`, that is not valid; else `end`.
    pub(super) fn end_of_valid(&self, mut at: u64, end: u64) -> u64 {
        while at < end {
            let Some((start, folio)) = self.of(at) else {
                return at;
            };
            let run = start + u64::from(folio.valid().end_of_run(short(at - start)));
            if run < start + u64::from(folio.blocks()) {
                return run.min(end);
            }
            at = run;
        }
        end
    }

    /// The first block from `at` on, before `end`, that is valid; else `end`.
    pub(super) fn next_valid(&self, at: u64, end: u64) -> u64 {
        let valid = self.meeting(&(at..end)).find_map(|(start, folio)| {
            let run = folio.valid().run(short(at.saturating_sub(start)))?;
            Some(start + u64::from(run.start))
        });
        valid.unwrap_or(end).min(end)
    }

    /// The first block of the range that can be written back.
    pub(super) fn first_dirty(&self, blocks: &Range<u64>) -> Option<u64> {
        let first = self.meeting(blocks).find_map(|(start, folio)| {
            let from = short(blocks.start.saturating_sub(start));
            let run = folio.collectable().run(from)?;
            Some(start + u64::from(run.start))
        });
        first.filter(|at| *at < blocks.end)
    }

    /// Copies folios that are lent to writes, so that they can be changed. If the budget has no room it returns how many bytes the next
    /// copy takes.
    pub(super) fn make_writable(&mut self, blocks: &Range<u64>) -> Result<Option<u64>, Error> {
        let mut no_room = None;
        let all = self.change(blocks, |_, folio| match folio.make_writable() {
            Ok(None) => Ok(()),
            Ok(Some(bytes)) => {
                no_room = Some(bytes);
                Err(None)
            }
            Err(error) => Err(Some(error)),
        });
        match all {
            Err(Some(error)) => Err(error),
            Ok(()) | Err(None) => Ok(no_room),
        }
    }

    pub(super) fn copy_missing(&mut self, block_bits: u32, new: &NewFolio) {
        let end = new.start + u64::from(new.blocks());
        let Ok(()) = self.change::<Infallible>(&(new.start..end), |start, folio| {
            folio.copy_missing(block_bits, start, new);
            Ok(())
        });
    }
}

/// The units with a part of a folio.
fn units(start: u64, folio: &Folio) -> Range<u64> {
    let end = start + u64::from(folio.blocks());
    start / UNIT..end.div_ceil(UNIT)
}
