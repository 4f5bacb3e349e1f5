//! A new image: a file of the host that is there whole or not at all, open as a device meanwhile.
//!
//! Input: a path, a size. Output: a device of zeros; the file under its name. Invariant: a file that somebody uses as an image is not
//! replaced under him. Limits: those of [`Fresh`].

use crate::device::{self, Opened};
use crate::fresh::{Fresh, IfTaken};
use crate::report::Reason;
use diorite::OpenOptions;
use diorite_block::Locator;
use rustix::io::Errno;
use std::path::Path;

/// Bytes of the smallest file that can be in use as an image.
const LEAST_IMAGE: u64 = 4096;

/// See the module.
pub(crate) struct NewImage {
    pub(crate) opened: Opened,
    fresh: Fresh,
}

/// Refuses a file that somebody uses as an image: opening it for writing looks.
pub(crate) fn check_unused(path: &Path, options: &OpenOptions) -> Result<(), Reason> {
    if path.metadata().is_ok_and(|meta| meta.len() >= LEAST_IMAGE) {
        let old = device::open(&Locator::file(path), options);
        old.map_err(Reason::from)?.close().map_err(Reason::from)?;
    }
    Ok(())
}

/// A file without a name that is to be at `path`.
pub(crate) fn fresh(path: &Path) -> Result<Fresh, Reason> {
    Fresh::make(path).map_err(|errno| Reason::host("it cannot be made", errno))
}

impl NewImage {
    /// One of `size` bytes that is to be at `path`.
    pub(crate) fn make(path: &Path, size: u64, options: &OpenOptions) -> Result<NewImage, Reason> {
        check_unused(path, options)?;
        let fresh = fresh(path)?;
        fresh.set_len(size).map_err(at_length)?;
        let mut opened =
            device::open(&Locator::file(fresh.path()), options).map_err(Reason::from)?;
        opened.size = size;
        Ok(NewImage { opened, fresh })
    }

    /// Makes it durable, and gives it its name.
    pub(crate) fn finish(self) -> Result<(), Reason> {
        let NewImage { opened, fresh } = self;
        let size = opened.size;
        opened.close().map_err(Reason::from)?;
        fresh.set_len(size).map_err(at_length)?;
        name(fresh)
    }
}

/// Makes a file durable, and gives it its name.
pub(crate) fn name(fresh: Fresh) -> Result<(), Reason> {
    let named = fresh.finish(IfTaken::Replace);
    named.map_err(|errno| Reason::host("it cannot be given its name", errno))
}

fn at_length(errno: Errno) -> Reason {
    Reason::host("it cannot be made so large", errno)
}
