//! What a new file system is to be like.

use diorite_format::features::{Compat, Features, Incompat, RoCompat};

/// The journal of a new file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewJournal {
    /// As large as the file system makes useful; none below 2,048 blocks.
    Usual,
    /// So many blocks, 1,024 to 10,240,000.
    Blocks(u32),
    /// On a device of its own: see [`crate::mkfs_journal_device`], and [`crate::set_journal_user`], which has to follow.
    External {
        /// The UUID of that device.
        uuid: [u8; 16],
        /// Bytes of its blocks, which the volume must have too.
        block_size: u32,
        /// The number of the device on this host, as in `st_rdev` when major and minor have 8 bits; 0 = unknown.
        device: u32,
    },
}

/// Which usage files of quotas a new file system has: of users, groups and projects.
pub type QuotaTypes = [bool; 3];

/// What is to stay free beside the files of a tree: see [`crate::mkfs_sized`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headroom {
    /// So many bytes.
    Bytes(u64),
    /// So much of the space that the files take, with the maps and directories that they need.
    Percent(u32),
}

/// The choices for a new file system. [`MkfsOptions::new`] has today's defaults of mke2fs for ext4; what is `None` follows from the size.
///
/// ```
/// use diorite_mkfs::{MkfsOptions, mkfs_plan};
///
/// let options = MkfsOptions::new([1; 16], [2; 16], 1_700_000_000)
///     .block_size(4096)
///     .inodes(1000);
/// let made = mkfs_plan(1 << 30, &options)?; // nothing is written
/// assert!(made.blocks == 1 << 18 && made.inodes >= 1000);
/// # Ok::<(), diorite_mkfs::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MkfsOptions {
    /// Feature bits. `has_journal`: see `journal`.
    pub features: Features,
    /// 0 has no features and 128-byte inodes; 1 is what everybody uses.
    pub revision: u32,
    /// Bytes of the file system, rounded down to blocks; `None`: as many as the device has.
    pub bytes: Option<u64>,
    /// 1,024 to 65,536 bytes; `None`: 1,024 below 512 MiB, otherwise 4,096.
    pub block_size: Option<u32>,
    /// Bytes of a cluster with bigalloc; `None`: 16 blocks.
    pub cluster_size: Option<u32>,
    /// Blocks per group; `None`: as many as one bitmap block describes.
    pub blocks_per_group: Option<u32>,
    /// Groups whose bitmaps and inode tables lie together (flex_bg), a power of two.
    pub groups_per_flex: u32,
    /// Bitmaps and inode tables of all groups lie at the start of the volume, with flex_bg; without it nothing changes.
    pub packed_meta_blocks: bool,
    /// Bytes of a group descriptor with 64bit: a power of two, 64 up to the block size and 1,024; `None`: 64.
    pub desc_size: Option<u16>,
    /// Bytes of an inode: a power of two, 128 up to the block size.
    pub inode_size: u16,
    /// Bytes of the volume per inode; `None`: 4,096 below 512 MiB (8,192 below 3 MiB), 32,768 from 4 TiB, 65,536 from 16 TiB, otherwise
    /// 16,384; a block or cluster at least.
    pub inode_ratio: Option<u64>,
    /// Inodes beyond those of the tree's files, at least, where their number follows from a ratio.
    pub spare_inodes: u64,
    /// [`crate::mkfs_sized`] adds a spare inode for so many bytes of headroom, unless `inodes` or `inode_ratio` says how many there are.
    pub headroom_ratio: u64,
    /// Number of inodes, in place of a ratio, which gives at least as many as there are files; rounded up to whole blocks of inode tables.
    pub inodes: Option<u32>,
    /// Percentage of the blocks that only root may use, 0 to 50.
    pub reserved_percent: f64,
    /// The size up to which descriptors can grow in place, in blocks (resize_inode); `None`: 1,024 times the size.
    pub resize_limit: Option<u64>,
    /// Number of superblock backups with sparse_super2, 0 to 2.
    pub backups: u32,
    /// The journal, if `features` has one.
    pub journal: NewJournal,
    /// Where the journal's space is looked for first, in blocks; `None`: behind the inode tables.
    pub journal_at: Option<u64>,
    /// Blocks for fast commits, if `features` has them; `None` or 0: a 64th of what the journal usually has.
    pub fast_commit_blocks: Option<u32>,
    /// Blocks of the orphan file, if `features` has one; `None`: by the size, 32 to 512.
    pub orphan_file_blocks: Option<u32>,
    /// The usage files, if `features` has `quota`; `None`: of users and groups, and with `project` of projects.
    pub quota_types: Option<QuotaTypes>,
    /// Blocks that are never used, since they cannot be relied on: inode 1 gets them.
    pub bad_blocks: Vec<u64>,
    /// Owner and group of the root directory.
    pub root_owner: (u32, u32),
    /// Permissions of the root directory.
    pub root_mode: u16,
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// Seed of the hashes of names, as a UUID.
    pub hash_seed: [u8; 16],
    /// Hash of names in directories: 0 legacy, 1 half MD4, 2 TEA.
    pub hash_version: u8,
    /// Label, filled up with zeros.
    pub label: [u8; 16],
    /// The directory shown as that of the last mount, filled up with zeros.
    pub last_mounted: [u8; 64],
    /// When it is made, in seconds since 1970: the time of all that is in it.
    pub time: i64,
    /// After an error: 1 continue, 2 remount read-only, 3 panic.
    pub errors_behavior: u16,
    /// Mounts after which a check is due, and seconds; `None`: never.
    pub checks: Option<(u16, u32)>,
    /// 0 Linux, 1 Hurd, 2 Masix, 3 FreeBSD, 4 Lites.
    pub creator_os: u32,
    /// `s_default_mount_opts`, bits.
    pub default_mount_opts: u32,
    /// Blocks per RAID chunk; 0 = unknown.
    pub raid_stride: u16,
    /// Blocks per RAID stripe; 0 = unknown.
    pub raid_stripe_width: u32,
    /// Seconds between updates of multiple-mount protection (mmp).
    pub mmp_interval: u16,
    /// The host and the device that multiple-mount protection names, in 64 and 32 bytes at most; empty: the same bytes on every host.
    pub mmp_names: (String, String),
    /// Character encoding of names (casefold): 1 = UTF-8 12.1; and whether others are refused (bit 0).
    pub encoding: (u16, u16),
    /// Marks a file system for tests of drivers.
    pub is_test: bool,
    /// Inode tables are zeroed now, and not by a driver later. What the device has as holes is zero already.
    pub zero_tables: bool,
    /// The device is asked to forget what it holds, if it can.
    pub discard: bool,
    /// The device has nothing but zeros, as a new file has, even if it cannot tell where its holes are.
    pub is_new: bool,
}

