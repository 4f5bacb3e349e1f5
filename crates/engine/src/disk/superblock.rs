//! The superblock: the primary one, or what stands in for it where its checksum fails.
//!
//! Input: a device. Output: [`Found`]. Invariants: reads only; a copy counts only where it says of itself that it belongs. Limits: only a
//! wrong sum is taken for a torn write. If that write changed no more than the flags that recovery changes, it is known what was there
//! before or after it; else a copy stands in, whose counts and states are as old as the copy. Only the chain of orphans goes on.

use super::{Blocks, read_bytes};
use crate::error::Error;
use diorite_block::Blocking;
use diorite_format::superblock::{
    SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, SuperblockEdit, as_primary, backup_candidates,
};
use diorite_format::{Corrupt, FormatError, Superblock};
use std::sync::Arc;

type Raw = [u8; SUPERBLOCK_SIZE];

/// A superblock to go by.
pub struct Found {
    /// It, checked.
    pub sb: Superblock,
    /// The block of the primary as it should be, if it is not.
    pub(crate) patch: Arc<Blocks>,
    /// What a person should know.
    pub note: Option<String>,
}

/// Reads and checks a superblock of the volume: the primary one, or what stands in for one that was torn. Blocks.
///
/// # Errors
/// No file system; damage; the device's.
pub fn find(blocking: &Blocking) -> Result<Found, Error> {
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

/// The superblock before or after a write of two sectors of which one arrived, if it changed no more than these flags.
fn mend(torn: &Raw) -> Option<Raw> {
    let flags = [(true, true), (true, false), (false, true), (false, false)];
    let with = |(needs_recovery, error)| {
        let mut raw = *torn;
        let mut edit = SuperblockEdit::new(&mut raw);
        edit.set_needs_recovery(needs_recovery);
        edit.set_error_state(error);
        // Not sealed: the sum is the evidence.
        Superblock::parse(&raw).ok().map(|_| raw)
    };
    flags.into_iter().find_map(with)
}

fn find_copy(blocking: &Blocking, torn: &Raw) -> Result<Option<(Raw, String)>, Error> {
    for place in backup_candidates(blocking.device().geometry().size) {
        let mut raw = read(blocking, place.at.get())?;
        let belongs = |sb: &Superblock| {
            sb.block_size() == place.block_size && u32::from(sb.block_group_nr()) == place.group
        };
        if Superblock::parse(&raw).is_ok_and(|sb| belongs(&sb)) {
            as_primary(&mut raw, torn);
            let how = format!(
                "its copy in group {} stands in for it, with counts as old as the copy",
                place.group
            );
            return Ok(Some((raw, how)));
        }
    }
    Ok(None)
}

/// Goes by `raw` in place of the primary.
fn stand_in(blocking: &Blocking, raw: &Raw, how: &str) -> Result<Found, Error> {
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

fn read(blocking: &Blocking, at: u64) -> Result<Raw, Error> {
    let raw = read_bytes(blocking, at, SUPERBLOCK_SIZE)?;
    Ok(raw[..]
        .try_into()
        .expect("as many bytes were read as asked"))
}
