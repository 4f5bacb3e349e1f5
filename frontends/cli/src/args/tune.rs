//! Options of `tune`: the words of tune2fs.
//!
//! Input: the process's arguments. Output: options. Invariant: parsing opens nothing. Limits: values are words here; the command reads
//! them.

use super::shared::UndoFile;
use clap::Args;

/// `tune`.
#[derive(Args, Debug)]
pub(crate) struct TuneArgs {
    /// For -E clear_mmp, which needs it
    #[arg(short = 'f')]
    pub(crate) force: bool,
    /// Print the superblock
    #[arg(short = 'l')]
    pub(crate) list: bool,
    /// Label; of a longer one the first 16 bytes
    #[arg(short = 'L', value_name = "LABEL")]
    pub(crate) label: Option<String>,
    /// UUID; or clear, random, time
    #[arg(short = 'U', value_name = "UUID")]
    pub(crate) uuid: Option<String>,
    /// Percentage of the blocks that are reserved, 0 to 50
    #[arg(short = 'm', value_name = "PERCENT")]
    pub(crate) reserved_percent: Option<f64>,
    /// Number of reserved blocks, at most half of all
    #[arg(
        short = 'r',
        value_name = "BLOCKS",
        conflicts_with = "reserved_percent"
    )]
    pub(crate) reserved_blocks: Option<u64>,
    /// The user who may use reserved blocks: a number, or a name of this host
    #[arg(short = 'u', value_name = "USER")]
    pub(crate) user: Option<String>,
    /// The group who may: a number, or a name of this host
    #[arg(short = 'g', value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// What drivers do after an error: continue, remount-ro or panic
    #[arg(short = 'e', value_name = "BEHAVIOUR")]
    pub(crate) errors: Option<String>,
    /// Mounts before a check is due, at most 16000; 0 or -1: no limit; or random
    #[arg(short = 'c', value_name = "COUNT", allow_hyphen_values = true)]
    pub(crate) max_mounts: Option<String>,
    /// Mounts since the last check
    #[arg(short = 'C', value_name = "COUNT", allow_hyphen_values = true)]
    pub(crate) mounts: Option<i32>,
    /// Time between checks, in days, or with d, w or m; 0: no limit
    #[arg(short = 'i', value_name = "INTERVAL")]
    pub(crate) interval: Option<String>,
    /// Time of the last check: YYYYMMDD[HH[MM[SS]]], local time; or now
    #[arg(short = 'T', value_name = "TIME")]
    pub(crate) checked: Option<String>,
    /// The directory that is shown as that of the last mount
    #[arg(short = 'M', value_name = "DIR")]
    pub(crate) last_mounted: Option<String>,
    /// Default mount options to add, or with ^ to leave out: debug, bsdgroups, user_xattr, acl, uid16, journal_data, journal_data_ordered,
    /// journal_data_writeback, nobarrier, block_validity, discard, nodelalloc
    #[arg(short = 'o', value_name = "OPTION", value_delimiter = ',')]
    pub(crate) mount_bits: Vec<String>,
    /// Features to add, or with ^ to take away
    #[arg(short = 'O', value_name = "FEATURE", value_delimiter = ',')]
    pub(crate) features: Vec<String>,
    /// Extended options: stride=, stripe_width=, hash_alg=, mount_opts=, test_fs, ^test_fs, force_fsck, clear_mmp, mmp_update_interval=,
    /// encoding=, encoding_flags=, orphan_file_size=
    #[arg(short = 'E', value_name = "OPTION", value_delimiter = ',')]
    pub(crate) extended: Vec<String>,
    /// With -l: print one JSON object
    #[arg(long, requires = "list")]
    pub(crate) json: bool,
    /// Make a journal of the usual size
    #[arg(short = 'j')]
    pub(crate) make_journal: bool,
    /// Make a journal: size=MIB, fast_commit_size=KIB, location=, device=
    #[arg(short = 'J', value_name = "OPTION", value_delimiter = ',')]
    pub(crate) journal_options: Vec<String>,
    /// Larger inodes, of so many bytes
    #[arg(short = 'I', value_name = "BYTES")]
    pub(crate) inode_size: Option<u16>,
    /// Usage files of quotas to make, or with ^ to take away: usrquota, grpquota, prjquota
    #[arg(short = 'Q', value_name = "QUOTA", value_delimiter = ',')]
    pub(crate) quota: Vec<String>,
    #[command(flatten)]
    pub(crate) undo: UndoFile,
    /// The image
    pub(crate) img: String,
}
