//! The command line of what only looks: superblocks, directories, files, consistency.
//!
//! Input: the process's arguments. Output: options. Invariant: as for all of them. Limits: none of its own.

use crate::format::Template;
use clap::Args;
use diorite_block::locator::parse_size;
use std::ffi::OsString;

/// `info`.
#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    /// Also print how the device was opened: I/O engine, direct or buffered, who else has it
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The image
    pub(crate) img: String,
}

/// `ls`.
#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// Long format: mode, links, owner and group (as numbers), size, time of change
    #[arg(short, visible_short_alias = 'n')]
    pub(crate) long: bool,
    /// One name a line, as always
    #[arg(short = '1')]
    one: bool,
    /// Sizes of -l with units: 1.5K, 23M
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Directories below directories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Names that begin with a dot too
    #[arg(short, long)]
    pub(crate) all: bool,
    /// The same, but for . and ..
    #[arg(short = 'A', long)]
    pub(crate) almost_all: bool,
    /// The last changed first
    #[arg(short = 't', overrides_with = "by_size")]
    pub(crate) by_time: bool,
    /// The largest first
    #[arg(short = 'S', overrides_with = "by_time")]
    pub(crate) by_size: bool,
    /// The other way round
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Directories themselves, not what is in them
    #[arg(short, long)]
    pub(crate) directory: bool,
    /// Inode numbers in front
    #[arg(short, long)]
    pub(crate) inode: bool,
    /// A mark behind names: / for directories, * for what can be run, @ links, | pipes, = sockets
    #[arg(short = 'F', long)]
    pub(crate) classify: bool,
    /// Colours by what names stand for, as LS_COLORS says
    #[arg(long, value_enum, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_value = "never", default_missing_value = "always")]
    pub(crate) color: When,
    /// How -l prints times
    #[arg(long, value_enum, default_value_t = TimeStyle::Locale, value_name = "STYLE")]
    pub(crate) time_style: TimeStyle,
    /// One JSON object per name, each on a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The image
    pub(crate) img: String,
    /// What to list; the root directory unless given
    pub(crate) paths: Vec<OsString>,
}

/// When something is done that is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum When {
    /// Always
    #[value(alias = "yes", alias = "force")]
    Always,
    /// On a terminal
    #[value(alias = "tty", alias = "if-tty")]
    Auto,
    /// Never
    #[value(alias = "no", alias = "none")]
    Never,
}

/// How `ls -l` prints times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TimeStyle {
    /// Nov 21 21:29, or the year if it is long ago
    Locale,
    /// 2026-11-21 21:29:35.000000000 +0000
    FullIso,
    /// 2026-11-21 21:29
    LongIso,
}

/// `tree`.
#[derive(Args, Debug)]
pub(crate) struct TreeArgs {
    /// Names that begin with a dot too
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Directories only
    #[arg(short = 'd')]
    pub(crate) dirs: bool,
    /// So many levels of directories
    #[arg(short = 'L', value_name = "LEVEL", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) level: Option<u32>,
    /// Sizes in bytes in front
    #[arg(short)]
    pub(crate) size: bool,
    /// The image
    pub(crate) img: String,
    /// Where to begin; the root directory unless given
    pub(crate) paths: Vec<OsString>,
}

/// `find`.
#[derive(Args, Debug)]
pub(crate) struct FindArgs {
    /// One JSON object per file, each on a line
    #[arg(long)]
    pub(crate) json: bool,
    /// The image
    pub(crate) img: String,
    /// Where to begin, and what to look for
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PATH"
    )]
    pub(crate) words: Vec<OsString>,
}

