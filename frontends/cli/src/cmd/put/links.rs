//! Hard links: a second name of a file becomes a second name of its copy.
//!
//! Input: files with more than one link. Output: names in the image. Invariant: a copy that is not complete gets its other
//! names together with its first, so that no incomplete copy has a name. Limits: holds an entry per file with several names.

use super::data::Copying;
use super::source::{Identity, Source};
use super::tree::Dir;
use super::{Putter, Trouble};
use diorite::{Error, OpenFlags};
use diorite_format::Ino;
use std::collections::HashMap;
use std::rc::{Rc, Weak};

/// Files that were visited and may have more names.
#[derive(Default)]
pub(super) struct Links {
    known: HashMap<Identity, First>,
}

/// The copy of a file that was visited.
enum First {
    UnderWay(Weak<Copying>),
    Done(Ino),
}

impl Links {
    /// Records that a copy has been made.
    pub(super) fn remember(&mut self, source: &Source, ino: Ino) {
        self.done(source.is_shared().then(|| source.id()), ino);
    }

    /// Records that a copy has begun.
    pub(super) fn begin(&mut self, source: &Source, copying: &Rc<Copying>) {
        if source.is_shared() {
            let first = First::UnderWay(Rc::downgrade(copying));
            self.known.insert(source.id(), first);
        }
    }

    /// Records that the copy of a file with several names is complete.
    pub(super) fn done(&mut self, id: Option<Identity>, ino: Ino) {
        if let Some(id) = id {
            self.known.insert(id, First::Done(ino));
        }
    }
}

impl Putter<'_> {
    /// Gives the copy another name if the file was visited before under one; returns whether it was.
    pub(super) fn linked(
        &mut self,
        source: &Source,
        path: &[u8],
        dir: Option<&Rc<Dir>>,
    ) -> Result<bool, Trouble> {
        if !source.is_shared() {
            return Ok(false);
        }
        match self.links.known.get(&source.id()) {
            None => Ok(false),
            Some(First::Done(ino)) => {
                let file = self.volume.open_ino(*ino, OpenFlags::default());
                match file.and_then(|file| self.volume.replace_file(&file, path)) {
                    // The first copy was replaced meanwhile, or has the maximum number of links: another copy is made.
                    Err(
                        Error::NotInUse { .. }
                        | Error::NotFound { .. }
                        | Error::TooManyLinks { .. },
                    ) => Ok(false),
                    Ok(()) => {
                        self.tell(&source.found, path);
                        Ok(true)
                    }
                    Err(error) => Err(error.into()),
                }
            }
            Some(First::UnderWay(copying)) => {
                // The first copy failed: the file is copied again.
                let Some(copying) = copying.upgrade() else {
                    return Ok(false);
                };
                copying.add_name(&source.found, path, dir);
                Ok(true)
            }
        }
    }
}
