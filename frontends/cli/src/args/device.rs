//! Options of the commands that work on whole devices, whatever is on them.
//!
//! Input: the process's arguments. Output: options. Invariant: parsing opens nothing. Limits: none of its own.

use clap::Args;
use diorite_block::locator::parse_size;

/// `copy`.
#[derive(Args, Debug)]
pub(crate) struct CopyArgs {
    /// Read both back from their devices afterwards, and compare
    #[arg(long)]
    pub(crate) verify: bool,
    /// Look for zeros in pieces of this size, and make holes of them; 0: write everything, so that all of DST has space
    #[arg(short = 'S', long, value_name = "SIZE", value_parser = parse_size, default_value = "4K")]
    pub(crate) sparse: u64,
    /// How many requests of up to 1 MiB may be in flight, with twice as many small ones; each takes 1.125 MiB of memory
    #[arg(short = 'R', long, value_name = "N", default_value = "48", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) requests: u16,
    /// Do not create DST: it has to exist
    #[arg(short, long)]
    pub(crate) no_create: bool,
    /// Accepted for habit: progress is shown if standard error is a terminal
    #[arg(short, long, hide = true)]
    progress: bool,
    /// Accepted for habit: a copy is always made durable
    #[arg(long, hide = true)]
    flush: bool,
    /// Print what was copied
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Show no progress on the terminal
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// What to copy: any locator
    #[arg(value_name = "SRC")]
    pub(crate) source: String,
    /// Where to: any locator, or a file to be created
    #[arg(value_name = "DST")]
    pub(crate) target: String,
}

/// `compare`.
#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    /// Different sizes are a difference, even if the longer one ends with zeros
    #[arg(short, long)]
    pub(crate) strict: bool,
    /// Print nothing; only set the exit status
    #[arg(short, long, visible_alias = "silent", conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// How many requests of up to 1 MiB may be in flight to each, with twice as many small ones
    #[arg(short = 'R', long, value_name = "N", default_value = "24", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) requests: u16,
    /// Accepted for habit: progress is shown if standard error is a terminal
    #[arg(short, long, hide = true)]
    progress: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// A device or image: any locator
    #[arg(value_name = "A")]
    pub(crate) first: String,
    /// The other one
    #[arg(value_name = "B")]
    pub(crate) second: String,
}
