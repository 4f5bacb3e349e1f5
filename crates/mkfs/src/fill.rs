//! What a tree of files becomes in a new file system: inodes, directories, attributes, and places for the data.
//!
//! Input: a [`Tree`], and the [`Space`] that the volume's own metadata left. Output: a [`Filling`], which writes everything but the data.
//! Invariants: the order of the names decides every number and every place, so the same tree gives the same bytes; blocks are used one
//! after the other, up to the last. Limits: those of attributes are in `attributes`.

mod values;

use crate::attributes::{Attributes, stored};
use crate::error::Error;
use crate::map;
use crate::names::{self, Name, Names};
use crate::plan::{Has, Plan};
use crate::space::Space;
use crate::tables::Tables;
use crate::tree::{Node, NodeId, NodeKind, Tree};
use crate::write::Out;
use diorite_format::extent::Extent;
use diorite_format::features::RoCompat;
use diorite_format::inode::{FileType, I_BLOCK_SIZE, Inode, InodeFlags, NewInode, Timestamp};
use diorite_format::xattr;
use diorite_format::{FileBlock, FsBlock, Ino, Superblock};
use std::collections::{BTreeMap, VecDeque};
use std::iter::once;
use std::ops::Range;
use values::Values;

/// Names of one inode, at most.
const MOST_LINKS: u32 = 65_000;
/// The name of the directory that e2fsck puts lost files into.
pub(crate) const LOST_FOUND: &[u8] = b"lost+found";
/// Blocks of a file that follow each other on the volume, in few bytes.
#[derive(Clone, Copy, Debug)]
struct Run {
    block: u32,
    /// Two parts: there are 48 bits in an extent.
    start: (u32, u16),
    /// 1 to 32,768.
    len: u16,
}

impl Run {
    fn of(extent: &Extent) -> Result<Run, Error> {
        let start = extent.start.get();
        let run = || {
            Some(Run {
                block: u32::try_from(extent.block.get()).ok()?,
                start: (start as u32, u16::try_from(start >> 32).ok()?),
                len: u16::try_from(extent.len).ok()?,
            })
        };
        run().ok_or_else(|| Error::Invalid("a file has data behind its 2^32nd block".to_owned()))
    }

    fn extent(self) -> Extent {
        Extent {
            block: FileBlock::new(self.block.into()),
            len: self.len.into(),
            start: FsBlock::new(u64::from(self.start.1) << 32 | u64::from(self.start.0)),
            unwritten: false,
        }
    }
}

/// Extents of a node, and the blocks of its map above them.
type Places = (Vec<Extent>, Vec<u64>);

/// Blocks beside the data of a node.
#[derive(Debug, Default)]
struct Beside {
    /// Of its map.
    upper: Box<[u64]>,
    /// Of its attributes; 0 = none.
    attributes: u64,
}

/// A node with its number and its places.
pub(crate) struct Placed<'f> {
    pub(crate) id: NodeId,
    pub(crate) ino: Ino,
    runs: &'f [Run],
}

impl Placed<'_> {
    pub(crate) fn extents(&self) -> impl ExactSizeIterator<Item = Extent> {
        self.runs.iter().map(|run| run.extent())
    }

    /// The lengths of runs of file blocks that have data: pieces of one run follow each other.
    fn lengths(&self) -> impl Iterator<Item = u64> {
        let follow = |a: &Run, b: &Run| a.block.checked_add(a.len.into()) == Some(b.block);
        let runs = self.runs.chunk_by(follow);
        runs.map(|run| run.iter().map(|part| u64::from(part.len)).sum())
    }
}

