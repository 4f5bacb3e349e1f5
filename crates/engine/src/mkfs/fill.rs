//! What a tree of files becomes in a new file system: inodes, directories, attributes, and places for the data.
//!
//! Input: a [`Tree`], and the [`Space`] that the volume's own metadata left. Output: a [`Filling`], which writes everything but the data.
//! Invariants: the order of the names decides every number and every place, so the same tree gives the same bytes; blocks are used one
//! after the other, up to the last. Limits: those of attributes are in `attributes`.

use super::attributes::{Attributes, stored};
use super::map;
use super::names::{self, Name};
use super::plan::{Has, Plan};
use super::space::Space;
use super::tree::{Node, NodeId, NodeKind, Tree};
use super::values::Values;
use super::write::Out;
use crate::error::Error;
use diorite_format::extent::Extent;
use diorite_format::features::RoCompat;
use diorite_format::inode::{FileType, I_BLOCK_SIZE, Inode, InodeFlags, NewInode, Timestamp};
use diorite_format::xattr::{self, XattrEntry};
use diorite_format::{FileBlock, FsBlock, Ino, Superblock};
use std::collections::{BTreeMap, VecDeque};
use std::iter::once;
use std::ops::Range;

/// Names of one inode, at most.
const MOST_LINKS: u32 = 65_000;
/// The name of the directory that e2fsck puts lost files into.
pub(super) const LOST_FOUND: &[u8] = b"lost+found";
/// Blocks of inode tables that are kept until they are complete.
const OPEN_TABLES: usize = 64;

/// A node with its number and its places.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) id: NodeId,
    pub(super) ino: Ino,
    parent: Ino,
    pub(super) extents: Box<[Extent]>,
    /// Blocks of its map.
    upper: Box<[u64]>,
    /// Block of its attributes; 0 = none.
    attributes: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Filling {
    pub(super) placed: Vec<Placed>,
    /// By node: its inode, and the number of its names.
    numbers: Vec<(u32, u32)>,
    lost_found_blocks: u32,
    /// Blocks of a cluster.
    ratio: u64,
    /// Values of attributes in inodes of their own.
    pub(super) values: Values,
    /// Clusters that it takes.
    pub(super) clusters: u64,
    pub(super) last_ino: u32,
}

pub(super) struct Placing<'p, 's, 't> {
    pub(super) sb: &'s Superblock,
    space: &'p mut Space<'s>,
    pub(super) tree: &'t Tree,
    pub(super) filling: Filling,
    missing_blocks: u64,
}

/// Gives numbers and places to everything that has a name in the tree. `first` is the first inode that is free.
pub(super) fn place<'s>(
    plan: &Plan,
    sb: &'s Superblock,
    space: &mut Space<'s>,
    tree: &Tree,
    first: u32,
) -> Result<Filling, Error> {
    let mut placing = Placing {
        sb,
        space,
        tree,
        filling: Filling {
            placed: Vec::new(),
            numbers: vec![(0, 0); tree.len()],
            lost_found_blocks: plan.lost_found_blocks,
            ratio: sb.geometry().cluster_ratio().into(),
            values: Values::default(),
            clusters: 0,
            last_ino: first - 1,
        },
        missing_blocks: 0,
    };
    placing.number()?;
    placing.place_all()?;
    let most = sb.geometry().inodes_count();
    let missing_inodes = u64::from(placing.filling.last_ino.saturating_sub(most));
    if placing.missing_blocks > 0 || missing_inodes > 0 {
        return Err(Error::TooSmall {
            blocks: placing.missing_blocks,
            block_size: sb.block_size(),
            inodes: missing_inodes,
        });
    }
    Ok(placing.filling)
}

