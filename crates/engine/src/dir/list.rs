//! Listing a directory, block by block, or by the hashes of its names while they may change.
//!
//! Input: a directory inode. Output: its entries, "." and ".." included. Invariants: memory is one block's entries, however large the directory is; a
//! name that is there all the time is seen once, whatever happens to others meanwhile: in a linear directory no entry moves, in a hashed
//! one none changes its hash; one of a block or less that may get a tree is read by hashes before. Limits: the order is that of the disk or of
//! hashes, not of names.

use super::entry::DirEntry;
use super::inline_dir::inline_entries;
use super::lookup::{
    Hashed, Next as NextLeaf, Root, frames_for, hash_of, hashed, leaf_of, next_leaf,
};
use super::{blocks, names_in, read_block, read_present};
use crate::dir::inline_dir;
use crate::error::Error;
use crate::inode::Inode;
use diorite_format::csum;
use diorite_format::dir;
use diorite_format::dirhash::HashVersion;
use diorite_format::dx;
use diorite_format::features::Compat;
use std::sync::Arc;

/// An iterator over a directory, and a stream that can be opened again at any of its positions. Blocks while blocks are read. Where nothing can
/// change it is in the order of the blocks, and goes on with the next after an error.
#[derive(Debug)]
pub struct ReadDir {
    dir: Arc<Inode>,
    next: Next,
    ready: std::vec::IntoIter<(DirEntry, u64)>,
    /// Behind the last entry that was handed out.
    position: u64,
}

/// What is read next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// "." and "..", but for so many of them; then names by their hashes.
    Dots(u64),
    /// Names behind this key, from the first leaf for this hash on.
    Hash(u32, Option<Key>),
    /// Records from this byte of the directory on.
    Byte(u64),
    /// Names in the inode, but for so many of them.
    Inline(u64),
    End,
}

/// Where a name is in the order of hashes: among names of one hash, by their checksums. Neither changes while the name is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    hash: u32,
    sum: u32,
}

/// In a position: it is a [`Key`]. Others are bytes of the directory, or counts.
const BY_HASH: u64 = 1 << 63;

impl Key {
    fn of(hash: u32, name: &[u8]) -> Key {
        let sum = csum::crc32c(!0, name);
        Key { hash, sum }
    }

    /// Hashes are even.
    fn position(self) -> u64 {
        BY_HASH | u64::from(self.hash >> 1) << 32 | u64::from(self.sum)
    }

    fn at(position: u64) -> Key {
        let half = |bits: u64| u32::try_from(bits & 0xffff_ffff).expect("32 bits were cut out");
        Key {
            hash: half((position & !BY_HASH) >> 32) << 1,
            sum: half(position),
        }
    }
}

/// Leaves with names of one hash that are gone through; more than there ever are.
const MOST_OF_ONE_HASH: u32 = 1024;

/// In which order a directory is read.
enum Order {
    /// That of its blocks, or of what is in its inode.
    Place,
    /// By hashes, through its tree; or, of one without a tree yet, all names at once.
    Tree(Root),
    Hash(HashVersion),
}

impl ReadDir {
    pub(crate) fn new(dir: Arc<Inode>) -> Result<ReadDir, Error> {
        ReadDir::from(dir, 0)
    }

    /// From a position that [`ReadDir::position`] gave, of a stream of the same directory. 0 is its beginning.
    pub(crate) fn from(dir: Arc<Inode>, position: u64) -> Result<ReadDir, Error> {
        if !dir.disk().is_dir() {
            return Err(Error::NotADirectory {
                path: format!("inode {}", dir.ino),
            });
        }
        let lock = dir.lock_shared(false)?;
        if !inline_dir::is_inside(&dir) {
            blocks(&dir)?;
        }
        let is_key = position & BY_HASH != 0;
        let next = match order(&dir)? {
            Order::Place if is_key => {
                let (ino, what) = (dir.ino, "a position of another stream");
                return Err(Error::Invalid(format!(
                    "directory inode {ino}: {position:#x} is {what}"
                )));
            }
            Order::Place if inline_dir::is_inside(&dir) => Next::Inline(position),
            Order::Place => Next::Byte(position),
            Order::Tree(_) | Order::Hash(_) if is_key => {
                let key = Key::at(position);
                Next::Hash(key.hash, Some(key))
            }
            Order::Tree(_) | Order::Hash(_) => Next::Dots(position),
        };
        drop(lock);
        Ok(ReadDir {
            dir,
            next,
            ready: Vec::new().into_iter(),
            position,
        })
    }

