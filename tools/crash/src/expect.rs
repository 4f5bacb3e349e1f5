//! What it is: what a state's files may hold, and the judge of what they do hold.
//! Input: a history, a place in the log, a recovered volume. Output: findings, in words.
//! The rule is that of a register: a sector may hold any value whose writer had begun, unless a later value must be there,
//! that is, one that began after the first was acknowledged and is settled itself. Settled is what is durable; with a
//! journal also what was acknowledged before anything began that shows in a file's size, since transactions follow one
//! another and data goes before them; and an append that the size covers, since the size moves over appends in order.
//! Invariant: every sector of every file is read. Limit: a few findings of a file are told, the others counted.

mod alone;
mod names;
mod size;
mod strangers;
mod value;

use crate::bed::Mode;
use crate::history::{Action, History, Start, Usage, What};
use crate::stamp::SECTOR;
use diorite::{OpenFlags, Volume};
use serde::{Deserialize, Serialize};
use value::{Value, tell};

/// Findings that are told of one file.
const TOLD: usize = 4;

/// What all files may hold when the first `at` events of the log have happened. A file's place in the history's list is
/// its number in the stamps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expect {
    /// What was done.
    pub history: History,
    /// See there.
    pub at: usize,
}

/// What is known of a state beside its history.
#[derive(Debug, Clone, Copy)]
struct Known<'a> {
    expect: &'a Expect,
    mode: Mode,
    /// What was acknowledged before this place is settled.
    shown: usize,
}

impl Expect {
    /// Compares with what the volume's files hold.
    pub fn judge(&self, volume: &Volume, mode: Mode, found: &mut Vec<String>) {
        self.judge_names(volume, mode, found);
        if mode == Mode::None {
            self.judge_strangers(volume, found);
        }
        let mut files = Vec::new();
        for (number, start) in (0..).zip(&self.history.files) {
            if start.usage != Usage::Together {
                self.judge_alone(volume, mode, (number, start), found);
                continue;
            }
            match contents(volume, &start.path) {
                Ok(bytes) => files.push((number, start, bytes)),
                // Of a map that was cut in two e2fsck may clear so much that it clears the inode too.
                Err(diorite::Error::NotFound { .. }) if self.may_lose(number, mode) => {}
                Err(error) => found.push(format!("{}: {error}", start.path)),
            }
        }
        let sizes = files
            .iter()
            .map(|(n, start, b)| (*n, *start, b.len() as u64));
        let known = Known {
            expect: self,
            mode,
            shown: self.shown_by(sizes, mode),
        };
        for (number, start, bytes) in &files {
            known.judge(*number, start, bytes, found);
        }
    }

    /// Without a journal a change of a map that takes several blocks can be cut in two, and e2fsck then clears what does not fit:
    /// there are holes where data was, though never bytes that were not written to this file. A change that is durable cannot be cut any more.
    fn may_lose(&self, file: u32, mode: Mode) -> bool {
        let in_place = |what: &What| matches!(what, What::Write { in_place: true, .. });
        let mut begun = self.history.begun(self.at);
        mode == Mode::None
            && begun.any(|(_, a)| {
                a.changes() == Some(file) && !in_place(&a.what) && !self.is_durable(a)
            })
    }

    /// May its data have gone through the journal, where what one request writes needs several transactions?
    fn in_parts(&self, file: u32, mode: Mode) -> bool {
        match mode {
            Mode::Journal => true,
            Mode::Ordered | Mode::Writeback => self.history.toggled(file, self.at),
            Mode::None => false,
        }
    }

    /// Was it, when the power went?
    fn is_durable(&self, action: &Action) -> bool {
        action.durable.is_some_and(|mark| mark < self.at)
    }

