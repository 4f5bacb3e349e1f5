//! Where copies begin: DEST as `cp -a` understands it.
//!
//! Input: DEST, and a PATH of the command line. Output: an open host directory and the name in it. Invariant: links in DEST
//! itself are followed, for the user wrote them; nothing below is. Limits: a PATH that ends in `..`, or is the root, has no
//! name of its own: what is in it goes into DEST.

use crate::names::base_name;
use crate::report::Reason;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FileType, Mode, OFlags, open, statat};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where one PATH goes.
pub(super) enum Place {
    /// Under this name in this directory.
    Inside {
        /// The directory.
        parent: OwnedFd,
        /// The name.
        host: Vec<u8>,
    },
    /// This directory itself stands for it.
    Whole(OwnedFd),
}

/// Chooses the place of the copy of `path`.
pub(super) fn choose(dest: &Path, path: &[u8], many: bool, is_dir: bool) -> Result<Place, Reason> {
    let shown = dest.display();
    let kind = match statat(CWD, dest, rustix::fs::AtFlags::empty()) {
        Ok(stat) => Some(FileType::from_raw_mode(stat.st_mode)),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(Reason::host(shown, errno)),
    };
    if kind == Some(FileType::Directory) {
        let name = base_name(path);
        let fd = open_dir(dest)?;
        return Ok(match name {
            b"" | b"." | b".." => Place::Whole(fd),
            name => Place::Inside {
                parent: fd,
                host: name.to_vec(),
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
    // What is below DEST is replaced; a device, or what /dev/stdout leads to, is not ours to unlink.
    if kind.is_some_and(|k| k != FileType::RegularFile) {
        return Err(Reason::new(format!(
            "{shown}: not a file or directory; to write into it, use 'diorite cat'"
        )));
    }
    let Some(name) = dest.file_name() else {
        return Err(Reason::host(shown, Errno::NOENT));
    };
    let parent = dest
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    Ok(Place::Inside {
        parent: open_dir(parent)?,
        host: name.as_bytes().to_vec(),
    })
}

fn open_dir(path: &Path) -> Result<OwnedFd, Reason> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|e| Reason::host(path.display(), e))
}
