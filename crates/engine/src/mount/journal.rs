//! What opening wants to know of the journal: is it empty, and which blocks are its own.
//!
//! Input: the journal's inode. Output: its blocks, guarded against files that point there; a refusal for writing if there
//! is something in it. Invariant: reads only. Limits: an external journal is not looked into: recovery flags tell.

use super::{OpenOptions, Zone};
use crate::error::Error;
use crate::file::OpenFlags;
use crate::journal::{Journal, Log, Places};
use crate::map::MappingState;
use crate::volume::Volume;
use diorite_format::FsBlock;
use diorite_format::features::Incompat;
use diorite_format::journal::JournalSuper;
use diorite_format::journal::write::modernise;
use diorite_format::superblock::JournalPlace;

/// Looks at the journal of a volume that is being opened.
pub(crate) fn read_journal(volume: &Volume, options: &OpenOptions) -> Result<(), Error> {
    let ino = match volume.superblock().journal() {
        JournalPlace::Internal(ino) => ino,
        JournalPlace::None if options.write => {
            let level = volume.inner().level;
            let journal = Journal::new(level, None, options.commit_interval);
            volume.inner().set_journal(journal);
            return Ok(());
        }
        JournalPlace::None | JournalPlace::External { .. } => return Ok(()),
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
    let runs: Vec<(u64, FsBlock, u64)> = mappings
        .iter()
        .filter_map(|m| match m.state {
            MappingState::Written(at) | MappingState::Unwritten(at) => Some((m.start, at, m.len)),
            MappingState::Hole => None,
        })
        .collect();
    let places = runs.iter().map(|(_, at, len)| (*at, *len));
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
    if options.write {
        let log = open_log(volume, raw, &runs)?;
        let journal = Journal::new(volume.inner().level, Some(log), options.commit_interval);
        volume.inner().set_journal(journal);
    }
    Ok(())
}

/// The log of an empty journal, in the form that a mount gives it. Nothing is written yet.
fn open_log(volume: &Volume, mut raw: Vec<u8>, runs: &[(u64, FsBlock, u64)]) -> Result<Log, Error> {
    let sb = volume.superblock();
    let wide = sb.features().incompat.has(Incompat::BIT64);
    modernise(&mut raw, wide, sb.has_metadata_csum());
    let blocks: u64 = runs.iter().map(|(.., len)| len).sum();
    if runs.first().is_none_or(|(first, ..)| *first != 0) {
        return Err(Error::Damaged("the journal's first block is a hole".into()));
    }
    let journal = JournalSuper::parse(&raw, sb.block_size(), blocks)
        .map_err(|e| Error::from(e).at("the journal"))?;
    let short = |n: u64| {
        u32::try_from(n).map_err(|_| Error::Damaged("the journal has too many blocks".into()))
    };
    let mut places = Vec::with_capacity(runs.len());
    for (first, at, len) in runs {
        places.push((short(*first)?, *at, short(*len)?));
    }
    Ok(Log::new(None, Places { runs: places }, journal, raw))
}
