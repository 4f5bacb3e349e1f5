//! New contents of a directory's blocks, with room for a new name, built in memory.
//!
//! Input: blocks, one after another. Output: a [`Remade`]: rebuilt blocks, added blocks, and the space claimed for these. Invariants:
//! nothing is changed here. Limits: none of its own.

use super::{names_in, read_present};
use crate::alloc::Run;
use crate::error::Error;
use crate::inode::Inode;
use crate::map::edit::NewRun;
use diorite_format::dir::DirBlock;
use diorite_format::{FileType, FsBlock, Ino};

/// The inode and type in a new name's entry until its own are known.
pub(super) const STAND_IN: (Ino, FileType) = (Ino::ROOT, FileType::Regular);

/// The new blocks of a directory, with the new name in one of them. Its entry has [`STAND_IN`] for its inode.
#[derive(Clone, Debug, Default)]
pub(super) struct Remade {
    /// Existing blocks, with their new contents.
    pub(super) changed: Vec<(u64, Vec<u8>)>,
    /// The number of the first added block; `made` holds the added blocks' contents, `runs` the space claimed for them.
    pub(super) first_new: u64,
    pub(super) made: Vec<Vec<u8>>,
    pub(super) runs: Vec<NewRun>,
    /// The directory gets its first hash tree.
    pub(super) becomes_hashed: bool,
    /// The block with the new name.
    pub(super) with_name: u64,
}

impl Remade {
    pub(super) fn give_back(&self, dir: &Inode) {
        for run in &self.runs {
            dir.give_back(Run {
                start: run.start,
                len: run.len,
            });
        }
    }

    /// Is this one of the added blocks?
    pub(super) fn is_new(&self, block: u64) -> bool {
        block >= self.first_new && !self.made.is_empty()
    }

    /// Where on the volume the added blocks will be.
    pub(super) fn places(&self) -> impl Iterator<Item = FsBlock> + '_ {
        self.runs.iter().flat_map(|run| {
            let first = run.start.get();
            (first..first + u64::from(run.len)).map(FsBlock::new)
        })
    }
}

/// Collects the new blocks of a directory.
pub(super) struct Builder<'a> {
    pub(super) dir: &'a Inode,
    pub(super) remade: Remade,
}

impl Builder<'_> {
    /// Gives an existing block new contents.
    pub(super) fn change(&mut self, block: u64, bytes: Vec<u8>) {
        self.remade.changed.push((block, bytes));
    }

    /// Adds a block with these contents; returns its number in the directory.
    pub(super) fn make(&mut self, bytes: Vec<u8>) -> u64 {
        let block = self.next_block();
        self.remade.made.push(bytes);
        block
    }

    /// The number that the next added block will have.
    pub(super) fn next_block(&self) -> u64 {
        self.remade.first_new + self.remade.made.len() as u64
    }

    /// Calls `use_it` with an existing block, checked.
    pub(super) fn parse<R>(
        &self,
        block: u64,
        use_it: impl FnOnce(&DirBlock<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let dir = self.dir;
        let raw = read_present(dir, block)?;
        use_it(&names_in(dir, block, &raw))
    }
}
