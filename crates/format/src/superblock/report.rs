//! Superblock fields without effect on the layout: what `dumpe2fs -h` and `diorite info` print.
//! Input: superblock bytes. Output: [`SuperInfo`], plain values. Invariant: parsing cannot fail. Limit: nothing here is
//! validated beyond its width; never compute a place from it.
//! Source: the kernel's ext4 documentation, "super block"; man 5 ext4.

use crate::features::{Features, Incompat, RoCompat};
use crate::layout::sb;
use crate::le::{bytes, c_bytes, le16, le32, le64, u8_at};

/// A failure that a driver recorded in the superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorRecord {
    /// Seconds since 1970.
    pub time: i64,
    /// The inode concerned, or 0.
    pub ino: u32,
    /// The block concerned, or 0.
    pub block: u64,
    /// Name of the function that found it.
    pub function: String,
    /// Its source line.
    pub line: u32,
    /// The kernel's short code of the error, or 0.
    pub code: u8,
}

/// Failures recorded since the last full check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedErrors {
    /// How many.
    pub count: u32,
    /// The first.
    pub first: ErrorRecord,
    /// The latest.
    pub last: ErrorRecord,
}

/// Fields for people. Times are seconds since 1970, 0 = never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuperInfo {
    /// 0 or 1 (dynamic).
    pub revision: u32,
    /// Minor revision.
    pub minor_revision: u16,
    /// Volume label.
    pub label: String,
    /// Directory of the last mount.
    pub last_mounted: String,
    /// Last mount.
    pub mount_time: i64,
    /// Last write.
    pub write_time: i64,
    /// Creation of the file system.
    pub mkfs_time: i64,
    /// Last full check.
    pub check_time: i64,
    /// Seconds between checks, 0 = no limit.
    pub check_interval: u32,
    /// Mounts since the last check.
    pub mount_count: u16,
    /// Mounts before a check is due; negative or 0 = no limit.
    pub max_mount_count: i16,
    /// 1 continue, 2 remount read-only, 3 panic.
    pub errors_behavior: u16,
    /// 0 Linux, 1 Hurd, 2 Masix, 3 FreeBSD, 4 Lites.
    pub creator_os: u32,
    /// User who may use reserved blocks.
    pub reserved_uid: u32,
    /// Group who may use reserved blocks.
    pub reserved_gid: u32,
    /// `s_default_mount_opts`, bits.
    pub default_mount_opts: u32,
    /// Mount options as text.
    pub mount_opts: String,
    /// `s_flags`: 1 signed hash, 2 unsigned hash, 4 test file system.
    pub flags: u32,
    /// Required extra inode size.
    pub min_extra_isize: u16,
    /// Desired extra inode size.
    pub want_extra_isize: u16,
    /// Blocks per RAID chunk.
    pub raid_stride: u16,
    /// Blocks per RAID stripe.
    pub raid_stripe_width: u32,
    /// Seconds between multiple-mount checks.
    pub mmp_interval: u16,
    /// Checksum algorithm, 1 = crc32c; 0 without sums.
    pub checksum_type: u8,
    /// The checksum as stored; 0 without metadata_csum.
    pub checksum: u32,
    /// KiB written in its lifetime.
    pub kbytes_written: u64,
    /// Clusters (blocks) of metadata, 0 = not computed.
    pub overhead_clusters: u32,
    /// Quota inodes for users, groups and projects; 0 = none.
    pub quota_inodes: [u32; 3],
    /// `lost+found`, 0 = not recorded.
    pub lost_found_ino: u32,
    /// Encryption algorithms, 0 = unused slot.
    pub encrypt_algos: [u8; 4],
    /// Character encoding of casefolded names (1 = UTF-8 12.1) and its flags.
    pub encoding: Option<(u16, u16)>,
    /// The inode that is said to hold the journal, 0 = none; without the feature has_journal a remnant.
    pub journal_inum: u32,
    /// UUID of an external journal, or of the journal's owner; all zero = none.
    pub journal_uuid: [u8; 16],
    /// Device number of an external journal.
    pub journal_dev: u32,
    /// Kind of the journal inode's backup: 1 = `journal_backup` holds it.
    pub journal_backup_type: u8,
    /// The journal inode's 60 bytes of map, then size high and low: little-endian words.
    pub journal_backup: [u32; 17],
    /// Failures recorded by drivers.
    pub errors_recorded: Option<RecordedErrors>,
    /// Whether the free-block count and descriptors are in clusters.
    pub bigalloc: bool,
}

