//! What it is: what was requested, what was acknowledged, and from which position of the device's log on it is durable.
//! Input: the [`Note`]s of a workload, each with its position in that log. Output: the actions that had begun at a position, for
//! [`crate::expect`].
//! Invariants: actions are numbered from 1 in the order in which they begin; positions never decrease.
//! Limits: any part of a failed write may be there forever; a history describes one workload.

use crate::check::Verdict;
use crate::edits::Edit;
use crate::names::NameOp;
use crate::stamp::SECTOR;
use crate::states::Change;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Range;

/// One action of a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Write these sectors of a file, which grows if it ends before them.
    Write {
        /// The file's number.
        file: u32,
        /// Its sectors.
        sectors: Range<u64>,
        /// O_DSYNC: durable when it is acknowledged.
        dsync: bool,
        /// All of them held data before, so no metadata changes except times.
        in_place: bool,
    },
    /// Write this many sectors at the end of a file, wherever the end is then.
    Append {
        /// The file's number.
        file: u32,
        /// How many sectors.
        sectors: u64,
        /// As in a write.
        dsync: bool,
    },
    /// fsync or fdatasync: data of the file that was acknowledged before the sync began is durable when the sync is acknowledged.
    Sync {
        /// The file's number.
        file: u32,
    },
    /// Change a file that no other request changes at the same time.
    Change {
        /// The file's number.
        file: u32,
        /// The change.
        change: Change,
    },
    /// Edit a file that is written through the page cache and directly, by one request at a time.
    Edit {
        /// The file's number.
        file: u32,
        /// The edit.
        edit: Edit,
    },
    /// Set or clear the flag that sends a file's data through the journal. Its contents do not change.
    Toggle {
        /// The file's number.
        file: u32,
    },
    /// Change the tree of names.
    Names(NameOp),
    /// fsync of a file in that tree: when it is acknowledged, the file's last change is durable, and so are all operations on names
    /// that were acknowledged before that change.
    SyncName(String),
    /// Sync the volume: has the effect of a sync of every file.
    SyncAll,
    /// Close the volume: the same effect.
    Close,
}

/// How many failed actions are listed.
const MOST_TOLD: usize = 10;

/// An event of a workload. Actions are numbered from 1 in the order in which they begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// An action is about to begin.
    Begun(What),
    /// The append with this number went to this sector; its acknowledgement follows.
    Placed(u32, u64),
    /// The action with this number was acknowledged.
    Acked(u32),
    /// The action with this number failed with this error.
    Failed(u32, String),
}

/// How a workload uses a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Usage {
    /// Many writes are in flight at the same time.
    Together,
    /// One change of any kind at a time.
    Alone,
    /// One change at a time, and the file does not exist at the beginning.
    New,
    /// One edit at a time, mostly through the page cache.
    Cached,
}

/// A file as it is at the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Its path in the image.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Sectors with stamps of write 0; the others are holes or unwritten.
    pub data: Vec<Range<u64>>,
    /// How the workload uses it.
    pub usage: Usage,
}

impl Start {
    /// True if this sector holds a stamp at the beginning.
    #[must_use]
    pub fn has_data(&self, sector: u64) -> bool {
        self.data.iter().any(|run| run.contains(&sector))
    }
}

/// An action with its positions in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// What was requested.
    pub what: What,
    /// The first sector of an append.
    pub place: Option<u64>,
    /// The log's length when the action began.
    pub begun: usize,
    /// The log's length when it was acknowledged.
    pub acked: Option<usize>,
    /// The log's length when its effect became durable.
    pub durable: Option<usize>,
}

impl Action {
    /// The file whose contents the action changes.
    #[must_use]
    pub fn changes(&self) -> Option<u32> {
        match self.what {
            What::Write { file, .. }
            | What::Append { file, .. }
            | What::Change { file, .. }
            | What::Edit { file, .. } => Some(file),
            What::Sync { .. }
            | What::Toggle { .. }
            | What::Names(_)
            | What::SyncName(_)
            | What::SyncAll
            | What::Close => None,
        }
    }

    /// The sectors that the action writes, if they are known.
    #[must_use]
    pub fn sectors(&self) -> Option<Range<u64>> {
        match &self.what {
            What::Write { sectors, .. } => Some(sectors.clone()),
            What::Append { sectors, .. } => self.place.map(|at| at..at + sectors),
            What::Change { .. }
            | What::Edit { .. }
            | What::Sync { .. }
            | What::Toggle { .. }
            | What::Names(_)
            | What::SyncName(_)
            | What::SyncAll
            | What::Close => None,
        }
    }

