//! Options of the commands that only read: superblocks, directories, files, consistency.
//!
//! Input: the process's arguments. Output: options. Invariant: parsing opens nothing. Limits: none of its own.

use super::shared::{JsonObject, JsonOfFiles, LongHelp};
use crate::words::directives::{Directives, OfStat};
use crate::words::template::Template;
use clap::Args;
use diorite_block::locator::parse_size;
use diorite_format::{Inode, Timestamp};
use std::ffi::OsString;

/// `info`.
#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    /// Also print how the device was opened: I/O engine, direct or buffered, other processes that have it open
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print what the device is, whatever is on it: sizes, how it was opened, how many of its bytes are holes, its partitions
    #[arg(short, long)]
    pub(crate) device: bool,
    #[command(flatten)]
    pub(crate) json: JsonObject,
    /// The image
    pub(crate) img: String,
}

/// `ls`.
#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// Long format: mode, links, owner and group (as numbers), size, modification time
    #[arg(short, visible_short_alias = 'n')]
    pub(crate) long: bool,
    /// Print one name per line (always done)
    #[arg(short = '1')]
    one: bool,
    /// With -l, print sizes with units: 1.5K, 23M
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// List subdirectories recursively
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Include names that begin with a dot
    #[arg(short, long)]
    pub(crate) all: bool,
    /// As -a, but without . and ..
    #[arg(short = 'A', long)]
    pub(crate) almost_all: bool,
    /// Sort by modification time, newest first
    #[arg(short = 't', overrides_with_all = ["by_size", "unsorted"])]
    pub(crate) by_time: bool,
    /// Sort by size, largest first
    #[arg(short = 'S', overrides_with_all = ["by_time", "unsorted"])]
    pub(crate) by_size: bool,
    /// The order of the directory
    #[arg(short = 'U', overrides_with_all = ["by_time", "by_size"])]
    pub(crate) unsorted: bool,
    /// The time of the last change of the inode: -l prints it, and it is what -t, or -c without -l, sorts by
    #[arg(short = 'c', overrides_with = "by_access")]
    pub(crate) by_change: bool,
    /// The time of the last access, likewise
    #[arg(short = 'u', overrides_with = "by_change")]
    pub(crate) by_access: bool,
    /// Reverse the order
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Print the space that each file takes, in KiB, or with -h with units
    #[arg(short = 's', long = "size")]
    pub(crate) space: bool,
    /// Append / to directories
    #[arg(short = 'p')]
    pub(crate) slash: bool,
    /// As -l --time-style full-iso
    #[arg(long)]
    pub(crate) full_time: bool,
    /// List directories themselves, not their contents
    #[arg(short, long)]
    pub(crate) directory: bool,
    /// Print inode numbers
    #[arg(short, long)]
    pub(crate) inode: bool,
    /// Mark names by type: / for directories, * for executables, @ links, | pipes, = sockets
    #[arg(short = 'F', long)]
    pub(crate) classify: bool,
    /// Colour names by type, as LS_COLORS says
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "never",
        default_missing_value = "always"
    )]
    pub(crate) color: When,
    /// How -l prints times
    #[arg(long, value_enum, default_value_t = TimeStyle::Locale, value_name = "STYLE")]
    pub(crate) time_style: TimeStyle,
    /// Print one JSON object per name, one per line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    help: LongHelp,
    /// The image
    pub(crate) img: String,
    /// What to list; by default the root directory
    pub(crate) paths: Vec<OsString>,
}

impl LsArgs {
    /// Whether long lines are printed.
    pub(crate) fn is_long(&self) -> bool {
        self.long || self.full_time
    }

    /// Whether names are sorted by a time.
    pub(crate) fn is_by_time(&self) -> bool {
        let other = self.by_change || self.by_access;
        !self.unsorted && !self.by_size && (self.by_time || other && !self.is_long())
    }

    /// The time that is printed and sorted by.
    pub(crate) fn time(&self, inode: &Inode) -> Timestamp {
        match (self.by_change, self.by_access) {
            (true, _) => inode.ctime,
            (_, true) => inode.atime,
            _ => inode.mtime,
        }
    }
}

/// When colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum When {
    /// Always
    #[value(alias = "yes", alias = "force")]
    Always,
    /// If the output is a terminal
    #[value(alias = "tty", alias = "if-tty")]
    Auto,
    /// Never
    #[value(alias = "no", alias = "none")]
    Never,
}

/// How `ls -l` prints times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TimeStyle {
    /// Nov 21 21:29, or the year instead of the time of day if it is long ago
    Locale,
    /// 2026-11-21 21:29:35.000000000 +0000
    FullIso,
    /// 2026-11-21 21:29
    LongIso,
}

/// `tree`.
#[derive(Args, Debug)]
pub(crate) struct TreeArgs {
    /// Include names that begin with a dot
    #[arg(short, long)]
    pub(crate) all: bool,
    /// List directories only
    #[arg(short = 'd')]
    pub(crate) dirs: bool,
    /// Descend at most this many levels
    #[arg(short = 'L', value_name = "LEVEL", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) level: Option<u32>,
    /// Print sizes in bytes
    #[arg(short)]
    pub(crate) size: bool,
    /// The image
    pub(crate) img: String,
    /// Where to begin; by default the root directory
    pub(crate) paths: Vec<OsString>,
}

/// `find`.
#[derive(Args, Debug)]
pub(crate) struct FindArgs {
    #[command(flatten)]
    pub(crate) json: JsonOfFiles,
    /// The image
    pub(crate) img: String,
    /// Where to begin, and the expression
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PATH"
    )]
    pub(crate) words: Vec<OsString>,
}

