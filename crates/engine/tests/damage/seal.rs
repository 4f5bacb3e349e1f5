//! Recomputes checksums, so that damage is not found by its checksum alone.
//!
//! Input: an image with a change in it. Output: the same image, with the checksum of the changed structure recomputed; the KiB that
//! were touched. Invariants: only checksums are changed; where a structure is and how it is read is taken from the undamaged image.
//! Limits: if an inode's generation is changed, checksums of the blocks below the inode are not recomputed.

use diorite_format::bitmap::{self, BitmapKind};
use diorite_format::superblock::SuperblockEdit;
use diorite_format::{FileBlock, FsBlock, GroupDesc, GroupNo, Ino, Inode, Superblock, csum};
use diorite_format::{dir, dx, extent, group, inode, orphan, xattr};

/// The checksum that covers a place.
#[derive(Clone, Debug)]
pub(crate) enum Seal {
    None,
    Super,
    Desc(GroupNo),
    Bitmap(GroupNo, BitmapKind),
    Inode(Ino),
    Extent(Ino, FsBlock),
    Dir(Ino, FsBlock),
    Dx(Ino, FileBlock, FsBlock),
    Xattr(FsBlock),
    Orphan(Ino, FsBlock),
    Mmp(FsBlock),
    Journal(FsBlock),
}

/// A volume as bytes.
pub(crate) struct Bytes<'a> {
    pub(crate) sb: Superblock,
    pub(crate) image: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(image: &'a [u8]) -> Bytes<'a> {
        let raw = image[1024..2048].try_into().unwrap();
        Bytes {
            sb: Superblock::parse(raw).unwrap(),
            image,
        }
    }

    pub(crate) fn block(&self, at: FsBlock) -> &'a [u8] {
        &self.image[at.get() as usize * 1024..][..1024]
    }

    pub(crate) fn desc_at(&self, group: GroupNo) -> u64 {
        let (index, offset) = self.sb.desc_place(group).unwrap();
        self.sb.gdt_location(index).unwrap().get() * 1024 + u64::from(offset)
    }

    pub(crate) fn desc(&self, group: GroupNo) -> GroupDesc {
        GroupDesc::parse(&self.sb, group, &self.image[self.desc_at(group) as usize..]).unwrap()
    }

    pub(crate) fn inode_at(&self, ino: Ino) -> u64 {
        let place = self.sb.inode_place(ino).unwrap();
        let table = self.desc(place.group).inode_table.get() + u64::from(place.table_block);
        table * 1024 + u64::from(place.offset)
    }

    pub(crate) fn raw_inode(&self, ino: Ino) -> &'a [u8] {
        &self.image[self.inode_at(ino) as usize..][..self.sb.geometry().inode_size() as usize]
    }

    pub(crate) fn inode(&self, ino: Ino) -> Inode {
        Inode::parse(&self.sb, ino, self.raw_inode(ino)).unwrap()
    }
}

impl Seal {
    /// Recomputes the checksum. Returns the KiB that it changed.
    pub(crate) fn apply(&self, image: &mut [u8], pristine: &[u8]) -> Vec<u64> {
        let was = Bytes::new(pristine);
        let sb = &was.sb;
        match *self {
            Seal::None => Vec::new(),
            Seal::Super => {
                let raw = (&mut image[1024..2048]).try_into().unwrap();
                if sb.has_metadata_csum() {
                    SuperblockEdit::new(raw).seal();
                }
                vec![1]
            }
            Seal::Desc(number) => vec![seal_desc(&was, number, image)],
            Seal::Bitmap(number, kind) => seal_bitmap(&was, number, kind, image),
            Seal::Inode(ino) => {
                let at = was.inode_at(ino);
                inode::seal(sb, ino, &mut image[at as usize..]);
                vec![at / 1024]
            }
            Seal::Extent(ino, at) => {
                let raw = block_of(image, at);
                let max = u16::from_le_bytes([raw[4], raw[5]]);
                // With a wrong number of entries, the place of the checksum is outside the block.
                if usize::from(max) * 12 + 16 <= raw.len() {
                    extent::seal_block(sb, ino, was.inode(ino).generation, raw);
                }
                vec![at.get()]
            }
            Seal::Dir(ino, at) => {
                dir::seal(sb, &was.inode(ino), block_of(image, at));
                vec![at.get()]
            }
            Seal::Dx(ino, block, at) => {
                // The same holds for a node whose limit does not fit.
                let _ = dx::seal(sb, &was.inode(ino), block, block_of(image, at));
                vec![at.get()]
            }
            Seal::Xattr(at) => {
                let raw = block_of(image, at);
                let count = u32::from_le_bytes(raw[4..8].try_into().unwrap());
                xattr::set_refcount(sb, at, raw, count).unwrap();
                vec![at.get()]
            }
            Seal::Orphan(ino, at) => {
                let sum = orphan::checksum(&was.inode(ino), at, block_of(image, at));
                block_of(image, at)[1020..].copy_from_slice(&sum.to_le_bytes());
                vec![at.get()]
            }
            Seal::Mmp(at) => {
                let raw = block_of(image, at);
                if sb.has_metadata_csum() {
                    let sum = csum::crc32c(sb.csum_seed(), &raw[..0x3FC]);
                    raw[0x3FC..].copy_from_slice(&sum.to_le_bytes());
                }
                vec![at.get()]
            }
            Seal::Journal(at) => {
                let raw = block_of(image, at);
                raw[0xFC..0x100].fill(0);
                let sum = csum::crc32c(csum::SEED, raw);
                // Only journals with checksums of version 2 or 3 have one.
                if raw[0x28..0x2C] != [0; 4] && raw[0x2B] & 0x18 != 0 {
                    raw[0xFC..0x100].copy_from_slice(&sum.to_be_bytes());
                }
                vec![at.get()]
            }
        }
    }
}

fn block_of(image: &mut [u8], at: FsBlock) -> &mut [u8] {
    &mut image[at.get() as usize * 1024..][..1024]
}

fn seal_desc(was: &Bytes<'_>, number: GroupNo, image: &mut [u8]) -> u64 {
    let (at, size) = (was.desc_at(number), was.sb.geometry().desc_size() as usize);
    let raw = &mut image[at as usize..at as usize + size];
    if let Some(sum) = group::checksum(&was.sb, number, raw) {
        raw[0x1E..0x20].copy_from_slice(&sum.to_le_bytes());
    }
    at / 1024
}

fn seal_bitmap(was: &Bytes<'_>, number: GroupNo, kind: BitmapKind, image: &mut [u8]) -> Vec<u64> {
    let desc = was.desc(number);
    let (block, low, high) = match kind {
        BitmapKind::Block => (desc.block_bitmap, 0x18, 0x38),
        BitmapKind::Inode => (desc.inode_bitmap, 0x1A, 0x3A),
    };
    if was.sb.has_metadata_csum() {
        let sum = bitmap::checksum(&was.sb, kind, block_of(image, block))
            .unwrap()
            .to_le_bytes();
        let at = was.desc_at(number) as usize;
        image[at + low..at + low + 2].copy_from_slice(&sum[..2]);
        if was.sb.geometry().desc_size() >= 64 {
            image[at + high..at + high + 2].copy_from_slice(&sum[2..]);
        }
    }
    vec![block.get(), seal_desc(was, number, image)]
}