impl Placing<'_, '_, '_> {
    /// Walks the directories, the upper ones first, and numbers what they name in order.
    fn number(&mut self) -> Result<(), Error> {
        let lost_found = self.sb.geometry().first_ino();
        self.add(NodeId::ROOT, Ino::ROOT, Ino::ROOT);
        let mut dirs = VecDeque::from([(NodeId::ROOT, Ino::ROOT)]);
        while let Some((dir, own)) = dirs.pop_front() {
            for (name, id) in self.tree.children(dir) {
                let is_dir = self.tree.node(id).kind == NodeKind::Directory;
                let (known, names) = &mut self.filling.numbers[id.index()];
                *names += 1;
                if *known != 0 {
                    let links = *names;
                    self.check_links(name, links, is_dir)?;
                    continue;
                }
                let ino = if dir == NodeId::ROOT && name == LOST_FOUND && is_dir {
                    Ino::new(lost_found)
                } else {
                    // Past the last inode the count goes on, to say how many are missing.
                    self.filling.last_ino = self.filling.last_ino.saturating_add(1);
                    Ino::new(self.filling.last_ino)
                };
                self.add(id, ino, own);
                if is_dir {
                    dirs.push_back((id, ino));
                }
            }
        }
        // The numbers order the inode tables, so those are written from their beginnings to their ends.
        self.filling.placed.sort_by_key(|placed| placed.ino);
        Ok(())
    }

    fn check_links(&self, name: &[u8], links: u32, is_dir: bool) -> Result<(), Error> {
        let name = String::from_utf8_lossy(name);
        if is_dir {
            return Err(Error::Invalid(format!(
                "the directory {name} has two names"
            )));
        }
        match links > MOST_LINKS {
            true => Err(Error::Invalid(format!(
                "{name} is one of more than {MOST_LINKS} names of a file"
            ))),
            false => Ok(()),
        }
    }

    fn add(&mut self, id: NodeId, ino: Ino, parent: Ino) {
        self.filling.numbers[id.index()].0 = ino.get();
        self.filling.placed.push(Placed {
            id,
            ino,
            parent,
            extents: Box::default(),
            upper: Box::default(),
            attributes: 0,
        });
    }

    fn place_all(&mut self) -> Result<(), Error> {
        for n in 0..self.filling.placed.len() {
            let (id, ino) = (self.filling.placed[n].id, self.filling.placed[n].ino);
            let node = self.tree.node(id);
            let ranges = self.ranges(id, node, ino)?;
            let extents = self.extents(&ranges);
            let mut inode = self.filling.inode(self.sb, node, ino);
            let upper = self.upper(&mut inode, &extents)?;
            let attributes = match self.attributes(id, ino, &inode)? {
                true => self.one(),
                false => 0,
            };
            let placed = &mut self.filling.placed[n];
            placed.extents = extents.into();
            placed.upper = upper.into();
            placed.attributes = attributes;
        }
        Ok(())
    }

    /// Blocks of the map above these extents.
    pub(super) fn upper(
        &mut self,
        inode: &mut Inode,
        extents: &[Extent],
    ) -> Result<Vec<u64>, Error> {
        let mut upper = Vec::new();
        if !extents.is_empty() {
            // With places of no meaning: only their number counts here.
            let any = self.sb.geometry().first_data_block().get() + 1;
            let mut take = || {
                upper.push(any);
                Ok(any)
            };
            map::make(self.sb, inode, extents.to_vec(), &mut take)?;
        }
        for block in &mut upper {
            *block = self.one();
        }
        Ok(upper)
    }

    /// The file blocks of a node that have data.
    fn ranges(&self, id: NodeId, node: &Node, ino: Ino) -> Result<Vec<Range<u64>>, Error> {
        let size = u64::from(self.sb.block_size());
        Ok(match &node.kind {
            NodeKind::Directory => {
                let names = self.filling.names(self.tree, id);
                let least = self.filling.least_blocks(self.sb, ino);
                once(0..u64::from(names::blocks(self.sb, names, least)?)).collect()
            }
            NodeKind::Symlink(target) if target.len() >= I_BLOCK_SIZE => {
                if target.len() as u64 >= size {
                    let why = format!(
                        "a symbolic link's target of {} bytes does not fit into a block",
                        target.len()
                    );
                    return Err(Error::Invalid(why));
                }
                once(0..1).collect()
            }
            NodeKind::File { len, data } => {
                let cluster = size * u64::from(self.sb.geometry().cluster_ratio());
                let end = len.div_ceil(size);
                let mut ranges: Vec<Range<u64>> = Vec::new();
                for part in data.iter().filter(|part| !part.is_empty()) {
                    if part.end > *len || part.end > u64::MAX - cluster {
                        return Err(Error::Invalid("a file has data behind its end".to_owned()));
                    }
                    let first = part.start / cluster * (cluster / size);
                    let last = (part.end.div_ceil(cluster) * (cluster / size)).min(end);
                    match ranges.last_mut() {
                        Some(before) if first <= before.end => before.end = before.end.max(last),
                        _ => ranges.push(first..last),
                    }
                }
                ranges
            }
            _ => Vec::new(),
        })
    }

    pub(super) fn extents(&mut self, ranges: &[Range<u64>]) -> Vec<Extent> {
        let mut extents = Vec::new();
        for range in ranges {
            let blocks = range.end - range.start;
            let ratio = u64::from(self.sb.geometry().cluster_ratio());
            let Some(runs) = self.space.next_free(blocks) else {
                self.missing_blocks += blocks.next_multiple_of(ratio);
                continue;
            };
            self.filling.clusters += blocks.div_ceil(ratio);
            let mut at = range.start;
            for run in runs {
                let len = run.end - run.start;
                extents.push(Extent {
                    block: FileBlock::new(at),
                    len: len as u32,
                    start: FsBlock::new(run.start),
                    unwritten: false,
                });
                at += len;
            }
        }
        extents
    }

    fn one(&mut self) -> u64 {
        match self.space.next_free(1) {
            Some(runs) => {
                self.filling.clusters += 1;
                runs.first().map_or(0, |run| run.start)
            }
            None => {
                self.missing_blocks += u64::from(self.sb.geometry().cluster_ratio());
                0
            }
        }
    }
}

