//! Finds the superblock: as `disk` does, or the one in the log, if the primary one is torn and there is no other replacement.
//!
//! Input: a device. Output: [`FoundSuperblock`]. Invariants: reads only. A torn superblock is used only to find the journal. Then the block
//! in the log is used, if the log's checksums and its own are valid and all fields that never change are those of this volume; or a copy in
//! an empty log that is equal to one half of the torn superblock. Limits: a journal inside the volume, which has the block and is not
//! damaged; otherwise the torn one is refused, by its checksum.

use super::journal;
use super::look::look;
use super::recover::over;
use crate::disk::{Descriptors, FoundSuperblock, Raw, find_superblock, guess, raw_in, stand_in};
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::recovery::{LogBlocks, LogSource, replay};
use crate::options::OpenOptions;
use diorite_block::Blocking;
use diorite_format::Superblock;
use diorite_format::journal::JournalSuper;
use diorite_format::superblock::{JournalPlace, is_same_volume};

/// Reads and checks the superblock. If the primary one was torn, finds or rebuilds a replacement. Blocks.
///
/// # Errors
/// No file system; damage; the device's.
pub fn find(blocking: &Blocking) -> Result<FoundSuperblock, Error> {
    let wrong = match find_superblock(blocking) {
        Err(wrong) if wrong.is_corrupt() => wrong,
        other => return other,
    };
    match in_log(blocking) {
        Ok(Some(found)) => Ok(found),
        Err(failed @ Error::Device { .. }) => Err(failed),
        // Whatever is wrong on the way: the reason for looking there says more.
        Ok(None) | Err(_) => Err(wrong),
    }
}

/// The newest superblock in the log to which a torn one leads.
fn in_log(blocking: &Blocking) -> Result<Option<FoundSuperblock>, Error> {
    let Some((guess, torn)) = guess(blocking)? else {
        return Ok(None);
    };
    let JournalPlace::Internal(_) = guess.sb.journal() else {
        return Ok(None);
    };
    let (device, options) = (blocking.device(), OpenOptions::default());
    let guessed = over(device, guess.sb.block_size(), &guess.patch);
    let expected = Descriptors::BeforeReplay;
    let mounted = look(&guessed, Some(&guess.sb), &options, Vec::new(), expected)?;
    let fs = Fs::new(mounted.parts, &options, mounted.data_journalled);
    let nowhere = |_: &str, _| Err(Error::ShutDown);
    let found = journal::find(&fs, device, &options, &nowhere)?;
    let Some(mut log) = found.filter(|log| log.fault.is_none()) else {
        return Ok(None);
    };
    let mut raw = None;
    if !log.journal.is_empty() {
        let replayed = replay(&log.journal, &mut log.source, &mut log.bounds)?;
        let block = replayed.blocks.get(&guess.sb.super_block());
        let newest = block.and_then(|block| raw_in(block));
        let newest = newest.filter(|raw| is_same_volume(raw, &torn));
        raw = newest.filter(|_| replayed.damaged.is_none()).copied();
    }
    if raw.is_none() {
        raw = kept(&log.journal, &mut log.source, &torn)?;
    }
    match raw {
        Some(raw) => stand_in(blocking, &raw, "the one in its journal stands in for it").map(Some),
        None => Ok(None),
    }
}

/// A superblock somewhere in the log that is the one of before the torn write or the one of after it: whole by its checksum, and equal in
/// one of its two sectors. A copy is put there before each write in place, and what was logged stays readable for a while.
fn kept(journal: &JournalSuper, source: &mut LogSource, torn: &Raw) -> Result<Option<Raw>, Error> {
    const SECTOR: usize = 512;
    let is_one = |raw: &&Raw| {
        let same = raw[..SECTOR] == torn[..SECTOR] || raw[SECTOR..] == torn[SECTOR..];
        same && is_same_volume(raw, torn) && Superblock::parse(raw).is_ok()
    };
    for at in journal.first..journal.log_end() {
        let found = raw_in(source.read(at)?).filter(is_one);
        if found.is_some() {
            return Ok(found.copied());
        }
    }
    Ok(None)
}
