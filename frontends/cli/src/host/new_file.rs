//! A file of the host that is there whole or not at all.
//!
//! Input: the path that it is to have. Output: a file without its name, which gets it by [`NewFile::finish`]. Invariants: a process that is
//! killed leaves nothing behind on a host with nameless files, elsewhere a temporary name; what was at the path stays until the file is
//! whole; the name is durable after the bytes. Limits: blocks.

use crate::host::process::has_procfs;
use crate::output::report::errno_text;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown, fsync, ftruncate, linkat,
    open, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug)]
pub(crate) struct NewFile {
    fd: OwnedFd,
    dir: OwnedFd,
    name: OsString,
    /// The name that it has meanwhile; none if the host can do without.
    temporary: Option<OsString>,
    /// Where it can be opened meanwhile.
    place: PathBuf,
}

/// What happens to a file that has the name by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfTaken {
    /// It stays: that is an error.
    Keep,
    /// It is gone.
    Replace,
}

/// Why a file is not durable under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// There is no such file, or what was there.
    Unwritten(Errno),
    /// The same.
    Unnamed(Errno),
    /// What was there is gone.
    Replaced(Errno),
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, errno) = match self {
            Unfinished::Unwritten(errno) => ("it cannot be written", errno),
            Unfinished::Unnamed(errno) => ("it cannot be given its name", errno),
            Unfinished::Replaced(errno) => {
                let what = "the new one is in the place of the old one, but that is not durable";
                (what, errno)
            }
        };
        write!(f, "{what}: {}", errno_text(*errno))
    }
}

/// Where a file is to be that is named by a path: what a link leads to. What is there already has to be a regular file.
pub(crate) fn target(path: &Path) -> Result<PathBuf, String> {
    let Ok(there) = path.symlink_metadata() else {
        return match file_name(path) {
            Err(Errno::NOTDIR) => Err("Not a directory".to_owned()),
            _ => check_not_among_devices(path).map(|()| path.to_owned()),
        };
    };
    let at = match there.is_symlink() {
        true => path
            .canonicalize()
            .map_err(|e| format!("it is a link that leads to nothing: {e}"))?,
        false => path.to_owned(),
    };
    match at.metadata() {
        Ok(meta) if !meta.is_file() => Err("it is no regular file".to_owned()),
        _ => Ok(at),
    }
}

/// Refuses a name that is not there, if a new file would be among the host's devices.
pub(crate) fn check_not_among_devices(path: &Path) -> Result<(), String> {
    match is_among_devices(path) {
        true => Err("there is no such device, and no file is made among devices".to_owned()),
        false => Ok(()),
    }
}

/// Where the host has its devices: a new name there is a typing error.
const DEVICES: &str = "/dev";

/// Whether a new file would be among the host's devices. What is mounted below them, such as /dev/shm, is a place for files.
fn is_among_devices(path: &Path) -> bool {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let Ok(dir) = parent.unwrap_or(Path::new(".")).canonicalize() else {
        return false;
    };
    let device = |path: &Path| path.metadata().map(|meta| meta.dev()).ok();
    dir.starts_with(DEVICES)
        && !dir.starts_with("/dev/shm")
        && device(&dir) == device(Path::new(DEVICES))
}

/// The name that a new file is to have. A path that ends in a slash, or in `/.`, names a directory, as cp has it.
pub(crate) fn file_name(path: &Path) -> Result<&OsStr, Errno> {
    let bytes = path.as_os_str().as_bytes();
    let name = path.file_name().ok_or(Errno::ISDIR)?;
    match bytes.ends_with(b"/") || bytes.ends_with(b"/.") {
        true => Err(Errno::NOTDIR),
        false => Ok(name),
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary {
            // Best effort: the message of the failure says that there is no such file.
            let _ = unlinkat(&self.dir, name, AtFlags::empty());
        }
    }
}

impl NewFile {
    /// A file that is to be at `path`.
    pub(crate) fn make(path: &Path) -> Result<NewFile, Errno> {
        NewFile::make_in(path, has_procfs())
    }

