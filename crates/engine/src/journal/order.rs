//! Without a journal: which blocks of a round are written before which, so that after a power cut a replaced name refers either to the old
//! inode or to the new one.
//!
//! Input: places where names changed, the order that moves ask for, and inodes that lose their last name. Output: write phases.
//! Invariants:
//! an inode is on disk before its name; a name that moves is at its new place before it is gone from the old one, also where a
//! directory grows; an inode that a name referred to before is written after all names.
//! Limits: an order that would be circular is refused, and the caller commits first; exchanges between two blocks have no order.
//!
//! An example: `mv new old` in one directory, with both inodes in one block of the inode table. A single write of that block would make
//! the new inode known and delete the old one at once. So it is written twice: first with the new inode, and the old one as it was
//! (`Standing`); then, after the block of names, as it is now (`Last`).

use super::commit::WritePhase;
use crate::disk::Disk;
use diorite_format::{FsBlock, Ino};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

/// A place whose names become durable at once: a block, or an inode whose names are inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NamesAt {
    Block(FsBlock),
    Inode(Ino),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Something was replaced or moved. Otherwise everything may be written in any order.
    is_asked_for: bool,
    /// Places where names changed, and for each the places that must be written after it.
    names: BTreeMap<NamesAt, BTreeSet<NamesAt>>,
    /// New places of names, and for each the place that makes it reachable: a new block's inode, a new inode's name.
    carriers: BTreeMap<NamesAt, NamesAt>,
    /// New places of names, and for each the places on disk that held its names before.
    sources: BTreeMap<NamesAt, BTreeSet<NamesAt>>,
    going: BTreeSet<Ino>,
    /// Nodes of maps that were rewritten in place, and the inodes that they belong to.
    nodes: BTreeMap<FsBlock, Ino>,
}

/// The bytes of one inode in a block of the inode table, which stay as they are on disk until this phase.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) from: usize,
    pub(super) phase: WritePhase,
}

/// The phases of blocks, and parts of blocks, that are not written with the rest.
#[derive(Debug, Default)]
pub(super) struct WritePhases {
    blocks: BTreeMap<FsBlock, WritePhase>,
    held: BTreeMap<FsBlock, Vec<Held>>,
}

impl Order {
    /// See [`super::JournalHandle::names`].
    pub(super) fn names(&mut self, at: NamesAt) {
        self.names.entry(at).or_default();
    }

    /// See [`super::JournalHandle::spread`].
    pub(super) fn spread(&mut self, dir: Ino, from: &[NamesAt], to: impl Iterator<Item = FsBlock>) {
        self.is_asked_for |= !from.is_empty();
        let carrier = NamesAt::Inode(dir);
        let sources: BTreeSet<_> = from.iter().flat_map(|at| self.on_disk(*at)).collect();
        for at in to.map(NamesAt::Block) {
            self.carriers.insert(at, carrier);
            self.sources.insert(at, sources.clone());
        }
        self.comes_before(carrier, sources);
    }

    /// See [`super::JournalHandle::begins`].
    pub(super) fn begins(&mut self, dir: Ino, block: Option<FsBlock>, at: NamesAt) {
        let inode = NamesAt::Inode(dir);
        self.carriers.insert(inode, at);
        self.sources.insert(inode, BTreeSet::new());
        if let Some(block) = block.map(NamesAt::Block) {
            self.carriers.insert(block, inode);
            self.sources.insert(block, BTreeSet::new());
        }
    }

    /// See [`super::JournalHandle::replaces`].
    pub(super) fn replaces(&mut self) {
        self.is_asked_for = true;
    }

    /// See [`super::JournalHandle::moves`]. False if `then` has to be written before `first`.
    pub(super) fn moves(&mut self, first: NamesAt, then: NamesAt) -> bool {
        self.is_asked_for = true;
        let first = self.found_by(first);
        let later = self.on_disk(then);
        if later
            .iter()
            .any(|at| *at != first && self.reaches(*at, first))
        {
            return false;
        }
        self.comes_before(first, later);
        true
    }

    /// See [`super::JournalHandle::goes`].
    pub(super) fn goes(&mut self, ino: Ino) {
        self.going.insert(ino);
    }

    /// See [`super::JournalHandle::is_replaced`].
    pub(super) fn is_replaced(&mut self, ino: Ino) {
        self.going.remove(&ino);
    }

    /// See [`super::JournalHandle::node`].
    pub(super) fn node(&mut self, at: FsBlock, of: Ino) {
        self.nodes.insert(at, of);
    }

