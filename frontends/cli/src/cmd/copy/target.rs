//! The end that is written: an existing device or file, or a file that is made for the copy.
//!
//! Input: a locator, the size of the copy. Output: a [`Target`], open for writing. Invariants: a new file has no name until
//! [`Target::finish`], which first makes it durable, or on a host without nameless files a temporary one that goes with a failure; an
//! existing one keeps its size, and is long enough before a byte is written. Limits: the parameters of a locator are for existing files.

use crate::args::CopyArgs;
use crate::cmd::copy::ends::of;
use crate::host::new_file::{self, IfTaken, NewFile, Unfinished};
use crate::images::device::{self, Opened};
use crate::images::image::NEW_FILE;
use crate::images::location::Step;
use crate::output::report::Reason;
use crate::targets::new_image;
use crate::targets::replace;
use crate::words::names::above;
use diorite::{Error, OpenFlags, OpenOptions, Volume};
use diorite_block::locator::{FileLocator, ImageFormat, Part};
use diorite_block::{Locator, open_storage};
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, fsync, ftruncate};
use rustix::io::Errno;

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
    HostNew(NewFile),
    /// A new file of the host whose length is not that of the disk in it.
    Qcow2New(NewFile),
    /// A file of a volume, which is to have this size.
    Inside(u64),
    /// A new file of a volume, which is to have this path and size.
    InsideNew(String, u64),
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
    replace::ask_of_device(&args.target, locator, &opened, args.force)
        .map_err(|why| Reason::new(format!("{}: {why}", args.target)))?;
    let kind = match locator {
        Locator::File(file) if file.path.is_file() && !file.is_qcow2() => {
            let fd = open_storage(&file.path, OFlags::WRONLY)
                .map_err(|e| Reason::new(format!("{}: {e}", args.target)))?;
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
    new_image::check_parameters(file)
        .map_err(|why| Reason::new(format!("{}: there is no such file, and {why}", args.target)))?;
    let failed = |what: &str, errno| Reason::host(format!("{}: cannot {what}", args.target), errno);
    let format = file.format_of_new();
    let at = new_file::target(&file.path);
    let at = at.map_err(|why| Reason::new(format!("{}: {why}", args.target)))?;
    let new = NewFile::make(&at).map_err(|e| failed("create it", e))?;
    if format == ImageFormat::Qcow2 {
        return new_qcow2(new, args, size, options);
    }
    let sized = new.set_len(size);
    sized.map_err(|e| failed(&format!("make it {size} bytes long"), e))?;
    let mut opened =
        device::open(&Locator::file(new.path()), options).map_err(|e| of(&args.target, &e))?;
    opened.size = size;
    Ok(Target {
        opened,
        is_new: true,
        name: args.target.clone(),
        kind: Kind::HostNew(new),
    })
}

fn new_qcow2(
    new: NewFile,
    args: &CopyArgs,
    size: u64,
    options: &OpenOptions,
) -> Result<Target, Reason> {
    let opened = new_image::qcow2(&new, size, options);
    let opened = opened.map_err(|why| Reason::new(format!("{}: {why}", args.target)))?;
    Ok(Target {
        opened,
        is_new: true,
        name: args.target.clone(),
        kind: Kind::Qcow2New(new),
    })
}

/// A file in the last of these volumes.
pub(super) fn inside(
    volumes: Vec<Volume>,
    Step { path, part }: &Step,
    locator: &Locator,
    args: &CopyArgs,
    size: u64,
) -> Result<Target, Reason> {
    let failed = |error: &Error| of(&args.target, error);
    let holder = volumes.last().expect("a file is in a volume");
    let flags = OpenFlags::writable();
    let is_whole = *part == Part::default();
    let (file, is_new) = match holder.open_path(path, flags) {
        Err(Error::NotFound { .. }) if !args.no_create && is_whole && !path.contains('?') => {
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
    if !is_whole {
        let opened = device::of_file(volumes, file, part, locator).map_err(|e| failed(&e))?;
        enough(&opened, args, size)?;
        return Ok(Target {
            opened,
            is_new: false,
            name: args.target.clone(),
            kind: Kind::Device,
        });
    }
    let had = file.size();
    let size = had.max(size);
    if had < size {
        file.truncate(size).map_err(|e| failed(&e))?;
    }
    let kind = match is_new {
        true => Kind::InsideNew(path.clone(), size),
        false => Kind::Inside(size),
    };
    Ok(Target {
        opened: device::of_file(volumes, file, part, locator).map_err(|e| failed(&e))?,
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
        let of_new = |why: Unfinished| Reason::new(format!("{name}: {why}"));
        let of_image = |error: Error| of(&name, &error);
        match kind {
            Kind::Device => {}
            Kind::HostFile(fd, size) => {
                shrink_to(&fd, size).map_err(of_host)?;
            }
            Kind::HostNew(new) => {
                let size = opened.size;
                drop(opened);
                new.set_len(size).map_err(of_host)?;
                return new.finish(IfTaken::Keep).map_err(of_new);
            }
            Kind::Qcow2New(new) => {
                drop(opened);
                return new.finish(IfTaken::Keep).map_err(of_new);
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
