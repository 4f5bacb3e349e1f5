//! Directories that are made in one piece.
//!
//! Input: a directory's inode, its parent, and its names with their inodes. Output: its blocks. Invariants: a directory of more than one
//! block has a hash tree, if the volume has those, with full blocks in the order of hashes; [`blocks`] says how many blocks [`fill`]
//! makes. Limits: as of the tree's levels. Source: the kernel's ext4 documentation, "directory entries", "hash tree directories".

use super::plan::Has;
use crate::error::Error;
use diorite_format::dir::{self, DirBlock, DirBlockEdit};
use diorite_format::dx::{self, DxEntry};
use diorite_format::features::Compat;
use diorite_format::inode::{FileType, Inode, InodeFlags};
use diorite_format::{FileBlock, Ino, Superblock};

/// A name, its inode, and what that is.
pub(super) type Name<'n> = (&'n [u8], Ino, FileType);

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
    /// `lens`: lengths of the names, in their order in the directory.
    fn of(sb: &Superblock, lens: &[usize]) -> Result<Shape, Error> {
        let linear = cut(sb, lens.iter().copied(), DOTS);
        if linear.len() == 1 || !is_indexed(sb) {
            return Ok(Shape {
                leaves: linear,
                nodes: 0,
                is_hashed: false,
            });
        }
        let leaves = cut(sb, lens.iter().copied(), 0);
        let (of_root, of_node) = (dx::capacity(sb, true), dx::capacity(sb, false));
        let nodes = match leaves.len() <= of_root {
            true => 0,
            false => leaves.len().div_ceil(of_node),
        };
        if nodes > of_root {
            return Err(Error::Invalid(format!(
                "a directory of {} names is too large for a hash tree of two levels",
                lens.len()
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

/// Puts names into the order of their hashes, if the directory will have a tree.
fn ordered<'n>(sb: &Superblock, names: Vec<Name<'n>>) -> Result<Vec<(u32, Name<'n>)>, Error> {
    let hash = dx::default_hash(sb)?;
    let lens = names.iter().map(|(name, ..)| name.len());
    if cut(sb, lens, DOTS).len() == 1 || !is_indexed(sb) {
        return Ok(names.into_iter().map(|name| (0, name)).collect());
    }
    let of = |name: &[u8]| hash.hash(sb.hash(), name);
    let mut all: Vec<_> = names.into_iter().map(|n| (of(n.0), n)).collect();
    all.sort_by_key(|(hash, (name, ..))| (hash.major, hash.minor, *name));
    Ok(all
        .into_iter()
        .map(|(hash, name)| (hash.major, name))
        .collect())
}

/// How many blocks a directory with these names has, at least `least`.
pub(super) fn blocks(sb: &Superblock, names: Vec<Name<'_>>, least: u32) -> Result<u32, Error> {
    let all = ordered(sb, names)?;
    let lens: Vec<usize> = all.iter().map(|(_, (name, ..))| name.len()).collect();
    let count = Shape::of(sb, &lens)?.blocks();
    let few = u32::try_from(count).ok();
    let few = few.ok_or_else(|| Error::Invalid("a directory is too large".to_owned()))?;
    Ok(few.max(least))
}

/// The blocks of a directory, at least `least`; marks the inode if it has a tree.
pub(super) fn fill(
    sb: &Superblock,
    inode: &mut Inode,
    parent: Ino,
    names: Vec<Name<'_>>,
    least: u32,
) -> Result<Vec<Vec<u8>>, Error> {
    let all = ordered(sb, names)?;
    let lens: Vec<usize> = all.iter().map(|(_, (name, ..))| name.len()).collect();
    let shape = Shape::of(sb, &lens)?;
    let mut first = vec![0; sb.block_size() as usize];
    dir::init_first_block(sb, inode, parent, &mut first)?;
    let mut blocks = Vec::new();
    if !shape.is_hashed {
        let mut rest = &all[..];
        for (n, count) in shape.leaves.iter().enumerate() {
            let (here, others) = rest.split_at(*count);
            rest = others;
            if n == 0 {
                let mut edit = DirBlockEdit::open(sb, inode, FileBlock::new(0), &mut first)?;
                for (_, (name, ino, kind)) in here {
                    edit.insert_new(name, *ino, *kind)?;
                }
                blocks.push(std::mem::take(&mut first));
            } else {
                let names: Vec<Name<'_>> = here.iter().map(|(_, name)| *name).collect();
                blocks.push(dir::block_of(sb, inode, &names)?);
            }
        }
        while blocks.len() < least as usize {
            let mut raw = vec![0; sb.block_size() as usize];
            dir::init_block(sb, inode, &mut raw)?;
            blocks.push(raw);
        }
        return Ok(blocks);
    }
    let leaves = shape.leaves.len();
    let (mut rest, mut before, mut entries) = (&all[..], None, Vec::new());
    let mut of_leaves = Vec::with_capacity(leaves);
    for (n, count) in shape.leaves.iter().enumerate() {
        let (here, others) = rest.split_at(*count);
        rest = others;
        let names: Vec<Name<'_>> = here.iter().map(|(_, name)| *name).collect();
        of_leaves.push(dir::block_of(sb, inode, &names)?);
        let from = here.first().map_or(0, |(hash, _)| *hash);
        // Bit 0: names of this hash are in the block before, too.
        let goes_on = u32::from(before == Some(from));
        before = here.last().map(|(hash, _)| *hash);
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
    let dots = DirBlock::parse(sb, inode, FileBlock::new(0), &first)?;
    let mut root = dx::new_root(sb, inode, &dots, &entries)?;
    dx::set_root(sb, inode, &mut root, u8::from(shape.nodes > 0), &entries)?;
    inode.flags = inode.flags.with(InodeFlags::INDEX);
    blocks.push(root);
    blocks.append(&mut of_nodes);
    blocks.append(&mut of_leaves);
    Ok(blocks)
}
