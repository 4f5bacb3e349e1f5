//! A file that is being copied to the host: writes its data as the reads end.
//!
//! Input: ended reads. Output: writes to the copy. Invariants: the first error is kept, and nothing is written after it; a
//! short read is the end of the file. Limits: the thread that reaps also writes to the host.

use super::tree::Dir;
use crate::copying::files::Moving;
use crate::output::report::Reason;
use diorite::{Error, File, FileId};
use diorite_block::reported_at_close;
use diorite_block::uncached;
use rustix::fd::OwnedFd;
use rustix::io::{Errno, pwrite};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A file that is being copied.
pub(super) struct Copying {
    pub(super) file: File,
    pub(super) id: FileId,
    pub(super) out: OwnedFd,
    pub(super) dir: Rc<Dir>,
    pub(super) name: Box<[u8]>,
    /// Its name on the host.
    pub(super) host: Box<[u8]>,
    /// It gets its name only when it is complete.
    pub(super) is_nameless: bool,
    /// It is large, and its bytes pass the host's page cache once.
    passes: bool,
    /// A write on the host failed.
    pub(super) is_lost: Cell<bool>,
    /// The first error.
    pub(super) trouble: RefCell<Option<Reason>>,
}

impl Copying {
    pub(super) fn new(
        file: File,
        id: FileId,
        (out, is_nameless): (OwnedFd, bool),
        dir: Rc<Dir>,
        (name, host): (&[u8], &[u8]),
    ) -> Copying {
        let passes = file.size() >= uncached::LARGE_FILE;
        Copying {
            file,
            id,
            out,
            dir,
            name: name.into(),
            host: host.into(),
            is_nameless,
            is_lost: Cell::new(false),
            passes,
            trouble: RefCell::new(None),
        }
    }

    /// Records an error; the first one is kept.
    pub(super) fn failed(&self, reason: Reason) {
        self.trouble.borrow_mut().get_or_insert(reason);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.trouble.borrow().is_some()
    }

    /// Records a failed write on the host.
    fn is_not_written(&self, errno: Errno) {
        self.is_lost.set(true);
        self.failed(Reason::host("cannot write the copy", errno));
    }

    /// Hears of the writes that failed after the host had taken them.
    pub(super) fn end_writes(&self) {
        if !self.is_lost.get()
            && let Err(errno) = reported_at_close(&self.out)
        {
            self.is_not_written(errno);
        }
    }
}

impl Moving for Copying {
    fn id(&self) -> FileId {
        self.id
    }

    fn ended(&self, pos: u64, result: Result<&[u8], Error>) -> u64 {
        match result {
            Ok(bytes) if !self.has_failed() => {
                if let Err(errno) = write_all(&self.out, bytes, pos, self.passes) {
                    self.is_not_written(errno);
                }
                return bytes.len() as u64;
            }
            Ok(_) => {}
            Err(error) => self.failed(error.into()),
        }
        0
    }
}

fn write_all(out: &OwnedFd, mut bytes: &[u8], mut pos: u64, passes: bool) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = match passes {
            true => uncached::pwrite(out, bytes, pos),
            false => pwrite(out, bytes, pos),
        };
        match written {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => {
                bytes = &bytes[n..];
                pos += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
