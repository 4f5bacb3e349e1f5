//! The fields of every structure: name, offset, length in bytes.
//!
//! Input: nothing. Output: tables. Invariants: offsets are those of the kernel's ext4 documentation. Limits: reserved words are
//! listed, too, under one name.

pub(crate) type Field = (&'static str, usize, usize);

pub(crate) const SUPER: &[Field] = &[
    ("s_inodes_count", 0x0, 4),
    ("s_blocks_count_lo", 0x4, 4),
    ("s_r_blocks_count_lo", 0x8, 4),
    ("s_free_blocks_count_lo", 0xC, 4),
    ("s_free_inodes_count", 0x10, 4),
    ("s_first_data_block", 0x14, 4),
    ("s_log_block_size", 0x18, 4),
    ("s_log_cluster_size", 0x1C, 4),
    ("s_blocks_per_group", 0x20, 4),
    ("s_clusters_per_group", 0x24, 4),
    ("s_inodes_per_group", 0x28, 4),
    ("s_mtime", 0x2C, 4),
    ("s_wtime", 0x30, 4),
    ("s_mnt_count", 0x34, 2),
    ("s_max_mnt_count", 0x36, 2),
    ("s_magic", 0x38, 2),
    ("s_state", 0x3A, 2),
    ("s_errors", 0x3C, 2),
    ("s_minor_rev_level", 0x3E, 2),
    ("s_lastcheck", 0x40, 4),
    ("s_checkinterval", 0x44, 4),
    ("s_creator_os", 0x48, 4),
    ("s_rev_level", 0x4C, 4),
    ("s_def_resuid", 0x50, 2),
    ("s_first_ino", 0x54, 4),
    ("s_inode_size", 0x58, 2),
    ("s_block_group_nr", 0x5A, 2),
    ("s_feature_compat", 0x5C, 4),
    ("s_feature_incompat", 0x60, 4),
    ("s_feature_ro_compat", 0x64, 4),
    ("s_uuid", 0x68, 4),
    ("s_volume_name", 0x78, 8),
    ("s_reserved_gdt_blocks", 0xCE, 2),
    ("s_journal_uuid", 0xD0, 4),
    ("s_journal_inum", 0xE0, 4),
    ("s_journal_dev", 0xE4, 4),
    ("s_last_orphan", 0xE8, 4),
    ("s_hash_seed", 0xEC, 4),
    ("s_def_hash_version", 0xFC, 1),
    ("s_jnl_backup_type", 0xFD, 1),
    ("s_desc_size", 0xFE, 2),
    ("s_default_mount_opts", 0x100, 4),
    ("s_first_meta_bg", 0x104, 4),
    ("s_mkfs_time", 0x108, 4),
    ("s_jnl_blocks", 0x10C, 4),
    ("s_blocks_count_hi", 0x150, 4),
    ("s_r_blocks_count_hi", 0x154, 4),
    ("s_free_blocks_count_hi", 0x158, 4),
    ("s_min_extra_isize", 0x15C, 2),
    ("s_want_extra_isize", 0x15E, 2),
    ("s_flags", 0x160, 4),
    ("s_mmp_block", 0x168, 8),
    ("s_log_groups_per_flex", 0x174, 1),
    ("s_checksum_type", 0x175, 1),
    ("s_error_count", 0x194, 4),
    ("s_usr_quota_inum", 0x240, 4),
    ("s_grp_quota_inum", 0x244, 4),
    ("s_overhead_clusters", 0x248, 4),
    ("s_backup_bgs", 0x24C, 4),
    ("s_lpf_ino", 0x268, 4),
    ("s_prj_quota_inum", 0x26C, 4),
    ("s_checksum_seed", 0x270, 4),
    ("s_encoding", 0x27C, 2),
    ("s_orphan_file_inum", 0x280, 4),
    ("s_checksum", 0x3FC, 4),
];

pub(crate) const DESC: &[Field] = &[
    ("bg_block_bitmap_lo", 0x0, 4),
    ("bg_inode_bitmap_lo", 0x4, 4),
    ("bg_inode_table_lo", 0x8, 4),
    ("bg_free_blocks_count_lo", 0xC, 2),
    ("bg_free_inodes_count_lo", 0xE, 2),
    ("bg_used_dirs_count_lo", 0x10, 2),
    ("bg_flags", 0x12, 2),
    ("bg_block_bitmap_csum_lo", 0x18, 2),
    ("bg_inode_bitmap_csum_lo", 0x1A, 2),
    ("bg_itable_unused_lo", 0x1C, 2),
    ("bg_checksum", 0x1E, 2),
];

pub(crate) const DESC_64: &[Field] = &[
    ("bg_block_bitmap_hi", 0x20, 4),
    ("bg_inode_bitmap_hi", 0x24, 4),
    ("bg_inode_table_hi", 0x28, 4),
    ("bg_free_blocks_count_hi", 0x2C, 2),
    ("bg_free_inodes_count_hi", 0x2E, 2),
    ("bg_used_dirs_count_hi", 0x30, 2),
    ("bg_itable_unused_hi", 0x32, 2),
    ("bg_block_bitmap_csum_hi", 0x38, 2),
    ("bg_inode_bitmap_csum_hi", 0x3A, 2),
];

pub(crate) const INODE: &[Field] = &[
    ("i_mode", 0x0, 2),
    ("i_uid", 0x2, 2),
    ("i_size_lo", 0x4, 4),
    ("i_atime", 0x8, 4),
    ("i_ctime", 0xC, 4),
    ("i_mtime", 0x10, 4),
    ("i_dtime", 0x14, 4),
    ("i_gid", 0x18, 2),
    ("i_links_count", 0x1A, 2),
    ("i_blocks_lo", 0x1C, 4),
    ("i_flags", 0x20, 4),
    ("i_version", 0x24, 4),
    ("i_block[0]", 0x28, 4),
    ("i_block[1]", 0x2C, 4),
    ("i_block[2]", 0x30, 4),
    ("i_block[3]", 0x34, 4),
    ("i_block[4]", 0x38, 4),
    ("i_block[5]", 0x3C, 4),
    ("i_block[6]", 0x40, 4),
    ("i_block[12]", 0x58, 4),
    ("i_block[13]", 0x5C, 4),
    ("i_block[14]", 0x60, 4),
    ("i_generation", 0x64, 4),
    ("i_file_acl_lo", 0x68, 4),
    ("i_size_high", 0x6C, 4),
    ("i_faddr", 0x70, 4),
    ("i_blocks_high", 0x74, 2),
    ("i_file_acl_high", 0x76, 2),
    ("i_uid_high", 0x78, 2),
    ("i_checksum_lo", 0x7C, 2),
    ("i_reserved", 0x7E, 2),
];

pub(crate) const INODE_EXTRA: &[Field] = &[
    ("i_extra_isize", 0x80, 2),
    ("i_checksum_hi", 0x82, 2),
    ("i_ctime_extra", 0x84, 4),
    ("i_crtime", 0x90, 4),
    ("i_version_hi", 0x98, 4),
    ("i_projid", 0x9C, 4),
];

pub(crate) const EXTENT_HEADER: &[Field] = &[
    ("eh_magic", 0, 2),
    ("eh_entries", 2, 2),
    ("eh_max", 4, 2),
    ("eh_depth", 6, 2),
    ("eh_generation", 8, 4),
];

pub(crate) const EXTENT: &[Field] = &[
    ("ee_block", 0, 4),
    ("ee_len", 4, 2),
    ("ee_start_hi", 6, 2),
    ("ee_start_lo", 8, 4),
];

pub(crate) const EXTENT_INDEX: &[Field] = &[
    ("ei_block", 0, 4),
    ("ei_leaf_lo", 4, 4),
    ("ei_leaf_hi", 8, 2),
    ("ei_unused", 10, 2),
];

pub(crate) const DIR_ENTRY: &[Field] = &[
    ("inode", 0, 4),
    ("rec_len", 4, 2),
    ("name_len", 6, 1),
    ("file_type", 7, 1),
    ("name", 8, 1),
];

pub(crate) const DIR_TAIL: &[Field] = &[
    ("det_reserved_zero1", 0, 4),
    ("det_rec_len", 4, 2),
    ("det_reserved_zero2", 6, 1),
    ("det_reserved_ft", 7, 1),
    ("det_checksum", 8, 4),
];

pub(crate) const DX_ROOT: &[Field] = &[
    ("dot.inode", 0, 4),
    ("dot.rec_len", 4, 2),
    ("dot.name_len", 6, 1),
    ("dotdot.inode", 12, 4),
    ("dotdot.rec_len", 16, 2),
    ("dotdot.name", 20, 2),
    ("reserved_zero", 0x18, 4),
    ("hash_version", 0x1C, 1),
    ("info_length", 0x1D, 1),
    ("indirect_levels", 0x1E, 1),
    ("unused_flags", 0x1F, 1),
    ("limit", 0x20, 2),
    ("count", 0x22, 2),
    ("block", 0x24, 4),
];

pub(crate) const DX_NODE: &[Field] = &[
    ("fake.inode", 0, 4),
    ("fake.rec_len", 4, 2),
    ("fake.name_len", 6, 1),
    ("limit", 8, 2),
    ("count", 10, 2),
    ("block", 12, 4),
];

pub(crate) const DX_ENTRY: &[Field] = &[("hash", 0, 4), ("block", 4, 4)];

pub(crate) const XATTR_HEADER: &[Field] = &[
    ("h_magic", 0, 4),
    ("h_refcount", 4, 4),
    ("h_blocks", 8, 4),
    ("h_hash", 12, 4),
    ("h_checksum", 16, 4),
];

pub(crate) const XATTR_ENTRY: &[Field] = &[
    ("e_name_len", 0, 1),
    ("e_name_index", 1, 1),
    ("e_value_offs", 2, 2),
    ("e_value_inum", 4, 4),
    ("e_value_size", 8, 4),
    ("e_hash", 12, 4),
    ("e_name", 16, 1),
];

pub(crate) const ORPHAN_TAIL: &[Field] = &[("ob_magic", 0, 4), ("ob_checksum", 4, 4)];

/// Without the two fields that say that the volume is open: if they are set, e2fsck waits and then refuses.
pub(crate) const MMP: &[Field] = &[
    ("mmp_magic", 0x0, 4),
    ("mmp_time", 0x8, 8),
    ("mmp_nodename", 0x10, 4),
    ("mmp_checksum", 0x3FC, 4),
];

pub(crate) const QUOTA_HEADER: &[Field] = &[
    ("magic", 0, 4),
    ("version", 4, 4),
    ("setting", 8, 4),
    ("setting", 12, 4),
    ("setting", 16, 4),
    ("blocks", 20, 4),
    ("free block", 24, 4),
    ("free entry", 28, 4),
];

pub(crate) const QUOTA_DATA: &[Field] = &[
    ("list", 0, 4),
    ("list", 4, 4),
    ("entries", 8, 2),
    ("padding", 10, 2),
    ("padding", 12, 4),
];

pub(crate) const QUOTA_ENTRY: &[Field] = &[
    ("id", 0, 4),
    ("setting", 4, 4),
    ("setting", 8, 8),
    ("setting", 16, 8),
    ("inodes", 24, 8),
    ("setting", 32, 8),
    ("setting", 40, 8),
    ("space", 48, 8),
    ("time", 56, 8),
    ("time", 64, 8),
];

pub(crate) const JOURNAL: &[Field] = &[
    ("h_magic", 0x0, 4),
    ("h_blocktype", 0x4, 4),
    ("s_blocksize", 0xC, 4),
    ("s_maxlen", 0x10, 4),
    ("s_first", 0x14, 4),
    ("s_sequence", 0x18, 4),
    ("s_start", 0x1C, 4),
    ("s_errno", 0x20, 4),
    ("s_feature_compat", 0x24, 4),
    ("s_feature_incompat", 0x28, 4),
    ("s_feature_ro_compat", 0x2C, 4),
    ("s_uuid", 0x30, 4),
    ("s_nr_users", 0x40, 4),
    ("s_checksum_type", 0x50, 1),
    ("s_num_fc_blks", 0x54, 4),
    ("s_head", 0x58, 4),
    ("s_checksum", 0xFC, 4),
];
