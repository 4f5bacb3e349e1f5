//! Listing of a directory: block by block, or in hash order while names may change.
//!
//! Input: a directory inode. Output: its entries, with "." and "..". Invariants: only the entries of one block are in memory, or those of
//! all leaves that share a hash, however large the directory is. A name that exists during the whole listing is returned exactly once,
//! whatever happens to other names: in a linear directory no entry moves, and in a hashed one no name changes its hash. A directory of at
//! most one block that may get a tree is listed in hash order from the start. Limits: the order is that of the blocks or of the hashes, not
//! of the names.

use super::entry::DirEntry;
use super::inline_dir::{inline_entries, inline_records};
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

/// An iterator over the entries of a directory, "." and ".." included. A listing can be continued later from any position
/// ([`ReadDir::position`]). Blocks while metadata is read. The order is arbitrary. On a volume that cannot change it is the order of the
/// blocks, and the iterator continues with the next block after an error.
#[derive(Debug)]
pub struct ReadDir {
    dir: Arc<Inode>,
    next: Next,
    ready: std::vec::IntoIter<(DirEntry, u64)>,
    /// The position behind the last entry that was returned.
    position: u64,
}

/// What is read next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// "." and "..", without the first so many of them; then names in hash order.
    Dots(u64),
    /// Names behind this key, from the first leaf for this hash on.
    Hash(u32, Option<Key>),
    /// Entries that begin at this byte of the directory or behind it.
    Byte(u64),
    /// Entries of an inline directory behind this position.
    Inline(u64),
    End,
}

/// A name's place in hash order; names with the same hash are ordered by their checksums. A key does not change while the name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    hash: u32,
    /// 31 bits of it.
    sum: u32,
}

/// Frontends pass positions on as `off_t`, which has a sign: this bit is never set.
const SIGN: u64 = 1 << 63;
/// The bit that marks a position as a [`Key`]. Other positions are byte offsets in the directory.
const BY_HASH: u64 = 1 << 62;
/// In a position that is no key: it is a byte offset in the names of an inline directory.
const IN_INODE: u64 = 1 << 61;
/// The position behind "." and "..", where they are not in a block.
const BEHIND_DOTS: u64 = 2;
/// Bytes of each of them at the beginning of a block.
const DOT_BYTES: u64 = 12;

impl Key {
    fn of(hash: u32, name: &[u8]) -> Key {
        let sum = csum::crc32c(!0, name) >> 1;
        Key { hash, sum }
    }

    /// The key as a position. The lowest bit of a hash is 0, so it is not stored.
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

/// How many leaves with names of one hash are read at most: more than a sound tree ever has.
const MOST_OF_ONE_HASH: u32 = 1024;

/// The order in which a directory is listed.
enum Order {
    /// The order of the blocks, or of the entries in the inode.
    Place,
    /// Hash order, leaf by leaf through the tree.
    Tree(Root),
    Hash(HashVersion),
}

impl ReadDir {
    pub(crate) fn new(dir: Arc<Inode>) -> Result<ReadDir, Error> {
        ReadDir::from(dir, 0)
    }

