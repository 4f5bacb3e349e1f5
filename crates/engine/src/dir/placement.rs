//! The place for a new name: found, or prepared in memory.
//!
//! Input: a directory that the caller has locked, and a name that is not in it. Output: a [`Placement`]: a block with room, or the new
//! contents of all blocks that change or are added, with space claimed for the added ones. Invariants: no name is changed here; the place
//! is one that a lookup of the name searches. Limits: a directory without a hash tree is searched block by block.

use crate::dir::lookup::{Hashed, Room, Search, frames_for, hash_of, hashed, in_block, leaf_for};
use crate::dir::remade::{Builder, Remade, STAND_IN};
use crate::dir::{Places, blocks, inline_dir, leave_inline, tree};
use crate::error::{Error, NotYet};
use crate::inode::Inode;
use crate::map::edit::NewRun;
use diorite_format::dir::block_with;
use diorite_format::features::Incompat;

/// Where a new name goes.
#[derive(Clone, Debug)]
pub(super) enum Placement {
    /// Into the directory's inode (an inline directory).
    Inside,
    /// Into this block, which has room.
    Block(Room),
    /// Into blocks that were rebuilt or added.
    Remade(Remade),
}

impl Placement {
    /// Gives the claimed blocks back. Call if the name was not put there.
    pub(super) fn give_back(&self, dir: &Inode) {
        if let Placement::Remade(remade) = self {
            remade.give_back(dir);
        }
    }

    /// The directory block that the name will be in; none for an inline directory.
    pub(super) fn block(&self) -> Option<u64> {
        match self {
            Placement::Inside => None,
            Placement::Block(room) => Some(room.block),
            Placement::Remade(remade) => Some(remade.with_name),
        }
    }

    /// Credits for putting the name there: how many blocks of metadata that changes.
    pub(super) fn credits(&self, dir: &Inode) -> u32 {
        match self {
            Placement::Inside | Placement::Block(_) => 2,
            Placement::Remade(remade) => {
                let blocks = remade.changed.len() + remade.made.len();
                let blocks = u32::try_from(blocks).expect("a block or two for each level");
                2 + blocks + dir.credits_to_map(1, &remade.runs)
            }
        }
    }
}

/// Finds room for a new name. Without room, prepares the blocks that will have it, and claims space for the new ones. The names of an
/// inline directory without room are first moved into a block, in a handle of their own. `known`: the room that a search for the name has
/// found. Blocks.
pub(super) fn find_placement(
    dir: &Inode,
    name: &[u8],
    known: Option<Room>,
) -> Result<Placement, Error> {
    if let Some(room) = known {
        return Ok(Placement::Block(room));
    }
    if inline_dir::is_inside(dir) {
        if inline_dir::make_room(dir, name)? {
            return Ok(Placement::Inside);
        }
        leave_inline::move_out(dir)?;
    }
    match hashed(dir)? {
        Hashed::Unknown => Err(Error::NotYet(NotYet::SpecialDirectory { ino: dir.ino })),
        Hashed::Yes(root) => {
            let hash = hash_of(dir, &root, name);
            let leaf = leaf_for(dir, &root, hash)?.block;
            if let Some(room) = room_in(dir, leaf, name)? {
                return Ok(Placement::Block(room));
            }
            let frames = frames_for(dir, &root, hash)?;
            with_claims(dir, |builder| {
                tree::split(builder, &root, frames, leaf, name)
            })
        }
        Hashed::No => find_in_linear(dir, name),
    }
}

fn find_in_linear(dir: &Inode, name: &[u8]) -> Result<Placement, Error> {
    let count = blocks(dir)?;
    for block in 0..count {
        if let Some(room) = room_in(dir, block, name)? {
            return Ok(Placement::Block(room));
        }
    }
    if let Some(hash) = tree::hash_for_new(dir, count) {
        return with_claims(dir, |builder| tree::begin(builder, hash, name));
    }
    with_claims(dir, |builder| {
        let (ino, kind) = STAND_IN;
        let bytes = block_with(&dir.volume.sb, &dir.disk(), (name, ino, kind))?;
        builder.remade.with_name = builder.make(bytes);
        Ok(())
    })
}

/// The room for the name in this block, if it has some.
fn room_in(dir: &Inode, block: u64, name: &[u8]) -> Result<Option<Room>, Error> {
    match in_block(&Places::of(dir), block, name)? {
        Search::Missing(room) => Ok(room),
        Search::Found(_) => Ok(None),
    }
}

/// Runs `build`, then claims space for the blocks that it added.
fn with_claims(
    dir: &Inode,
    build: impl FnOnce(&mut Builder<'_>) -> Result<(), Error>,
) -> Result<Placement, Error> {
    dir.check_can_grow()?;
    let mut builder = Builder {
        dir,
        remade: Remade {
            first_new: blocks(dir)?,
            ..Remade::default()
        },
    };
    build(&mut builder)?;
    let mut remade = builder.remade;
    if let Err(error) = claim(dir, &mut remade) {
        remade.give_back(dir);
        return Err(error);
    }
    Ok(Placement::Remade(remade))
}

/// Claims space for the new blocks, which follow the directory's last block.
fn claim(dir: &Inode, remade: &mut Remade) -> Result<(), Error> {
    let volume = &dir.volume;
    let end = remade.first_new + remade.made.len() as u64;
    let wide = volume.sb.features().incompat.has(Incompat::LARGE_DIR);
    let most = if wide { u64::MAX } else { u64::from(u32::MAX) };
    if end > dir.max_size.min(most) >> volume.block_size().trailing_zeros() {
        return Err(Error::DirectoryFull { ino: dir.ino });
    }
    let mut at = remade.first_new;
    while at < end {
        let want = u32::try_from(end - at).expect("a block or two for each level");
        let near = dir.whole_clusters(at.saturating_sub(1)..end);
        let view = dir.load_map(near)?;
        let take = || dir.claims.take(dir, &view, at, want);
        let run = volume.with_all_space(take);
        // A directory grows rarely, so it keeps no claimed blocks for later.
        dir.claims.close(dir);
        let run = run?;
        remade.runs.push(NewRun {
            file_block: u32::try_from(at).expect("the largest size was checked"),
            len: run.len,
            start: run.start,
            unwritten: false,
        });
        at += u64::from(run.len);
    }
    Ok(())
}
