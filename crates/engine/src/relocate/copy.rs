//! Copies blocks on the device.
//!
//! Input: runs of blocks, and their new places, which are free on disk. Output: the same bytes there. Invariants: all writes have ended,
//! well or not, when a call returns; nothing is durable before a flush. Limits: [`BATCH_BYTES`] are in memory at once, in bios of
//! [`BIO_BYTES`].

use crate::error::Error;
use crate::inode::Fs;
use crate::op::Op;
use diorite_block::{Bio, BioList, Buf};
use diorite_format::FsBlock;

/// Bytes that are copied at once.
pub(super) const BATCH_BYTES: u64 = 16 << 20;
/// Bytes of a bio.
const BIO_BYTES: u64 = 1 << 20;
/// Bios at once.
pub(super) const AT_ONCE: usize = (BATCH_BYTES / BIO_BYTES) as usize;

/// Copies runs of blocks: from, to, length. All writes have ended when it returns. Blocks.
pub(crate) fn copy(fs: &Fs, runs: &[(FsBlock, FsBlock, u32)]) -> Result<(), Error> {
    for parts in bio_parts(fs, runs.iter().copied()).chunks(AT_ONCE) {
        copy_parts(fs, parts)?;
    }
    Ok(())
}

/// Divides copies of runs of blocks into those of single bios: from, to, bytes.
pub(super) fn bio_parts(
    fs: &Fs,
    runs: impl Iterator<Item = (FsBlock, FsBlock, u32)>,
) -> Vec<(u64, u64, u64)> {
    let size = u64::from(fs.block_size());
    let most = (BIO_BYTES / size).max(1);
    let parts = runs.flat_map(|(from, to, len)| {
        let (from, to, len) = (from.get(), to.get(), u64::from(len));
        (0..len.div_ceil(most)).map(move |n| {
            let skip = n * most;
            let bytes = (len - skip).min(most) * size;
            ((from + skip) * size, (to + skip) * size, bytes)
        })
    });
    parts.collect()
}

/// Copies some parts of the device, all at once: from, to, bytes.
fn copy_parts(fs: &Fs, parts: &[(u64, u64, u64)]) -> Result<(), Error> {
    let reads = parts.iter().zip(0u64..).map(|((from, _, bytes), n)| {
        let len = usize::try_from(*bytes).expect("no more than a bio has");
        Bio::read(*from, Buf::zeroed(len), n)
    });
    let mut writes = BioList::new();
    for read in fs.blocking.run_all(reads.collect()) {
        well(fs, &read, Op::Read)?;
        let to = usize::try_from(read.token).ok().and_then(|n| parts.get(n));
        let (_, to, _) = *to.expect("devices carry the token as it was");
        writes.push_back(Bio::write(to, read.buf, 0));
    }
    fs.note_written(writes.iter().map(|bio| bio.len).sum());
    for write in fs.blocking.run_all(writes) {
        well(fs, &write, Op::Write)?;
    }
    Ok(())
}

/// The result of a bio.
pub(super) fn well(fs: &Fs, bio: &Bio, op: Op) -> Result<(), Error> {
    let len = u32::try_from(bio.len).unwrap_or(u32::MAX);
    let failed = |error| Error::of_bio(&*fs.device, op, bio.pos, len, error);
    bio.result.map_err(failed)
}