/// The help of `stat -c`.
fn format_help() -> String {
    let directives = OfStat::help();
    format!("Print each file in this format: {directives}; with three digits after the point: %.3X")
}

/// `stat`.
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// Use the target of a symbolic link, not the link
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,
    #[arg(short = 'c', long, value_name = "FORMAT", value_parser = Template::of_stat, conflicts_with = "json", help = format_help())]
    pub(crate) format: Option<Template<OfStat>>,
    /// As --format, but without a newline after each file, and with escapes such as \n, \t, \0
    #[arg(long, value_name = "FORMAT", value_parser = Template::of_stat_printf, conflicts_with_all = ["json", "format"])]
    pub(crate) printf: Option<Template<OfStat>>,
    #[command(flatten)]
    pub(crate) json: JsonOfFiles,
    /// The image
    pub(crate) img: String,
    /// The files
    #[arg(required = true)]
    pub(crate) paths: Vec<OsString>,
}

/// `cat`.
#[derive(Args, Debug)]
pub(crate) struct CatArgs {
    /// The image
    pub(crate) img: String,
    /// The files, printed one after the other
    #[arg(required = true)]
    pub(crate) paths: Vec<OsString>,
}

/// `readlink`.
#[derive(Args, Debug)]
pub(crate) struct ReadlinkArgs {
    /// Print no newline after the target, if there is only one link
    #[arg(short, long)]
    pub(crate) no_newline: bool,
    /// End each target with a NUL instead of a newline
    #[arg(short, long)]
    pub(crate) zero: bool,
    /// Print a message for a path that is not a symbolic link or cannot be read
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The image
    pub(crate) img: String,
    /// The links
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `df`.
#[derive(Args, Debug)]
pub(crate) struct DfArgs {
    /// Print sizes with units: 1.5K, 23M
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Print sizes in blocks of 1024 bytes (the default)
    #[arg(short)]
    kilo: bool,
    /// Print inodes instead of space
    #[arg(short, long)]
    pub(crate) inodes: bool,
    /// Print one JSON object, with sizes in bytes
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    help: LongHelp,
    /// The image
    pub(crate) img: String,
}

/// `du`.
#[derive(Args, Debug)]
pub(crate) struct DuArgs {
    /// Print files as well, not only directories
    #[arg(short, long, conflicts_with = "summarize")]
    pub(crate) all: bool,
    /// Print only the paths that were given, not what is below them
    #[arg(short, long, conflicts_with = "max_depth")]
    pub(crate) summarize: bool,
    /// Print only what is at most this many levels below the given paths
    #[arg(short = 'd', long, value_name = "N")]
    pub(crate) max_depth: Option<usize>,
    /// Print the total at the end
    #[arg(short = 'c', long)]
    pub(crate) total: bool,
    /// Print sizes with units: 1.5K, 23M
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Print sizes in blocks of 1024 bytes (the default)
    #[arg(short)]
    kilo: bool,
    /// Print the lengths of files, not the space that they occupy
    #[arg(long)]
    pub(crate) apparent_size: bool,
    /// As --apparent-size, in bytes
    #[arg(short, long)]
    pub(crate) bytes: bool,
    /// Count a file with several names once for each name
    #[arg(short = 'l', long)]
    pub(crate) count_links: bool,
    /// End each line with a NUL instead of a newline
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Print one JSON object per line, with sizes in bytes
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    help: LongHelp,
    /// The image
    pub(crate) img: String,
    /// Where to begin; by default the root directory
    pub(crate) paths: Vec<OsString>,
}

/// `cmp`.
#[derive(Args, Debug)]
pub(crate) struct CmpArgs {
    /// Print nothing; only set the exit status
    #[arg(short, long, visible_alias = "quiet", conflicts_with = "json")]
    pub(crate) silent: bool,
    #[command(flatten)]
    pub(crate) json: JsonObject,
    /// Compare at most this many bytes
    #[arg(short = 'n', long = "bytes", value_name = "SIZE", value_parser = parse_size)]
    pub(crate) limit: Option<u64>,
    /// The image
    pub(crate) img: String,
    /// A file in the image
    pub(crate) path: OsString,
    /// A file of the host; - for standard input
    pub(crate) file: OsString,
}

/// `check`.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Number of threads; by default one per CPU
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Print up to 1000 findings of each kind instead of 10
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Check the image even if it is marked clean (always done)
    #[arg(short)]
    force: bool,
    /// Change nothing (the default)
    #[arg(short = 'n', conflicts_with_all = ["preen", "repair"])]
    no: bool,
    /// Print nothing if the image is clean; unlike e2fsck, repair nothing without --repair
    #[arg(short, visible_short_alias = 'a')]
    pub(crate) preen: bool,
    /// Repair what follows from what is consistent: counts, blocks without a user, recorded errors, the journal, orphans; nothing,
    /// if anything else is wrong
    #[arg(long)]
    pub(crate) repair: bool,
    /// Keep in FILE what is overwritten, for `diorite undo` or e2undo
    #[arg(short = 'z', long, value_name = "FILE", requires = "repair")]
    pub(crate) undo: Option<String>,
    #[command(flatten)]
    pub(crate) json: JsonObject,
    /// The image
    pub(crate) img: String,
}

/// `extents`.
#[derive(Args, Debug)]
pub(crate) struct ExtentsArgs {
    /// Print one JSON object per extent, one per line
    #[arg(long)]
    pub(crate) json: bool,
    /// The image
    pub(crate) img: String,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}
