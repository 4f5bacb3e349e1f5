//! The words of `-o`: those of mount(8), ext4(5), fuse2fs(1) and mount.fuse3(8).
//!
//! Input: lists of words, separated by commas. Output: [`MountOptions`]. Invariants: a word that is not known is an error; of words that
//! contradict each other the last one counts. Limits: options of the kernel's ext4 that concern its own caches and its mount time are
//! accepted and have no effect: see [`IGNORED`].

use super::{MountOptions, Times};
use rustix::mount::MountFlags;
use std::time::Duration;

/// Flags of a mount, and whether the word sets or clears them.
pub(super) const FLAGS: [(&str, MountFlags, bool); 14] = [
    ("ro", MountFlags::RDONLY, true),
    ("rw", MountFlags::RDONLY, false),
    ("nosuid", MountFlags::NOSUID, true),
    ("suid", MountFlags::NOSUID, false),
    ("nodev", MountFlags::NODEV, true),
    ("dev", MountFlags::NODEV, false),
    ("noexec", MountFlags::NOEXEC, true),
    ("exec", MountFlags::NOEXEC, false),
    ("nosymfollow", MountFlags::NOSYMFOLLOW, true),
    ("symfollow", MountFlags::NOSYMFOLLOW, false),
    ("sync", MountFlags::SYNCHRONOUS, true),
    ("async", MountFlags::SYNCHRONOUS, false),
    ("dirsync", MountFlags::DIRSYNC, true),
    ("silent", MountFlags::empty(), true),
];

/// Words without an effect: they choose between caches and algorithms of the kernel's ext4, say what is the default here, or are for
/// mount(8) itself.
pub const IGNORED: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "nouser",
    "noquota",
    "mand",
    "nomand",
    "debug",
    "orlov",
    "oldalloc",
    "nombcache",
    "no_mbcache",
    "prefetch_block_bitmaps",
    "nobarrier",
    "barrier=0",
    "_netdev",
    "loud",
    "loop",
    "barrier",
    "barrier=1",
    "delalloc",
    "nodelalloc",
    "journal_checksum",
    "nojournal_checksum",
    "auto_da_alloc",
    "noauto_da_alloc",
    "block_validity",
    "noblock_validity",
    "dioread_nolock",
    "dioread_lock",
    "i_version",
    "iversion",
    "nomblk_io_submit",
    "init_itable",
    "noinit_itable",
    "no_prefetch_block_bitmaps",
    "kernel_cache",
    "auto_cache",
    "clone_fd",
    "big_writes",
    "hard_remove",
    "norecovery_check",
];

/// An option that is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// No such option.
    #[error("unknown mount option '{0}'")]
    Unknown(String),
    /// The value makes no sense.
    #[error("mount option '{0}': {1}")]
    Value(String, &'static str),
}

impl MountOptions {
    /// Adds a list of words, separated by commas. A comma behind a backslash is part of a word.
    ///
    /// # Errors
    /// A word is not known, or its value makes no sense.
    pub fn add(&mut self, list: &str) -> Result<(), OptionError> {
        self.add_words(list, false)
    }

    /// As [`MountOptions::add`], but words that are not known are passed over (`mount -s`).
    ///
    /// # Errors
    /// A value makes no sense.
    pub fn add_sloppily(&mut self, list: &str) -> Result<(), OptionError> {
        self.add_words(list, true)
    }

    fn add_words(&mut self, list: &str, sloppily: bool) -> Result<(), OptionError> {
        for word in words(list).iter().filter(|word| !word.is_empty()) {
            match self.add_word(word) {
                Err(OptionError::Unknown(_)) if sloppily => {}
                added => added?,
            }
        }
        Ok(())
    }

    /// Would a remount with this word change what is fixed while the mount lasts?
    #[must_use]
    pub fn is_changed_by(&self, word: &str) -> bool {
        const FIXED: MountFlags = MountFlags::SYNCHRONOUS.union(MountFlags::DIRSYNC);
        let mut then = self.clone();
        if then.add_word(word).is_err() || (then.flags ^ self.flags).intersects(FIXED) {
            return true;
        }
        let then = MountOptions {
            flags: self.flags,
            named_flags: self.named_flags,
            is_said_writable: self.is_said_writable,
            fixed: self.fixed.clone(),
            ..then
        };
        then != *self
    }

    fn add_word(&mut self, word: &str) -> Result<(), OptionError> {
        if let Some((_, flag, is_set)) = FLAGS.iter().find(|(name, ..)| *name == word) {
            self.flags.set(*flag, *is_set);
            self.named_flags |= *flag;
            if flag.intersects(MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC) {
                self.fixed.push(word.to_owned());
            }
            if *flag == MountFlags::RDONLY {
                self.is_said_writable = !is_set;
            }
            return Ok(());
        }
        let is_private =
            word.starts_with("x-") || word.starts_with("X-") || word.starts_with("comment=");
        if is_private || IGNORED.contains(&word) {
            return Ok(());
        }
        // mount(8) repeats what the mount table has.
        const REPEATED: [&str; 6] = [
            "remount",
            "relatime",
            "default_permissions",
            "allow_other",
            "user_id",
            "group_id",
        ];
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        if !REPEATED.contains(&name) {
            self.fixed.push(word.to_owned());
        }
        match word.split_once('=') {
            None => self.add_switch(word),
            Some((name, value)) => self.add_value(word, name, value),
        }
    }

