//! Finds the superblock: the primary one, or a replacement if its checksum is wrong.
//!
//! Input: a device. Output: [`Found`]. Invariants: reads only; a backup counts only if its own fields say that it belongs at its place, and
//! to this volume. Limits: only a wrong checksum is taken for a torn write. If that write changed only the flags that recovery changes, the
//! superblock of before or after it can be rebuilt. Otherwise a backup replaces it, whose counts and states are as old as the backup; only
//! the head of the orphan list is taken over from the torn superblock. Copies in the log are found by `mount`.

use super::{Blocks, read_bytes};
use crate::error::Error;
use diorite_block::Blocking;
use diorite_format::superblock::{
    SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, SuperblockEdit, as_primary, backup_candidates,
    is_same_volume, may_stand_in,
};
use diorite_format::{Corrupt, FormatError, Superblock};
use std::sync::Arc;

/// The bytes of a superblock.
pub(crate) type Raw = [u8; SUPERBLOCK_SIZE];

/// The superblock to use.
pub struct Found {
    /// The superblock, checked.
    pub sb: Superblock,
    /// The primary superblock's block as it should be, if the one on the device is torn.
    pub(crate) patch: Arc<Blocks>,
    /// A message for the user, if the primary superblock was replaced.
    pub note: Option<String>,
}

/// Reads and checks the primary superblock. If it was torn, finds or rebuilds a replacement. Blocks.
///
/// # Errors
/// No file system; damage; the device's.
pub(crate) fn find(blocking: &Blocking) -> Result<Found, Error> {
    let primary = read(blocking, SUPERBLOCK_OFFSET)?;
    let wrong = match Superblock::parse(&primary) {
        Ok(sb) => {
            return Ok(Found {
                sb,
                patch: Arc::default(),
                note: None,
            });
        }
        Err(e) => e,
    };
    let mut found = None;
    if matches!(wrong, FormatError::Corrupt(Corrupt::SuperChecksum { .. })) {
        found = match mend(&primary) {
            Some(mended) => Some((mended, "its flags were half written".to_owned())),
            None => find_copy(blocking, &primary)?,
        };
    }
    match found {
        Some((raw, how)) => stand_in(blocking, &raw, &how),
        None => Err(Error::from(wrong).at(blocking.device().name())),
    }
}

/// Rebuilds a torn superblock: it has two sectors, of which only one was written. Succeeds if that write changed only these flags.
fn mend(torn: &Raw) -> Option<Raw> {
    let flags = [(true, true), (true, false), (false, true), (false, false)];
    let with = |(needs_recovery, error)| {
        let mut raw = *torn;
        let mut edit = SuperblockEdit::new(&mut raw);
        edit.set_needs_recovery(needs_recovery);
        edit.set_error_state(error);
        // The checksum is not updated: that it fits proves that the flags are right.
        Superblock::parse(&raw).ok().map(|_| raw)
    };
    flags.into_iter().find_map(with)
}

/// The copy to use: the first one that agrees with the torn superblock in all that never changes; else the first one that may stand in.
fn find_copy(blocking: &Blocking, torn: &Raw) -> Result<Option<(Raw, String)>, Error> {
    let mut second = None;
    for place in backup_candidates(blocking.device().geometry().size) {
        let raw = read(blocking, place.at.get())?;
        let belongs = |sb: &Superblock| {
            sb.block_size() == place.block_size && u32::from(sb.block_group_nr()) == place.group
        };
        if !Superblock::parse(&raw).is_ok_and(|sb| belongs(&sb)) {
            continue;
        }
        if is_same_volume(&raw, torn) {
            return Ok(Some(from_copy(raw, torn, place.group)));
        }
        if second.is_none() && may_stand_in(&raw, torn) {
            second = Some((raw, place.group));
        }
    }
    Ok(second.map(|(raw, group)| from_copy(raw, torn, group)))
}

fn from_copy(mut raw: Raw, torn: &Raw, group: u32) -> (Raw, String) {
    as_primary(&mut raw, torn);
    let how = format!("its copy in group {group} stands in for it, with counts as old as the copy");
    (raw, how)
}

/// The primary superblock as it is, with a checksum that fits: a guess, good for finding what may tell more. None if it is right, or if
/// more than its checksum is wrong. Blocks.
///
/// # Errors
/// The device's.
pub(crate) fn guess(blocking: &Blocking) -> Result<Option<(Found, Box<Raw>)>, Error> {
    let torn = read(blocking, SUPERBLOCK_OFFSET)?;
    let mut sealed = torn;
    SuperblockEdit::new(&mut sealed).seal();
    match (Superblock::parse(&torn), Superblock::parse(&sealed)) {
        (Err(FormatError::Corrupt(Corrupt::SuperChecksum { .. })), Ok(_)) => {
            Ok(Some((stand_in(blocking, &sealed, "")?, Box::new(torn))))
        }
        _ => Ok(None),
    }
}

/// Uses `raw` in place of the primary superblock.
pub(crate) fn stand_in(blocking: &Blocking, raw: &Raw, how: &str) -> Result<Found, Error> {
    let sb = Superblock::parse(raw)?;
    let (block, size) = (sb.super_block(), sb.block_size() as usize);
    let start = sb.byte_of(block).get();
    let mut bytes = read_bytes(blocking, start, size)?;
    let at = (SUPERBLOCK_OFFSET - start) as usize;
    bytes[at..at + SUPERBLOCK_SIZE].copy_from_slice(raw);
    Ok(Found {
        sb,
        patch: Arc::new(Blocks::from([(block, bytes.into())])),
        note: Some(format!("the superblock's checksum is wrong; {how}")),
    })
}

/// The number of blocks that the volume has according to the primary superblock in its whole block. None if that cannot be read.
pub(crate) fn blocks_in(block: &[u8]) -> Option<u64> {
    let sb = Superblock::parse(raw_in(block)?).ok()?;
    Some(sb.geometry().blocks_count())
}

/// The bytes of the primary superblock in its whole block.
pub(crate) fn raw_in(block: &[u8]) -> Option<&Raw> {
    let from = (SUPERBLOCK_OFFSET % block.len() as u64) as usize;
    block.get(from..from + SUPERBLOCK_SIZE)?.try_into().ok()
}

fn read(blocking: &Blocking, at: u64) -> Result<Raw, Error> {
    let raw = read_bytes(blocking, at, SUPERBLOCK_SIZE)?;
    Ok(raw[..]
        .try_into()
        .expect("as many bytes were read as asked"))
}
