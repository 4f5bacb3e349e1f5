//! An inode: the attributes of a file and the root of its map.
//! Input: the inode's bytes, found with [`Superblock::inode_place`]. Output: [`Inode`], checked. Invariant: the checksum is
//! valid, the extra size fits, the type is known, the size is possible for a file. Limit: an all-zero slot is accepted as a
//! free inode whatever its checksum, because mke2fs leaves such slots; check [`Inode::is_free`]. Source: the kernel's ext4
//! documentation, "index nodes"; compared with debugfs in tests.

use core::ops::Range;

use crate::csum;
use crate::error::{Corrupt, Result, bad, want};
use crate::features::{Incompat, RoCompat};
use crate::layout::inode as at;
use crate::le::{bytes, le16, le32, put_le16};
use crate::num;
use crate::superblock::Superblock;
use crate::types::{FsBlock, Ino};

mod attrs;
mod fresh;
mod strict;
#[cfg(test)]
mod tests;
mod time;
mod value;
mod write;

pub use attrs::{FileType, GROUP_EXECUTES, InodeFlags, MapKind, Rdev, SETGID, SETUID};
pub use fresh::NewInode;
pub(crate) use fresh::fresh_xattr_len;
pub use time::Timestamp;
pub use write::seal;

/// Bytes of `i_block`: the map's root, a short symbolic link, or the start of inline data.
pub const I_BLOCK_SIZE: usize = 60;
/// Bytes of an inode without extra fields.
const OLD_SIZE: usize = at::EXTRA_ISIZE;

/// A checked inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// Its number.
    pub ino: Ino,
    /// Type and permission bits, as stored.
    pub mode: u16,
    /// The file type of `mode`; `None` only for a free inode, or a reserved one that was never used.
    pub file_type: Option<FileType>,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes in the file.
    pub size: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Creation time, if the inode has room for it.
    pub crtime: Option<Timestamp>,
    /// Deletion time in seconds; in an orphan: the inode number of the next orphan.
    pub dtime: u32,
    /// Link count. A directory with more subdirectories than the field can count has 1 (dir_nlink).
    pub links: u16,
    /// Space in use, in units of 512 bytes, including map and attribute blocks.
    pub blocks: u64,
    /// Attribute bits.
    pub flags: InodeFlags,
    /// Changes when the inode number is reused; part of the seed of this file's checksums.
    pub generation: u32,
    /// Change counter (`i_version`), 64 bits if there is room.
    pub version: u64,
    /// Block of extended attributes; 0 = none. Inside the volume.
    pub file_acl: FsBlock,
    /// Project of the project quota; 0 = none.
    pub projid: u32,
    /// Bytes in use after the first 128.
    pub extra_isize: u16,
    /// `i_block` as stored.
    pub i_block: [u8; I_BLOCK_SIZE],
    csum_seed: u32,
    xattr_area: Option<(usize, usize)>,
}

impl Inode {
    /// Parses an inode; `raw` starts at the inode and has at least `inode_size` bytes.
    ///
    /// # Errors
    /// `InoRange`, `Short`, `InodeChecksum` (metadata_csum), `InodeExtraSize`, `InodeType`, `InodeFileSize`,
    /// `InodeXattrBlock`, `InodeFlags`.
    pub fn parse(sb: &Superblock, ino: Ino, raw: &[u8]) -> Result<Self> {
        sb.check_ino(ino.get())?;
        let size = num::usize32(sb.geometry().inode_size());
        want("an inode", raw, size)?;
        let b = raw.get(..size).unwrap_or(&[]);
        let unused = b.iter().all(|byte| *byte == 0);
        if sb.has_metadata_csum() && !unused {
            verify_sum(sb, ino, b)?;
        }
        let extra = parse_extra(ino, b)?;
        let mut inode = Self::take_apart(sb, ino, b, extra);
        if inode.mode == 0 && inode.links == 0 && ino != Ino::BAD_BLOCKS {
            // No value of a free slot is kept, so none can mislead.
            inode.file_acl = FsBlock::NONE;
        } else {
            inode.check(sb)?;
        }
        Ok(inode)
    }

