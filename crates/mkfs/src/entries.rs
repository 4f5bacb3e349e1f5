//! The names of a tree: which node has a name in a directory.
//!
//! Input: directories, names and nodes as numbers. Output: the node of a name; the names of a directory in the order of their bytes.
//! Invariants: a directory has a name once; a name that is gone keeps its entry, so lists are never searched for what is to be removed.
//! Limits: [`MOST_BYTES`] of names. A name takes its bytes and some 25 more.

use crate::error::Error;
use foldhash::fast::RandomState;
use std::hash::BuildHasher;

/// No node, no entry.
pub(crate) const NONE: u32 = u32::MAX;
/// Bytes of all names: their places are numbers of 32 bits.
const MOST_BYTES: usize = u32::MAX as usize;

#[derive(Clone, Copy, Debug)]
struct Entry {
    parent: u32,
    /// Where the name is: a byte with its length, and its bytes.
    name: u32,
    /// [`NONE`]: it is gone.
    node: u32,
    /// The next entry of the same directory.
    next: u32,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    bytes: Vec<u8>,
    all: Vec<Entry>,
    /// Entries by the hashes of parent and name; a power of two of them, a quarter of which is free at least. An entry that is there has
    /// its number plus one.
    table: Vec<u32>,
    state: RandomState,
}

impl Entries {
    fn name(&self, entry: u32) -> &[u8] {
        let at = self.all[entry as usize].name as usize;
        let len = usize::from(self.bytes[at]);
        &self.bytes[at + 1..at + 1 + len]
    }

    /// Where an entry is in the table, or where it would be.
    fn place(&self, parent: u32, name: &[u8]) -> usize {
        let mask = self.table.len() - 1;
        // The lower bits choose: cutting the upper ones off is what is meant.
        let mut at = self.state.hash_one((parent, name)) as usize & mask;
        loop {
            match self.table[at].checked_sub(1) {
                None => return at,
                Some(entry)
                    if self.all[entry as usize].parent == parent && self.name(entry) == name =>
                {
                    return at;
                }
                Some(_) => at = (at + 1) & mask,
            }
        }
    }

    fn find(&self, parent: u32, name: &[u8]) -> Option<u32> {
        match self.table.is_empty() {
            true => None,
            false => self.table[self.place(parent, name)].checked_sub(1),
        }
    }

    /// The node of a name.
    pub(crate) fn get(&self, parent: u32, name: &[u8]) -> Option<u32> {
        let node = self.all[self.find(parent, name)? as usize].node;
        (node != NONE).then_some(node)
    }

    /// Gives a name of at most 255 bytes to a node. `head` is the first entry of the directory.
    ///
    /// # Errors
    /// `Invalid`: there are too many names.
    pub(crate) fn put(
        &mut self,
        parent: u32,
        head: &mut u32,
        name: &[u8],
        node: u32,
    ) -> Result<(), Error> {
        if let Some(entry) = self.find(parent, name) {
            self.all[entry as usize].node = node;
            return Ok(());
        }
        if self.bytes.len() + 1 + name.len() > MOST_BYTES || self.all.len() + 1 >= NONE as usize {
            return Err(Error::Invalid(
                "the tree has more than 4 GiB of names".to_owned(),
            ));
        }
        if (self.all.len() + 1) * 4 > self.table.len() * 3 {
            self.grow();
        }
        let entry = self.all.len() as u32;
        self.all.push(Entry {
            parent,
            name: self.bytes.len() as u32,
            node,
            next: *head,
        });
        self.bytes
            .push(u8::try_from(name.len()).expect("names have at most 255 bytes"));
        self.bytes.extend_from_slice(name);
        *head = entry;
        let place = self.place(parent, name);
        self.table[place] = entry + 1;
        Ok(())
    }

    fn grow(&mut self) {
        self.table = vec![0; (self.table.len() * 2).max(64)];
        for entry in 0..self.all.len() as u32 {
            let place = self.place(self.all[entry as usize].parent, self.name(entry));
            self.table[place] = entry + 1;
        }
    }

    /// Takes a name away. Returns the node that had it.
    pub(crate) fn remove(&mut self, parent: u32, name: &[u8]) -> Option<u32> {
        let entry = self.find(parent, name)? as usize;
        let node = std::mem::replace(&mut self.all[entry].node, NONE);
        (node != NONE).then_some(node)
    }

    /// The entries of a directory from its first one on, also of names that are gone.
    fn list(&self, head: u32) -> impl Iterator<Item = u32> {
        let some = |entry: u32| (entry != NONE).then_some(entry);
        std::iter::successors(some(head), move |entry| {
            some(self.all[*entry as usize].next)
        })
    }

    /// Brings the entries of a directory into the order of their names: it is kept until the next one is added.
    pub(crate) fn order(&mut self, head: &mut u32) {
        let list = self.sorted(self.list(*head));
        let mut next = NONE;
        for entry in list.into_iter().rev() {
            self.all[entry as usize].next = next;
            next = entry;
        }
        *head = next;
    }

    fn sorted(&self, list: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut list: Vec<u32> = list.collect();
        if !list.is_sorted_by_key(|entry| self.name(*entry)) {
            list.sort_unstable_by_key(|entry| self.name(*entry));
        }
        list
    }

    /// The names of a directory in the order of their bytes.
    pub(crate) fn listing(&self, head: u32) -> Listing<'_> {
        let there = self.list(head);
        let list = self.sorted(there.filter(|entry| self.all[*entry as usize].node != NONE));
        Listing {
            entries: self,
            list,
        }
    }
}

/// The names of a directory at one time.
pub(crate) struct Listing<'e> {
    entries: &'e Entries,
    list: Vec<u32>,
}

impl<'e> Listing<'e> {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// A name by its number, and its node.
    pub(crate) fn get(&self, number: usize) -> (&'e [u8], u32) {
        let entry = self.list[number];
        (
            self.entries.name(entry),
            self.entries.all[entry as usize].node,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use xtask::rng::Rng;

    /// Against a map of maps, with names that come again, go and return.
    #[test]
    fn names_are_those_of_a_map() {
        let mut rng = Rng::from_env("entries");
        let mut model: BTreeMap<(u32, Vec<u8>), u32> = BTreeMap::new();
        let (mut entries, mut heads) = (Entries::default(), [NONE; 5]);
        for step in 0..20_000u32 {
            let parent = (rng.next() % 5) as u32;
            let name = format!("{}", rng.next() % 700).into_bytes();
            match rng.next() % 4 {
                0 => assert_eq!(entries.remove(parent, &name), model.remove(&(parent, name))),
                1 if step % 64 == 1 => entries.order(&mut heads[parent as usize]),
                _ => {
                    entries
                        .put(parent, &mut heads[parent as usize], &name, step)
                        .unwrap();
                    model.insert((parent, name), step);
                }
            }
        }
        for (parent, head) in (0..).zip(heads) {
            let list = entries.listing(head);
            let one = |n| (list.get(n).0.to_vec(), list.get(n).1);
            let found: Vec<_> = (0..list.len()).map(one).collect();
            let wanted: Vec<_> = model
                .iter()
                .filter(|((p, _), _)| *p == parent)
                .map(|((_, name), node)| (name.clone(), *node))
                .collect();
            assert_eq!(found, wanted);
            for (name, node) in wanted {
                assert_eq!(entries.get(parent, &name), Some(node));
            }
        }
    }
}
