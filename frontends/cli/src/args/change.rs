//! The command line of what changes names and what inodes say of their files, in coreutils' words.
//!
//! Input: the process's arguments. Output: options. Invariant: as for all of them. Limits: none of its own.

use crate::modes::ModeChange;
use crate::owners::Owner;
use crate::times;
use clap::Args;
use diorite_format::Timestamp;
use std::ffi::OsString;

/// `mkdir`.
#[derive(Args, Debug)]
pub(crate) struct MkdirArgs {
    /// Directories above, too; what is there already is no error
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Permissions, as for chmod
    #[arg(short, long, value_parser = ModeChange::parse)]
    pub(crate) mode: Option<ModeChange>,
    /// Say what is done
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The image
    pub(crate) img: String,
    /// The directories
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `rmdir`.
#[derive(Args, Debug)]
pub(crate) struct RmdirArgs {
    /// The directories above, too, as far as they are named: a/b removes a/b, then a
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// That one is not empty is no error
    #[arg(long)]
    pub(crate) ignore_fail_on_non_empty: bool,
    /// Say what is done
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The image
    pub(crate) img: String,
    /// The directories
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `rm`.
#[derive(Args, Debug)]
pub(crate) struct RmArgs {
    /// Directories with all that is in them, too
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Empty directories, too
    #[arg(short, long)]
    pub(crate) dir: bool,
    /// What is not there is no error
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Say what is done
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The image
    pub(crate) img: String,
    /// What to remove
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `mv`.
#[derive(Args, Debug)]
pub(crate) struct MvArgs {
    /// What is there under the new name stays, and nothing is moved there
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// DEST is the new name, also if it is a directory
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// Say what is done
    #[arg(short, long)]
    pub(crate) verbose: bool,
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
    /// A symbolic link: TARGET is its text, and need not be there
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// Remove what is there under the new name
    #[arg(short, long)]
    pub(crate) force: bool,
    /// LINK is the new name, also if it is a directory
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// Say what is done
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The image
    pub(crate) img: String,
    /// What to link to
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
    /// Of which kind
    #[arg(value_enum, value_name = "TYPE")]
    pub(crate) kind: NodeType,
    /// A device's major number
    pub(crate) major: Option<u32>,
    /// Its minor number
    pub(crate) minor: Option<u32>,
}

/// The kinds of nodes, by mknod's letters.
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
    /// The time of the last access only
    #[arg(short)]
    pub(crate) access: bool,
    /// The time of the last change only
    #[arg(short)]
    pub(crate) modification: bool,
    /// Make no file that is not there
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
    /// A symbolic link itself, not what it points to
    #[arg(long)]
    pub(crate) no_dereference: bool,
    /// This time instead of now: @SECONDS since 1970, or 2001-02-03, 2001-02-03 04:05:06 (local time), 2001-02-03T04:05:06Z
    #[arg(short, long, value_name = "TIME", value_parser = times::parse, conflicts_with = "reference")]
    pub(crate) date: Option<Timestamp>,
    /// This time instead of now: [[CC]YY]MMDDhhmm[.ss], local
    #[arg(short = 't', value_name = "STAMP", value_parser = times::parse_stamp, conflicts_with_all = ["date", "reference"])]
    pub(crate) stamp: Option<Timestamp>,
    /// The times of this file of the image instead of now
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
    /// Directories with all that is in them
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Say what is done
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The image
    pub(crate) img: String,
    /// Octal, or letters: u+x, go-w,a=rX; without a letter for whom all are meant
    #[arg(value_parser = ModeChange::parse, allow_hyphen_values = true)]
    pub(crate) mode: ModeChange,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `chown`.
#[derive(Args, Debug)]
pub(crate) struct ChownArgs {
    /// Directories with all that is in them
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Symbolic links themselves, not what they point to
    #[arg(long)]
    pub(crate) no_dereference: bool,
    /// Say what is done
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The image
    pub(crate) img: String,
    /// OWNER, OWNER:GROUP or :GROUP, as numbers
    #[arg(value_parser = Owner::parse)]
    pub(crate) owner: Owner,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}
