//! Zeros in free blocks (zerofree).
//!
//! Input: a volume. Output: its free blocks filled with zeros, or only looked at. Invariants: a run is claimed while zeros are written, so
//! nobody else writes to it; blocks freed by a transaction that is not durable are not written to (rule G17); a block that holds zeros
//! already is not written. Limits: free blocks only: not what is behind the end of a file in its last block, not free entries of
//! directories and inode tables, not the log.

use super::trim::each_free_run;
use crate::alloc::Run;
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::Fs;
use crate::op::Op;
use crate::volume::Volume;
use diorite_block::{Bio, Buf, Stored};
use diorite_format::{FsBlock, GroupDesc, bitmap};
use std::ops::Range;

/// How many bytes are read at once.
const PART: u32 = 1 << 20;
/// How many bytes are claimed at once: others cannot allocate them meanwhile.
const CLAIMED: u32 = 32 << 20;

/// What the free blocks of a volume hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeBlocks {
    /// Free blocks.
    pub free: u64,
    /// Those of them that held anything but zeros.
    pub nonzero: u64,
}

impl Volume {
    /// Writes zeros to the free blocks that hold anything else, durably. `watch` is told how many bytes of the volume are done. Blocks that
    /// a transaction has freed which is not durable are left alone: [`Volume::sync`] makes them free. Blocks.
    ///
    /// # Errors
    /// The volume may not be written; damage; a device that fails.
    pub fn zero_free(&self, mut watch: impl FnMut(u64)) -> Result<FreeBlocks, Error> {
        let fs = self.inner();
        fs.check_open()?;
        let mut look = Look::new(fs);
        let everything = FsBlock::new(0)..FsBlock::new(fs.sb.geometry().blocks_count());
        let most = (CLAIMED / fs.block_size()).max(1);
        each_free_run(fs, everything, (1, most), |run| {
            look.at(run, |range| write_zeros(fs, range))?;
            watch(fs.sb.byte_of(run.end()).get());
            Ok(())
        })?;
        if look.found.nonzero > 0 {
            fs.flush()?;
        }
        Ok(look.found)
    }

    /// As [`Volume::zero_free`], but only counts; for a volume that is open for reading too. Of a volume that somebody changes meanwhile it
    /// may count blocks that have just been written. Blocks.
    ///
    /// # Errors
    /// Damage; a device that fails.
    pub fn look_at_free(&self, mut watch: impl FnMut(u64)) -> Result<FreeBlocks, Error> {
        let fs = self.inner();
        fs.check_open()?;
        let mut look = Look::new(fs);
        each_free(fs, |run| {
            look.at(run, |_| Ok(()))?;
            watch(fs.sb.byte_of(run.end()).get());
            Ok(())
        })?;
        Ok(look.found)
    }

    /// Where the free blocks are, in bytes of the device, in order: nobody misses what is there. Of a volume that somebody changes
    /// meanwhile it may have blocks that have just been taken. Blocks.
    ///
    /// # Errors
    /// Damage; a device that fails.
    pub fn free_ranges(&self) -> Result<Vec<Range<u64>>, Error> {
        let fs = self.inner();
        fs.check_open()?;
        let mut all: Vec<Range<u64>> = Vec::new();
        each_free(fs, |run| {
            let range = fs.sb.byte_of(run.start).get()..fs.sb.byte_of(run.end()).get();
            match all.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => all.push(range),
            }
            Ok(())
        })?;
        Ok(all)
    }
}

/// Calls `of_run` for each free run, in order, without claiming it.
fn each_free(fs: &Fs, mut of_run: impl FnMut(Run) -> Result<(), Error>) -> Result<(), Error> {
    for group in fs.groups.iter() {
        let free = match &fs.alloc {
            Some(alloc) => alloc.free_runs(fs, group.group)?,
            None => free_in(fs, group)?,
        };
        free.into_iter().try_for_each(&mut of_run)?;
    }
    Ok(())
}

/// A look at free blocks.
struct Look<'v> {
    fs: &'v Fs,
    block: u64,
    /// The memory that is read to, between two reads.
    spare: Vec<Buf>,
    found: FreeBlocks,
}

