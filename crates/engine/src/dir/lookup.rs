//! Looking a name up: by the hash tree where there is one, else block by block.
//!
//! Input: a directory inode and a name. Output: the inode number, or none. Invariant: the blocks read are one per level of the
//! tree and those of names with the same hash. Limits: a directory hashed in a way that is not known is scanned.

use super::list::inline_entries;
use super::{blocks, read_block};
use crate::error::Error;
use crate::inode::Inode;
use diorite_format::dir::{self, DirBlock};
use diorite_format::dx::{DxNode, DxRoot};
use diorite_format::{FileBlock, FormatError, Ino, MapKind};

/// The inode that `name` stands for in `dir`.
pub(super) fn lookup(dir: &Inode, name: &[u8]) -> Result<Option<Ino>, Error> {
    if !dir.disk().is_dir() {
        return Err(Error::NotADirectory {
            path: format!("inode {}", dir.ino),
        });
    }
    if dir.disk().map_kind() == MapKind::Inline {
        return Ok(inline_entries(dir)?
            .into_iter()
            .find(|e| e.name == name)
            .map(|e| e.ino));
    }
    let sb = &dir.volume.sb;
    if dir::is_hashed(sb, &dir.disk()) && name != b"." && name != b".." {
        let root = read_block(dir, 0)?.map(|raw| DxRoot::parse(sb, &dir.disk(), &raw));
        match root {
            Some(Ok(root)) => return by_hash(dir, &root, name),
            Some(Err(FormatError::Corrupt(e))) => return Err(e.into()),
            Some(Err(FormatError::Unsupported(_))) | None => {}
        }
    }
    for block in 0..blocks(dir)? {
        if let Some(found) = in_block(dir, block, name)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn in_block(dir: &Inode, block: u64, name: &[u8]) -> Result<Option<Ino>, Error> {
    let Some(raw) = read_block(dir, block)? else {
        return Ok(None);
    };
    let disk = dir.disk();
    let parsed = DirBlock::parse(&dir.volume.sb, &disk, FileBlock::new(block), &raw)?;
    Ok(parsed.find(name).map(|e| e.ino))
}

/// A node on the way down, and the entry that was taken.
struct Frame {
    node: DxNode,
    at: usize,
}

fn by_hash(dir: &Inode, root: &DxRoot, name: &[u8]) -> Result<Option<Ino>, Error> {
    let hash = root.hash.hash(dir.volume.sb.hash(), name).major;
    let mut frames = vec![Frame {
        at: root.node.find(hash),
        node: root.node.clone(),
    }];
    descend(
        dir,
        &mut frames,
        usize::from(root.indirect_levels),
        Some(hash),
    )?;
    loop {
        let Some(Frame { node, at }) = frames.last() else {
            return Ok(None);
        };
        if let Some(found) = in_block(dir, node.entries[*at].block.get(), name)? {
            return Ok(Some(found));
        }
        if !advance(&mut frames, hash) {
            return Ok(None);
        }
        descend(dir, &mut frames, usize::from(root.indirect_levels), None)?;
    }
}

/// Reads nodes until the frames reach down to the leaves: by `hash`, or along the first entries.
fn descend(
    dir: &Inode,
    frames: &mut Vec<Frame>,
    levels: usize,
    hash: Option<u32>,
) -> Result<(), Error> {
    while frames.len() <= levels {
        let Some(Frame { node, at }) = frames.last() else {
            return Ok(());
        };
        let block = node.entries[*at].block;
        let raw = read_block(dir, block.get())?;
        let Some(raw) = raw else {
            return Err(Error::Damaged(format!(
                "directory inode {}: hash tree node {block} is a hole; run e2fsck",
                dir.ino
            )));
        };
        let node = DxNode::parse(&dir.volume.sb, &dir.disk(), block, &raw)?;
        frames.push(Frame {
            at: hash.map_or(0, |h| node.find(h)),
            node,
        });
    }
    Ok(())
}

/// Goes to the next leaf that names with `hash` may be in; false if there is none.
fn advance(frames: &mut Vec<Frame>, hash: u32) -> bool {
    while let Some(frame) = frames.last_mut() {
        if frame.at + 1 < frame.node.entries.len() {
            let goes_on = frame.node.continues(frame.at, hash);
            frame.at += 1;
            return goes_on;
        }
        frames.pop();
    }
    false
}
