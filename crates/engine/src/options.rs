//! How volumes and files are to be opened.
//!
//! Input: a caller's wishes. Output: [`OpenOptions`], [`OpenFlags`] and what is in them. Invariants: the defaults change nothing of an
//! image. Limits: plain values.

use crate::caller::Caller;
use crate::policy::Policy;
use diorite_block::{Device, IoEngine};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Time since 1970. Comes in from outside, so that a simulation can own it.
pub type Clock = fn() -> Duration;

/// The host's clock as its own file systems use it: it moves with the timer tick, so that many writes in a row leave one time behind,
/// and an fsync after the second finds nothing to commit.
fn system_clock() -> Duration {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    // Before 1970 is no time that a file can have been written.
    Duration::try_from(now).unwrap_or_default()
}

/// When reading a file's data, a directory's names or a link's target changes its time of access; a path that leads through a directory
/// only does not read it. Whatever it is, nothing waits for that: the time goes with the next commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Never: looking into an image leaves it as it is.
    #[default]
    Never,
    /// When it is not later than the last change, or a day old (relatime).
    Relative,
    /// Always (strictatime).
    Always,
}

/// A device that holds nothing but the journal of a volume.
#[derive(Clone)]
pub struct JournalDevice(pub Arc<dyn Device>);

impl fmt::Debug for JournalDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JournalDevice")
            .field(&self.0.name())
            .finish()
    }
}

/// How a volume is to be opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// File data may be overwritten.
    pub write: bool,
    /// Only this I/O engine below.
    pub io_engine: Option<IoEngine>,
    /// Open for writing although somebody else has the image open. Risk: two writers destroy the volume.
    pub force: bool,
    /// The locator of the device with the journal, for a volume whose journal is not inside it.
    pub journal: Option<String>,
    /// The device with the journal itself, where the caller has it; then `journal` is not looked at.
    pub journal_device: Option<JournalDevice>,
    /// All file data goes through the journal (data=journal), or only that of files with the flag. None: as the superblock says.
    pub data_journal: Option<bool>,
    /// Where the volume is going to be seen, for "last mounted on" in its superblock. None: that stays as it is.
    pub mounted_on: Option<String>,
    /// The policy to begin with.
    pub policy: Policy,
    /// Worker threads per class, one or more.
    pub workers: u32,
    /// Bytes of metadata blocks kept in memory.
    pub metadata_cache: usize,
    /// Bytes of extent maps kept in memory.
    pub map_cache: usize,
    /// Changes of metadata are committed when they are this old, if nobody asks before.
    pub commit_interval: Duration,
    /// What reading does to times, in a volume that is open for writing; never of inodes with the flag for that.
    pub access_times: AccessTimes,
    /// User and group of what is created; for others see [`crate::Volume::with_owner`].
    pub owner: (u32, u32),
    /// Who may use the blocks that are kept for root, if anybody may.
    pub caller: Caller,
    /// The time that is written into inodes and superblocks.
    pub clock: Clock,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            write: false,
            io_engine: None,
            force: false,
            journal: None,
            journal_device: None,
            data_journal: None,
            mounted_on: None,
            policy: Policy::DIORITE,
            workers: 4,
            metadata_cache: 16 << 20,
            map_cache: 32 << 20,
            commit_interval: Duration::from_secs(5),
            access_times: AccessTimes::default(),
            owner: (0, 0),
            caller: Caller::of_process(),
            clock: system_clock,
        }
    }
}

impl OpenOptions {
    /// Is a journal outside the volume named?
    pub(crate) fn names_journal(&self) -> bool {
        self.journal.is_some() || self.journal_device.is_some()
    }

    /// The defaults, for writing.
    #[must_use]
    pub fn writable() -> OpenOptions {
        OpenOptions {
            write: true,
            ..OpenOptions::default()
        }
    }
}

/// How a file is to be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// Data may be written.
    pub write: bool,
    /// Every write is durable when it is acknowledged, with what is needed to read it back (O_DSYNC).
    pub dsync: bool,
    /// As `dsync`, with the times too (O_SYNC).
    pub sync: bool,
}
