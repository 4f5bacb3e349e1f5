//! The end that is written: an existing device or file, or a file that is made for the copy.
//!
//! Input: a locator, the size of the copy. Output: a [`Target`], open for writing. Invariants: a new file has no name until
//! [`Target::finish`], which first makes it durable, or on a host without nameless files a temporary one that goes with a failure; an
//! existing one keeps its size, and is long enough before a byte is written. Limits: the parameters of a locator are for existing files.

use crate::args::CopyArgs;
use crate::cmd::copy::ends::of;
use crate::device::{self, Opened};
use crate::image::NEW_FILE;
use crate::names::above;
use crate::report::Reason;
use diorite::{Error, OpenFlags, OpenOptions, Volume};
use diorite_block::Locator;
use diorite_block::locator::FileLocator;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, fsync, ftruncate, linkat, open, openat, renameat_with,
    unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// See the module.
pub(super) struct Target {
    pub(super) opened: Opened,
    /// The file is all zeros: it was made for the copy.
    pub(super) is_new: bool,
    name: String,
    kind: Kind,
}

/// What has to be done when everything was written.
enum Kind {
    /// Nothing: a device.
    Device,
    /// A file of the host that had this size.
    HostFile(OwnedFd, u64),
    /// A new file of the host.
    HostNew(HostNew),
    /// A file of a volume, which is to have this size.
    Inside(u64),
    /// A new file of a volume, which is to have this path and size.
    InsideNew(String, u64),
}

/// A new file of the host without its name.
struct HostNew {
    fd: OwnedFd,
    dir: OwnedFd,
    name: OsString,
    /// The name that it has meanwhile; none if the host can do without.
    temporary: Option<OsString>,
    size: u64,
}

impl Drop for HostNew {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary {
            // Best effort: the message of the failure says that there is no copy.
            let _ = unlinkat(&self.dir, name, AtFlags::empty());
        }
    }
}

/// A file or device of the host, or memory.
pub(super) fn on_host(
    locator: &Locator,
    args: &CopyArgs,
    size: u64,
    options: &OpenOptions,
) -> Result<Target, Reason> {
    if let Locator::File(file) = locator {
        match file.path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !args.no_create => {
                return new_on_host(file, args, size, options);
            }
            _ => {}
        }
    }
    let opened = device::open(locator, options).map_err(|e| of(&args.target, &e))?;
    enough(&opened, args, size)?;
    let kind = match locator {
        Locator::File(file) if file.path.is_file() => {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let fd = open(&file.path, flags, Mode::empty());
            let fd = fd.map_err(|e| Reason::host(&args.target, e))?;
            let had = rustix::fs::fstat(&fd).map_err(|e| Reason::host(&args.target, e))?;
            Kind::HostFile(fd, u64::try_from(had.st_size).unwrap_or(0))
        }
        _ => Kind::Device,
    };
    Ok(Target {
        opened,
        is_new: false,
        name: args.target.clone(),
        kind,
    })
}

fn enough(opened: &Opened, args: &CopyArgs, size: u64) -> Result<(), Reason> {
    if opened.size >= size {
        return Ok(());
    }
    Err(Reason::new(format!(
        "{}: it has {} bytes, but {} has {size}; nothing was changed. Make it larger, or name a file that does not exist yet",
        args.target, opened.size, args.source
    )))
}

fn new_on_host(
    file: &FileLocator,
    args: &CopyArgs,
    size: u64,
    options: &OpenOptions,
) -> Result<Target, Reason> {
    let whole = FileLocator {
        path: file.path.clone(),
        ..FileLocator::default()
    };
    if *file != whole {
        let why = "there is no such file, and a file to be created has no parameters";
        return Err(Reason::new(format!("{}: {why}", args.target)));
    }
    let failed = |what: &str, errno| Reason::host(format!("{}: cannot {what}", args.target), errno);
    let new = HostNew::make(&file.path, size).map_err(|e| failed("create it", e))?;
    ftruncate(&new.fd, size).map_err(|e| failed(&format!("make it {size} bytes long"), e))?;
    let place = Locator::file(nameless_at(&new.fd));
    let mut opened = device::open(&place, options).map_err(|e| of(&args.target, &e))?;
    opened.size = size;
    Ok(Target {
        opened,
        is_new: true,
        name: args.target.clone(),
        kind: Kind::HostNew(new),
    })
}

/// A path of an open file without a name.
fn nameless_at(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

impl HostNew {
    fn make(path: &Path, size: u64) -> Result<HostNew, Errno> {
        HostNew::make_in(path, size, Path::new("/proc/self/fd").exists())
    }

    /// `nameless`: without a name, if the file system can do that.
    fn make_in(path: &Path, size: u64, nameless: bool) -> Result<HostNew, Errno> {
        let name = path.file_name().ok_or(Errno::ISDIR)?.to_owned();
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = open(parent.unwrap_or(Path::new(".")), flags, Mode::empty())?;
        let mode = Mode::from_raw_mode(0o666);
        let ways = OFlags::RDWR | OFlags::CLOEXEC;
        let nameless = nameless.then(|| openat(&dir, ".", ways | OFlags::TMPFILE, mode).ok());
        let (fd, temporary) = match nameless.flatten() {
            Some(fd) => (fd, None),
            None => {
                let temporary = beside(&name);
                let flags = ways | OFlags::CREATE | OFlags::EXCL;
                (openat(&dir, &temporary, flags, mode)?, Some(temporary))
            }
        };
        Ok(HostNew {
            fd,
            dir,
            name,
            temporary,
            size,
        })
    }

    /// Makes the file and then its name durable.
    fn finish(mut self) -> Result<(), Errno> {
        ftruncate(&self.fd, self.size)?;
        fsync(&self.fd)?;
        match &self.temporary {
            Some(temporary) => {
                let keep = RenameFlags::NOREPLACE;
                renameat_with(&self.dir, temporary, &self.dir, &self.name, keep)?;
                self.temporary = None;
            }
            None => {
                let place = nameless_at(&self.fd);
                linkat(CWD, place, &self.dir, &self.name, AtFlags::SYMLINK_FOLLOW)?;
            }
        }
        fsync(&self.dir)
    }
}

/// The name of a new file of the host until it is complete.
fn beside(name: &OsStr) -> OsString {
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".copy~{}", std::process::id()));
    beside
}

