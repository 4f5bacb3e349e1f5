//! Blocks of a directory as they will be with a new name, made in memory.
//!
//! Input: blocks, one after another. Output: a [`Remade`]: what changes, what is new, the space for it. Invariants: nothing is changed here.
//! Limits: none of its own.

use super::{names_in, read_present};
use crate::alloc::Run;
use crate::error::Error;
use crate::inode::Inode;
use crate::map::edit::NewRun;
use diorite_format::dir::DirBlock;
use diorite_format::{FileType, FsBlock, Ino};

/// What a name stands for while its inode is not known.
pub(super) const STAND_IN: (Ino, FileType) = (Ino::ROOT, FileType::Regular);

/// A directory with the name in it, which stands for [`STAND_IN`] so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Remade {
    /// Blocks that it has, as they will be.
    pub(super) changed: Vec<(u64, Vec<u8>)>,
    /// Blocks behind its last, from this one on, and the claimed space for them.
    pub(super) first_new: u64,
    pub(super) made: Vec<Vec<u8>>,
    pub(super) runs: Vec<NewRun>,
    /// It gets a hash tree with this.
    pub(super) becomes_hashed: bool,
    /// The block with the name.
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

    /// Is this block one of those that the directory does not have yet?
    pub(super) fn is_new(&self, block: u64) -> bool {
        block >= self.first_new && !self.made.is_empty()
    }

    /// Where the new blocks will be.
    pub(super) fn places(&self) -> impl Iterator<Item = FsBlock> + '_ {
        self.runs.iter().flat_map(|run| {
            let first = run.start.get();
            (first..first + u64::from(run.len)).map(FsBlock::new)
        })
    }
}

/// A directory's new blocks, one after another.
pub(super) struct Builder<'a> {
    pub(super) dir: &'a Inode,
    pub(super) remade: Remade,
}

impl Builder<'_> {
    /// A block that the directory has will be this.
    pub(super) fn change(&mut self, block: u64, bytes: Vec<u8>) {
        self.remade.changed.push((block, bytes));
    }

    /// A new block will be this; says which.
    pub(super) fn make(&mut self, bytes: Vec<u8>) -> u64 {
        let block = self.next_block();
        self.remade.made.push(bytes);
        block
    }

    /// The number that the next new block will have.
    pub(super) fn next_block(&self) -> u64 {
        self.remade.first_new + self.remade.made.len() as u64
    }

    /// The checked bytes of a block that the directory has.
    pub(super) fn parse<R>(
        &self,
        block: u64,
        use_it: impl FnOnce(&DirBlock<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let dir = self.dir;
        let raw = read_present(dir, block)?;
        let disk = dir.disk();
        use_it(&names_in(dir, &disk, block, &raw))
    }
}
