//! The superblock: a volume's parameters, checked once so that later code need not check them again.
//! Input: the 1,024 bytes at byte 1,024 of the volume, or of a backup. Output: [`Superblock`], immutable; [`SuperblockEdit`]
//! changes the bytes. Invariant: every number that [`Geometry`] returns is in range and consistent with the others. Limit: the
//! device's size is not known here; `check_device` compares it. Source: the kernel's ext4 documentation, "super block"; man 5
//! ext4; values compared with `dumpe2fs -h` in tests.

use crate::csum;
use crate::error::{Corrupt, FormatError, Result, Unsupported, bad};
use crate::features::{Compat, Features, Incompat, RoCompat};
use crate::layout::sb;
use crate::le::{bytes, c_bytes, le16, le32, le64, u8_at};
use crate::num;
use crate::types::{FsBlock, Ino};

mod backup;
mod convert;
mod edit;
mod fresh;
mod geometry;
mod journal_device;
mod kept;
mod place;
mod report;
mod resize;
mod strict;
#[cfg(test)]
pub(crate) mod tests;
mod tune;

pub use backup::{BackupCandidate, as_primary, backup_candidates, is_same_volume, may_stand_in};
pub use convert::journal_backup;
pub use edit::SuperblockEdit;
pub use fresh::NewSuper;
pub use geometry::Geometry;
pub use journal_device::JournalDevice;
pub use place::InodePlace;
pub use report::{ErrorRecord, RecordedErrors, SuperInfo};
pub use resize::NewSize;
pub use tune::Tuning;

/// Bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = sb::SIZE;
/// Byte offset of the primary superblock from the start of the volume.
pub const SUPERBLOCK_OFFSET: u64 = 1024;

const MAGIC: u16 = 0xEF53;
/// `s_state`: cleanly unmounted.
const STATE_VALID: u16 = 1;
/// `s_state`: errors were found.
const STATE_ERROR: u16 = 2;

/// How directory names are hashed unless a directory specifies otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashSettings {
    /// `s_hash_seed`, four little-endian words; all zero means the built-in seed.
    pub seed: [u32; 4],
    /// `s_def_hash_version`, 0..=5.
    pub default_version: u8,
    /// Whether directory hashes treat characters as unsigned (`s_flags` bit 1).
    pub unsigned_chars: bool,
}

/// Where the journal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalPlace {
    /// The volume has none.
    None,
    /// In this inode.
    Internal(Ino),
    /// On another device, whose journal superblock carries this UUID.
    External {
        /// UUID of the journal device.
        uuid: [u8; 16],
        /// Its device number when it was last used.
        device: u32,
    },
}

/// A checked superblock.
///
/// ```
/// use diorite_format::superblock::SUPERBLOCK_SIZE;
/// use diorite_format::{Corrupt, FormatError, Superblock};
///
/// let zeros = [0; SUPERBLOCK_SIZE];
/// let error = Superblock::parse(&zeros).expect_err("no magic number");
/// assert!(matches!(error, FormatError::Corrupt(Corrupt::SuperMagic { .. })));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    geometry: Geometry,
    features: Features,
    uuid: [u8; 16],
    csum_seed: u32,
    state: u16,
    journal: JournalPlace,
    hash: HashSettings,
    last_orphan: Ino,
    orphan_file: Option<Ino>,
    mmp_block: FsBlock,
    block_group_nr: u16,
    info: Box<SuperInfo>,
}

