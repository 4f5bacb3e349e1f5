//! Mounting and unmounting: by the process itself, or by fusermount3 on behalf of an ordinary user.
//!
//! Input: a mount point, mount flags and options. Output: a descriptor of `/dev/fuse` that serves the mount. Invariants: what was mounted
//! is unmounted if anything fails later; no program but fusermount3 is run. Limits: Linux. Source: man 8 mount.fuse3, man 2 mount,
//! man 2 statx; that fusermount3 sends the descriptor over the socket in `_FUSE_COMMFD`: fuser (MIT).

use super::DEVICE;
use crate::options::MountOptions;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, FdFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program that mounts for ordinary users.
const HELPER: &str = "fusermount3";

/// Why something could not be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The host refused a step.
    #[error("{what}: {error}")]
    Host {
        /// The step.
        what: String,
        /// The host's error.
        error: Errno,
    },
    /// fusermount3 cannot be run.
    #[error("cannot run {HELPER}, which mounts for ordinary users (Debian: package fuse3): {0}")]
    NoHelper(std::io::Error),
    /// fusermount3 refused.
    #[error("{HELPER}: {0}")]
    Helper(String),
}

/// The error becomes the source; its kind is that of the host's error if there is one.
impl From<MountError> for std::io::Error {
    fn from(error: MountError) -> std::io::Error {
        let kind = match &error {
            MountError::Host { error, .. } => error.kind(),
            MountError::NoHelper(error) => error.kind(),
            MountError::Helper(_) => std::io::ErrorKind::Other,
        };
        std::io::Error::new(kind, error)
    }
}

fn host(what: impl Into<String>) -> impl FnOnce(Errno) -> MountError {
    let what = what.into();
    move |error| MountError::Host { what, error }
}

/// Mounts at `path`, which is absolute, where `point` is open (O_PATH): a path may lead elsewhere by now. Returns the descriptor that
/// serves the mount; whoever uses the mount before it is served waits. Blocks.
///
/// # Errors
/// The host or fusermount3 refuses.
pub fn mount(path: &Path, point: &OwnedFd, options: &MountOptions) -> Result<OwnedFd, MountError> {
    match rustix::process::geteuid().is_root() {
        true => by_ourselves(path, point, options),
        // It looks at the path with the rights of its user.
        false => by_helper(path, options),
    }
}

fn by_ourselves(
    path: &Path,
    point: &OwnedFd,
    options: &MountOptions,
) -> Result<OwnedFd, MountError> {
    let mode = rustix::fs::fstat(point)
        .map_err(host(path.display().to_string()))?
        .st_mode;
    let place = format!("/proc/self/fd/{}", point.as_raw_fd());
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let fd = rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(host(DEVICE))?;
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let mut data = format!(
        "fd={},rootmode={mode:o},user_id={},group_id={}",
        fd.as_raw_fd(),
        uid.as_raw(),
        gid.as_raw()
    );
    for word in options.kernel_words() {
        data.push(',');
        data.push_str(word);
    }
    let kind = CString::new(format!("fuse.{}", options.subtype)).expect("words have no NUL");
    let data = CString::new(data).expect("words have no NUL");
    rustix::mount::mount(
        OsStr::from_bytes(options.shown_source()),
        place.as_str(),
        kind,
        options.mount_flags(),
        Some(data.as_c_str()),
    )
    .map_err(host(format!("mount at {}", path.display())))?;
    Ok(fd)
}

fn by_helper(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(host("a socket"))?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(host("a socket"))?;
    let mut child = Command::new(HELPER)
        .arg("-o")
        .arg(options.helper_words())
        .arg("--")
        .arg(path)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(MountError::NoHelper)?;
    drop(theirs);
    let received = receive(&ours);
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        use std::io::Read;
        // What it says is for a person only.
        let _ = stderr.read_to_string(&mut said);
    }
    // Its verdict is whether it has sent a descriptor.
    let _ = child.wait();
    let none = || MountError::Helper(said.trim().trim_start_matches("fusermount3: ").to_owned());
    received
        .map_err(host("the socket of fusermount3"))?
        .ok_or_else(none)
}

/// The descriptor that comes over the socket. None if the other end is closed first. Blocks.
///
/// # Errors
/// Those of recvmsg(2).
pub fn receive(socket: &impl AsFd) -> Result<Option<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        let mut parts = [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    let mut all = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(all.next())
}

