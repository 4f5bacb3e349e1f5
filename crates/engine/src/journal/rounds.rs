//! Without a journal: metadata goes home in ordered rounds.
//!
//! Input: frozen transactions. Output: blocks at home. Invariants: data first, by a flush; then blocks that nothing on disk points to; a
//! flush; then descriptors of groups more of whose inodes are used than before, a flush, because e2fsck looks at no others and may give away what these have;
//! then the rest, and a flush: at once, or in the phases that names ask for (`order`), a flush behind each; only then may what the round
//! freed be used again (design: no file shows bytes never written to it once e2fsck has run). Limits: names and counts may be torn by a
//! crash between the flushes; e2fsck mends them.

use super::commit::{Frozen, FrozenBlock, WritePhase};
use crate::disk::Disk;
use crate::error::Error;
use diorite_format::FsBlock;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug)]
pub(super) struct Rounds;

/// One of the things that are written of a block.
struct Version<'a> {
    phase: WritePhase,
    bytes: Cow<'a, [u8]>,
}

/// What is written in one phase.
type Written<'a> = Vec<(FsBlock, Cow<'a, [u8]>)>;

impl Rounds {
    /// Writes a transaction home.
    pub(super) fn commit(&self, disk: &Disk, frozen: &Frozen) -> Result<(), Error> {
        disk.flush()?;
        frozen.check_data(disk)?;
        let mut phases: BTreeMap<WritePhase, Written<'_>> = BTreeMap::new();
        for block in &frozen.blocks {
            for Version { phase, bytes } in versions(disk, block)? {
                phases.entry(phase).or_default().push((block.at, bytes));
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

/// What is written of a block, and when. What is held back of it stays as it is on disk until its phase, so the versions differ in whole
/// inodes.
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
