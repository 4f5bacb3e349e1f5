//! A usage file of the quota feature: header, tree of references, blocks of entries. One for each of users, groups and projects.
//! Input: blocks of [`BLOCK_SIZE`] bytes of the file. Output: [`Header`], entries; [`Tree`] says which blocks are to be read.
//! Invariant: a reference that is handed out lies in the file; an entry is one that the tree leads to. Limit: limits and times of grace are not read: they are
//! settings, and nothing on the volume says what they should be; nor are the lists of blocks with room. Source: man 8 mke2fs, tune2fs (quota, project, quotatype);
//! experiments: files that mke2fs and e2fsck make, every field changed in turn, and what e2fsck -fn says.

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

pub use tree::{Branch, Tree};

/// Bytes of a block of a usage file, whatever the volume's own blocks have.
pub const BLOCK_SIZE: usize = 1024;
/// The block with the tree's root; the one before has the header.
const ROOT: u32 = 1;
/// Bytes of the largest file that e2fsck takes.
const MAX_SIZE: u64 = 1 << 31;
/// Entries for which a block has room.
const ENTRIES: u16 = 14;

const _: () = assert!(data::SIZE + 14 * entry::SIZE == BLOCK_SIZE);

/// Whose use a file counts.
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
    /// All, in the order of the superblock's fields.
    pub const ALL: [Kind; 3] = [Kind::User, Kind::Group, Kind::Project];

    /// As people call it.
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

/// The usage file of a kind, if the volume keeps it. Not range-checked.
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
    /// Blocks of the file, this one among them: at least two, and within its size.
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

/// What somebody uses, as a usage file has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Of which user, group or project.
    pub id: u32,
    /// Bytes.
    pub space: u64,
    /// Inodes.
    pub inodes: u64,
}

/// The entries of a block, also one that says that it has more than fit.
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

/// Checks what the head of a block of entries says.
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