/// Sends a descriptor over the socket, with one byte.
///
/// # Errors
/// Those of sendmsg(2).
pub fn send(socket: &impl AsFd, fd: &impl AsFd) -> Result<(), Errno> {
    let fds = [fd.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(
        ancillary.push(SendAncillaryMessage::ScmRights(&fds)),
        "there is room for one"
    );
    let byte = [IoSlice::new(b"f")];
    rustix::net::sendmsg(socket, &byte, &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

/// Unmounts what is mounted at `path`. With `lazily` a mount that is in use is detached, and ends with its last user. Blocks until what was
/// written through it has been handed to its server.
///
/// # Errors
/// EBUSY if it is in use; EINVAL if nothing is mounted there; EPERM; of fusermount3.
pub fn unmount(path: &Path, lazily: bool) -> Result<(), MountError> {
    let flags = match lazily {
        true => UnmountFlags::DETACH | UnmountFlags::NOFOLLOW,
        false => UnmountFlags::NOFOLLOW,
    };
    match rustix::mount::unmount(path, flags) {
        Err(Errno::PERM) => {}
        done => return done.map_err(host(path.display().to_string())),
    }
    let mut helper = Command::new(HELPER);
    helper.arg("-u").args(lazily.then_some("-z"));
    let ran = helper.arg("--").arg(path).output();
    let ran = ran.map_err(MountError::NoHelper)?;
    let said = String::from_utf8_lossy(&ran.stderr);
    match ran.status.success() {
        true => Ok(()),
        false => Err(MountError::Helper(
            said.trim().trim_start_matches("fusermount3: ").to_owned(),
        )),
    }
}

/// Changes the flags of a mount (`-o remount`).
///
/// # Errors
/// EINVAL if nothing is mounted there; EPERM; EROFS.
pub fn remount(path: &Path, flags: MountFlags) -> Result<(), MountError> {
    rustix::mount::mount_remount(path, flags, c"").map_err(host(path.display().to_string()))
}

/// A line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The mount's number, which no other mount of the host has, in no namespace, while it is mounted.
    pub id: u64,
    /// Where it is mounted.
    pub place: PathBuf,
    /// The numbers of its device, as the table has them: "0:52". No other file system has them while it is mounted.
    pub device: String,
    /// Its type: "fuse.diorite".
    pub kind: String,
    /// Its source, byte for byte.
    pub source: Vec<u8>,
}

impl Entry {
    /// Is it a FUSE file system?
    #[must_use]
    pub fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind.starts_with("fuse.")
    }
}

/// The FUSE file system, the one that was mounted last, that the predicate takes.
#[must_use]
pub fn find_mounted(is_it: impl Fn(&Entry) -> bool) -> Option<Entry> {
    let mut mounts = mounts().into_iter().rev();
    mounts.find(|entry| entry.is_fuse() && is_it(entry))
}

/// What is mounted at `path`, which is absolute. The file system itself is not asked.
#[must_use]
pub fn mounted_at(path: &Path) -> Option<Entry> {
    mounts().into_iter().rev().find(|entry| entry.place == path)
}

/// The mounts of the FUSE file system with this device, here and, as far as this process may look, in other mount namespaces.
#[must_use]
pub fn mounts_of(device: &str, everywhere: bool) -> Vec<Entry> {
    let mut tables = vec![PathBuf::from("/proc/self")];
    if everywhere {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        tables.extend(processes.map(|process| process.path()));
    }
    let (mut found, mut seen) = (Vec::<Entry>::new(), HashSet::new());
    for process in tables {
        // Processes with one namespace and one root have one table.
        let link = |name: &str| std::fs::read_link(process.join(name)).ok();
        let table = link("ns/mnt").zip(link("root"));
        if table.is_some_and(|table| !seen.insert(table)) {
            continue;
        }
        for entry in parsed(&std::fs::read(process.join("mountinfo")).unwrap_or_default()) {
            let is_new = found.iter().all(|other| other.id != entry.id);
            if is_new && entry.device == device && entry.is_fuse() {
                found.push(entry);
            }
        }
    }
    found
}

/// The number of the mount at `path`, which no other mount gets as long as the host runs: that of its device is used again. The file
/// system itself is not asked. None: the kernel has no such numbers (before 6.8).
#[must_use]
pub fn mount_number(path: &Path) -> Option<u64> {
    const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    // The constant has no name for musl.
    const DONT_SYNC: AtFlags = AtFlags::from_bits_retain(0x4000);
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | DONT_SYNC;
    let stat = rustix::fs::statx(rustix::fs::CWD, path, flags, MNT_ID_UNIQUE).ok()?;
    let is_there = stat.stx_mask & MNT_ID_UNIQUE.bits() != 0;
    is_there.then_some(stat.stx_mnt_id)
}

/// The mount table, the oldest entry first.
fn mounts() -> Vec<Entry> {
    parsed(&std::fs::read("/proc/self/mountinfo").unwrap_or_default())
}

fn parsed(table: &[u8]) -> Vec<Entry> {
    let mounts = table.split(|b| *b == b'\n').filter_map(|line| {
        let mut words = line.split(|b| *b == b' ');
        let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        let device = words.by_ref().nth(1)?;
        let place = words.by_ref().nth(1)?;
        let mut behind = words.skip_while(|word| *word != b"-").skip(1);
        let (kind, from) = (behind.next()?, behind.next()?);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(Entry {
            id,
            place: PathBuf::from(OsStr::from_bytes(&unescaped(place))),
            device: text(device),
            kind: text(&unescaped(kind)),
            source: unescaped(from),
        })
    });
    mounts.collect()
}

/// A field of mountinfo: blanks and backslashes are octal numbers behind a backslash.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, behind @ ..] = rest {
        let octal = |digits: &[u8; 3]| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        };
        let escaped = behind
            .first_chunk()
            .filter(|_| *first == b'\\')
            .and_then(octal);
        plain.push(escaped.unwrap_or(*first));
        rest = &behind[if escaped.is_some() { 3 } else { 0 }..];
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_mountinfo() {
        for (field, plain) in [
            (&b"/a"[..], &b"/a"[..]),
            (b"/a\\040b", b"/a b"),
            (b"\\134\\011", b"\\\t"),
            (b"\\", b"\\"),
            (b"\\9", b"\\9"),
        ] {
            assert_eq!(unescaped(field), plain);
        }
    }
}
