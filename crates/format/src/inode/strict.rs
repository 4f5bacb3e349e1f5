//! Oddities that only a consistency check reports: inode fields that must be zero, and flags that do not fit the type. Input: a
//! checked inode and its bytes. Output: one sentence per oddity. Invariant: an inode that the kernel or mke2fs made has none.
//! Limit: no oddity makes an inode unreadable. Source: the kernel's ext4 documentation, "index nodes"; what e2fsck -fn says
//! about inodes changed field by field.

use crate::features::{Compat, Incompat, RoCompat};
use crate::indirect::max_file_blocks;
use crate::layout::inode as at;
use crate::le::{le16, le32};
use crate::superblock::Superblock;

use super::{FileType, Inode, InodeFlags, MapKind};

impl Inode {
    /// The oddities of this inode; `raw` is what it was parsed from.
    pub fn oddities<'a>(
        &self,
        sb: &Superblock,
        raw: &'a [u8],
    ) -> impl Iterator<Item = &'static str> + use<'a> {
        let regular = self.is_file();
        let wide_dir = self.is_dir() && sb.features().incompat.has(Incompat::LARGE_DIR);
        let no_map = !matches!(
            self.file_type,
            Some(FileType::Regular | FileType::Directory | FileType::Symlink)
        );
        let compat = sb.features().compat;
        let rows = [
            (
                le32(raw, at::OBSO_FADDR) != 0,
                "the address of a fragment is not 0",
            ),
            (
                !regular && !wide_dir && le32(raw, at::SIZE_HIGH) != 0,
                "the upper half of the size is not 0",
            ),
            (
                !sb.features().ro_compat.has(RoCompat::HUGE_FILE)
                    && le16(raw, at::BLOCKS_HIGH) != 0,
                "the upper half of the space in use is not 0",
            ),
            (
                // The Hurd has the upper half of the mode there.
                !sb.features().incompat.has(Incompat::BIT64)
                    && !sb.is_of_hurd()
                    && le16(raw, at::FILE_ACL_HIGH) != 0,
                "the upper half of the attributes' block is not 0",
            ),
            (
                self.flags.has(InodeFlags::EA_INODE) && !regular,
                "flagged as holding an attribute's value, and is no regular file",
            ),
            (
                (self.flags.has(InodeFlags::IMMUTABLE) || self.flags.has(InodeFlags::APPEND))
                    && self.file_type.is_some()
                    && !regular
                    && !self.is_dir(),
                "flagged as immutable or append-only, and is neither a file nor a directory",
            ),
            (
                self.flags.has(InodeFlags::INDEX) && !compat.has(Compat::DIR_INDEX),
                "flagged as hashed on a volume without dir_index",
            ),
            (
                self.map_kind() == MapKind::Indirect
                    && self.size > max_file_blocks(sb).saturating_mul(u64::from(sb.block_size())),
                "larger than block pointers can map",
            ),
            (
                self.flags.has(InodeFlags::INDEX) && !self.is_dir(),
                "flagged as hashed, and is no directory",
            ),
            (
                self.flags.has(InodeFlags::CASEFOLD) && !self.is_dir(),
                "flagged as folding case, and is no directory",
            ),
            (
                self.flags.has(InodeFlags::CASEFOLD)
                    && !sb.features().incompat.has(Incompat::CASEFOLD),
                "flagged as folding case on a volume without casefold",
            ),
            (
                self.flags.has(InodeFlags::IMAGIC) && !compat.has(Compat::IMAGIC_INODES),
                "flagged as an AFS directory on a volume without imagic_inodes",
            ),
            (
                !self.file_acl.is_none() && !compat.has(Compat::EXT_ATTR),
                "a block of attributes on a volume without ext_attr",
            ),
            (
                no_map && self.flags.has(InodeFlags::EXTENTS),
                "flagged as mapped by extents, and has no data",
            ),
        ];
        rows.into_iter()
            .filter(|(odd, _)| *odd)
            .map(|(_, what)| what)
    }
}
