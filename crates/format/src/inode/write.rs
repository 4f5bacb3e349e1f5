//! Writes a changed inode back into its bytes.
//! Input: a checked [`Inode`] whose public fields were changed, and the bytes it was parsed from. Output: those bytes with the
//! changes and their checksum. Invariant: bytes that this crate does not know are kept (attributes after the fields, reserved
//! words); on an error nothing changes. Limit: a time out of range is stored as the nearest in range, and an inode without room
//! for nanoseconds, creation time or the upper half of the version does not store them. Source: the kernel's ext4
//! documentation, "index nodes", "inode timestamps", "checksums"; in tests, unchanged inodes of mke2fs's volumes are written
//! byte for byte, and changed ones pass e2fsck and debugfs shows the new values.

use crate::error::{Unfit, fit, room};
use crate::features::{Incompat, RoCompat};
use crate::layout::inode as at;
use crate::le::{put, put_le16, put_le32};
use crate::num;
use crate::superblock::Superblock;
use crate::types::Ino;

use super::{Inode, InodeFlags, OLD_SIZE, Timestamp, checksum, has_extra, has_wide_size, max_size};

/// Largest block count in the inode's 48 bits.
const MAX_BLOCKS: u64 = (1 << 48) - 1;

type Written = Result<(), Unfit>;

/// The stored form of the space in use: the number, and whether it counts blocks instead of 512-byte units.
struct StoredBlocks {
    count: u64,
    in_blocks: bool,
}

impl Inode {
    /// Writes every field into `raw`, the inode's bytes, with the checksum. `file_type` and values derived from it follow
    /// `mode`. The flag for the unit of the space count is chosen here, on volumes with huge_file.
    ///
    /// # Errors
    /// `Short`; `Value` for a size, block count, attribute block or project that this volume cannot store, or an extra size for
    /// which the inode has no room.
    pub fn write(&self, sb: &Superblock, raw: &mut [u8]) -> Written {
        let size = num::usize32(sb.geometry().inode_size());
        let b = room("an inode", raw, size)?;
        let blocks = self.check_fit(sb, size)?;
        self.put_all(sb, b, &blocks);
        Ok(())
    }

    fn put_all(&self, sb: &Superblock, b: &mut [u8], blocks: &StoredBlocks) {
        self.put_old(sb, b, blocks);
        if b.len() > OLD_SIZE {
            self.put_extra(b);
        }
        seal(sb, self.ino, b);
    }

    /// As [`Self::write`], into a slot whose old bytes are all dropped: for an inode that was just allocated.
    ///
    /// # Errors
    /// As [`Self::write`]; on an error nothing changes.
    pub fn write_new(&self, sb: &Superblock, raw: &mut [u8]) -> Written {
        let size = num::usize32(sb.geometry().inode_size());
        let b = room("an inode", raw, size)?;
        let blocks = self.check_fit(sb, size)?;
        b.fill(0);
        self.put_all(sb, b, &blocks);
        Ok(())
    }

    fn check_fit(&self, sb: &Superblock, inode_size: usize) -> Result<StoredBlocks, Unfit> {
        let wide = has_wide_size(sb, super::FileType::from_mode(self.mode));
        let max = if wide {
            max_size(sb)
        } else {
            u64::from(u32::MAX)
        };
        fit("a file's size", self.size, max)?;
        let wide = sb.features().incompat.has(Incompat::BIT64);
        let max = if wide {
            MAX_BLOCKS
        } else {
            u64::from(u32::MAX)
        };
        fit("an attribute block's number", self.file_acl.get(), max)?;
        let extra = num::wide(inode_size.saturating_sub(OLD_SIZE));
        fit("an inode's extra size", u64::from(self.extra_isize), extra)?;
        if self.extra_isize & 3 != 0 {
            return Err(Unfit::Rule {
                what: "an inode's extra size",
                why: "not a multiple of 4",
            });
        }
        if !has_extra(self.extra_isize, at::PROJID, 4) {
            fit("a project", u64::from(self.projid), 0)?;
        }
        self.stored_blocks(sb)
    }

    /// 32 bits of 512-byte units; with huge_file 48 bits, or 48 bits of blocks if the count is larger or was stored so before.
    fn stored_blocks(&self, sb: &Superblock) -> Result<StoredBlocks, Unfit> {
        let what = "a file's space in 512-byte units";
        if !sb.features().ro_compat.has(RoCompat::HUGE_FILE) {
            fit(what, self.blocks, u64::from(u32::MAX))?;
            return Ok(StoredBlocks {
                count: self.blocks,
                in_blocks: false,
            });
        }
        let unit = u64::from(sb.block_size() >> 9);
        let in_blocks = self.flags.has(InodeFlags::HUGE_FILE) || self.blocks > MAX_BLOCKS;
        let whole = self.blocks.checked_rem(unit) == Some(0);
        if in_blocks && whole {
            fit(what, self.blocks, MAX_BLOCKS.saturating_mul(unit))?;
            let count = self.blocks.checked_div(unit).unwrap_or(0);
            return Ok(StoredBlocks { count, in_blocks });
        }
        fit(what, self.blocks, MAX_BLOCKS)?;
        Ok(StoredBlocks {
            count: self.blocks,
            in_blocks: false,
        })
    }

