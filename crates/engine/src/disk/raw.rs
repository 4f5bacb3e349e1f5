//! Bytes and blocks of a device that has no opened volume yet.
//!
//! Input: a device and places. Output: bytes; the superblock, changed in place. Invariants: reads are rounded out to the device's
//! logical blocks; [`edit_superblock`] is durable when it returns. Limits: blocks the calling thread.

use crate::error::Error;
use crate::op::Op;
use diorite_block::{Blocking, Buf};
use diorite_format::FsBlock;
use diorite_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, SuperblockEdit};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Contents of blocks of the volume, by block number. Equal contents may share memory.
pub(crate) type Blocks = BTreeMap<FsBlock, Arc<[u8]>>;

/// Reads any range of the device, rounded out to its logical blocks. Blocks.
///
/// # Errors
/// `Invalid` if the range passes the device's end; the device's.
pub fn read_bytes(blocking: &Blocking, at: u64, len: usize) -> Result<Vec<u8>, Error> {
    Ok(diorite_mkfs::parts::read_bytes(blocking, at, len)?)
}

/// Changes the primary superblock in place, durably. Blocks.
pub(crate) fn edit_superblock(
    blocking: &Blocking,
    block_size: u32,
    change: impl FnOnce(&mut SuperblockEdit<'_>),
) -> Result<(), Error> {
    edit_kept_superblock(blocking, block_size, change, |_| Ok(()))
}

/// As [`edit_superblock`]; `keep` gets the block before it is written, to keep a copy of it. Blocks.
pub(crate) fn edit_kept_superblock(
    blocking: &Blocking,
    block_size: u32,
    change: impl FnOnce(&mut SuperblockEdit<'_>),
    keep: impl FnOnce(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let size = u64::from(block_size);
    let pos = SUPERBLOCK_OFFSET - SUPERBLOCK_OFFSET % size;
    let failed = |error| Error::Device {
        op: Op::Read,
        pos,
        len: block_size,
        error,
    };
    let read = blocking.read(pos, Buf::zeroed(block_size as usize));
    let mut block = read.map_err(failed)?.as_slice().to_vec();
    let at = (SUPERBLOCK_OFFSET - pos) as usize;
    let raw: &mut [u8; SUPERBLOCK_SIZE] = (&mut block[at..at + SUPERBLOCK_SIZE])
        .try_into()
        .expect("a slice of as many bytes");
    let mut edit = SuperblockEdit::new(raw);
    change(&mut edit);
    edit.seal();
    keep(&block)?;
    write_block(blocking, pos, &block)?;
    flush(blocking)
}

/// Writes bytes at a position that is a multiple of the device's logical block. Blocks.
pub(crate) fn write_block(blocking: &Blocking, pos: u64, bytes: &[u8]) -> Result<(), Error> {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let failed = |e| Error::of_write(&**blocking.device(), pos, len, e);
    blocking.write_bytes(pos, bytes).map_err(failed)
}

/// Makes durable what was written to the device before. Blocks.
pub(crate) fn flush(blocking: &Blocking) -> Result<(), Error> {
    let failed = |e| Error::of_flush(&**blocking.device(), e);
    blocking.flush().map_err(failed)
}
