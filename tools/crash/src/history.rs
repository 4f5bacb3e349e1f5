//! What it is: what was asked, what was acknowledged, and what is durable from which place of the device's log on.
//! Input: [`Note`]s of a workload, each with its place in that log. Output: the actions that had begun at a place, for
//! [`crate::expect`].
//! Invariants: actions are numbered from 1 in the order in which they begin; places only rise.
//! Limits: writes that failed may be there in part for ever; one history is of one workload.

use crate::check::Verdict;
use crate::names::NameOp;
use crate::stamp::SECTOR;
use crate::states::Change;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Range;

/// What a workload did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Wrote these sectors of a file, which grows if it ends before them.
    Write {
        /// The file's number.
        file: u32,
        /// Its sectors.
        sectors: Range<u64>,
        /// O_DSYNC: durable when it is acknowledged.
        dsync: bool,
        /// All of them held data, so that nothing but data changes.
        in_place: bool,
    },
    /// Wrote so many sectors behind the end of a file, wherever that is then.
    Append {
        /// The file's number.
        file: u32,
        /// How many sectors.
        sectors: u64,
        /// As of a write.
        dsync: bool,
    },
    /// fsync or fdatasync: what was acknowledged for the file before is durable when this is acknowledged.
    Sync {
        /// The file's number.
        file: u32,
    },
    /// Changed a file that nothing else changes meanwhile.
    Change {
        /// The file's number.
        file: u32,
        /// How.
        change: Change,
    },
    /// Had the data of a file go through the journal from then on, or no longer. Nothing in it changes.
    Toggle {
        /// The file's number.
        file: u32,
    },
    /// Changed the tree of names.
    Names(NameOp),
    /// fsync of a file in that tree: its last change is durable when this is acknowledged, and so is every one before it.
    SyncName(String),
    /// The volume was synced: as a sync of every file.
    SyncAll,
    /// The volume was closed: the same.
    Close,
}

/// How many failed actions are told.
const MOST_TOLD: usize = 10;

/// Something that becomes known while a workload runs. Actions are numbered from 1 in the order in which they begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// An action is about to begin.
    Begun(What),
    /// The append with this number went to this sector; its acknowledgement follows.
    Placed(u32, u64),
    /// The action with this number was acknowledged.
    Acked(u32),
    /// The action with this number was answered by this error.
    Failed(u32, String),
}

/// What a workload does with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Usage {
    /// Many writes in flight together.
    Together,
    /// One change of any kind at a time.
    Alone,
    /// The same, and the file is not there at the beginning.
    New,
}

/// A file as it was at the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Its path in the image.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Sectors that are stamped with write 0; the others are holes, or unwritten.
    pub data: Vec<Range<u64>>,
    /// What is done with it.
    pub usage: Usage,
}

impl Start {
    /// Does this sector hold a stamp?
    #[must_use]
    pub fn has_data(&self, sector: u64) -> bool {
        self.data.iter().any(|run| run.contains(&sector))
    }
}

/// An action with its places in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// See there.
    pub what: What,
    /// Where an append went.
    pub place: Option<u64>,
    /// The log's length when it began.
    pub begun: usize,
    /// And when it was acknowledged.
    pub acked: Option<usize>,
    /// And when what it did became durable.
    pub durable: Option<usize>,
}

impl Action {
    /// The file whose contents it changes.
    #[must_use]
    pub fn changes(&self) -> Option<u32> {
        match self.what {
            What::Write { file, .. } | What::Append { file, .. } | What::Change { file, .. } => {
                Some(file)
            }
            What::Sync { .. }
            | What::Toggle { .. }
            | What::Names(_)
            | What::SyncName(_)
            | What::SyncAll
            | What::Close => None,
        }
    }

    /// The sectors that it writes, if it is known which.
    #[must_use]
    pub fn sectors(&self) -> Option<Range<u64>> {
        match &self.what {
            What::Write { sectors, .. } => Some(sectors.clone()),
            What::Append { sectors, .. } => self.place.map(|at| at..at + sectors),
            What::Change { .. }
            | What::Sync { .. }
            | What::Toggle { .. }
            | What::Names(_)
            | What::SyncName(_)
            | What::SyncAll
            | What::Close => None,
        }
    }

    /// The size, in bytes, that the file has at least when it is done.
    #[must_use]
    pub fn reaches(&self) -> Option<u64> {
        self.sectors().map(|s| s.end * SECTOR as u64)
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    pub(crate) files: Vec<Start>,
    pub(crate) actions: Vec<Action>,
    /// The errors that actions were answered by; the first [`MOST_TOLD`] of them.
    failed: Vec<String>,
}

impl History {
    /// Nothing has happened to these files yet.
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

    /// What the judges found, that requests failed although the device below is well, and that appends got the same place.
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

    /// Two appends that went to the same sectors, in words.
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

    /// Actions begun.
    #[must_use]
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// None?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// The actions that had begun when the log had `at` events, with their numbers.
    pub(crate) fn begun(&self, at: usize) -> impl Iterator<Item = (u32, &Action)> {
        let numbered = (1..).zip(&self.actions);
        numbered.filter(move |(_, action)| action.begun < at)
    }

    /// May data of this file have gone through the journal for its own flag's sake, when the log had `at` events?
    pub(crate) fn toggled(&self, file: u32, at: usize) -> bool {
        let mut begun = self.begun(at);
        begun.any(|(_, a)| a.what == What::Toggle { file })
    }

    /// Takes a note that stands at `mark` of the log. Places only rise. A number that no action has is passed over.
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

    /// What was acknowledged before `begun` for these files is durable from `mark` on.
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

    /// A process was killed and nothing lost power: of data that went where data was, all that was acknowledged is there, unless it waited for a commit.
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
