//! Options with which volumes are opened.
//!
//! Input: a caller's structure. Output: the engine's options. Invariants: zeros are the defaults: for reading, with what the engine
//! chooses. Limits: plain values.

use crate::args::{Grows, check_flags, text_or_none};
use crate::error::Fault;
use diorite::{AccessTimes, OpenOptions, PageCache};
use std::ffi::c_char;
use std::time::Duration;

/// The volume can be changed. Without it nothing is written, not even a journal that has to be replayed: that is done in memory.
pub const DIORITE_OPEN_WRITE: u32 = 1;
/// Open for writing although another process has the image open. Two writers destroy the volume.
pub const DIORITE_OPEN_FORCE: u32 = 2;
/// Do not take into account what the journal holds (norecovery).
pub const DIORITE_OPEN_NO_RECOVERY: u32 = 4;
/// Reading updates access times that are older than the last change, or a day old (relatime). Without it they never change.
pub const DIORITE_OPEN_RELATIME: u32 = 8;
/// Times alone are no reason for a commit (lazytime).
pub const DIORITE_OPEN_LAZYTIME: u32 = 16;

const FLAGS: u32 = DIORITE_OPEN_WRITE
    | DIORITE_OPEN_FORCE
    | DIORITE_OPEN_NO_RECOVERY
    | DIORITE_OPEN_RELATIME
    | DIORITE_OPEN_LAZYTIME;

/// How to open a volume. Set @size by DIORITE_INIT; a field that is zero or NULL has its default. All texts are copied.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Options {
    /// sizeof(struct diorite_open_options).
    pub size: u32,
    /// DIORITE_OPEN_...
    pub flags: u32,
    /// The techniques in use: "diorite" (the default), a kernel's ("linux-6.19"), or one with switches ("diorite/unaligned=exclusive").
    pub policy: *const c_char,
    /// The I/O engine: "io_uring", "aio", "threads"; NULL: the best that the host has.
    pub io_engine: *const c_char,
    /// The locator of the device with the journal, of a volume whose journal is not inside it.
    pub journal: *const c_char,
    /// The path at which the volume will be seen, for "last mounted on" in its superblock; NULL: the field is not changed.
    pub mounted_on: *const c_char,
    /// User and group of what is created.
    pub uid: u32,
    pub gid: u32,
    /// Worker threads of each class; 0: 4.
    pub workers: u32,
    /// Age in milliseconds at which changes of metadata are committed; 0: 5,000.
    pub commit_interval_ms: u32,
    /// Age in milliseconds at which dirty pages are written back; 0: 30,000.
    pub write_back_age_ms: u32,
    /// Zero.
    pub reserved: u32,
    /// Bytes for cached pages of this volume alone; 0: it shares the budget of the process.
    pub page_cache: u64,
    /// Bytes for cached metadata; 0: 16 MiB.
    pub metadata_cache: u64,
}

// SAFETY: repr(C), a u32 first, and zeros are numbers and NULLs.
unsafe impl Grows for Options {}

impl Options {
    /// The engine's options.
    ///
    /// # Safety
    /// The texts are NULL or NUL-terminated.
    pub(crate) unsafe fn of_engine(&self) -> Result<OpenOptions, Fault> {
        check_flags(self.flags, FLAGS, "diorite_open_options.flags")?;
        if self.reserved != 0 {
            return Err(Fault::invalid("diorite_open_options.reserved is not 0"));
        }
        // SAFETY: the caller's promise, for each.
        let (policy, engine, journal, mounted_on) = unsafe {
            (
                text_or_none(self.policy, "the policy")?,
                text_or_none(self.io_engine, "the I/O engine")?,
                text_or_none(self.journal, "the journal's locator")?,
                text_or_none(self.mounted_on, "mounted_on")?,
            )
        };
        let has = |flag| self.flags & flag != 0;
        let mut options = OpenOptions::default()
            .write(has(DIORITE_OPEN_WRITE))
            .force(has(DIORITE_OPEN_FORCE))
            .recover(!has(DIORITE_OPEN_NO_RECOVERY))
            .lazy_times(has(DIORITE_OPEN_LAZYTIME))
            .owner((self.uid, self.gid))
            .journal(journal.map(str::to_owned))
            .mounted_on(mounted_on.map(str::to_owned));
        if has(DIORITE_OPEN_RELATIME) {
            options = options.access_times(AccessTimes::Relative);
        }
        if let Some(policy) = policy {
            let parsed = policy.parse();
            options = options.policy(parsed.map_err(|e| Fault::invalid(format!("{e}")))?);
        }
        if let Some(engine) = engine {
            options = options.io_engine(engine.parse::<diorite::IoEngine>()?);
        }
        if self.workers != 0 {
            options = options.workers(self.workers);
        }
        let age = |ms: u32| Duration::from_millis(u64::from(ms));
        if self.commit_interval_ms != 0 {
            options = options.commit_interval(age(self.commit_interval_ms));
        }
        if self.write_back_age_ms != 0 {
            options = options.write_back_age(age(self.write_back_age_ms));
        }
        if self.page_cache != 0 {
            options = options.page_cache(PageCache::new(self.page_cache));
        }
        if self.metadata_cache != 0 {
            let bytes = usize::try_from(self.metadata_cache);
            options = options.metadata_cache(bytes.unwrap_or(usize::MAX));
        }
        Ok(options)
    }
}
