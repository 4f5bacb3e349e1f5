//! Options of the commands that make images.
//!
//! Input: the process's arguments. Output: options. Invariant: parsing opens nothing. Limits: lists of features and of extended options are
//! words here; the command reads them.

use super::Encoding;
use super::shared::{JsonObject, UndoFile};
use crate::words::owners::Owner;
use crate::words::sizes::SizeChange;
use clap::{Args, ValueEnum};
use diorite_block::locator::parse_size;
use std::ffi::OsString;
use std::path::PathBuf;

/// What a file system is to be like: the words of mke2fs.
#[derive(Args, Debug)]
pub(crate) struct FormatArgs {
    /// The kind of file system: ext2, ext3 or ext4
    #[arg(short = 't', value_name = "TYPE")]
    pub(crate) fs_type: Option<String>,
    /// What it is for, a list: floppy, small, big, huge, news, largefile, largefile4; by default by its size
    #[arg(short = 'T', value_name = "USAGE", value_delimiter = ',')]
    pub(crate) usage: Vec<String>,
    /// Bytes of a block, 1024 to 65536; -N: at least N
    #[arg(short = 'b', value_name = "BYTES", allow_hyphen_values = true)]
    pub(crate) block_size: Option<i64>,
    /// Bytes of a cluster, with the feature bigalloc
    #[arg(short = 'C', value_name = "BYTES", value_parser = parse_size)]
    pub(crate) cluster_size: Option<u64>,
    /// Bytes per inode: an inode is made for so many bytes of the file system
    #[arg(short = 'i', value_name = "BYTES", value_parser = parse_size)]
    pub(crate) inode_ratio: Option<u64>,
    /// Bytes of an inode, 128 up to the block size
    #[arg(short = 'I', value_name = "BYTES")]
    pub(crate) inode_size: Option<u16>,
    /// Number of inodes, in place of -i; 0: by -i
    #[arg(short = 'N', value_name = "COUNT")]
    pub(crate) inodes: Option<u32>,
    /// Blocks of a group; with bigalloc clusters
    #[arg(short = 'g', value_name = "BLOCKS")]
    pub(crate) blocks_per_group: Option<u32>,
    /// Groups whose bitmaps and inode tables lie together
    #[arg(short = 'G', value_name = "GROUPS")]
    pub(crate) groups_per_flex: Option<u32>,
    /// Percentage of the blocks that are reserved for root, 0 to 50
    #[arg(short = 'm', value_name = "PERCENT")]
    pub(crate) reserved: Option<f64>,
    /// Label, at most 16 bytes
    #[arg(short = 'L', value_name = "LABEL")]
    pub(crate) label: Option<String>,
    /// The directory that is shown as that of the last mount
    #[arg(short = 'M', value_name = "DIR")]
    pub(crate) last_mounted: Option<String>,
    /// UUID; or clear, random, time
    #[arg(short = 'U', value_name = "UUID")]
    pub(crate) uuid: Option<String>,
    /// UUID and hash seed follow from this text: the same text makes the same file system
    #[arg(long, value_name = "TEXT", conflicts_with = "uuid")]
    pub(crate) seed: Option<String>,
    /// Features to add, or with ^ to leave out; none: without any
    #[arg(short = 'O', value_name = "FEATURE", value_delimiter = ',')]
    pub(crate) features: Vec<String>,
    /// Extended options: root_owner[=UID:GID], root_perms=MODE, root_selinux=LABEL, hash_seed=UUID, desc_size=, revision=,
    /// offset=, resize=, stride=, stripe_width=, num_backup_sb=, packed_meta_blocks, lazy_itable_init, lazy_journal_init,
    /// assume_storage_prezeroed, orphan_file_size=, mmp_update_interval=, quotatype=usrquota:grpquota:prjquota, encoding=, encoding_flags=,
    /// test_fs, discard, nodiscard, no_copy_xattrs
    #[arg(
        short = 'E',
        visible_short_alias = 'R',
        value_name = "OPTION",
        value_delimiter = ','
    )]
    pub(crate) extended: Vec<String>,
    /// Make a journal
    #[arg(short = 'j')]
    pub(crate) has_journal: bool,
    /// Options of the journal: size=MIB, fast_commit_size=KIB, location=BLOCK or location=SIZE; device=JOURNAL, device=UUID=UUID or
    /// device=LABEL=LABEL: on a device of its own, made with -O journal_dev
    #[arg(short = 'J', value_name = "OPTION", value_delimiter = ',')]
    pub(crate) journal_options: Vec<String>,
    /// What drivers do after an error: continue, remount-ro or panic
    #[arg(short = 'e', value_name = "BEHAVIOUR")]
    pub(crate) errors: Option<String>,
    /// The operating system that is named as its maker: linux, hurd, masix, freebsd, lites, or a number
    #[arg(short = 'o', value_name = "OS")]
    pub(crate) creator_os: Option<String>,
    /// Revision of the format, 0 or 1
    #[arg(short = 'r', value_name = "REVISION")]
    pub(crate) revision: Option<u32>,
    /// The program whose place it takes.
    #[arg(long, hide = true, value_name = "NAME")]
    pub(crate) stand_in: Option<String>,
    /// The configuration to take defaults from, in the format of mke2fs.conf(5)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