impl Look<'_> {
    fn new(fs: &Fs) -> Look<'_> {
        Look {
            fs,
            block: u64::from(fs.block_size()),
            spare: Vec::new(),
            found: FreeBlocks::default(),
        }
    }

    /// Looks at a run, and calls `of_range` for each range of bytes whose blocks all hold something.
    fn at(
        &mut self,
        run: Run,
        mut of_range: impl FnMut(Range<u64>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.found.free += u64::from(run.len);
        let (mut at, end) = (run.start.get() * self.block, run.end().get() * self.block);
        while at < end {
            let run = self.fs.device.stored(at..end, 1)?;
            let run = run
                .first()
                .expect("at least one, of a range that is not empty");
            let until = (at + run.len).min(end);
            at = match run.stored {
                Stored::Hole | Stored::Zero => until,
                Stored::Data => {
                    // A block that has its data in a part only is read whole, once.
                    let range = at - at % self.block..until.next_multiple_of(self.block);
                    self.read(range.clone(), &mut of_range)?;
                    range.end
                }
            };
        }
        Ok(())
    }

    fn read(
        &mut self,
        range: Range<u64>,
        of_range: &mut impl FnMut(Range<u64>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let part = PART.min(self.fs.device.geometry().max_transfer);
        let part = u64::from(part - part % self.fs.block_size()).max(self.block);
        for at in range.clone().step_by(part as usize) {
            let len = part.min(range.end - at) as usize;
            let buf = match self.spare.pop().filter(|buf| buf.len() == len) {
                Some(buf) => buf,
                None => Buf::zeroed(len),
            };
            let failed = |error| Error::Device {
                op: Op::Read,
                pos: at,
                len: len as u32,
                error,
            };
            let buf = self.fs.blocking.read(at, buf).map_err(failed)?;
            let mut from = at;
            let blocks = buf.as_slice().chunks(self.block as usize);
            for (run, blocks) in runs(blocks.map(is_zero)) {
                let to = from + blocks * self.block;
                if !run {
                    self.found.nonzero += blocks;
                    of_range(from..to)?;
                }
                from = to;
            }
            self.spare = vec![buf];
        }
        Ok(())
    }
}

/// Equal neighbours, counted.
fn runs(all: impl Iterator<Item = bool>) -> Vec<(bool, u64)> {
    let mut runs: Vec<(bool, u64)> = Vec::new();
    for one in all {
        match runs.last_mut() {
            Some((same, count)) if *same == one => *count += 1,
            _ => runs.push((one, 1)),
        }
    }
    runs
}

fn is_zero(block: &[u8]) -> bool {
    let zeros = [0; 256];
    block
        .chunks(zeros.len())
        .all(|part| *part == zeros[..part.len()])
}

fn write_zeros(fs: &Fs, range: Range<u64>) -> Result<(), Error> {
    let len = (range.end - range.start) as usize;
    let bio = fs
        .blocking
        .run(Bio::write(range.start, Buf::zeroed(len), 0));
    let failed = |error| Error::of_write(&*fs.device, range.start, len as u32, error);
    bio.result.map_err(failed)
}

/// The free runs of a group, by its bitmap, which nobody changes.
fn free_in(fs: &Fs, group: &GroupDesc) -> Result<Vec<Run>, Error> {
    let sb = &fs.sb;
    let (fresh, read);
    let bits: &[u8] = if group.flags.block_uninit() {
        fresh = fs.fresh_bitmap(group.group)?;
        &fresh
    } else {
        let verify = |raw: &[u8]| group.verify_block_bitmap(sb, raw);
        read = fs
            .cache
            .read(&fs.blocking, group.block_bitmap, Kind::Bitmap, verify)?;
        &read
    };
    let (ratio, first) = (
        sb.geometry().cluster_ratio(),
        sb.group_first_block(group.group),
    );
    let (clusters, blocks) = (sb.group_clusters(group.group), sb.group_blocks(group.group));
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((start, len)) = bitmap::next_zero_run(bits, at, clusters, u32::MAX) {
        let from = start * ratio;
        found.push(Run {
            start: FsBlock::new(first.get() + u64::from(from)),
            len: len.saturating_mul(ratio).min(blocks - from),
        });
        at = start + len;
    }
    Ok(found)
}