    fn take_apart(sb: &Superblock, ino: Ino, b: &[u8], extra: u16) -> Self {
        let mode = le16(b, at::MODE);
        let file_type = FileType::from_mode(mode);
        let flags = InodeFlags::from_bits(le32(b, at::FLAGS));
        let generation = le32(b, at::GENERATION);
        let has = |field: usize, len: usize| has_extra(extra, field, len);
        let extra32 = |field: usize| if has(field, 4) { le32(b, field) } else { 0 };
        let time = |lo: usize, hi: usize| Timestamp::decode(le32(b, lo), extra32(hi), has(hi, 4));
        Self {
            ino,
            mode,
            file_type,
            uid: u32::from(le16(b, at::UID_LO)) | u32::from(le16(b, at::UID_HIGH)) << 16,
            gid: u32::from(le16(b, at::GID_LO)) | u32::from(le16(b, at::GID_HIGH)) << 16,
            size: parse_size(sb, b, file_type),
            atime: time(at::ATIME, at::ATIME_EXTRA),
            ctime: time(at::CTIME, at::CTIME_EXTRA),
            mtime: time(at::MTIME, at::MTIME_EXTRA),
            crtime: has(at::CRTIME, 4).then(|| time(at::CRTIME, at::CRTIME_EXTRA)),
            dtime: le32(b, at::DTIME),
            links: le16(b, at::LINKS_COUNT),
            blocks: parse_blocks(sb, b, flags),
            flags,
            generation,
            version: num::join(extra32(at::VERSION_HI), le32(b, at::VERSION_LO)),
            file_acl: parse_file_acl(sb, b),
            projid: extra32(at::PROJID),
            extra_isize: extra,
            i_block: bytes(b, at::BLOCK),
            csum_seed: csum::inode_seed(sb.csum_seed(), ino, generation),
            xattr_area: xattr_bounds(b.len(), extra),
        }
    }

    fn check(&self, sb: &Superblock) -> Result<()> {
        let ino = self.ino;
        // Reserved inodes (the bad-blocks list, an unused journal slot) may have links without a type.
        if self.file_type.is_none()
            && (self.mode >> 12 != 0 || ino.get() >= sb.geometry().first_ino())
        {
            return bad(Corrupt::InodeType {
                ino,
                mode: self.mode,
            });
        }
        let max = max_size(sb);
        if self.size > max {
            return bad(Corrupt::InodeFileSize {
                ino,
                size: self.size,
                max,
            });
        }
        if !self.file_acl.is_none() && !sb.holds(self.file_acl, 1) {
            return bad(Corrupt::InodeXattrBlock {
                ino,
                block: self.file_acl,
            });
        }
        self.check_flags(sb)
    }

    fn check_flags(&self, sb: &Superblock) -> Result<()> {
        let inline = self.flags.has(InodeFlags::INLINE_DATA);
        let why = if inline && !sb.features().incompat.has(Incompat::INLINE_DATA) {
            "inline data on a volume without the inline_data feature"
        } else if inline && self.flags.has(InodeFlags::EXTENTS) {
            "both inline data and an extent tree"
        } else if self.flags.has(InodeFlags::EXTENTS)
            && !sb.features().incompat.has(Incompat::EXTENTS)
        {
            "an extent tree on a volume without the extent feature"
        } else {
            return Ok(());
        };
        bad(Corrupt::InodeFlags {
            ino: self.ino,
            flags: self.flags.bits(),
            why,
        })
    }