    /// The position behind the entry that was handed out last: what [`crate::Volume::read_dir_from`] goes on with. It is good as long as the
    /// volume is open, whatever names come and go: a name that is there all the time is seen once. Of a volume that cannot change it is good
    /// for ever. Limits: of several names whose hashes and checksums agree, a stream that is opened again in their middle shows no more; names
    /// that leave an inode on a volume without hash trees may be seen twice.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Reads what comes next. While names may change a directory is read in the order of hashes, in which they do not move, where that may
    /// become the order of its tree.
    fn fill(&mut self) -> Result<(), Error> {
        let dir = self.dir.clone();
        dir.note_read();
        let _names = dir.lock_shared(false)?;
        let at = std::mem::replace(&mut self.next, Next::End);
        let (ready, next) = match (at, order(&dir)?) {
            (Next::End, _) => return Ok(()),
            (Next::Dots(skip), _) => (dots(&dir, skip)?, Next::Hash(0, None)),
            (Next::Hash(hash, after), Order::Tree(root)) => by_hash(&dir, &root, hash, after)?,
            (Next::Hash(_, after), Order::Hash(version)) => {
                (all_by_hash(&dir, version, after)?, Next::End)
            }
            // It had a tree when it was begun.
            (Next::Hash(..), Order::Place) => return Ok(()),
            (Next::Inline(skip), _) => (inline_from(&dir, skip)?, Next::End),
            (Next::Byte(from), _) => {
                let size = u64::from(dir.volume.block_size());
                let block = from / size;
                if block >= blocks(&dir)? {
                    return Ok(());
                }
                // An error does not end it.
                self.next = Next::Byte((block + 1) * size);
                (of_block(&dir, block, from)?, self.next)
            }
        };
        (self.ready, self.next) = (ready.into_iter(), next);
        Ok(())
    }
}

/// The order in which a directory is read, which is locked.
fn order(dir: &Inode) -> Result<Order, Error> {
    let sb = &dir.volume.sb;
    if dir.volume.alloc.is_none() {
        return Ok(Order::Place);
    }
    Ok(match hashed(dir)? {
        Hashed::Yes(root) => Order::Tree(root),
        Hashed::Unknown => Order::Place,
        Hashed::No => {
            let is_small = inline_dir::is_inside(dir) || blocks(dir)? <= 1;
            let gets_tree = is_small && sb.features().compat.has(Compat::DIR_INDEX);
            let version = gets_tree.then(|| dx::default_hash(sb).ok()).flatten();
            version.map_or(Order::Place, Order::Hash)
        }
    })
}

/// The records of a block that begin at this byte of the directory or behind it.
fn of_block(dir: &Inode, block: u64, from: u64) -> Result<Vec<(DirEntry, u64)>, Error> {
    let Some(raw) = read_block(dir, block)? else {
        return Ok(Vec::new());
    };
    let (disk, first) = (dir.disk(), block * u64::from(dir.volume.block_size()));
    let parsed = names_in(dir, &disk, block, &raw);
    let behind = |e: &dir::DirEntry<'_>| first + u64::from(e.offset) + u64::from(e.rec_len);
    Ok(parsed
        .entries()
        .filter(|e| first + u64::from(e.offset) >= from)
        .map(|e| (DirEntry::from(e), behind(&e)))
        .collect())
}

