//! The words of `-o`: those of mount(8), ext4(5), fuse2fs(1) and mount.fuse3(8).
//!
//! Input: lists of words, separated by commas. Output: [`MountOptions`]. Invariants: a word that is not known is an error; of words that
//! contradict each other the last one counts. Limits: options of the kernel's ext4 that concern its own caches and its mount time are
//! accepted and have no effect: see [`IGNORED`].

use rustix::mount::MountFlags;
use std::time::Duration;

/// How to mount, and how to open the volume.
///
/// ```
/// use diorite_fuse::MountOptions;
///
/// let mut options = MountOptions::default();
/// options.add("ro,noatime")?;
/// assert!(options.is_read_only());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Flags of the mount.
    pub flags: MountFlags,
    /// The flags that were named, set or cleared.
    pub named_flags: MountFlags,
    /// The words that a remount can only repeat.
    pub fixed: Vec<String>,
    /// The word `rw` was given.
    pub is_said_writable: bool,
    /// What the mount table names as the source, byte for byte. Empty: the subtype.
    pub source: Vec<u8>,
    /// The type that the mount table has behind "fuse.".
    pub subtype: String,
    /// Other users than the one who mounts may use it. None: root mounts for all.
    pub allow_other: Option<bool>,
    /// The kernel checks permissions. None: unless `fakeroot`.
    pub default_permissions: Option<bool>,
    /// The user who mounts is root inside: may do everything, and what is created belongs to root.
    pub fakeroot: bool,
    /// All files are shown as this user's.
    pub uid: Option<u32>,
    /// All files are shown as this group's.
    pub gid: Option<u32>,
    /// The kernel's page cache collects writes.
    pub writeback_cache: bool,
    /// Every file is opened past the kernel's page cache.
    pub direct_io: bool,
    /// Extended attributes of users.
    pub user_xattr: bool,
    /// POSIX ACLs.
    pub acl: bool,
    /// New files have the group of their directory (grpid). None: as the superblock says.
    pub grpid: Option<bool>,
    /// This user may use reserved blocks, too. None: whom the superblock names.
    pub resuid: Option<u32>,
    /// The same, of a group.
    pub resgid: Option<u32>,
    /// The volume's own structures count as its size (statfs).
    pub minixdf: bool,
    /// When reading updates access times.
    pub times: Times,
    /// Reading directories updates no access times.
    pub nodiratime: bool,
    /// Times are written late.
    pub lazytime: bool,
    /// Where the volume begins in the device, in bytes.
    pub offset: Option<u64>,
    /// data=journal, or data=ordered and data=writeback; None: as the superblock says.
    pub data_journal: Option<bool>,
    /// The journal is replayed if that is needed.
    pub recovers: bool,
    /// Age at which changes of metadata are committed.
    pub commit: Option<Duration>,
    /// Freed blocks are discarded below when the mount ends.
    pub discard: bool,
    /// Requests come through io_uring, where the kernel has that.
    pub io_uring: bool,
    /// A thread that has replied looks for the next request for a moment before it sleeps.
    pub busy_poll: bool,
    /// Threads that serve requests. None: by the number of processors.
    pub threads: Option<u16>,
    /// The options are for a mount that exists.
    pub remount: bool,
}

/// When reading updates access times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// noatime
    Never,
    /// relatime
    Relative,
    /// strictatime
    Always,
}

impl Times {
    /// What the mount table shows. The kernel's FUSE client sets no access times: the server does.
    fn mount_flag(self) -> MountFlags {
        match self {
            Times::Never => MountFlags::NOATIME,
            Times::Relative => MountFlags::RELATIME,
            Times::Always => MountFlags::STRICTATIME,
        }
    }
}

impl Default for MountOptions {
    fn default() -> Self {
        // What root mounts is as the kernel's; for others, programs and devices in an image have no special rights.
        let flags = match rustix::process::geteuid().is_root() {
            true => MountFlags::empty(),
            false => MountFlags::NOSUID | MountFlags::NODEV,
        };
        MountOptions {
            flags,
            named_flags: MountFlags::empty(),
            fixed: Vec::new(),
            is_said_writable: false,
            source: Vec::new(),
            subtype: "diorite".to_owned(),
            allow_other: None,
            default_permissions: None,
            fakeroot: false,
            uid: None,
            gid: None,
            writeback_cache: false,
            direct_io: false,
            user_xattr: true,
            acl: true,
            grpid: None,
            resuid: None,
            resgid: None,
            minixdf: false,
            times: Times::Relative,
            nodiratime: false,
            lazytime: false,
            offset: None,
            data_journal: None,
            recovers: true,
            commit: None,
            discard: false,
            io_uring: false,
            busy_poll: true,
            threads: None,
            remount: false,
        }
    }
}

