//! The superblock of a new file system.
//! Input: [`NewSuper`], whose numbers the maker of the file system has chosen. Output: the 1,024 bytes, sealed. Invariant: a field
//! that is not in [`NewSuper`] has the value that a new file system has: clean, never mounted, no errors. Limit: nothing is judged
//! here; [`super::Superblock::parse`] judges the result, as it does every superblock.
//! Source: the kernel's ext4 documentation, "super block"; fields compared with `dumpe2fs -h` of what mke2fs makes, in tests.

use crate::features::{Compat, Features, Incompat, RoCompat};
use crate::inode::Inode;
use crate::layout::sb;
use crate::le::{le32, put, put_le16, put_le32, put_le64};
use crate::num;
use crate::types::{FsBlock, Ino};

use super::{HashSettings, STATE_ERROR, STATE_VALID, SUPERBLOCK_SIZE, SuperblockEdit};

/// The numbers of a new file system. Those for which 0 says "none" say so; the others are required.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSuper {
    /// Feature bits.
    pub features: Features,
    /// 0 has no features and 128-byte inodes; 1 is what everybody uses.
    pub revision: u32,
    /// log2 of the block size, 10..=16.
    pub block_bits: u32,
    /// log2 of the cluster size; the block size's without bigalloc.
    pub cluster_bits: u32,
    /// Blocks of the file system.
    pub blocks_count: u64,
    /// Blocks that only root may use.
    pub reserved_blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// 1 with blocks of 1 KiB and no bigalloc, 0 otherwise.
    pub first_data_block: u32,
    /// Blocks per group, a multiple of 8.
    pub blocks_per_group: u32,
    /// Number of groups.
    pub group_count: u32,
    /// Inodes per group, a multiple of 8.
    pub inodes_per_group: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Bytes per inode.
    pub inode_size: u16,
    /// Bytes per group descriptor with 64bit.
    pub desc_size: u16,
    /// Blocks kept for more descriptors; 0 = none.
    pub reserved_gdt_blocks: u16,
    /// log2 of the groups in a flexible group; 0 = none.
    pub flex_bits: u8,
    /// The first group with distributed descriptors (meta_bg); 0 = all.
    pub first_meta_bg: u32,
    /// Groups with backups (sparse_super2); 0 = none.
    pub backup_groups: [u32; 2],
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// Seed of the checksums (metadata_csum_seed).
    pub csum_seed: u32,
    /// How names are hashed.
    pub hash: HashSettings,
    /// Label, filled up with zeros.
    pub label: [u8; 16],
    /// Directory of the last mount, filled up with zeros.
    pub last_mounted: [u8; 64],
    /// When it is made, in seconds since 1970.
    pub time: i64,
    /// 1 continue, 2 remount read-only, 3 panic.
    pub errors_behavior: u16,
    /// Mounts after which a check is due, and seconds; none: never.
    pub checks: Option<(u16, u32)>,
    /// 0 Linux, 1 Hurd, 2 Masix, 3 FreeBSD, 4 Lites.
    pub creator_os: u32,
    /// `s_default_mount_opts`, bits.
    pub default_mount_opts: u32,
    /// Bytes of extra fields that every inode has and that a new one gets; 0 with 128-byte inodes.
    pub extra_isize: u16,
    /// Blocks per RAID chunk; 0 = unknown.
    pub raid_stride: u16,
    /// Blocks per RAID stripe; 0 = unknown.
    pub raid_stripe_width: u32,
    /// Seconds between multiple-mount checks (mmp).
    pub mmp_interval: u16,
    /// Block of multiple-mount protection; 0 = none.
    pub mmp_block: FsBlock,
    /// The journal's inode; 0 = none, or on a device of its own.
    pub journal: Ino,
    /// Copy of the journal inode's map, and its size, high and low.
    pub journal_backup: [u32; 17],
    /// UUID of a journal on a device of its own; zeros = none.
    pub journal_uuid: [u8; 16],
    /// The number that this device has on its host; 0 = unknown.
    pub journal_device: u32,
    /// The orphan file; 0 = none.
    pub orphan_file: Ino,
    /// The usage files of users, groups and projects (quota); 0 = none.
    pub quota_files: [Ino; 3],
    /// Clusters of metadata.
    pub overhead_clusters: u32,
    /// KiB written so far.
    pub kbytes_written: u64,
    /// Character encoding of case-insensitive names (casefold) and its flags.
    pub encoding: (u16, u16),
    /// A file system for tests of drivers: a flag that nobody enforces.
    pub is_test: bool,
    /// Errors are recorded, so that the next check is a complete one: for a superblock over files that nobody has looked at.
    pub is_suspect: bool,
}

