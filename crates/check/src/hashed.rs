//! The tree of a hashed directory: it must lead to every block of names once, and a block must hold only names in its range of
//! hashes.
//!
//! Input: the root and the inner nodes; then the blocks of names as they are read. Output: findings. Invariants: a node is read
//! once, however often it is referred to, and counts against the blocks that the pass over all directories may read; names with
//! the hash of a bound may be on both sides only if the bound says so. Limits: 24 bytes per block of one directory.

use super::context::Check;
use super::parents::{Directories, spend};
use super::reader::Reader;
use super::report::Kind;
use super::walk::Run;
use diorite::Error;
use diorite_format::dir::DirBlock;
use diorite_format::dirhash::HashVersion;
use diorite_format::dx::{self, DxEntry, DxNode, DxRoot};
use diorite_format::{FileBlock, FormatError, FsBlock, Inode, InodeFlags};

/// Hash versions for unsigned characters. They exist only in memory, for volumes whose superblock says that characters are
/// unsigned.
const UNSIGNED: std::ops::RangeInclusive<u8> = 3..=5;

/// What the tree says about a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    /// The tree leads to the block.
    known: bool,
    node: bool,
    /// The range of its names' hashes; with bit 0 set in a bound, names of that hash are on both sides.
    low: u32,
    high: Option<u32>,
}

/// See the module.
pub(super) struct Tree {
    /// None if names do not determine their block.
    hash: Option<HashVersion>,
    places: Vec<Place>,
}

/// A node and the range that its parent gives to it.
struct Branch {
    entries: Vec<DxEntry>,
    block: FileBlock,
    high: Option<u32>,
    low: u32,
    levels: u8,
}

impl Tree {
    /// Reads the nodes; none if the root is invalid.
    pub(super) fn read(
        check: &Check<'_>,
        directories: &Directories,
        reader: &mut Reader<'_>,
        dir: &Inode,
        runs: &[Run],
    ) -> Result<Option<Tree>, Error> {
        let Some(at) = place_of(runs, FileBlock::new(0)) else {
            return Ok(None);
        };
        let raw = reader.block(at)?;
        let stored = dx::stored_hash(raw);
        let root = match DxRoot::parse(&check.source.sb, dir, raw) {
            Ok(root) => root,
            Err(FormatError::Unsupported(e)) if is_folded(dir) => {
                check.found.note(format_args!("directory {}: {e}", dir.ino));
                return Ok(None);
            }
            Err(e) => {
                check.found.inode(Kind::HashTree, dir.ino, e);
                return Ok(None);
            }
        };
        if UNSIGNED.contains(&stored) {
            let what = "the kind of hash is one that the superblock alone may choose";
            wrong(check, dir, FileBlock::new(0), what);
        }
        let blocks = dir.size >> check.source.sb.geometry().block_bits();
        let mapped: u64 = runs.iter().map(|r| r.len).sum();
        // Blocks may be mapped repeatedly; the count is limited to the blocks of the volume.
        let mapped = mapped.min(check.source.sb.geometry().blocks_count());
        let mut tree = Tree {
            hash: (!dir.flags.has(InodeFlags::CASEFOLD)).then_some(root.hash),
            // The tree cannot lead to blocks that are not mapped.
            places: vec![Place::default(); usize::try_from(blocks.min(mapped)).unwrap_or(0)],
        };
        let branch = Branch {
            entries: root.node.entries,
            block: FileBlock::new(0),
            low: 0,
            high: None,
            levels: root.indirect_levels,
        };
        tree.branch((check, directories), reader, dir, runs, &branch)?;
        Ok(Some(tree))
    }

