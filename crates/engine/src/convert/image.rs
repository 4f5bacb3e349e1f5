//! A file system that is not open anywhere, with changes in memory.
//!
//! Input: a device with a file system that needs no recovery. Output: its superblock, descriptors, bitmaps and inodes, changed in memory;
//! [`Image::finished`] gives every block that differs. Invariants: what is read is checked before it is used; nothing is written here; a
//! block that is in use on the device is not allocated, even after it was freed here. So new contents may be written to allocated blocks
//! before the change takes effect. Limits: the changed blocks are in memory, all of them.

use super::bits::Bits;
use crate::disk::{Blocks, Descriptors, find_superblock, read_bytes, read_groups};
use crate::error::Error;
use diorite_block::{Blocking, Device};
use diorite_format::features::{Features, RoCompat};
use diorite_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, SuperblockEdit};
use diorite_format::{FsBlock, GroupDesc, GroupNo, Ino, Inode, Superblock};
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module.
#[derive(Clone)]
pub(super) struct Image {
    pub(super) blocking: Arc<Blocking>,
    pub(super) sb: Superblock,
    raw_super: [u8; SUPERBLOCK_SIZE],
    pub(super) groups: Vec<GroupDesc>,
    /// Block and inode bitmaps that were read, and those on the device.
    pub(super) block_bits: BTreeMap<u32, Bits>,
    pub(super) inode_bits: BTreeMap<u32, Bits>,
    changed: Blocks,
    /// Of larger tables: where the old file system looks for the journal's inode if it has their descriptors: a block, and where in it.
    pub(super) old_journal: Option<(FsBlock, usize)>,
}

impl Image {
    /// Blocks.
    pub(super) fn open(device: &Arc<dyn Device>) -> Result<Image, Error> {
        let blocking = Arc::new(Blocking::new(device.clone()));
        let found = find_superblock(&blocking)?;
        if let Some(note) = found.note {
            return Err(Error::Damaged(format!("{note}; run 'diorite check'")));
        }
        let raw = read_bytes(&blocking, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE)?;
        found.sb.check_device(device.geometry().size)?;
        let groups = read_groups(&blocking, &found.sb, Descriptors::Whole)?.into_vec();
        Ok(Image {
            sb: found.sb,
            raw_super: raw[..].try_into().expect("so many were read"),
            groups,
            block_bits: BTreeMap::new(),
            inode_bits: BTreeMap::new(),
            changed: Blocks::new(),
            old_journal: None,
            blocking,
        })
    }

    /// A block as it will be. Blocks.
    pub(super) fn block(&self, at: FsBlock) -> Result<Arc<[u8]>, Error> {
        if let Some(bytes) = self.changed.get(&at) {
            return Ok(bytes.clone());
        }
        if at.get() >= self.sb.geometry().blocks_count() {
            self.sb.check_block(at.get())?;
        }
        let pos = self.sb.byte_of(at).get();
        Ok(read_bytes(&self.blocking, pos, self.sb.block_size() as usize)?.into())
    }

    /// Blocks that follow each other, as they will be. Blocks.
    pub(super) fn run(&self, at: FsBlock, blocks: u32) -> Result<Vec<u8>, Error> {
        let size = self.sb.block_size() as usize;
        let mut raw = read_bytes(
            &self.blocking,
            self.sb.byte_of(at).get(),
            blocks as usize * size,
        )?;
        let end = FsBlock::new(at.get() + u64::from(blocks));
        for (block, bytes) in self.changed.range(at..end) {
            let from = (block.get() - at.get()) as usize * size;
            raw[from..from + size].copy_from_slice(bytes);
        }
        Ok(raw)
    }

    /// Replaces a block.
    pub(super) fn put(&mut self, at: FsBlock, bytes: &[u8]) {
        self.changed.insert(at, bytes.into());
    }

    /// Replaces a block if its bytes differ.
    pub(super) fn put_if_changed(&mut self, at: FsBlock, old: &[u8], new: &[u8]) {
        if old != new {
            self.put(at, new);
        }
    }

    /// A block that is given back needs no contents.
    pub(super) fn forget(&mut self, at: FsBlock) {
        self.changed.remove(&at);
    }

