//! Maps of files that are made in one piece: extent trees, or blocks of pointers.
//!
//! Input: an inode, and its extents in order. Output: the inode's map; the blocks of the map above the data. Invariant: the same extents
//! take the same number of blocks. Limit: the caller chooses the blocks. Source: the kernel's ext4 documentation, "extent tree",
//! "direct/indirect block addressing".

use crate::error::Error;
use crate::plan::Has;
use diorite_format::extent::{self, Entries, Extent, ExtentIndex, ExtentNode};
use diorite_format::features::Incompat;
use diorite_format::inode::Inode;
use diorite_format::{FsBlock, Superblock, indirect};

/// Slots of an inode with direct pointers.
const DIRECT: u64 = 12;

/// Gives a block to a map.
pub(crate) type Take<'a> = dyn FnMut() -> Result<u64, Error> + 'a;

/// Blocks and their contents.
pub type Blocks = Vec<(u64, Vec<u8>)>;

/// Writes the map into the inode. Returns its other blocks.
pub fn make(
    sb: &Superblock,
    inode: &mut Inode,
    extents: Vec<Extent>,
    take: &mut Take<'_>,
) -> Result<Blocks, Error> {
    match Has(sb.features()).incompat(Incompat::EXTENTS) {
        true => by_extents(sb, inode, extents, take),
        false => by_pointers(sb, inode, &extents, take),
    }
}

fn by_extents(
    sb: &Superblock,
    inode: &mut Inode,
    extents: Vec<Extent>,
    take: &mut Take<'_>,
) -> Result<Blocks, Error> {
    let mut root = ExtentNode::empty_root();
    let (most, capacity) = (usize::from(root.max), extent::block_capacity(sb));
    let mut blocks = Vec::new();
    root.entries = Entries::Leaf(extents);
    while len(&root.entries) > most {
        let parts: Vec<Entries> = match root.entries {
            Entries::Leaf(all) => {
                let parts = all.chunks(capacity.into());
                parts.map(|part| Entries::Leaf(part.to_vec())).collect()
            }
            Entries::Index(all) => {
                let parts = all.chunks(capacity.into());
                parts.map(|part| Entries::Index(part.to_vec())).collect()
            }
        };
        let firsts: Vec<_> = parts.iter().map(first).collect();
        let mut index = Vec::new();
        for (n, entries) in parts.into_iter().enumerate() {
            let child = take()?;
            let node = ExtentNode {
                depth: root.depth,
                max: capacity,
                entries,
            };
            let mut raw = vec![0; sb.block_size() as usize];
            node.write_block(sb, inode.ino, inode.generation, &mut raw)?;
            blocks.push((child, raw));
            index.push(ExtentIndex {
                block: firsts[n],
                end: firsts.get(n + 1).map_or(1 << 32, |next| next.get()),
                child: FsBlock::new(child),
            });
        }
        root.depth += 1;
        root.entries = Entries::Index(index);
    }
    root.write_root(&mut inode.i_block)?;
    Ok(blocks)
}

fn len(entries: &Entries) -> usize {
    match entries {
        Entries::Leaf(all) => all.len(),
        Entries::Index(all) => all.len(),
    }
}

fn first(entries: &Entries) -> diorite_format::FileBlock {
    let first = match entries {
        Entries::Leaf(all) => all.first().map(|e| e.block),
        Entries::Index(all) => all.first().map(|e| e.block),
    };
    first.unwrap_or(diorite_format::FileBlock::new(0))
}

/// The data blocks of a file one by one, from some block of it on.
struct Cursor<'e> {
    extents: &'e [Extent],
}

impl Cursor<'_> {
    /// The next file block that has data.
    fn next(&self) -> Option<u64> {
        self.extents.first().map(|e| e.block.get())
    }

    /// Where this file block lies; 0 in a hole.
    fn at(&mut self, block: u64) -> u64 {
        while let Some(extent) = self.extents.first() {
            if block < extent.end() {
                let first = extent.block.get();
                if block < first {
                    return 0;
                }
                let at = extent.start.get() + (block - first);
                if block + 1 == extent.end() {
                    self.extents = &self.extents[1..];
                }
                return at;
            }
            self.extents = &self.extents[1..];
        }
        0
    }
}

/// As [`make`], with block pointers whatever the volume's features are.
pub(crate) fn by_pointers(
    sb: &Superblock,
    inode: &mut Inode,
    extents: &[Extent],
    take: &mut Take<'_>,
) -> Result<Blocks, Error> {
    let slots = u64::from(indirect::pointers_per_block(sb));
    let mut data = Cursor { extents };
    let mut blocks = Vec::new();
    for slot in 0..DIRECT {
        let at = FsBlock::new(data.at(slot));
        indirect::set_root_pointer(sb, &mut inode.i_block, slot as u32, at)?;
    }
    let (mut first, mut span) = (DIRECT, 1);
    for (levels, slot) in [(1, 12), (2, 13), (3, 14)] {
        span *= slots;
        if data.next().is_some_and(|next| next < first + span) {
            let top = pointers(sb, (levels, first, span), &mut data, &mut blocks, take)?;
            indirect::set_root_pointer(sb, &mut inode.i_block, slot, FsBlock::new(top))?;
        }
        first += span;
    }
    match data.next() {
        None => Ok(blocks),
        Some(_) => Err(Error::Invalid(format!(
            "inode {}: {} blocks are too many for a file without extents",
            inode.ino,
            data.extents.last().map_or(0, Extent::end)
        ))),
    }
}

/// Makes a block of pointers over `span` file blocks from `first` on, `levels` above them: at most three. Returns its place.
fn pointers(
    sb: &Superblock,
    (levels, first, span): (u32, u64, u64),
    data: &mut Cursor<'_>,
    blocks: &mut Blocks,
    take: &mut Take<'_>,
) -> Result<u64, Error> {
    let own = take()?;
    let slots = u64::from(indirect::pointers_per_block(sb));
    let part = span / slots;
    let mut raw = vec![0; sb.block_size() as usize];
    for slot in 0..slots {
        let from = first + slot * part;
        if data.next().is_none_or(|next| next >= from + part) {
            continue;
        }
        let below = match levels {
            1 => data.at(from),
            _ => pointers(sb, (levels - 1, from, part), data, blocks, take)?,
        };
        indirect::set_pointer(sb, &mut raw, slot as u32, FsBlock::new(below))?;
    }
    blocks.push((own, raw));
    Ok(own)
}