/// See the module. What is kept for each node is as small as it can be: there may be millions.
#[derive(Debug)]
pub(crate) struct Filling {
    /// Nodes in the order of their inodes.
    order: Vec<NodeId>,
    /// Where the runs of each of them end in `runs`.
    ends: Vec<u32>,
    runs: Vec<Run>,
    /// Of those nodes that have any.
    beside: BTreeMap<Ino, Beside>,
    /// Directories, in the order of their inodes, and their parents.
    parents: Vec<(Ino, Ino)>,
    /// By node: its inode; 0 = none.
    inos: Vec<u32>,
    /// By node: the number of its names.
    links: Vec<u16>,
    lost_found_blocks: u32,
    /// Blocks of a cluster.
    ratio: u64,
    /// Values of attributes in inodes of their own.
    pub(crate) values: Values,
    /// Clusters that it takes.
    pub(crate) clusters: u64,
    pub(crate) last_ino: u32,
}

pub(crate) struct Placing<'p, 's, 't> {
    pub(crate) sb: &'s Superblock,
    space: &'p mut Space<'s>,
    pub(crate) tree: &'t Tree,
    pub(crate) filling: Filling,
    missing_blocks: u64,
}

/// Gives numbers and places to everything that has a name in the tree. `first` is the first inode that is free.
pub(crate) fn place<'s>(
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
            order: Vec::new(),
            ends: Vec::new(),
            runs: Vec::new(),
            beside: BTreeMap::new(),
            parents: Vec::new(),
            inos: vec![0; tree.len()],
            links: vec![0; tree.len()],
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
                let is_dir = self.tree.is_dir(id);
                if self.filling.inos[id.index()] != 0 {
                    self.check_links(name, id, is_dir)?;
                    self.filling.links[id.index()] += 1;
                    continue;
                }
                self.filling.links[id.index()] = 1;
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
        let inos = &self.filling.inos;
        self.filling.order.sort_by_key(|id| inos[id.index()]);
        self.filling.parents.sort();
        Ok(())
    }

    /// Whether a node may have one more name.
    fn check_links(&self, name: &[u8], id: NodeId, is_dir: bool) -> Result<(), Error> {
        let links = u32::from(self.filling.links[id.index()]);
        let name = String::from_utf8_lossy(name);
        if is_dir {
            return Err(Error::Invalid(format!(
                "the directory {name} has two names"
            )));
        }
        match links == MOST_LINKS {
            true => Err(Error::Invalid(format!(
                "{name} is one of more than {MOST_LINKS} names of a file"
            ))),
            false => Ok(()),
        }
    }

    fn add(&mut self, id: NodeId, ino: Ino, parent: Ino) {
        self.filling.inos[id.index()] = ino.get();
        self.filling.order.push(id);
        if self.tree.is_dir(id) {
            self.filling.parents.push((ino, parent));
        }
    }

    fn place_all(&mut self) -> Result<(), Error> {
        self.filling.ends.reserve_exact(self.filling.order.len());
        let mut apart = self.place_apart()?;
        for n in 0..self.filling.order.len() {
            let id = self.filling.order[n];
            let ino = self.filling.ino(id);
            let node = self.tree.node(id);
            let (extents, upper) = match apart.remove(&id) {
                Some(placed) => placed,
                None => self.place_data(id, None)?,
            };
            self.keep(&extents)?;
            let inode = self.filling.inode(self.sb, &node, ino);
            let attributes = match self.attributes((id, ino), &node, &inode)? {
                true => self.one(None),
                false => 0,
            };
            if !upper.is_empty() || attributes != 0 {
                let upper = upper.into();
                self.filling
                    .beside
                    .insert(ino, Beside { upper, attributes });
            }
        }
        Ok(())
    }

    /// Gives places to the files that have a goal: extents, and blocks of their maps.
    fn place_apart(&mut self) -> Result<BTreeMap<NodeId, Places>, Error> {
        let tree = self.tree;
        // A node may have lost its name.
        let named = |filling: &Filling, id| filling.ino(id).get() != 0;
        let mut placed = BTreeMap::new();
        for (id, goal) in tree.goals() {
            if named(&self.filling, id) {
                placed.insert(id, self.place_data(id, Some(goal))?);
            }
        }
        Ok(placed)
    }

    fn place_data(&mut self, id: NodeId, goal: Option<u64>) -> Result<Places, Error> {
        let (node, ino) = (self.tree.node(id), self.filling.ino(id));
        let ranges = self.ranges(id, &node, ino)?;
        let extents = self.extents(&ranges, goal);
        let mut inode = self.filling.inode(self.sb, &node, ino);
        let upper = self.upper(&mut inode, &extents, goal)?;
        Ok((extents, upper))
    }

    /// Blocks of the map above these extents.
    pub(crate) fn upper(
        &mut self,
        inode: &mut Inode,
        extents: &[Extent],
        goal: Option<u64>,
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
        // Before the data, where there is room, so that files with a goal follow each other without a gap.
        let before = upper.len() as u64 * u64::from(self.sb.geometry().cluster_ratio());
        let goal = goal.map(|at| at.saturating_sub(before));
        for block in &mut upper {
            *block = self.one(goal);
        }
        Ok(upper)
    }

    /// The file blocks of a node that have data.
    fn ranges(&self, id: NodeId, node: &Node, ino: Ino) -> Result<Vec<Range<u64>>, Error> {
        let size = u64::from(self.sb.block_size());
        Ok(match &node.kind {
            NodeKind::Directory => {
                let listing = self.tree.listing(id);
                let names = Names {
                    count: listing.len(),
                    get: &|n| self.filling.name(self.tree, listing.get(n)),
                };
                let least = self.filling.least_blocks(self.sb, ino);
                once(0..u64::from(names::blocks(self.sb, &names, least)?)).collect()
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

    /// Takes so many blocks: the next ones, or those from a goal on.
    fn take(&mut self, blocks: u64, goal: Option<u64>) -> Option<Vec<Range<u64>>> {
        match goal {
            None => self.space.next_free(blocks),
            Some(at) => self.space.for_file_at(at, blocks, "the files").ok(),
        }
    }

    /// Gives places to data.
    pub(crate) fn extents(&mut self, ranges: &[Range<u64>], goal: Option<u64>) -> Vec<Extent> {
        let mut extents = Vec::new();
        for range in ranges {
            let blocks = range.end - range.start;
            let ratio = u64::from(self.sb.geometry().cluster_ratio());
            let Some(runs) = self.take(blocks, goal) else {
                self.missing_blocks = self
                    .missing_blocks
                    .saturating_add(blocks.next_multiple_of(ratio));
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

    /// Keeps the extents of the next node.
    fn keep(&mut self, extents: &[Extent]) -> Result<(), Error> {
        let runs = &mut self.filling.runs;
        for extent in extents {
            runs.push(Run::of(extent)?);
        }
        let end = u32::try_from(runs.len());
        let end = end.map_err(|_| Error::Invalid("the files have too many extents".to_owned()))?;
        self.filling.ends.push(end);
        Ok(())
    }

    fn one(&mut self, goal: Option<u64>) -> u64 {
        match self.take(1, goal) {
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
    fn name<'t>(&self, tree: &Tree, (name, id): (&'t [u8], NodeId)) -> Name<'t> {
        (name, self.ino(id), tree.file_type(id))
    }

    fn ino(&self, id: NodeId) -> Ino {
        Ino::new(self.inos[id.index()])
    }

    /// All nodes in the order of their inodes.
    pub(crate) fn placed(&self) -> impl Iterator<Item = Placed<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ranges = starts
            .zip(&self.ends)
            .map(|(start, end)| start as usize..*end as usize);
        self.order.iter().zip(ranges).map(|(id, range)| Placed {
            id: *id,
            ino: self.ino(*id),
            runs: &self.runs[range],
        })
    }

    fn parent(&self, dir: Ino) -> Ino {
        let found = self.parents.binary_search_by_key(&dir, |(ino, _)| *ino);
        self.parents[found.expect("every directory was added with its parent")].1
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
    pub(crate) fn directories(&self) -> impl Iterator<Item = Ino> {
        self.parents.iter().map(|(ino, _)| *ino)
    }

    /// Writes inodes, and blocks of directories, maps, links and attributes. `table` says where an inode table begins; `blocks` has
    /// blocks of the tables that hold other inodes.
    pub(crate) fn write(
        &self,
        sb: &Superblock,
        tree: &Tree,
        made_at: Timestamp,
        tables: &mut Tables<'_>,
        out: &mut Out<'_>,
    ) -> Result<(), Error> {
        let bits = sb.geometry().block_bits();
        let none = Beside::default();
        for placed in self.placed() {
            let node = tree.node(placed.id);
            let beside = self.beside.get(&placed.ino).unwrap_or(&none);
            let mut inode = self.inode(sb, &node, placed.ino);
            inode.ctime = made_at;
            inode.crtime = inode.crtime.map(|_| made_at);
            let mut places = placed
                .extents()
                .flat_map(|e| (0..u64::from(e.len)).map(move |n| e.start.get() + n));
            match &node.kind {
                NodeKind::Directory => {
                    let listing = tree.listing(placed.id);
                    let get = |n| self.name(tree, listing.get(n));
                    let is_dir = |n: &usize| get(*n).2 == FileType::Directory;
                    inode.links = links_of(sb, (0..listing.len()).filter(is_dir).count())?;
                    let names = Names {
                        count: listing.len(),
                        get: &get,
                    };
                    let mut put = |raw: &[u8]| match places.next() {
                        Some(block) => out.put(block << bits, raw),
                        None => Err(Error::Invalid("a directory has grown".to_owned())),
                    };
                    let (parent, least) =
                        (self.parent(placed.ino), self.least_blocks(sb, placed.ino));
                    inode.size =
                        names::fill(sb, &mut inode, parent, &names, least, &mut put)? << bits;
                }
                NodeKind::Symlink(target) => {
                    inode.links = self.links[placed.id.index()];
                    if let Some(block) = places.next() {
                        let mut raw = vec![0; 1 << bits];
                        raw[..target.len()].copy_from_slice(target);
                        out.put(block << bits, &raw)?;
                    }
                }
                _ => inode.links = self.links[placed.id.index()],
            }
            let mut upper = beside.upper.iter().copied();
            let mut take = || Ok(upper.next().unwrap_or(0));
            if placed.extents().len() > 0 {
                let extents = placed.extents().collect();
                for (block, raw) in map::make(sb, &mut inode, extents, &mut take)? {
                    out.put(block << bits, &raw)?;
                }
            }
            let stored = stored(&node)?;
            let held = self.values.of(placed.ino);
            let split = Attributes::of(sb, &inode, &stored, &held)?;
            if split.needs_block() {
                let block = FsBlock::new(beside.attributes);
                let mut raw = vec![0; 1 << bits];
                xattr::write_block(sb, block, &split.outside, 1, &mut raw)
                    .map_err(|e| Error::Invalid(format!("extended attributes: {e}")))?;
                out.put(beside.attributes << bits, &raw)?;
                inode.file_acl = block;
            }
            inode.blocks = self.blocks_of(&placed) << (bits - 9);
            tables.put(sb, &inode, &split.inside, out)?;
        }
        self.values.write(sb, made_at, tables, out)
    }

    /// Blocks that count for a node: whole clusters of its data, of its map, and of its attributes with their values.
    pub(crate) fn blocks_of(&self, placed: &Placed<'_>) -> u64 {
        let whole = |len: u64| len.next_multiple_of(self.ratio);
        let data: u64 = placed.lengths().map(whole).sum();
        let beside = self.beside.get(&placed.ino);
        let others = beside.map_or(0, |b| b.upper.len() as u64 + u64::from(b.attributes != 0));
        data + others * self.ratio + self.values.blocks_of(placed.ino)
    }
}

/// The link count of a directory with so many directories in it.
fn links_of(sb: &Superblock, directories: usize) -> Result<u16, Error> {
    let links = 2 + directories;
    match u16::try_from(links) {
        Ok(few) if u32::from(few) <= MOST_LINKS => Ok(few),
        _ if Has(sb.features()).ro(RoCompat::DIR_NLINK) => Ok(1),
        _ => Err(Error::Invalid(format!(
            "a directory of {links} directories needs the feature dir_nlink"
        ))),
    }
}
