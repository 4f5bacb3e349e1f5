//! The store: a disk and the journal for its changes.
//!
//! Input: a [`Disk`]; the journal, once its place is known. Output: handles for changes; whether a transaction is durable. Invariants: a
//! volume that is open for writing has a journal, unless that is on an external device that was not named; damage found during a change
//! aborts the journal, or is only recorded in the superblock, as the superblock's `errors=` behaviour says. Limits: calls that may commit
//! take the [`super::CommitHooks`] from above.

use super::Journal;
use crate::disk::Disk;
use crate::error::Error;
use diorite_format::Tid;
use std::ops::Deref;
use std::sync::OnceLock;

/// See the module.
#[derive(Debug)]
pub(crate) struct Store {
    disk: Disk,
    /// The journal, set once changes of metadata are possible.
    journal: OnceLock<Journal>,
}

impl Deref for Store {
    type Target = Disk;

    #[inline]
    fn deref(&self) -> &Disk {
        &self.disk
    }
}

impl Store {
    pub(crate) fn new(disk: Disk) -> Store {
        Store {
            disk,
            journal: OnceLock::new(),
        }
    }

    /// Sets the journal; a volume that is written needs one for everything but overwrites of data.
    pub(crate) fn set_journal(&self, journal: Journal) {
        self.journal.get_or_init(|| journal);
    }

    /// The journal. Fails if the volume's metadata cannot be changed.
    pub(crate) fn journal(&self) -> Result<&Journal, Error> {
        self.check_writable()?;
        self.journal.get().ok_or_else(|| {
            let name = self.name();
            Error::ReadOnly(format!(
                "the journal of {name} is on a device of its own: name it (--journal)"
            ))
        })
    }

    /// The journal, even if it was aborted.
    pub(crate) fn journal_if_any(&self) -> Option<&Journal> {
        self.journal.get()
    }

    /// Is the volume writable for overwrites of data only, because its external journal was not named?
    pub(crate) fn takes_overwrites_alone(&self) -> bool {
        self.journal.get().is_none()
    }

    /// Is a transaction durable as a whole, or not at all?
    pub(crate) fn has_log(&self) -> bool {
        self.journal.get().is_some_and(Journal::has_log)
    }

    /// The newest transaction that is not durable and may have changes.
    pub(crate) fn newest_uncommitted(&self) -> Option<Tid> {
        self.journal.get().and_then(Journal::newest_uncommitted)
    }

    /// Is this transaction durable?
    pub(crate) fn is_committed(&self, tid: Tid) -> bool {
        self.journal.get().is_none_or(|j| j.is_committed(tid))
    }

    /// Is an atomic change open?
    pub(crate) fn has_atomic(&self) -> bool {
        self.journal.get().is_some_and(Journal::has_atomic)
    }

    /// The largest number of credits that one handle should ask for, so that it fits into the journal.
    pub(crate) fn most_credits(&self) -> u32 {
        self.journal.get().map_or(0, Journal::most_credits)
    }

    /// The largest number of credits of a handle that must be one: see [`Journal::most_credits_alone`].
    pub(crate) fn most_credits_alone(&self) -> u32 {
        self.journal.get().map_or(0, Journal::most_credits_alone)
    }

    /// Passes on the result of a step in a change of metadata. Damage is recorded in the superblock, and aborts the journal unless the
    /// superblock says `errors=continue`.
    pub(crate) fn watched<R>(&self, result: Result<R, Error>) -> Result<R, Error> {
        result.inspect_err(|error| {
            if error.is_corrupt() {
                self.note_damage(error);
            }
        })
    }

    #[cold]
    fn note_damage(&self, error: &Error) {
        let Ok(journal) = self.journal() else {
            return;
        };
        if self.goes_on_after_damage() {
            self.note_due(error);
            journal.expect_commit();
        } else {
            journal.abort(self, error);
        }
    }
}
