//! Every field of every structure of an image.
//!
//! Input: an image's bytes. Output: places, each with the checksum that covers it. Invariants: the image is undamaged, so
//! structures are found by parsing it. Limits: of structures that are many (inodes, extents, entries) only a few of each kind.

use crate::fields::{self, Field};
use crate::seal::{Bytes, Seal};
use diorite::{MappingState, OpenFlags, OpenOptions, Volume};
use diorite_block::MemDevice;
use diorite_format::bitmap::BitmapKind;
use diorite_format::dir::{DirBlock, is_hashed};
use diorite_format::extent::ExtentNode;
use diorite_format::quota::{self, Kind};
use diorite_format::superblock::JournalPlace;
use diorite_format::{FileBlock, FsBlock, GroupNo, Ino, MapKind};
use std::sync::Arc;

/// A field of a structure.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) structure: &'static str,
    pub(crate) field: &'static str,
    pub(crate) at: u64,
    pub(crate) len: usize,
    pub(crate) seal: Seal,
}

/// The files whose structures are used, each with a structure of its own kind.
const FILES: [&str; 12] = [
    "/",
    "/dir",
    "/big",
    "/sub/deep",
    "/file",
    "/sub/deep/other",
    "/tiny",
    "/tiny/in",
    "/link",
    "/long",
    "/fifo",
    "/device",
];

pub(crate) fn places(image: &[u8]) -> Vec<Place> {
    let device = Arc::new(MemDevice::new(image.len() as u64));
    device.write_at(0, image);
    let volume = Volume::open_device(device, &OpenOptions::default()).unwrap();
    let mut found = Found {
        bytes: Bytes::new(image),
        volume,
        list: Vec::new(),
    };
    found.all();
    found.list
}

struct Found<'a> {
    bytes: Bytes<'a>,
    volume: Volume,
    list: Vec<Place>,
}

