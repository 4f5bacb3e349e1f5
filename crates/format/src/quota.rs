//! A usage file of the quota feature: header, tree of references, blocks of entries. One for each of users, groups and projects.
//! Input: blocks of [`BLOCK_SIZE`] bytes of the file. Output: [`Header`], entries; [`Tree`] lists the blocks to read.
//! Invariant: a returned reference lies in the file; an entry is returned only if the tree leads to it. Limit: limits and grace
//! times are not read, because they are settings that nothing on the volume can confirm; nor are the lists of blocks with room.
//! Source: man 8 mke2fs, tune2fs (quota, project, quotatype); experiments: files that mke2fs and e2fsck make, every field
//! changed in turn, and what e2fsck -fn says.

use crate::error::{Corrupt, Result, bad, want};
use crate::features::RoCompat;
use crate::layout::{quota_data as data, quota_entry as entry, quota_header as header};
use crate::le::{le16, le32, le64};
use crate::num;
use crate::superblock::Superblock;
use crate::types::Ino;

#[cfg(test)]
mod tests;
mod tree;
mod write;

pub use tree::{Branch, Tree};
pub use write::usage_bytes;

/// Bytes of a block of a usage file, independent of the volume's block size.
pub const BLOCK_SIZE: usize = 1024;
/// The block with the tree's root; the header is in the block before it.
const ROOT: u32 = 1;
/// Size of the largest file that e2fsck accepts.
const MAX_SIZE: u64 = 1 << 31;
/// Maximum number of entries of a block.
const ENTRIES: u16 = 14;

const _: () = assert!(data::SIZE + 14 * entry::SIZE == BLOCK_SIZE);

/// The kind of owner that a file counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// By owner.
    User,
    /// By group.
    Group,
    /// By project.
    Project,
}

impl Kind {
    /// All kinds, in the order of the superblock's fields.
    pub const ALL: [Kind; 3] = [Kind::User, Kind::Group, Kind::Project];

    /// The name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::User => "user",
            Kind::Group => "group",
            Kind::Project => "project",
        }
    }

    const fn magic(self) -> u32 {
        match self {
            Kind::User => 0xD9C0_1F11,
            Kind::Group => 0xD9C0_1927,
            Kind::Project => 0xD9C0_3F14,
        }
    }
}

/// The usage file of a kind, if the volume has it. Not range-checked.
#[must_use]
pub fn usage_file(sb: &Superblock, kind: Kind) -> Option<Ino> {
    let [user, group, project] = sb.info().quota_inodes;
    let ino = match kind {
        Kind::User => user,
        Kind::Group => group,
        Kind::Project => project,
    };
    let quota = sb.features().ro_compat.has(RoCompat::QUOTA);
    (quota && ino != 0).then(|| Ino::new(ino))
}

/// The first block of a usage file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    ino: Ino,
    /// Blocks of the file, including this one: at least two, and within its size.
    pub blocks: u32,
}

impl Header {
    /// Checks the first block of a file of `size` bytes.
    ///
    /// # Errors
    /// `Short`, `QuotaMagic`, `QuotaVersion`, `QuotaSize`, `QuotaBlocks`, `QuotaFree`.
    pub fn parse(kind: Kind, ino: Ino, size: u64, raw: &[u8]) -> Result<Self> {
        want("the first block of a usage file", raw, BLOCK_SIZE)?;
        let (found, expected) = (le32(raw, header::MAGIC), kind.magic());
        if found != expected {
            return bad(Corrupt::QuotaMagic {
                ino,
                found,
                expected,
            });
        }
        let found = le32(raw, header::VERSION);
        if found != 1 {
            return bad(Corrupt::QuotaVersion { ino, found });
        }
        if size > MAX_SIZE {
            let (found, max) = (size, MAX_SIZE);
            return bad(Corrupt::QuotaSize { ino, found, max });
        }
        let blocks = le32(raw, header::BLOCKS);
        let max = size.div_ceil(num::wide(BLOCK_SIZE));
        if blocks <= ROOT || u64::from(blocks) > max {
            let found = blocks;
            return bad(Corrupt::QuotaBlocks { ino, found, max });
        }
        let firsts = [header::FREE_BLOCK, header::FREE_ENTRY];
        let outside = firsts.map(|at| le32(raw, at)).into_iter();
        if let Some(found) = outside.filter(|n| *n >= blocks).max() {
            return bad(Corrupt::QuotaFree { ino, found, blocks });
        }
        Ok(Self { ino, blocks })
    }
}

/// Recorded usage of one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The id of the user, group or project.
    pub id: u32,
    /// Bytes.
    pub space: u64,
    /// Inodes.
    pub inodes: u64,
}

/// The entries of a block, also if its count exceeds the maximum.
fn entries(raw: &[u8]) -> impl Iterator<Item = Entry> + '_ {
    let slots = raw.get(data::SIZE..BLOCK_SIZE).unwrap_or(&[]);
    let used = |slot: &&[u8]| slot.iter().any(|b| *b != 0);
    slots
        .chunks_exact(entry::SIZE)
        .filter(used)
        .map(|slot| Entry {
            id: le32(slot, entry::ID),
            space: le64(slot, entry::CUR_SPACE),
            inodes: le64(slot, entry::CUR_INODES),
        })
}

/// Checks the header of a block of entries.
fn check_head(ino: Ino, block: u32, raw: &[u8]) -> Result<()> {
    let found = le16(raw, data::ENTRIES);
    if found > ENTRIES {
        return bad(Corrupt::QuotaEntries {
            ino,
            block,
            found,
            max: ENTRIES,
        });
    }
    Ok(())
}
