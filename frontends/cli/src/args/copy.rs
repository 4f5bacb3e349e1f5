//! Options of the commands that copy files out and in, and of the command that runs scripts.
//!
//! Input: the process's arguments. Output: options. Invariant: parsing opens nothing. Limits: none of its own.

use crate::words::modes::ModeChange;
use crate::words::owners::Owner;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// `get`.
#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// Accepted for habit: directories are always copied whole
    #[arg(short, hide = true)]
    pub(crate) recursive: bool,
    /// Give copies the owner and group (as numbers) that they have in the image; the default for root
    #[arg(
        long,
        visible_alias = "numeric-owner",
        overrides_with = "no_same_owner"
    )]
    pub(crate) same_owner: bool,
    /// Give copies to the user who runs the command
    #[arg(long)]
    pub(crate) no_same_owner: bool,
    /// Change the permissions of the copies as chmod does, and leave out their ACLs: u+rwX lets an ordinary user read and delete them all;
    /// octal modes apply to all but directories
    #[arg(long, visible_alias = "mode", value_name = "MODE", value_parser = ModeChange::parse)]
    pub(crate) chmod: Option<ModeChange>,
    /// Copy no extended attributes
    #[arg(long)]
    pub(crate) no_xattrs: bool,
    /// Print each name when its copy is complete; nothing if DEST is standard output
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Show no progress on the terminal
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// The image
    pub(crate) img: String,
    /// What to copy
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// The new name, or a directory for the copies
    #[arg(required = true)]
    pub(crate) dest: PathBuf,
}

/// Options for copies that are made in an image: by `put`, and by `cp` into an image.
#[derive(Args, Clone, Debug)]
pub(crate) struct CopiesArgs {
    /// Give the copies to this user, or this user and group (numbers)
    #[arg(long, value_name = "UID[:GID]", value_parser = Owner::parse)]
    owner: Option<Owner>,
    /// Give the copies to this group (a number)
    #[arg(long, value_name = "GID", value_parser = ids())]
    group: Option<u32>,
    /// Change the permissions of the copies as chmod does: u=rwX,go=rX; octal modes apply to all but directories
    #[arg(long, value_name = "MODE", value_parser = ModeChange::parse)]
    pub(crate) mode: Option<ModeChange>,
    /// Copy no extended attributes and no ACLs
    #[arg(long)]
    pub(crate) no_xattrs: bool,
    /// Do not replace existing files; directories are still merged
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// Skip other file systems that are mounted below SOURCE
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,
    /// Print each name when its copy is complete
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Show no progress on the terminal
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl CopiesArgs {
    /// The user and the group that copies are given to.
    pub(crate) fn ids(&self) -> (Option<u32>, Option<u32>) {
        let owner = self.owner;
        (
            owner.and_then(|owner| owner.uid),
            self.group.or(owner.and_then(|owner| owner.gid)),
        )
    }

    /// Whether an option was given that applies only to copies in an image.
    pub(crate) fn has_image_only_options(&self) -> bool {
        self.owner.is_some() || self.group.is_some() || self.mode.is_some() || self.no_clobber
    }
}

/// `put`.
#[derive(Args, Debug)]
pub(crate) struct PutArgs {
    /// Accepted for habit: directories are always copied whole
    #[arg(short, short_aliases = ['R', 'a', 'f'], hide = true, overrides_with = "recursive")]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) copies: CopiesArgs,
    /// Copy all SOURCEs into this directory
    #[arg(
        short,
        long,
        value_name = "DIR",
        conflicts_with = "no_target_directory"
    )]
    pub(crate) target_directory: Option<OsString>,
    /// Take DEST as the new name even if it is a directory
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// The image
    pub(crate) img: String,
    /// What to copy, and last DEST
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) paths: Vec<OsString>,
}

/// `cp`.
#[derive(Args, Debug)]
pub(crate) struct CpArgs {
    /// Accepted for habit: directories are always copied whole
    #[arg(short, short_aliases = ['R', 'a', 'f'], hide = true)]
    recursive: bool,
    #[command(flatten)]
    pub(crate) copies: CopiesArgs,
    /// What to copy, and last DEST: paths of the host, or IMG:/path
    #[arg(required = true, num_args = 1.., value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `edit`.
#[derive(Args, Debug)]
pub(crate) struct EditArgs {
    /// The script; - for standard input
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) script: PathBuf,
    /// Make each line a transaction of its own
    #[arg(long)]
    pub(crate) each: bool,
    /// Commit between lines whenever the transaction is half full or has no room for the next line: each line is applied completely
    /// or not at all, but not the whole script
    #[arg(long, conflicts_with_all = ["each", "dry_run"])]
    pub(crate) batch: bool,
    /// Do everything, transaction by transaction, but keep in memory what would be written. Nothing is written to the image, which need
    /// not be writable
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Keep in FILE what is overwritten, for `diorite undo` or e2undo
    #[arg(short = 'z', long, value_name = "FILE", conflicts_with = "dry_run")]
    pub(crate) undo: Option<String>,
    /// The image
    pub(crate) img: String,
}

/// Parser of user and group ids. `u32::MAX` is not one: chown takes it for "no change".
fn ids() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(..i64::from(u32::MAX))
}
