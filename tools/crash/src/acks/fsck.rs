//! What it is: replays and checks images with e2fsck.
//! Input: an arrangement, an image per disk. Output: the images after e2fsck has replayed the journal; or its complaint. Invariant:
//! no complaint is excused, but images that e2fsck itself has damaged are not returned. Limits: of a volume in a file of another, only the
//! bottom volume is checked.

use super::bed::Place;
use crate::bed::scratch;
use crate::error::{Result, at};
use crate::left;
use std::path::PathBuf;
use xtask::run::{self, Replayed};

/// Files for e2fsck, in a directory that is reused.
#[derive(Debug)]
pub struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    /// Makes the directory.
    ///
    /// # Errors
    /// The host has no room.
    pub fn new() -> Result<Scratch> {
        Ok(Scratch { dir: scratch()? })
    }

    /// Checks the images; `e2fsck -fn` must find nothing.
    ///
    /// # Errors
    /// e2fsck finds something, or cannot run.
    pub fn check(&self, place: Place, images: &[Vec<u8>]) -> Result<()> {
        let files = self.put(images)?;
        match place.apart {
            true => run::check_with(&files[0], &files[1])?,
            false => run::check(&files[0])?,
        }
        Ok(())
    }

    /// Returns the images after e2fsck has replayed the journal; nothing if it has truncated a file wrongly.
    ///
    /// # Errors
    /// e2fsck fails.
    pub fn replay(&self, place: Place, images: &[Vec<u8>]) -> Result<Option<Vec<Vec<u8>>>> {
        let files = self.put(images)?;
        match place.apart {
            true => run::repair_with(&files[0], &files[1])?,
            false => {
                if run::replay_journal(&files[0])? == Replayed::TruncatedWrongly {
                    return Ok(None);
                }
            }
        }
        let read = |(file, before): (&PathBuf, &Vec<u8>)| left::read(file, before.len());
        let read = files.iter().zip(images).map(read);
        read.collect::<Result<_>>().map(Some)
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
