//! Growth of a hash tree: leaves split, nodes split, levels are added, and a linear directory gets its first tree.
//!
//! Input: the nodes on the way to a leaf without room for a name. Output: the directory's blocks as they will be, in a [`Builder`].
//! Invariants: nothing is changed here; after a split, the level above gets an entry for the new block; the entries of a full root move
//! into a new node below it, so the root stays block 0. Limits: one level of inner nodes below the root, two with large_dir; beyond that
//! the directory is full.

use super::lookup::{Frame, Root};
use super::remade::{Builder, STAND_IN};
use crate::error::Error;
use crate::inode::Inode;
use diorite_format::FileBlock;
use diorite_format::dir::{Spread, spread};
use diorite_format::dirhash::HashVersion;
use diorite_format::dx::{self, DxEntry};
use diorite_format::features::Compat;

/// The hash for the first tree of a linear directory whose blocks are all full. None if it stays linear: it has more than one block, or the
/// volume has no dir_index.
pub(super) fn hash_for_new(dir: &Inode, blocks: u64) -> Option<HashVersion> {
    let sb = &dir.volume.sb;
    let wanted = blocks == 1 && sb.features().compat.has(Compat::DIR_INDEX);
    wanted.then(|| dx::default_hash(sb).ok()).flatten()
}

/// Builds the first tree of a directory of one block: the entries move into new blocks, and block 0 becomes the root.
pub(super) fn begin(
    builder: &mut Builder<'_>,
    hash: HashVersion,
    name: &[u8],
) -> Result<(), Error> {
    let (dir, sb) = (builder.dir, &builder.dir.volume.sb);
    let disk = dir.disk();
    let major = |name: &[u8]| hash.hash(sb.hash(), name).major;
    let first = builder.next_block();
    let (parts, root) = builder.parse(0, |block| {
        block.dots(dir.ino)?;
        let parts = spread(sb, &disk, block, major, (name, STAND_IN.0, STAND_IN.1))?;
        let second = parts.high.as_ref().map(|high| entry(high.from, first + 1));
        let entries: Vec<DxEntry> = [entry(0, first)].into_iter().chain(second).collect();
        let root = dx::new_root(sb, &disk, block, &entries)?;
        Ok((parts, root))
    })?;
    builder.change(0, root);
    builder.remade.becomes_hashed = true;
    let Spread { low, high, in_high } = parts;
    builder.remade.with_name = builder.make(low);
    if let Some(high) = high {
        let block = builder.make(high.block);
        if in_high {
            builder.remade.with_name = block;
        }
    }
    Ok(())
}

/// Makes room for the name in the full leaf to which `frames` lead, and inserts it: packs the leaf if that is enough, else splits it.
pub(super) fn split(
    builder: &mut Builder<'_>,
    root: &Root,
    frames: Vec<Frame>,
    leaf: u64,
    name: &[u8],
) -> Result<(), Error> {
    let (dir, sb) = (builder.dir, &builder.dir.volume.sb);
    let major = |name: &[u8]| root.hash.hash(sb.hash(), name).major;
    let parts = builder.parse(leaf, |block| {
        if block.entries().next().is_none() {
            let (ino, what) = (dir.ino, "a leaf of its tree is none");
            let told = format!("directory inode {ino}, block {leaf}: {what}; run e2fsck");
            return Err(Error::Damaged(told));
        }
        let new = (name, STAND_IN.0, STAND_IN.1);
        Ok(spread(sb, &dir.disk(), block, major, new)?)
    })?;
    builder.change(leaf, parts.low);
    builder.remade.with_name = leaf;
    let Some(high) = parts.high else {
        return Ok(());
    };
    let block = builder.make(high.block);
    if parts.in_high {
        builder.remade.with_name = block;
    }
    let levels = root.levels;
    add(builder, levels, frames, entry(high.from, block))
}

/// Inserts `new` behind the entry that was taken in the lowest node. A full node is split, and its new half gets an entry in the level
/// above.
fn add(
    builder: &mut Builder<'_>,
    levels: u8,
    mut frames: Vec<Frame>,
    mut new: DxEntry,
) -> Result<(), Error> {
    let sb = &builder.dir.volume.sb;
    while let Some(mut frame) = frames.pop() {
        let is_root = frames.is_empty();
        let mut entries = frame.node.entries;
        entries.insert(frame.at + 1, new);
        if entries.len() <= dx::capacity(sb, is_root) {
            return put(builder, levels, is_root, frame.block, &entries);
        }
        if is_root {
            return deepen(builder, levels, &entries);
        }
        let upper = entries.split_off(entries.len() / 2);
        frame.node.entries = entries;
        put(builder, levels, false, frame.block, &frame.node.entries)?;
        new = entry(upper[0].hash, make_node(builder, &upper)?);
    }
    Ok(())
}

/// Adds a level: all entries, one more than the root has room for, move into a new node below the root, which has more room than the root.
fn deepen(builder: &mut Builder<'_>, levels: u8, entries: &[DxEntry]) -> Result<(), Error> {
    if levels >= dx::most_levels(&builder.dir.volume.sb) {
        let ino = builder.dir.ino;
        return Err(Error::DirectoryFull { ino });
    }
    let below = make_node(builder, entries)?;
    put(builder, levels + 1, true, 0, &[entry(0, below)])
}

fn make_node(builder: &mut Builder<'_>, entries: &[DxEntry]) -> Result<u64, Error> {
    let dir = builder.dir;
    let number = FileBlock::new(builder.next_block());
    let bytes = dx::node(&dir.volume.sb, &dir.disk(), number, entries)?;
    Ok(builder.make(bytes))
}

/// Rewrites a node that the directory already has.
fn put(
    builder: &mut Builder<'_>,
    levels: u8,
    is_root: bool,
    block: u64,
    entries: &[DxEntry],
) -> Result<(), Error> {
    let dir = builder.dir;
    let (sb, disk) = (&dir.volume.sb, dir.disk());
    let bytes = if is_root {
        let mut raw = super::read_present(dir, 0)?.to_vec();
        dx::set_root(sb, &disk, &mut raw, levels, entries)?;
        raw
    } else {
        dx::node(sb, &disk, FileBlock::new(block), entries)?
    };
    builder.change(block, bytes);
    Ok(())
}

fn entry(hash: u32, block: u64) -> DxEntry {
    DxEntry {
        hash,
        block: FileBlock::new(block),
    }
}
