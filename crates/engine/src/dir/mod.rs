//! The dir module: names of directories looked up, listed and changed, and whole paths resolved.
//!
//! Input: directory inodes and names. Output: entries, inodes. Invariants: every block is checked before an entry is taken from it; a
//! lookup in a hash tree reads one block per level. Limits: a name is 1 to 255 bytes; a path follows at most 40 symbolic links; a directory
//! is never larger than its volume.
//!
//! # How names change
//!
//! A change of names holds the directory's inode lock exclusively and is one journal handle: the inode, its contents, the name and the
//! link counts change together. A lookup holds the lock shared until the inode is in memory. Everything that a new name needs is prepared
//! before the handle begins. The search that finds that a name does not exist also finds the room for it (`lookup`), in one pass over the
//! block. If there is none, `tree` builds in memory every block that will change (a leaf split by hash, the nodes above it as far as they
//! are full, perhaps one more level), and space for the new blocks is claimed. So a change that fails for lack of space has changed
//! nothing.
//!
//! On a volume with inline_data a new directory begins as an inline directory: its names are in its inode, and change there without a block
//! (`dir/inline_dir.rs`). If the inode has no room for a new name, a handle of its own comes first. It either extends the names over all
//! the room that attributes have left in the inode, so that no attribute can take that room before the name's handle begins, or moves the
//! names into a block (`dir/leave_inline.rs`).
//!
//! A move of a file to a name that does not exist takes the locks of both directories, and looks each name up once. Other moves, and
//! `rmdir`, concern directories whose numbers have to be known before they are locked: they look the names up, take all locks in the
//! order of the inode numbers, look the names up again, and start over if a name refers to another inode by then. Only a move of a
//! directory to another parent takes a lock of the volume (`renames`). It holds that lock from before it follows ".." from the new parent
//! up to the root until the move is done. So the ancestors of the new parent cannot change meanwhile, and no directory becomes its own
//! descendant.
//!
//! On a volume that can be changed, a directory with a hash tree is listed in hash order, because a split of a leaf does not change the
//! hash of a name. A linear directory is listed block by block, because its names do not move at all. A directory that may get its first
//! tree during a listing has at most one block until then, and is listed in hash order from the start.
//!
//! A directory block is checked once, as that block of that directory, and then searched in the cache without a copy. The checksum of a
//! block of names is updated when the transaction is frozen. A lookup by hash compares hashes in the bytes of the nodes: it reads one block
//! per level, whatever the directory's size. The directories that were loaded last stay in memory (`inode/recent.rs`), so that a path does
//! not read the same inodes again. A directory remembers subdirectories that were looked up in it, its map, and the root of a small hash
//! tree (`inode/remembered.rs`), so that a path through it searches no block and takes no lock. Every exclusive lock of the directory
//! empties it of subdirectories.
//!
//! An inode that nobody has in memory is not brought there to be moved, or to be deleted with its only name if only its number has to be
//! freed: it is changed in the inode table, under the lock of the table of in-core inodes, if nobody has read it meanwhile
//! (`inode/absent.rs`). It is the first change of the handle, so that otherwise nothing has changed, and the call starts over.
//!
//! An inode that loses its last name is deleted in the same handle if nobody uses it and only its number has to be freed. For one in memory
//! an unlink decides that before its handle begins: from then on the inode counts as deleted for whoever asks for its number, so nobody
//! can begin to use it, and the orphan list is not needed (`delete::condemn`). Any other such inode goes onto the orphan list. From the
//! moment when its deletion begins, a lookup by its number finds nothing.
//!
//! Before a truncation that takes several handles, the whole map is checked. If the device fails in the middle, the inode is
//! marked (`CUT` in `inode/first.rs`), and the next request that extends the file completes the truncation while it has the exclusive turn.
//! Times that are only noted keep an inode in memory until the commit, but not an inode without a name.
//!
//! A change of names is durable with the next commit, with an fsync of the directory, or, if the directory has the flag `D` or `S`, when
//! the call returns. In the last case the call commits after it has released all locks (`dir/durable.rs`), so concurrent changes in the
//! same directory share the commit. Changes of attributes and flags of an inode with the flag `S` are committed in the same way
//! (`inode/commit_change.rs`).
//!
//! Before an inode's last name is removed, every node of its map is read once under the map lock, and its attributes are read, too. Damage
//! is an error at that point, before anything has changed.
//!
//! Blocks of directories and of long symbolic links went through the journal, so they are revoked when they are freed.

