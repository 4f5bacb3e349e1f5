//! Options of the commands that change the space and size of files, of those for free space, and of those that make changes durable.
//!
//! Input: the process's arguments. Output: options. Invariant: parsing opens nothing. Limits: none of its own.

use super::shared::JsonObject;
use crate::words::sizes::SizeChange;
use clap::Args;
use diorite_block::locator::parse_size;
use std::ffi::OsString;

/// `truncate`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["size", "reference"]))]
pub(crate) struct TruncateArgs {
    /// The size: 10M sets it, +10M and -10M change it by 10M, <10M and >10M make it at most and at least 10M, /4K and %4K round
    /// it down and up to a multiple; K or KiB is 1024, KB is 1000, and so on for M, G, T, P, E; 2048s is 2048 sectors of 512
    /// bytes, 0x1000 is hexadecimal
    #[arg(short, long, allow_hyphen_values = true, value_parser = SizeChange::parse)]
    pub(crate) size: Option<SizeChange>,
    /// The size is in blocks of the image's file system, not in bytes
    #[arg(short = 'o', long, requires = "size")]
    pub(crate) io_blocks: bool,
    /// Use the size of this file of the image; -s is then relative to it
    #[arg(short, long, value_name = "PATH")]
    pub(crate) reference: Option<OsString>,
    /// Do not create files
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
    /// Length of the range: bytes; K or KiB is 1024, KB is 1000, and so on for M, G, T, P, E; 2048s is 2048 sectors of 512
    /// bytes, 0x1000 is hexadecimal
    #[arg(short, long, value_parser = parse_size, required_unless_present = "dig_holes")]
    pub(crate) length: Option<u64>,
    /// Offset of the range
    #[arg(short, long, default_value = "0", value_parser = parse_size)]
    pub(crate) offset: u64,
    /// Do not change the file's size, even if the range ends past it
    #[arg(short = 'n', long, conflicts_with_all = ["collapse_range", "insert_range", "posix"])]
    pub(crate) keep_size: bool,
    /// Punch holes where blocks hold only zeros, in the whole file unless a range is given; the size does not change
    #[arg(short, long, group = "mode")]
    pub(crate) dig_holes: bool,
    /// Punch a hole; the size does not change
    #[arg(short, long, group = "mode")]
    pub(crate) punch_hole: bool,
    /// Zero the range with allocated, unwritten blocks
    #[arg(short, long, group = "mode")]
    pub(crate) zero_range: bool,
    /// Remove the range, of whole blocks, from the file
    #[arg(short, long, group = "mode")]
    pub(crate) collapse_range: bool,
    /// Insert a hole, of whole blocks, into the file
    #[arg(short, long, group = "mode")]
    pub(crate) insert_range: bool,
    /// Zero the range with written blocks
    #[arg(short, long, group = "mode")]
    pub(crate) write_zeroes: bool,
    /// Allocate as posix_fallocate does (the default)
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
    /// Sync only what is needed to read the data of these files back
    #[arg(short, long, requires = "paths")]
    pub(crate) data: bool,
    /// The image
    pub(crate) img: String,
    /// The files; by default the whole image
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `recover`.
#[derive(Args, Debug)]
pub(crate) struct RecoverArgs {
    #[command(flatten)]
    pub(crate) json: JsonObject,
    /// The image
    pub(crate) img: String,
}

/// `sparsify`.
#[derive(Args, Debug)]
pub(crate) struct SparsifyArgs {
    /// Where in the image to begin
    #[arg(short, long, default_value = "0", value_parser = parse_size)]
    pub(crate) offset: u64,
    /// How many bytes from there on; by default all
    #[arg(short, long, value_parser = parse_size)]
    pub(crate) length: Option<u64>,
    /// Leave runs of free blocks alone that are shorter than this
    #[arg(short, long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) minimum: u64,
    #[command(flatten)]
    pub(crate) json: JsonObject,
    /// The image
    pub(crate) img: String,
}

/// `zerofree`.
#[derive(Args, Debug)]
pub(crate) struct ZerofreeArgs {
    /// Only count the free blocks that hold anything but zeros
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Print how many blocks were written
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) json: JsonObject,
    /// The image
    pub(crate) img: String,
}
