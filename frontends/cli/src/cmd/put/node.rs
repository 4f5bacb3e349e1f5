//! Copies one entry of a directory to the image, as the same type of file.
//!
//! Input: what was found, the path of its copy. Output: a directory to walk, a file with requests in flight, a link, a pipe, a
//! device. Invariants: a directory is merged with an existing one, and replaces nothing; a file that replaces another is
//! complete before. Limits: an existing file with the name of a directory stays, and the directory is not copied.

use super::source::Source;
use super::tree::Dir;
use super::{Putter, Trouble};
use crate::output::report::Reason;
use crate::walking::paths::{inode, look};
use crate::words::names::above;
use diorite::Error;
use diorite::dir::RenameFlags;
use diorite_format::{FileType, Ino};
use std::rc::Rc;

/// The prefix of temporary names, which a number follows.
const BESIDE: &str = ".put~";
/// The mode of a directory until its own is set.
const PRIVATE_DIR: u16 = 0o700;

impl Putter<'_> {
    /// Copies `source` to `path`. Returns a directory whose contents are to be copied.
    pub(super) fn item(
        &mut self,
        source: Source,
        path: Vec<u8>,
        dir: Option<Rc<Dir>>,
    ) -> Option<Rc<Dir>> {
        let found = source.found.clone();
        let made = self.make(source, path.clone(), dir);
        self.progress.entry(self.flow.bytes());
        made.unwrap_or_else(|trouble| {
            self.fail(&found, &path, trouble);
            None
        })
    }

    fn make(
        &mut self,
        source: Source,
        path: Vec<u8>,
        dir: Option<Rc<Dir>>,
    ) -> Result<Option<Rc<Dir>>, Trouble> {
        if self.images.contains(&source.id()) {
            return Err(Trouble::Refused(Reason::new(
                "the image is not copied into itself",
            )));
        }
        if source.is_dir() {
            return self.directory(source, path, dir).map(Some);
        }
        let there = look(self.volume, &path, false)?;
        match there {
            Some(_) if self.args.copies.no_clobber => return Ok(None),
            Some(inode) if inode.is_dir() => {
                return Err(Trouble::Refused(Reason::new("a directory is in its way")));
            }
            Some(inode) if self.is_in_use(inode.ino) => {
                let why = "it would overwrite the image that is copied from";
                return Err(Trouble::Refused(Reason::new(why)));
            }
            _ => {}
        }
        if self.linked(&source, &path, dir.as_ref())? {
            return Ok(None);
        }
        match source.size_if_file() {
            Some(_) => self.regular(source, path, dir)?,
            None => self.special(&source, &path, there.is_some())?,
        }
        Ok(None)
    }

    fn directory(
        &mut self,
        source: Source,
        path: Vec<u8>,
        parent: Option<Rc<Dir>>,
    ) -> Result<Rc<Dir>, Trouble> {
        let made = match self.volume.mkdir(&path, PRIVATE_DIR) {
            Ok(ino) => {
                self.tell(&source.found, &path);
                (ino, true)
            }
            Err(Error::Exists { .. }) => {
                let ino = self.volume.resolve(&path, false)?;
                if !inode(self.volume, ino)?.is_dir() {
                    let what = "what is there already is not a directory";
                    return Err(Trouble::Refused(Reason::new(what)));
                }
                (ino, false)
            }
            Err(error) => return Err(error.into()),
        };
        self.dir(source, path, made, parent)
    }

    /// Copies a symbolic link, pipe, socket or device. One that replaces a file is created under a temporary name and renamed.
    fn special(&mut self, source: &Source, path: &[u8], replaces: bool) -> Result<(), Trouble> {
        let attributes = self.meta.read(source).map_err(Trouble::Source)?;
        let (at, ino) = match replaces {
            true => self.make_beside(source, path)?,
            false => (path.to_vec(), self.make_node(source, path)?),
        };
        let mut done = self.meta.set(self.volume, ino, &attributes, true);
        if replaces && done.is_ok() {
            done = self.volume.rename(&at, path, RenameFlags::default());
        }
        if let Err(error) = done {
            self.volume.unlink(&at)?;
            return Err(error.into());
        }
        self.links.remember(source, ino);
        self.tell(&source.found, path);
        self.progress.file(self.flow.bytes());
        Ok(())
    }

    /// Creates the node in the same directory, under an unused temporary name; returns its path. The temporary name is short,
    /// so it is valid even if the final one has the maximum length.
    fn make_beside(&self, source: &Source, path: &[u8]) -> Result<(Vec<u8>, Ino), Trouble> {
        let mut number = 0u64;
        loop {
            let at = [above(path), format!("{BESIDE}{number}").as_bytes()].concat();
            match self.make_node(source, &at) {
                Err(Trouble::Image(Error::Exists { .. })) => number += 1,
                made => return Ok((at, made?)),
            }
        }
    }

    fn make_node(&self, source: &Source, at: &[u8]) -> Result<Ino, Trouble> {
        Ok(match source.kind() {
            FileType::Symlink => {
                let target = source.target().map_err(Trouble::Source)?;
                self.volume.symlink(&target, at)?
            }
            kind => self.volume.mknod(at, kind, 0, source.rdev())?,
        })
    }
}
