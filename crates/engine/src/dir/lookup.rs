//! Looking a name up: by the hash tree where there is one, else block by block.
//!
//! Input: a directory inode and a name. Output: the inode number, or none. Invariant: the blocks read are one per level of the
//! tree and those of names with the same hash. Limits: a directory hashed in a way that is not known is scanned.

use super::{blocks, hole, names_in, place_of, read_block, read_node};
use crate::dir::inline_dir;
use crate::disk::cache::MetaRef;
use crate::error::Error;
use crate::inode::Inode;
use diorite_format::dir;
use diorite_format::dirhash::HashVersion;
use diorite_format::dx::{self, DxNode, DxRoot, DxView};
use diorite_format::{FileBlock, FormatError, Ino, InodeFlags};
use std::sync::Arc;

/// A name, found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// The directory's block with it; none if the directory is in its inode.
    pub(super) block: Option<u64>,
    pub(super) ino: Ino,
}

/// The inode that `name` stands for in `dir`. The directory is locked until it is in memory: else it could lose its name and go. One that was
/// removed has no names: what its ".." said may be another's number by now. Blocks.
pub(crate) fn locked(dir: &Inode, name: &[u8]) -> Result<Option<Arc<Inode>>, Error> {
    let _names = dir.lock_shared(false)?;
    let found = find(dir, name)?.filter(|_| !dir.is_unlinked());
    found.map(|found| dir.volume.inode(found.ino)).transpose()
}