    fn put_old(&self, sb: &Superblock, b: &mut [u8], blocks: &StoredBlocks) {
        let (uid_high, uid_low) = num::halves(self.uid);
        let (gid_high, gid_low) = num::halves(self.gid);
        put_le16(b, at::MODE, self.mode);
        put_le16(b, at::UID_LO, uid_low);
        put_le16(b, at::UID_HIGH, uid_high);
        put_le16(b, at::GID_LO, gid_low);
        put_le16(b, at::GID_HIGH, gid_high);
        let (size_high, size_low) = num::split(self.size);
        put_le32(b, at::SIZE_LO, size_low);
        if has_wide_size(sb, super::FileType::from_mode(self.mode)) {
            put_le32(b, at::SIZE_HIGH, size_high);
        }
        put_le32(b, at::DTIME, self.dtime);
        put_le16(b, at::LINKS_COUNT, self.links);
        self.put_blocks(sb, b, blocks);
        put_le32(b, at::VERSION_LO, num::split(self.version).1);
        put(b, at::BLOCK, &self.i_block);
        put_le32(b, at::GENERATION, self.generation);
        let (acl_high, acl_low) = num::split(self.file_acl.get());
        put_le32(b, at::FILE_ACL_LO, acl_low);
        if sb.features().incompat.has(Incompat::BIT64) {
            put_le16(b, at::FILE_ACL_HIGH, num::low16(acl_high));
        }
        for (time, lo, hi) in self.times() {
            put_le32(b, lo, time.stored(has_extra(self.extra_isize, hi, 4)).0);
        }
    }

    fn put_blocks(&self, sb: &Superblock, b: &mut [u8], blocks: &StoredBlocks) {
        let (high, low) = num::split(blocks.count);
        put_le32(b, at::BLOCKS_LO, low);
        let mut flags = self.flags.bits();
        if sb.features().ro_compat.has(RoCompat::HUGE_FILE) {
            put_le16(b, at::BLOCKS_HIGH, num::low16(high));
            flags &= !InodeFlags::HUGE_FILE.bits();
            if blocks.in_blocks {
                flags |= InodeFlags::HUGE_FILE.bits();
            }
        }
        put_le32(b, at::FLAGS, flags);
    }

    /// Writes the fields after the first 128 bytes that `extra_isize` includes.
    fn put_extra(&self, b: &mut [u8]) {
        let extra = self.extra_isize;
        let has = |field: usize| has_extra(extra, field, 4);
        put_le16(b, at::EXTRA_ISIZE, extra);
        for (time, _, hi) in self.times() {
            if has(hi) {
                put_le32(b, hi, time.stored(true).1);
            }
        }
        if let Some(time) = self.crtime.filter(|_| has(at::CRTIME)) {
            let wide = has(at::CRTIME_EXTRA);
            let (lo, hi) = time.stored(wide);
            put_le32(b, at::CRTIME, lo);
            if wide {
                put_le32(b, at::CRTIME_EXTRA, hi);
            }
        }
        if has(at::VERSION_HI) {
            put_le32(b, at::VERSION_HI, num::split(self.version).0);
        }
        if has(at::PROJID) {
            put_le32(b, at::PROJID, self.projid);
        }
    }

    fn times(&self) -> [(Timestamp, usize, usize); 3] {
        [
            (self.atime, at::ATIME, at::ATIME_EXTRA),
            (self.ctime, at::CTIME, at::CTIME_EXTRA),
            (self.mtime, at::MTIME, at::MTIME_EXTRA),
        ]
    }
}

/// Writes the checksum into the inode's bytes: 16 bits, or 32 if the extra fields include the upper half. Does nothing without
/// metadata_csum.
pub fn seal(sb: &Superblock, ino: Ino, raw: &mut [u8]) {
    if !sb.has_metadata_csum() {
        return;
    }
    let size = num::usize32(sb.geometry().inode_size());
    let b = raw.get_mut(..size).unwrap_or(&mut []);
    let (high, low) = num::halves(checksum(sb, ino, b));
    put_le16(b, at::CHECKSUM_LO, low);
    if size > OLD_SIZE && has_extra(crate::le::le16(b, at::EXTRA_ISIZE), at::CHECKSUM_HI, 2) {
        put_le16(b, at::CHECKSUM_HI, high);
    }
}