impl Filling {
    fn names<'t>(&self, tree: &'t Tree, dir: NodeId) -> Vec<Name<'t>> {
        let children = tree.children(dir);
        let name = |(name, id): (&'t [u8], NodeId)| {
            let ino = Ino::new(self.numbers[id.index()].0);
            (name, ino, tree.node(id).kind.file_type())
        };
        children.map(name).collect()
    }

    fn least_blocks(&self, sb: &Superblock, ino: Ino) -> u32 {
        match ino.get() == sb.geometry().first_ino() {
            true => self.lost_found_blocks,
            false => 1,
        }
    }

    /// An inode with everything but its map, its size and its space.
    fn inode(&self, sb: &Superblock, node: &Node, ino: Ino) -> Inode {
        let kind = node.kind.file_type();
        let time = node.mtime;
        let mut inode = Inode::fresh(
            sb,
            &NewInode {
                ino,
                mode: kind.to_mode() | node.mode & 0o7777,
                uid: node.uid,
                gid: node.gid,
                projid: 0,
                flags: InodeFlags::default(),
                generation: 0,
                time,
            },
        );
        match &node.kind {
            NodeKind::CharDevice(rdev) | NodeKind::BlockDevice(rdev) => {
                inode.i_block = rdev.encode();
            }
            NodeKind::Symlink(target) if target.len() < I_BLOCK_SIZE => {
                let fits = inode.set_fast_symlink(target);
                debug_assert!(fits || target.is_empty());
            }
            NodeKind::Symlink(target) => {
                inode.size = target.len() as u64;
                inode.begin_map(sb);
            }
            NodeKind::File { len, .. } => inode.size = *len,
            _ => {}
        }
        inode
    }

    /// Which inodes are directories.
    pub(super) fn directories<'t>(&'t self, tree: &'t Tree) -> impl Iterator<Item = Ino> + 't {
        let is_dir = |p: &&Placed| tree.node(p.id).kind == NodeKind::Directory;
        self.placed.iter().filter(is_dir).map(|p| p.ino)
    }

    /// Writes inodes, and blocks of directories, maps, links and attributes. `table` says where an inode table begins; `blocks` has
    /// blocks of the tables that hold other inodes.
    pub(super) fn write(
        &self,
        sb: &Superblock,
        tree: &Tree,
        made_at: Timestamp,
        tables: &mut Tables<'_>,
        out: &mut Out<'_>,
    ) -> Result<(), Error> {
        let bits = sb.geometry().block_bits();
        for placed in &self.placed {
            let node = tree.node(placed.id);
            let mut inode = self.inode(sb, node, placed.ino);
            inode.ctime = made_at;
            inode.crtime = inode.crtime.map(|_| made_at);
            let mut data = Vec::new();
            match &node.kind {
                NodeKind::Directory => {
                    let names = self.names(tree, placed.id);
                    let is_dir = |name: &&Name<'_>| name.2 == FileType::Directory;
                    let links = 2 + names.iter().filter(is_dir).count();
                    inode.links = match u16::try_from(links) {
                        Ok(few) if u32::from(few) <= MOST_LINKS => few,
                        _ if Has(sb.features()).ro(RoCompat::DIR_NLINK) => 1,
                        _ => {
                            let why = format!(
                                "a directory of {links} directories needs the feature dir_nlink"
                            );
                            return Err(Error::Invalid(why));
                        }
                    };
                    let least = self.least_blocks(sb, placed.ino);
                    data = names::fill(sb, &mut inode, placed.parent, names, least)?;
                    inode.size = (data.len() as u64) << bits;
                }
                _ => inode.links = self.numbers[placed.id.index()].1 as u16,
            }
            if let NodeKind::Symlink(target) = &node.kind
                && !placed.extents.is_empty()
            {
                let mut raw = vec![0; 1 << bits];
                raw[..target.len()].copy_from_slice(target);
                data.push(raw);
            }
            let mut upper = placed.upper.iter().copied();
            let mut take = || Ok(upper.next().unwrap_or(0));
            if !placed.extents.is_empty() {
                let extents = placed.extents.to_vec();
                for (block, raw) in map::make(sb, &mut inode, extents, &mut take)? {
                    out.put(block << bits, &raw)?;
                }
            }
            let places = placed
                .extents
                .iter()
                .flat_map(|e| (0..u64::from(e.len)).map(|n| e.start.get() + n));
            for (block, raw) in places.zip(&data) {
                out.put(block << bits, raw)?;
            }
            let stored = stored(node)?;
            let held = self.values.of(placed.ino);
            let split = Attributes::of(sb, &inode, &stored, &held)?;
            if split.needs_block() {
                let block = FsBlock::new(placed.attributes);
                let mut raw = vec![0; 1 << bits];
                xattr::write_block(sb, block, &split.outside, 1, &mut raw)
                    .map_err(|e| Error::Invalid(format!("extended attributes: {e}")))?;
                out.put(placed.attributes << bits, &raw)?;
                inode.file_acl = block;
            }
            inode.blocks = self.blocks_of(placed) << (bits - 9);
            tables.put(sb, &inode, &split.inside, out)?;
        }
        self.values.write(sb, made_at, tables, out)
    }

    /// Blocks that count for a node: whole clusters of its data, of its map, and of its attributes with their values.
    pub(super) fn blocks_of(&self, placed: &Placed) -> u64 {
        let whole = |len: u64| len.next_multiple_of(self.ratio);
        let data: u64 = runs(&placed.extents).map(whole).sum();
        let others = placed.upper.len() as u64 + u64::from(placed.attributes != 0);
        data + others * self.ratio + self.values.blocks_of(placed.ino)
    }
}

