//! Lookup of a name: by the hash tree if the directory has one, else block by block.
//!
//! Input: a directory inode and a name. Output: the inode, or its number and the block with the name; none if the name does not exist.
//! Invariant: with a hash tree, one block per level is read, and the leaves that hold names with the same hash. Limits: a directory whose
//! tree is not understood is searched block by block.

use super::{Places, blocks, form_of, hole, names_in, read_block_at, read_node, read_node_at};
use crate::dir::inline_dir;
use crate::disk::cache::MetaRef;
use crate::error::Error;
use crate::inode::{HashRoot, Inode, Remembered};
use diorite_format::dir::{DirForm, Sought};
use diorite_format::dirhash::HashVersion;
use diorite_format::dx::{self, DxNode, DxRoot, DxView};
use diorite_format::{FileBlock, FormatError, FsBlock, Ino, InodeFlags};
use std::sync::Arc;

/// Where a name was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// The directory block that has the name; none for an inline directory.
    pub(super) block: Option<u64>,
    pub(super) ino: Ino,
    /// Where that block is on the volume, and the name's record in it.
    record: Option<Record>,
}

/// A record of a name. As long as the directory is locked exclusively and nobody has changed it, it is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) place: FsBlock,
    /// The bytes of the block at which the record before it and the record itself begin.
    pub(super) at: (Option<u32>, u32),
}

impl Found {
    /// The block with the name and its record there; none for an inline directory.
    pub(super) fn record(&self) -> Option<(u64, Record)> {
        self.block.zip(self.record)
    }
}

/// Room for a name that is not in the directory: a block that a lookup of the name searches. As long as the directory is locked exclusively
/// and nobody has changed it, the room is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) block: u64,
    pub(super) place: FsBlock,
    /// The byte of the block at which the record with the room begins.
    pub(super) offset: u32,
}

/// What a search for a name has found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Search {
    Found(Found),
    /// The name is not there. None: there may be room all the same.
    Missing(Option<Room>),
}

impl Search {
    pub(super) fn found(self) -> Option<Found> {
        match self {
            Search::Found(found) => Some(found),
            Search::Missing(_) => None,
        }
    }

    pub(super) fn room(self) -> Option<Room> {
        match self {
            Search::Found(_) => None,
            Search::Missing(room) => room,
        }
    }
}

/// The inode that `name` refers to in `dir`. The directory stays locked until that inode is in memory: otherwise the inode could lose its
/// name and be deleted in between. A removed directory has no names: its ".." may be another inode's number by now. Blocks.
pub(crate) fn locked(dir: &Inode, name: &[u8]) -> Result<Option<Arc<Inode>>, Error> {
    if let Some(subdir) = dir.remembered_subdir(name) {
        return Ok(Some(subdir));
    }
    let names = dir.lock_shared(false)?;
    let found = search(dir, Some(&names), name)?.found();
    let Some(found) = found.filter(|_| !dir.is_unlinked()) else {
        return Ok(None);
    };
    let inode = dir.volume.inode(found.ino)?;
    dir.note_subdir(&names, name, &inode);
    Ok(Some(inode))
}

/// Where `name` is in `dir`, and which inode it refers to. The directory's lock is held. Blocks.
pub(super) fn find(dir: &Inode, name: &[u8]) -> Result<Option<Found>, Error> {
    search(dir, None, name).map(Search::found)
}

/// As [`find`], and with the room for the name if it is not there. Each block is searched once. `names`: the value of the directory's lock.
pub(super) fn search(
    dir: &Inode,
    names: Option<&Remembered>,
    name: &[u8],
) -> Result<Search, Error> {
    if !dir.is_dir() {
        return Err(Error::NotADirectory {
            path: format!("inode {}", dir.ino),
        });
    }
    if inline_dir::is_inside(dir) {
        let found = |ino| Found {
            block: None,
            ino,
            record: None,
        };
        let found = inline_dir::find(dir, name)?.map(found);
        return Ok(found.map_or(Search::Missing(None), Search::Found));
    }
    let places = Places::by(dir, names);
    let takes_names = match name {
        b"." | b".." => false,
        _ => match hashed_at(&places)? {
            Hashed::Yes(root) => return by_hash(&places, &root, name),
            Hashed::No => true,
            Hashed::Unknown => false,
        },
    };
    let mut first = None;
    for block in 0..blocks(dir)? {
        match in_block(&places, block, name)? {
            Search::Missing(room) => first = first.or(room),
            found @ Search::Found(_) => return Ok(found),
        }
    }
    Ok(Search::Missing(first.filter(|_| takes_names)))
}

