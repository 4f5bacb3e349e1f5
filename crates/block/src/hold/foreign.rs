//! Writers of a file that take none of our locks: programs that have it open for writing, or hold another lock on it.
//!
//! Input: a file. Output: a description of a writer. Invariants: processes that started this one, and the descriptors that they have passed
//! on, are no foreign writers: `exec 3<>IMG` and `flock IMG diorite ...` are ways to call us. Nothing here waits for another program. A
//! program that opens the file while the lease is held waits only until the lease is given back. Limits: the kernel says whether a file is
//! open for writing to its owner and to root (a lease), and not on every file system; names are of processes that we may see.

use super::who::{self, Process};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, Stat, major, minor};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A file, by device and inode, and its writer.
type Seen = ((u64, u64), String);

/// Writers that were seen by [`look_for_writers`].
static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());

/// What an access mode is in the flags of an open file.
const ACCESS: u32 = 3;
/// Sets the signal of a descriptor; of the kernel's headers (asm-generic/fcntl.h), not in `libc`.
const F_SETSIG: libc::c_int = 10;
/// In place of SIGIO, which ends a process: the signal for whoever opens the file while we have the lease. It is ignored.
const QUIET: libc::c_int = libc::SIGURG;

/// See the module. `block_device`: leases are for files only.
pub(super) fn writer(path: &Path, file: &Stat, block_device: bool) -> Option<String> {
    found(path, file, block_device).map(|found| format!("it is {} {}", found.how, found.who))
}

/// A writer that was found.
struct Found {
    how: &'static str,
    who: String,
    /// A moment later it may be none: its process was not found, or is a child of ours, which closes what it has from us at its exec.
    is_passing: bool,
}

impl Found {
    /// The holders, if there are some.
    fn of(how: &'static str, holders: &[&Process]) -> Option<Found> {
        let is_passing = holders.iter().any(|holder| who::may_pass(holder.pid));
        let who = who::list(holders.iter().map(|holder| holder.name()).collect())?;
        Some(Found {
            how,
            who,
            is_passing,
        })
    }

    /// One that is there and was not found among the processes.
    fn unnamed(how: &'static str, who: String) -> Found {
        Found {
            how,
            is_passing: who == who::UNSEEN,
            who,
        }
    }
}

/// What is said of a writer, before its name.
const OPEN: &str = "open for writing in";
const LOCKED: &str = "locked by";

/// How the file is held, and by whom. Of a process that has ended the kernel may close files a moment later: a ring's are. So who is there
/// and is not found is looked for again, as are children of ours, which other threads may be starting just now.
fn found(path: &Path, file: &Stat, block_device: bool) -> Option<Found> {
    let look = || {
        let known = match block_device {
            true => None,
            false => is_written(path),
        };
        let open = match known {
            Some(false) => None,
            known => open_for_writing(path, file, known),
        };
        open.or_else(|| locked(path, file))
    };
    for _ in 1..super::CLAIM_TRIES {
        match look() {
            Some(found) if found.is_passing => std::thread::sleep(super::CLAIM_NAP),
            other => return other,
        }
    }
    look()
}

/// Remembers who writes a file and takes none of our locks. For a process that is about to lose sight of others, in a sandbox: when it
/// opens the file it knows that there still is a writer, and here it finds who.
pub fn look_for_writers(path: &Path) {
    let Ok(file) = rustix::fs::stat(path) else {
        return;
    };
    let kind = FileType::from_raw_mode(file.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
        return;
    }
    if let Some(found) = found(path, &file, kind == FileType::BlockDevice) {
        let mut all = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(((file.st_dev, file.st_ino), found.who));
    }
}

/// Who was seen by [`look_for_writers`].
fn seen(file: &Stat) -> Option<String> {
    let all = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all = all
        .iter()
        .filter(|(id, _)| *id == (file.st_dev, file.st_ino));
    all.next().map(|(_, who)| who.clone())
}

/// A name for a writer that is there and was not found: it may be our own, if we do not see what those have open that started us.
fn unseen(file: &Stat) -> Option<String> {
    match who::sees_parent() {
        true => Some(who::UNSEEN.to_owned()),
        false => seen(file),
    }
}

/// Whether somebody has the file open for writing: then no lease for readers is given. None if that cannot be asked.
fn is_written(path: &Path) -> Option<bool> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let fd = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    if call(&fd, F_SETSIG, QUIET) != 0 {
        return None;
    }
    match call(&fd, libc::F_SETLEASE, libc::F_RDLCK) {
        0 => {
            call(&fd, libc::F_SETLEASE, libc::F_UNLCK);
            Some(false)
        }
        _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN) => Some(true),
        _ => None,
    }
}

