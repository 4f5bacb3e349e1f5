//! What it is: what e2fsck makes of images, and says of them. Input: a place, an image per disk. Output: the images after e2fsck has
//! replayed the journal; or its complaint. Invariant: nothing is excused. Limits: of a volume in a file of another only the bottom one.

use super::bed::Place;
use crate::bed::scratch;
use crate::error::{Result, at};
use std::path::PathBuf;
use xtask::run;

/// Files for e2fsck, used again.
#[derive(Debug)]
pub struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    /// Room for them.
    ///
    /// # Errors
    /// The host has no room.
    pub fn new() -> Result<Scratch> {
        Ok(Scratch { dir: scratch()? })
    }

    /// `e2fsck -fn` must be silent.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self, place: Place, images: &[Vec<u8>]) -> Result<()> {
        let files = self.put(images)?;
        match place.apart {
            true => run::check_with(&files[0], &files[1])?,
            false => run::check(&files[0])?,
        }
        Ok(())
    }

    /// The images after e2fsck has replayed the journal.
    ///
    /// # Errors
    /// It cannot.
    pub fn replay(&self, place: Place, images: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let files = self.put(images)?;
        match place.apart {
            true => run::repair_with(&files[0], &files[1])?,
            false => run::replay_journal(&files[0])?,
        }
        let read = |file: &PathBuf| std::fs::read(file).map_err(at(file));
        files.iter().map(read).collect()
    }

    fn put(&self, images: &[Vec<u8>]) -> Result<Vec<PathBuf>> {
        let put = |(number, bytes): (usize, &Vec<u8>)| {
            let file = self.dir.path().join(format!("disk-{number}"));
            std::fs::write(&file, bytes).map_err(at(&file))?;
            Ok(file)
        };
        images.iter().enumerate().map(put).collect()
    }
}