impl FormatArgs {
    /// Whether a journal is asked for by an option of its own.
    pub(crate) fn asks_journal(&self) -> bool {
        let mut words = self.journal_options.iter();
        self.has_journal
            || words.any(|word| word.starts_with("size=") || word.starts_with("device="))
    }
}

/// `mkfs`.
#[derive(Args, Debug)]
pub(crate) struct MkfsArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// Fill it with the files of a directory or a tar archive
    #[arg(short = 'd', value_name = "SOURCE")]
    pub(crate) source: Option<String>,
    /// Read the device first, and keep blocks that cannot be read out of use; twice: also write it with patterns and compare
    #[arg(short = 'c', action = clap::ArgAction::Count, conflicts_with = "bad_blocks")]
    pub(crate) check: u8,
    /// Keep the blocks that this file lists out of use: numbers of blocks, one a line, as of badblocks
    #[arg(short = 'l', value_name = "FILE")]
    pub(crate) bad_blocks: Option<PathBuf>,
    /// Write superblocks and group descriptors alone, over a file system that has lost them: the options have to be those with which
    /// diorite made it, and e2fsck -f has to follow; -F: even if no root directory is found where it would be
    #[arg(short = 'S', conflicts_with_all = ["check", "bad_blocks", "source"])]
    pub(crate) super_only: bool,
    /// Show what would be made, and make nothing
    #[arg(short = 'n')]
    pub(crate) dry_run: bool,
    /// Print nothing but errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) json: JsonObject,
    /// Do not ask before a file system or a partition table is replaced; twice: also if it is mounted or another program has it open
    #[arg(short = 'F', action = clap::ArgAction::Count)]
    pub(crate) force: u8,
    /// Accepted for habit: writes are always direct where the device can
    #[arg(short = 'D', hide = true)]
    direct: bool,
    /// Accepted for habit
    #[arg(short = 'v', long, hide = true)]
    verbose: bool,
    #[command(flatten)]
    pub(crate) undo: UndoFile,
    /// The old word for -E nodiscard.
    #[arg(short = 'K', hide = true)]
    pub(crate) keep: bool,
    /// The image, which is made if SIZE is given, or the device
    pub(crate) img: String,
    /// Size: 10M, 4G; without a unit in KiB, with -b in blocks; by default that of the image or device
    #[arg(value_name = "SIZE")]
    pub(crate) size: Option<String>,
}

