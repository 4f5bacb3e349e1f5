//! Copies one entry of a directory to the host, as the same type of file.
//!
//! Input: a host directory, a checked name, an inode. Output: a file with requests in flight, a directory to walk, a link, a
//! device. Invariants: an existing file is never written to: it is unlinked, and the new file is created with O_EXCL; a file
//! with one name gets it when all of its readable data has been copied; only mapped, written blocks are read and written.
//! Limits: the copy of a file stops with an error if the file maps more blocks than its volume has.

use super::Copier;
use super::data::Copying;
use super::meta::At;
use super::place::refuse_held;
use super::tree::Dir;
use crate::output::report::Reason;
use crate::walking::extents::Written;
use diorite::File;
use diorite_format::{FileType, Inode};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ftruncate, linkat, makedev, mkdirat, mknodat, openat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;
use std::rc::Rc;

/// The mode of a copy until its own is set.
const PRIVATE_FILE: Mode = Mode::from_raw_mode(0o600);
const PRIVATE_DIR: Mode = Mode::from_raw_mode(0o700);

impl Copier<'_> {
    /// Copies `file`, whose name in the image is `name`, to `host` in `dir`. Returns a directory whose contents are to be
    /// copied.
    pub(super) fn item(
        &mut self,
        dir: &Rc<Dir>,
        host: &[u8],
        name: &[u8],
        file: &File,
    ) -> Option<Rc<Dir>> {
        let made = match file.metadata().file_type {
            Some(FileType::Directory) => self.directory(dir, host, name, file).map(Some),
            _ if self.linked(dir, host, name, file) => Ok(None),
            Some(FileType::Regular) => self.regular(dir, host, name, file).map(|()| None),
            kind => self.special(dir, host, name, file, kind).map(|()| None),
        };
        self.progress.entry(self.flow.bytes());
        made.unwrap_or_else(|reason| {
            self.fail(dir, name, reason);
            None
        })
    }

    fn directory(
        &mut self,
        dir: &Rc<Dir>,
        host: &[u8],
        name: &[u8],
        file: &File,
    ) -> Result<Rc<Dir>, Reason> {
        match mkdirat(&dir.fd, host, PRIVATE_DIR) {
            Ok(()) => self.tell_in(dir, host, name),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(Reason::host("cannot make the directory", errno)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&dir.fd, host, flags, Mode::empty()).map_err(|e| match e {
            Errno::NOTDIR | Errno::LOOP => Reason::new("what is there already is not a directory"),
            e => Reason::host("cannot open the directory", e),
        })?;
        let id = self.names.add(dir.id, name, (host, &fd))?;
        Ok(Dir::new(
            fd,
            id,
            Some(dir.clone()),
            Some(file.metadata().as_ref().clone()),
        ))
    }

    /// Starts the copy of a regular file; it is finished when its last request ends.
    fn regular(
        &mut self,
        dir: &Rc<Dir>,
        host: &[u8],
        name: &[u8],
        file: &File,
    ) -> Result<(), Reason> {
        let id = self.flow.attach(file)?;
        let nameless = self.nameless && file.metadata().links <= 1;
        let out = match nameless.then(|| open_nameless(dir)).flatten() {
            Some(out) => Ok((out, true)),
            None => open_named(dir, host).map(|out| (out, false)),
        };
        let sized = out.and_then(|out| match ftruncate(&out.0, file.size()) {
            Ok(()) => Ok(out),
            Err(errno) => Err(Reason::host(
                format!("cannot make it {} bytes long", file.size()),
                errno,
            )),
        });
        let out = match sized {
            Ok(out) => out,
            Err(reason) => {
                self.flow.detach(id);
                return Err(reason);
            }
        };
        self.links.remember(&file.metadata(), dir.id, host);
        let copying = Rc::new(Copying::new(
            file.clone(),
            id,
            out,
            dir.clone(),
            (name, host),
        ));
        self.feed(&copying);
        self.end_copy(copying);
        Ok(())
    }

    /// Submits reads of every written range of the file.
    fn feed(&mut self, copying: &Rc<Copying>) {
        for range in Written::of(self.volume, &copying.file) {
            match range {
                Ok(range) => self.request(copying, range.start, range.end),
                Err(reason) => copying.failed(reason),
            }
        }
    }

    /// Submits reads of a range of bytes, in pieces, as bufs become free.
    fn request(&mut self, copying: &Rc<Copying>, mut from: u64, until: u64) {
        while from < until && !copying.has_failed() {
            match self.flow.read(copying, from, until) {
                Some(next) => from = next,
                None => self.take_ended(true),
            }
        }
    }

    /// Handles the ended requests; with `wait`, waits for at least one.
    pub(super) fn take_ended(&mut self, wait: bool) {
        for copying in self.flow.ended(wait) {
            self.end_copy(copying);
        }
    }

    /// Waits for all requests in flight and finishes their files.
    pub(super) fn finish_all(&mut self) {
        while self.flow.is_busy() {
            self.take_ended(true);
        }
    }

    /// Drops a reference to a file; the last one finishes it.
    fn end_copy(&mut self, copying: Rc<Copying>) {
        let Some(done) = Rc::into_inner(copying) else {
            return;
        };
        let path = self.names.path(done.dir.id, &done.name);
        // Before its metadata, whose change would be the first to hear of it.
        done.end_writes();
        self.meta.set_open(
            self.volume,
            &mut self.report,
            &done.out,
            &done.file.metadata(),
            &path,
        );
        self.flow.detach(done.id);
        self.progress.file(self.flow.bytes());
        let named = done.get_name();
        let trouble = done.trouble.take();
        if trouble.is_none() && named.is_ok() {
            self.tell_in(&done.dir, &done.host, &done.name);
        }
        if let Some(reason) = trouble {
            let what = match named {
                Ok(true) => "the copy is not complete",
                _ => "there is no copy",
            };
            self.report
                .file(&path, Reason::new(format!("{reason} ({what})")));
        } else if let Err(reason) = named {
            self.report.file(&path, reason);
        }
        self.release(done.dir);
    }

    /// Prints with -v that the copy `host` of `name` is complete.
    pub(super) fn tell_in(&self, dir: &Dir, host: &[u8], name: &[u8]) {
        if self.prefix.is_some() {
            let path = self.names.path(dir.id, name);
            self.tell(&path, &self.names.host_path(dir.id, host));
        }
    }

    /// Copies a symbolic link, pipe, socket or device.
    fn special(
        &mut self,
        dir: &Rc<Dir>,
        host: &[u8],
        name: &[u8],
        file: &File,
        kind: Option<FileType>,
    ) -> Result<(), Reason> {
        let inode = &*file.metadata();
        if kind == Some(FileType::Symlink) {
            let target = self.volume.read_link(inode.ino)?;
            replace(dir, host, |dir| symlinkat(&target[..], &dir.fd, host))?;
        } else {
            let mode = self.meta.mode(inode.mode, false);
            make_node(dir, host, inode, (kind, mode))?;
        }
        self.links.remember(inode, dir.id, host);
        let path = self.names.path(dir.id, name);
        let at = At {
            dir: &dir.fd,
            name: host,
        };
        self.meta
            .set_at(self.volume, &mut self.report, &at, inode, &path);
        self.tell_in(dir, host, name);
        Ok(())
    }
}

