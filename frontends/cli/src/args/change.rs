//! Options of the commands that change names and inodes, as in coreutils.
//!
//! Input: the process's arguments. Output: options. Invariant: parsing opens nothing. Limits: none of its own.

use super::shared::VerboseChanges;
use crate::words::modes::ModeChange;
use crate::words::owners::Owner;
use crate::words::times;
use clap::Args;
use diorite_format::Timestamp;
use std::ffi::OsString;

/// `mkdir`.
#[derive(Args, Debug)]
pub(crate) struct MkdirArgs {
    /// Also make missing parent directories; a directory that exists is no error
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Permissions, as for chmod
    #[arg(short, long, value_parser = ModeChange::parse)]
    pub(crate) mode: Option<ModeChange>,
    #[command(flatten)]
    pub(crate) verbose: VerboseChanges,
    /// The image
    pub(crate) img: String,
    /// The directories
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `rmdir`.
#[derive(Args, Debug)]
pub(crate) struct RmdirArgs {
    /// Also remove the parent directories in the path: a/b removes a/b, then a
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Do not fail if a directory is not empty
    #[arg(long)]
    pub(crate) ignore_fail_on_non_empty: bool,
    #[command(flatten)]
    pub(crate) verbose: VerboseChanges,
    /// The image
    pub(crate) img: String,
    /// The directories
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `rm`.
#[derive(Args, Debug)]
pub(crate) struct RmArgs {
    /// Also remove directories with everything below them
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Also remove empty directories
    #[arg(short, long)]
    pub(crate) dir: bool,
    /// A path that does not exist is no error
    #[arg(short, long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) verbose: VerboseChanges,
    /// The image
    pub(crate) img: String,
    /// What to remove
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `mv`.
#[derive(Args, Debug)]
pub(crate) struct MvArgs {
    /// Do not replace existing files
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// Take DEST as the new name even if it is a directory
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    #[command(flatten)]
    pub(crate) verbose: VerboseChanges,
    /// The image
    pub(crate) img: String,
    /// What to move
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// The new name, or a directory to move into
    #[arg(required = true)]
    pub(crate) dest: OsString,
}

/// `ln`.
#[derive(Args, Debug)]
pub(crate) struct LnArgs {
    /// Make a symbolic link: TARGET is its text and need not exist
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// Replace an existing file at the new name
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Take LINK as the new name even if it is a directory
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    #[command(flatten)]
    pub(crate) verbose: VerboseChanges,
    /// The image
    pub(crate) img: String,
    /// The file to link to
    pub(crate) target: OsString,
    /// The new name, or a directory for it
    pub(crate) link: OsString,
}

/// `mknod`.
#[derive(Args, Debug)]
pub(crate) struct MknodArgs {
    /// Permissions, as for chmod
    #[arg(short, long, value_parser = ModeChange::parse)]
    pub(crate) mode: Option<ModeChange>,
    /// The image
    pub(crate) img: String,
    /// The new name
    pub(crate) path: OsString,
    /// The type of node
    #[arg(value_enum, value_name = "TYPE")]
    pub(crate) kind: NodeType,
    /// Major number of a device
    pub(crate) major: Option<u32>,
    /// Minor number of a device
    pub(crate) minor: Option<u32>,
}

/// The types of nodes, by mknod's letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum NodeType {
    /// Block device
    #[value(name = "b")]
    Block,
    /// Character device
    #[value(name = "c", alias = "u")]
    Character,
    /// Pipe
    #[value(name = "p")]
    Pipe,
}

/// `touch`.
#[derive(Args, Debug)]
pub(crate) struct TouchArgs {
    /// Set only the access time
    #[arg(short)]
    pub(crate) access: bool,
    /// Set only the modification time
    #[arg(short)]
    pub(crate) modification: bool,
    /// Do not create files
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
    /// Use a symbolic link itself, not its target
    #[arg(long)]
    pub(crate) no_dereference: bool,
    /// Use this time instead of now: @SECONDS since 1970, or 2001-02-03, 2001-02-03 04:05:06 (local time), 2001-02-03T04:05:06Z
    #[arg(short, long, value_name = "TIME", value_parser = times::parse, conflicts_with = "reference")]
    pub(crate) date: Option<Timestamp>,
    /// Use this time instead of now: [[CC]YY]MMDDhhmm[.ss], local time
    #[arg(short = 't', value_name = "STAMP", value_parser = times::parse_stamp, conflicts_with_all = ["date", "reference"])]
    pub(crate) stamp: Option<Timestamp>,
    /// Use the times of this file of the image instead of now
    #[arg(short, long, value_name = "FILE")]
    pub(crate) reference: Option<OsString>,
    /// The image
    pub(crate) img: String,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `chmod`.
#[derive(Args, Debug)]
pub(crate) struct ChmodArgs {
    /// Include everything below directories
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) verbose: VerboseChanges,
    /// The image
    pub(crate) img: String,
    /// An octal number, or letters: u+x, go-w,a=rX; without u, g or o it applies to all
    #[arg(value_parser = ModeChange::parse, allow_hyphen_values = true)]
    pub(crate) mode: ModeChange,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `chown`.
#[derive(Args, Debug)]
pub(crate) struct ChownArgs {
    /// Include everything below directories
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Use a symbolic link itself, not its target
    #[arg(long)]
    pub(crate) no_dereference: bool,
    #[command(flatten)]
    pub(crate) verbose: VerboseChanges,
    /// The image
    pub(crate) img: String,
    /// OWNER, OWNER:GROUP or :GROUP, as numbers
    #[arg(value_parser = Owner::parse)]
    pub(crate) owner: Owner,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}