/// Flags of a mount, and whether the word sets or clears them.
const FLAGS: [(&str, MountFlags, bool); 14] = [
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

    /// Whether requests come through io_uring. Not where the kernel collects writes: if the server is killed while it waits for the
    /// kernel's pages, requests that came so end with nothing, not even with the end of the connection (Linux 6.18).
    #[must_use]
    pub fn wants_rings(&self) -> bool {
        self.io_uring && !self.writeback_cache
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

    /// May others than the user who mounts use it? Without being asked only of what root mounts, where everybody is who he is.
    #[must_use]
    pub fn allows_other(&self) -> bool {
        let is_root = rustix::process::geteuid().is_root();
        self.allow_other.unwrap_or(is_root && !self.fakeroot)
    }

    /// The flags of the mount. Where owners are not who they seem to be, their programs and devices have no rights.
    #[must_use]
    pub fn mount_flags(&self) -> MountFlags {
        let is_mapped = self.fakeroot || self.uid.is_some() || self.gid.is_some();
        let mut flags = self.flags | self.times.mount_flag();
        flags.set(MountFlags::NODIRATIME, self.nodiratime);
        match is_mapped {
            true => flags | MountFlags::NOSUID | MountFlags::NODEV,
            false => flags,
        }
    }

    /// Does the kernel check permissions?
    #[must_use]
    pub fn checks_permissions(&self) -> bool {
        self.default_permissions.unwrap_or(!self.fakeroot)
    }

    /// Is the mount read-only?
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.flags.contains(MountFlags::RDONLY)
    }

    /// The words that the kernel's FUSE takes.
    pub(crate) fn kernel_words(&self) -> Vec<&'static str> {
        let words = [
            ("allow_other", self.allows_other()),
            ("default_permissions", self.checks_permissions()),
        ];
        let set = words.into_iter().filter(|(_, is_set)| *is_set);
        set.map(|(word, _)| word).collect()
    }

    /// What the mount table shows as the source: the kernel refuses a mount without one.
    pub(crate) fn shown_source(&self) -> &[u8] {
        match self.source.is_empty() {
            true => self.subtype.as_bytes(),
            false => &self.source,
        }
    }

    /// The words for fusermount3.
    pub(crate) fn helper_words(&self) -> std::ffi::OsString {
        use std::os::unix::ffi::OsStringExt;
        let flag = |(name, flag, is_set): &(&'static str, MountFlags, bool)| {
            let is_now = *is_set && !flag.is_empty() && self.mount_flags().contains(*flag);
            is_now.then_some(*name)
        };
        let flags = FLAGS.iter().filter_map(flag);
        // Of the words for access times each fusermount3 knows this one.
        let noatime = (self.times == Times::Never).then_some("noatime");
        let mut list: Vec<u8> = Vec::new();
        for word in flags.chain(noatime).chain(self.kernel_words()) {
            list.extend_from_slice(word.as_bytes());
            list.push(b',');
        }
        list.extend_from_slice(b"fsname=");
        for byte in self.shown_source() {
            if matches!(byte, b',' | b'\\') {
                list.push(b'\\');
            }
            list.push(*byte);
        }
        list.extend_from_slice(b",subtype=");
        list.extend_from_slice(self.subtype.as_bytes());
        std::ffi::OsString::from_vec(list)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &str) -> Result<MountOptions, OptionError> {
        let mut options = MountOptions::default();
        options.add(list).map(|()| options)
    }

    #[test]
    fn the_last_word_counts() {
        let options = of("ro,noatime,rw,nosuid,relatime").expect("known words");
        assert!(!options.is_read_only());
        assert_eq!(options.times, Times::Relative);
        assert!(options.flags.contains(MountFlags::NOSUID));
        assert_eq!(of("data=journal").expect("known").data_journal, Some(true));
        assert_eq!(of("offset=4096,").expect("known").offset, Some(4096));
        let followed = of("nosymfollow,symfollow").expect("known");
        assert!(!followed.flags.contains(MountFlags::NOSYMFOLLOW));
        let fsname = of(r"fsname=a\,b\\c,ro").expect("known");
        assert_eq!(fsname.source, br"a,b\c");
        assert!(fsname.is_read_only());
    }

    /// The defect: callers of a server that was killed hung for ever.
    #[test]
    fn there_are_no_rings_where_the_kernel_collects_writes() {
        for (list, wants) in [
            ("io_uring,writeback_cache", false),
            ("io_uring,writeback_cache,nowriteback_cache", true),
        ] {
            assert_eq!(of(list).expect("known").wants_rings(), wants, "{list}");
        }
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        for list in [
            "no_such",
            "no_such=1",
            "RO",
            "offset",
            "offset=x",
            "errors=",
            "data=x",
            "max_threads=0",
        ] {
            assert!(of(list).is_err(), "{list}");
        }
        for list in IGNORED {
            of(list).expect(list);
        }
        of("x-systemd.automount,comment=a b,_netdev").expect("words for others");
    }

    #[test]
    fn a_remount_may_repeat_what_is_fixed() {
        let options = of("noatime,acl,sync,data=journal,ro").expect("known words");
        for word in ["noatime", "acl", "sync", "data=journal", "nolazytime", "rw"] {
            assert!(!options.is_changed_by(word), "{word}");
        }
        for word in [
            "strictatime",
            "noacl",
            "async",
            "data=ordered",
            "lazytime",
            "dirsync",
            "no_such",
        ] {
            assert!(options.is_changed_by(word), "{word}");
        }
        let again = of("remount,ro,noatime,relatime,nodev").expect("known words");
        assert_eq!(again.fixed, ["noatime"]);
    }

    #[test]
    fn words_for_the_helper() {
        let mut options =
            of("ro,nosuid,nodev,noatime,nodiratime,allow_other,default_permissions,fsname=a\\,b")
                .expect("known");
        options.flags -= MountFlags::NOEXEC;
        let words = options.helper_words().into_string().expect("text");
        assert_eq!(
            words,
            "ro,nosuid,nodev,noatime,allow_other,default_permissions,fsname=a\\,b,subtype=diorite"
        );
    }
}
