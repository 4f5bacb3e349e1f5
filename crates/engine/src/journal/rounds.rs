//! Without a journal: a commit writes metadata home in ordered rounds.
//!
//! Input: frozen transactions. Output: blocks at home. Invariants: the order, with a flush behind each step: data; blocks that nothing on
//! disk points to yet; descriptors of groups whose inode tables are in use further than before, since e2fsck looks at no inodes
//! behind that and might give away their blocks; the rest, at once or in the phases that names ask for (`order`). A superblock of
//! another size comes after all this: what it counts is home then, and so is what the old one counts. Only then may what the
//! round freed be used again, so that no file shows bytes never written to it once e2fsck has run. Limits: a crash between the flushes may
//! leave names and counts inconsistent; e2fsck repairs them.

use super::commit::{Frozen, FrozenBlock, WritePhase};
use crate::disk::Disk;
use crate::error::Error;
use diorite_format::FsBlock;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug)]
pub(super) struct Rounds;

/// One of the versions of a block that are written, one per phase.
struct Version<'a> {
    phase: WritePhase,
    bytes: Cow<'a, [u8]>,
}

/// The blocks of one phase.
type Written<'a> = Vec<(FsBlock, Cow<'a, [u8]>)>;

impl Rounds {
    /// Writes a transaction home.
    pub(super) fn commit(&self, disk: &Disk, frozen: &Frozen) -> Result<(), Error> {
        disk.flush()?;
        frozen.check_data(disk)?;
        let sb = disk.sb.super_block();
        // With the phase goes what comes before it: a superblock of another size is the last of all.
        let mut phases: BTreeMap<(bool, WritePhase), Written<'_>> = BTreeMap::new();
        for block in &frozen.blocks {
            let is_last = frozen.transaction.resize.is_some() && block.at == sb;
            for Version { phase, bytes } in versions(disk, block)? {
                let written = phases.entry((is_last, phase)).or_default();
                written.push((block.at, bytes));
            }
        }
        for blocks in phases.values() {
            disk.write_blocks_durably(blocks.iter().map(|(at, bytes)| (*at, &**bytes)))?;
        }
        for block in &frozen.blocks {
            disk.cache.is_home(block.at, &block.bytes);
        }
        Ok(())
    }
}

/// The versions of a block, and the phase of each. Parts that are held back stay as they are on disk until their phase, so the versions
/// differ in whole inodes.
fn versions<'a>(disk: &Disk, block: &'a FrozenBlock) -> Result<Vec<Version<'a>>, Error> {
    if block.held.is_empty() {
        let (phase, bytes) = (block.phase, Cow::Borrowed(&*block.bytes));
        return Ok(vec![Version { phase, bytes }]);
    }
    let home = disk.cache.load(&disk.blocking, block.at)?;
    let size = disk.sb.geometry().inode_size() as usize;
    let phases = block
        .held
        .iter()
        .map(|held| held.phase)
        .chain([block.phase]);
    let (mut versions, mut before) = (Vec::new(), home.as_slice().to_vec());
    for phase in phases.collect::<BTreeSet<_>>() {
        let mut bytes = block.bytes.to_vec();
        for held in block.held.iter().filter(|held| held.phase > phase) {
            let inode = held.from..held.from + size;
            bytes[inode.clone()].copy_from_slice(&home.as_slice()[inode]);
        }
        if bytes != before {
            before.clone_from(&bytes);
            let bytes = Cow::Owned(bytes);
            versions.push(Version { phase, bytes });
        }
    }
    Ok(versions)
}
