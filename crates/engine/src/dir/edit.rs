//! Names put into a directory, and taken out.
//!
//! Input: a directory, locked by the caller, and a name. Output: one block of it changed in the caller's handle; a linear directory without room
//! gets a block more. Invariants: a name goes where a look-up will search it; the new block is made before the map points to it, and the
//! map is shown before the size. Limits: a full block of a hash tree is refused by name, as is a directory that is inside its inode.

use super::lookup::{Hashed, hashed, leaf_for};
use super::{blocks, read_block};
use crate::alloc::Run;
use crate::cache::Kind;
use crate::error::{Error, NotYet};
use crate::inode::{Inode, timestamp};
use crate::journal::JournalHandle;
use crate::map::edit::NewRun;
use diorite_format::dir::{DirBlock, DirBlockEdit, Inserted, init_block};
use diorite_format::error::Unfit;
use diorite_format::{FileBlock, FileType, FormatError, Ino, InodeFlags, MapKind};

/// Where a new name goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Room {
    /// Into this block.
    Block(u64),
    /// Into a block more, behind the last, in this claimed run.
    NewBlock(u64, Run),
}

impl Room {
    /// What was claimed for it and is not used goes back.
    pub(super) fn give_back(self, dir: &Inode) {
        if let Room::NewBlock(_, run) = self {
            dir.give_back(run);
        }
    }

    /// Blocks of metadata that putting a name there changes.
    pub(super) fn credits(self, dir: &Inode) -> u32 {
        match self {
            Room::Block(_) => 2,
            Room::NewBlock(block, run) => 2 + dir.credits_to_map(1, &[new_run(block, run)]),
        }
    }
}

/// May names of this directory be changed?
pub(super) fn check_changeable(dir: &Inode) -> Result<(), Error> {
    let (disk, ino) = (dir.disk(), dir.ino);
    if disk.flags.has(InodeFlags::IMMUTABLE) {
        let flag = "immutable";
        return Err(Error::NotPermitted { ino, flag });
    }
    let special = disk.map_kind() == MapKind::Inline
        || disk.flags.has(InodeFlags::ENCRYPT)
        || disk.flags.has(InodeFlags::CASEFOLD);
    if special {
        return Err(Error::NotYet(NotYet::SpecialDirectory { ino }));
    }
    Ok(())
}

/// Looks for room for a name that is not there yet; claims a block if there is none. Blocks.
pub(super) fn find_room(dir: &Inode, name: &[u8]) -> Result<Room, Error> {
    let ino = dir.ino;
    match hashed(dir)? {
        Hashed::Unknown => Err(Error::NotYet(NotYet::SpecialDirectory { ino })),
        Hashed::Yes(root) => {
            let leaf = leaf_for(dir, &root, name)?;
            match has_room(dir, leaf, name)? {
                true => Ok(Room::Block(leaf)),
                false => Err(Error::NotYet(NotYet::FullLeaf { ino })),
            }
        }
        Hashed::No => {
            let count = blocks(dir)?;
            for block in 0..count {
                if has_room(dir, block, name)? {
                    return Ok(Room::Block(block));
                }
            }
            claim_behind(dir, count)
        }
    }
}

/// Tries it on a copy of the block.
fn has_room(dir: &Inode, block: u64, name: &[u8]) -> Result<bool, Error> {
    let Some(raw) = read_block(dir, block)? else {
        return Ok(false);
    };
    let mut copy = raw.to_vec();
    let disk = dir.disk();
    let mut edit = DirBlockEdit::open(&dir.volume.sb, &disk, FileBlock::new(block), &mut copy)?;
    let done = edit.insert(name, Ino::ROOT, FileType::Regular)?;
    Ok(matches!(done, Inserted::At(_)))
}

