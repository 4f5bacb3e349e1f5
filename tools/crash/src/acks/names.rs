//! What it is: names that threads make, move, link and remove, and what the directories may show after a cut. Input: what each thread
//! asked for, one after the other, in slots of its own. Output: findings. The one rule: what a thread's slots show is what they showed
//! after some number of its changes; of those no fewer than were promised to be durable, no more than were asked for. Limits: files only;
//! a thread never touches another's slots.

use super::history::{History, Of, Promise};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Directories.
pub const DIRS: u32 = 2;
/// The directory with the flag D.
pub const SYNC_DIR: u32 = 1;
/// Slots of a thread in each directory.
pub const SLOTS: u32 = 3;

/// A name: a thread's slot in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot {
    /// The directory.
    pub dir: u32,
    /// The thread.
    pub thread: u32,
    /// Which of its slots.
    pub slot: u32,
}

impl Slot {
    /// Where it is.
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
    /// A new file.
    Create(Slot, u32),
    /// A name is gone.
    Unlink(Slot),
    /// A file has another name, which may have been there.
    Rename(Slot, Slot),
    /// A file has one more name.
    Link(Slot, Slot),
}

/// A change, and when.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Named {
    /// Whose.
    pub thread: u32,
    /// What.
    pub change: Change,
    /// A directory of it is synchronous.
    pub promised: bool,
    /// When it was asked for.
    pub asked: usize,
    /// When it was acknowledged.
    pub acked: Option<usize>,
}

/// What a thread's slots stand for: numbers of files.
pub type Shown = BTreeMap<Slot, u32>;

impl Change {
    /// Does it.
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

    /// Is it durable when it is acknowledged?
    #[must_use]
    pub fn is_promised(self) -> bool {
        let dirs = match self {
            Change::Create(slot, _) | Change::Unlink(slot) => [slot.dir; 2],
            Change::Rename(from, to) => [from.dir, to.dir],
            Change::Link(_, to) => [to.dir; 2],
        };
        dirs.contains(&SYNC_DIR)
    }

    /// Whatever makes it durable when it is synced.
    fn covered_by(self) -> Vec<Of> {
        match self {
            // Its own sync will do, too.
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

/// What is wrong with what a thread's slots show.
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
