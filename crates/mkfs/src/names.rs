//! Directories that are made in one piece.
//!
//! Input: a directory's inode, its parent, and its names with their inodes. Output: its blocks, one after the other. Invariants: a
//! directory of more than one block has a hash tree, if the volume has those, with full blocks in the order of hashes; [`blocks`] says how
//! many blocks [`fill`] makes. A name takes twelve bytes while its directory is made. Limits: as of the tree's levels. Source: the kernel's
//! ext4 documentation, "directory entries", "hash tree directories".

use crate::error::Error;
use crate::plan::Has;
use diorite_format::dir::{self, DirBlock, DirBlockEdit};
use diorite_format::dx::{self, DxEntry};
use diorite_format::features::Compat;
use diorite_format::inode::{FileType, Inode, InodeFlags};
use diorite_format::{FileBlock, Ino, Superblock};

/// A name, its inode, and what that is.
pub type Name<'n> = (&'n [u8], Ino, FileType);

/// The names of a directory in the order of their bytes, by their numbers from 0 on.
pub struct Names<'n> {
    /// How many there are.
    pub count: usize,
    /// The name of a number below `count`.
    pub get: &'n dyn Fn(usize) -> Name<'n>,
}

/// A name by its number, and the hash by which it is placed; 0 in a linear directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    major: u32,
    minor: u32,
    number: u32,
}

/// How names of these lengths are laid out.
struct Shape {
    /// Names per block: of the only block, of the blocks of a linear directory, or of the leaves.
    leaves: Vec<usize>,
    /// Inner nodes below the root of a hash tree.
    nodes: usize,
    is_hashed: bool,
}

fn is_indexed(sb: &Superblock) -> bool {
    Has(sb.features()).compat(Compat::DIR_INDEX)
}

/// Cuts names into blocks; `before` bytes of the first one are taken.
fn cut(sb: &Superblock, names: impl Iterator<Item = usize>, before: u32) -> Vec<usize> {
    let room = dir::entries_len(sb);
    let (mut blocks, mut taken) = (vec![0], before);
    for len in names {
        let size = dir::record_size(len);
        if taken + size > room {
            blocks.push(0);
            taken = 0;
        }
        taken += size;
        *blocks.last_mut().expect("there is one") += 1;
    }
    blocks
}

/// Bytes of "." and "..".
const DOTS: u32 = 24;

impl Shape {
    /// `order`: the names in their order in the directory.
    fn of(sb: &Superblock, names: &Names<'_>, order: &[Key]) -> Result<Shape, Error> {
        let lens = || order.iter().map(|key| names.of(key).0.len());
        let linear = cut(sb, lens(), DOTS);
        if linear.len() == 1 || !is_indexed(sb) {
            return Ok(Shape {
                leaves: linear,
                nodes: 0,
                is_hashed: false,
            });
        }
        let leaves = cut(sb, lens(), 0);
        let (of_root, of_node) = (dx::capacity(sb, true), dx::capacity(sb, false));
        let nodes = match leaves.len() <= of_root {
            true => 0,
            false => leaves.len().div_ceil(of_node),
        };
        if nodes > of_root {
            return Err(Error::Invalid(format!(
                "a directory of {} names is too large for a hash tree of two levels",
                order.len()
            )));
        }
        Ok(Shape {
            leaves,
            nodes,
            is_hashed: true,
        })
    }

    fn blocks(&self) -> usize {
        self.leaves.len() + self.nodes + usize::from(self.is_hashed)
    }
}

impl<'n> Names<'n> {
    fn of(&self, key: &Key) -> Name<'n> {
        (self.get)(key.number as usize)
    }

    /// The names in the order of their hashes, if the directory will have a tree.
    fn ordered(&self, sb: &Superblock) -> Result<Vec<Key>, Error> {
        let hash = dx::default_hash(sb)?;
        let lens = (0..self.count).map(|n| (self.get)(n).0.len());
        let linear = !is_indexed(sb) || cut(sb, lens, DOTS).len() == 1;
        // A tree has fewer than 2^32 names.
        let keys = (0..self.count as u32).map(|number| {
            let (major, minor) = match linear {
                true => (0, 0),
                false => {
                    let hash = hash.hash(sb.hash(), (self.get)(number as usize).0);
                    (hash.major, hash.minor)
                }
            };
            Key {
                major,
                minor,
                number,
            }
        });
        let mut keys: Vec<Key> = keys.collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// The block of these names.
    fn block(&self, sb: &Superblock, inode: &Inode, keys: &[Key]) -> Result<Vec<u8>, Error> {
        let names: Vec<Name<'_>> = keys.iter().map(|key| self.of(key)).collect();
        Ok(dir::block_of(sb, inode, &names)?)
    }
}