    /// Whether this slot holds no file: no links, and either no mode or a deletion time. Orphans (links 0, mode set, still open
    /// when the volume went down) have a next-orphan number in `dtime` and look the same: only the orphan list distinguishes
    /// them.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.links == 0 && (self.mode == 0 || self.dtime != 0)
    }

    /// The kind of the file's map.
    #[must_use]
    pub fn map_kind(&self) -> MapKind {
        MapKind::of(self)
    }

    /// Device number of a character or block device.
    #[must_use]
    pub fn rdev(&self) -> Option<Rdev> {
        matches!(
            self.file_type,
            Some(FileType::CharDevice | FileType::BlockDevice)
        )
        .then(|| Rdev::decode(&self.i_block))
    }

    /// The target of a symbolic link that is stored in the inode.
    ///
    /// # Errors
    /// `Symlink` if the map is of another kind, the size does not fit, or the target has a NUL.
    pub fn fast_symlink(&self) -> Result<&[u8]> {
        let wrong = |why| {
            bad(Corrupt::Symlink {
                ino: self.ino,
                size: self.size,
                why,
            })
        };
        if self.map_kind() != MapKind::FastSymlink {
            return wrong("its target is not in the inode");
        }
        let Some(target) = self.i_block.get(..num::index(self.size)) else {
            return wrong("longer than the inode has room");
        };
        if target.contains(&0) && !self.flags.has(InodeFlags::ENCRYPT) {
            return wrong("a NUL byte in the target");
        }
        Ok(target)
    }

    /// The length of the target that `stored` begins with, which should be the size: up to a NUL, or, if it is encrypted, as long as its
    /// first two bytes say.
    #[must_use]
    pub fn target_len(&self, stored: &[u8]) -> u64 {
        if !self.flags.has(InodeFlags::ENCRYPT) {
            let end = stored.iter().position(|byte| *byte == 0);
            return num::wide(end.unwrap_or(stored.len()));
        }
        match le16(stored, 0) {
            0 => 0,
            bytes => u64::from(bytes).saturating_add(2),
        }
    }

    /// Seed of the checksums of this file's blocks (extents, directories, orphan file).
    #[must_use]
    pub fn csum_seed(&self) -> u32 {
        self.csum_seed
    }

    /// Sets another generation; checksums of the file's blocks under the old one become invalid.
    pub fn set_generation(&mut self, sb: &Superblock, generation: u32) {
        self.generation = generation;
        self.csum_seed = csum::inode_seed(sb.csum_seed(), self.ino, generation);
    }

    /// Where extended attributes may lie in the inode's bytes: from their magic number to the end; `None` if there is no room.
    #[must_use]
    pub fn xattr_area(&self) -> Option<Range<usize>> {
        self.xattr_area.map(|(start, end)| start..end)
    }

    /// Whether the inode has room for times of more than 32 bits.
    #[must_use]
    pub fn has_wide_times(&self) -> bool {
        has_extra(self.extra_isize, at::ATIME_EXTRA, 4)
    }

    /// Makes its times those that it shows once it was stored and read.
    pub fn settle_times(&mut self) {
        let wide = self.has_wide_times();
        for time in [&mut self.atime, &mut self.mtime, &mut self.ctime] {
            *time = time.as_stored(wide);
        }
    }

    /// Whether the inode is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type == Some(FileType::Directory)
    }

    /// Whether the inode is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file_type == Some(FileType::Regular)
    }
}

/// The checksum of an inode's bytes, 32 bits; the high half is used only if it is stored.
#[must_use]
pub fn checksum(sb: &Superblock, ino: Ino, raw: &[u8]) -> u32 {
    let seed = csum::inode_seed(sb.csum_seed(), ino, le32(raw, at::GENERATION));
    let has_high = has_extra(le16(raw, at::EXTRA_ISIZE), at::CHECKSUM_HI, 2);
    let mut copy = [0u8; csum::SHORT];
    if raw.len() > OLD_SIZE
        && has_high
        && let Some(copy) = copy.get_mut(..raw.len())
    {
        // As below, at once.
        copy.copy_from_slice(raw);
        put_le16(copy, at::CHECKSUM_LO, 0);
        put_le16(copy, at::CHECKSUM_HI, 0);
        return csum::crc32c(seed, copy);
    }
    let old = raw.get(..OLD_SIZE).unwrap_or(raw);
    let rest = raw.get(OLD_SIZE..).unwrap_or(&[]);
    let sum = csum::crc32c_with_hole(seed, old, at::CHECKSUM_LO, 2);
    if has_high {
        csum::crc32c_with_hole(sum, rest, at::CHECKSUM_HI.saturating_sub(OLD_SIZE), 2)
    } else {
        csum::crc32c(sum, rest)
    }
}

