//! What it is: what was asked, what was acknowledged, and what a file may therefore hold after a power cut.
//! Input: [`Note`]s of a workload, each with its place in the device's log. Output: [`Expect`] for any place.
//! The rule is that of a register: a sector may hold any value whose writer had begun, unless a later value must be there,
//! that is, one that began after the first was acknowledged and is durable itself.
//! Limits: writes that failed may be there in part for ever; one history is of one workload.

use crate::check::Verdict;
use crate::expect::{Expect, FileExpect, Value};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What a workload did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Wrote these sectors of a file, where it held data.
    Overwrite {
        /// The file's number.
        file: u32,
        /// Its sectors.
        sectors: Range<u64>,
        /// O_DSYNC: durable when it is acknowledged.
        dsync: bool,
    },
    /// fsync or fdatasync: what was acknowledged for the file before is durable when this is acknowledged.
    Sync {
        /// The file's number.
        file: u32,
    },
    /// The volume was closed: as a sync of every file.
    Close,
}

/// Something that becomes known while a workload runs. Actions are numbered from 1 in the order in which they begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// An action is about to begin.
    Begun(What),
    /// The action with this number was acknowledged.
    Acked(u32),
    /// The action with this number was answered by an error.
    Failed(u32),
}

/// A file as it was at the beginning: every sector of it stamped with write 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Its path in the image.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
}

/// An action with its places in the log.
#[derive(Debug)]
struct Action {
    what: What,
    begun: usize,
    acked: Option<usize>,
    durable: Option<usize>,
}

/// See the module.
#[derive(Debug)]
pub struct History {
    files: Vec<Start>,
    actions: Vec<Action>,
    failed: usize,
}

impl History {
    /// Nothing has happened to these files yet.
    #[must_use]
    pub fn new(files: Vec<Start>) -> Self {
        Self {
            files,
            actions: Vec::new(),
            failed: 0,
        }
    }

    /// The number that the next action will have.
    #[must_use]
    pub fn next(&self) -> u32 {
        u32::try_from(self.actions.len() + 1).expect("a workload is shorter than 2^32 actions")
    }

