//! A new file system, from options and a tree to its bytes on the device.
//!
//! Input: a device, [`MkfsOptions`], a [`Tree`], [`Contents`]. Output: a file system, durable; or what it would be. Invariants: see the
//! crate. Limits: blocks.

mod rescue;

pub use rescue::mkfs_super_only;

use crate::attributes;
use crate::copy::{self, Progress};
use crate::error::Error;
use crate::files::{self, Files};
use crate::fill::{self, Filling};
use crate::options::MkfsOptions;
use crate::plan::{Has, Plan};
use crate::space::Space;
use crate::tables::Tables;
use crate::tree::{Contents, NoContents, Node, NodeId, NodeKind, Tree};
use crate::write::{Out, no_memory};
use diorite_block::device::Stored;
use diorite_block::{Blocking, Device, Shared};
use diorite_format::bitmap::{self, fresh_inodes};
use diorite_format::features::{Compat, Features, Incompat, RoCompat};
use diorite_format::group::GroupFlags;
use diorite_format::{FsBlock, GroupDesc, GroupNo, Superblock, Timestamp, orphan};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes at both ends of a device where other formats have their signatures.
pub(crate) const SIGNATURES: u64 = 64 << 10;

/// A file system that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks of the file system, and those that are free.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Blocks that only root may use.
    pub reserved_blocks: u64,
    /// Free blocks that ordinary users may have, as df(1) shows them.
    pub available_blocks: u64,
    /// Number of inodes, and of those that are free.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Number of groups.
    pub groups: u32,
    /// Blocks of the journal; 0 = none.
    pub journal_blocks: u32,
    /// Blocks with copies of the superblock.
    pub backups: Vec<u64>,
    /// Feature bits.
    pub features: Features,
    /// Blocks that are bad and have copies of the superblock or of descriptors, or are kept for those.
    pub bad_copies: Vec<u64>,
}

/// Bitmaps that are written, by their blocks. Most are like the one before, and share its memory.
type Bitmaps = BTreeMap<u64, Rc<Vec<u8>>>;

/// A file system that is planned, with places for everything.
pub(crate) struct Layout {
    pub(crate) plan: Plan,
    pub(crate) sb: Superblock,
    pub(crate) descs: Vec<GroupDesc>,
    files: Files,
    filling: Filling,
    bitmaps: Bitmaps,
    bad_copies: Vec<u64>,
}

/// Makes an empty file system on `device`: see the module. Blocks.
///
/// ```
/// use diorite_block::{Device, MemDevice};
/// use diorite_mkfs::{MkfsOptions, mkfs};
/// use std::sync::Arc;
///
/// let device: Arc<dyn Device> = Arc::new(MemDevice::new(16 << 20));
/// let options = MkfsOptions::new([1; 16], [2; 16], 1_700_000_000).block_size(1024).reserved_percent(0.0);
/// let made = mkfs(&device, &options)?;
/// assert_eq!((made.blocks, made.block_size), (16 << 10, 1024));
/// assert!(made.available_blocks > 13_000);
/// # Ok::<(), diorite_mkfs::Error>(())
/// ```
///
/// # Errors
/// `Invalid`: options that do not fit each other, or the size; `NotSupported`: a feature that cannot be made; `ReadOnly`; errors of the
/// device, which then holds no file system.
pub fn mkfs(device: &Arc<dyn Device>, options: &MkfsOptions) -> Result<Made, Error> {
    let tree = empty_tree(options);
    mkfs_filled(device, options, tree, &NoContents, &|_| true)
}

/// As [`mkfs`], filled with the files of a tree, whose data is read by several threads. `lost+found` is added if it is not there. Blocks.
///
/// # Errors
/// As [`mkfs`]; `TooSmall`; `Source`: contents could not be read; `Invalid`: a tree that no file system can hold, or `progress` ended it.
pub fn mkfs_filled(
    device: &Arc<dyn Device>,
    options: &MkfsOptions,
    mut tree: Tree,
    contents: &dyn Contents,
    progress: Progress<'_>,
) -> Result<Made, Error> {
    complete(&mut tree, options)?;
    let mut layout = Layout::new(options, device.geometry().size, &tree)?;
    check_writable(device, layout.sb.block_size())?;
    let blocking = Blocking::new(device.clone());
    let mut out = Out::new(&blocking);
    layout.clear(&mut out, options, device)?;
    copy::copy(
        &blocking,
        &layout.sb,
        &layout.filling,
        &tree,
        contents,
        progress,
    )?;
    layout.write(&mut out, &tree)
}

