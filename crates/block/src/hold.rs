//! Locks a file or block device against other writers.
//!
//! Input: a path and its intended use. Output: a [`Hold`], which keeps its locks until it is dropped, or an error that names the holder.
//! Invariants: readers are never refused, only warned; two writers never share an image, whether they are diorite or QEMU's tools; the
//! files behind an open image have no other writer while it is open. Limits: the locks are advisory. Programs that take no locks are found
//! only where the kernel shows them (mounts, loop devices, and `foreign`).
//!
//! The locks are open-file-description locks on the byte ranges of QEMU's raw driver: a user of permission p locks byte 100 +
//! p, a user that does not share p locks byte 200 + p; permission 0 is reading, 1 writing, 3 resizing. All locks are shared, so
//! taking them never fails. A conflict is found by querying them afterwards, and of two that come at once at least one sees the
//! other. The locks have a descriptor of their own, because a ring keeps the device's descriptor open for a while after it was
//! closed.

mod foreign;
mod held;
mod who;

pub use foreign::look_for_writers;
pub use held::held_as;

use crate::device::{DeviceError, DeviceErrorKind};
use crate::storage::open_storage;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Access, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Another process may claim a free device for a moment: a tool that looks for a free loop device, or that probes a disk's
/// contents. The open is retried this often.
const CLAIM_TRIES: u32 = 10;
const CLAIM_NAP: Duration = Duration::from_millis(20);
/// Start of the note that warns a reader of a possible writer.
pub const WRITER_PRESENT: &str = "a writer is present";
/// Start of the note that warns of an image that says of itself that it is corrupt.
pub const MARKED_CORRUPT: &str = "marked as corrupt";
/// Permissions in use.
const USES: i64 = 100;
/// Permissions shared with nobody.
const KEEPS: i64 = 200;
const READING: i64 = 0;
const WRITING: i64 = 1;
const RESIZING: i64 = 3;

/// The intended use of a file.
pub(crate) struct Use<'a> {
    pub(crate) path: &'a Path,
    pub(crate) block_device: bool,
    pub(crate) read_only: bool,
    /// Continue although another process holds it.
    pub(crate) force: bool,
    /// It lies behind an image, and is read: no writer is let in meanwhile.
    pub(crate) keep: bool,
}

/// The locks, for the lifetime of this value.
#[derive(Debug)]
pub(crate) struct Hold {
    fd: OwnedFd,
    _listed: held::Listed,
}

impl Hold {
    /// Takes the locks for this use, and adds warnings to `notes`.
    ///
    /// # Errors
    /// [`DeviceErrorKind::Held`] naming the holder, or the host's error at opening.
    pub(crate) fn take(usage: &Use<'_>, notes: &mut Vec<String>) -> Result<Hold, DeviceError> {
        // Before it is open for writing here.
        let foreign = rustix::fs::stat(usage.path);
        let foreign = foreign
            .ok()
            .and_then(|stat| foreign::writer(usage.path, &stat, usage.block_device));
        let fd = open(usage, notes)?;
        let stat = stat(&fd)?;
        let hold = Hold {
            fd,
            _listed: held::Listed::new(usage.path, &stat),
        };
        if usage.read_only {
            let mine = [USES + READING, KEEPS + WRITING, KEEPS + RESIZING];
            hold.lock(&mine[..if usage.keep { 3 } else { 1 }], notes);
            if let Some(writer) = hold.writer(usage, &stat).or(foreign) {
                notes.push(format!("{WRITER_PRESENT}: {writer}"));
                // The writer was first, and goes on.
                hold.unlock(KEEPS);
            }
            return Ok(hold);
        }
        let mine = [
            USES + READING,
            USES + WRITING,
            KEEPS + WRITING,
            KEEPS + RESIZING,
        ];
        hold.lock(&mine, notes);
        match hold.writer(usage, &stat).or(foreign) {
            None => Ok(hold),
            Some(holder) if usage.force => {
                notes.push(format!(
                    "forced: {holder}; two writers destroy what is in it"
                ));
                Ok(hold)
            }
            Some(holder) => Err(held(usage, &holder)),
        }
    }

    /// Whether the other descriptor has the same file open.
    pub(crate) fn is_same(&self, other: &OwnedFd) -> bool {
        let same =
            |a: Stat, b: Stat| (a.st_dev, a.st_ino, a.st_rdev) == (b.st_dev, b.st_ino, b.st_rdev);
        rustix::fs::fstat(other).is_ok_and(|o| stat(&self.fd).is_ok_and(|s| same(s, o)))
    }

    /// A description of an existing writer.
    fn writer(&self, usage: &Use<'_>, stat: &Stat) -> Option<String> {
        let conflicts = if usage.read_only {
            &[USES + WRITING][..]
        } else {
            &[
                USES + WRITING,
                USES + RESIZING,
                KEEPS + WRITING,
                KEEPS + READING,
            ][..]
        };
        for byte in conflicts {
            if self.is_locked(*byte) {
                let who = who::lock_holders(stat, *byte, self.fd.as_raw_fd());
                return Some(match *byte < KEEPS {
                    true => format!("it is open for writing in {who}"),
                    false => format!(
                        "it is in use by {who}, which lets nobody write it: it may be the backing file of an open image"
                    ),
                });
            }
        }
        if usage.block_device {
            let used = if usage.read_only {
                who::mounted(stat)
            } else {
                None
            };
            return used.map(|u| format!("it is {u}"));
        }
        who::loop_device(stat, usage.read_only).map(|l| format!("it backs {l}"))
    }