/// `import`.
#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// Size of the image: 4G; auto: as small as possible; auto+64M: so many bytes are available beside the reserve of -m, with an inode for
    /// every 16 KiB of them (-T: as of its type); auto+10%: so much of the space that the files take; -i counts for the whole image
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    pub(crate) size: String,
    /// How IMG is to be written: raw, gz, zst, android-sparse or qcow2; by default by its name: .gz, .zst, .simg, .qcow2
    #[arg(long = "format", value_name = "FORMAT", hide_possible_values = true)]
    pub(crate) encoding: Option<Encoding>,
    /// How hard to compress IMG: gz 1 to 9 (6), zst 1 to 19 (3)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=19))]
    pub(crate) level: Option<u8>,
    /// Write a block map of the image, as of bmaptool: what its file system uses is in it, zeros too
    #[arg(long, value_name = "FILE")]
    pub(crate) bmap: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// Everything belongs to this owner and group
    #[arg(long, value_name = "UID:GID", value_parser = Owner::parse)]
    pub(crate) owner: Option<Owner>,
    /// Owners FROM to FROM+COUNT-1 become TO and so on; may be given again
    #[arg(long, value_name = "FROM:TO[:COUNT]")]
    pub(crate) uid_map: Vec<String>,
    /// The same for groups
    #[arg(long, value_name = "FROM:TO[:COUNT]")]
    pub(crate) gid_map: Vec<String>,
    /// Leave out what matches: * is any text without a slash, ** any text, ? a character; without a slash it is of names, otherwise of
    /// paths from the source's root; may be given again
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// Set SELinux labels as this file says, in the form of file_contexts
    #[arg(long, value_name = "FILE")]
    pub(crate) file_contexts: Option<PathBuf>,
    /// Leave out extended attributes, access control lists among them
    #[arg(long)]
    pub(crate) no_xattrs: bool,
    /// Do not ask before a device is replaced that holds a file system or a partition table
    #[arg(short = 'F', long)]
    pub(crate) force: bool,
    /// Print nothing but errors, and show no progress
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// Print one JSON object, with the SHA-256 of the file (sha256) and of the image as it is when unpacked (image_sha256)
    #[arg(long)]
    pub(crate) json: bool,
    /// Where files come from, one above the other: directories, tar archives (also packed; - is standard input), OCI layouts and
    /// archives of them, archives of docker save, IMG:/DIR, manifests; and the image to be made, last
    #[arg(required = true, num_args = 1.., value_name = "SOURCE... IMG")]
    pub(crate) paths: Vec<String>,
}

/// The kinds of partition tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableWord {
    /// GUID partition table
    Gpt,
    /// Master boot record, with up to four partitions
    #[value(alias = "dos")]
    Mbr,
}

/// `disk`.
#[derive(Args, Debug)]
pub(crate) struct DiskArgs {
    /// The partition table: gpt or mbr
    #[arg(
        long,
        value_name = "TABLE",
        default_value = "gpt",
        hide_possible_values = true
    )]
    pub(crate) table: TableWord,
    /// Size of the disk: 8G; auto: as large as its partitions need
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    pub(crate) size: String,
    /// Bytes of a sector, in which the table counts: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value = "512")]
    pub(crate) sector: u32,
    /// Partitions begin at multiples of this size
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = parse_size)]
    pub(crate) align: u64,
    /// UUIDs follow from this text: the same text makes the same disk
    #[arg(long, value_name = "TEXT")]
    pub(crate) seed: Option<String>,
    /// The UUID of the disk, or with an MBR its number, as 0x1234abcd; without --seed, other UUIDs follow from it
    #[arg(long, value_name = "ID")]
    pub(crate) disk_id: Option<String>,
    /// Print nothing but errors, and show no progress
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// Print one JSON object: where each partition lies, with its UUID
    #[arg(long)]
    pub(crate) json: bool,
    /// The disk image to be made
    pub(crate) disk: String,
    /// Partitions, in order: [IMAGE|SIZE|+][,type=TYPE][,name=NAME][,uuid=UUID][,size=SIZE|+][,bootable]
    #[arg(required = true, value_name = "PART")]
    pub(crate) parts: Vec<String>,
}

/// `label`.
#[derive(Args, Debug)]
pub(crate) struct LabelArgs {
    /// The image
    pub(crate) img: String,
    /// The new label, at most 16 bytes; by default the present one is printed
    pub(crate) label: Option<OsString>,
}

/// `uuid`.
#[derive(Args, Debug)]
pub(crate) struct UuidArgs {
    /// The image
    pub(crate) img: String,
    /// The new UUID; or clear, random, time; by default the present one is printed
    pub(crate) uuid: Option<String>,
}

/// `grow`.
#[derive(Args, Debug)]
pub(crate) struct GrowArgs {
    /// Print nothing but errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) json: JsonObject,
    #[command(flatten)]
    pub(crate) undo: UndoFile,
    /// The image
    pub(crate) img: String,
    /// The new size: 10G, or +2G for so much more; by default that of the device
    #[arg(value_name = "SIZE", value_parser = SizeChange::parse)]
    pub(crate) size: Option<SizeChange>,
}