/// What [`mkfs`] would make on a device of `bytes` bytes, without one.
///
/// # Errors
/// As [`mkfs`], but those of a device.
pub fn mkfs_plan(bytes: u64, options: &MkfsOptions) -> Result<Made, Error> {
    let mut tree = empty_tree(options);
    complete(&mut tree, options)?;
    Layout::new(options, bytes, &tree).map(|layout| layout.made())
}

/// As [`mkfs_plan`], with the runs of free blocks behind the last file, in order: where [`Tree::set_goal`] has a choice. With clusters they
/// are whole ones.
///
/// # Errors
/// As [`mkfs_plan`].
pub fn mkfs_free_runs(bytes: u64, options: &MkfsOptions) -> Result<(Made, Vec<Range<u64>>), Error> {
    let mut tree = empty_tree(options);
    complete(&mut tree, options)?;
    let mut runs = Vec::new();
    let layout = Layout::looked_at(options, bytes, &tree, &mut |space| runs = space.free_runs())?;
    Ok((layout.made(), runs))
}

pub(crate) fn empty_tree(options: &MkfsOptions) -> Tree {
    Tree::new(Node {
        kind: NodeKind::Directory,
        mode: options.root_mode,
        uid: options.root_owner.0,
        gid: options.root_owner.1,
        mtime: made_at(options),
        attributes: Vec::new(),
    })
}

fn made_at(options: &MkfsOptions) -> Timestamp {
    Timestamp {
        secs: options.time,
        nanos: 0,
    }
}

/// Adds what every file system has.
pub(crate) fn complete(tree: &mut Tree, options: &MkfsOptions) -> Result<(), Error> {
    if let Some(there) = tree.child(NodeId::ROOT, fill::LOST_FOUND) {
        if !tree.is_dir(there) {
            return Err(Error::Invalid("lost+found is no directory".to_owned()));
        }
    } else {
        let id = tree.add(Node {
            kind: NodeKind::Directory,
            mode: 0o700,
            uid: 0,
            gid: 0,
            mtime: made_at(options),
            attributes: Vec::new(),
        })?;
        tree.link(NodeId::ROOT, fill::LOST_FOUND, id)?;
    }
    tree.order();
    Ok(())
}

/// Can blocks of so many bytes be written to the device?
pub(crate) fn check_writable(device: &Arc<dyn Device>, block_size: u32) -> Result<(), Error> {
    let geometry = device.geometry();
    if geometry.read_only {
        return Err(Error::ReadOnly(format!("{} is read-only", device.name())));
    }
    if geometry.logical > block_size {
        return Err(Error::Invalid(format!(
            "blocks of {block_size} bytes are smaller than those of the device, which have {}",
            geometry.logical
        )));
    }
    Ok(())
}

/// Whether a range of the device is known to read as zeros.
pub(crate) fn is_known_empty(device: &Arc<dyn Device>, range: &Range<u64>) -> Result<bool, Error> {
    let runs = device.stored(range.clone(), 1)?;
    let all = range.end - range.start;
    Ok(runs
        .first()
        .is_some_and(|run| run.stored != Stored::Data && run.len == all))
}

impl Layout {
    pub(crate) fn new(options: &MkfsOptions, bytes: u64, tree: &Tree) -> Result<Layout, Error> {
        Layout::looked_at(options, bytes, tree, &mut |_| ())
    }