/// The generation in an inode's bytes, which need not be those of a checked inode.
#[must_use]
pub fn generation_in(raw: &[u8]) -> u32 {
    le32(raw, at::GENERATION)
}

fn verify_sum(sb: &Superblock, ino: Ino, b: &[u8]) -> Result<()> {
    let mut computed = checksum(sb, ino, b);
    let mut stored = u32::from(le16(b, at::CHECKSUM_LO));
    if b.len() > OLD_SIZE && has_extra(le16(b, at::EXTRA_ISIZE), at::CHECKSUM_HI, 2) {
        stored |= u32::from(le16(b, at::CHECKSUM_HI)) << 16;
    } else {
        computed &= 0xFFFF;
    }
    if stored != computed {
        return bad(Corrupt::InodeChecksum {
            ino,
            stored,
            computed,
        });
    }
    Ok(())
}

/// Whether the `extra_isize` bytes after the first 128 include this field.
fn has_extra(extra: u16, field: usize, len: usize) -> bool {
    field.saturating_add(len) <= OLD_SIZE.saturating_add(num::usize16(extra))
}

fn parse_extra(ino: Ino, b: &[u8]) -> Result<u16> {
    if b.len() <= OLD_SIZE {
        return Ok(0);
    }
    let found = le16(b, at::EXTRA_ISIZE);
    let max = num::sat32(num::wide(b.len().saturating_sub(OLD_SIZE)));
    if u32::from(found) > max || found & 3 != 0 {
        return bad(Corrupt::InodeExtraSize { ino, found, max });
    }
    Ok(found)
}

/// The high word of the size is used for regular files, and for directories with large_dir.
fn parse_size(sb: &Superblock, b: &[u8], kind: Option<FileType>) -> u64 {
    let wide = has_wide_size(sb, kind);
    num::join(
        if wide { le32(b, at::SIZE_HIGH) } else { 0 },
        le32(b, at::SIZE_LO),
    )
}

/// Whether files of this kind have 64 bits of size.
fn has_wide_size(sb: &Superblock, kind: Option<FileType>) -> bool {
    match kind {
        Some(FileType::Regular) => true,
        Some(FileType::Directory) => sb.features().incompat.has(Incompat::LARGE_DIR),
        _ => false,
    }
}

/// In 512-byte units, or in blocks for a file flagged so on a huge_file volume.
fn parse_blocks(sb: &Superblock, b: &[u8], flags: InodeFlags) -> u64 {
    let lo = le32(b, at::BLOCKS_LO);
    if !sb.features().ro_compat.has(RoCompat::HUGE_FILE) {
        return u64::from(lo);
    }
    let count = num::join(u32::from(le16(b, at::BLOCKS_HIGH)), lo);
    if flags.has(InodeFlags::HUGE_FILE) {
        count.saturating_mul(u64::from(sb.block_size() >> 9))
    } else {
        count
    }
}

fn parse_file_acl(sb: &Superblock, b: &[u8]) -> FsBlock {
    let wide = sb.features().incompat.has(Incompat::BIT64);
    let hi = if wide {
        u32::from(le16(b, at::FILE_ACL_HIGH))
    } else {
        0
    };
    FsBlock::new(num::join(hi, le32(b, at::FILE_ACL_LO)))
}

/// The area needs at least the magic number and an end mark; without an extra size there is no area.
fn xattr_bounds(inode_size: usize, extra: u16) -> Option<(usize, usize)> {
    let start = OLD_SIZE.saturating_add(num::usize16(extra));
    (extra != 0 && start.saturating_add(8) <= inode_size).then_some((start, inode_size))
}

/// The largest file size: 2^32-1 blocks.
fn max_size(sb: &Superblock) -> u64 {
    u64::from(u32::MAX).saturating_mul(u64::from(sb.block_size()))
}