/// A file in the last of these volumes.
pub(super) fn inside(
    volumes: Vec<Volume>,
    path: &str,
    locator: &Locator,
    args: &CopyArgs,
    size: u64,
) -> Result<Target, Reason> {
    let failed = |error: &Error| of(&args.target, error);
    let holder = volumes.last().expect("a file is in a volume");
    let flags = OpenFlags {
        write: true,
        ..OpenFlags::default()
    };
    let (file, is_new) = match holder.open_path(path, flags) {
        Err(Error::NotFound { .. }) if !args.no_create && !path.contains('?') => {
            let near = above(path.as_bytes());
            let file = holder.temporary(near, NEW_FILE).map_err(|e| failed(&e))?;
            (file, true)
        }
        found => (found.map_err(|e| failed(&e))?, false),
    };
    if !file.metadata().is_file() {
        return Err(Reason::new(format!(
            "{}: it is no regular file",
            args.target
        )));
    }
    let had = file.size();
    let size = had.max(size);
    if had < size {
        file.truncate(size).map_err(|e| failed(&e))?;
    }
    let kind = match is_new {
        true => Kind::InsideNew(path.to_owned(), size),
        false => Kind::Inside(size),
    };
    Ok(Target {
        opened: device::of_file(volumes, file, locator),
        is_new,
        name: args.target.clone(),
        kind,
    })
}

impl Target {
    /// Gives a complete copy its size and its name, makes that durable, and closes the volumes that it is in.
    pub(super) fn finish(self) -> Result<(), Reason> {
        let Target {
            opened, name, kind, ..
        } = self;
        let of_host = |errno| Reason::host(&name, errno);
        let of_image = |error: Error| of(&name, &error);
        match kind {
            Kind::Device => {}
            Kind::HostFile(fd, size) => {
                shrink_to(&fd, size).map_err(of_host)?;
            }
            Kind::HostNew(new) => {
                drop(opened);
                return new.finish().map_err(of_host);
            }
            Kind::Inside(size) => {
                let file = opened.file.as_ref().expect("it is a file in a volume");
                let fits = match file.size() > size {
                    true => file.truncate(size).and_then(|()| file.sync()),
                    false => file.sync(),
                };
                fits.map_err(of_image)?;
            }
            Kind::InsideNew(path, size) => {
                let file = opened.file.as_ref().expect("it is a file in a volume");
                let holder = opened.volumes.last().expect("a file is in a volume");
                file.truncate(size).map_err(of_image)?;
                file.sync().map_err(of_image)?;
                holder.link_file(file, &path[..]).map_err(of_image)?;
            }
        }
        opened.close().map_err(of_image)
    }

    /// Closes the volumes that a failed copy is in. A new file that has no name is deleted with them.
    pub(super) fn abandon(self) -> Result<(), Reason> {
        let name = self.name;
        self.opened.close().map_err(|error| of(&name, &error))
    }
}

/// The last sector of a file that ends within one was written whole.
fn shrink_to(fd: &OwnedFd, size: u64) -> Result<(), Errno> {
    let now = rustix::fs::fstat(fd)?.st_size;
    if u64::try_from(now).unwrap_or(0) > size {
        ftruncate(fd, size)?;
        fsync(fd)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that got the name meanwhile is not replaced, and nothing else is left, whether or not the host has nameless files.
    #[test]
    fn a_name_that_is_taken_meanwhile_is_kept() {
        for nameless in [true, false] {
            let dir = tempfile::tempdir().expect("a scratch directory");
            let path = dir.path().join("new");
            let names = || {
                let all = std::fs::read_dir(dir.path()).expect("it can be read");
                let names = all.map(|e| e.expect("an entry").file_name());
                names.collect::<Vec<_>>()
            };
            let make = || HostNew::make_in(&path, 5, nameless).expect("a new file");
            drop(make());
            assert!(names().is_empty(), "{nameless}");
            make().finish().expect("a free name");
            assert_eq!(std::fs::read(&path).expect("a copy"), [0; 5]);
            std::fs::remove_file(&path).expect("ours");
            let new = make();
            std::fs::write(&path, "other").expect("a file of somebody else");
            assert_eq!(new.finish(), Err(Errno::EXIST), "{nameless}");
            assert_eq!(std::fs::read(&path).expect("theirs"), b"other");
            assert_eq!(names(), ["new"], "{nameless}");
        }
    }
}
