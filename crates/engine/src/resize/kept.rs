//! The blocks that are kept so that group descriptors can grow, when the size of a volume changes.
//!
//! Input: the superblocks before and after. Output: the inode that has these blocks (7), its doubly indirect block, and the blocks
//! themselves, each with a list of its copies, changed in a handle. Invariant: nothing is written unless the inode was found as it should
//! be: its pointers come from the image. Limit: without the feature resize_inode there is nothing to do. Source: as of
//! [`Kept`].

use crate::disk::cache::Kind;
use crate::disk::read_disk_inode;
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::JournalHandle;
use diorite_format::features::Compat;
use diorite_format::{FsBlock, Ino, Inode, Superblock, indirect};
use diorite_mkfs::parts::Kept;

/// The slot of an inode with its doubly indirect block.
const DOUBLY: u32 = 13;

/// See the module.
pub(super) struct KeptBlocks<'a> {
    fs: &'a Fs,
    old: &'a Superblock,
    new: &'a Superblock,
    table: FsBlock,
    /// Those before, and those afterwards. None if the volume keeps none.
    both: Option<(Kept, Kept)>,
}

fn damaged(what: &str) -> Error {
    Error::Damaged(format!(
        "inode 7, which keeps space for group descriptors, {what}; run e2fsck"
    ))
}

impl<'a> KeptBlocks<'a> {
    /// `table`: the inode table of the first group afterwards.
    pub(super) fn new(
        fs: &'a Fs,
        (old, new): (&'a Superblock, &'a Superblock),
        table: FsBlock,
    ) -> KeptBlocks<'a> {
        let keeps = new.features().compat.has(Compat::RESIZE_INODE);
        KeptBlocks {
            fs,
            old,
            new,
            table,
            both: keeps.then(|| (Kept::of(old), Kept::of(new))),
        }
    }

    pub(super) fn credits(&self) -> u32 {
        let lists = u32::try_from(self.lists().count())
            .expect("at most a quarter of a block's bytes are kept");
        match self.both {
            Some(_) => 2 + lists,
            None => 0,
        }
    }

    /// Those whose list of copies changes.
    fn lists(&self) -> impl Iterator<Item = u64> {
        let both = self.both.as_ref();
        both.into_iter().flat_map(|(old, new)| {
            let stays = old.copies == new.copies;
            let changes = move |block: &u64| !(stays && old.blocks.contains(block));
            new.blocks.clone().filter(changes)
        })
    }

    /// Checks that the inode has the blocks that it should have, and their copies.
    ///
    /// # Errors
    /// `Damaged`; a device that fails.
    pub(super) fn check(&self, handle: &JournalHandle<'_>) -> Result<(), Error> {
        let Some((before, _)) = &self.both else {
            return Ok(());
        };
        let mut expected = vec![0; self.old.block_size() as usize];
        before.fill_root(self.old, &mut expected)?;
        let found = handle.read(self.root()?, Kind::Map, |_| Ok(()))?;
        if found[..] != expected[..] {
            return Err(damaged("does not have these blocks"));
        }
        for block in before.blocks.clone() {
            before.fill(self.old, block, &mut expected)?;
            let found = handle.read(FsBlock::new(block), Kind::Map, |_| Ok(()))?;
            if found[..] != expected[..] {
                let what = format!("does not have the copies of its block {block}");
                return Err(damaged(&what));
            }
        }
        Ok(())
    }

    /// The doubly indirect block of the inode.
    fn root(&self) -> Result<FsBlock, Error> {
        let inode = read_disk_inode(self.fs, Ino::RESIZE)?;
        let root = indirect::root_pointer(self.old, &inode, DOUBLY)?;
        let own = self.fs.metadata_in(root, 1);
        match root.is_none() || own.is_some() {
            true => Err(damaged("has no doubly indirect block")),
            false => Ok(root),
        }
    }

    /// Changes all of it. [`KeptBlocks::check`] has found it as it should be.
    pub(super) fn write(&self, handle: &JournalHandle<'_>) -> Result<(), Error> {
        let Some((_, kept)) = &self.both else {
            return Ok(());
        };
        // Where the inode lies now, something else may have been written.
        let place = self.new.inode_place(Ino::RESIZE)?;
        let block = FsBlock::new(self.table.get() + u64::from(place.table_block));
        let at = place.offset as usize;
        let size = self.new.geometry().inode_size() as usize;
        let mut root = FsBlock::NONE;
        handle.update(
            block,
            Kind::InodeTable,
            |_| Ok(()),
            |raw| {
                let raw = &mut raw[at..at + size];
                let mut inode = Inode::parse(self.old, Ino::RESIZE, raw)?;
                inode.blocks = kept.sectors(self.new);
                root = indirect::root_pointer(self.old, &inode, DOUBLY)?;
                Ok(inode.write(self.new, raw)?)
            },
        )?;
        handle.update(
            root,
            Kind::Map,
            |_| Ok(()),
            |raw| Ok(kept.fill_root(self.new, raw)?),
        )?;
        let mut bytes = vec![0; self.new.block_size() as usize];
        for block in self.lists() {
            kept.fill(self.new, block, &mut bytes)?;
            handle.create(FsBlock::new(block), Kind::Map, |raw| {
                raw.copy_from_slice(&bytes);
            });
        }
        Ok(())
    }
}
