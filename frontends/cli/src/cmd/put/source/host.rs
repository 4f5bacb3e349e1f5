//! Sources on the host: the type and attributes of a name in an open directory, and the ranges of its data.
//!
//! Input: directories of the host, names. Output: types, attributes, ranges of data. Invariants: links are never followed,
//! except a SOURCE that ends with a slash or names a descriptor (/dev/stdin, /dev/fd/N); the file that is opened has the type that was
//! found before. Limits: on a host without SEEK_DATA no holes are found.

use super::{Attributes, Identity, Name};
use crate::cmd::mount::descriptor;
use crate::copying::files::SHORTER;
use crate::host::process::has_procfs;
use crate::output::report::Reason;
use diorite::xattr::Xattr;
use diorite_block::uncached;
use diorite_format::inode::Rdev;
use diorite_format::{FileType, Timestamp};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, SeekFrom, Stat, fgetxattr, flistxattr, fstat, lgetxattr,
    llistxattr, major, minor, openat, readlinkat, seek, statat,
};
use rustix::io::{Errno, pread};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The maximum size of a list of attribute names, and of a value, in Linux.
const MOST_XATTR: usize = 64 << 10;

/// A file on the host.
pub(super) struct OnHost {
    pub(super) kind: FileType,
    stat: Stat,
    /// The open file, if it is a regular file or a directory; otherwise the directory that it is in.
    fd: OwnedFd,
    /// Its name in that directory; none if it is open itself.
    name: Option<Vec<u8>>,
}

impl OnHost {
    /// A SOURCE of the command line.
    pub(super) fn of_path(path: &[u8]) -> Result<OnHost, Reason> {
        match descriptor::number(Path::new(OsStr::from_bytes(path))) {
            Some(_) => OnHost::opened(path),
            None => OnHost::find(CWD, path),
        }
    }