/// How a directory is searched.
pub(super) enum Hashed {
    /// Block by block: it has no tree.
    No,
    /// By its hash tree.
    Yes(Root),
    /// Block by block, because its tree is not understood. No name can be added.
    Unknown,
}

/// The root of a directory's hash tree.
pub(super) struct Root {
    pub(super) hash: HashVersion,
    /// Levels of nodes below the root.
    pub(super) levels: u8,
    raw: RootBytes,
}

/// The bytes of a root: its block, or as many of them as have entries, as they are remembered.
enum RootBytes {
    Block(MetaRef),
    Remembered(Arc<[u8]>),
}

impl Root {
    /// The root as its directory remembers it.
    fn remembered(root: &HashRoot) -> Root {
        Root {
            hash: root.hash,
            levels: 0,
            raw: RootBytes::Remembered(root.raw.clone()),
        }
    }

    fn view(&self) -> DxView<'_> {
        let raw = match &self.raw {
            RootBytes::Block(raw) => &raw[..],
            RootBytes::Remembered(raw) => &raw[..],
        };
        DxView::new(FileBlock::new(0), raw)
    }

    /// The whole block. Blocks if only a part of it is remembered.
    fn block(&self, dir: &Inode) -> Result<MetaRef, Error> {
        match &self.raw {
            RootBytes::Block(raw) => Ok(raw.clone()),
            RootBytes::Remembered(_) => read_node(dir, 0),
        }
    }
}

/// How the directory is searched. Blocks while the root is read.
pub(super) fn hashed(dir: &Inode) -> Result<Hashed, Error> {
    hashed_at(&Places::of(dir))
}

fn hashed_at(places: &Places<'_>) -> Result<Hashed, Error> {
    let dir = places.dir;
    let sb = &dir.volume.sb;
    if form_of(dir) == DirForm::Linear {
        return Ok(Hashed::No);
    }
    // The tree of a directory that folds case has the hashes of folded names.
    if dir.flags().has(InodeFlags::CASEFOLD) {
        return Ok(Hashed::Unknown);
    }
    if let Some(root) = places.names.and_then(|names| names.root(dir)) {
        return Ok(Hashed::Yes(Root::remembered(root)));
    }
    let Some(place) = places.of_block(0)? else {
        return Ok(Hashed::Unknown);
    };
    let raw = read_node_at(dir, (0, place))?;
    match dx::shape(sb, &raw) {
        Ok((hash, levels)) => {
            if let Some(names) = places.names.filter(|_| levels == 0) {
                let used = dx::used_len(FileBlock::new(0), &raw);
                names.note_root(dir, hash, &raw[..used.min(raw.len())]);
            }
            let raw = RootBytes::Block(raw);
            Ok(Hashed::Yes(Root { hash, levels, raw }))
        }
        Err(FormatError::Unsupported(_)) => Ok(Hashed::Unknown),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn hash_of(dir: &Inode, root: &Root, name: &[u8]) -> u32 {
    root.hash.hash(dir.volume.sb.hash(), name).major
}

/// The first leaf that may hold a hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) block: u64,
    /// The hash in the next leaf's entry. Its lowest bit means that names with this hash are also in the leaf before.
    next: Option<u32>,
}

impl Leaf {
    /// Does the next leaf have names with this hash, too?
    fn goes_on(&self, hash: u32) -> bool {
        self.next.is_some_and(|next| next == hash | 1)
    }
}

/// Finds the first leaf for a hash. Reads one block per level.
pub(super) fn leaf_for(dir: &Inode, root: &Root, hash: u32) -> Result<Leaf, Error> {
    let (mut block, mut next) = (0, None);
    let mut step = |view: DxView<'_>| {
        let at = view.find(hash);
        let entry = view.entry(at).ok_or_else(|| hole(dir, block))?;
        next = view.entry(at + 1).map(|e| e.hash).or(next);
        block = entry.block.get();
        Ok::<u64, Error>(block)
    };
    let mut below = step(root.view())?;
    for _ in 0..root.levels {
        let node = read_node(dir, below)?;
        below = step(DxView::new(FileBlock::new(below), &node))?;
    }
    Ok(Leaf { block, next })
}