    fn add_switch(&mut self, word: &str) -> Result<(), OptionError> {
        const FOR_USERS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
        match word {
            // Who may mount it is mount(8)'s part; what that implies is done here, too.
            "user" | "users" => self.flags |= FOR_USERS | MountFlags::NOEXEC,
            "owner" | "group" => self.flags |= FOR_USERS,
            "remount" => self.remount = true,
            "noatime" => self.times = Times::Never,
            "atime" | "relatime" | "norelatime" => self.times = Times::Relative,
            "strictatime" => self.times = Times::Always,
            "nostrictatime" => self.times = Times::Relative,
            "nodiratime" => self.nodiratime = true,
            "diratime" => self.nodiratime = false,
            "lazytime" => self.lazytime = true,
            "nolazytime" => self.lazytime = false,
            "allow_other" => self.allow_other = Some(true),
            "default_permissions" => self.default_permissions = Some(true),
            "fakeroot" => self.fakeroot = true,
            // fuse2fs: as the kernel's ext4.
            "kernel" => {
                self.allow_other = Some(true);
                self.default_permissions = Some(true);
                self.flags -= MountFlags::NOSUID | MountFlags::NODEV;
            }
            "user_xattr" => self.user_xattr = true,
            "nouser_xattr" => self.user_xattr = false,
            "acl" => self.acl = true,
            "noacl" => self.acl = false,
            "grpid" | "bsdgroups" => self.grpid = Some(true),
            "nogrpid" | "sysvgroups" => self.grpid = Some(false),
            "minixdf" => self.minixdf = true,
            "bsddf" => self.minixdf = false,
            "writeback_cache" => self.writeback_cache = true,
            "nowriteback_cache" => self.writeback_cache = false,
            "direct_io" => self.direct_io = true,
            "io_uring" => self.io_uring = true,
            "noio_uring" => self.io_uring = false,
            "busy_poll" => self.busy_poll = true,
            "nobusy_poll" => self.busy_poll = false,
            "norecovery" | "noload" => self.recovers = false,
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            _ => return Err(OptionError::Unknown(word.to_owned())),
        }
        Ok(())
    }

    fn add_value(&mut self, word: &str, name: &str, value: &str) -> Result<(), OptionError> {
        let wrong = |why| OptionError::Value(word.to_owned(), why);
        let number = || value.parse().map_err(|_| wrong("not a number"));
        match (name, value) {
            ("offset", _) => {
                let bytes = value.parse().map_err(|_| wrong("not a number of bytes"));
                self.offset = Some(bytes?);
            }
            ("subtype" | "fsname", "") => return Err(wrong("it is empty")),
            ("fsname", _) => self.source = value.as_bytes().to_vec(),
            ("subtype", _) => {
                let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-+".contains(&b);
                if !value.bytes().all(is_plain) {
                    return Err(wrong("letters, digits, . _ - + are possible"));
                }
                self.subtype = value.to_owned();
            }
            // The largest number stands for nobody at all.
            ("uid" | "gid", "4294967295") => return Err(wrong("not a user or group")),
            ("uid", _) => self.uid = Some(number()?),
            ("gid", _) => self.gid = Some(number()?),
            ("resuid", _) => self.resuid = Some(number()?),
            ("resgid", _) => self.resgid = Some(number()?),
            ("data", "journal") => self.data_journal = Some(true),
            ("data", "ordered" | "writeback") => self.data_journal = Some(false),
            ("data", _) => return Err(wrong("journal, ordered or writeback")),
            // What an error does to a volume here.
            ("errors", "remount-ro") => {}
            ("errors", "continue") => {
                return Err(wrong("damage would spread; remount-ro is possible"));
            }
            ("errors", _) => return Err(wrong("remount-ro is possible")),
            ("commit", _) => {
                let seconds = number()?;
                // As in the kernel: 0 is the default.
                self.commit = (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
            }
            ("max_threads", _) => {
                let threads = value.parse().ok().filter(|n| (1..=256).contains(n));
                self.threads = Some(threads.ok_or_else(|| wrong("1 to 256"))?);
            }
            (
                "user_id" | "group_id" | "max_read" | "max_write" | "max_background"
                | "max_idle_threads",
                _,
            ) => {
                number().map(drop)?;
            }
            (
                "stripe"
                | "inode_readahead_blks"
                | "journal_ioprio"
                | "max_batch_time"
                | "min_batch_time"
                | "init_itable"
                | "mb_optimize_scan",
                _,
            ) => {
                number().map(drop)?;
            }
            _ => return Err(OptionError::Unknown(word.to_owned())),
        }
        Ok(())
    }
}

/// Cuts a list at its commas.
fn words(list: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut letters = list.chars();
    while let Some(letter) = letters.next() {
        let last = all.last_mut().expect("it is never empty");
        match letter {
            '\\' => last.extend(letters.next()),
            ',' => all.push(String::new()),
            letter => last.push(letter),
        }
    }
    all
}