/// `user_xattr` and `acl`.
const DEFAULT_MOUNT_OPTS: u32 = 0x4 | 0x8;

impl MkfsOptions {
    /// ext4 with today's defaults of mke2fs. UUID and hash seed are random numbers of the caller's, the time is in seconds since 1970: the
    /// same three make the same file system.
    #[must_use]
    pub fn new(uuid: [u8; 16], hash_seed: [u8; 16], time: i64) -> MkfsOptions {
        MkfsOptions {
            features: MkfsOptions::ext4(),
            revision: 1,
            bytes: None,
            block_size: None,
            cluster_size: None,
            blocks_per_group: None,
            groups_per_flex: 16,
            packed_meta_blocks: false,
            desc_size: None,
            inode_size: 256,
            inode_ratio: None,
            spare_inodes: 0,
            headroom_ratio: 16 << 10,
            inodes: None,
            reserved_percent: 5.0,
            resize_limit: None,
            backups: 2,
            journal: NewJournal::Usual,
            journal_at: None,
            fast_commit_blocks: None,
            orphan_file_blocks: None,
            quota_types: None,
            bad_blocks: Vec::new(),
            root_owner: (0, 0),
            root_mode: 0o755,
            uuid,
            hash_seed,
            hash_version: 1,
            label: [0; 16],
            last_mounted: [0; 64],
            time,
            errors_behavior: 1,
            checks: None,
            creator_os: 0,
            default_mount_opts: DEFAULT_MOUNT_OPTS,
            raid_stride: 0,
            raid_stripe_width: 0,
            mmp_interval: 5,
            mmp_names: Default::default(),
            encoding: (1, 0),
            is_test: false,
            zero_tables: false,
            discard: true,
            is_new: false,
        }
    }

