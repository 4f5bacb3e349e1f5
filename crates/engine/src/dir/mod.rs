//! The dir room: names to inodes, one directory at a time, and whole paths.
//!
//! Input: directory inodes and names. Output: entries, inode numbers. Invariants: every block is checked before an entry is
//! taken from it; a hashed lookup reads one block per level. Limits: names are bytes, 1 to 255 of them; a path follows at
//! most 40 symbolic links; a directory is never larger than its volume.
//!
//! # How names change
//!
//! A directory's names change under its inode lock, held exclusively, and in one journal handle: the inode, its contents, the name, the
//! counts of links. Who looks a name up shares the lock until the inode is in memory. All that a new name needs is made ready before
//! the handle begins: `placement` finds a block that has room, or `tree` makes in memory every block that will change - leaf split by hash,
//! nodes above it as far as they are full, a level more - and claims space for the new ones in one piece of the map. So what fails for
//! space has changed nothing.
//!
//! Where the volume keeps small directories in their inodes (inline_data) new ones begin there, and their names change there, without a
//! block (`dir/inline_dir.rs`). A name for which the inode has no room is preceded by a handle that moves the names into a block
//! (`dir/leave_inline.rs`), or by one that takes all room that attributes have left: what was found is not an attribute's to take
//! before the name's handle begins.
//!
//! `rename` and `rmdir` need several directories: they look first, take all locks in the order of the inodes' numbers, look again, and
//! start again if the names stand for something else by then. Only a directory that changes its parent takes a lock of the volume
//! (`renames`), from before the walk from the new place up to the root until it is done: what is above that place cannot change
//! meanwhile, so no directory becomes a part of itself.
//!
//! While a volume may be changed a hashed directory is read in the order of hashes, in which names do not move when leaves split; a
//! linear one block by block, in which no name moves at all. One that gets its tree meanwhile was a single block until then.
//!
//! A block of a directory is checked once, as the block of that directory that it is, and then searched where it lies; one of names
//! gets its sum when the transaction is frozen. A hashed look-up compares hashes in the nodes' bytes: one block for each level,
//! whatever the directory's size. The directories that came into memory last are kept there (`inode/recent.rs`), so that a path does
//! not read the same inodes again.
//!
//! An inode that loses its last name and has nothing to free but its number, and that nobody uses, is deleted in the same handle;
//! others go by way of the list of orphans. From the moment that one is taken up to be deleted its number finds nobody. A truncation of
//! several handles is looked through first; if the device fails in its middle the file keeps a mark (`CUT` in `inode/first`), and
//! whoever makes it longer ends the truncation, with the turn. Times that were only noted keep an inode in memory until the commit, but
//! not one without a name.
//!
//! Names are durable with the next commit, with an fsync of their directory, or, where that has the flag `D` or `S`, when the call
//! returns: it commits after it has let go of all locks (`dir/durable.rs`), so who changes names there at the same time shares the
//! commit. What an inode with the flag `S` says of itself, its attributes and its flags are committed in the same way
//! (`inode/commit_change.rs`).
//!
//! Before a last name goes every node of the map is read once, under the map lock, and the attributes too: damage is an error there,
//! and nothing is half done.
//!
//! Blocks of directories and of links' targets went through the journal, so they are revoked when they are freed.

mod create;
mod durable;
mod edit;
mod entry;
mod inline_dir;
mod leave_inline;
pub(crate) mod links;
mod list;
mod lookup;
mod path;
mod placement;
mod remade;
mod remove;
mod rename;
mod replace;
pub(crate) mod replayed;
mod spot;
mod tree;

pub(crate) use create::{create, mkdir, mknod, symlink, temporary};
pub use entry::DirEntry;
pub use list::ReadDir;
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