fn call(fd: &OwnedFd, command: libc::c_int, value: libc::c_int) -> libc::c_int {
    // SAFETY: these commands take an integer.
    unsafe { libc::fcntl(fd.as_raw_fd(), command, value) }
}

/// `flags: 0100002`, with a tab.
fn is_for_writing(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok());
    flags.is_some_and(|flags| flags & ACCESS != 0)
}

/// Who has it open for writing. `known`: what the kernel says of that, where it says something.
fn open_for_writing(path: &Path, file: &Stat, known: Option<bool>) -> Option<Found> {
    let found = who::find(path, file, is_for_writing);
    let ours = who::ours();
    let trusted: Vec<u32> = found
        .iter()
        .map(|p| p.pid)
        .filter(|pid| ours.contains(pid))
        .collect();
    let is_foreign = |process: &&Process| {
        let line = who::line_of(process.pid);
        !trusted.iter().any(|pid| line.contains(pid)) && !who::is_fork(process.pid, &line)
    };
    let foreign: Vec<&Process> = found.iter().filter(is_foreign).collect();
    Found::of(OPEN, &foreign).or_else(|| {
        let who = match known {
            _ if !found.is_empty() => None,
            Some(true) => unseen(file),
            Some(false) => None,
            // Inside of a sandbox, perhaps.
            None => seen(file),
        };
        who.map(|who| Found::unnamed(OPEN, who))
    })
}

/// `1: FLOCK  ADVISORY  WRITE 233 fe:00:10010659 0 EOF`, in /proc/locks: whose file it is, and who has the lock.
fn lock_of(line: &str) -> Option<(&str, i64)> {
    let mut words = line
        .split_whitespace()
        .skip_while(|word| *word != "WRITE")
        .skip(1);
    let pid = words.next()?.parse().ok()?;
    Some((words.next()?, pid))
}

/// Who holds a lock for writing on the file, of any kind.
fn locked(path: &Path, file: &Stat) -> Option<Found> {
    let (dev, ino) = (file.st_dev, file.st_ino);
    let id = format!("{:02x}:{:02x}:{ino}", major(dev), minor(dev));
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut locks = locks
        .lines()
        .filter_map(lock_of)
        .filter(|(of, _)| *of == id);
    // In a PID namespace the list leaves out locks whose takers have ended, or are outside of it.
    let pid = match locks.next() {
        Some((_, pid)) => u32::try_from(pid).ok(),
        None if who::is_in_namespace() => None,
        None => return None,
    };
    let is_listed = pid.is_some();
    let ours = who::ours();
    let is_ours = |pid: &u32| ours.contains(pid);
    if pid.is_some_and(|pid| is_ours(&pid)) {
        return None;
    }
    // Who took the lock may have ended, and what it was passed on to has it.
    let has = |info: &str| {
        let mut lines = info.lines().filter_map(|line| line.strip_prefix("lock:"));
        lines.any(|line| lock_of(line).is_some())
    };
    let found = who::find(path, file, has);
    let is_ours = |pid| is_ours(&pid) || who::is_fork(pid, &who::line_of(pid));
    if found.iter().any(|process| is_ours(process.pid)) {
        return None;
    }
    let all: Vec<&Process> = found.iter().collect();
    let unnamed = || Some(Found::unnamed(LOCKED, unseen(file)?));
    Found::of(LOCKED, &all).or_else(|| is_listed.then(unnamed).flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        assert!(is_for_writing("pos:\t0\nflags:\t0100002\nmnt_id:\t29\n"));
        assert!(is_for_writing("flags:\t01\n"));
        assert!(!is_for_writing("pos:\t0\nflags:\t02100000\n") && !is_for_writing(""));
        let line = "1: FLOCK  ADVISORY  WRITE 233 fe:00:10010659 0 EOF";
        assert_eq!(lock_of(line), Some(("fe:00:10010659", 233)));
        let waits = "1: -> FLOCK  ADVISORY  WRITE 7 fe:00:9 0 EOF";
        assert_eq!(lock_of(waits), Some(("fe:00:9", 7)));
        assert_eq!(lock_of("2: OFDLCK ADVISORY  READ -1 fe:00:9 100 101"), None);
    }
}
