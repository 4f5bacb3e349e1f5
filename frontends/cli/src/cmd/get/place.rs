//! Determines where copies go, with DEST as `cp -a` understands it.
//!
//! Input: DEST, and a PATH of the command line. Output: an open host directory and the name in it, or a descriptor for the
//! bytes of a file. Invariants: links in DEST itself are followed, because the user gave them, if they lead to a file and a file is
//! copied; links below DEST are not; a file that is open as an image is refused. Limits: a PATH that ends in `..`, or is the root,
//! has no name of its own: its contents go into DEST.

use crate::host::new_file::{check_not_among_devices, file_name};
use crate::output::check_open;
use crate::output::report::Reason;
use crate::words::names::{join, last_name};
use diorite_block::held_as;
use diorite_format::FileType as FileKind;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, fstat, fstatfs, ftruncate, open,
    openat, readlinkat, statat,
};
use rustix::io::{Errno, dup};
use rustix::stdio::{stderr, stdout};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The destination of one PATH.
pub(super) enum Place {
    /// A name in a directory.
    Inside {
        /// The directory.
        parent: OwnedFd,
        /// The name.
        host: Vec<u8>,
        /// Its path as the command line has it.
        shown: Vec<u8>,
    },
    /// This directory itself: the contents of PATH go into it.
    Whole(OwnedFd),
    /// A descriptor that takes the bytes in order: of a device, a pipe, or the target of `/dev/stdout`.
    Into(OwnedFd),
}

/// Whether DEST is standard output: `-`. A file with this name is given as `./-`.
pub(super) fn is_stdout(dest: &Path) -> bool {
    dest == Path::new("-")
}

/// Chooses the place of the copy of `path`.
pub(super) fn choose(
    dest: &Path,
    path: &[u8],
    many: bool,
    source: Option<FileKind>,
) -> Result<Place, Reason> {
    let is_dir = source == Some(FileKind::Directory);
    let shown = dest.display();
    if is_stdout(dest) {
        let fd = check_open().and_then(|()| dup(stdout()));
        let fd = fd.map_err(|errno| Reason::host("standard output", errno))?;
        return refuse_held(fd).map(Place::Into);
    }
    let kind = match statat(CWD, dest, AtFlags::empty()) {
        Ok(stat) => Some(FileType::from_raw_mode(stat.st_mode)),
        Err(Errno::NOENT) => None,
        // A link that leads in circles is replaced by what is no file, as any other link.
        Err(Errno::LOOP) if !has_bytes_or_names(source) => None,
        Err(errno) => return Err(Reason::host(shown, errno)),
    };
    if kind == Some(FileType::Directory) {
        let name = last_name(path);
        let fd = open_dir(dest)?;
        return Ok(match name {
            b"" | b"." | b".." => Place::Whole(fd),
            name => Place::Inside {
                parent: fd,
                host: name.to_vec(),
                shown: join(dest.as_os_str().as_bytes(), name),
            },
        });
    }
    if many {
        return Err(Reason::new(format!(
            "{shown}: Not a directory; several files need one to go into"
        )));
    }
    if kind.is_some() && is_dir {
        return Err(Reason::new(format!(
            "{shown}: Not a directory; a directory cannot replace it"
        )));
    }
    if !has_bytes_or_names(source) {
        // Anything else takes the place of what has the name, as with cp: a link there is replaced.
        check_no_device_is_lost(dest, source)?;
        let (parent, name) = split(CWD, dest).map_err(|errno| Reason::host(shown, errno))?;
        return Ok(inside(parent, name, dest));
    }
    let is_link = readlinkat(CWD, dest, Vec::new()).is_ok();
    if kind.is_none() && is_link {
        return Err(Reason::new(format!(
            "{shown}: not writing through a symbolic link that leads to nothing"
        )));
    }
    if kind.is_none() {
        check_not_among_devices(dest).map_err(|why| Reason::new(format!("{shown}: {why}")))?;
    }
    let is_file = kind.is_none_or(|k| k == FileType::RegularFile);
    match end_of_links(dest).map_err(|errno| Reason::host(shown, errno))? {
        End::Descriptor(fd) => refuse_held(fd).map(Place::Into),
        End::Name { parent, name } if is_file => Ok(inside(parent, name, dest)),
        End::Name { .. } | End::Process => open_for_bytes(dest).map(Place::Into),
    }
}

fn has_bytes_or_names(source: Option<FileKind>) -> bool {
    matches!(source, Some(FileKind::Regular | FileKind::Directory))
}

