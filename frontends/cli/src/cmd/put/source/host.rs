//! The host's side: what a name in an open directory is, what it has, and where its data is.
//!
//! Input: directories of the host, names. Output: types, attributes, ranges of data. Invariants: links are never followed, but in a
//! SOURCE that ends with a slash; what is opened is what was looked at. Limits: a host without SEEK_DATA shows no holes.

use super::{Attributes, Identity, Name};
use crate::flow::SHORTER;
use crate::report::Reason;
use diorite::xattr::Xattr;
use diorite_format::inode::Rdev;
use diorite_format::{FileType, Timestamp};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, SeekFrom, Stat, fgetxattr, flistxattr, fstat, lgetxattr,
    llistxattr, major, minor, openat, readlinkat, seek, statat,
};
use rustix::io::{Errno, pread};
use std::ops::Range;
use std::path::Path;

/// The largest list of attribute names, and the largest value, that Linux has.
const MOST_XATTR: usize = 64 << 10;

/// What a name on the host stands for.
pub(super) struct OnHost {
    pub(super) kind: FileType,
    stat: Stat,
    /// It, open, if it is a file or a directory; else the directory that it is in.
    fd: OwnedFd,
    /// Its name there, unless it is open.
    name: Option<Vec<u8>>,
}

impl OnHost {
    /// A SOURCE of the command line.
    pub(super) fn of_path(path: &[u8]) -> Result<OnHost, Reason> {
        OnHost::find(CWD, path)
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
        // A pipe that has taken its place meanwhile is not waited for, and not read.
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

    /// It has other names.
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

    /// What a symbolic link says.
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

    /// What it has besides its data.
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
        // There is no such call relative to a directory; /proc leads to the one that is open.
        let mut place = format!("/proc/self/fd/{}/", fd.as_raw_fd()).into_bytes();
        place.extend(name);
        let place = &place[..];
        xattrs(
            |to| llistxattr(place, to),
            |name, to| lgetxattr(place, name, to),
        )
    }

    /// Files of the kernel's (/proc) have contents and say that they are empty: an empty copy would be none.
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
            match pread(&self.fd, &mut to[got..], at + got as u64) {
                Ok(0) => return Err(Reason::new(SHORTER)),
                Ok(n) => got += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Reason::host("cannot read it", errno)),
            }
        }
        Ok(())
    }

    /// Where the data of an open file is, hole by hole left out; rounded down and out to `unit`, in order, not touching.
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
    /// What is open.
    pub(in super::super) fn of_open(fd: impl AsFd) -> Option<Identity> {
        Some(Identity::of(&fstat(fd).ok()?))
    }

    /// The file that a path of the host leads to.
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

/// The directory that a name is in, open, and the name there: a path of the command line has its own.
fn holder(dir: BorrowedFd<'_>, name: &[u8]) -> Result<(OwnedFd, Vec<u8>), Errno> {
    let cut = name.iter().rposition(|c| *c == b'/').map_or(0, |at| at + 1);
    let (above, last) = name.split_at(cut);
    let above: &[u8] = if above.is_empty() { b"." } else { above };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((openat(dir, above, flags, Mode::empty())?, last.to_vec()))
}

/// Opens what is a file or a directory, without leaving a trace where the host allows that.
fn open(dir: BorrowedFd<'_>, name: &[u8], is_dir: bool) -> Result<OwnedFd, Errno> {
    let mut flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    if is_dir {
        flags |= OFlags::DIRECTORY;
    }
    match openat(dir, name, flags | OFlags::NOATIME, Mode::empty()) {
        // Only the owner may ask for that.
        Err(Errno::PERM) => openat(dir, name, flags, Mode::empty()),
        opened => opened,
    }
}

fn plain(errno: Errno) -> Reason {
    Reason::new(crate::report::errno_text(errno))
}

/// All attributes that we may see.
fn xattrs(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<Xattr>, Reason> {
    let mut names = vec![0; MOST_XATTR];
    let len = match list(&mut names) {
        Ok(len) => len,
        // None are possible there.
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
            // Gone meanwhile, or not for us.
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS | Errno::PERM) => {}
            Err(errno) => return Err(plain(errno)),
        }
    }
    Ok(all)
}