    /// The end, in bytes, of the sectors that it writes: the file's size is at least this afterwards.
    #[must_use]
    pub fn reaches(&self) -> Option<u64> {
        self.sectors().map(|s| s.end * SECTOR as u64)
    }
}

/// The actions of a workload. See the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    pub(crate) files: Vec<Start>,
    pub(crate) actions: Vec<Action>,
    /// The errors of failed actions; at most [`MOST_TOLD`] of them.
    failed: Vec<String>,
}

impl History {
    /// A history of these files without actions.
    #[must_use]
    pub fn new(files: Vec<Start>) -> Self {
        Self {
            files,
            actions: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// The number that the next action will have.
    #[must_use]
    pub fn next(&self) -> u32 {
        u32::try_from(self.actions.len() + 1).expect("a workload is shorter than 2^32 actions")
    }

    /// All findings of a state: those of the judges, requests that failed although the device below works, and appends at
    /// overlapping positions.
    #[must_use]
    pub fn findings(&self, verdict: &Verdict) -> Vec<String> {
        let clash = self.clash();
        let failed = self.failed.iter().cloned();
        let found = match verdict {
            Verdict::Wrong(found) => &found[..],
            Verdict::Well | Verdict::Lost => &[],
        };
        found.iter().cloned().chain(failed).chain(clash).collect()
    }

    /// Two appends that wrote the same sectors, in words.
    fn clash(&self) -> Option<String> {
        let appends = (1..).zip(&self.actions);
        let mut appends: Vec<(u32, Option<u32>, Range<u64>)> = appends
            .filter(|(_, a)| matches!(a.what, What::Append { .. }))
            .filter_map(|(n, a): (u32, _)| a.sectors().map(|s| (n, a.changes(), s)))
            .collect();
        appends.sort_by_key(|(_, file, sectors)| (*file, sectors.start));
        let two = appends
            .windows(2)
            .find(|w| w[0].1 == w[1].1 && w[0].2.end > w[1].2.start)?;
        Some(format!("appends {} and {} overlap", two[0].0, two[1].0))
    }

    /// The number of actions that have begun.
    #[must_use]
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// True if no action has begun.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// The actions that had begun when the log had `at` events, with their numbers.
    pub(crate) fn begun(&self, at: usize) -> impl Iterator<Item = (u32, &Action)> {
        let numbered = (1..).zip(&self.actions);
        numbered.filter(move |(_, action)| action.begun < at)
    }

    /// True if data of this file may have gone through the journal because of its own flag, when the log had `at` events.
    pub(crate) fn toggled(&self, file: u32, at: usize) -> bool {
        let mut begun = self.begun(at);
        begun.any(|(_, a)| a.what == What::Toggle { file })
    }

    /// Records a note at position `mark` of the log. Positions must not decrease. A number that no action has is ignored.
    pub fn note(&mut self, note: &Note, mark: usize) {
        match note {
            Note::Begun(what) => self.actions.push(Action {
                what: what.clone(),
                place: None,
                begun: mark,
                acked: None,
                durable: None,
            }),
            Note::Placed(number, sector) => {
                if let Some(action) = self.action(*number) {
                    action.place = Some(*sector);
                }
            }
            Note::Acked(number) => self.acked(*number, mark),
            Note::Failed(number, error) if self.failed.len() < MOST_TOLD => {
                let what = self.action(*number).map(|action| &action.what);
                let told = format!("action {number} failed: {what:?}: {error}");
                self.failed.push(told);
            }
            Note::Failed(..) => {}
        }
    }

    fn action(&mut self, number: u32) -> Option<&mut Action> {
        self.actions.get_mut((number as usize).wrapping_sub(1))
    }

    fn acked(&mut self, number: u32, mark: usize) {
        let Some(action) = self.action(number) else {
            return;
        };
        action.acked = Some(mark);
        let begun = action.begun;
        match action.what.clone() {
            What::Write { dsync, .. } | What::Append { dsync, .. } => {
                if let Some(action) = self.action(number).filter(|_| dsync) {
                    action.durable = Some(mark);
                }
            }
            What::Edit { edit, .. } => {
                if let Some(action) = self.action(number).filter(|_| edit.is_durable()) {
                    action.durable = Some(mark);
                }
            }
            What::Sync { file } => self.durable(begun, mark, |of| of == file),
            What::SyncAll | What::Close => {
                self.durable(begun, mark, |_| true);
                self.names_durable(mark, |a| a.acked.is_some_and(|acked| acked < begun));
            }
            What::SyncName(path) => {
                let of_file = |a: &Action| {
                    matches!(&a.what, What::Names(op) if op.concerns(&path))
                        && a.acked.is_some_and(|acked| acked < begun)
                };
                let last = self.actions.iter().rposition(of_file);
                let last = last.and_then(|at| self.actions[at].acked);
                self.names_durable(mark, |a| a.acked.is_some_and(|acked| Some(acked) <= last));
            }
            What::Change { .. } | What::Toggle { .. } | What::Names(_) => {}
        }
    }

    /// Data of these files that was acknowledged before `begun` is durable from `mark` on.
    fn durable(&mut self, begun: usize, mark: usize, of: impl Fn(u32) -> bool) {
        for action in &mut self.actions {
            let concerned = action.changes().is_some_and(&of);
            if concerned && action.acked.is_some_and(|acked| acked < begun) {
                action.durable.get_or_insert(mark);
            }
        }
    }

    /// These operations on names are durable from `mark` on.
    fn names_durable(&mut self, mark: usize, which: impl Fn(&Action) -> bool) {
        let names = |a: &&mut Action| matches!(a.what, What::Names(_));
        let all = self.actions.iter_mut().filter(names);
        all.filter(|a| which(a)).for_each(|action| {
            action.durable.get_or_insert(mark);
        });
    }

    /// After a kill nothing loses power: overwrites of data that were acknowledged are there, except those that waited for a commit
    /// because their file's data may go through the journal.
    pub fn keeps_what_was_acked(&mut self) {
        let toggled = |a: &Action| match a.what {
            What::Toggle { file } => Some(file),
            _ => None,
        };
        let waiting: BTreeSet<u32> = self.actions.iter().filter_map(toggled).collect();
        for action in &mut self.actions {
            if matches!(action.what, What::Write { in_place: true, file, .. } if !waiting.contains(&file))
            {
                action.durable = action.acked;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(dsync: bool) -> Note {
        Note::Begun(What::Append {
            file: 0,
            sectors: 3,
            dsync,
        })
    }

    #[test]
    fn an_append_is_where_it_was_placed() {
        let mut history = History::new(Vec::new());
        for (mark, note) in [append(false), Note::Placed(1, 7), Note::Acked(1)]
            .iter()
            .enumerate()
        {
            history.note(note, mark);
        }
        let action = &history.actions[0];
        assert_eq!(
            (action.sectors(), action.reaches()),
            (Some(7..10), Some(5120))
        );
        assert_eq!((action.acked, action.durable), (Some(2), None));
    }

    #[test]
    fn requests_that_fail_are_a_finding() {
        let mut history = History::new(Vec::new());
        history.note(&append(true), 0);
        history.note(&Note::Failed(1, "no space".to_owned()), 1);
        let found = history.findings(&Verdict::Well);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("action 1 failed: Some(Append"));
        assert!(found[0].ends_with(": no space"), "{}", found[0]);
    }

    #[test]
    fn a_kill_loses_no_data_that_went_where_data_was() {
        let write = |in_place| {
            Note::Begun(What::Write {
                file: 0,
                sectors: 0..1,
                dsync: false,
                in_place,
            })
        };
        let mut history = History::new(Vec::new());
        let notes = [write(true), Note::Acked(1), write(false), Note::Acked(2)];
        for (mark, note) in notes.iter().enumerate() {
            history.note(note, mark);
        }
        history.keeps_what_was_acked();
        let durable: Vec<_> = history.actions.iter().map(|a| a.durable).collect();
        assert_eq!(durable, [Some(1), None]);
        let mut history = History::new(Vec::new());
        let notes = [
            write(true),
            Note::Acked(1),
            Note::Begun(What::Toggle { file: 0 }),
        ];
        for (mark, note) in notes.iter().enumerate() {
            history.note(note, mark);
        }
        assert!(!history.toggled(0, 2) && history.toggled(0, 3) && !history.toggled(1, 3));
        history.keeps_what_was_acked();
        assert_eq!(history.actions[0].durable, None);
    }
}