/// How many blocks a directory with these names has, at least `least`.
pub(crate) fn blocks(sb: &Superblock, names: &Names<'_>, least: u32) -> Result<u32, Error> {
    let count = Shape::of(sb, names, &names.ordered(sb)?)?.blocks();
    let few = u32::try_from(count).ok();
    let few = few.ok_or_else(|| Error::Invalid("a directory is too large".to_owned()))?;
    Ok(few.max(least))
}

/// Gives `put` the blocks of a directory in order, at least `least`; marks the inode if it has a tree. Returns their number.
pub fn fill(
    sb: &Superblock,
    inode: &mut Inode,
    parent: Ino,
    names: &Names<'_>,
    least: u32,
    put: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<u64, Error> {
    let order = names.ordered(sb)?;
    let shape = Shape::of(sb, names, &order)?;
    let mut first = vec![0; sb.block_size() as usize];
    dir::init_first_block(sb, inode, parent, &mut first)?;
    let mut rest = &order[..];
    let mut leaves = shape.leaves.iter().map(|count| {
        let (here, others) = rest.split_at(*count);
        rest = others;
        here
    });
    let count = shape.blocks().max(least as usize);
    if shape.is_hashed {
        put_tree(sb, inode, &shape, &order, &first, put)?;
    } else {
        let mut edit = DirBlockEdit::open(sb, inode, FileBlock::new(0), &mut first)?;
        for (name, ino, kind) in leaves
            .next()
            .unwrap_or_default()
            .iter()
            .map(|key| names.of(key))
        {
            edit.insert_new(name, ino, kind)?;
        }
        put(&first)?;
    }
    for keys in leaves {
        put(&names.block(sb, inode, keys)?)?;
    }
    for _ in shape.blocks()..count {
        let mut raw = vec![0; sb.block_size() as usize];
        dir::init_block(sb, inode, &mut raw)?;
        put(&raw)?;
    }
    Ok(count as u64)
}

/// The root and the nodes of a hash tree, before its leaves. `first` is the first block without a tree.
fn put_tree(
    sb: &Superblock,
    inode: &mut Inode,
    shape: &Shape,
    order: &[Key],
    first: &[u8],
    put: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut at, mut before, mut entries) = (0, None, Vec::new());
    for (n, count) in shape.leaves.iter().enumerate() {
        let here = &order[at..at + count];
        at += count;
        let from = here.first().map_or(0, |key| key.major);
        // Bit 0: names of this hash are in the block before, too.
        let goes_on = u32::from(before == Some(from));
        before = here.last().map(|key| key.major);
        entries.push(DxEntry {
            hash: if n == 0 { 0 } else { from | goes_on },
            block: FileBlock::new(1 + (shape.nodes + n) as u64),
        });
    }
    let mut of_nodes = Vec::new();
    if shape.nodes > 0 {
        let mut upper = Vec::new();
        for (n, part) in entries.chunks(dx::capacity(sb, false)).enumerate() {
            let block = FileBlock::new(1 + n as u64);
            let mut own = part.to_vec();
            upper.push(DxEntry {
                hash: own[0].hash,
                block,
            });
            own[0].hash = 0;
            of_nodes.push(dx::node(sb, inode, block, &own)?);
        }
        entries = upper;
    }
    // Without the flag, as the first block has no tree yet.
    let dots = DirBlock::parse(sb, inode, FileBlock::new(0), first)?;
    let mut root = dx::new_root(sb, inode, &dots, &entries)?;
    dx::set_root(sb, inode, &mut root, u8::from(shape.nodes > 0), &entries)?;
    inode.flags = inode.flags.with(InodeFlags::INDEX);
    put(&root)?;
    of_nodes.iter().try_for_each(|node| put(node))
}