    /// As [`Layout::new`]; `look` sees which space is free.
    fn looked_at(
        options: &MkfsOptions,
        bytes: u64,
        tree: &Tree,
        look: &mut dyn FnMut(&Space<'_>),
    ) -> Result<Layout, Error> {
        let mut plan = Plan::new(options, bytes, tree.len())?;
        let mut sb = Superblock::parse(&plan.sb.encode())?;
        let held = attributes::count_held(&sb, tree);
        if held > 0 {
            plan = Plan::new(options, bytes, tree.len() + held)?;
            sb = Superblock::parse(&plan.sb.encode())?;
        }
        let mut space = Space::new(&sb);
        files::keep_off(&sb, &mut space, &options.bad_blocks)?;
        let flexible = Has(&plan.sb.features).incompat(Incompat::FLEX_BG);
        let per_flex = if flexible { options.groups_per_flex } else { 1 };
        let stride = if flexible { 0 } else { options.raid_stride };
        space.stagger(stride);
        let packed = flexible && options.packed_meta_blocks;
        let mut descs = space.place_groups(per_flex, packed)?;
        let files = files::make(&mut plan, &sb, &mut space, options)?;
        let first = files.last_own + 1;
        let filling = fill::place(&plan, &sb, &mut space, tree, first)?;
        let files = files.with_usage(&mut plan, &sb, &mut space, &filling, tree)?;
        announce(&mut plan, &files, &filling, tree)?;
        let bitmaps = count(&mut plan, &sb, &space, &files, &filling, &mut descs)?;
        for ino in filling.directories() {
            let place = sb.inode_place(ino)?;
            descs[place.group.get() as usize].used_dirs += 1;
        }
        look(&space);
        let sb = Superblock::parse(&plan.sb.encode())?;
        Ok(Layout {
            plan,
            descs,
            files,
            filling,
            bitmaps,
            bad_copies: files::in_copies(&sb, &options.bad_blocks),
            sb,
        })
    }

    /// Bytes that are not the volume's own metadata: what df(1) calls used.
    pub(crate) fn bytes_of_files(&self) -> u64 {
        let clusters = self.files.of_files + self.filling.clusters;
        clusters * u64::from(self.sb.geometry().cluster_size())
    }

    fn bytes(&self, blocks: Range<u64>) -> Range<u64> {
        let bits = self.sb.geometry().block_bits();
        blocks.start << bits..blocks.end << bits
    }

    /// Removes what was on the device: from here on it holds no file system.
    fn clear(
        &mut self,
        out: &mut Out<'_>,
        options: &MkfsOptions,
        device: &Arc<dyn Device>,
    ) -> Result<(), Error> {
        let all = self.bytes(0..self.sb.geometry().blocks_count());
        let was_empty = options.is_new || is_known_empty(device, &all)?;
        if !was_empty {
            out.end_superblock(&all)?;
        }
        let mut is_empty = was_empty;
        if options.discard && !was_empty {
            out.discard(all.clone());
            is_empty = is_known_empty(device, &all)?;
        }
        // Without sums of descriptors nothing says that a table is not zeroed.
        let lazy = self.sb.features().descriptor_sums();
        let zeroed = options.zero_tables || is_empty || !lazy;
        for desc in &mut self.descs {
            desc.flags = GroupFlags::of_new(
                desc.flags.inode_uninit(),
                desc.flags.block_uninit(),
                zeroed && lazy,
            );
        }
        if was_empty {
            return Ok(());
        }
        if is_empty {
            // What was there must not come back with a part of what is written now.
            return out.flush();
        }
        out.zero(0..SIGNATURES.min(all.end))?;
        out.zero(all.end.saturating_sub(SIGNATURES)..all.end)?;
        for group in 0..self.sb.group_count() {
            let number = GroupNo::new(group);
            let start = self.sb.group_first_block(number).get();
            let head = u64::from(self.sb.group_head_blocks(number));
            out.zero(self.bytes(start..start + head))?;
        }
        for desc in self.descs.iter().filter(|_| zeroed) {
            let table = desc.inode_table.get();
            let blocks = u64::from(self.sb.geometry().inode_table_blocks());
            out.zero(self.bytes(table..table + blocks))?;
        }
        for run in &self.files.zeros {
            out.zero(self.bytes(run.clone()))?;
        }
        out.flush()
    }

    fn write(mut self, out: &mut Out<'_>, tree: &Tree) -> Result<Made, Error> {
        self.write_descriptors(out)?;
        let size = self.sb.block_size() as usize;
        if let Some(kept) = &self.files.kept {
            for block in kept.blocks.clone() {
                let pos = self.bytes(block..block).start;
                out.put_with(pos, size, |raw| kept.fill(&self.sb, block, raw))?;
            }
        }
        if let Some((inode, runs)) = &self.files.orphans {
            for block in runs.iter().cloned().flatten() {
                let pos = self.bytes(block..block).start;
                let at = FsBlock::new(block);
                out.put_with(pos, size, |raw| {
                    Ok(orphan::init_block(&self.sb, inode, at, raw)?)
                })?;
            }
        }
        self.write_inodes(out, tree)?;
        for (block, bytes) in &self.files.blocks {
            out.put(self.bytes(*block..*block).start, bytes)?;
        }
        for (block, bytes) in &self.bitmaps {
            out.put(self.bytes(*block..*block).start, bytes)?;
        }
        self.write_superblock(out)?;
        Ok(self.made())
    }

    /// Writes the superblock, when all else is durable.
    pub(crate) fn write_superblock(&mut self, out: &mut Out<'_>) -> Result<(), Error> {
        out.flush()?;
        self.plan.sb.kbytes_written = out.written().div_ceil(1024) + 1;
        let block = self.sb.super_block().get();
        let mut raw = vec![0; self.sb.block_size() as usize];
        let at = 1024 - self.bytes(block..block).start as usize;
        raw[at..at + 1024].copy_from_slice(&self.plan.sb.encode());
        out.put(self.bytes(block..block).start, &raw)?;
        out.flush()
    }

    /// Groups with copies of the superblock.
    pub(crate) fn backup_groups(&self) -> impl Iterator<Item = GroupNo> {
        self.sb.groups_with_copies()
    }

    /// Writes the descriptors and their copies, and those of the superblock, which lie before them.
    pub(crate) fn write_descriptors(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let (sb, size) = (&self.sb, self.sb.block_size() as usize);
        let count = sb.geometry().gdt_blocks();
        let len = count as usize * size;
        let mut table = Shared::try_zeroed(len).ok_or_else(|| no_memory(len))?;
        let bytes = table.bytes_mut().expect("nothing of it is lent yet");
        for desc in &self.descs {
            let (block, offset) = sb.desc_place(desc.group)?;
            desc.write_new(sb, &mut bytes[block as usize * size + offset as usize..])?;
        }
        let scattered = Has(sb.features()).incompat(Incompat::META_BG);
        let behind = |block: FsBlock| sb.byte_of(FsBlock::new(block.get() + 1)).get();
        for group in self.backup_groups() {
            let first = sb.group_first_block(group);
            let copy = self.plan.sb.encode_copy(group.get());
            out.put_with(sb.byte_of(first).get(), size, |raw| {
                raw[..copy.len()].copy_from_slice(&copy);
                raw[copy.len()..].fill(0);
                Ok(())
            })?;
            if !scattered {
                out.put_shared(behind(first), &table, 0..len)?;
            }
        }
        if !scattered {
            return out.put_shared(behind(sb.super_block()), &table, 0..len);
        }
        for (n, start) in (0..count).zip((0..len).step_by(size)) {
            let copies = sb.gdt_copies(n);
            for block in [sb.gdt_location(n)?].into_iter().chain(copies) {
                out.put_shared(sb.byte_of(block).get(), &table, start..start + size)?;
            }
        }
        Ok(())
    }

    /// Writes inodes, and what belongs to them but the data of files.
    fn write_inodes(&self, out: &mut Out<'_>, tree: &Tree) -> Result<(), Error> {
        let firsts = |group: u32| self.descs[group as usize].inode_table.get();
        let mut tables = Tables::new(&firsts);
        for inode in &self.files.inodes {
            tables.put(&self.sb, inode, &[], out)?;
        }
        let made_at = self.plan.made_at();
        self.filling
            .write(&self.sb, tree, made_at, &mut tables, out)?;
        tables.end(&self.sb, out, 0)
    }

    pub(crate) fn made(&self) -> Made {
        let backups = self.backup_groups();
        Made {
            block_size: self.sb.block_size(),
            blocks: self.plan.sb.blocks_count,
            free_blocks: self.plan.sb.free_blocks,
            reserved_blocks: self.plan.sb.reserved_blocks,
            available_blocks: self
                .plan
                .sb
                .free_blocks
                .saturating_sub(self.plan.sb.reserved_blocks + self.sb.kept_for_maps()),
            inodes: self.sb.geometry().inodes_count(),
            free_inodes: self.plan.sb.free_inodes,
            groups: self.sb.group_count(),
            journal_blocks: self.plan.journal_blocks,
            backups: backups
                .map(|g| self.sb.group_first_block(g).get())
                .collect(),
            features: self.plan.sb.features,
            bad_copies: self.bad_copies.clone(),
        }
    }
}

/// Sets the features without which what is in the file system may not be there.
fn announce(plan: &mut Plan, files: &Files, filling: &Filling, tree: &Tree) -> Result<(), Error> {
    let mut nodes = filling.placed().map(|placed| placed.id);
    let is_large = |len: u64| len > i32::MAX as u64;
    let features = &mut plan.sb.features;
    if files.inodes.iter().any(|inode| is_large(inode.size))
        || nodes.any(|id| is_large(tree.file_len(id)))
    {
        features.ro_compat = features.ro_compat.with(RoCompat::LARGE_FILE);
    }
    let mut nodes = filling.placed().map(|placed| placed.id);
    if nodes.any(|id| tree.has_attributes(id)) {
        if plan.sb.revision == 0 {
            let why = "the files have extended attributes, and revision 0 has none";
            return Err(Error::Invalid(why.to_owned()));
        }
        features.compat = features.compat.with(Compat::EXT_ATTR);
    }
    Ok(())
}

/// Fills in what is used: of each group, and of the volume. Returns the bitmaps that have to be written.
fn count(
    plan: &mut Plan,
    sb: &Superblock,
    space: &Space<'_>,
    files: &Files,
    filling: &Filling,
    descs: &mut [GroupDesc],
) -> Result<Bitmaps, Error> {
    let (mut bitmaps, mut before) = (Bitmaps::new(), Rc::default());
    let per_group = sb.geometry().inodes_per_group();
    let last_ino = filling.last_ino;
    let (mut free_clusters, mut free_inodes) = (0, 0);
    for desc in descs.iter_mut() {
        let group = desc.group.get();
        let used = last_ino
            .saturating_sub(group.saturating_mul(per_group))
            .min(per_group);
        for (block, bits) in count_group(sb, space, desc, used)? {
            if bits != *before {
                before = Rc::new(bits);
            }
            bitmaps.insert(block, before.clone());
        }
        free_clusters += u64::from(desc.free_clusters);
        free_inodes += desc.free_inodes;
    }
    let ratio = u64::from(sb.geometry().cluster_ratio());
    let all = plan.sb.blocks_count.div_ceil(ratio);
    plan.sb.free_blocks = free_clusters * ratio;
    plan.sb.free_inodes = free_inodes;
    let overhead = all
        .saturating_sub(free_clusters)
        .saturating_sub(files.of_files + filling.clusters);
    plan.sb.overhead_clusters = u32::try_from(overhead).unwrap_or(0);
    Ok(bitmaps)
}

/// Fills in what is used in a new group, of whose inodes the first `used` are. Returns those of its bitmaps that have to be written.
pub fn count_group(
    sb: &Superblock,
    space: &Space<'_>,
    desc: &mut GroupDesc,
    used: u32,
) -> Result<Vec<(u64, Vec<u8>)>, Error> {
    let per_group = sb.geometry().inodes_per_group();
    let lazy = sb.features().descriptor_sums();
    // The bitmap of the last group is written, as mke2fs does: it has bits behind the end of the volume.
    let may_be_unwritten = lazy && desc.group.get() + 1 != sb.group_count();
    let of_group = space.of_group(desc.group, !may_be_unwritten)?;
    let block_uninit = may_be_unwritten && of_group.only_own;
    let inode_uninit = lazy && used == 0;
    desc.flags = GroupFlags::of_new(inode_uninit, block_uninit, false);
    desc.free_clusters = of_group.free_clusters;
    desc.free_inodes = per_group - used;
    desc.itable_unused = if lazy { per_group - used } else { 0 };
    let mut bitmaps = Vec::new();
    if !block_uninit {
        desc.seal_block_bitmap(sb, &of_group.bitmap)?;
        bitmaps.push((desc.block_bitmap.get(), of_group.bitmap));
    }
    if !inode_uninit {
        let mut bits = vec![0; sb.block_size() as usize];
        fresh_inodes(sb, &mut bits)?;
        bitmap::set_range(&mut bits, 0, used)
            .map_err(|clash| clash.corrupt(desc.group, bitmap::BitmapKind::Inode))?;
        desc.seal_inode_bitmap(sb, &bits)?;
        bitmaps.push((desc.inode_bitmap.get(), bits));
    }
    Ok(bitmaps)
}