impl Superblock {
    /// Checks and parses 1,024 bytes. Features are recorded, not judged: see [`Features::check`].
    ///
    /// # Errors
    /// `Corrupt` for a wrong magic number, checksum or geometry; `Unsupported` for a revision above 1, a checksum
    /// type other than crc32c, or a journal device.
    pub fn parse(raw: &[u8; SUPERBLOCK_SIZE]) -> Result<Self> {
        let b = raw.as_slice();
        let magic = le16(b, sb::MAGIC);
        if magic != MAGIC {
            return bad(Corrupt::SuperMagic { found: magic });
        }
        check_revision(b)?;
        let features = parse_features(b);
        if features.metadata_csum() {
            check_sum(b)?;
        }
        refuse_journal_device(&features)?;
        let geometry = Geometry::parse(b, &features)?;
        let uuid = bytes(b, sb::UUID);
        Ok(Self {
            csum_seed: parse_seed(b, &features, &uuid),
            uuid,
            state: le16(b, sb::STATE),
            journal: parse_journal(b, &features),
            hash: parse_hash(b),
            last_orphan: Ino::new(le32(b, sb::LAST_ORPHAN)),
            orphan_file: features
                .compat
                .has(Compat::ORPHAN_FILE)
                .then(|| Ino::new(le32(b, sb::ORPHAN_FILE_INUM))),
            mmp_block: FsBlock::new(le64(b, sb::MMP_BLOCK)),
            block_group_nr: le16(b, sb::BLOCK_GROUP_NR),
            info: Box::new(SuperInfo::parse(b, &features)),
            geometry,
            features,
        })
    }

    /// Sizes, counts and places.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Feature bits.
    #[must_use]
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Fields for display only: label, times, counters, error record.
    #[must_use]
    pub fn info(&self) -> &SuperInfo {
        &self.info
    }

    /// The volume's UUID.
    #[must_use]
    pub fn uuid(&self) -> &[u8; 16] {
        &self.uuid
    }

    /// The seed of all metadata checksums except the superblock's own: stored, or crc32c of the UUID.
    #[must_use]
    pub fn csum_seed(&self) -> u32 {
        self.csum_seed
    }

    /// Whether metadata has crc32c checksums.
    #[must_use]
    pub fn has_metadata_csum(&self) -> bool {
        self.features.metadata_csum()
    }

    /// Whether directory entries hold a file type.
    #[must_use]
    pub fn has_filetype(&self) -> bool {
        self.features.incompat.has(Incompat::FILETYPE)
    }

    /// Whether the volume has an internal or external journal.
    #[must_use]
    pub fn journal(&self) -> JournalPlace {
        self.journal
    }

    /// Whether the Hurd made it, whose inodes have fields of their own where Linux has others.
    #[must_use]
    pub fn is_of_hurd(&self) -> bool {
        self.info.creator_os == 1
    }

    /// Whether the journal must be replayed before the volume may be trusted.
    #[must_use]
    pub fn needs_recovery(&self) -> bool {
        self.features.incompat.has(Incompat::RECOVER)
    }

    /// Whether it was cleanly unmounted: the valid bit set and the error bit clear.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.state & STATE_VALID != 0 && self.state & STATE_ERROR == 0
    }

    /// Whether an error was recorded, so that the volume should be checked.
    #[must_use]
    pub fn has_error_state(&self) -> bool {
        self.state & STATE_ERROR != 0
    }

    /// `s_state` as stored.
    #[must_use]
    pub fn state(&self) -> u16 {
        self.state
    }

    /// How names are hashed.
    #[must_use]
    pub fn hash(&self) -> &HashSettings {
        &self.hash
    }

    /// Head of the on-disk list of orphan inodes; 0 when empty.
    #[must_use]
    pub fn last_orphan(&self) -> Ino {
        self.last_orphan
    }

    /// The orphan file, if the volume has one.
    #[must_use]
    pub fn orphan_file(&self) -> Option<Ino> {
        self.orphan_file
    }

    /// The multiple-mount-protection block; 0 when there is none. Not range-checked.
    #[must_use]
    pub fn mmp_block(&self) -> FsBlock {
        self.mmp_block
    }

    /// The group that this copy belongs to: 0 for the primary (`s_block_group_nr`).
    #[must_use]
    pub fn block_group_nr(&self) -> u16 {
        self.block_group_nr
    }

    /// The errors that earlier drivers recorded, if any.
    #[must_use]
    pub fn recorded_errors(&self) -> Option<&RecordedErrors> {
        self.info.errors_recorded.as_ref()
    }
}