fn claim_behind(dir: &Inode, block: u64) -> Result<Room, Error> {
    dir.check_can_grow()?;
    let most = dir.max_size.min(u64::from(u32::MAX)) >> dir.volume.block_size().trailing_zeros();
    if block >= most {
        let (ino, end) = (dir.ino, dir.size() + u64::from(dir.volume.block_size()));
        let most = dir.size();
        return Err(Error::TooBig { ino, end, most });
    }
    let near = dir.whole_clusters(block.saturating_sub(1)..block + 1);
    let view = dir.load_map(near)?;
    let claim = || dir.claims.take(dir, &view, block, 1);
    let run = dir.volume.with_all_space(claim);
    // A directory grows seldom: it keeps nothing ahead.
    dir.claims.close(dir);
    Ok(Room::NewBlock(block, run?))
}

/// Puts a name where there is room. What fails here has changed nothing, or aborts the journal.
pub(super) fn put(
    handle: &JournalHandle<'_>,
    dir: &Inode,
    room: Room,
    (name, ino, kind): (&[u8], Ino, FileType),
) -> Result<(), Error> {
    let now = timestamp(dir.volume.now_nanos());
    let disk = dir.disk();
    let sb = &dir.volume.sb;
    let (block, run) = match room {
        Room::Block(block) => {
            change_block(dir, handle, block, |edit| edit.insert(name, ino, kind))?;
            return handle.or_abort(dir.change(handle, |d| (d.mtime, d.ctime) = (now, now)));
        }
        Room::NewBlock(block, run) => (block, run),
    };
    let mut remap = dir.remap(handle)?;
    remap.map_claimed(new_run(block, run))?;
    remap.disk.size = (block + 1) * u64::from(dir.volume.block_size());
    remap.written_at(now);
    let mut filled = Ok(Inserted::Full);
    handle.create(run.start, Kind::Directory, |raw| {
        filled = init_block(sb, &disk, raw).and_then(|()| {
            let opened = DirBlockEdit::open(sb, &disk, FileBlock::new(block), raw);
            let mut edit = opened.map_err(|_| not_fit())?;
            edit.insert(name, ino, kind)
        });
    });
    handle.or_abort(filled.map_err(Error::from))?;
    remap.publish()
}

/// A block that was made a line before parses.
fn not_fit() -> Unfit {
    Unfit::Rule {
        what: "a directory block",
        why: "a new one does not parse",
    }
}

/// Takes a name out of the block that has it.
pub(super) fn take_out(
    handle: &JournalHandle<'_>,
    dir: &Inode,
    block: u64,
    name: &[u8],
) -> Result<(), Error> {
    let now = timestamp(dir.volume.now_nanos());
    change_block(dir, handle, block, |edit| edit.remove(name))?;
    handle.or_abort(dir.change(handle, |d| (d.mtime, d.ctime) = (now, now)))
}

fn change_block<R>(
    dir: &Inode,
    handle: &JournalHandle<'_>,
    block: u64,
    change: impl FnOnce(&mut DirBlockEdit<'_>) -> Result<R, Unfit>,
) -> Result<R, Error> {
    let (sb, disk, number) = (&dir.volume.sb, dir.disk(), FileBlock::new(block));
    let at = super::place_of(dir, block)?.ok_or_else(|| {
        let ino = dir.ino;
        Error::Damaged(format!(
            "directory inode {ino}: block {block} is a hole; run e2fsck"
        ))
    })?;
    let verify = |raw: &[u8]| -> Result<(), FormatError> {
        DirBlock::parse(sb, &disk, number, raw).map(|_| ())
    };
    handle.update(at, Kind::Directory, verify, |raw| {
        let mut edit = DirBlockEdit::open(sb, &disk, number, raw)?;
        change(&mut edit).map_err(Error::from)
    })
}

fn new_run(block: u64, run: Run) -> NewRun {
    NewRun {
        file_block: u32::try_from(block).expect("a directory's size was checked"),
        len: run.len,
        start: run.start,
        unwritten: false,
    }
}