    /// The file or directory that a path names by a descriptor of this process: what it has open, and not the link that the path is.
    fn opened(path: &[u8]) -> Result<OnHost, Reason> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(CWD, path, flags, Mode::empty()).map_err(plain)?;
        let stat = fstat(&fd).map_err(plain)?;
        match kind_of(&stat) {
            Some(kind @ (FileType::Regular | FileType::Directory)) => Ok(OnHost {
                kind,
                stat,
                fd,
                name: None,
            }),
            _ => Err(Reason::new("it became something else meanwhile")),
        }
    }

    /// A name in this directory.
    pub(super) fn below(&self, name: &[u8]) -> Result<OnHost, Reason> {
        OnHost::find(self.fd.as_fd(), name)
    }

    fn find(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OnHost, Reason> {
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(plain)?;
        let Some(kind) = kind_of(&stat) else {
            return Err(Reason::new("of a kind that is not known"));
        };
        if !matches!(kind, FileType::Regular | FileType::Directory) {
            let (fd, name) = holder(dir, name).map_err(plain)?;
            let name = Some(name);
            return Ok(OnHost {
                kind,
                stat,
                fd,
                name,
            });
        }
        let fd = open(dir, name, kind == FileType::Directory).map_err(plain)?;
        // If a pipe has replaced the file since stat, opening does not block (O_NONBLOCK), and the pipe is refused here.
        let stat = fstat(&fd).map_err(plain)?;
        if kind_of(&stat) != Some(kind) {
            return Err(Reason::new("it became something else meanwhile"));
        }
        let name = None;
        Ok(OnHost {
            kind,
            stat,
            fd,
            name,
        })
    }

    pub(super) fn id(&self) -> Identity {
        Identity::of(&self.stat)
    }

    /// The file system that it is on.
    pub(super) fn device(&self) -> u64 {
        self.stat.st_dev
    }

    /// Whether it has other names.
    pub(super) fn is_shared(&self) -> bool {
        self.stat.st_nlink > 1
    }

    pub(super) fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }

    pub(super) fn rdev(&self) -> Rdev {
        Rdev {
            major: major(self.stat.st_rdev),
            minor: minor(self.stat.st_rdev),
        }
    }

    /// The target of a symbolic link.
    pub(super) fn target(&self) -> Result<Vec<u8>, Reason> {
        let name = self.name.as_deref().unwrap_or_default();
        let target = readlinkat(&self.fd, name, Vec::new()).map_err(plain)?;
        Ok(target.into_bytes())
    }

    /// The names in an open directory.
    pub(super) fn names(&self) -> Result<Vec<Name>, Reason> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(plain)? {
            let name = entry.map_err(plain)?.file_name().to_bytes().to_vec();
            names.push(Name { name, ino: None });
        }
        Ok(names)
    }

    /// Its metadata.
    pub(super) fn attributes(&self, xattrs: bool) -> Result<Attributes, Reason> {
        let time = |secs: i64, nanos: i64| Timestamp {
            secs,
            nanos: u32::try_from(nanos).unwrap_or(0),
        };
        let stat = &self.stat;
        let mode = u16::try_from(stat.st_mode & 0o7777).expect("masked to twelve bits");
        Ok(Attributes {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode,
            atime: time(stat.st_atime, stat.st_atime_nsec),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            xattrs: if xattrs { self.xattrs()? } else { Vec::new() },
        })
    }

    fn xattrs(&self) -> Result<Vec<Xattr>, Reason> {
        let fd = &self.fd;
        let Some(name) = &self.name else {
            return xattrs(|to| flistxattr(fd, to), |name, to| fgetxattr(fd, name, to));
        };
        // There is no such call relative to a directory; /proc/self/fd gives a path to the open directory.
        let mut place = format!("/proc/self/fd/{}/", fd.as_raw_fd()).into_bytes();
        place.extend(name);
        let place = &place[..];
        let found = xattrs(
            |to| llistxattr(place, to),
            |name, to| lgetxattr(place, name, to),
        );
        found.map_err(|why| match has_procfs() {
            true => why,
            false => Reason::new(
                "its attributes cannot be read where /proc is not mounted (--no-xattrs leaves them out)",
            ),
        })
    }

    /// Fails if a file of size 0 has contents, as files in /proc have: its copy would be empty and wrong.
    pub(super) fn check_empty(&self) -> Result<(), Reason> {
        let mut first = [0];
        let is_empty = self.size() > 0
            || match pread(&self.fd, &mut first, 0) {
                Ok(read) => read == 0,
                Err(errno) => return Err(Reason::host("cannot read it", errno)),
            };
        let what = "it has contents and says that it is empty: copy it to a file first";
        is_empty.then_some(()).ok_or_else(|| Reason::new(what))
    }

    /// Reads all of `to` from `at`.
    pub(super) fn read(&self, to: &mut [u8], at: u64) -> Result<(), Reason> {
        let mut got = 0;
        while got < to.len() {
            match uncached::pread(&self.fd, &mut to[got..], at + got as u64) {
                Ok(0) => return Err(Reason::new(SHORTER)),
                Ok(n) => got += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Reason::host("cannot read it", errno)),
            }
        }
        Ok(())
    }

    /// The ranges of an open file that hold data, without the holes; start and end rounded outwards to `unit`, in order, not
    /// adjacent.
    pub(super) fn data(&self, unit: u64) -> Result<Vec<Range<u64>>, Reason> {
        let size = self.size();
        let held = u64::try_from(self.stat.st_blocks)
            .unwrap_or(0)
            .saturating_mul(512);
        if held >= size {
            return Ok(std::iter::once(0..size).filter(|r| !r.is_empty()).collect());
        }
        let (mut ranges, mut at): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
        while at < size {
            let from = match seek(&self.fd, SeekFrom::Data(at)) {
                Ok(from) => from.max(at),
                // No more data.
                Err(Errno::NXIO) => break,
                Err(Errno::INVAL) => at,
                Err(errno) => return Err(plain(errno)),
            };
            let to = match seek(&self.fd, SeekFrom::Hole(from)) {
                Ok(to) if to > from => to.min(size),
                Ok(_) | Err(Errno::INVAL | Errno::NXIO) => size,
                Err(errno) => return Err(plain(errno)),
            };
            at = to;
            let rounded = from - from % unit..to.next_multiple_of(unit).min(size);
            match ranges.last_mut() {
                Some(last) if last.end >= rounded.start => last.end = rounded.end,
                _ if rounded.is_empty() => {}
                _ => ranges.push(rounded),
            }
        }
        Ok(ranges)
    }
}