    /// What the judges found, and that requests failed although the device below is well.
    #[must_use]
    pub fn findings(&self, verdict: &Verdict) -> Vec<String> {
        let failed = (self.failed > 0).then(|| format!("{} requests failed", self.failed));
        let found = match verdict {
            Verdict::Wrong(found) => &found[..],
            Verdict::Well | Verdict::Lost => &[],
        };
        found.iter().cloned().chain(failed).collect()
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

    /// Takes a note that stands at `mark` of the log. Places only rise. A number that no action has is passed over.
    pub fn note(&mut self, note: &Note, mark: usize) {
        match note {
            Note::Begun(what) => self.actions.push(Action {
                what: what.clone(),
                begun: mark,
                acked: None,
                durable: None,
            }),
            Note::Acked(number) => self.acked(*number, mark),
            Note::Failed(_) => self.failed += 1,
        }
    }

    fn acked(&mut self, number: u32, mark: usize) {
        let index = (number as usize).wrapping_sub(1);
        let Some(action) = self.actions.get_mut(index) else {
            return;
        };
        action.acked = Some(mark);
        let begun = action.begun;
        match action.what {
            What::Overwrite { dsync: true, .. } => action.durable = Some(mark),
            What::Overwrite { .. } => {}
            What::Sync { file } => self.durable(begun, mark, |of| of == file),
            What::Close => self.durable(begun, mark, |_| true),
        }
    }

    /// What was acknowledged before `begun` for these files is durable from `mark` on.
    fn durable(&mut self, begun: usize, mark: usize, of: impl Fn(u32) -> bool) {
        for action in &mut self.actions {
            let What::Overwrite { file, .. } = action.what else {
                continue;
            };
            if of(file) && action.acked.is_some_and(|acked| acked < begun) {
                action.durable.get_or_insert(mark);
            }
        }
    }

    /// A process was killed and nothing lost power: what was acknowledged is there.
    pub fn keeps_what_was_acked(&mut self) {
        for action in &mut self.actions {
            action.durable = action.acked;
        }
    }

    /// What the files may hold when the first `at` events of the log have happened.
    #[must_use]
    pub fn expect(&self, at: usize) -> Expect {
        let files = (0..).zip(&self.files);
        let files = files.map(|(file, start)| self.expect_file(file, start, at));
        Expect {
            files: files.collect(),
        }
    }

    fn expect_file(&self, file: u32, start: &Start, at: usize) -> FileExpect {
        let sectors = start.size.div_ceil(crate::stamp::SECTOR as u64);
        let mut writers: Vec<Vec<u32>> = vec![Vec::new(); usize::try_from(sectors).unwrap_or(0)];
        for (number, action) in (1..).zip(&self.actions) {
            let What::Overwrite {
                file: of,
                ref sectors,
                ..
            } = action.what
            else {
                continue;
            };
            let all = sectors.start as usize..sectors.end as usize;
            if of == file && action.begun < at {
                writers[all].iter_mut().for_each(|w| w.push(number));
            }
        }
        let may_hold = |writers: &Vec<u32>| self.may_hold(writers, at);
        FileExpect {
            path: start.path.clone(),
            size: start.size,
            sectors: writers.iter().map(may_hold).collect(),
        }
    }

    /// The rule of the register, for one sector and the writers of it that had begun.
    fn may_hold(&self, writers: &[u32], at: usize) -> Vec<Value> {
        let action = |number: u32| &self.actions[number as usize - 1];
        // The latest beginning among those that must be there: whoever was acknowledged before it is gone.
        let durable = |n: &&u32| action(**n).durable.is_some_and(|mark| mark < at);
        let latest = writers
            .iter()
            .filter(durable)
            .map(|n| action(*n).begun)
            .max();
        let gone = |acked: Option<usize>| acked.zip(latest).is_some_and(|(a, l)| a < l);
        let first = latest.is_none().then_some(Value::Write(0));
        let later = writers
            .iter()
            .filter(|n| !gone(action(**n).acked))
            .map(|n| Value::Write(*n));
        first.into_iter().chain(later).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dsync: bool) -> Note {
        Note::Begun(What::Overwrite {
            file: 0,
            sectors: 1..3,
            dsync,
        })
    }

    fn history(notes: &[Note]) -> History {
        let mut history = History::new(vec![Start {
            path: "/f".into(),
            size: 2000,
        }]);
        for (mark, note) in notes.iter().enumerate() {
            history.note(note, mark);
        }
        history
    }

    fn sector(history: &History, at: usize) -> Vec<u32> {
        let expect = history.expect(at);
        assert_eq!(expect.files[0].sectors.len(), 4);
        assert_eq!(expect.files[0].sectors[0], [Value::Write(0)]);
        let values = expect.files[0].sectors[2].iter();
        values
            .map(|v| match v {
                Value::Write(n) => *n,
            })
            .collect()
    }

    #[test]
    fn what_is_not_durable_may_be_there() {
        let history = history(&[write(false), Note::Acked(1), write(false)]);
        assert_eq!(sector(&history, 0), [0]);
        assert_eq!(sector(&history, 1), [0, 1]);
        assert_eq!(sector(&history, 2), [0, 1]);
        assert_eq!(sector(&history, 3), [0, 1, 2]);
    }

    #[test]
    fn what_is_durable_replaces_what_was_acknowledged_before_it_began() {
        let sync = Note::Begun(What::Sync { file: 0 });
        let history = history(&[
            write(false),
            Note::Acked(1),
            write(false),
            sync,
            Note::Acked(2),
            Note::Acked(3),
            write(true),
            Note::Acked(4),
        ]);
        assert_eq!(sector(&history, 5), [0, 1, 2]);
        // The second was still in flight when the sync began.
        assert_eq!(sector(&history, 6), [1, 2]);
        assert_eq!(sector(&history, 7), [1, 2, 4]);
        assert_eq!(sector(&history, 8), [4]);
    }

    #[test]
    fn writes_in_flight_together_may_end_in_any_order() {
        let history = history(&[write(true), write(true), Note::Acked(2), Note::Acked(1)]);
        assert_eq!(sector(&history, 4), [1, 2]);
    }

    #[test]
    fn a_failed_write_may_be_there() {
        let history = history(&[
            write(false),
            Note::Failed(1),
            write(true),
            Note::Acked(2),
            write(false),
        ]);
        assert_eq!(sector(&history, 5), [1, 2, 3]);
        assert_eq!(history.findings(&Verdict::Well), ["1 requests failed"]);
    }

    #[test]
    fn a_kill_loses_nothing_that_was_acknowledged() {
        let mut history = history(&[write(false), Note::Acked(1), write(false)]);
        history.keeps_what_was_acked();
        assert_eq!(sector(&history, 9), [1, 2]);
    }
}