    /// Changes the superblock; it is parsed again.
    pub(super) fn edit_super(
        &mut self,
        change: impl FnOnce(&mut SuperblockEdit<'_>),
    ) -> Result<(), Error> {
        let mut edit = SuperblockEdit::new(&mut self.raw_super);
        change(&mut edit);
        edit.seal();
        self.sb = Superblock::parse(&self.raw_super)?;
        Ok(())
    }

    /// The superblock as it would be without checksums of metadata.
    pub(super) fn without_checksums(&self) -> Result<Superblock, Error> {
        let mut raw = self.raw_super;
        let clear = Features {
            ro_compat: RoCompat::METADATA_CSUM,
            ..Features::default()
        };
        SuperblockEdit::new(&mut raw).switch_features(&Features::default(), &clear);
        Ok(Superblock::parse(&raw)?)
    }

    /// Bitmaps of a group that are as on the device need no memory.
    pub(super) fn drop_unchanged_bits(&mut self, group: GroupNo) {
        let n = group.get();
        for all in [&mut self.block_bits, &mut self.inode_bits] {
            if all.get(&n).is_some_and(|bits| !bits.is_changed()) {
                all.remove(&n);
            }
        }
    }

    /// Whether a block differs from the device, beside superblock, descriptors and bitmaps, or one of the latter.
    pub(super) fn is_changed(&self) -> bool {
        let mut bits = self.block_bits.values().chain(self.inode_bits.values());
        !self.changed.is_empty() || bits.any(Bits::is_changed)
    }

    pub(super) fn raw_super(&self) -> &[u8; SUPERBLOCK_SIZE] {
        &self.raw_super
    }

    /// The block of the inode table with this inode, and where in it.
    pub(super) fn inode_place(&self, ino: Ino) -> Result<(FsBlock, usize), Error> {
        let place = self.sb.inode_place(ino)?;
        let table = self.groups[place.group.get() as usize].inode_table;
        let block = FsBlock::new(table.get() + u64::from(place.table_block));
        Ok((block, place.offset as usize))
    }

    /// An inode. Blocks.
    pub(super) fn inode(&self, ino: Ino) -> Result<Inode, Error> {
        let parsed = Inode::parse(&self.sb, ino, &self.raw_inode(ino)?);
        parsed.map_err(|e| Error::from(e).at(format!("inode {ino}")))
    }

    /// The bytes of an inode. Blocks.
    pub(super) fn raw_inode(&self, ino: Ino) -> Result<Vec<u8>, Error> {
        let (block, at) = self.inode_place(ino)?;
        let size = self.sb.geometry().inode_size() as usize;
        Ok(self.block(block)?[at..at + size].to_vec())
    }

    /// Replaces the bytes of an inode. Blocks.
    pub(super) fn put_raw_inode(&mut self, ino: Ino, raw: &[u8]) -> Result<(), Error> {
        let (block, at) = self.inode_place(ino)?;
        let mut bytes = self.block(block)?.to_vec();
        bytes[at..at + raw.len()].copy_from_slice(raw);
        self.put(block, &bytes);
        Ok(())
    }

    /// Writes the fields of an inode into its slot. Blocks.
    pub(super) fn put_inode(&mut self, inode: &Inode) -> Result<(), Error> {
        let mut raw = self.raw_inode(inode.ino)?;
        inode.write(&self.sb, &mut raw)?;
        self.put_raw_inode(inode.ino, &raw)
    }

    /// As [`Image::put_inode`], of an inode that is new.
    pub(super) fn put_new_inode(&mut self, inode: &Inode) -> Result<(), Error> {
        let mut raw = self.raw_inode(inode.ino)?;
        inode.write_new(&self.sb, &mut raw)?;
        self.put_raw_inode(inode.ino, &raw)
    }

    /// Clears the slot of an inode. Blocks.
    pub(super) fn clear_inode(&mut self, ino: Ino) -> Result<(), Error> {
        let zeros = vec![0; self.sb.geometry().inode_size() as usize];
        self.put_raw_inode(ino, &zeros)
    }

    /// All groups.
    pub(super) fn group_numbers(&self) -> impl Iterator<Item = GroupNo> + use<> {
        (0..self.sb.group_count()).map(GroupNo::new)
    }

    /// All blocks that are not as on the device: bitmaps, descriptors and the superblock with them. `with_super` changes the superblock's
    /// marks. Blocks.
    pub(super) fn finished(
        &mut self,
        with_super: impl FnOnce(&mut SuperblockEdit<'_>),
    ) -> Result<Blocks, Error> {
        self.write_bits()?;
        self.write_groups()?;
        self.edit_super(with_super)?;
        let mut all = self.changed.clone();
        let at = self.sb.super_block();
        let mut block = self.block(at)?.to_vec();
        let from = (SUPERBLOCK_OFFSET % u64::from(self.sb.block_size())) as usize;
        block[from..from + SUPERBLOCK_SIZE].copy_from_slice(&self.raw_super);
        all.insert(at, block.into());
        Ok(all)
    }

    /// Changed bitmaps, and their checksums and counts in descriptors.
    fn write_bits(&mut self) -> Result<(), Error> {
        let (mut free, mut free_inodes) = (0, 0);
        for (group, bits) in self.block_bits.iter().filter(|(_, bits)| bits.is_changed()) {
            let desc = &mut self.groups[*group as usize];
            self.changed
                .insert(desc.block_bitmap, bits.now.clone().into());
            desc.flags = desc.flags.without_block_uninit();
            desc.seal_block_bitmap(&self.sb, &bits.now)?;
        }
        for (group, bits) in self.inode_bits.iter().filter(|(_, bits)| bits.is_changed()) {
            let desc = &mut self.groups[*group as usize];
            self.changed
                .insert(desc.inode_bitmap, bits.now.clone().into());
            desc.flags = desc.flags.without_inode_uninit();
            desc.seal_inode_bitmap(&self.sb, &bits.now)?;
        }
        for desc in &self.groups {
            free += u64::from(desc.free_clusters);
            free_inodes += desc.free_inodes;
        }
        let blocks = free * u64::from(self.sb.geometry().cluster_ratio());
        self.edit_super(|edit| {
            edit.set_free_blocks(blocks);
            edit.set_free_inodes(free_inodes);
        })
    }

    /// Descriptors that differ from those on the device.
    fn write_groups(&mut self) -> Result<(), Error> {
        let geometry = self.sb.geometry();
        let (per, size) = (geometry.descs_per_block(), geometry.desc_size() as usize);
        for index in 0..geometry.gdt_blocks() {
            let at = self.sb.gdt_location(index)?;
            let old = self.block(at)?;
            let mut new = old.to_vec();
            let first = (index * per) as usize;
            let descs = self.groups[first..].iter().take(per as usize);
            for (desc, raw) in descs.zip(new.chunks_exact_mut(size)) {
                desc.write_moved(&self.sb, raw)?;
            }
            self.put_if_changed(at, &old, &new);
        }
        Ok(())
    }
}