impl Found<'_> {
    fn put(&mut self, structure: &'static str, fields: &[Field], at: u64, seal: &Seal) {
        self.list
            .extend(fields.iter().map(|(field, offset, len)| Place {
                structure,
                field,
                at: at + *offset as u64,
                len: *len,
                seal: seal.clone(),
            }));
    }

    fn all(&mut self) {
        self.put("superblock", fields::SUPER, 1024, &Seal::Super);
        self.groups();
        let mmp = self.bytes.sb.mmp_block();
        if !mmp.is_none() {
            self.put("mmp block", fields::MMP, mmp.get() * 1024, &Seal::Mmp(mmp));
        }
        let inos: Vec<Ino> = FILES
            .iter()
            .map(|f| self.volume.resolve(f.as_bytes(), false).unwrap())
            .collect();
        for ino in inos {
            self.inode("inode", ino);
            self.contents(ino);
        }
        self.inode("resize or reserved inode", Ino::RESIZE);
        self.free_inode();
        self.quotas();
        if let JournalPlace::Internal(ino) = self.volume.superblock().journal() {
            self.inode("journal inode", ino);
            let at = self.blocks(ino)[0].1;
            self.put(
                "journal superblock",
                fields::JOURNAL,
                at.get() * 1024,
                &Seal::Journal(at),
            );
        }
        if let Some(ino) = self.volume.superblock().orphan_file() {
            self.inode("orphan file inode", ino);
            let at = self.blocks(ino)[0].1;
            let seal = Seal::Orphan(ino, at);
            self.put(
                "orphan file",
                &[("slot", 0, 4), ("slot", 400, 4)],
                at.get() * 1024,
                &seal,
            );
            self.put(
                "orphan file",
                fields::ORPHAN_TAIL,
                at.get() * 1024 + 1016,
                &seal,
            );
        }
    }

    /// The quota files: their blocks are as large as the image's.
    fn quotas(&mut self) {
        for kind in Kind::ALL {
            let Some(ino) = quota::usage_file(self.volume.superblock(), kind) else {
                continue;
            };
            self.inode("quota inode", ino);
            let blocks = self.blocks(ino);
            let start = |block: u32| blocks[block as usize].1.get() * 1024;
            let size = blocks.len() as u64 * 1024;
            self.put("quota header", fields::QUOTA_HEADER, start(0), &Seal::None);
            let bytes = |block: u32| self.bytes.block(blocks[block as usize].1);
            let mut wrong = |e| panic!("{e}");
            let header = quota::Header::parse(kind, ino, size, bytes(0)).unwrap();
            let mut tree = quota::Tree::new(&header);
            let mut slots = Vec::new();
            while let Some(level) = tree.level() {
                for at in level {
                    let raw = bytes(at.block);
                    tree.references(at, raw, &mut wrong);
                    let used = (0..256).filter(|n| raw[4 * n..4 * n + 4] != [0; 4]).take(3);
                    slots.extend(used.chain([200]).map(|n| start(at.block) + 4 * n as u64));
                }
            }
            let mut heads: Vec<u64> = tree.leaves().iter().map(|l| start(l.block)).collect();
            heads.dedup();
            for at in slots {
                self.put("quota tree", &[("reference", 0, 4)], at, &Seal::None);
            }
            for at in heads {
                self.put("quota block", fields::QUOTA_DATA, at, &Seal::None);
                for n in [0, 1, 13] {
                    let entry = at + 16 + 72 * n;
                    self.put("quota entry", fields::QUOTA_ENTRY, entry, &Seal::None);
                }
            }
        }
    }

    fn groups(&mut self) {
        for number in (0..self.bytes.sb.group_count()).map(GroupNo::new) {
            let (at, desc) = (self.bytes.desc_at(number), self.bytes.desc(number));
            let seal = Seal::Desc(number);
            self.put("descriptor", fields::DESC, at, &seal);
            if self.bytes.sb.geometry().desc_size() >= 64 {
                self.put("descriptor", fields::DESC_64, at, &seal);
            }
            let bits: Vec<Field> = (0..8).map(|n| ("bits", n * 100 + 13, 1)).collect();
            if !desc.flags.block_uninit() {
                let seal = Seal::Bitmap(number, BitmapKind::Block);
                self.put("block bitmap", &bits, desc.block_bitmap.get() * 1024, &seal);
            }
            if !desc.flags.inode_uninit() {
                let seal = Seal::Bitmap(number, BitmapKind::Inode);
                self.put(
                    "inode bitmap",
                    &bits[..2],
                    desc.inode_bitmap.get() * 1024,
                    &seal,
                );
                self.put(
                    "inode bitmap",
                    &[("first bits", 0, 1)],
                    desc.inode_bitmap.get() * 1024,
                    &seal,
                );
            }
        }
    }

    fn inode(&mut self, structure: &'static str, ino: Ino) {
        let (at, seal) = (self.bytes.inode_at(ino), Seal::Inode(ino));
        self.put(structure, fields::INODE, at, &seal);
        if self.bytes.sb.geometry().inode_size() > 128 {
            self.put(structure, fields::INODE_EXTRA, at, &seal);
        }
    }

    /// The first unused inode of group 0.
    fn free_inode(&mut self) {
        let count = self.bytes.sb.geometry().inodes_per_group();
        let desc = self.bytes.desc(GroupNo::new(0));
        let first = (12..=count)
            .map(Ino::new)
            .find(|ino| self.bytes.raw_inode(*ino).iter().all(|b| *b == 0));
        if let Some(ino) = first.filter(|_| desc.free_inodes > 0) {
            self.inode("free inode", ino);
        }
    }

    /// (file block, block) of everything that is mapped.
    fn blocks(&self, ino: Ino) -> Vec<(u64, FsBlock)> {
        let file = self.volume.open_ino(ino, OpenFlags::default()).unwrap();
        let mappings = file.mappings(0, file.size()).unwrap();
        let each = |m: &diorite::Mapping| match m.state {
            MappingState::Written(at) | MappingState::Unwritten(at) => (0..m.len)
                .map(|n| (m.start + n, FsBlock::new(at.get() + n)))
                .collect(),
            MappingState::Hole => Vec::new(),
        };
        mappings.iter().flat_map(each).collect()
    }

    fn contents(&mut self, ino: Ino) {
        let inode = self.bytes.inode(ino);
        let at = self.bytes.inode_at(ino);
        if inode.map_kind() == MapKind::Extents {
            self.root(ino, at + 40);
        } else if inode.map_kind() == MapKind::Indirect && !inode.is_dir() {
            self.pointers(at + 40);
        }
        if inode.is_dir() && inode.map_kind() != MapKind::Inline {
            self.directory(ino);
        }
        self.attributes(ino, at);
    }

    fn root(&mut self, ino: Ino, at: u64) {
        let inode = self.bytes.inode(ino);
        let root = ExtentNode::parse_root(&self.bytes.sb, &inode).unwrap();
        let seal = Seal::Inode(ino);
        self.put("extent header in inode", fields::EXTENT_HEADER, at, &seal);
        if root.depth == 0 && !root.extents().is_empty() {
            self.put("extent in inode", fields::EXTENT, at + 12, &seal);
        }
        for (n, index) in root.indexes().iter().enumerate() {
            self.put(
                "extent index in inode",
                fields::EXTENT_INDEX,
                at + 12 + 12 * n as u64,
                &seal,
            );
            let (seal, start) = (Seal::Extent(ino, index.child), index.child.get() * 1024);
            self.put(
                "extent header in block",
                fields::EXTENT_HEADER,
                start,
                &seal,
            );
            self.put("extent in block", fields::EXTENT, start + 12, &seal);
            self.put("extent in block", fields::EXTENT, start + 24, &seal);
            self.put("extent tail", &[("et_checksum", 1020, 4)], start, &seal);
        }
    }

    /// Blocks of pointers: some slots of the indirect block and of the double-indirect block.
    fn pointers(&mut self, at: u64) {
        let word =
            |at: u64| u32::from_le_bytes(self.bytes.image[at as usize..][..4].try_into().unwrap());
        let (single, double) = (word(at + 48), word(at + 52));
        for block in [single, double].into_iter().filter(|b| *b != 0) {
            let slots = [("pointer", 0, 4), ("pointer", 4, 4), ("pointer", 1020, 4)];
            self.put(
                "block of pointers",
                &slots,
                u64::from(block) * 1024,
                &Seal::None,
            );
        }
    }

    fn directory(&mut self, ino: Ino) {
        let inode = self.bytes.inode(ino);
        let hashed = is_hashed(&self.bytes.sb, &inode);
        let blocks = self.blocks(ino);
        for (n, at) in blocks {
            let raw = self.bytes.block(at);
            let start = at.get() * 1024;
            let block = FileBlock::new(n);
            let parsed = DirBlock::parse(&self.bytes.sb, &inode, block, raw).unwrap();
            let offsets: Vec<u32> = parsed.slots().take(4).map(|e| e.offset).collect();
            let node = hashed
                && n != 0
                && raw[..4] == [0; 4]
                && raw[4..6] == [0, 4]
                && raw[8..10] == [126 - u8::from(self.bytes.sb.has_metadata_csum()), 0];
            if hashed && n == 0 {
                let seal = Seal::Dx(ino, block, at);
                self.put("hash tree root", fields::DX_ROOT, start, &seal);
                self.put(
                    "hash tree root entry",
                    fields::DX_ENTRY,
                    start + 0x28,
                    &seal,
                );
            } else if node {
                let seal = Seal::Dx(ino, block, at);
                self.put("hash tree node", fields::DX_NODE, start, &seal);
                self.put(
                    "hash tree node entry",
                    fields::DX_ENTRY,
                    start + 0x10,
                    &seal,
                );
            } else {
                let seal = Seal::Dir(ino, at);
                for offset in offsets {
                    let name = if n == 0 && offset < 24 && !hashed {
                        "entry . or .."
                    } else {
                        "directory entry"
                    };
                    self.put(name, fields::DIR_ENTRY, start + u64::from(offset), &seal);
                }
                if self.bytes.sb.has_metadata_csum() {
                    self.put("directory tail", fields::DIR_TAIL, start + 1012, &seal);
                }
            }
        }
    }

    fn attributes(&mut self, ino: Ino, at: u64) {
        let inode = self.bytes.inode(ino);
        let raw = self.bytes.raw_inode(ino);
        let seal = Seal::Inode(ino);
        if let Some(area) = inode.xattr_area()
            && raw[area.start..area.start + 4] == [0, 0, 2, 0xEA]
        {
            let start = at + area.start as u64;
            self.put("attributes in inode", &[("h_magic", 0, 4)], start, &seal);
            self.put("attribute in inode", fields::XATTR_ENTRY, start + 4, &seal);
        }
        if !inode.file_acl.is_none() {
            let (start, seal) = (inode.file_acl.get() * 1024, Seal::Xattr(inode.file_acl));
            self.put("attribute block", fields::XATTR_HEADER, start, &seal);
            self.put("attribute in block", fields::XATTR_ENTRY, start + 32, &seal);
            self.put("attribute value", &[("byte", 1020, 1)], start, &seal);
        }
    }
}
