//! What of an inode is asked so often that it is read without a lock: its type, its flags, the seed of its blocks' checksums.
//!
//! Input: the inode, when it comes into memory and whenever it changes. Output: these values. Invariants: the type of an in-core inode
//! never changes; the others are stored under the lock of the inode's state, each in one store. Limits: who needs several values that
//! belong together takes the whole inode ([`Inode::disk`]).

use super::Inode;
use diorite_block::sync::atomic::{AtomicU32, Ordering};
use diorite_format::xattr::has_area;
use diorite_format::{FileType, Inode as DiskInode, InodeFlags};

/// See the module.
#[derive(Debug)]
pub(super) struct Brief {
    kind: Option<FileType>,
    flags: AtomicU32,
    seed: AtomicU32,
    /// Where it has attributes: [`INSIDE`], [`BLOCK`].
    attributes: AtomicU32,
}

/// In its own area of the inode table.
const INSIDE: u32 = 1;
/// In a block.
const BLOCK: u32 = 2;

impl Brief {
    pub(super) fn of(disk: &DiskInode, raw: &[u8]) -> Brief {
        Brief {
            kind: disk.file_type,
            flags: AtomicU32::new(disk.flags.bits()),
            seed: AtomicU32::new(disk.csum_seed()),
            attributes: AtomicU32::new(in_block(disk) | inside(disk, raw)),
        }
    }

    /// Takes over the inode after a change. Its state is locked.
    pub(super) fn note(&self, disk: &DiskInode) {
        self.flags.store(disk.flags.bits(), Ordering::Release);
        self.seed.store(disk.csum_seed(), Ordering::Release);
        let inside = self.attributes.load(Ordering::Relaxed) & INSIDE;
        self.attributes
            .store(inside | in_block(disk), Ordering::Release);
    }

    /// As [`Brief::note`], after a change of the attributes in the inode's own area, too.
    pub(super) fn note_attributes(&self, disk: &DiskInode, raw: &[u8]) {
        self.note(disk);
        self.attributes
            .store(in_block(disk) | inside(disk, raw), Ordering::Release);
    }
}

fn in_block(disk: &DiskInode) -> u32 {
    if disk.file_acl.is_none() { 0 } else { BLOCK }
}

fn inside(disk: &DiskInode, raw: &[u8]) -> u32 {
    if has_area(disk, raw) { INSIDE } else { 0 }
}

impl Inode {
    /// Its type; None for a reserved inode that was never used.
    #[inline]
    pub(crate) fn file_type(&self) -> Option<FileType> {
        self.brief.kind
    }

    #[inline]
    pub(crate) fn is_dir(&self) -> bool {
        self.brief.kind == Some(FileType::Directory)
    }

    /// Its flags now, with changes that are not committed yet.
    #[inline]
    pub(crate) fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits(self.brief.flags.load(Ordering::Acquire))
    }

    /// The seed of the checksums of its blocks.
    #[inline]
    pub(crate) fn csum_seed(&self) -> u32 {
        self.brief.seed.load(Ordering::Acquire)
    }

    /// May it have attributes?
    #[inline]
    pub(crate) fn may_have_attributes(&self) -> bool {
        self.brief.attributes.load(Ordering::Acquire) != 0
    }

    /// Are its contents in the inode (feature inline_data)?
    #[inline]
    pub(crate) fn is_inline(&self) -> bool {
        self.flags().has(InodeFlags::INLINE_DATA)
    }
}