/// `stat`.
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// What a symbolic link points to, not the link
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,
    /// A line of this form for each file: %n name, %N name and target, %s size, %b blocks of 512 bytes, %a and %A permissions, %f mode, %F type, %u and %g owner, %h links, %i inode, %t and %T device numbers, %x %y %z %w times, %X %Y %Z %W in seconds; others as of stat(1)
    #[arg(short = 'c', long, value_name = "FORMAT", value_parser = Template::of_stat, conflicts_with = "json")]
    pub(crate) format: Option<Template>,
    /// The same without the line's end, with \n, \t, \0 and the like
    #[arg(long, value_name = "FORMAT", value_parser = Template::of_stat_printf, conflicts_with_all = ["json", "format"])]
    pub(crate) printf: Option<Template>,
    /// One JSON object per file, each on a line
    #[arg(long)]
    pub(crate) json: bool,
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
    /// The files, one after the other
    #[arg(required = true)]
    pub(crate) paths: Vec<OsString>,
}

/// `readlink`.
#[derive(Args, Debug)]
pub(crate) struct ReadlinkArgs {
    /// No line's end behind the one link
    #[arg(short, long)]
    pub(crate) no_newline: bool,
    /// A NUL behind each link instead of a line's end
    #[arg(short, long)]
    pub(crate) zero: bool,
    /// Say what is no link, or cannot be read
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
    /// Sizes with units: 1.5K, 23M
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Sizes in blocks of 1024 bytes, as always
    #[arg(short)]
    kilo: bool,
    /// Inodes instead of space
    #[arg(short, long)]
    pub(crate) inodes: bool,
    /// One JSON object, sizes in bytes
    #[arg(long)]
    pub(crate) json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The image
    pub(crate) img: String,
}

/// `du`.
#[derive(Args, Debug)]
pub(crate) struct DuArgs {
    /// Files too, not only directories
    #[arg(short, long, conflicts_with = "summarize")]
    pub(crate) all: bool,
    /// Only what was asked for, without what is below it
    #[arg(short, long, conflicts_with = "max_depth")]
    pub(crate) summarize: bool,
    /// What is so many levels below what was asked for, or less
    #[arg(short = 'd', long, value_name = "N")]
    pub(crate) max_depth: Option<usize>,
    /// The sum at the end
    #[arg(short = 'c', long)]
    pub(crate) total: bool,
    /// Sizes with units: 1.5K, 23M
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// Sizes in blocks of 1024 bytes, as always
    #[arg(short)]
    kilo: bool,
    /// How long files are, not the space that they take
    #[arg(long)]
    pub(crate) apparent_size: bool,
    /// The same, in bytes
    #[arg(short, long)]
    pub(crate) bytes: bool,
    /// Files with several names count for each
    #[arg(short = 'l', long)]
    pub(crate) count_links: bool,
    /// A NUL behind each path instead of a line's end
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// One JSON object per line, sizes in bytes
    #[arg(long)]
    pub(crate) json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The image
    pub(crate) img: String,
    /// Where to begin; the root directory unless given
    pub(crate) paths: Vec<OsString>,
}

/// `cmp`.
#[derive(Args, Debug)]
pub(crate) struct CmpArgs {
    /// Print nothing; the exit status says it
    #[arg(short, long, visible_alias = "quiet")]
    pub(crate) silent: bool,
    /// Compare only so many bytes
    #[arg(short = 'n', long = "bytes", value_name = "SIZE", value_parser = parse_size)]
    pub(crate) limit: Option<u64>,
    /// The image
    pub(crate) img: String,
    /// A file in it
    pub(crate) path: OsString,
    /// A file of the host; - for standard input
    pub(crate) file: OsString,
}

/// `check`.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Threads; one for each CPU unless given
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Tell up to 1000 findings of each kind instead of 10
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Check also what says that it is clean, as is done anyway
    #[arg(short)]
    force: bool,
    /// Change nothing, as is done anyway
    #[arg(short = 'n', conflicts_with = "preen")]
    no: bool,
    /// Print nothing if the image is clean; nothing is repaired
    #[arg(short, visible_short_alias = 'a')]
    pub(crate) preen: bool,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The image
    pub(crate) img: String,
}

/// `extents`.
#[derive(Args, Debug)]
pub(crate) struct ExtentsArgs {
    /// One JSON object per extent, each on a line
    #[arg(long)]
    pub(crate) json: bool,
    /// The image
    pub(crate) img: String,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}