    /// Continues from a position that [`ReadDir::position`] returned for the same directory. Position 0 is the beginning.
    pub(crate) fn from(dir: Arc<Inode>, position: u64) -> Result<ReadDir, Error> {
        if !dir.is_dir() {
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

    /// The position behind the last entry that was returned, for [`crate::Volume::read_dir_from`]. It stays valid while the volume is open,
    /// whatever names are created or removed: a listing that is continued there returns each name that exists all the time exactly once. On
    /// a volume that cannot change it stays valid for ever. Limits: if several names have the same hash and the same checksum, a listing
    /// that is continued between them omits the rest of them; on a volume without hash trees, names that move out of an inline directory
    /// meanwhile may be returned twice.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Reads the next entries: one block's, or one or more leaves'. On a volume that can change, the order is that of the hashes if the
    /// directory has a tree or may get one.
    fn fill(&mut self) -> Result<(), Error> {
        let dir = self.dir.clone();
        dir.note_read();
        let _names = dir.lock_shared(false)?;
        let at = std::mem::replace(&mut self.next, Next::End);
        if dir.is_unlinked() {
            // It has no names: its parent may be deleted too, and that inode number be another's.
            return Ok(());
        }
        let (ready, next) = match (at, order(&dir)?) {
            (Next::End, _) => return Ok(()),
            (Next::Dots(skip), _) => (dots(&dir, skip)?, Next::Hash(0, None)),
            (Next::Hash(hash, after), Order::Tree(root)) => by_hash(&dir, &root, hash, after)?,
            (Next::Hash(_, after), Order::Hash(version)) => {
                (all_by_hash(&dir, version, after)?, Next::End)
            }
            // The directory had a tree, or could get one, when the listing began. Without one it cannot be continued: the listing ends.
            (Next::Hash(..), Order::Place) => return Ok(()),
            (Next::Inline(behind), _) if inline_dir::is_inside(&dir) => {
                (inline_from(&dir, behind)?, Next::End)
            }
            // The names have moved out of the inode since.
            (Next::Inline(behind), _) => (Vec::new(), Next::Byte(byte_of(behind))),
            (Next::Byte(from), _) => {
                let size = u64::from(dir.volume.block_size());
                let block = from / size;
                if block >= blocks(&dir)? {
                    return Ok(());
                }
                // Set first, so that after an error the listing continues with the next block.
                self.next = Next::Byte((block + 1) * size);
                (of_block(&dir, block, from)?, self.next)
            }
        };
        (self.ready, self.next) = (ready.into_iter(), next);
        Ok(())
    }
}

/// The order in which a directory is listed now. Its lock is held.
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

/// The entries of a block that begin at this byte of the directory or behind it, each with the position behind it.
fn of_block(dir: &Inode, block: u64, from: u64) -> Result<Vec<(DirEntry, u64)>, Error> {
    let Some(raw) = read_block(dir, block)? else {
        return Ok(Vec::new());
    };
    let first = block * u64::from(dir.volume.block_size());
    let parsed = names_in(dir, block, &raw);
    let behind = |e: &dir::DirEntry<'_>| first + u64::from(e.offset) + u64::from(e.rec_len);
    Ok(parsed
        .entries()
        .filter(|e| first + u64::from(e.offset) >= from)
        .map(|e| (DirEntry::from(e), behind(&e)))
        .collect())
}

/// "." and "..", without the first `skip` of them.
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

/// The entries of an inline directory behind a position. The first part of the names keeps its length, and no entry moves.
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

/// Where a listing of an inline directory continues after the names have moved into a block: at the first name, as they are packed then.
fn byte_of(position: u64) -> u64 {
    match position {
        dot @ 0..=BEHIND_DOTS => dot * DOT_BYTES,
        inside if inside & IN_INODE != 0 => BEHIND_DOTS * DOT_BYTES,
        byte => byte,
    }
}

/// Those of the names that are behind `after`, in the order of their keys, with their positions.
fn sorted(names: Vec<(Key, DirEntry)>, after: Option<Key>) -> Vec<(DirEntry, u64)> {
    let mut names = names;
    names.retain(|(key, _)| after.is_none_or(|after| *key > after));
    names.sort_by_key(|(key, _)| *key);
    let positions = names.into_iter();
    positions
        .map(|(key, entry)| (entry, key.position()))
        .collect()
}

/// All names, in hash order, of a directory that may get a tree: an inline directory, or one of a single block.
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

/// The names in the first leaf for a hash, in order, and what is read next. If the last hash of a leaf continues in the next leaf, all its
/// names are returned together.
fn by_hash(
    dir: &Inode,
    root: &Root,
    from: u32,
    after: Option<Key>,
) -> Result<(Vec<(DirEntry, u64)>, Next), Error> {
    let mut frames = frames_for(dir, root, from)?;
    let mut names = Vec::new();
    for _ in 0..MOST_OF_ONE_HASH {
        let leaf = leaf_of(&frames);
        let raw = read_present(dir, leaf)?;
        let parsed = names_in(dir, leaf, &raw);
        let keyed = |e: dir::DirEntry<'_>| {
            let key = Key::of(hash_of(dir, root, e.name), e.name);
            (key.hash >= from).then(|| (key, DirEntry::from(e)))
        };
        names.extend(parsed.entries().filter_map(keyed));
        let next = match next_leaf(dir, root, &mut frames)? {
            NextLeaf::None => Next::End,
            NextLeaf::From(hash) if hash > from => Next::Hash(hash, after),
            // Names with this hash are left out here: they are read together later, from their first leaf on.
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