fn make_node(
    dir: &Dir,
    host: &[u8],
    inode: &Inode,
    (kind, mode): (Option<FileType>, u16),
) -> Result<(), Reason> {
    let kind = match kind {
        Some(FileType::Fifo) => rustix::fs::FileType::Fifo,
        Some(FileType::Socket) => rustix::fs::FileType::Socket,
        Some(FileType::CharDevice) => rustix::fs::FileType::CharacterDevice,
        Some(FileType::BlockDevice) => rustix::fs::FileType::BlockDevice,
        _ => {
            return Err(Reason::new(
                "it has no file type: the inode is corrupt, run e2fsck",
            ));
        }
    };
    let mode = Mode::from_raw_mode(u32::from(mode));
    let device = inode.rdev().map_or(0, |r| makedev(r.major, r.minor));
    let made = replace(dir, host, |dir| mknodat(&dir.fd, host, kind, mode, device));
    if inode.rdev().is_some() {
        return made.map_err(|e| Reason::new(format!("{e} (devices can be made by root only)")));
    }
    made
}

/// Creates a copy without a name (O_TMPFILE); none if the host's file system has no such files.
fn open_nameless(dir: &Dir) -> Option<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    openat(&dir.fd, ".", flags, PRIVATE_FILE).ok()
}

fn open_named(dir: &Dir, host: &[u8]) -> Result<OwnedFd, Reason> {
    replace(dir, host, |dir| {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&dir.fd, host, flags, PRIVATE_FILE)
    })
}

impl Copying {
    /// Gives a nameless copy its name; false if it stays without one, because it could not be written.
    fn get_name(&self) -> Result<bool, Reason> {
        if !self.is_nameless {
            return Ok(true);
        }
        if self.is_lost.get() {
            return Ok(false);
        }
        let place = nameless_at(&self.out);
        let follow = AtFlags::SYMLINK_FOLLOW;
        replace(&self.dir, &self.host, |dir| {
            linkat(CWD, &*place, &dir.fd, &*self.host, follow)
        })?;
        Ok(true)
    }
}

/// A path of an open file without a name.
fn nameless_at(out: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", out.as_raw_fd())
}

/// Creates a file under a name; an existing file that is not a directory is removed first.
fn replace<T>(
    dir: &Dir,
    host: &[u8],
    make: impl Fn(&Dir) -> Result<T, Errno>,
) -> Result<T, Reason> {
    let made = match make(dir) {
        Err(Errno::EXIST) => {
            make_way(dir, host)?;
            make(dir)
        }
        made => made,
    };
    made.map_err(|e| Reason::host("cannot make it", e))
}

/// Removes the file with this name, unless it is a directory, an image that is in use, or a link to one of these.
pub(super) fn make_way(dir: &Dir, host: &[u8]) -> Result<(), Reason> {
    let look = OFlags::PATH | OFlags::CLOEXEC;
    for flags in [look | OFlags::NOFOLLOW, look] {
        // A file that cannot be opened with O_PATH is not an image that this process has open.
        if let Ok(there) = openat(&dir.fd, host, flags, Mode::empty()) {
            refuse_held(there)?;
        }
    }
    match unlinkat(&dir.fd, host, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => Err(Reason::new("a directory is in its way")),
        Err(errno) => Err(Reason::host("cannot replace what is there", errno)),
    }
}
