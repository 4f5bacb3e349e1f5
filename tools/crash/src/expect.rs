//! What it is: what the files of a state may hold, and the judge of what they do hold.
//! Input: a history, a position in the log, a recovered volume. Output: findings, in words.
//! The rule is that of a register: a sector may hold any value whose write had begun, unless a later value must be there, that is,
//! the value of a durable write that began after the first one was acknowledged. A write is durable if that was acknowledged. With
//! a journal it is also durable if it was acknowledged before the start of a change that shows in a file's size, because transactions
//! are durable in order and data is written before them; and an append is durable if the size covers it, because the size grows
//! over appends in order.
//! Invariant: every sector of every file is read. Limit: a few findings of a file are listed, the others counted.

mod alone;
mod edits;
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

/// How many findings of one file are listed.
const TOLD: usize = 4;

/// What all files may hold after the first `at` events of the log. A file's index in the history's list is its number in the
/// stamps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expect {
    /// What was requested and acknowledged.
    pub history: History,
    /// The position of the cut in the log.
    pub at: usize,
}

/// What is known of a state besides its history.
#[derive(Debug, Clone, Copy)]
struct Known<'a> {
    expect: &'a Expect,
    mode: Mode,
    /// Everything that was acknowledged before this position is durable.
    shown: usize,
}

impl Expect {
    /// Compares what the volume's files hold with what they may hold.
    pub fn judge(&self, volume: &Volume, mode: Mode, found: &mut Vec<String>) {
        self.judge_names(volume, mode, found);
        if mode == Mode::None {
            self.judge_strangers(volume, found);
        }
        let mut files = Vec::new();
        for (number, start) in (0..).zip(&self.history.files) {
            match start.usage {
                Usage::Together => {}
                Usage::Alone | Usage::New => {
                    self.judge_alone(volume, mode, (number, start), found);
                    continue;
                }
                Usage::Cached => {
                    self.judge_edits(volume, mode, (number, start), found);
                    continue;
                }
            }
            match contents(volume, &start.path) {
                Ok(bytes) => files.push((number, start, bytes)),
                // If a map was only partly written, e2fsck may clear so much of it that it clears the inode, too.
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

    /// True if data of this file may be lost. Without a journal, a power cut can divide a change of a map that takes several
    /// blocks. e2fsck then clears what is inconsistent: holes appear where data was, but never bytes that were not written to this
    /// file. A durable change can no longer be divided.
    fn may_lose(&self, file: u32, mode: Mode) -> bool {
        let in_place = |what: &What| matches!(what, What::Write { in_place: true, .. });
        let mut begun = self.history.begun(self.at);
        mode == Mode::None
            && begun.any(|(_, a)| {
                a.changes() == Some(file) && !in_place(&a.what) && !self.is_durable(a)
            })
    }

    /// True if data of this file may have gone through the journal. There, one request may need several transactions.
    fn in_parts(&self, file: u32, mode: Mode) -> bool {
        match mode {
            Mode::Journal => true,
            Mode::Ordered | Mode::Writeback => self.history.toggled(file, self.at),
            Mode::None => false,
        }
    }

    /// True if the action was durable when the power was cut.
    fn is_durable(&self, action: &Action) -> bool {
        action.durable.is_some_and(|mark| mark < self.at)
    }

    /// The position where the changes that show in the files' sizes began: the earliest of each file, and the latest of these.
    fn shown_by<'a>(
        &self,
        sizes: impl Iterator<Item = (u32, &'a Start, u64)>,
        mode: Mode,
    ) -> usize {
        let grown = sizes.filter(|(_, start, size)| mode != Mode::None && *size != start.size);
        let began = grown.filter_map(|(file, _, size)| {
            let of_file = self.history.begun(self.at);
            let reach = of_file.filter(|(_, a)| a.changes() == Some(file));
            // An append whose position is not known could have ended anywhere.
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

/// The changes of one file that had begun, with their numbers.
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

    /// True if the action's data must be there, in a file of this size.
    fn is_durable_in(&self, action: &Action, size: u64) -> bool {
        let covered = self.mode != Mode::None
            && matches!(action.what, What::Append { .. })
            && action.reaches().is_some_and(|end| end <= size);
        covered || self.is_kept(action)
    }

    /// True if the action's data must be there whatever the file's size is.
    fn is_kept(&self, action: &Action) -> bool {
        self.expect.is_durable(action) || action.acked.is_some_and(|mark| mark < self.shown)
    }

    /// The values that a sector may hold by the rule of the register.
    fn may_hold(&self, changes: &Changes<'a>, sector: u64, size: u64) -> Vec<Value> {
        let of_sector = |(number, action): &(u32, &'a Action)| {
            Value::of(*number, action, sector).map(|value| (value, *action))
        };
        let writers: Vec<_> = changes.iter().filter_map(of_sector).collect();
        // Writes that were acknowledged before the last durable write began have been replaced.
        let durable = writers.iter().filter(|(value, action)| {
            !matches!(value, Value::Append(_, None)) && self.is_durable_in(action, size)
        });
        let latest = durable.map(|(_, action)| action.begun).max();
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