mod create;
mod durable;
mod edit;
mod entry;
mod inline_dir;
mod leave_inline;
pub(crate) mod links;
mod list;
mod lookup;
mod moved;
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
use crate::inode::{Inode, Remembered};
use crate::map::MapView;
use crate::mapping::MappingState;
use diorite_format::dir::{DirBlock, DirForm};
use diorite_format::dx::{DxNode, DxRoot};
use diorite_format::{FileBlock, FormatError, FsBlock};
use std::sync::Arc;

/// Reads and checks block `block` of a directory; returns none for a hole. Blocks.
fn read_block(dir: &Inode, block: u64) -> Result<Option<MetaRef>, Error> {
    let at = place_of(dir, block)?;
    at.map(|at| read_block_at(dir, (block, at))).transpose()
}

/// As [`read_block`], for a block whose place on the volume is known.
fn read_block_at(dir: &Inode, (block, at): (u64, FsBlock)) -> Result<MetaRef, Error> {
    read_as(dir, (block, at), Kind::Directory, |raw| {
        DirBlock::parse(&dir.volume.sb, &dir.disk(), FileBlock::new(block), raw).map(|_| ())
    })
}

/// The names in a block that [`read_block`] returned; the block is not checked again.
fn names_in<'a>(dir: &Inode, block: u64, raw: &'a [u8]) -> DirBlock<'a> {
    DirBlock::checked_before(&dir.volume.sb, form_of(dir), FileBlock::new(block), raw)
}

/// How a directory is searched, by its flags now.
fn form_of(dir: &Inode) -> DirForm {
    DirForm::by_flags(&dir.volume.sb, dir.flags())
}

/// Reads block `block`, a node of the directory's hash tree, and checks it as a node. Blocks.
fn read_node(dir: &Inode, block: u64) -> Result<MetaRef, Error> {
    let at = place_of(dir, block)?.ok_or_else(|| hole(dir, block))?;
    read_node_at(dir, (block, at))
}

/// As [`read_node`], for a node whose place on the volume is known.
fn read_node_at(dir: &Inode, (block, at): (u64, FsBlock)) -> Result<MetaRef, Error> {
    read_as(dir, (block, at), Kind::HashNode, |raw| {
        let (sb, disk) = (&dir.volume.sb, dir.disk());
        match block {
            0 => match DxRoot::parse(sb, &disk, raw) {
                // The caller asks for the hash version first and finds that it is not supported.
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

/// As [`read_block`], for a block that must exist: a hole is damage.
fn read_present(dir: &Inode, block: u64) -> Result<MetaRef, Error> {
    read_block(dir, block)?.ok_or_else(|| hole(dir, block))
}

fn hole(dir: &Inode, block: u64) -> Error {
    let ino = dir.ino;
    Error::Damaged(format!(
        "directory inode {ino}: block {block} is a hole; run e2fsck"
    ))
}

/// Where the blocks of a directory are, by its map at one moment: for a search under the directory's lock.
struct Places<'a> {
    dir: &'a Inode,
    /// The value of the lock, if the caller has it.
    names: Option<&'a Remembered>,
    view: Arc<MapView>,
}

impl<'a> Places<'a> {
    fn of(dir: &'a Inode) -> Places<'a> {
        Places::by(dir, None)
    }

    /// As [`Places::of`], with the value of the directory's lock.
    fn by(dir: &'a Inode, names: Option<&'a Remembered>) -> Places<'a> {
        let view = names.map_or_else(|| dir.map.load(), |names| names.map(dir));
        Places { dir, names, view }
    }

    /// As [`place_of`].
    fn of_block(&self, block: u64) -> Result<Option<FsBlock>, Error> {
        place_in(self.dir, &self.view, block)
    }
}

/// Where on the volume a block of a file is, if it holds data; none for a hole or an unwritten extent.
pub(crate) fn place_of(inode: &Inode, block: u64) -> Result<Option<FsBlock>, Error> {
    place_in(inode, &inode.map.load(), block)
}

fn place_in(inode: &Inode, view: &MapView, block: u64) -> Result<Option<FsBlock>, Error> {
    if let Some((start, _, at)) = view.written_run(block) {
        return Ok(Some(FsBlock::new(at + (block - start))));
    }
    let mappings = inode.mappings(block..block + 1)?;
    Ok(mappings.first().and_then(|m| match m.state {
        MappingState::Written(at) => Some(at),
        MappingState::Hole | MappingState::Unwritten(_) => None,
    }))
}

/// The number of blocks of a directory; an error if its size exceeds the volume's.
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