    /// Where began whatever shows in the files' sizes, at the earliest.
    fn shown_by<'a>(
        &self,
        sizes: impl Iterator<Item = (u32, &'a Start, u64)>,
        mode: Mode,
    ) -> usize {
        let grown = sizes.filter(|(_, start, size)| mode != Mode::None && *size != start.size);
        let began = grown.filter_map(|(file, _, size)| {
            let of_file = self.history.begun(self.at);
            let reach = of_file.filter(|(_, a)| a.changes() == Some(file));
            // An append that nobody placed could have ended anywhere.
            let may = reach.filter(|(_, a)| a.reaches().is_none_or(|end| end == size));
            may.map(|(_, a)| a.begun).min()
        });
        began.max().unwrap_or(0)
    }
}

fn contents(volume: &Volume, path: &str) -> Result<Vec<u8>, diorite::Error> {
    let file = volume.open_path(path, OpenFlags::default())?;
    let mut bytes = vec![0; file.size() as usize];
    file.read_bytes(0, &mut bytes)?;
    Ok(bytes)
}

/// What began to change one file, with its number.
type Changes<'a> = Vec<(u32, &'a Action)>;

impl<'a> Known<'a> {
    fn judge(&self, number: u32, start: &Start, bytes: &[u8], found: &mut Vec<String>) {
        let path = &start.path;
        let changes = self.changes(number);
        let size = bytes.len() as u64;
        if let Err(why) = self.judge_size((number, start), &changes, size) {
            found.push(format!("{path}: {why}"));
        }
        let may_be_lost = self.expect.may_lose(number, self.mode);
        let mut wrong = 0;
        for (sector, bytes) in (0..).zip(bytes.chunks(SECTOR)) {
            let may_hold = self.may_hold(&changes, sector, size);
            if may_be_lost && bytes.iter().all(|b| *b == 0) {
                continue;
            }
            if may_hold.iter().any(|v| v.is(number, start, sector, bytes)) {
                continue;
            }
            wrong += 1;
            if wrong <= TOLD {
                found.push(format!(
                    "{path}: sector {sector} of {} holds {}; it may hold {may_hold:?}",
                    size.div_ceil(SECTOR as u64),
                    tell(number, sector, bytes)
                ));
            }
        }
        if wrong > TOLD {
            found.push(format!("{path}: {wrong} sectors in all"));
        }
    }

    fn changes(&self, file: u32) -> Changes<'a> {
        let begun = self.expect.history.begun(self.expect.at);
        begun.filter(|(_, a)| a.changes() == Some(file)).collect()
    }

    /// Must what it did be there, in a file of this size?
    fn is_settled(&self, action: &Action, size: u64) -> bool {
        let covered = self.mode != Mode::None
            && matches!(action.what, What::Append { .. })
            && action.reaches().is_some_and(|end| end <= size);
        covered || self.is_kept(action)
    }

    /// Must it be there whatever the file's size is?
    fn is_kept(&self, action: &Action) -> bool {
        self.expect.is_durable(action) || action.acked.is_some_and(|mark| mark < self.shown)
    }

    /// The rule of the register, for one sector.
    fn may_hold(&self, changes: &Changes<'a>, sector: u64, size: u64) -> Vec<Value> {
        let of_sector = |(number, action): &(u32, &'a Action)| {
            Value::of(*number, action, sector).map(|value| (value, *action))
        };
        let writers: Vec<_> = changes.iter().filter_map(of_sector).collect();
        // The latest beginning among those that must be there: whoever was acknowledged before it is gone.
        let settled = writers.iter().filter(|(value, action)| {
            !matches!(value, Value::Append(_, None)) && self.is_settled(action, size)
        });
        let latest = settled.map(|(_, action)| action.begun).max();
        let gone = |acked: Option<usize>| acked.zip(latest).is_some_and(|(a, l)| a < l);
        let first = latest.is_none().then_some(Value::Start);
        let later = writers.iter().filter(|(_, action)| !gone(action.acked));
        first
            .into_iter()
            .chain(later.map(|(value, _)| *value))
            .collect()
    }
}

#[cfg(test)]
mod tests;