    /// `procfs`: whether descriptors have paths there. Then it is without a name, if the file system can do that.
    fn make_in(path: &Path, procfs: bool) -> Result<NewFile, Errno> {
        let name = file_name(path)?.to_owned();
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = open(parent, flags, Mode::empty())?;
        let mode = Mode::from_raw_mode(0o666);
        let ways = OFlags::RDWR | OFlags::CLOEXEC;
        let nameless = procfs.then(|| openat(&dir, ".", ways | OFlags::TMPFILE, mode).ok());
        let (fd, temporary) = match nameless.flatten() {
            Some(fd) => (fd, None),
            None => {
                let temporary = beside(&name);
                let flags = ways | OFlags::CREATE | OFlags::EXCL;
                (openat(&dir, &temporary, flags, mode)?, Some(temporary))
            }
        };
        let place = match &temporary {
            // No other path leads to it, as in a chroot without /proc.
            Some(temporary) if !procfs => parent.join(temporary),
            _ => PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd())),
        };
        Ok(NewFile {
            fd,
            dir,
            name,
            temporary,
            place,
        })
    }

    /// Whether it has a temporary name, which has to be removed.
    pub(crate) fn has_name(&self) -> bool {
        self.temporary.is_some()
    }

    /// Where it can be opened meanwhile.
    pub(crate) fn path(&self) -> &Path {
        &self.place
    }

    pub(crate) fn set_len(&self, bytes: u64) -> Result<(), Errno> {
        ftruncate(&self.fd, bytes)
    }

    /// Makes the file and then its name durable. A file whose name cannot be made durable goes, unless it has replaced another.
    pub(crate) fn finish(mut self, if_taken: IfTaken) -> Result<(), Unfinished> {
        self.write_out(if_taken).map_err(Unfinished::Unwritten)?;
        let has_replaced = self.take_name(if_taken).map_err(Unfinished::Unnamed)?;
        match (fsync(&self.dir), has_replaced) {
            // A host that cannot do this for directories, such as some shared folders of virtual machines.
            (Ok(()) | Err(Errno::INVAL), _) => Ok(()),
            (Err(errno), true) => Err(Unfinished::Replaced(errno)),
            (Err(errno), false) => {
                // Best effort: what is left is whole.
                let _ = unlinkat(&self.dir, &self.name, AtFlags::empty());
                Err(Unfinished::Unnamed(errno))
            }
        }
    }

    /// Gives it owner and mode of the file that it is to replace, and makes it durable.
    fn write_out(&self, if_taken: IfTaken) -> Result<(), Errno> {
        if if_taken == IfTaken::Replace
            && let Ok(before) = statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW)
        {
            // As if it had been written over: whom it belonged to, and who may read it.
            let owner = (Uid::from_raw(before.st_uid), Gid::from_raw(before.st_gid));
            let kept = fchown(&self.fd, Some(owner.0), Some(owner.1));
            let mode = Mode::from_raw_mode(before.st_mode & 0o777);
            // Who may not give it away keeps it to himself.
            fchmod(
                &self.fd,
                if kept.is_ok() {
                    mode
                } else {
                    mode & Mode::RWXU
                },
            )?;
        }
        fsync(&self.fd)
    }

    /// Returns whether it may have replaced another file.
    fn take_name(&mut self, if_taken: IfTaken) -> Result<bool, Errno> {
        if self.temporary.is_none() {
            match self.link(&self.name) {
                // A link replaces nothing, but a rename can.
                Err(Errno::EXIST) if if_taken == IfTaken::Replace => {
                    let temporary = beside(&self.name);
                    self.link(&temporary)?;
                    self.temporary = Some(temporary);
                }
                done => return done.map(|()| false),
            }
        }
        if let Some(temporary) = &self.temporary {
            match if_taken {
                IfTaken::Keep => self.rename_if_free(temporary)?,
                IfTaken::Replace => renameat(&self.dir, temporary, &self.dir, &self.name)?,
            }
            self.temporary = None;
        }
        Ok(if_taken == IfTaken::Replace)
    }

    /// Gives it its name from the temporary one, if no file has it.
    fn rename_if_free(&self, temporary: &OsStr) -> Result<(), Errno> {
        let keep = RenameFlags::NOREPLACE;
        match renameat_with(&self.dir, temporary, &self.dir, &self.name, keep) {
            // NFS and others have no such rename.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.link_if_free(temporary),
            done => done,
        }
    }

    /// The same, where a rename always replaces: a link does not. Without links either, a file that gets the name at this moment is
    /// replaced.
    fn link_if_free(&self, temporary: &OsStr) -> Result<(), Errno> {
        let no_flags = AtFlags::empty();
        match linkat(&self.dir, temporary, &self.dir, &self.name, no_flags) {
            Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP | Errno::MLINK) => {
                match statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => renameat(&self.dir, temporary, &self.dir, &self.name),
                    Err(errno) => Err(errno),
                    Ok(_) => Err(Errno::EXIST),
                }
            }
            Err(errno) => Err(errno),
            Ok(()) => unlinkat(&self.dir, temporary, no_flags),
        }
    }

    fn link(&self, name: &OsStr) -> Result<(), Errno> {
        linkat(CWD, self.path(), &self.dir, name, AtFlags::SYMLINK_FOLLOW)
    }
}

