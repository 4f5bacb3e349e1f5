//! What it is: the judge of files that are written through the page cache and directly.
//! Input: the file's edits up to a cut, and what it holds after recovery. Output: nothing, or why it may not hold that.
//! The rule is that of a register: a sector holds what its last durable edit left there, or what a later one leaves. What is written to
//! the page cache reaches the device when somebody asks for it, so later edits may be there without earlier ones. With a journal the size
//! never covers bytes that were not written, whatever moved it: only gaps, holes and what was cut off are zeros.
//! A file that was replaced is one of the files that had the name since the last durable replacement, never parts of two.
//! Limits: without a journal, while an edit is not durable, zeros may be anywhere, sizes are not judged, the file may be missing.

use super::Expect;
use crate::bed::{Mode, SMALLEST_BLOCK};
use crate::edits::{Edit, Left};
use crate::history::{Action, Start, What};
use crate::stamp::{SECTOR, Stamp, held};
use diorite::{Error, Volume};

/// An edit that had begun.
struct Begun<'a> {
    number: u32,
    edit: &'a Edit,
    is_durable: bool,
    /// The size before it, if all edits had been made.
    size: u64,
}

/// One of the files that had the name: what it began with, and its edits.
struct Generation<'a> {
    file: u32,
    start: Origin<'a>,
    edits: Vec<Begun<'a>>,
    mode: Mode,
    /// Parts of the map may be lost.
    may_lose: bool,
}

/// What a file began with.
#[derive(Clone, Copy)]
enum Origin<'a> {
    Image(&'a Start),
    /// The new file of a replacement.
    Replace {
        number: u32,
        size: u64,
        is_durable: bool,
    },
}

impl Expect {
    pub(super) fn judge_edits(
        &self,
        volume: &Volume,
        mode: Mode,
        (number, start): (u32, &Start),
        found: &mut Vec<String>,
    ) {
        let path = &start.path;
        let may_lose =
            self.may_lose(number, mode) || mode == Mode::None && self.may_lose_name(number);
        let bytes = match super::contents(volume, path) {
            Ok(bytes) => bytes,
            Err(Error::NotFound { .. }) if may_lose => return,
            Err(error) => return found.push(format!("{path}: {error}")),
        };
        let generations = self.generations((number, start), (mode, may_lose));
        let count = generations.len();
        let mut nearest: Option<(usize, String)> = None;
        for generation in &generations {
            match generation.judge(&bytes) {
                Ok(()) => return,
                Err((fits, why)) if nearest.as_ref().is_none_or(|(f, _)| fits >= *f) => {
                    nearest = Some((fits, why));
                }
                Err(_) => {}
            }
        }
        let (_, why) = nearest.unwrap_or_default();
        found.push(format!(
            "{path}: none of {count} files that had the name: {why}"
        ));
    }

    /// The files that may have the name after the cut.
    fn generations<'a>(
        &'a self,
        (file, start): (u32, &'a Start),
        (mode, may_lose): (Mode, bool),
    ) -> Vec<Generation<'a>> {
        let new = |start| Generation {
            file,
            start,
            edits: Vec::new(),
            mode,
            may_lose,
        };
        let mut all = vec![new(Origin::Image(start))];
        let mut size = start.size;
        for (number, action) in self.history.begun(self.at) {
            let What::Edit { file: of, edit } = &action.what else {
                continue;
            };
            if *of != file {
                continue;
            }
            let is_durable = self.is_durable(action);
            if let Edit::Replace { size: new_size, .. } = edit {
                if self.has_durable_name(action) {
                    all.clear();
                }
                let number = Origin::Replace {
                    number,
                    size: *new_size,
                    // A sync before the rename has ended if the new file has the name.
                    is_durable: is_durable || edit.is_durable(),
                };
                all.push(new(number));
            } else if let Some(last) = all.last_mut() {
                last.edits.push(Begun {
                    number,
                    edit,
                    is_durable,
                    size,
                });
            }
            size = edit.size_after(size);
        }
        all
    }

    /// True if a replacement of the file may be there in parts, if no journal keeps names.
    fn may_lose_name(&self, file: u32) -> bool {
        let replaces = |a: &Action| matches!(&a.what, What::Edit { file: of, edit: Edit::Replace { .. } } if *of == file);
        let mut begun = self.history.begun(self.at);
        begun.any(|(_, a)| replaces(a) && !self.has_durable_name(a))
    }

    /// True if the whole volume was synced after the replacement: a sync of the file alone does not promise its name.
    fn has_durable_name(&self, replaced: &Action) -> bool {
        let of_volume = |a: &Action| matches!(a.what, What::SyncAll | What::Close);
        let mut begun = self.history.begun(self.at);
        replaced.acked.is_some_and(|acked| {
            begun.any(|(_, a)| {
                of_volume(a) && acked < a.begun && a.acked.is_some_and(|mark| mark < self.at)
            })
        })
    }
}