    /// Checks everything that a node leads to.
    fn branch(
        &mut self,
        (check, directories): (&Check<'_>, &Directories),
        reader: &mut Reader<'_>,
        dir: &Inode,
        runs: &[Run],
        branch: &Branch,
    ) -> Result<(), Error> {
        for (n, entry) in branch.entries.iter().enumerate() {
            // The first entry's hash is not stored: it is the start of the node's range in its parent.
            let low = if n == 0 { branch.low } else { entry.hash };
            let high = branch.entries.get(n + 1).map(|e| e.hash).or(branch.high);
            if low < branch.low & !1 || high.is_some_and(|h| low > h) {
                let what = "a hash is outside the range that its parent gives it";
                wrong(check, dir, branch.block, what);
            }
            if !self.note(check, dir, entry.block, low, high, branch.levels > 0)
                || branch.levels == 0
            {
                continue;
            }
            let Some(at) = place_of(runs, entry.block) else {
                continue;
            };
            if !spend(check, directories, 1) {
                return Ok(());
            }
            let raw = reader.block(at)?;
            if dx::looks_like_a_leaf(raw) {
                let what = "a node's first entry, which is none, says how long its name is";
                wrong(check, dir, entry.block, what);
            }
            match DxNode::parse(&check.source.sb, dir, entry.block, raw) {
                Ok(node) => {
                    let below = Branch {
                        entries: node.entries,
                        block: entry.block,
                        low,
                        high,
                        levels: branch.levels - 1,
                    };
                    self.branch((check, directories), reader, dir, runs, &below)?;
                }
                Err(e) => check.found.inode(Kind::HashTree, dir.ino, e),
            }
        }
        Ok(())
    }

    /// Records that the tree leads to this block; returns whether it is the first reference.
    fn note(
        &mut self,
        check: &Check<'_>,
        dir: &Inode,
        block: FileBlock,
        low: u32,
        high: Option<u32>,
        node: bool,
    ) -> bool {
        let index = usize::try_from(block.get()).unwrap_or(usize::MAX);
        let Some(place) = self.places.get_mut(index) else {
            wrong(
                check,
                dir,
                block,
                "an entry leads to a block that is not there",
            );
            return false;
        };
        if place.known {
            wrong(check, dir, block, "two entries lead to it");
            return false;
        }
        *place = Place {
            known: true,
            node,
            low,
            high,
        };
        true
    }

    /// Whether the tree says that a block is an inner node.
    pub(super) fn is_node(&self, block: FileBlock) -> bool {
        self.place(block).is_some_and(|p| p.node)
    }

    fn place(&self, block: FileBlock) -> Option<&Place> {
        self.places.get(usize::try_from(block.get()).ok()?)
    }

    /// Compares the names of a block with its range in the tree.
    pub(super) fn leaf(
        &self,
        check: &Check<'_>,
        dir: &Inode,
        block: FileBlock,
        leaf: &DirBlock<'_>,
    ) {
        let (Some(hash), Some(place)) = (self.hash, self.place(block)) else {
            return;
        };
        if block.get() == 0 || !place.known {
            return;
        }
        let settings = check.source.sb.hash();
        for e in leaf.entries() {
            let major = hash.hash(settings, e.name).major;
            let above = |high: u32| major > high & !1 || major == high && high & 1 == 0;
            if major < place.low & !1 || place.high.is_some_and(above) {
                let what = format!(
                    "the name \"{}\" has the hash {major:#010x}, which belongs elsewhere",
                    e.name.escape_ascii()
                );
                wrong(check, dir, block, &what);
            }
        }
    }

    /// Checks that the tree leads to every block.
    pub(super) fn finish(&self, check: &Check<'_>, dir: &Inode, runs: &[Run]) {
        for run in runs {
            for block in (run.file.max(1)..run.end()).map(FileBlock::new) {
                if !self.place(block).is_some_and(|p| p.known) {
                    wrong(check, dir, block, "nothing leads to it");
                }
            }
        }
    }
}

/// Casefolded names are hashed in their folded form, not as they are stored.
fn is_folded(dir: &Inode) -> bool {
    dir.flags.has(InodeFlags::CASEFOLD) || dir.flags.has(InodeFlags::ENCRYPT)
}

fn wrong(check: &Check<'_>, dir: &Inode, block: FileBlock, what: &str) {
    let ino = dir.ino;
    let what = format_args!("directory {ino}, file block {block}: hash tree: {what}");
    check.found.inode(Kind::HashTree, ino, what);
}

/// The block of the volume for a directory's block.
fn place_of(runs: &[Run], block: FileBlock) -> Option<FsBlock> {
    let run = runs.get(runs.partition_point(|r| r.end() <= block.get()))?;
    let offset = block.get().checked_sub(run.file)?;
    Some(FsBlock::new(run.at.get() + offset))
}
