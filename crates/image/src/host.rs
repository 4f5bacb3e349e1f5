//! Files of the host below the directory that is a source.
//!
//! Input: the directory; paths below it. Output: open files. Invariant: no symbolic link on the way is followed, so whoever may change what
//! is in the directory cannot have a file read that lies elsewhere. Limits: the directory itself may be named by a link;
//! attributes are read by paths.

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug)]
pub(crate) struct Root {
    dir: OwnedFd,
    /// As it was named, for messages.
    path: PathBuf,
}

impl Root {
    pub(crate) fn open(path: &Path) -> io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Root {
            dir: openat(CWD, path, flags, Mode::empty())?,
            path: path.to_owned(),
        })
    }

    /// The path for messages.
    pub(crate) fn path(&self, below: &Path) -> PathBuf {
        match below.as_os_str().is_empty() {
            true => self.path.clone(),
            false => self.path.join(below),
        }
    }

    /// Opens a directory below.
    pub(crate) fn directory(&self, below: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        Ok(self.resolve(below, flags)?)
    }

    /// Opens a regular file below for reading.
    pub(crate) fn file(&self, below: &Path) -> io::Result<File> {
        regular(|flags| self.resolve(below, flags))
    }

    fn resolve(&self, below: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = match below.as_os_str().is_empty() {
            true => Path::new("."),
            false => below,
        };
        let no_links = ResolveFlags::NO_SYMLINKS;
        match openat2(&self.dir, path, flags, Mode::empty(), no_links) {
            // Kernels before 5.6.
            Err(Errno::NOSYS) => self.step_by_step(path, flags),
            // Sandboxes that do not know the call; or the file is somebody else's, and its time of access may not be kept.
            Err(Errno::PERM) if !flags.contains(OFlags::NOATIME) => self.step_by_step(path, flags),
            opened => opened,
        }
    }

    fn step_by_step(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let on_the_way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut dir = openat(&self.dir, ".", on_the_way, Mode::empty())?;
        for part in path.parent().unwrap_or(Path::new("")) {
            dir = openat(&dir, part, on_the_way, Mode::empty())?;
        }
        let name = path.file_name().unwrap_or(path.as_os_str());
        openat(&dir, name, flags, Mode::empty())
    }
}

/// Whether a path names a file that is open already, as those that a shell makes of `<(...)`: opening it waits for nobody.
pub(crate) fn is_descriptor(path: &Path) -> bool {
    let folders = ["/dev/fd/", "/proc/self/fd/"];
    let path = path.as_os_str().as_encoded_bytes();
    path == b"/dev/stdin"
        || folders
            .iter()
            .any(|folder| path.starts_with(folder.as_bytes()))
}

/// Opens a file that somebody has named as one to be read.
///
/// # Errors
/// It is no regular file: a pipe might never be written to, and a device has no end.
pub(crate) fn named(path: &Path) -> io::Result<File> {
    if is_descriptor(path) {
        return File::open(path);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other(
            "it is no regular file; '-' reads what is piped to standard input",
        )),
    }
}

/// Opens a file for reading, which is no symbolic link by now.
pub(crate) fn file(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    regular(|more| openat(CWD, path, flags | more, Mode::empty()))
}

/// A regular file; its time of access stays if that is permitted.
fn regular(open: impl Fn(OFlags) -> rustix::io::Result<OwnedFd>) -> io::Result<File> {
    // What has become a pipe blocks nobody.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let file = match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags)?,
        opened => opened?,
    };
    let file = File::from(file);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file any more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_on_the_way_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("root/a/b")).unwrap();
        std::fs::create_dir(at("other")).unwrap();
        for name in ["root/a/b/file", "other/file"] {
            std::fs::write(at(name), name).unwrap();
        }
        symlink("../../other", at("root/a/link")).unwrap();
        symlink("b/file", at("root/a/name")).unwrap();
        symlink("root", at("named")).unwrap();
        let root = Root::open(&at("named")).unwrap();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
        for (below, is_there) in [
            ("a/b/file", true),
            ("a/link/file", false),
            ("a/name", false),
        ] {
            let below = Path::new(below);
            assert_eq!(root.file(below).is_ok(), is_there, "{below:?}");
            let slowly = root.step_by_step(below, flags);
            assert_eq!(slowly.is_ok(), is_there, "{below:?}");
        }
        root.file(Path::new("a/b")).unwrap_err();
        root.directory(Path::new("")).unwrap();
        root.directory(Path::new("a/link")).unwrap_err();
        root.step_by_step(Path::new("."), flags).unwrap();
    }
}
