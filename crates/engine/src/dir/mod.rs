//! The dir room: names to inodes, one directory at a time, and whole paths.
//!
//! Input: directory inodes and names. Output: entries, inode numbers. Invariants: every block is checked before an entry is
//! taken from it; a hashed lookup reads one block per level. Limits: names are bytes, 1 to 255 of them; a path follows at
//! most 40 symbolic links; a directory is never larger than its volume.

mod create;
mod durable;
mod edit;
mod inline_dir;
mod leave_inline;
pub(crate) mod links;
mod list;
mod lookup;
mod path;
mod placement;
mod remove;
mod rename;
mod replace;
pub(crate) mod replayed;
mod spot;
mod tree;

pub(crate) use create::{create, mkdir, mknod, symlink, temporary};
pub use list::{DirEntry, ReadDir};
pub(crate) use lookup::locked as lookup;
pub(crate) use path::{link_target, resolve};
pub(crate) use remove::{link, rmdir, unlink};
pub use rename::RenameFlags;
pub(crate) use rename::rename;
pub(crate) use replace::replace;
pub use spot::At;
pub(crate) use spot::{Spot, spot};

use crate::disk::cache::{Kind, MetaRef, UsedAs};
use crate::error::Error;
use crate::inode::Inode;
use crate::mapping::MappingState;
use diorite_format::dir::DirBlock;
use diorite_format::dx::{DxNode, DxRoot};
use diorite_format::{FileBlock, FormatError, FsBlock, Inode as DiskInode};

/// Block `block` of a directory, checked; none for a hole.
fn read_block(dir: &Inode, block: u64) -> Result<Option<MetaRef>, Error> {
    let Some(at) = place_of(dir, block)? else {
        return Ok(None);
    };
    read_as(dir, (block, at), Kind::Directory, |raw| {
        DirBlock::parse(&dir.volume.sb, &dir.disk(), FileBlock::new(block), raw).map(|_| ())
    })
    .map(Some)
}

/// The names in a block that [`read_block`] gave, not checked again.
fn names_in<'a>(dir: &'a Inode, disk: &'a DiskInode, block: u64, raw: &'a [u8]) -> DirBlock<'a> {
    DirBlock::checked_before(&dir.volume.sb, disk, FileBlock::new(block), raw)
}

/// Block `block`, a node of the directory's hash tree, checked as such.
fn read_node(dir: &Inode, block: u64) -> Result<MetaRef, Error> {
    let at = place_of(dir, block)?.ok_or_else(|| hole(dir, block))?;
    read_as(dir, (block, at), Kind::HashNode, |raw| {
        let (sb, disk) = (&dir.volume.sb, dir.disk());
        match block {
            0 => match DxRoot::parse(sb, &disk, raw) {
                // Who looks into it asks for the hash first.
                Err(FormatError::Unsupported(_)) => Ok(()),
                other => other.map(|_| ()),
            },
            _ => DxNode::parse(sb, &disk, FileBlock::new(block), raw).map(|_| ()),
        }
    })
}

fn read_as(
    dir: &Inode,
    (block, at): (u64, FsBlock),
    kind: Kind,
    check: impl FnOnce(&[u8]) -> Result<(), FormatError>,
) -> Result<MetaRef, Error> {
    let (volume, used) = (&dir.volume, UsedAs::of_directory(kind, dir.ino, block));
    let read = volume.cache.read(&volume.blocking, at, used, check);
    read.map_err(|e| e.at(format!("directory inode {}, block {block}", dir.ino)))
}

/// Block `block` of a directory, which has to be there.
fn read_present(dir: &Inode, block: u64) -> Result<MetaRef, Error> {
    read_block(dir, block)?.ok_or_else(|| hole(dir, block))
}

fn hole(dir: &Inode, block: u64) -> Error {
    let ino = dir.ino;
    Error::Damaged(format!(
        "directory inode {ino}: block {block} is a hole; run e2fsck"
    ))
}

/// Where a file's block is on the volume, if it holds data.
pub(crate) fn place_of(inode: &Inode, block: u64) -> Result<Option<FsBlock>, Error> {
    if let Some((start, _, at)) = inode.map.load().written_run(block) {
        return Ok(Some(FsBlock::new(at + (block - start))));
    }
    let mappings = inode.mappings(block..block + 1)?;
    Ok(mappings.first().and_then(|m| match m.state {
        MappingState::Written(at) => Some(at),
        MappingState::Hole | MappingState::Unwritten(_) => None,
    }))
}

/// Blocks of a directory.
fn blocks(dir: &Inode) -> Result<u64, Error> {
    let (size, volume) = (dir.size(), dir.volume.sb.geometry().volume_bytes());
    if size > volume {
        let what = format!(
            "directory inode {}: its size {size} is larger than the volume ({volume} bytes); run e2fsck",
            dir.ino
        );
        return Err(Error::Damaged(what));
    }
    Ok(size.div_ceil(u64::from(dir.volume.block_size())))
}
