//! Listing a directory, block by block, or by the hashes of its names while they may change.
//!
//! Input: a directory inode. Output: its entries, "." and ".." included. Invariants: memory is one block's entries, however large the directory is; a
//! name that is there all the time is seen once, whatever happens to others meanwhile: in a linear directory no entry moves, in a hashed
//! one none changes its hash; one of a block or less that may get a tree is read by hashes before. Limits: the order is that of the disk or of
//! hashes, not of names.

use super::lookup::{
    Hashed, Next as NextLeaf, Root, frames_for, hash_of, hashed, leaf_of, next_leaf,
};
use super::{blocks, names_in, read_block, read_present};
use crate::dir::inline_dir;
use crate::error::Error;
use crate::inode::Inode;
use crate::inode::inline_tail;
use diorite_format::csum;
use diorite_format::dir::{self, DirBlock};
use diorite_format::dirhash::HashVersion;
use diorite_format::dx;
use diorite_format::features::Compat;
use diorite_format::inline::InlineData;
use diorite_format::{FileType, Ino};
use std::ops::Range;
use std::sync::Arc;

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name: any bytes but NUL and slash.
    pub name: Vec<u8>,
    /// What it names.
    pub ino: Ino,
    /// The type, where the directory stores it.
    pub file_type: Option<FileType>,
}

impl From<dir::DirEntry<'_>> for DirEntry {
    fn from(e: dir::DirEntry<'_>) -> DirEntry {
        DirEntry {
            name: e.name.to_vec(),
            ino: e.ino,
            file_type: e.file_type,
        }
    }
}

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
    /// What is in the inode, behind this position.
    Inline(u64),
    End,
}

/// Where a name is in the order of hashes: among names of one hash, by their checksums. Neither changes while the name is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    hash: u32,
    /// 31 bits of it.
    sum: u32,
}

/// Positions have a sign where they go on (`off_t`): the highest bit is never set.
const SIGN: u64 = 1 << 63;
/// In a position: it is a [`Key`]. Others are bytes of the directory.
const BY_HASH: u64 = 1 << 62;
/// In a position that is no key: it is a byte of the names in the inode.
const IN_INODE: u64 = 1 << 61;
/// Behind "." and "..", where they are not in a block.
const BEHIND_DOTS: u64 = 2;
/// Bytes of each of them at the beginning of a block.
const DOT_BYTES: u64 = 12;

impl Key {
    fn of(hash: u32, name: &[u8]) -> Key {
        let sum = csum::crc32c(!0, name) >> 1;
        Key { hash, sum }
    }

    /// Hashes are even.
    fn position(self) -> u64 {
        BY_HASH | u64::from(self.hash >> 1) << 31 | u64::from(self.sum)
    }

    fn at(position: u64) -> Key {
        let part = |bits: u64| u32::try_from(bits & 0x7fff_ffff).expect("31 bits were cut out");
        Key {
            hash: part(position >> 31) << 1,
            sum: part(position),
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
        let has = |bit: u64| position & bit != 0;
        let (is_key, is_dot) = (has(BY_HASH), position <= BEHIND_DOTS);
        let next = match order(&dir)? {
            Order::Tree(_) | Order::Hash(_) if is_key && !has(SIGN) => {
                let key = Key::at(position);
                Some(Next::Hash(key.hash, Some(key)))
            }
            Order::Tree(_) | Order::Hash(_) => is_dot.then_some(Next::Dots(position)),
            Order::Place if is_key || has(SIGN) => None,
            Order::Place if inline_dir::is_inside(&dir) => {
                (is_dot || has(IN_INODE)).then_some(Next::Inline(position))
            }
            Order::Place => Some(Next::Byte(byte_of(position))),
        };
        let next = next.ok_or_else(|| {
            let (ino, what) = (dir.ino, "a position of another stream");
            Error::Invalid(format!("directory inode {ino}: {position:#x} is {what}"))
        })?;
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
        if dir.is_unlinked() {
            // Its parent may be gone, too, and that number another's.
            return Ok(());
        }
        let (ready, next) = match (at, order(&dir)?) {
            (Next::End, _) => return Ok(()),
            (Next::Dots(skip), _) => (dots(&dir, skip)?, Next::Hash(0, None)),
            (Next::Hash(hash, after), Order::Tree(root)) => by_hash(&dir, &root, hash, after)?,
            (Next::Hash(_, after), Order::Hash(version)) => {
                (all_by_hash(&dir, version, after)?, Next::End)
            }
            // It had a tree when it was begun.
            (Next::Hash(..), Order::Place) => return Ok(()),
            (Next::Inline(behind), _) if inline_dir::is_inside(&dir) => {
                (inline_from(&dir, behind)?, Next::End)
            }
            // It has left its inode since.
            (Next::Inline(behind), _) => (Vec::new(), Next::Byte(byte_of(behind))),
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

/// What is in the inode behind a position. The first part of the names keeps its length, and no record moves.
fn inline_from(dir: &Inode, behind: u64) -> Result<Vec<(DirEntry, u64)>, Error> {
    let from = match behind & IN_INODE {
        0 => 0,
        _ => behind & !IN_INODE,
    };
    let names = inline_records(dir)?.into_iter();
    let names = names
        .filter(|(_, at)| at.start >= from)
        .map(|(entry, at)| (entry, IN_INODE | at.end));
    Ok(dots(dir, behind)?.into_iter().chain(names).collect())
}

/// Where a directory goes on in its blocks that was in its inode before: with the first name, as they may have been packed meanwhile.
fn byte_of(position: u64) -> u64 {
    match position {
        dot @ 0..=BEHIND_DOTS => dot * DOT_BYTES,
        inside if inside & IN_INODE != 0 => BEHIND_DOTS * DOT_BYTES,
        byte => byte,
    }
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

/// The entries of a directory whose data is in its inode; "." and ".." are not stored and made here.
pub(super) fn inline_entries(dir: &Inode) -> Result<Vec<DirEntry>, Error> {
    let sb = &dir.volume.sb;
    let made = |name: &[u8], ino| DirEntry {
        name: name.to_vec(),
        ino,
        file_type: Some(FileType::Directory),
    };
    let mut entries = vec![
        made(b".", dir.ino),
        made(b"..", dir::inline_parent(sb, &dir.disk())?),
    ];
    let records = inline_records(dir)?.into_iter();
    entries.extend(records.map(|(entry, _)| entry));
    Ok(entries)
}

/// The names in a directory's inode, each with the bytes of its record in both parts, one behind the other.
fn inline_records(dir: &Inode) -> Result<Vec<(DirEntry, Range<u64>)>, Error> {
    let (sb, disk) = (&dir.volume.sb, dir.disk());
    let rest = inline_tail(&dir.volume, &disk, &dir.raw())?;
    let data = InlineData::new(&disk, &rest)?;
    let (mut records, mut first) = (Vec::new(), 0);
    for part in data.dir_parts().into_iter().filter(|p| !p.is_empty()) {
        let parsed = DirBlock::parse_inline(sb, &disk, part)?;
        records.extend(parsed.entries().map(|e| {
            let start = first + u64::from(e.offset);
            (DirEntry::from(e), start..start + u64::from(e.rec_len))
        }));
        first += part.len() as u64;
    }
    Ok(records)
}