/// The lengths of runs of file blocks that have data: pieces of one run follow each other.
fn runs(extents: &[Extent]) -> impl Iterator<Item = u64> {
    let follow = |a: &Extent, b: &Extent| a.end() == b.block.get();
    extents
        .chunk_by(follow)
        .map(|run| run.iter().map(|e| u64::from(e.len)).sum())
}

/// Blocks of inode tables as they are filled.
pub(super) struct Tables<'t> {
    /// The first block of each group's table.
    firsts: &'t dyn Fn(u32) -> u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl<'t> Tables<'t> {
    pub(super) fn new(firsts: &'t dyn Fn(u32) -> u64) -> Tables<'t> {
        Tables {
            firsts,
            blocks: BTreeMap::new(),
        }
    }

    /// Adds an inode. Those with high numbers come in order.
    pub(super) fn put(
        &mut self,
        sb: &Superblock,
        inode: &Inode,
        attributes: &[XattrEntry<'_>],
        out: &mut Out<'_>,
    ) -> Result<(), Error> {
        let place = sb.inode_place(inode.ino)?;
        let block = (self.firsts)(place.group.get()) + u64::from(place.table_block);
        let size = sb.block_size() as usize;
        let raw = self.blocks.entry(block).or_insert_with(|| vec![0; size]);
        let raw = &mut raw[place.offset as usize..];
        let size = sb.geometry().inode_size() as usize;
        inode.write_new(sb, raw)?;
        if !attributes.is_empty() {
            xattr::write_inode(inode, attributes, &mut raw[..size])
                .map_err(|e| Error::Invalid(format!("extended attributes: {e}")))?;
            diorite_format::inode::seal(sb, inode.ino, &mut raw[..size]);
        }
        if self.blocks.len() > OPEN_TABLES {
            self.end(sb, out, 1)?;
        }
        Ok(())
    }

    /// Writes all blocks but the last `keep`.
    pub(super) fn end(
        &mut self,
        sb: &Superblock,
        out: &mut Out<'_>,
        keep: usize,
    ) -> Result<(), Error> {
        while self.blocks.len() > keep {
            if let Some((block, raw)) = self.blocks.pop_first() {
                out.put(block << sb.geometry().block_bits(), &raw)?;
            }
        }
        Ok(())
    }
}