    /// The features of ext2: what all types have.
    #[must_use]
    pub fn ext2() -> Features {
        Features {
            compat: Compat::EXT_ATTR
                .with(Compat::RESIZE_INODE)
                .with(Compat::DIR_INDEX),
            incompat: Incompat::FILETYPE,
            ro_compat: RoCompat::SPARSE_SUPER.with(RoCompat::LARGE_FILE),
        }
    }

    /// The features of ext3: those of ext2, and a journal.
    #[must_use]
    pub fn ext3() -> Features {
        let mut features = MkfsOptions::ext2();
        features.compat = features.compat.with(Compat::HAS_JOURNAL);
        features
    }

    /// The features of ext4.
    #[must_use]
    pub fn ext4() -> Features {
        let old = MkfsOptions::ext3();
        Features {
            compat: old.compat.with(Compat::ORPHAN_FILE),
            incompat: old
                .incompat
                .with(Incompat::EXTENTS)
                .with(Incompat::BIT64)
                .with(Incompat::FLEX_BG)
                .with(Incompat::CSUM_SEED),
            ro_compat: old
                .ro_compat
                .with(RoCompat::HUGE_FILE)
                .with(RoCompat::DIR_NLINK)
                .with(RoCompat::EXTRA_ISIZE)
                .with(RoCompat::METADATA_CSUM),
        }
    }
}

diorite_block::setters! {
    MkfsOptions {
        features: Features,
        revision: u32,
        groups_per_flex: u32,
        packed_meta_blocks: bool,
        inode_size: u16,
        spare_inodes: u64,
        headroom_ratio: u64,
        reserved_percent: f64,
        backups: u32,
        journal: NewJournal,
        bad_blocks: Vec<u64>,
        root_owner: (u32, u32),
        root_mode: u16,
        uuid: [u8; 16],
        hash_seed: [u8; 16],
        hash_version: u8,
        label: [u8; 16],
        last_mounted: [u8; 64],
        time: i64,
        errors_behavior: u16,
        creator_os: u32,
        default_mount_opts: u32,
        raid_stride: u16,
        raid_stripe_width: u32,
        mmp_interval: u16,
        mmp_names: (String, String),
        encoding: (u16, u16),
        is_test: bool,
        zero_tables: bool,
        discard: bool,
        is_new: bool,
    } option {
        bytes: u64,
        block_size: u32,
        cluster_size: u32,
        blocks_per_group: u32,
        desc_size: u16,
        inode_ratio: u64,
        inodes: u32,
        resize_limit: u64,
        journal_at: u64,
        fast_commit_blocks: u32,
        orphan_file_blocks: u32,
        quota_types: QuotaTypes,
        checks: (u16, u32),
    }
}

/// Bytes per inode of mke2fs, by the size of the file system.
pub(crate) fn usual_ratio(bytes: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    const TIB: u64 = 1 << 40;
    let kib = match bytes {
        b if b < 3 * MIB => 8,
        b if b < 512 * MIB => 4,
        b if b < 4 * TIB => 16,
        b if b < 16 * TIB => 32,
        _ => 64,
    };
    kib << 10
}

/// Blocks of the journal that mke2fs chooses for a file system of so many blocks.
pub fn usual_journal(blocks: u64) -> u32 {
    match blocks {
        0..2048 => 0,
        2048..32768 => 1024,
        32768..262_144 => 4096,
        262_144..524_288 => 8192,
        524_288..4_194_304 => 16384,
        4_194_304..8_388_608 => 32768,
        8_388_608..16_777_216 => 65536,
        16_777_216..33_554_432 => 131_072,
        _ => 262_144,
    }
}
