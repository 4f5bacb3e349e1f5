//! What it is: names that threads create, rename, link and remove, and what the directories may show after a cut.
//! Input: what each thread requested, one change after the other, in slots of its own. Output: findings.
//! The rule: a thread's slots show the result of a prefix of its changes. The prefix includes at least the changes that were
//! promised to be durable, and at most those that were requested. Limits: files only; a thread never changes another's slots.

use super::history::{History, Of, Promise};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The number of directories.
pub const DIRS: u32 = 2;
/// The directory with the flag D (synchronous changes).
pub const SYNC_DIR: u32 = 1;
/// The slots of each thread in each directory.
pub const SLOTS: u32 = 3;

/// A name: a thread's slot in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot {
    /// The directory's number.
    pub dir: u32,
    /// The thread's number.
    pub thread: u32,
    /// The slot's number.
    pub slot: u32,
}

impl Slot {
    /// The path of the name.
    #[must_use]
    pub fn path(self) -> String {
        format!("{}/t{}-{}", dir_path(self.dir), self.thread, self.slot)
    }
}

/// A directory's path.
#[must_use]
pub fn dir_path(dir: u32) -> String {
    format!("/dir-{dir}")
}

/// A change of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Create a file with this number.
    Create(Slot, u32),
    /// Remove a name.
    Unlink(Slot),
    /// Rename a file; the new name is replaced if it exists.
    Rename(Slot, Slot),
    /// Link a file to one more name.
    Link(Slot, Slot),
}

/// A change with its positions in the log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Named {
    /// The thread that made it.
    pub thread: u32,
    /// The change.
    pub change: Change,
    /// One of its directories is synchronous.
    pub promised: bool,
    /// When it was requested.
    pub asked: usize,
    /// When it was acknowledged.
    pub acked: Option<usize>,
}

/// The file numbers that a thread's slots refer to.
pub type Shown = BTreeMap<Slot, u32>;

impl Change {
    /// Applies the change.
    pub fn apply(self, shown: &mut Shown) {
        match self {
            Change::Create(slot, file) => {
                shown.insert(slot, file);
            }
            Change::Unlink(slot) => {
                shown.remove(&slot);
            }
            Change::Rename(from, to) => {
                if let Some(file) = shown.remove(&from) {
                    shown.insert(to, file);
                }
            }
            Change::Link(from, to) => {
                if let Some(file) = shown.get(&from).copied() {
                    shown.insert(to, file);
                }
            }
        }
    }

    /// True if the change is durable when it is acknowledged.
    #[must_use]
    pub fn is_promised(self) -> bool {
        let dirs = match self {
            Change::Create(slot, _) | Change::Unlink(slot) => [slot.dir; 2],
            Change::Rename(from, to) => [from.dir, to.dir],
            Change::Link(_, to) => [to.dir; 2],
        };
        dirs.contains(&SYNC_DIR)
    }

    /// The objects whose sync makes the change durable.
    fn covered_by(self) -> Vec<Of> {
        match self {
            // A sync of the new file covers its name, too.
            Change::Create(slot, file) => vec![Of::Dir(slot.dir), Of::File(file)],
            Change::Unlink(slot) => vec![Of::Dir(slot.dir)],
            Change::Rename(from, to) => vec![Of::Dir(from.dir), Of::Dir(to.dir)],
            Change::Link(_, to) => vec![Of::Dir(to.dir)],
        }
    }
}

impl Named {
    fn is_durable(&self, history: &History, cut: usize) -> bool {
        let Some(acked) = self.acked.filter(|acked| *acked < cut) else {
            return false;
        };
        let of = self.change.covered_by();
        self.promised || history.is_synced(&of, acked, Promise::Data, cut)
    }
}

/// What is wrong with a thread's slots after the cut; none if nothing is.
#[must_use]
pub fn judge(
    (history, named): (&History, &[Named]),
    thread: u32,
    shown: &Shown,
    cut: usize,
) -> Option<String> {
    let own: Vec<&Named> = named.iter().filter(|n| n.thread == thread).collect();
    let least = own.iter().rposition(|n| n.is_durable(history, cut));
    let least = least.map_or(0, |last| last + 1);
    let asked = own.iter().filter(|n| n.asked < cut).count();
    let mut state = Shown::new();
    let mut early = None;
    for number in 0..=asked {
        if state == *shown {
            if number >= least {
                return None;
            }
            early = Some(number);
        }
        if let Some(next) = own.get(number) {
            next.change.apply(&mut state);
        }
    }
    Some(match early {
        Some(number) => format!(
            "names of thread {thread}: as after {number} of its changes, where {least} were promised ({:?} is lost); they are {shown:?}",
            own[number].change
        ),
        None => format!(
            "names of thread {thread}: {shown:?}, as after none of its {asked} changes ({least} of them promised)"
        ),
    })
}

#[cfg(test)]
mod tests;
