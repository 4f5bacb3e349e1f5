//! For every inode in use: its type, its stored link count, and the number of names found.
//!
//! Input: inodes, then names. Output: both numbers, compared by `links`. Invariant: any number of threads may count at once.
//! Limits: eight bytes for each slot of the tables that was ever used, in groups that have an inode in use.

use diorite_format::{FileType, GroupDesc, Ino, Superblock};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// What is known about an inode in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Person(u32);

const IN_USE: u32 = 1 << 4;
/// The inode itself is damaged: what depends on it is not judged.
const BAD: u32 = 1 << 5;
/// Holds an attribute's value.
const EA: u32 = 1 << 6;
/// An orphan.
const ORPHAN: u32 = 1 << 7;
/// Its map was not read to the end.
const TANGLED: u32 = 1 << 8;
/// One of the volume's own inodes: no names are expected.
const OWN: u32 = 1 << 9;

/// Its contents are encrypted.
const ENCRYPTED: u32 = 1 << 10;

impl Person {
    /// An inode in use with this type and link count.
    pub(super) fn new(kind: Option<FileType>, links: u16) -> Person {
        let kind = u32::from(kind.map_or(0, FileType::to_dirent));
        Person(kind | IN_USE | u32::from(links) << 16)
    }

    const fn with(self, bit: u32, on: bool) -> Person {
        Person(if on { self.0 | bit } else { self.0 })
    }

    pub(super) const fn bad(self, on: bool) -> Person {
        self.with(BAD, on)
    }

    pub(super) const fn ea(self, on: bool) -> Person {
        self.with(EA, on)
    }

    pub(super) const fn orphan(self, on: bool) -> Person {
        self.with(ORPHAN, on)
    }

    pub(super) const fn tangled(self, on: bool) -> Person {
        self.with(TANGLED, on)
    }

    pub(super) const fn own(self, on: bool) -> Person {
        self.with(OWN, on)
    }

    pub(super) const fn encrypted(self, on: bool) -> Person {
        self.with(ENCRYPTED, on)
    }

    pub(super) fn kind(self) -> Option<FileType> {
        FileType::from_dirent((self.0 & 0xF) as u8)
    }

    pub(super) fn is_dir(self) -> bool {
        self.kind() == Some(FileType::Directory)
    }

    pub(super) const fn is_in_use(self) -> bool {
        self.0 & IN_USE != 0
    }

    pub(super) const fn is_bad(self) -> bool {
        self.0 & BAD != 0
    }

    pub(super) const fn is_ea(self) -> bool {
        self.0 & EA != 0
    }

    pub(super) const fn is_orphan(self) -> bool {
        self.0 & ORPHAN != 0
    }

    pub(super) const fn is_tangled(self) -> bool {
        self.0 & TANGLED != 0
    }

    pub(super) const fn is_own(self) -> bool {
        self.0 & OWN != 0
    }

    pub(super) const fn is_encrypted(self) -> bool {
        self.0 & ENCRYPTED != 0
    }

    /// The stored link count.
    pub(super) const fn links(self) -> u32 {
        self.0 >> 16
    }
}

#[derive(Default)]
struct Slot {
    person: AtomicU32,
    found: AtomicU32,
}

/// See the module.
pub(super) struct LinkCounts {
    per_group: u32,
    /// Slots of each group's table that were ever used.
    known: Box<[u32]>,
    groups: Box<[OnceLock<Box<[Slot]>>]>,
}

impl LinkCounts {
    pub(super) fn new(sb: &Superblock, groups: &[GroupDesc]) -> LinkCounts {
        let per_group = sb.geometry().inodes_per_group();
        LinkCounts {
            per_group,
            known: groups.iter().map(|g| known_slots(per_group, g)).collect(),
            groups: groups.iter().map(|_| OnceLock::new()).collect(),
        }
    }

    /// Slots of a group's table that were ever used.
    pub(super) fn known(&self, group: usize) -> u32 {
        self.known[group]
    }

    /// Records an inode.
    pub(super) fn set(&self, ino: Ino, person: Person) {
        let (group, index) = self.place(ino);
        let fresh = || (0..self.known[group]).map(|_| Slot::default()).collect();
        if let Some(slot) = self.groups[group].get_or_init(fresh).get(index) {
            slot.person.store(person.0, Ordering::Relaxed);
        }
    }

    /// What is known about an inode, if it is in use.
    pub(super) fn get(&self, ino: Ino) -> Option<Person> {
        let person = Person(self.slot(ino)?.person.load(Ordering::Relaxed));
        person.is_in_use().then_some(person)
    }

    /// Counts a name of an inode.
    pub(super) fn count(&self, ino: Ino) {
        if let Some(slot) = self.slot(ino) {
            slot.found.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The inodes in use of a group with the number of names found, in the order of inode numbers.
    pub(super) fn of_group(&self, group: usize) -> impl Iterator<Item = (Ino, Person, u32)> + '_ {
        let slots = self.groups[group].get().map_or(&[][..], |s| s);
        let first = u64::from(self.per_group) * group as u64 + 1;
        slots.iter().enumerate().filter_map(move |(n, slot)| {
            let person = Person(slot.person.load(Ordering::Relaxed));
            let ino = Ino::new(u32::try_from(first + n as u64).ok()?);
            let found = slot.found.load(Ordering::Relaxed);
            person.is_in_use().then_some((ino, person, found))
        })
    }

    fn place(&self, ino: Ino) -> (usize, usize) {
        let n = ino.get() - 1;
        ((n / self.per_group) as usize, (n % self.per_group) as usize)
    }

    fn slot(&self, ino: Ino) -> Option<&Slot> {
        let (group, index) = self.place(ino);
        self.groups.get(group)?.get()?.get(index)
    }
}

fn known_slots(per_group: u32, group: &GroupDesc) -> u32 {
    if group.flags.inode_uninit() {
        0
    } else {
        per_group.saturating_sub(group.itable_unused)
    }
}
