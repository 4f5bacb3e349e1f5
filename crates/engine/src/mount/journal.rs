//! What opening wants to know of the journal: is it empty, and which blocks are its own.
//!
//! Input: the journal's inode. Output: its blocks, guarded against files that point there; a refusal for writing if there
//! is something in it. Invariant: reads only. Limits: an external journal is not looked into: recovery flags tell.

use super::{OpenOptions, Zone};
use crate::error::Error;
use crate::file::OpenFlags;
use crate::map::MappingState;
use crate::volume::Volume;
use diorite_format::journal::JournalSuper;
use diorite_format::superblock::JournalPlace;

/// Looks at the journal of a volume that is being opened.
pub(crate) fn read_journal(volume: &Volume, options: &OpenOptions) -> Result<(), Error> {
    let JournalPlace::Internal(ino) = volume.superblock().journal() else {
        return Ok(());
    };
    let file = volume
        .open_ino(ino, OpenFlags::default())
        .map_err(|e| e.at("the journal"))?;
    let volume_bytes = volume.superblock().geometry().volume_bytes();
    // Before its map is walked: a few blocks that point to themselves can map any size.
    if file.size() > volume_bytes {
        let what = format!(
            "the journal's size {} is larger than the volume ({volume_bytes} bytes); run e2fsck",
            file.size()
        );
        return Err(Error::Damaged(what));
    }
    let mappings = file
        .mappings(0, file.size())
        .map_err(|e| e.at("the journal"))?;
    let places = mappings.iter().filter_map(|m| match m.state {
        MappingState::Written(at) | MappingState::Unwritten(at) => Some((at, m.len)),
        MappingState::Hole => None,
    });
    volume
        .inner()
        .guard_journal(Zone::of("the journal", places));
    let mut raw = vec![0; volume.superblock().block_size() as usize];
    file.read_bytes(0, &mut raw)?;
    let journal = JournalSuper::parse(
        &raw,
        volume.superblock().block_size(),
        file.size() / u64::from(volume.superblock().block_size()),
    )
    .map_err(|e| Error::from(e).at("the journal"))?;
    if options.write && !journal.is_empty() {
        let what = "opening for writing is refused: the journal is not empty";
        return Err(Error::refused(
            what,
            "mount it once with the kernel, or run e2fsck",
        ));
    }
    Ok(())
}