/// `shrink`.
#[derive(Args, Debug)]
pub(crate) struct ShrinkArgs {
    /// Print nothing but errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) json: JsonObject,
    #[command(flatten)]
    pub(crate) undo: UndoFile,
    /// The image
    pub(crate) img: String,
    /// The new size: 4G, or -1G for so much less
    #[arg(value_name = "SIZE", value_parser = SizeChange::parse, allow_hyphen_values = true)]
    pub(crate) size: SizeChange,
}

/// `minimise`.
#[derive(Args, Debug)]
pub(crate) struct MinimiseArgs {
    /// How much is to be free afterwards: 64M, or 10% of what the files have
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub(crate) headroom: String,
    /// Print the size that it would have, about, and change nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Print nothing but errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) json: JsonObject,
    #[command(flatten)]
    pub(crate) undo: UndoFile,
    /// The image
    pub(crate) img: String,
}

/// What an image is exported to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportWord {
    /// A directory
    Directory,
    /// A tar archive
    Archive,
    /// Another image
    Image,
}

/// `resize2fs`: its own options.
#[derive(Args, Debug)]
pub(crate) struct ResizeArgs {
    /// Make it smaller than it should be, and whatever errors are recorded
    #[arg(short = 'f')]
    pub(crate) force: bool,
    /// Accepted: nothing of the device is cached
    #[arg(short = 'F')]
    flush: bool,
    /// As small as possible, whatever size is said
    #[arg(short = 'M')]
    pub(crate) minimum: bool,
    /// Print the smallest size, in blocks
    #[arg(short = 'P')]
    pub(crate) print: bool,
    /// Show the progress
    #[arg(short = 'p')]
    pub(crate) progress: bool,
    /// Turn the feature 64bit on
    #[arg(short = 'b', conflicts_with_all = ["to_32bit", "size", "minimum"])]
    pub(crate) to_64bit: bool,
    /// Turn the feature 64bit off
    #[arg(short = 's', conflicts_with_all = ["size", "minimum"])]
    pub(crate) to_32bit: bool,
    /// Accepted: there is nothing to debug
    #[arg(short = 'd', value_name = "FLAGS")]
    debug: Option<String>,
    /// Accepted: places of structures do not follow a RAID stride
    #[arg(short = 'S', value_name = "STRIDE")]
    stride: Option<String>,
    #[command(flatten)]
    pub(crate) undo: UndoFile,
    /// The image
    pub(crate) img: String,
    /// The new size: blocks; or with s, K, M, G or T; by default that of the device
    #[arg(value_name = "SIZE")]
    pub(crate) size: Option<String>,
}

/// `export`.
#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    /// What DEST is: directory, archive or image; by default by what is there, and by its name
    #[arg(long = "as", value_name = "KIND", hide_possible_values = true)]
    pub(crate) kind: Option<ExportWord>,
    /// Do not ask before a device is replaced that holds a file system or a partition table
    #[arg(short = 'F', long)]
    pub(crate) force: bool,
    /// How hard to compress DEST: gz 1 to 9 (6), zst 1 to 19 (3)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=19))]
    pub(crate) level: Option<u8>,
    /// Print nothing but errors, and show no progress
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) json: JsonObject,
    /// The image, or a directory in it: IMG:/DIR
    pub(crate) img: String,
    /// A tar archive: a name with .tar, .tar.gz, .tgz or .tar.zst, - is standard output; an image: .img, .ext4, .qcow2, .simg, .img.gz,
    /// .img.zst, a block device; a directory that is empty, or a name that ends with /
    pub(crate) dest: String,
}

/// `undo`.
#[derive(Args, Debug)]
pub(crate) struct UndoArgs {
    /// Put it back although the image does not fit it, or has lost blocks since, or it is not finished
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// Check everything, and write nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Print each piece
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Print the header of the undo file, and do nothing else
    #[arg(long)]
    pub(crate) header: bool,
    /// Where in its file or disk the image begins, in bytes; by default as the undo file says
    #[arg(short = 'o', long, value_name = "OFFSET", value_parser = diorite_block::locator::parse_size)]
    pub(crate) offset: Option<u64>,
    /// Keep in FILE what is overwritten by this
    #[arg(short = 'z', long, value_name = "FILE")]
    pub(crate) undo: Option<String>,
    /// The undo file
    #[arg(value_name = "UNDOFILE")]
    pub(crate) file: std::path::PathBuf,
    /// The image
    pub(crate) img: String,
}