/// "." and "..", but for so many of them.
fn dots(dir: &Inode, skip: u64) -> Result<Vec<(DirEntry, u64)>, Error> {
    let all = match inline_dir::is_inside(dir) {
        true => inline_entries(dir)?,
        false => {
            let first = of_block(dir, 0, 0)?;
            first.into_iter().map(|(entry, _)| entry).collect()
        }
    };
    let dots = all.into_iter().filter(|e| is_dots(&e.name));
    Ok(dots.zip(1..).filter(|(_, n)| *n > skip).collect())
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// What is in the inode, but for so many names.
fn inline_from(dir: &Inode, skip: u64) -> Result<Vec<(DirEntry, u64)>, Error> {
    let all = match inline_dir::is_inside(dir) {
        true => inline_entries(dir)?,
        false => Vec::new(),
    };
    Ok(all
        .into_iter()
        .zip(1..)
        .filter(|(_, n)| *n > skip)
        .collect())
}

/// Names with their positions, those behind `after` in their order.
fn sorted(names: Vec<(Key, DirEntry)>, after: Option<Key>) -> Vec<(DirEntry, u64)> {
    let mut names = names;
    names.retain(|(key, _)| after.is_none_or(|after| *key > after));
    names.sort_by_key(|(key, _)| *key);
    let positions = names.into_iter();
    positions
        .map(|(key, entry)| (entry, key.position()))
        .collect()
}

/// All names of a directory that may get a tree: in its inode or its one block.
fn all_by_hash(
    dir: &Inode,
    version: HashVersion,
    after: Option<Key>,
) -> Result<Vec<(DirEntry, u64)>, Error> {
    let all = match inline_dir::is_inside(dir) {
        true => inline_entries(dir)?,
        false => {
            let block = of_block(dir, 0, 0)?;
            block.into_iter().map(|(entry, _)| entry).collect()
        }
    };
    let hash = |name: &[u8]| version.hash(dir.volume.sb.hash(), name).major;
    let named = all.into_iter().filter(|e| !is_dots(&e.name));
    let named = named.map(|entry| (Key::of(hash(&entry.name), &entry.name), entry));
    Ok(sorted(named.collect(), after))
}

/// Names from the first leaf for a hash, and where the next ones are. Names of one hash that go on in other leaves come together.
fn by_hash(
    dir: &Inode,
    root: &Root,
    from: u32,
    after: Option<Key>,
) -> Result<(Vec<(DirEntry, u64)>, Next), Error> {
    let mut frames = frames_for(dir, root, from)?;
    let (mut names, disk) = (Vec::new(), dir.disk());
    for _ in 0..MOST_OF_ONE_HASH {
        let leaf = leaf_of(&frames);
        let raw = read_present(dir, leaf)?;
        let parsed = names_in(dir, &disk, leaf, &raw);
        let keyed = |e: dir::DirEntry<'_>| {
            let key = Key::of(hash_of(dir, root, e.name), e.name);
            (key.hash >= from).then(|| (key, DirEntry::from(e)))
        };
        names.extend(parsed.entries().filter_map(keyed));
        let next = match next_leaf(dir, root, &mut frames)? {
            NextLeaf::None => Next::End,
            NextLeaf::From(hash) if hash > from => Next::Hash(hash, after),
            // Those of this hash are looked for from their first leaf on.
            NextLeaf::GoesOn(hash) if hash > from => {
                names.retain(|(key, _)| key.hash < hash);
                Next::Hash(hash, after)
            }
            NextLeaf::GoesOn(hash) if hash == from => continue,
            NextLeaf::From(_) | NextLeaf::GoesOn(_) => break,
        };
        return Ok((sorted(names, after), next));
    }
    let ino = dir.ino;
    let what = "its hash tree goes in circles";
    Err(Error::Damaged(format!(
        "directory inode {ino}: {what}; run e2fsck"
    )))
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((entry, position)) = self.ready.next() {
                self.position = position;
                return Some(Ok(entry));
            }
            if matches!(self.next, Next::End) {
                return None;
            }
            if let Err(error) = self.fill() {
                return Some(Err(error));
            }
        }
    }
}