/// Where `name` is in `dir`, and what it stands for.
pub(super) fn find(dir: &Inode, name: &[u8]) -> Result<Option<Found>, Error> {
    if !dir.disk().is_dir() {
        return Err(Error::NotADirectory {
            path: format!("inode {}", dir.ino),
        });
    }
    if inline_dir::is_inside(dir) {
        let found = |ino| Found { block: None, ino };
        return Ok(inline_dir::find(dir, name)?.map(found));
    }
    if name != b"."
        && name != b".."
        && let Hashed::Yes(root) = hashed(dir)?
    {
        return by_hash(dir, &root, name);
    }
    for block in 0..blocks(dir)? {
        if let Some(found) = in_block(dir, block, name)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// How a directory is searched.
pub(super) enum Hashed {
    /// Block by block.
    No,
    /// By its tree.
    Yes(Root),
    /// It has a tree that is not understood: block by block, and nothing can be added.
    Unknown,
}

/// The root of a directory's tree.
pub(super) struct Root {
    pub(super) hash: HashVersion,
    /// Levels of inner nodes below it.
    pub(super) levels: u8,
    raw: MetaRef,
}

/// Has the directory a hash tree?
pub(super) fn hashed(dir: &Inode) -> Result<Hashed, Error> {
    let (sb, disk) = (&dir.volume.sb, dir.disk());
    if !dir::is_hashed(sb, &disk) {
        return Ok(Hashed::No);
    }
    // The tree of one that folds case has the hashes of folded names.
    if disk.flags.has(InodeFlags::CASEFOLD) || place_of(dir, 0)?.is_none() {
        return Ok(Hashed::Unknown);
    }
    let raw = read_node(dir, 0)?;
    match dx::shape(sb, &raw) {
        Ok((hash, levels)) => Ok(Hashed::Yes(Root { hash, levels, raw })),
        Err(FormatError::Unsupported(_)) => Ok(Hashed::Unknown),
        Err(FormatError::Corrupt(e)) => Err(e.into()),
    }
}

pub(super) fn hash_of(dir: &Inode, root: &Root, name: &[u8]) -> u32 {
    root.hash.hash(dir.volume.sb.hash(), name).major
}

/// The first leaf for a hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) block: u64,
    /// From which hash on names are in the next one, as its entry says.
    next: Option<u32>,
}

impl Leaf {
    /// Are there names with this hash in the next one too?
    fn goes_on(&self, hash: u32) -> bool {
        self.next.is_some_and(|next| next == hash | 1)
    }
}

/// Finds it: one block for each level is looked into.
pub(super) fn leaf_for(dir: &Inode, root: &Root, hash: u32) -> Result<Leaf, Error> {
    let (mut block, mut next, mut node) = (0, None, root.raw.clone());
    for level in 0..=root.levels {
        if level > 0 {
            node = read_node(dir, block)?;
        }
        let view = DxView::new(FileBlock::new(block), &node);
        let at = view.find(hash);
        let entry = view.entry(at).ok_or_else(|| hole(dir, block))?;
        next = view.entry(at + 1).map(|e| e.hash).or(next);
        block = entry.block.get();
    }
    Ok(Leaf { block, next })
}

/// The way down to the first leaf for a hash, all nodes on it taken apart.
pub(super) fn frames_for(dir: &Inode, root: &Root, hash: u32) -> Result<Vec<Frame>, Error> {
    let node = DxRoot::parse(&dir.volume.sb, &dir.disk(), &root.raw)?.node;
    let mut frames = vec![Frame {
        block: 0,
        at: node.find(hash),
        node,
    }];
    descend(dir, &mut frames, usize::from(root.levels), Some(hash))?;
    Ok(frames)
}

/// The block to which frames lead.
pub(super) fn leaf_of(frames: &[Frame]) -> u64 {
    let last = frames.last().expect("the root is a frame");
    last.node.entries[last.at].block.get()
}

fn in_block(dir: &Inode, block: u64, name: &[u8]) -> Result<Option<Found>, Error> {
    let Some(raw) = read_block(dir, block)? else {
        return Ok(None);
    };
    let found = |ino| Found {
        block: Some(block),
        ino,
    };
    let disk = dir.disk();
    let entry = names_in(dir, &disk, block, &raw).find(name);
    Ok(entry.map(|e| found(e.ino)))
}

/// A node on the way down, and the entry that was taken.
pub(super) struct Frame {
    pub(super) block: u64,
    pub(super) node: DxNode,
    pub(super) at: usize,
}

fn by_hash(dir: &Inode, root: &Root, name: &[u8]) -> Result<Option<Found>, Error> {
    let hash = hash_of(dir, root, name);
    let leaf = leaf_for(dir, root, hash)?;
    let found = in_block(dir, leaf.block, name)?;
    if found.is_some() || !leaf.goes_on(hash) {
        return Ok(found);
    }
    let mut frames = frames_for(dir, root, hash)?;
    loop {
        if let Some(found) = in_block(dir, leaf_of(&frames), name)? {
            return Ok(Some(found));
        }
        if next_leaf(dir, root, &mut frames)? != Next::GoesOn(hash) {
            return Ok(None);
        }
    }
}

/// What names the next leaf holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// There is none.
    None,
    /// Those from this hash on.
    From(u32),
    /// The same, and names with this hash are also in the leaf before.
    GoesOn(u32),
}

/// Goes to the next leaf of the tree. Blocks while nodes are read.
pub(super) fn next_leaf(dir: &Inode, root: &Root, frames: &mut Vec<Frame>) -> Result<Next, Error> {
    let is_last = |frame: &Frame| frame.at + 1 >= frame.node.entries.len();
    while frames.last().is_some_and(is_last) {
        frames.pop();
    }
    let Some(frame) = frames.last_mut() else {
        return Ok(Next::None);
    };
    frame.at += 1;
    let hash = frame.node.entries[frame.at].hash;
    descend(dir, frames, usize::from(root.levels), None)?;
    Ok(match hash & 1 {
        0 => Next::From(hash),
        _ => Next::GoesOn(hash & !1),
    })
}

/// Reads nodes until the frames reach down to the leaves: by `hash`, or along the first entries.
fn descend(
    dir: &Inode,
    frames: &mut Vec<Frame>,
    levels: usize,
    hash: Option<u32>,
) -> Result<(), Error> {
    while frames.len() <= levels {
        let block = leaf_of(frames);
        let (raw, number) = (read_node(dir, block)?, FileBlock::new(block));
        let node = DxNode::parse(&dir.volume.sb, &dir.disk(), number, &raw)?;
        frames.push(Frame {
            block,
            at: hash.map_or(0, |h| node.find(h)),
            node,
        });
    }
    Ok(())
}
