//! Every on-disk structure: the offset and size of each field in bytes, checked at compile time.
//! Input: nothing. Output: constants for the parsers. Invariant: in each list every field starts where the one before it ends,
//! and the last one ends at the structure's size, so a mistake does not compile. Source: the kernel's ext4 and jbd2
//! documentation (Documentation/filesystems/ext4/*.rst, journal.rst); for usage files, the source that `quota` names.
#![allow(dead_code)] // fields that only later writing needs are part of the list

/// Whether the fields cover 0..`size` without gaps.
const fn packed(fields: &[(usize, usize)], size: usize) -> bool {
    let mut at = 0usize;
    let mut rest = fields;
    while let [(offset, len), tail @ ..] = rest {
        if *offset != at {
            return false;
        }
        at = match at.checked_add(*len) {
            Some(v) => v,
            None => return false,
        };
        rest = tail;
    }
    at == size
}

macro_rules! layout {
    ($(#[$doc:meta])* $module:ident: $size:literal; $($field:ident @ $off:literal + $len:literal,)*) => {
        $(#[$doc])*
        pub(crate) mod $module {
            pub(crate) const SIZE: usize = $size;
            $(pub(crate) const $field: usize = $off;)*
            const _: () = assert!(super::packed(&[$(($off, $len)),*], $size), concat!("layout of ", stringify!($module)));
        }
    };
}

layout! {
    /// The superblock, 1,024 bytes from the start of the volume.
    sb: 0x400;
    INODES_COUNT @ 0x0 + 4, BLOCKS_COUNT_LO @ 0x4 + 4, R_BLOCKS_COUNT_LO @ 0x8 + 4,
    FREE_BLOCKS_COUNT_LO @ 0xC + 4, FREE_INODES_COUNT @ 0x10 + 4, FIRST_DATA_BLOCK @ 0x14 + 4,
    LOG_BLOCK_SIZE @ 0x18 + 4, LOG_CLUSTER_SIZE @ 0x1C + 4, BLOCKS_PER_GROUP @ 0x20 + 4,
    CLUSTERS_PER_GROUP @ 0x24 + 4, INODES_PER_GROUP @ 0x28 + 4, MTIME @ 0x2C + 4, WTIME @ 0x30 + 4,
    MNT_COUNT @ 0x34 + 2, MAX_MNT_COUNT @ 0x36 + 2, MAGIC @ 0x38 + 2, STATE @ 0x3A + 2, ERRORS @ 0x3C + 2,
    MINOR_REV_LEVEL @ 0x3E + 2, LASTCHECK @ 0x40 + 4, CHECKINTERVAL @ 0x44 + 4, CREATOR_OS @ 0x48 + 4,
    REV_LEVEL @ 0x4C + 4, DEF_RESUID @ 0x50 + 2, DEF_RESGID @ 0x52 + 2, FIRST_INO @ 0x54 + 4,
    INODE_SIZE @ 0x58 + 2, BLOCK_GROUP_NR @ 0x5A + 2, FEATURE_COMPAT @ 0x5C + 4,
    FEATURE_INCOMPAT @ 0x60 + 4, FEATURE_RO_COMPAT @ 0x64 + 4, UUID @ 0x68 + 16, VOLUME_NAME @ 0x78 + 16,
    LAST_MOUNTED @ 0x88 + 64, ALGORITHM_USAGE_BITMAP @ 0xC8 + 4, PREALLOC_BLOCKS @ 0xCC + 1,
    PREALLOC_DIR_BLOCKS @ 0xCD + 1, RESERVED_GDT_BLOCKS @ 0xCE + 2, JOURNAL_UUID @ 0xD0 + 16,
    JOURNAL_INUM @ 0xE0 + 4, JOURNAL_DEV @ 0xE4 + 4, LAST_ORPHAN @ 0xE8 + 4, HASH_SEED @ 0xEC + 16,
    DEF_HASH_VERSION @ 0xFC + 1, JNL_BACKUP_TYPE @ 0xFD + 1, DESC_SIZE @ 0xFE + 2,
    DEFAULT_MOUNT_OPTS @ 0x100 + 4, FIRST_META_BG @ 0x104 + 4, MKFS_TIME @ 0x108 + 4,
    JNL_BLOCKS @ 0x10C + 68, BLOCKS_COUNT_HI @ 0x150 + 4, R_BLOCKS_COUNT_HI @ 0x154 + 4,
    FREE_BLOCKS_COUNT_HI @ 0x158 + 4, MIN_EXTRA_ISIZE @ 0x15C + 2, WANT_EXTRA_ISIZE @ 0x15E + 2,
    FLAGS @ 0x160 + 4, RAID_STRIDE @ 0x164 + 2, MMP_INTERVAL @ 0x166 + 2, MMP_BLOCK @ 0x168 + 8,
    RAID_STRIPE_WIDTH @ 0x170 + 4, LOG_GROUPS_PER_FLEX @ 0x174 + 1, CHECKSUM_TYPE @ 0x175 + 1,
    ENCRYPTION_LEVEL @ 0x176 + 1, RESERVED_PAD @ 0x177 + 1, KBYTES_WRITTEN @ 0x178 + 8,
    SNAPSHOT_INUM @ 0x180 + 4, SNAPSHOT_ID @ 0x184 + 4, SNAPSHOT_R_BLOCKS_COUNT @ 0x188 + 8,
    SNAPSHOT_LIST @ 0x190 + 4, ERROR_COUNT @ 0x194 + 4, FIRST_ERROR_TIME @ 0x198 + 4,
    FIRST_ERROR_INO @ 0x19C + 4, FIRST_ERROR_BLOCK @ 0x1A0 + 8, FIRST_ERROR_FUNC @ 0x1A8 + 32,
    FIRST_ERROR_LINE @ 0x1C8 + 4, LAST_ERROR_TIME @ 0x1CC + 4, LAST_ERROR_INO @ 0x1D0 + 4,
    LAST_ERROR_LINE @ 0x1D4 + 4, LAST_ERROR_BLOCK @ 0x1D8 + 8, LAST_ERROR_FUNC @ 0x1E0 + 32,
    MOUNT_OPTS @ 0x200 + 64, USR_QUOTA_INUM @ 0x240 + 4, GRP_QUOTA_INUM @ 0x244 + 4,
    OVERHEAD_CLUSTERS @ 0x248 + 4, BACKUP_BGS @ 0x24C + 8, ENCRYPT_ALGOS @ 0x254 + 4,
    ENCRYPT_PW_SALT @ 0x258 + 16, LPF_INO @ 0x268 + 4, PRJ_QUOTA_INUM @ 0x26C + 4,
    CHECKSUM_SEED @ 0x270 + 4, WTIME_HI @ 0x274 + 1, MTIME_HI @ 0x275 + 1, MKFS_TIME_HI @ 0x276 + 1,
    LASTCHECK_HI @ 0x277 + 1, FIRST_ERROR_TIME_HI @ 0x278 + 1, LAST_ERROR_TIME_HI @ 0x279 + 1,
    FIRST_ERROR_ERRCODE @ 0x27A + 1, LAST_ERROR_ERRCODE @ 0x27B + 1, ENCODING @ 0x27C + 2,
    ENCODING_FLAGS @ 0x27E + 2, ORPHAN_FILE_INUM @ 0x280 + 4, DEF_RESUID_HI @ 0x284 + 2,
    DEF_RESGID_HI @ 0x286 + 2, RESERVED @ 0x288 + 372, CHECKSUM @ 0x3FC + 4,
}

layout! {
    /// A group descriptor; without the 64bit feature only the first 32 bytes.
    gd: 0x40;
    BLOCK_BITMAP_LO @ 0x0 + 4, INODE_BITMAP_LO @ 0x4 + 4, INODE_TABLE_LO @ 0x8 + 4,
    FREE_BLOCKS_COUNT_LO @ 0xC + 2, FREE_INODES_COUNT_LO @ 0xE + 2, USED_DIRS_COUNT_LO @ 0x10 + 2,
    FLAGS @ 0x12 + 2, EXCLUDE_BITMAP_LO @ 0x14 + 4, BLOCK_BITMAP_CSUM_LO @ 0x18 + 2,
    INODE_BITMAP_CSUM_LO @ 0x1A + 2, ITABLE_UNUSED_LO @ 0x1C + 2, CHECKSUM @ 0x1E + 2,
    BLOCK_BITMAP_HI @ 0x20 + 4, INODE_BITMAP_HI @ 0x24 + 4, INODE_TABLE_HI @ 0x28 + 4,
    FREE_BLOCKS_COUNT_HI @ 0x2C + 2, FREE_INODES_COUNT_HI @ 0x2E + 2, USED_DIRS_COUNT_HI @ 0x30 + 2,
    ITABLE_UNUSED_HI @ 0x32 + 2, EXCLUDE_BITMAP_HI @ 0x34 + 4, BLOCK_BITMAP_CSUM_HI @ 0x38 + 2,
    INODE_BITMAP_CSUM_HI @ 0x3A + 2, RESERVED @ 0x3C + 4,
}

layout! {
    /// An inode; on volumes with 128-byte inodes only the first 128 bytes.
    inode: 0xA0;
    MODE @ 0x0 + 2, UID_LO @ 0x2 + 2, SIZE_LO @ 0x4 + 4, ATIME @ 0x8 + 4, CTIME @ 0xC + 4, MTIME @ 0x10 + 4,
    DTIME @ 0x14 + 4, GID_LO @ 0x18 + 2, LINKS_COUNT @ 0x1A + 2, BLOCKS_LO @ 0x1C + 4, FLAGS @ 0x20 + 4,
    VERSION_LO @ 0x24 + 4, BLOCK @ 0x28 + 60, GENERATION @ 0x64 + 4, FILE_ACL_LO @ 0x68 + 4,
    SIZE_HIGH @ 0x6C + 4, OBSO_FADDR @ 0x70 + 4, BLOCKS_HIGH @ 0x74 + 2, FILE_ACL_HIGH @ 0x76 + 2,
    UID_HIGH @ 0x78 + 2, GID_HIGH @ 0x7A + 2, CHECKSUM_LO @ 0x7C + 2, RESERVED @ 0x7E + 2,
    EXTRA_ISIZE @ 0x80 + 2, CHECKSUM_HI @ 0x82 + 2, CTIME_EXTRA @ 0x84 + 4, MTIME_EXTRA @ 0x88 + 4,
    ATIME_EXTRA @ 0x8C + 4, CRTIME @ 0x90 + 4, CRTIME_EXTRA @ 0x94 + 4, VERSION_HI @ 0x98 + 4,
    PROJID @ 0x9C + 4,
}

layout! {
    /// The header of every node of an extent tree.
    eh: 12;
    MAGIC @ 0 + 2, ENTRIES @ 2 + 2, MAX @ 4 + 2, DEPTH @ 6 + 2, GENERATION @ 8 + 4,
}

layout! {
    /// An index entry of an extent tree.
    ei: 12;
    BLOCK @ 0 + 4, LEAF_LO @ 4 + 4, LEAF_HI @ 8 + 2, UNUSED @ 10 + 2,
}

layout! {
    /// An extent.
    ee: 12;
    BLOCK @ 0 + 4, LEN @ 4 + 2, START_HI @ 6 + 2, START_LO @ 8 + 4,
}

layout! {
    /// The fixed part of a directory entry; the name follows.
    de: 8;
    INODE @ 0 + 4, REC_LEN @ 4 + 2, NAME_LEN @ 6 + 1, FILE_TYPE @ 7 + 1,
}

layout! {
    /// The checksum record at the end of a directory block.
    de_tail: 12;
    ZERO_INODE @ 0 + 4, REC_LEN @ 4 + 2, ZERO_NAME_LEN @ 6 + 1, FILE_TYPE @ 7 + 1, CHECKSUM @ 8 + 4,
}

layout! {
    /// The root of a hashed directory, up to its entries.
    dx_root: 0x28;
    DOT @ 0x0 + 12, DOTDOT @ 0xC + 12, RESERVED_ZERO @ 0x18 + 4, HASH_VERSION @ 0x1C + 1,
    INFO_LENGTH @ 0x1D + 1, INDIRECT_LEVELS @ 0x1E + 1, UNUSED_FLAGS @ 0x1F + 1, LIMIT @ 0x20 + 2,
    COUNT @ 0x22 + 2, BLOCK @ 0x24 + 4,
}

layout! {
    /// An inner node of a hashed directory, up to its entries.
    dx_node: 0x10;
    FAKE @ 0x0 + 8, LIMIT @ 0x8 + 2, COUNT @ 0xA + 2, BLOCK @ 0xC + 4,
}

layout! {
    /// The checksum record after the last possible entry of a hashed directory's node.
    dx_tail: 8;
    RESERVED @ 0 + 4, CHECKSUM @ 4 + 4,
}

layout! {
    /// The header of an extended-attribute block.
    xh: 32;
    MAGIC @ 0 + 4, REFCOUNT @ 4 + 4, BLOCKS @ 8 + 4, HASH @ 12 + 4, CHECKSUM @ 16 + 4, RESERVED @ 20 + 12,
}

layout! {
    /// The fixed part of an extended-attribute entry; the name follows.
    xe: 16;
    NAME_LEN @ 0 + 1, NAME_INDEX @ 1 + 1, VALUE_OFFS @ 2 + 2, VALUE_INUM @ 4 + 4, VALUE_SIZE @ 8 + 4,
    HASH @ 12 + 4,
}

layout! {
    /// The jbd2 journal superblock, big-endian.
    jsb: 0x400;
    MAGIC @ 0x0 + 4, BLOCKTYPE @ 0x4 + 4, HEADER_SEQUENCE @ 0x8 + 4, BLOCKSIZE @ 0xC + 4, MAXLEN @ 0x10 + 4,
    FIRST @ 0x14 + 4, SEQUENCE @ 0x18 + 4, START @ 0x1C + 4, ERRNO @ 0x20 + 4, FEATURE_COMPAT @ 0x24 + 4,
    FEATURE_INCOMPAT @ 0x28 + 4, FEATURE_RO_COMPAT @ 0x2C + 4, UUID @ 0x30 + 16, NR_USERS @ 0x40 + 4,
    DYNSUPER @ 0x44 + 4, MAX_TRANSACTION @ 0x48 + 4, MAX_TRANS_DATA @ 0x4C + 4, CHECKSUM_TYPE @ 0x50 + 1,
    PADDING2 @ 0x51 + 3, NUM_FC_BLKS @ 0x54 + 4, HEAD @ 0x58 + 4, PADDING @ 0x5C + 160, CHECKSUM @ 0xFC + 4,
    USERS @ 0x100 + 768,
}

layout! {
    /// The record at the end of each block of the orphan file.
    orphan_tail: 8;
    MAGIC @ 0 + 4, CHECKSUM @ 4 + 4,
}

layout! {
    /// The beginning of a usage file of quotas.
    quota_header: 32;
    MAGIC @ 0 + 4, VERSION @ 4 + 4, SETTINGS @ 8 + 12, BLOCKS @ 20 + 4,
    FREE_BLOCK @ 24 + 4, FREE_ENTRY @ 28 + 4,
}

layout! {
    /// The head of a block of entries in a usage file.
    quota_data: 16;
    LISTS @ 0 + 8, ENTRIES @ 8 + 2, REST @ 10 + 6,
}

layout! {
    /// An entry of a usage file.
    quota_entry: 72;
    ID @ 0 + 4, INODE_SETTINGS @ 4 + 20, CUR_INODES @ 24 + 8, SPACE_SETTINGS @ 32 + 16, CUR_SPACE @ 48 + 8, TIMES @ 56 + 16,
}

layout! {
    /// The multiple-mount-protection block.
    mmp: 0x400;
    MAGIC @ 0x0 + 4, SEQ @ 0x4 + 4, TIME @ 0x8 + 8, NODENAME @ 0x10 + 64, BDEVNAME @ 0x50 + 32,
    CHECK_INTERVAL @ 0x70 + 2, PAD1 @ 0x72 + 2, PAD2 @ 0x74 + 904, CHECKSUM @ 0x3FC + 4,
}
