//! Walks a file's map, extents or block pointers, down to the runs of mapped blocks.
//!
//! Input: a checked inode. Output: to a [`Visit`], every block of the map itself, every run, and every error. Invariants: a
//! node is read only if the visitor agrees, so the visitor bounds the walk; damage ends one branch, not the walk. Limits: at
//! most five levels.

use super::reader::Reader;
use diorite::Error;
use diorite_format::extent::{Expect, ExtentNode, ROOT_CAPACITY, block_capacity};
use diorite_format::indirect::{DIRECT, PointerBlock, pointers_per_block, root_pointer};
use diorite_format::{FileBlock, FormatError, FsBlock, Inode, MapKind, Place, Superblock};
use std::fmt;

/// Blocks that are contiguous both in a file and on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) file: u64,
    pub(super) len: u64,
    pub(super) at: FsBlock,
    pub(super) unwritten: bool,
}

impl Run {
    pub(super) fn end(&self) -> u64 {
        self.file + self.len
    }
}

/// The visitor of a walk.
pub(super) trait Visit {
    /// A block of the map itself; returns whether to read it.
    fn node(&mut self, block: FsBlock) -> bool;
    /// Blocks of the file, in ascending order.
    fn run(&mut self, run: Run);
    /// Reports an error.
    fn wrong(&mut self, what: &dyn fmt::Display);
}

/// Walks the map of `inode`, whatever its kind.
pub(super) fn walk(
    sb: &Superblock,
    reader: &mut Reader<'_>,
    inode: &Inode,
    visit: &mut dyn Visit,
) -> Result<(), Error> {
    let mut walk = Walk {
        sb,
        reader,
        inode,
        visit,
        joined: None,
    };
    match inode.map_kind() {
        MapKind::Extents => match ExtentNode::parse_root(sb, inode) {
            Ok(root) => {
                walk.check_room(&root, usize::from(ROOT_CAPACITY), Place::Inode);
                walk.extents(&root)?;
            }
            Err(e) => walk.visit.wrong(&e),
        },
        MapKind::Indirect => walk.pointers()?,
        MapKind::Inline | MapKind::FastSymlink | MapKind::Device | MapKind::None => {}
    }
    walk.flush();
    Ok(())
}

struct Walk<'a, 'r> {
    sb: &'a Superblock,
    reader: &'a mut Reader<'r>,
    inode: &'a Inode,
    visit: &'a mut dyn Visit,
    /// The run of contiguous single pointers so far.
    joined: Option<Run>,
}

impl Walk<'_, '_> {
    fn extents(&mut self, node: &ExtentNode) -> Result<(), Error> {
        for extent in node.extents() {
            self.visit.run(Run {
                file: extent.block.get(),
                len: u64::from(extent.len),
                at: extent.start,
                unwritten: extent.unwritten,
            });
        }
        for index in node.indexes() {
            if !self.visit.node(index.child) {
                continue;
            }
            match self.child(node.expect_child(index), index.child)? {
                Ok(child) => {
                    let room = block_capacity(self.sb);
                    self.check_room(&child, usize::from(room), Place::Block(index.child));
                    self.check_start(&child, index.block, index.child);
                    self.extents(&child)?;
                }
                Err(e) => self.visit.wrong(&e),
            }
        }
        Ok(())
    }

    fn child(
        &mut self,
        expect: Expect,
        at: FsBlock,
    ) -> Result<Result<ExtentNode, FormatError>, Error> {
        let raw = self.reader.block(at)?;
        let (ino, generation) = (self.inode.ino, self.inode.generation);
        Ok(ExtentNode::parse_block(
            self.sb, ino, generation, expect, at, raw,
        ))
    }

    /// A node's maximum must be its real capacity, or up to two entries less.
    fn check_room(&mut self, node: &ExtentNode, room: usize, at: Place) {
        if usize::from(node.max) + 2 < room {
            let (ino, max) = (self.inode.ino, node.max);
            self.visit.wrong(&format_args!(
                "inode {ino}: extent node {at}: claims room for {max} entries; {room} fit"
            ));
        }
    }

    /// The index entry must have the file block with which its child begins.
    fn check_start(&mut self, child: &ExtentNode, says: FileBlock, at: FsBlock) {
        let extent = child.extents().first().map(|e| e.block);
        let first = extent.or_else(|| child.indexes().first().map(|i| i.block));
        match first {
            Some(first) if first != says => self.visit.wrong(&format_args!(
                "inode {}: extent node in block {at} begins with file block {first}; the entry that leads to it says {says}",
                self.inode.ino
            )),
            None => self.visit.wrong(&format_args!(
                "inode {}: extent node in block {at} is empty",
                self.inode.ino
            )),
            Some(_) => {}
        }
    }

    fn pointers(&mut self) -> Result<(), Error> {
        for slot in 0..DIRECT {
            match root_pointer(self.sb, self.inode, slot) {
                Ok(block) => self.one(u64::from(slot), block),
                Err(e) => self.visit.wrong(&e),
            }
        }
        let per = u64::from(pointers_per_block(self.sb));
        let (mut first, mut span) = (u64::from(DIRECT), 1);
        for level in 0..3 {
            match root_pointer(self.sb, self.inode, DIRECT + level) {
                Ok(block) => self.pointer_block(block, first, span)?,
                Err(e) => self.visit.wrong(&e),
            }
            span *= per;
            first += span;
        }
        Ok(())
    }

    /// Walks an indirect block in which each pointer stands for `span` file blocks.
    fn pointer_block(&mut self, at: FsBlock, first: u64, span: u64) -> Result<(), Error> {
        if at.is_none() || !self.visit.node(at) {
            return Ok(());
        }
        let raw = self.reader.block(at)?;
        let block = PointerBlock::new(self.sb, self.inode.ino, at, raw)?;
        let slots: Vec<_> = (0..pointers_per_block(self.sb))
            .map(|n| block.get(n))
            .collect();
        for (n, pointer) in (0u64..).zip(slots) {
            let file = first + n * span;
            match pointer {
                Ok(block) if span == 1 => self.one(file, block),
                Ok(block) => {
                    let below = span / u64::from(pointers_per_block(self.sb));
                    self.pointer_block(block, file, below)?;
                }
                Err(e) => self.visit.wrong(&e),
            }
        }
        Ok(())
    }

    /// Adds one pointer to a data block; contiguous pointers become one run.
    fn one(&mut self, file: u64, at: FsBlock) {
        if at.is_none() {
            return;
        }
        if let Some(run) = &mut self.joined
            && run.end() == file
            && run.at.get() + run.len == at.get()
        {
            run.len += 1;
            return;
        }
        self.flush();
        self.joined = Some(Run {
            file,
            len: 1,
            at,
            unwritten: false,
        });
    }

    fn flush(&mut self) {
        if let Some(run) = self.joined.take() {
            self.visit.run(run);
        }
    }
}