/// The nodes on the way to the first leaf for a hash, parsed.
pub(super) fn frames_for(dir: &Inode, root: &Root, hash: u32) -> Result<Vec<Frame>, Error> {
    let node = DxRoot::parse(&dir.volume.sb, &dir.disk(), &root.block(dir)?)?.node;
    let mut frames = vec![Frame {
        block: 0,
        at: node.find(hash),
        node,
    }];
    descend(dir, &mut frames, usize::from(root.levels), Some(hash))?;
    Ok(frames)
}

/// The leaf to which `frames` lead.
pub(super) fn leaf_of(frames: &[Frame]) -> u64 {
    let last = frames.last().expect("the root is a frame");
    last.node.entries[last.at].block.get()
}

/// Looks for the name in one block.
pub(super) fn in_block(places: &Places<'_>, block: u64, name: &[u8]) -> Result<Search, Error> {
    let dir = places.dir;
    let Some(place) = places.of_block(block)? else {
        return Ok(Search::Missing(None));
    };
    let raw = read_block_at(dir, (block, place))?;
    Ok(match names_in(dir, block, &raw).seek(name) {
        Sought::At {
            ino,
            offset,
            before,
        } => Search::Found(Found {
            block: Some(block),
            ino,
            record: Some(Record {
                place,
                at: (before, offset),
            }),
        }),
        Sought::Room(offset) => Search::Missing(Some(Room {
            block,
            place,
            offset,
        })),
        Sought::Full => Search::Missing(None),
    })
}

/// A node on the way to a leaf, and the index of the entry that was taken.
pub(super) struct Frame {
    pub(super) block: u64,
    pub(super) node: DxNode,
    pub(super) at: usize,
}

fn by_hash(places: &Places<'_>, root: &Root, name: &[u8]) -> Result<Search, Error> {
    let dir = places.dir;
    let hash = hash_of(dir, root, name);
    let leaf = leaf_for(dir, root, hash)?;
    // Room in the first leaf for the hash is room for the name, whatever the next leaves have.
    let room = match in_block(places, leaf.block, name)? {
        found @ Search::Found(_) => return Ok(found),
        Search::Missing(room) => room,
    };
    if !leaf.goes_on(hash) {
        return Ok(Search::Missing(room));
    }
    let mut frames = frames_for(dir, root, hash)?;
    loop {
        if let found @ Search::Found(_) = in_block(places, leaf_of(&frames), name)? {
            return Ok(found);
        }
        if next_leaf(dir, root, &mut frames)? != Next::GoesOn(hash) {
            return Ok(Search::Missing(room));
        }
    }
}

/// Which names the next leaf holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// There is no next leaf.
    None,
    /// Names with this hash and larger ones.
    From(u32),
    /// As `From`, and the leaf before has names with this hash, too.
    GoesOn(u32),
}

/// Moves `frames` to the next leaf of the tree. Blocks while nodes are read.
pub(super) fn next_leaf(dir: &Inode, root: &Root, frames: &mut Vec<Frame>) -> Result<Next, Error> {
    let is_last = |frame: &Frame| frame.at + 1 >= frame.node.entries.len();
    while frames.last().is_some_and(is_last) {
        frames.pop();
    }
    let Some(frame) = frames.last_mut() else {
        return Ok(Next::None);
    };
    frame.at += 1;
    let hash = frame.node.entries[frame.at].hash;
    descend(dir, frames, usize::from(root.levels), None)?;
    Ok(match hash & 1 {
        0 => Next::From(hash),
        _ => Next::GoesOn(hash & !1),
    })
}

/// Reads nodes until `frames` reach the level above the leaves: down the entry for `hash`, or, without one, down the first entry of each
/// node.
fn descend(
    dir: &Inode,
    frames: &mut Vec<Frame>,
    levels: usize,
    hash: Option<u32>,
) -> Result<(), Error> {
    while frames.len() <= levels {
        let block = leaf_of(frames);
        let (raw, number) = (read_node(dir, block)?, FileBlock::new(block));
        let node = DxNode::parse(&dir.volume.sb, &dir.disk(), number, &raw)?;
        frames.push(Frame {
            block,
            at: hash.map_or(0, |h| node.find(h)),
            node,
        });
    }
    Ok(())
}
