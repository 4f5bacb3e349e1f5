//! The command line of what changes files' space, and of what makes changes durable.
//!
//! Input: the process's arguments. Output: options. Invariant: as for all of them. Limits: none of its own.

use crate::sizes::SizeChange;
use clap::Args;
use diorite_block::locator::parse_size;
use std::ffi::OsString;

/// `truncate`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["size", "reference"]))]
pub(crate) struct TruncateArgs {
    /// The size: 10M sets it, +10M and -10M change it by that, <10M and >10M make it at most and at least that, /4K and %4K round it down and up to a multiple; K or KiB is 1024, KB is 1000, and so on for M, G, T, P, E; 2048s are sectors of 512, 0x1000 is hexadecimal
    #[arg(short, long, allow_hyphen_values = true, value_parser = SizeChange::parse)]
    pub(crate) size: Option<SizeChange>,
    /// The size counts blocks of the image's file system, not bytes
    #[arg(short = 'o', long, requires = "size")]
    pub(crate) io_blocks: bool,
    /// The size of this file of the image is taken, or the change in -s goes by it
    #[arg(short, long, value_name = "PATH")]
    pub(crate) reference: Option<OsString>,
    /// Make no file that is not there
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
    /// The image
    pub(crate) img: String,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `fallocate`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("mode"))]
pub(crate) struct FallocateArgs {
    /// Bytes, K or KiB of 1024, KB of 1000, and so on for M, G, T, P, E; 2048s are sectors of 512, 0x1000 is hexadecimal
    #[arg(short, long, value_parser = parse_size, required_unless_present = "dig_holes")]
    pub(crate) length: Option<u64>,
    /// Where the range begins
    #[arg(short, long, default_value = "0", value_parser = parse_size)]
    pub(crate) offset: u64,
    /// The file's size stays, though the range lies behind it
    #[arg(short = 'n', long, conflicts_with_all = ["collapse_range", "insert_range", "posix"])]
    pub(crate) keep_size: bool,
    /// Make holes of blocks that hold only zeros, in the whole file unless a range is given; the size stays
    #[arg(short, long, group = "mode")]
    pub(crate) dig_holes: bool,
    /// Make a hole; the size stays
    #[arg(short, long, group = "mode")]
    pub(crate) punch_hole: bool,
    /// Make the range read as zeros, with blocks that are allocated and not written
    #[arg(short, long, group = "mode")]
    pub(crate) zero_range: bool,
    /// Take the range, of whole blocks, out of the file
    #[arg(short, long, group = "mode")]
    pub(crate) collapse_range: bool,
    /// Put a hole, of whole blocks, into the file
    #[arg(short, long, group = "mode")]
    pub(crate) insert_range: bool,
    /// Make the range read as zeros, with blocks that are written
    #[arg(short, long, group = "mode")]
    pub(crate) write_zeroes: bool,
    /// As posix_fallocate does, which is what is done without options
    #[arg(short = 'x', long, group = "mode")]
    pub(crate) posix: bool,
    /// The image
    pub(crate) img: String,
    /// The file
    pub(crate) path: OsString,
}

/// `sync`.
#[derive(Args, Debug)]
pub(crate) struct SyncArgs {
    /// Only what is needed to read the data of these files back
    #[arg(short, long, requires = "paths")]
    pub(crate) data: bool,
    /// The image
    pub(crate) img: String,
    /// The files; everything unless given
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `recover`.
#[derive(Args, Debug)]
pub(crate) struct RecoverArgs {
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The image
    pub(crate) img: String,
}
