//! Moves the names of an inline directory out of its inode, because the inode has no room for a new name (inline_data).
//!
//! Input: an inline directory, whose lock the caller holds exclusively. Output: a linear directory of one block with the same names.
//! Invariant: it is one handle, so a crash leaves either form. Limits: a directory never becomes inline again.

use super::inline_dir::inline_entries;
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::INSIDE_CREDITS;
use crate::inode::Inode;
use crate::journal::NamesAt;
use crate::map::edit::NewRun;
use diorite_format::dir::{DirBlockEdit, init_first_block, inline_parent};
use diorite_format::inline::REST;
use diorite_format::{FileBlock, FileType};

/// Moves the names from the inode into a block. Blocks.
pub(super) fn move_out(dir: &Inode) -> Result<(), Error> {
    let bytes = block_of(dir)?;
    let view = dir.map.load();
    let run = dir
        .volume
        .with_all_space(|| dir.claims.take(dir, &view, 0, 1));
    dir.claims.close(dir);
    let run = run?;
    let new = NewRun {
        file_block: 0,
        len: run.len,
        start: run.start,
        unwritten: false,
    };
    let credits = 1 + INSIDE_CREDITS + dir.credits_to_map(1, &[new]);
    let moved = dir.volume.in_handle(credits, |handle| {
        let mut remap = dir.remap(handle)?;
        let inside = NamesAt::Inode(dir.ino);
        handle.names(inside);
        handle.spread(dir.ino, &[inside], std::iter::once(run.start));
        dir.remove_inside(handle, REST)?;
        handle.create(run.start, Kind::Directory, |raw| {
            raw.copy_from_slice(&bytes);
        });
        remap.disk.end_inline(&dir.volume.sb);
        handle.or_abort(remap.map_claimed(&[new]))?;
        remap.disk.size = u64::from(dir.volume.block_size());
        remap.publish()
    });
    moved.inspect_err(|_| dir.give_back(run))
}

/// The contents of the new block: all names of the directory.
fn block_of(dir: &Inode) -> Result<Vec<u8>, Error> {
    let (sb, disk) = (&dir.volume.sb, dir.disk());
    let mut bytes = vec![0; sb.block_size() as usize];
    init_first_block(sb, &disk, inline_parent(sb, &disk)?, &mut bytes)?;
    let mut edit = DirBlockEdit::open(sb, &disk, FileBlock::new(0), &mut bytes)?;
    let names = inline_entries(dir)?;
    let others = names.iter().filter(|e| e.name != b"." && e.name != b"..");
    for entry in others {
        let kind = entry.file_type.unwrap_or(FileType::Regular);
        edit.insert(&entry.name, entry.ino, kind)?;
    }
    Ok(bytes)
}
