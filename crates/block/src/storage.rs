//! Opens a path of the host that names a regular file or a block device, without waiting for anybody.
//!
//! Input: a path, which others may replace at any time. Output: an open descriptor of a regular file or a block device. Invariants: a FIFO,
//! a device without blocks or a directory is refused after it is open, so a replacement between two calls changes nothing; opening a FIFO
//! waits for no writer. Limits: a lease of another process is waited for, as without O_NONBLOCK, up to [`MOST_TRIES`] times [`NAP`].

use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The kernel breaks a lease after 45 seconds (/proc/sys/fs/lease-break-time).
const MOST_TRIES: u32 = 6000;
const NAP: Duration = Duration::from_millis(10);

/// Opens a regular file or a block device. `O_CLOEXEC` and `O_NOCTTY` are added to the flags. Blocks only while another process has a lease
/// on the file, a minute at most.
///
/// ```
/// use diorite_block::open_storage;
/// use rustix::fs::OFlags;
///
/// let program = open_storage("/proc/self/exe".as_ref(), OFlags::RDONLY)?;
/// assert!(rustix::fs::fstat(&program)?.st_size > 0);
/// assert!(open_storage("/dev/null".as_ref(), OFlags::RDONLY).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The host's; `InvalidInput` for anything else than a regular file or a block device, with what it is.
pub fn open_storage(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let mut tries = 1..MOST_TRIES;
    let fd = loop {
        match rustix::fs::open(path, flags, Mode::empty()) {
            // Only a regular file has leases. This open has begun to break it.
            Err(Errno::AGAIN) if tries.next().is_some() => std::thread::sleep(NAP),
            opened => break opened?,
        }
    };
    check_kind(FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode))?;
    // With that flag a ring answers EAGAIN instead of waiting for the file.
    let now = rustix::fs::fcntl_getfl(&fd)?;
    rustix::fs::fcntl_setfl(&fd, now.difference(OFlags::NONBLOCK))?;
    Ok(fd)
}

/// Refuses what is neither a regular file nor a block device.
pub(crate) fn check_kind(kind: FileType) -> io::Result<()> {
    let what = match kind {
        FileType::RegularFile | FileType::BlockDevice => return Ok(()),
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::Unknown => "of a kind that is not known",
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("neither a file nor a block device: it is {what}"),
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, mknodat};
    use std::os::fd::AsRawFd;

    fn flags_of(fd: &OwnedFd) -> OFlags {
        rustix::fs::fcntl_getfl(fd).unwrap()
    }

    /// The defect: opening a FIFO that had replaced an image waited for a writer for ever.
    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for flags in [OFlags::RDONLY, OFlags::RDWR] {
            let error = open_storage(&path, flags).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().ends_with("it is a pipe"), "{error}");
        }
        // Nobody reads it: there is no other error for that.
        let error = open_storage(&path, OFlags::WRONLY).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENXIO));
        let error = open_storage(dir.path(), OFlags::RDONLY).unwrap_err();
        assert!(error.to_string().ends_with("it is a directory"), "{error}");
    }

    #[test]
    fn a_file_is_open_as_it_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "x").unwrap();
        for flags in [OFlags::RDONLY, OFlags::RDWR, OFlags::WRONLY] {
            let fd = open_storage(&path, flags).unwrap();
            assert!(!flags_of(&fd).contains(OFlags::NONBLOCK));
            assert_eq!(flags_of(&fd) & OFlags::RWMODE, flags);
            let kept = rustix::io::fcntl_getfd(&fd).unwrap();
            assert!(kept.contains(rustix::io::FdFlags::CLOEXEC));
        }
    }

    /// With O_NONBLOCK alone the file could not be opened.
    #[test]
    fn a_lease_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = std::fs::File::create(&path).unwrap();
        // SAFETY: these commands of fcntl take an integer. No signal: SIGIO would end the process.
        let set = |command: libc::c_int, value: libc::c_int| unsafe {
            libc::fcntl(file.as_raw_fd(), command, value)
        };
        const F_SETSIG: libc::c_int = 10;
        assert_eq!(set(F_SETSIG, libc::SIGURG), 0);
        if set(libc::F_SETLEASE, libc::F_WRLCK) != 0 {
            return;
        }
        std::thread::scope(|scope| {
            let opened = scope.spawn(|| open_storage(&path, OFlags::RDONLY));
            // The lease is being broken once somebody has asked.
            // SAFETY: the command takes nothing.
            let lease = || unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) };
            while lease() == libc::F_WRLCK {
                std::thread::yield_now();
            }
            assert_eq!(set(libc::F_SETLEASE, libc::F_UNLCK), 0);
            opened.join().unwrap().unwrap();
        });
    }
}