impl Identity {
    /// The identity of an open file.
    pub(in super::super) fn of_open(fd: impl AsFd) -> Option<Identity> {
        Some(Identity::of(&fstat(fd).ok()?))
    }

    /// The identity of the file that a path of the host leads to.
    pub(in super::super) fn of_path(path: &Path) -> Option<Identity> {
        Some(Identity::of(&statat(CWD, path, AtFlags::empty()).ok()?))
    }

    fn of(stat: &Stat) -> Identity {
        Identity::Host {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

fn kind_of(stat: &Stat) -> Option<FileType> {
    use rustix::fs::FileType as Host;
    Some(match Host::from_raw_mode(stat.st_mode) {
        Host::RegularFile => FileType::Regular,
        Host::Directory => FileType::Directory,
        Host::Symlink => FileType::Symlink,
        Host::Fifo => FileType::Fifo,
        Host::Socket => FileType::Socket,
        Host::CharacterDevice => FileType::CharDevice,
        Host::BlockDevice => FileType::BlockDevice,
        Host::Unknown => return None,
    })
}

/// Opens the directory that a name is in; returns it and the last part of the name, which is a path for a SOURCE of the command
/// line.
fn holder(dir: BorrowedFd<'_>, name: &[u8]) -> Result<(OwnedFd, Vec<u8>), Errno> {
    let cut = name.iter().rposition(|c| *c == b'/').map_or(0, |at| at + 1);
    let (above, last) = name.split_at(cut);
    let above: &[u8] = if above.is_empty() { b"." } else { above };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((openat(dir, above, flags, Mode::empty())?, last.to_vec()))
}

/// Opens a file or a directory, with O_NOATIME if the host allows that.
fn open(dir: BorrowedFd<'_>, name: &[u8], is_dir: bool) -> Result<OwnedFd, Errno> {
    let mut flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    if is_dir {
        flags |= OFlags::DIRECTORY;
    }
    match openat(dir, name, flags | OFlags::NOATIME, Mode::empty()) {
        // Only the owner and root may use O_NOATIME.
        Err(Errno::PERM) => openat(dir, name, flags, Mode::empty()),
        opened => opened,
    }
}

fn plain(errno: Errno) -> Reason {
    Reason::new(crate::output::report::errno_text(errno))
}

/// All attributes that this process may read.
fn xattrs(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<Xattr>, Reason> {
    let mut names = vec![0; MOST_XATTR];
    let len = match list(&mut names) {
        Ok(len) => len,
        // The file system has no attributes.
        Err(Errno::OPNOTSUPP | Errno::PERM) => 0,
        Err(errno) => return Err(plain(errno)),
    };
    let mut all = Vec::new();
    for name in names[..len].split(|b| *b == 0).filter(|n| !n.is_empty()) {
        let mut value = vec![0; MOST_XATTR];
        match get(name, &mut value) {
            Ok(len) => {
                value.truncate(len);
                let name = name.to_vec();
                all.push(Xattr { name, value });
            }
            // Removed meanwhile, or not readable by this process.
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS | Errno::PERM) => {}
            Err(errno) => return Err(plain(errno)),
        }
    }
    Ok(all)
}