impl SuperInfo {
    pub(super) fn parse(b: &[u8], features: &Features) -> Self {
        let casefold = features.incompat.has(Incompat::CASEFOLD);
        Self {
            revision: le32(b, sb::REV_LEVEL),
            minor_revision: le16(b, sb::MINOR_REV_LEVEL),
            label: super::text(&bytes::<16>(b, sb::VOLUME_NAME)),
            last_mounted: super::text(&bytes::<64>(b, sb::LAST_MOUNTED)),
            mount_time: time(b, sb::MTIME, sb::MTIME_HI),
            write_time: time(b, sb::WTIME, sb::WTIME_HI),
            mkfs_time: time(b, sb::MKFS_TIME, sb::MKFS_TIME_HI),
            check_time: time(b, sb::LASTCHECK, sb::LASTCHECK_HI),
            check_interval: le32(b, sb::CHECKINTERVAL),
            mount_count: le16(b, sb::MNT_COUNT),
            max_mount_count: i16::from_le_bytes(bytes(b, sb::MAX_MNT_COUNT)),
            errors_behavior: le16(b, sb::ERRORS),
            creator_os: le32(b, sb::CREATOR_OS),
            reserved_uid: u32::from(le16(b, sb::DEF_RESUID))
                | u32::from(le16(b, sb::DEF_RESUID_HI)) << 16,
            reserved_gid: u32::from(le16(b, sb::DEF_RESGID))
                | u32::from(le16(b, sb::DEF_RESGID_HI)) << 16,
            default_mount_opts: le32(b, sb::DEFAULT_MOUNT_OPTS),
            mount_opts: super::text(&bytes::<64>(b, sb::MOUNT_OPTS)),
            flags: le32(b, sb::FLAGS),
            min_extra_isize: le16(b, sb::MIN_EXTRA_ISIZE),
            want_extra_isize: le16(b, sb::WANT_EXTRA_ISIZE),
            raid_stride: le16(b, sb::RAID_STRIDE),
            raid_stripe_width: le32(b, sb::RAID_STRIPE_WIDTH),
            mmp_interval: le16(b, sb::MMP_INTERVAL),
            checksum_type: u8_at(b, sb::CHECKSUM_TYPE),
            checksum: le32(b, sb::CHECKSUM),
            kbytes_written: le64(b, sb::KBYTES_WRITTEN),
            overhead_clusters: le32(b, sb::OVERHEAD_CLUSTERS),
            quota_inodes: [
                le32(b, sb::USR_QUOTA_INUM),
                le32(b, sb::GRP_QUOTA_INUM),
                le32(b, sb::PRJ_QUOTA_INUM),
            ],
            lost_found_ino: le32(b, sb::LPF_INO),
            encrypt_algos: bytes(b, sb::ENCRYPT_ALGOS),
            encoding: casefold.then(|| (le16(b, sb::ENCODING), le16(b, sb::ENCODING_FLAGS))),
            journal_inum: le32(b, sb::JOURNAL_INUM),
            journal_uuid: bytes(b, sb::JOURNAL_UUID),
            journal_dev: le32(b, sb::JOURNAL_DEV),
            journal_backup_type: u8_at(b, sb::JNL_BACKUP_TYPE),
            journal_backup: journal_backup(b),
            errors_recorded: errors(b),
            bigalloc: features.ro_compat.has(RoCompat::BIGALLOC),
        }
    }
}

/// A time of 32 bits with 8 higher bits in another field.
fn time(b: &[u8], lo: usize, hi: usize) -> i64 {
    i64::from(le32(b, lo)) | i64::from(u8_at(b, hi)) << 32
}

fn journal_backup(b: &[u8]) -> [u32; 17] {
    let mut words = [0u32; 17];
    for (n, word) in words.iter_mut().enumerate() {
        *word = le32(b, sb::JNL_BLOCKS.saturating_add(n.saturating_mul(4)));
    }
    words
}

fn errors(b: &[u8]) -> Option<RecordedErrors> {
    let count = le32(b, sb::ERROR_COUNT);
    let first = ErrorRecord {
        time: time(b, sb::FIRST_ERROR_TIME, sb::FIRST_ERROR_TIME_HI),
        ino: le32(b, sb::FIRST_ERROR_INO),
        block: le64(b, sb::FIRST_ERROR_BLOCK),
        function: function(b, sb::FIRST_ERROR_FUNC),
        line: le32(b, sb::FIRST_ERROR_LINE),
        code: u8_at(b, sb::FIRST_ERROR_ERRCODE),
    };
    let last = ErrorRecord {
        time: time(b, sb::LAST_ERROR_TIME, sb::LAST_ERROR_TIME_HI),
        ino: le32(b, sb::LAST_ERROR_INO),
        block: le64(b, sb::LAST_ERROR_BLOCK),
        function: function(b, sb::LAST_ERROR_FUNC),
        line: le32(b, sb::LAST_ERROR_LINE),
        code: u8_at(b, sb::LAST_ERROR_ERRCODE),
    };
    (count != 0).then_some(RecordedErrors { count, first, last })
}

fn function(b: &[u8], at: usize) -> String {
    String::from_utf8_lossy(&c_bytes(&bytes::<32>(b, at))).into_owned()
}
