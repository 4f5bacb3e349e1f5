//! Without a journal: what of a round goes home before what, so that a name that gets another inode stands for one of the two after any
//! cut.
//!
//! Input: places where names changed, which of them comes before which, and inodes that lose their last name. Output: phases. Invariants:
//! what a name stands for is there before the name; a name that is moved is at its new place before it is gone from the old one, also where
//! a directory grows; what a name stood for goes after all names.
//! Limits: an order that goes round in a circle is refused, and who asks for it commits first; exchanges between two blocks have no order.
//!
//! An example: `mv new old`, both in one directory, and their inodes in one block of the table. In one write that block would make the one
//! known and let the other go. It is written twice: first with the new inode and the old one as it was (Standing), then, behind the block
//! of names, as it is (Last).

use super::commit::WritePhase;
use crate::disk::Disk;
use diorite_format::{FsBlock, Ino};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

/// What of the names goes home at once: a block, or what an inode's place holds where the names are inside the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NamesAt {
    Block(FsBlock),
    Inode(Ino),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Something was put in the place of another, or moved: else all goes home in any order.
    is_asked_for: bool,
    /// Where names changed, and what comes after each of these.
    names: BTreeMap<NamesAt, BTreeSet<NamesAt>>,
    /// New places of names, and what makes each of them a place that is found.
    carriers: BTreeMap<NamesAt, NamesAt>,
    /// The same, and where what is in them was before.
    sources: BTreeMap<NamesAt, BTreeSet<NamesAt>>,
    going: BTreeSet<Ino>,
    /// Nodes of maps that were written anew in their places.
    nodes: BTreeMap<FsBlock, Ino>,
}

/// The bytes of an inode's place in a block of the table that stay as they are on disk until it is their phase.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) from: usize,
    pub(super) phase: WritePhase,
}

/// WritePhases of what is not written with the rest.
#[derive(Debug, Default)]
pub(super) struct WritePhases {
    blocks: BTreeMap<FsBlock, WritePhase>,
    held: BTreeMap<FsBlock, Vec<Held>>,
}

impl Order {
    /// Names changed here.
    pub(super) fn names(&mut self, at: NamesAt) {
        self.names.entry(at).or_default();
    }

    /// A directory gets new blocks, with names that were in these places.
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

    /// A directory begins, with its names in a block or in the inode; its own name is at this place.
    pub(super) fn begins(&mut self, dir: Ino, block: Option<FsBlock>, at: NamesAt) {
        let inode = NamesAt::Inode(dir);
        self.carriers.insert(inode, at);
        self.sources.insert(inode, BTreeSet::new());
        if let Some(block) = block.map(NamesAt::Block) {
            self.carriers.insert(block, inode);
            self.sources.insert(block, BTreeSet::new());
        }
    }

    /// Names are put in the place of others, or exchanged.
    pub(super) fn replaces(&mut self) {
        self.is_asked_for = true;
    }

    /// A name comes to the first place, and its inode's name at the second goes. False: the first place has to wait for the second.
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

    /// An inode has lost its last name.
    pub(super) fn goes(&mut self, ino: Ino) {
        self.going.insert(ino);
    }

    /// Its number is another's already.
    pub(super) fn is_replaced(&mut self, ino: Ino) {
        self.going.remove(&ino);
    }

    /// A node of an inode's map was written anew.
    pub(super) fn node(&mut self, at: FsBlock, of: Ino) {
        self.nodes.insert(at, of);
    }

    /// The phases of all this.
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
                // It is new: what names it waits for it.
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
            // It names orphans.
            phases
                .blocks
                .insert(disk.sb.super_block(), WritePhase::Last);
        }
        phases
    }

    /// A map that leads to new names goes home with them, and one that goes stays as it is until the end.
    fn phase_of_map(&self, of: Ino, levels: &BTreeMap<NamesAt, u32>) -> Option<WritePhase> {
        if self.going.contains(&of) {
            return Some(WritePhase::Last);
        }
        levels
            .get(&NamesAt::Inode(of))
            .map(|n| WritePhase::Names(*n))
    }

    /// All of these come after the first, where they are others.
    fn comes_before(&mut self, first: NamesAt, later: impl IntoIterator<Item = NamesAt>) {
        self.names(first);
        for at in later.into_iter().filter(|at| *at != first) {
            self.names(at);
            self.names.entry(first).or_default().insert(at);
        }
    }

    /// Where on disk the names of a place are.
    fn on_disk(&self, at: NamesAt) -> BTreeSet<NamesAt> {
        let sources = self.sources.get(&at);
        sources.cloned().unwrap_or_else(|| BTreeSet::from([at]))
    }

    /// The place on disk that has to change for names at a place to be found. What is new was made after what carries it, so this ends.
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

    /// How many places come before each, one after the other.
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
    /// The phase of a block that was there before.
    pub(super) fn of(&self, at: FsBlock) -> Option<WritePhase> {
        self.blocks.get(&at).copied()
    }

    /// What of it waits for later phases.
    pub(super) fn held(&mut self, at: FsBlock) -> Vec<Held> {
        self.held.remove(&at).unwrap_or_default()
    }

    /// A block of the table to which nothing points yet has nothing on disk that could be held.
    fn hold(&mut self, disk: &Disk, blocks: &BTreeMap<FsBlock, bool>, ino: Ino, phase: WritePhase) {
        let place = disk.inode_place(ino).ok();
        if let Some((at, from)) = place.filter(|(at, _)| blocks.get(at) == Some(&false)) {
            self.held.entry(at).or_default().push(Held { from, phase });
        }
    }
}