/// Refuses to replace a device node by a link, pipe or socket: the host would be without the device.
fn check_no_device_is_lost(dest: &Path, source: Option<FileKind>) -> Result<(), Reason> {
    let there = statat(CWD, dest, AtFlags::SYMLINK_NOFOLLOW);
    let kind = there.map(|stat| FileType::from_raw_mode(stat.st_mode));
    let is_device = matches!(kind, Ok(FileType::CharacterDevice | FileType::BlockDevice));
    match (is_device, source) {
        (false, _) | (true, Some(FileKind::CharDevice | FileKind::BlockDevice)) => Ok(()),
        (true, _) => Err(Reason::new(format!(
            "{}: it is a device, which only a device replaces",
            dest.display()
        ))),
    }
}

fn inside(parent: OwnedFd, host: Vec<u8>, dest: &Path) -> Place {
    Place::Inside {
        parent,
        host,
        shown: dest.as_os_str().as_bytes().to_vec(),
    }
}

/// The target of the symbolic links at the end of a path.
enum End {
    /// A name, whether or not a file has it.
    Name { parent: OwnedFd, name: Vec<u8> },
    /// Standard output or standard error of this process.
    Descriptor(OwnedFd),
    /// Another descriptor in /proc, for which no name stands.
    Process,
}

/// The maximum number of links that are followed, as in the kernel.
const MOST_LINKS: usize = 40;

/// Follows the links at the end of a path that does not lead to a directory.
fn end_of_links(path: &Path) -> Result<End, Errno> {
    let (mut parent, mut name) = split(CWD, path)?;
    for _ in 0..=MOST_LINKS {
        let target = match readlinkat(&parent, &name[..], Vec::new()) {
            Ok(target) => target,
            // The name is not a link, or does not exist.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(End::Name { parent, name }),
            Err(errno) => return Err(errno),
        };
        // The text of such a link cannot be used as a path: the file may have another name by now, or none.
        if fstatfs(&parent)?.f_type == PROC_SUPER_MAGIC {
            return Ok(standard_stream(&parent, &name)?.map_or(End::Process, End::Descriptor));
        }
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        (parent, name) = split(parent.as_fd(), target)?;
    }
    Err(Errno::LOOP)
}

fn split(at: impl AsFd, path: &Path) -> Result<(OwnedFd, Vec<u8>), Errno> {
    let name = file_name(path)?;
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty());
    let parent = openat(at, dir.unwrap_or(Path::new(".")), DIRECTORY, Mode::empty())?;
    Ok((parent, name.as_bytes().to_vec()))
}

/// Standard output or standard error, if a name in a directory of `/proc` stands for it. The descriptor is used itself, because
/// its offset is after earlier output; if it were opened again, writes would begin at offset 0.
fn standard_stream(parent: &OwnedFd, name: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    let at = readlinkat(
        CWD,
        format!("/proc/self/fd/{}", parent.as_raw_fd()),
        Vec::new(),
    )?;
    let at = Path::new(OsStr::from_bytes(at.as_bytes()));
    let ours = std::fs::canonicalize("/proc/self");
    let is_ours = at.ends_with("fd") && ours.is_ok_and(|process| at.starts_with(process));
    Ok(match name {
        b"1" if is_ours => {
            check_open()?;
            Some(dup(stdout())?)
        }
        b"2" if is_ours => Some(dup(stderr())?),
        _ => None,
    })
}

/// Opens DEST for bytes; a regular file is truncated.
fn open_for_bytes(dest: &Path) -> Result<OwnedFd, Reason> {
    let shown = dest.display();
    let failed = |errno| Reason::host(format!("cannot write into {shown}"), errno);
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = refuse_held(open(dest, flags, Mode::empty()).map_err(failed)?)?;
    let stat = fstat(&fd).map_err(failed)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => ftruncate(&fd, 0).map_err(failed)?,
        // O_EXCL refuses a device that the host has mounted.
        FileType::BlockDevice => {
            let flags = flags | OFlags::EXCL;
            let alone = open(dest, flags, Mode::empty()).map_err(failed)?;
            return refuse_held(alone);
        }
        _ => {}
    }
    Ok(fd)
}

/// Returns the descriptor; fails if its file is open as an image, or as the file or device below one.
pub(super) fn refuse_held<Fd: AsFd>(fd: Fd) -> Result<Fd, Reason> {
    match held_as(&fd) {
        Ok(None) => Ok(fd),
        Ok(Some(path)) => {
            let image = path.display();
            let why = format!("it would overwrite {image}, which is in use as an image");
            Err(Reason::new(why))
        }
        Err(error) => {
            let why = crate::output::report::without_number(&error.to_string());
            Err(Reason::new(format!(
                "cannot look at what would be overwritten: {why}"
            )))
        }
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

fn open_dir(path: &Path) -> Result<OwnedFd, Reason> {
    open(path, DIRECTORY, Mode::empty()).map_err(|e| Reason::host(path.display(), e))
}
