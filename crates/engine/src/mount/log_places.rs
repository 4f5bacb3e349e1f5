//! The places of the log of an internal journal, and whether the log may be written there.
//!
//! Input: the journal's file. Output: [`LogPlaces`]: its runs, and the first reason not to trust them. Invariants: trusted runs have no
//! block of the volume's structures at fixed places or of the file's own map, and none twice (rule D10); the iteration ends at the first
//! such block, so it visits no more blocks than the volume has. Limits: whether another file has a block of the log is checked when that
//! file's map is read (see `Disk::metadata_in`).

use crate::error::Error;
use crate::inode::{Fs, Inode};
use crate::mapping::{Mapping, MappingState};
use diorite_format::FsBlock;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Where the log lies, and what is wrong with that.
#[derive(Debug, Default)]
pub(super) struct LogPlaces {
    /// The runs of the file, up to the first that cannot be trusted.
    pub(super) runs: Vec<Mapping>,
    /// The first block of the file that is a hole.
    pub(super) hole: Option<u64>,
    /// Why the runs cannot be trusted: what else lies there.
    pub(super) shared: Option<String>,
}

/// Blocks of the volume that are known to be the journal's, as runs: the end by the first block.
#[derive(Default)]
struct Known(BTreeMap<u64, u64>);

impl Known {
    /// Adds a run. Returns false if it overlaps a known run.
    fn add(&mut self, at: FsBlock, len: u64) -> bool {
        let (start, end) = (at.get(), at.get().saturating_add(len));
        let before = self.0.range(..end).next_back();
        let is_new = before.is_none_or(|(_, end)| *end <= start);
        if is_new {
            self.0.insert(start, end);
        }
        is_new
    }
}

/// Reads the map of a journal file of so many blocks.
pub(super) fn of_file(fs: &Fs, inode: &Inode, blocks: u64) -> Result<LogPlaces, Error> {
    let (mut places, mut known) = (LogPlaces::default(), Known::default());
    let taken = |at: FsBlock, len: u64| {
        let what = fs.metadata_in(at, len)?;
        Some(format!("block {at} is of {what}"))
    };
    inode.walk_nodes(|node| {
        let twice = || (!known.add(node, 1)).then(|| format!("block {node} is in its map twice"));
        places.shared = taken(node, 1).or_else(twice);
        flow(&places)
    })?;
    // Also if a node is shared: the first run is needed for the journal's superblock.
    inode.walk_map(0..blocks, |mapping| {
        let (MappingState::Written(at) | MappingState::Unwritten(at)) = mapping.state else {
            places.hole.get_or_insert(mapping.start);
            return ControlFlow::Continue(());
        };
        let twice = || {
            let is_new = known.add(at, mapping.len);
            (!is_new).then(|| format!("block {at} is in it twice, or of its map"))
        };
        let now = taken(at, mapping.len).or_else(twice);
        places.shared = places.shared.take().or(now);
        places.runs.push(mapping);
        flow(&places)
    })?;
    Ok(places)
}

fn flow(places: &LogPlaces) -> ControlFlow<()> {
    match places.shared {
        None => ControlFlow::Continue(()),
        Some(_) => ControlFlow::Break(()),
    }
}

impl LogPlaces {
    /// Why a log of so many blocks can be neither written nor replayed there.
    pub(super) fn fault(&self, blocks: u64) -> Option<String> {
        let hole = || {
            let at = self.hole.filter(|at| *at < blocks)?;
            Some(format!(
                "block {at} of its {blocks} has no place on the device"
            ))
        };
        self.shared.clone().or_else(hole)
    }
}