    /// The phases of all blocks that the transaction changes.
    pub(super) fn phases(&self, disk: &Disk, blocks: &BTreeMap<FsBlock, bool>) -> WritePhases {
        let mut phases = WritePhases::default();
        if !self.is_asked_for {
            return phases;
        }
        let levels = self.levels();
        for (at, level) in &levels {
            let phase = WritePhase::Names(*level);
            match at {
                NamesAt::Block(at) => drop(phases.blocks.insert(*at, phase)),
                // A new inode needs no hold: the place that names it is written after it.
                NamesAt::Inode(_) if self.carriers.contains_key(at) => {}
                NamesAt::Inode(ino) => phases.hold(disk, blocks, *ino, phase),
            }
        }
        for ino in &self.going {
            phases.hold(disk, blocks, *ino, WritePhase::Last);
        }
        let nodes = self.nodes.iter();
        let nodes = nodes.filter_map(|(at, of)| Some((*at, self.phase_of_map(*of, &levels)?)));
        phases.blocks.extend(nodes);
        if !self.going.is_empty() {
            // The superblock names orphans.
            phases
                .blocks
                .insert(disk.sb.super_block(), WritePhase::Last);
        }
        phases
    }

    /// The phase of a map's node: of an inode with new names, that inode's phase; of an inode that goes, the last.
    fn phase_of_map(&self, of: Ino, levels: &BTreeMap<NamesAt, u32>) -> Option<WritePhase> {
        if self.going.contains(&of) {
            return Some(WritePhase::Last);
        }
        levels
            .get(&NamesAt::Inode(of))
            .map(|n| WritePhase::Names(*n))
    }

    /// Notes that `first` is written before each of `later`, where these differ.
    fn comes_before(&mut self, first: NamesAt, later: impl IntoIterator<Item = NamesAt>) {
        self.names(first);
        for at in later.into_iter().filter(|at| *at != first) {
            self.names(at);
            self.names.entry(first).or_default().insert(at);
        }
    }

    /// The places on disk that hold a place's names at the moment.
    fn on_disk(&self, at: NamesAt) -> BTreeSet<NamesAt> {
        let sources = self.sources.get(&at);
        sources.cloned().unwrap_or_else(|| BTreeSet::from([at]))
    }

    /// The place on disk whose write makes the names at `at` reachable. A new place was made after the one that carries it, so the search
    /// ends.
    fn found_by(&self, at: NamesAt) -> NamesAt {
        let carriers = std::iter::successors(Some(at), |at| self.carriers.get(at).copied());
        carriers.take(self.carriers.len() + 1).last().unwrap_or(at)
    }

    fn reaches(&self, first: NamesAt, then: NamesAt) -> bool {
        let (mut todo, mut seen) = (vec![first], BTreeSet::new());
        while let Some(at) = todo.pop() {
            if at == then {
                return true;
            }
            if seen.insert(at) {
                todo.extend(self.names.get(&at).into_iter().flatten());
            }
        }
        false
    }

    /// For each place, the length of the longest chain of places before it.
    fn levels(&self) -> BTreeMap<NamesAt, u32> {
        let mut levels: BTreeMap<_, _> = self.names.keys().map(|at| (*at, 0)).collect();
        let mut waits_for: BTreeMap<NamesAt, u32> = BTreeMap::new();
        for then in self.names.values().flatten() {
            *waits_for.entry(*then).or_default() += 1;
        }
        let is_first = |at: &&NamesAt| !waits_for.contains_key(*at);
        let mut ready: Vec<_> = self.names.keys().filter(is_first).copied().collect();
        while let Some(at) = ready.pop() {
            let next = levels[&at] + 1;
            for then in &self.names[&at] {
                let level = levels.entry(*then).or_default();
                *level = next.max(*level);
                let left = waits_for.entry(*then).or_default();
                *left -= 1;
                if *left == 0 {
                    ready.push(*then);
                }
            }
        }
        levels
    }
}

impl WritePhases {
    /// The phase of a block that something on disk points to, if it is not written with the rest.
    pub(super) fn of(&self, at: FsBlock) -> Option<WritePhase> {
        self.blocks.get(&at).copied()
    }

    /// The parts of the block that wait for later phases.
    pub(super) fn held(&mut self, at: FsBlock) -> Vec<Held> {
        self.held.remove(&at).unwrap_or_default()
    }

    /// Holds an inode back until `phase`. Not in a block that nothing on disk points to yet: it has no old contents to keep.
    fn hold(&mut self, disk: &Disk, blocks: &BTreeMap<FsBlock, bool>, ino: Ino, phase: WritePhase) {
        let place = disk.inode_place(ino).ok();
        if let Some((at, from)) = place.filter(|(at, _)| blocks.get(at) == Some(&false)) {
            self.held.entry(at).or_default().push(Held { from, phase });
        }
    }
}