/// The name of a new file of the host until it is complete.
fn beside(name: &OsStr) -> OsString {
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".new~{}", std::process::id()));
    beside
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that got the name meanwhile is not replaced unless that is asked for, and nothing else is left, whether or not the host has
    /// nameless files.
    #[test]
    fn a_name_that_is_taken_meanwhile() {
        for nameless in [true, false] {
            let dir = tempfile::tempdir().expect("a scratch directory");
            let path = dir.path().join("new");
            let names = || {
                let all = std::fs::read_dir(dir.path()).expect("it can be read");
                let names = all.map(|e| e.expect("an entry").file_name());
                names.collect::<Vec<_>>()
            };
            let make = || {
                let new = NewFile::make_in(&path, nameless).expect("a new file");
                new.set_len(5).expect("it can be longer");
                let again = std::fs::metadata(new.path()).expect("it can be opened");
                assert_eq!(again.len(), 5);
                let by_descriptor = new.path().starts_with("/proc/self/fd");
                assert_eq!(by_descriptor, nameless);
                new
            };
            drop(make());
            assert!(names().is_empty(), "{nameless}");
            make().finish(IfTaken::Keep).expect("a free name");
            assert_eq!(std::fs::read(&path).expect("a copy"), [0; 5]);
            std::fs::remove_file(&path).expect("ours");
            let new = make();
            std::fs::write(&path, "other").expect("a file of somebody else");
            let taken = Err(Unfinished::Unnamed(Errno::EXIST));
            assert_eq!(new.finish(IfTaken::Keep), taken, "{nameless}");
            assert_eq!(std::fs::read(&path).expect("theirs"), b"other");
            make().finish(IfTaken::Replace).expect("it replaces");
            assert_eq!(std::fs::read(&path).expect("ours"), [0; 5]);
            assert_eq!(names(), ["new"], "{nameless}");
        }
    }

    /// Where a rename always replaces: the same.
    #[test]
    fn a_name_that_is_taken_where_a_rename_replaces() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let path = dir.path().join("new");
        let mut new = NewFile::make_in(&path, false).expect("a new file");
        let temporary = new.temporary.clone().expect("a name until then");
        std::fs::write(&path, "other").expect("a file of somebody else");
        assert_eq!(new.link_if_free(&temporary), Err(Errno::EXIST));
        assert_eq!(std::fs::read(&path).expect("theirs"), b"other");
        std::fs::remove_file(&path).expect("ours");
        assert_eq!(new.link_if_free(&temporary), Ok(()));
        new.temporary = None;
        drop(new);
        let names = std::fs::read_dir(dir.path()).expect("it can be read");
        let names: Vec<_> = names.map(|e| e.expect("an entry").file_name()).collect();
        assert_eq!(names, ["new"]);
    }
}