impl Origin<'_> {
    fn size(&self) -> u64 {
        match self {
            Origin::Image(start) => start.size,
            Origin::Replace { size, .. } => *size,
        }
    }

    fn is_durable(&self) -> bool {
        match self {
            Origin::Image(_) => true,
            Origin::Replace { is_durable, .. } => *is_durable,
        }
    }

    /// The number of the write whose stamp is in the sector, and how many bytes of it.
    fn leaves(&self, sector: u64) -> (u32, Left) {
        let at = sector * SECTOR as u64;
        let left = usize::try_from(self.size().saturating_sub(at)).unwrap_or(SECTOR);
        let stamp = Left::Stamp(left.min(SECTOR));
        match self {
            Origin::Image(start) if start.has_data(sector) => (0, stamp),
            Origin::Replace { number, size, .. } if at < *size => (*number, stamp),
            Origin::Image(_) | Origin::Replace { .. } => (0, Left::Zeros),
        }
    }
}

impl Generation<'_> {
    /// Fails with the count of sectors that fit, and the first one that does not.
    fn judge(&self, bytes: &[u8]) -> Result<(), (usize, String)> {
        let size = bytes.len() as u64;
        let wrong = |fits, why| Err((fits, format!("{} edits of it: {why}", self.edits.len())));
        if let Err(why) = self.judge_size(size) {
            return wrong(0, why);
        }
        for (sector, bytes) in bytes.chunks(SECTOR).enumerate() {
            let values = self.values(sector as u64);
            let is = |(number, left): &(u32, Left)| self.is(sector as u64, *number, *left, bytes);
            let lost = self.may_lose && bytes.iter().all(|byte| *byte == 0);
            if !lost && !values.iter().any(is) {
                let held = held(bytes);
                let why =
                    format!("sector {sector} of {size} bytes: {held:?}; it may hold {values:?}");
                return wrong(sector + 1, why);
            }
        }
        Ok(())
    }

    fn is(&self, sector: u64, write: u32, left: Left, bytes: &[u8]) -> bool {
        let mut expected = [0; SECTOR];
        if let Left::Stamp(len) = left {
            let stamp = Stamp {
                file: self.file,
                sector,
                write,
            };
            stamp.fill(&mut expected[..len]);
        }
        expected[..bytes.len()] == *bytes
    }

    /// What a sector may hold: numbers of writes, and what is left of them.
    fn values(&self, sector: u64) -> Vec<(u32, Left)> {
        let at = sector * SECTOR as u64;
        let mut values = vec![self.start.leaves(sector)];
        let was_there = at < self.start.size();
        if was_there && !self.start.is_durable() {
            values.push((0, Left::Zeros));
        }
        let mut is_replaced = false;
        for begun in &self.edits {
            let Some(left) = begun.edit.leaves(sector, begun.size) else {
                continue;
            };
            if begun.is_durable {
                values.clear();
                is_replaced = true;
            }
            values.push((begun.number, left));
        }
        // Zeros that are there only because nothing was written yet.
        let is_written = is_replaced || was_there && self.start.is_durable();
        if !is_written && self.mode != Mode::None {
            values.retain(|(number, left)| *number != 0 || *left != Left::Zeros);
        }
        values
    }

    fn judge_size(&self, size: u64) -> Result<(), String> {
        if self.may_lose {
            return Ok(());
        }
        let (mut least, mut most) = (0, self.start.size());
        let mut may_be = vec![self.start.size()];
        if self.start.is_durable() {
            least = self.start.size();
        } else {
            may_be.push(0);
        }
        let inside =
            |from: u64, to: u64| size.is_multiple_of(SMALLEST_BLOCK) && (from..=to).contains(&size);
        let mut in_parts = !self.start.is_durable() && inside(0, self.start.size());
        for begun in &self.edits {
            match begun.edit {
                Edit::Write { bytes, .. } => {
                    most = most.max(bytes.end);
                    may_be.push(bytes.end);
                    in_parts |= inside(bytes.start, bytes.end);
                    if begun.is_durable {
                        least = least.max(bytes.end);
                    }
                }
                Edit::Truncate(to) => {
                    least = least.min(*to);
                    most = if begun.is_durable { *to } else { most.max(*to) };
                    may_be.push(*to);
                    if begun.is_durable {
                        least = *to;
                    }
                }
                Edit::Punch(_) | Edit::Replace { .. } => {}
            }
        }
        if size < least || size > most {
            return Err(format!("{size} bytes, where {least} to {most} may be"));
        }
        match may_be.contains(&size) || in_parts {
            true => Ok(()),
            false => Err(format!("{size} bytes, where nothing ended")),
        }
    }
}

#[cfg(test)]
mod tests;
