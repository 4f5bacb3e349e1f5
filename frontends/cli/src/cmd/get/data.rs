//! A file on its way to the host: where its data goes as it arrives.
//!
//! Input: ended reads. Output: writes to the copy. Invariants: the first thing that goes wrong stays with the file, and nothing is written after
//! it; a short read is the end of the file. Limits: the host is written in the thread that reaps.

use super::tree::Dir;
use crate::flow::Moving;
use crate::report::Reason;
use diorite::{Error, File, FileId};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, pwrite};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A file whose data is on its way.
pub(super) struct Copying {
    pub(super) file: File,
    pub(super) id: FileId,
    pub(super) out: OwnedFd,
    pub(super) dir: Rc<Dir>,
    pub(super) name: Box<[u8]>,
    /// Its name on the host.
    pub(super) host: Box<[u8]>,
    /// It gets that at its end.
    pub(super) is_nameless: bool,
    /// The host did not take all of it.
    pub(super) is_lost: Cell<bool>,
    /// The first thing that went wrong.
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
        Copying {
            file,
            id,
            out,
            dir,
            name: name.into(),
            host: host.into(),
            is_nameless,
            is_lost: Cell::new(false),
            trouble: RefCell::new(None),
        }
    }

    /// Notes that something went wrong; the first thing stays.
    pub(super) fn failed(&self, reason: Reason) {
        self.trouble.borrow_mut().get_or_insert(reason);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.trouble.borrow().is_some()
    }
}

impl Moving for Copying {
    fn id(&self) -> FileId {
        self.id
    }

    fn ended(&self, pos: u64, result: Result<&[u8], Error>) -> u64 {
        match result {
            Ok(bytes) if !self.has_failed() => {
                if let Err(errno) = write_all(&self.out, bytes, pos) {
                    self.is_lost.set(true);
                    self.failed(Reason::host("cannot write the copy", errno));
                }
                return bytes.len() as u64;
            }
            Ok(_) => {}
            Err(error) => self.failed(error.into()),
        }
        0
    }
}

fn write_all(out: &OwnedFd, mut bytes: &[u8], mut pos: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match pwrite(out, bytes, pos) {
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
