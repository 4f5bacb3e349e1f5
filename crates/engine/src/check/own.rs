//! The volume's own inodes: which they are, and the one that keeps room for more descriptors.
//!
//! Input: an inode's number. Output: its [`Role`]. Invariant: the blocks that the resize inode leads to lie where descriptors may grow, in the primary place and in
//! every copy, and nowhere else. Limits: contents of quota files are not judged.

use super::Check;
use super::maps::Taken;
use super::reader::Reader;
use super::report::Kind;
use super::walk::{Run, Visit, walk};
use crate::error::Error;
use diorite_format::features::{Compat, RoCompat};
use diorite_format::superblock::JournalPlace;
use diorite_format::{FsBlock, Ino, Inode, MapKind, Superblock};
use std::fmt;

/// What an inode is to the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Anybody's.
    Ordinary,
    /// The root directory.
    Root,
    /// The list of bad blocks.
    BadBlocks,
    /// The blocks that are kept for more descriptors.
    Resize,
    /// Another one that no name leads to.
    Own,
}

/// The role of an inode.
pub(super) fn role(sb: &Superblock, ino: Ino) -> Role {
    let named = |n: u32| n != 0 && n == ino.get();
    let quota = sb.features().ro_compat.has(RoCompat::QUOTA);
    if ino == Ino::ROOT {
        Role::Root
    } else if ino == Ino::BAD_BLOCKS {
        Role::BadBlocks
    } else if ino == Ino::RESIZE && sb.features().compat.has(Compat::RESIZE_INODE) {
        Role::Resize
    } else if ino.get() < sb.geometry().first_ino()
        || sb.orphan_file() == Some(ino)
        || sb.journal() == JournalPlace::Internal(ino)
        || quota && sb.info().quota_inodes.into_iter().any(named)
    {
        Role::Own
    } else {
        Role::Ordinary
    }
}

/// Walks the resize inode. Its blocks are the volume's own and claimed as such, all but the one that leads to them.
pub(super) fn resize(
    check: &Check<'_>,
    reader: &mut Reader<'_>,
    inode: &Inode,
) -> Result<Taken, Error> {
    let mut visit = Reserved {
        check,
        ino: inode.ino,
        nodes: 0,
        bad: false,
    };
    if inode.map_kind() != MapKind::Indirect || !inode.is_file() || inode.links != 1 {
        visit.wrong(
            &"inode 7: the resize inode is no regular file with block pointers and one link",
        );
    }
    walk(&check.sight.sb, reader, inode, &mut visit)?;
    let reserved = check.sight.sb.geometry().reserved_gdt_blocks();
    if !visit.bad && visit.nodes != u64::from(reserved) + 1 {
        let found = visit.nodes.saturating_sub(1);
        let what = format!(
            "inode 7: the resize inode leads to {found} blocks for descriptors; expected {reserved}"
        );
        visit.wrong(&what);
    }
    Ok(Taken {
        bad: visit.bad,
        ..Taken::default()
    })
}

struct Reserved<'a> {
    check: &'a Check<'a>,
    ino: Ino,
    nodes: u64,
    bad: bool,
}

impl Reserved<'_> {
    /// Where in a group's room for more descriptors a block lies.
    fn place(&self, block: FsBlock) -> Option<(u32, u64)> {
        let sb = &self.check.sight.sb;
        let group = sb.group_of(block)?;
        // As far from each group's beginning as the primary ones are from the volume's, whatever the first group leaves out.
        let start = u64::from(group.get()) * u64::from(sb.geometry().blocks_per_group());
        let first = start + sb.super_block().get() + 1 + u64::from(sb.geometry().gdt_blocks());
        let n = block.get().checked_sub(first)?;
        let inside =
            sb.has_super_backup(group) && n < u64::from(sb.geometry().reserved_gdt_blocks());
        inside.then_some((group.get(), n))
    }
}

impl Visit for Reserved<'_> {
    fn node(&mut self, block: FsBlock) -> bool {
        self.nodes += 1;
        if self.nodes == 1 {
            return self.check.space.claim(block, 1) == 0;
        }
        let reserved = u64::from(self.check.sight.sb.geometry().reserved_gdt_blocks());
        let primary = matches!(self.place(block), Some((0, _)));
        if !primary {
            let what = format!("inode 7: block {block} is not kept for more descriptors");
            self.wrong(&what);
        }
        primary && self.nodes <= reserved + 1
    }

    fn run(&mut self, run: Run) {
        for block in (run.at.get()..run.at.get() + run.len).map(FsBlock::new) {
            if !matches!(self.place(block), Some((1.., _))) {
                let what =
                    format!("inode 7: block {block} is not kept for copies of more descriptors");
                self.wrong(&what);
            }
        }
    }

    fn wrong(&mut self, what: &dyn fmt::Display) {
        self.bad = true;
        self.check.found.inode(Kind::Inode, self.ino, what);
    }
}
