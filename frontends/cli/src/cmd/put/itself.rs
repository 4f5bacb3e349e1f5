//! For copies within one image: refuses to copy a file to itself or a directory into itself.
//!
//! Input: a SOURCE, the place of its copy. Output: whether the copy may be made. Invariant: the parents of a directory are
//! found by its `..`, so symbolic links in its path do not matter. Limits: at most as many parents are visited as trees are
//! copied deep, so a cycle of directories ends.

use super::Putter;
use super::place::Place;
use super::source::{Identity, Nesting, Origin, Source};
use super::tree::DEEPEST;
use crate::output::report::Reason;
use crate::walking::paths::look;
use crate::words::names::{above, in_quotes};
use diorite::Error;
use diorite_format::Ino;
use std::os::unix::ffi::OsStrExt;

impl Putter<'_> {
    /// Fails if a SOURCE would be copied to itself, or into itself.
    pub(super) fn refuse_itself(&self, source: &Source, place: &Place) -> Result<(), Reason> {
        let (Origin::Image(image), Identity::Image(ino)) = (self.origin, source.id()) else {
            return Ok(());
        };
        if image.nesting != Nesting::Same {
            return Ok(());
        }
        let (path, dir, there) = match place {
            Place::Whole(path) => {
                let dir = self.volume.resolve(path, true)?;
                (path, dir, Some(dir))
            }
            Place::Inside(path) => {
                let there = look(self.volume, path, false)?.map(|inode| inode.ino);
                (path, self.volume.resolve(above(path), true)?, there)
            }
        };
        let what = if there == Some(ino) {
            "the two are the same file"
        } else if source.is_dir() && self.is_below(dir, ino)? {
            "a directory is not copied into itself"
        } else {
            return Ok(());
        };
        let path = [self.prefix.as_bytes(), path].concat();
        let (from, to) = (source.found.as_os_str().as_bytes(), in_quotes(&path));
        let from = in_quotes(from);
        Err(Reason::new(format!("{what}: {from} -> {to}")))
    }

    /// Whether this file holds the image that is copied from.
    pub(super) fn is_in_use(&self, ino: Ino) -> bool {
        matches!(self.origin, Origin::Image(image) if image.nesting == Nesting::SourceInDest(ino))
    }

    /// Whether the directory `dir` is `above`, or is below it.
    fn is_below(&self, mut dir: Ino, above: Ino) -> Result<bool, Error> {
        for _ in 0..DEEPEST {
            if dir == above {
                return Ok(true);
            }
            match self.volume.lookup(dir, "..")? {
                Some(next) if dir != Ino::ROOT => dir = next,
                _ => return Ok(false),
            }
        }
        Ok(false)
    }
}
