//! A volume's condition after failures: its journal was aborted, or damage was met while metadata was being changed.
//!
//! Input: errors, from any thread, which may hold any lock that ranks before the lock class `failure`. Output: the volume's
//! [`Condition`], which is looked at once per batch of requests; a record of the failure for the next open and for e2fsck. Invariants: a
//! condition only gets worse; the first error is the one that is reported; the superblock's `errors=` (man 8 tune2fs) decides what happens
//! after damage, but an aborted journal always ends all changes. Limits: writing the record is best effort, by a thread that holds no
//! lock: the keeper, or the one that closes the volume.

use super::Disk;
use crate::error::Error;
use crate::locks::FAILURE;
use diorite_block::BioErrorKind;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicU32, Ordering};
use diorite_format::superblock::ErrorRecord;
use std::sync::OnceLock;

/// Whether the volume can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Open,
    /// Something failed: the volume can only be read.
    ReadOnly,
    /// Closed by its user; or by a failure, with `errors=panic`.
    Closed,
}

/// `s_errors`: continue. Any value but this and [`PANIC`] means read-only.
const CONTINUE: u16 = 1;
/// `s_errors`: panic, which here means that no more requests are taken.
const PANIC: u16 = 3;

/// See the module.
#[derive(Debug)]
pub(crate) struct Health {
    condition: AtomicU32,
    /// The error after which nothing may be changed any more.
    first: OnceLock<Error>,
    /// A record that has yet to be written into the superblock.
    due: Mutex<Option<ErrorRecord>>,
}

impl Health {
    pub(crate) fn new(level: u8) -> Health {
        Health {
            condition: AtomicU32::new(Condition::Open as u32),
            first: OnceLock::new(),
            due: Mutex::at_level(&FAILURE, level, None),
        }
    }

    fn worsen(&self, to: Condition) {
        self.condition.fetch_max(to as u32, Ordering::SeqCst);
    }
}

impl Disk {
    #[inline]
    pub(crate) fn condition(&self) -> Condition {
        match self.health.condition.load(Ordering::SeqCst) {
            0 => Condition::Open,
            1 => Condition::ReadOnly,
            _ => Condition::Closed,
        }
    }

    /// Refuses new requests from now on.
    pub(crate) fn shut_down(&self) {
        self.health.worsen(Condition::Closed);
    }

    /// Checks that no failure has made the volume read-only.
    pub(crate) fn check_sound(&self) -> Result<(), Error> {
        match self.health.first.get() {
            None => Ok(()),
            Some(_) if self.condition() == Condition::Closed => Err(Error::ShutDown),
            Some(error) => Err(Error::Aborted(Box::new(error.clone()))),
        }
    }

    /// Notes an error after which nothing may be changed any more.
    pub(crate) fn note_abort(&self, error: &Error) {
        if self.health.first.set(error.clone()).is_ok() {
            self.note_due(error);
        }
        let closes = self.sb.info().errors_behavior == PANIC;
        self.health.worsen(if closes {
            Condition::Closed
        } else {
            Condition::ReadOnly
        });
    }

    /// Does the superblock say to go on after damage was met (`errors=continue`)?
    pub(crate) fn goes_on_after_damage(&self) -> bool {
        self.sb.info().errors_behavior == CONTINUE
    }

    /// Notes a failure for the next open and for e2fsck, unless one is noted already.
    pub(crate) fn note_due(&self, error: &Error) {
        let record = self.record_of(error);
        self.health.due.lock().get_or_insert(record);
    }

    pub(crate) fn owes_record(&self) -> bool {
        self.health.due.lock().is_some()
    }

    /// Takes the record that has yet to be written into the superblock, if there is one.
    pub(crate) fn take_record(&self) -> Option<ErrorRecord> {
        self.health.due.lock().take()
    }

    fn record_of(&self, error: &Error) -> ErrorRecord {
        let (ino, block) = match error.root() {
            Error::BadMap(bad) => (bad.ino.get(), bad.at.get()),
            Error::Device { pos, .. } => (0, pos / u64::from(self.block_size())),
            _ => (0, 0),
        };
        ErrorRecord {
            time: self.now_seconds(),
            ino,
            block,
            function: "diorite".to_owned(),
            line: 0,
            code: Code::of(error).in_superblock(),
        }
    }
}

/// The kinds of failure that the disk format tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Io,
    Corrupted,
    NoSpace,
}

impl Code {
    pub(crate) fn of(error: &Error) -> Code {
        match error.root() {
            Error::DeviceFull(_) => Code::NoSpace,
            Error::Device { error, .. } if error.kind == BioErrorKind::NoSpace => Code::NoSpace,
            _ if error.is_corrupt() => Code::Corrupted,
            _ => Code::Io,
        }
    }

    /// The code in the superblock's `s_last_error_errcode`.
    fn in_superblock(self) -> u8 {
        match self {
            Code::Io => 2,
            Code::Corrupted => 5,
            Code::NoSpace => 6,
        }
    }

    /// The code in the journal superblock's `s_errno`: Linux's errno, negated.
    pub(crate) fn in_journal(self) -> i32 {
        match self {
            Code::Io => -5,
            Code::Corrupted => -117,
            Code::NoSpace => -28,
        }
    }
}
