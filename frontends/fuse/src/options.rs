//! The options of a mount, and what follows from them for the kernel and for fusermount3.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `words` | the words of `-o` -> [`MountOptions`] |
//!
//! Input: options. Output: flags and words for the kernel and for fusermount3. Invariants: none. Limits: whether the options suit the
//! volume is judged when it is opened.

mod words;

use rustix::mount::MountFlags;
use std::time::Duration;
use words::FLAGS;

pub use words::{IGNORED, OptionError};

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
#[non_exhaustive]
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

diorite_block::setters! {
    MountOptions {
        flags: MountFlags,
        named_flags: MountFlags,
        fixed: Vec<String>,
        is_said_writable: bool,
        source: Vec<u8>,
        subtype: String,
        fakeroot: bool,
        writeback_cache: bool,
        direct_io: bool,
        user_xattr: bool,
        acl: bool,
        minixdf: bool,
        times: Times,
        nodiratime: bool,
        lazytime: bool,
        recovers: bool,
        discard: bool,
        io_uring: bool,
        busy_poll: bool,
        remount: bool,
    } option {
        allow_other: bool,
        default_permissions: bool,
        uid: u32,
        gid: u32,
        grpid: bool,
        resuid: u32,
        resgid: u32,
        offset: u64,
        data_journal: bool,
        commit: Duration,
        threads: u16,
    }
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

impl MountOptions {
    /// Whether requests come through io_uring. Not where the kernel collects writes: if the server is killed while it waits for the
    /// kernel's pages, requests that came so end with nothing, not even with the end of the connection (Linux 6.18).
    #[must_use]
    pub fn wants_rings(&self) -> bool {
        self.io_uring && !self.writeback_cache
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

#[cfg(test)]
mod tests;