/// `s_jnl_backup_type`: the map of the journal's inode.
pub(super) const BACKUP_OF_MAP: u8 = 1;
/// `s_flags`.
const SIGNED_HASH: u32 = 1;
const UNSIGNED_HASH: u32 = 2;
const TEST_FS: u32 = 4;
/// `s_encrypt_algos`: AES-256 for contents and for names.
pub(super) const ENCRYPT_ALGOS: [u8; 2] = [1, 4];
const CRC32C: u8 = 1;

impl NewSuper {
    /// Keeps a copy of the map of the journal's inode, and of its size.
    pub fn back_up_journal(&mut self, inode: &Inode) {
        let map = inode.i_block.chunks_exact(4).map(|word| le32(word, 0));
        let (high, low) = num::split(inode.size);
        let words = map.chain([high, low]);
        for (own, word) in self.journal_backup.iter_mut().zip(words) {
            *own = word;
        }
    }

    /// The bytes of the primary superblock.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_SIZE] {
        self.encode_copy(0)
    }

    /// The bytes of the copy in `group`, which differ in the number of the group alone.
    #[must_use]
    pub fn encode_copy(&self, group: u32) -> [u8; SUPERBLOCK_SIZE] {
        let mut raw = [0; SUPERBLOCK_SIZE];
        let b = raw.as_mut_slice();
        put_le16(b, sb::MAGIC, super::MAGIC);
        let errors = if self.is_suspect { STATE_ERROR } else { 0 };
        put_le16(b, sb::STATE, STATE_VALID | errors);
        // -1: no number of mounts makes a check due.
        let (mounts, seconds) = self.checks.unwrap_or((u16::MAX, 0));
        put_le16(b, sb::MAX_MNT_COUNT, mounts);
        put_le32(b, sb::CHECKINTERVAL, seconds);
        put_le16(b, sb::ERRORS, self.errors_behavior);
        put_le32(b, sb::CREATOR_OS, self.creator_os);
        put_le32(b, sb::REV_LEVEL, self.revision);
        self.put_counts(b);
        self.put_times(b);
        if self.revision > 0 {
            put_le16(b, sb::BLOCK_GROUP_NR, num::low16(group));
            self.put_dynamic(b);
        }
        put(b, sb::UUID, &self.uuid);
        put(b, sb::VOLUME_NAME, &self.label);
        put(b, sb::LAST_MOUNTED, &self.last_mounted);
        put_le32(b, sb::DEFAULT_MOUNT_OPTS, self.default_mount_opts);
        self.put_hash(b);
        self.put_journal(b);
        SuperblockEdit::new(&mut raw).seal();
        raw
    }

    fn put_counts(&self, b: &mut [u8]) {
        let inodes = self.inodes_per_group.saturating_mul(self.group_count);
        put_le32(b, sb::INODES_COUNT, inodes);
        put_le32(b, sb::FREE_INODES_COUNT, self.free_inodes);
        for (value, lo, hi) in [
            (self.blocks_count, sb::BLOCKS_COUNT_LO, sb::BLOCKS_COUNT_HI),
            (
                self.reserved_blocks,
                sb::R_BLOCKS_COUNT_LO,
                sb::R_BLOCKS_COUNT_HI,
            ),
            (
                self.free_blocks,
                sb::FREE_BLOCKS_COUNT_LO,
                sb::FREE_BLOCKS_COUNT_HI,
            ),
        ] {
            let (high, low) = num::split(value);
            put_le32(b, lo, low);
            if self.features.incompat.has(Incompat::BIT64) {
                put_le32(b, hi, high);
            }
        }
        let ratio = self.cluster_bits.saturating_sub(self.block_bits);
        let clusters = self.blocks_per_group.checked_shr(ratio).unwrap_or(0);
        put_le32(b, sb::FIRST_DATA_BLOCK, self.first_data_block);
        put_le32(b, sb::LOG_BLOCK_SIZE, self.block_bits.saturating_sub(10));
        put_le32(
            b,
            sb::LOG_CLUSTER_SIZE,
            self.cluster_bits.saturating_sub(10),
        );
        put_le32(b, sb::BLOCKS_PER_GROUP, self.blocks_per_group);
        put_le32(b, sb::CLUSTERS_PER_GROUP, clusters);
        put_le32(b, sb::INODES_PER_GROUP, self.inodes_per_group);
        put_le32(b, sb::OVERHEAD_CLUSTERS, self.overhead_clusters);
        put_le64(b, sb::KBYTES_WRITTEN, self.kbytes_written);
    }

    fn put_times(&self, b: &mut [u8]) {
        for (low, high) in [
            (sb::WTIME, sb::WTIME_HI),
            (sb::LASTCHECK, sb::LASTCHECK_HI),
            (sb::MKFS_TIME, sb::MKFS_TIME_HI),
        ] {
            super::edit::put_time(b, low, high, self.time);
        }
    }

    fn put_dynamic(&self, b: &mut [u8]) {
        put_le32(b, sb::FIRST_INO, super::edit::OLD_FIRST_INO);
        put_le16(b, sb::INODE_SIZE, self.inode_size);
        put_le32(b, sb::FEATURE_COMPAT, self.features.compat.bits());
        put_le32(b, sb::FEATURE_INCOMPAT, self.features.incompat.bits());
        put_le32(b, sb::FEATURE_RO_COMPAT, self.features.ro_compat.bits());
        put_le16(b, sb::RESERVED_GDT_BLOCKS, self.reserved_gdt_blocks);
        if self.features.incompat.has(Incompat::BIT64) {
            put_le16(b, sb::DESC_SIZE, self.desc_size);
        }
        put_le32(b, sb::FIRST_META_BG, self.first_meta_bg);
        for (at, group) in [0, 4].into_iter().zip(self.backup_groups) {
            put_le32(b, sb::BACKUP_BGS.saturating_add(at), group);
        }
        put_le16(b, sb::MIN_EXTRA_ISIZE, self.extra_isize);
        put_le16(b, sb::WANT_EXTRA_ISIZE, self.extra_isize);
        put_le16(b, sb::RAID_STRIDE, self.raid_stride);
        put_le32(b, sb::RAID_STRIPE_WIDTH, self.raid_stripe_width);
        put(b, sb::LOG_GROUPS_PER_FLEX, &[self.flex_bits]);
        put_le16(b, sb::MMP_INTERVAL, self.mmp_interval);
        put_le64(b, sb::MMP_BLOCK, self.mmp_block.get());
        put_le32(b, sb::ORPHAN_FILE_INUM, self.orphan_file.get());
        let places = [sb::USR_QUOTA_INUM, sb::GRP_QUOTA_INUM, sb::PRJ_QUOTA_INUM];
        for (at, ino) in places.into_iter().zip(self.quota_files) {
            put_le32(b, at, ino.get());
        }
        if self.features.ro_compat.has(RoCompat::METADATA_CSUM) {
            put(b, sb::CHECKSUM_TYPE, &[CRC32C]);
        }
        if self.features.incompat.has(Incompat::CSUM_SEED) {
            put_le32(b, sb::CHECKSUM_SEED, self.csum_seed);
        }
        if self.features.incompat.has(Incompat::ENCRYPT) {
            put(b, sb::ENCRYPT_ALGOS, &ENCRYPT_ALGOS);
        }
        if self.features.incompat.has(Incompat::CASEFOLD) {
            put_le16(b, sb::ENCODING, self.encoding.0);
            put_le16(b, sb::ENCODING_FLAGS, self.encoding.1);
        }
    }

    fn put_hash(&self, b: &mut [u8]) {
        for (n, word) in self.hash.seed.iter().enumerate() {
            let at = sb::HASH_SEED.saturating_add(n.saturating_mul(4));
            put_le32(b, at, *word);
        }
        put(b, sb::DEF_HASH_VERSION, &[self.hash.default_version]);
        let hash = match self.hash.unsigned_chars {
            true => UNSIGNED_HASH,
            false => SIGNED_HASH,
        };
        let test = if self.is_test { TEST_FS } else { 0 };
        put_le32(b, sb::FLAGS, hash | test);
    }

    fn put_journal(&self, b: &mut [u8]) {
        if !self.features.compat.has(Compat::HAS_JOURNAL) {
            return;
        }
        put(b, sb::JOURNAL_UUID, &self.journal_uuid);
        put_le32(b, sb::JOURNAL_DEV, self.journal_device);
        put_le32(b, sb::JOURNAL_INUM, self.journal.get());
        if !self.journal.is_none() {
            put(b, sb::JNL_BACKUP_TYPE, &[BACKUP_OF_MAP]);
            for (n, word) in self.journal_backup.iter().enumerate() {
                let at = sb::JNL_BLOCKS.saturating_add(n.saturating_mul(4));
                put_le32(b, at, *word);
            }
        }
    }
}