fn check_revision(b: &[u8]) -> Result<()> {
    let revision = le32(b, sb::REV_LEVEL);
    if revision > 1 {
        return Err(FormatError::Unsupported(Unsupported {
            feature: format!("revision {revision}"),
            read_only_would_do: false,
            help: "this revision of the format is newer than this program",
        }));
    }
    Ok(())
}

fn parse_features(b: &[u8]) -> Features {
    Features {
        compat: Compat::from_bits(le32(b, sb::FEATURE_COMPAT)),
        incompat: Incompat::from_bits(le32(b, sb::FEATURE_INCOMPAT)),
        ro_compat: RoCompat::from_bits(le32(b, sb::FEATURE_RO_COMPAT)),
    }
}

/// The superblock's own checksum starts from all ones, never from the volume's seed.
fn check_sum(b: &[u8]) -> Result<()> {
    let kind = u8_at(b, sb::CHECKSUM_TYPE);
    let covered = b.get(..sb::CHECKSUM).unwrap_or(&[]);
    let (stored, computed) = (le32(b, sb::CHECKSUM), csum::crc32c(csum::SEED, covered));
    if stored == computed && kind != 1 {
        return Err(FormatError::Unsupported(Unsupported {
            feature: format!("checksum type {kind}"),
            read_only_would_do: false,
            help: "only crc32c, type 1, is known",
        }));
    }
    if stored != computed {
        return bad(Corrupt::SuperChecksum { stored, computed });
    }
    Ok(())
}

/// A journal device has a superblock, too, but no geometry to check.
fn refuse_journal_device(features: &Features) -> Result<()> {
    if !features.incompat.has(Incompat::JOURNAL_DEV) {
        return Ok(());
    }
    Err(FormatError::Unsupported(Unsupported {
        feature: "journal_dev".to_owned(),
        read_only_would_do: false,
        help: "this is an external journal device, not a file system; open the volume that uses it",
    }))
}

fn parse_seed(b: &[u8], features: &Features, uuid: &[u8; 16]) -> u32 {
    if features.incompat.has(Incompat::CSUM_SEED) {
        le32(b, sb::CHECKSUM_SEED)
    } else {
        csum::crc32c(csum::SEED, uuid)
    }
}

fn parse_journal(b: &[u8], features: &Features) -> JournalPlace {
    let (ino, device) = (le32(b, sb::JOURNAL_INUM), le32(b, sb::JOURNAL_DEV));
    let uuid: [u8; 16] = bytes(b, sb::JOURNAL_UUID);
    if !features.compat.has(Compat::HAS_JOURNAL) {
        JournalPlace::None
    } else if ino != 0 {
        JournalPlace::Internal(Ino::new(ino))
    } else {
        JournalPlace::External { uuid, device }
    }
}

fn parse_hash(b: &[u8]) -> HashSettings {
    let word = |n: usize| le32(b, sb::HASH_SEED.saturating_add(n.saturating_mul(4)));
    HashSettings {
        seed: [word(0), word(1), word(2), word(3)],
        default_version: u8_at(b, sb::DEF_HASH_VERSION),
        unsigned_chars: le32(b, sb::FLAGS) & 2 != 0,
    }
}

/// The label as text, with bytes that are not UTF-8 replaced.
pub(crate) fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&c_bytes(field)).into_owned()
}

/// `value` in units of blocks as bytes; saturates.
pub(crate) fn block_bytes(blocks: u64, block_size: u32) -> u64 {
    blocks.saturating_mul(u64::from(block_size))
}

/// The high half of a split counter, if the volume is 64-bit.
pub(crate) fn split64(b: &[u8], lo: usize, hi: usize, is_64bit: bool) -> u64 {
    let high = if is_64bit { le32(b, hi) } else { 0 };
    num::join(high, le32(b, lo))
}