    fn lock(&self, bytes: &[i64], notes: &mut Vec<String>) {
        for byte in bytes {
            let lock = flock(libc::F_RDLCK, *byte);
            // SAFETY: the command reads one flock structure, which lives through the call.
            let res =
                unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
            if res != 0 {
                let why = std::io::Error::last_os_error();
                notes.push(format!("not locked against other writers: {why}"));
                return;
            }
        }
    }

    /// Gives up the locks from that byte on.
    fn unlock(&self, from: i64) {
        let range = libc::flock {
            l_len: 0,
            ..flock(libc::F_UNLCK, from)
        };
        // SAFETY: the command reads one flock structure, which lives through the call.
        unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) };
    }

    /// Whether another open file description locks that byte.
    fn is_locked(&self, byte: i64) -> bool {
        let mut lock = flock(libc::F_WRLCK, byte);
        // SAFETY: the command reads and writes one flock structure, which lives through the call.
        let res = unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        res == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
    }
}

/// Who writes this file or device, in words for a person. None if nobody does, or if it cannot be opened.
#[must_use]
pub fn writer_of(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let fd = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let stat = stat(&fd).ok()?;
    let usage = Use {
        path,
        block_device: FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice,
        read_only: true,
        force: false,
        keep: false,
    };
    let looking = Hold {
        _listed: held::Listed::new(path, &stat),
        fd,
    };
    let openers = || usage.block_device.then(|| who::openers(&stat));
    let foreign = || foreign::writer(path, &stat, usage.block_device);
    let writer = looking.writer(&usage, &stat).or_else(foreign);
    writer.or_else(openers)
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Closing is not enough: a forked child that has not yet reached its exec shares the descriptor's locks.
        self.unlock(0);
    }
}

fn stat(fd: &OwnedFd) -> Result<Stat, DeviceError> {
    rustix::fs::fstat(fd).map_err(|e| DeviceError::host("cannot look at it", e.into()))
}

fn flock(kind: libc::c_int, byte: i64) -> libc::flock {
    // SAFETY: flock is plain integers, for which zeros are values.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = byte as libc::off_t;
    lock.l_len = 1;
    lock
}

/// Opens the descriptor for the locks: exclusively, if it is a block device to be written.
fn open(usage: &Use<'_>, notes: &mut Vec<String>) -> Result<OwnedFd, DeviceError> {
    let way = if usage.read_only {
        OFlags::RDONLY
    } else {
        OFlags::RDWR
    };
    let open = |flags| open_storage(usage.path, flags);
    if !usage.block_device || usage.read_only {
        return open(way).map_err(|e| refused(usage, e));
    }
    match patiently(|| open(way | OFlags::EXCL)) {
        Err(e) if is_busy(&e) => {
            let user = user_of_device(usage);
            if !usage.force {
                return Err(held(usage, &user));
            }
            notes.push(format!("forced: {user}; two writers destroy what is in it"));
            open(way).map_err(|e| refused(usage, e))
        }
        other => other.map_err(|e| refused(usage, e)),
    }
}

fn is_busy(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::BUSY)
}

/// Opens a device exclusively; retries for a while if another process has claimed it.
fn patiently<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..CLAIM_TRIES {
        match open() {
            Err(e) if is_busy(&e) => std::thread::sleep(CLAIM_NAP),
            other => return other,
        }
    }
    open()
}

fn user_of_device(usage: &Use<'_>) -> String {
    let stat = rustix::fs::stat(usage.path).ok();
    let mounted = stat.as_ref().and_then(who::mounted);
    let user = mounted.or_else(|| stat.as_ref().map(who::openers));
    format!(
        "it is {}",
        user.unwrap_or_else(|| "in use by the host".to_owned())
    )
}

fn held(usage: &Use<'_>, holder: &str) -> DeviceError {
    DeviceError::new(
        DeviceErrorKind::Held,
        format!(
            "{} cannot be opened for writing: {holder} (reading is possible: ?ro; --ignore-lock risks its contents)",
            usage.path.display()
        ),
    )
}

/// Whether it is not the permissions of a file that keep us from it: a sandbox leaves that question open.
fn is_permitted(usage: &Use<'_>) -> bool {
    let way = match usage.read_only {
        true => Access::READ_OK,
        false => Access::READ_OK | Access::WRITE_OK,
    };
    rustix::fs::access(usage.path, way).is_ok()
}

/// The error for a file that the host does not let us open.
pub(crate) fn refused(usage: &Use<'_>, error: io::Error) -> DeviceError {
    let shown = usage.path.display();
    match Errno::from_io_error(&error) {
        // It has become something else since it was looked at.
        None => DeviceError::new(DeviceErrorKind::Unsupported, format!("{shown} is {error}")),
        Some(Errno::ACCESS) if is_permitted(usage) => {
            let what = format!(
                "cannot open {shown}: its permissions allow it, and a sandbox, a security module or the mount option nodev does not \
                 (the sandbox of mount and serve has what was there when it began; --no-sandbox goes on without one)"
            );
            DeviceError::host(what, error)
        }
        Some(Errno::ROFS | Errno::ACCESS | Errno::PERM | Errno::TXTBSY) if !usage.read_only => {
            DeviceError {
                kind: DeviceErrorKind::Denied,
                ..DeviceError::host(
                    format!("cannot open {shown} for writing (reading it may do: ?ro)"),
                    error,
                )
            }
        }
        _ => DeviceError::host(format!("cannot open {shown}"), error),
    }
}

#[cfg(test)]
mod tests;
