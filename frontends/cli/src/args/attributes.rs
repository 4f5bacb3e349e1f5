//! The command line of what reads and sets attributes and flags.
//!
//! Input: the process's arguments. Output: options. Invariant: as for all of them. Limits: the words are those of attr and e2fsprogs, with the image in
//! front of the paths.

use crate::attributes::{AclWord, Encoding, FlagChange, FlagWord, Pattern, parse_value};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;

/// `getfattr`.
#[derive(Args, Debug)]
pub(crate) struct GetfattrArgs {
    /// Only this attribute, with its value
    #[arg(short, long)]
    pub(crate) name: Option<OsString>,
    /// Values too
    #[arg(short, long)]
    pub(crate) dump: bool,
    /// Attributes whose names match this regular expression; - for all
    #[arg(short = 'm', long = "match", value_name = "PATTERN", default_value = "^user\\.", allow_hyphen_values = true, value_parser = Pattern::parse)]
    pub(crate) pattern: Pattern,
    /// How values are printed: as text where most of it can be, else in base64, unless given
    #[arg(short, long, value_enum)]
    pub(crate) encoding: Option<Encoding>,
    /// Nothing but values, as they are
    #[arg(long)]
    pub(crate) only_values: bool,
    /// Symbolic links themselves, not what they point to
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    /// Directories with all that is in them
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Leave slashes in front of paths
    #[arg(long)]
    pub(crate) absolute_names: bool,
    /// One JSON object per file, each on a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The image
    pub(crate) img: String,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `setfattr`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["name", "remove"]))]
pub(crate) struct SetfattrArgs {
    /// Set this attribute
    #[arg(short, long)]
    pub(crate) name: Option<OsString>,
    /// Its value: text, or 0x and hexadecimal, or 0s and base64; in quotes \ooo is a byte; nothing unless given
    #[arg(short, long, requires = "name", allow_hyphen_values = true, value_parser = parse_value)]
    pub(crate) value: Option<crate::attributes::Value>,
    /// Remove this attribute
    #[arg(short = 'x', long, value_name = "NAME")]
    pub(crate) remove: Option<OsString>,
    /// Symbolic links themselves, not what they point to
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The image
    pub(crate) img: String,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `getfacl`.
#[derive(Args, Debug)]
pub(crate) struct GetfaclArgs {
    /// The file's own list only
    #[arg(short, long)]
    pub(crate) access: bool,
    /// The default list only
    #[arg(short, long)]
    pub(crate) default: bool,
    /// No lines with path, owner and group
    #[arg(short = 'c', long)]
    pub(crate) omit_header: bool,
    /// Only files that have a list
    #[arg(short, long)]
    pub(crate) skip_base: bool,
    /// Users and groups as numbers, as always
    #[arg(short, long)]
    numeric: bool,
    /// Directories with all that is in them
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Leave slashes in front of paths
    #[arg(short = 'p', long)]
    pub(crate) absolute_names: bool,
    /// One JSON object per file, each on a line
    #[arg(long)]
    pub(crate) json: bool,
    /// The image
    pub(crate) img: String,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `setfacl`.
#[derive(Args, Debug)]
pub(crate) struct SetfaclArgs {
    /// Set entries: u:UID:rwx, g:GID:rX, u::rw, g::r, m::rx, o::-, separated by commas; d: in front for those of the default list
    #[arg(short, long, value_name = "ENTRIES", value_parser = AclWord::to_set)]
    pub(crate) modify: Vec<AclWord>,
    /// Remove entries: u:UID, g:GID, m; before others are set
    #[arg(short = 'x', long, value_name = "ENTRIES", value_parser = AclWord::to_remove)]
    pub(crate) remove: Vec<AclWord>,
    /// Remove all but what permissions say, and the default list; before anything else
    #[arg(short = 'b', long)]
    pub(crate) remove_all: bool,
    /// Remove the default list; before anything else
    #[arg(short = 'k', long)]
    pub(crate) remove_default: bool,
    /// All entries are those of the default list
    #[arg(short, long)]
    pub(crate) default: bool,
    /// Leave the mask as it is
    #[arg(short, long)]
    pub(crate) no_mask: bool,
    /// Directories with all that is in them
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// The image
    pub(crate) img: String,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `lsattr`.
#[derive(Args, Debug)]
pub(crate) struct LsattrArgs {
    /// Directories below directories too
    #[arg(short = 'R')]
    pub(crate) recursive: bool,
    /// Names that begin with a dot too
    #[arg(short)]
    pub(crate) all: bool,
    /// Directories themselves, not what is in them
    #[arg(short)]
    pub(crate) directory: bool,
    /// Project numbers in front
    #[arg(short)]
    pub(crate) project: bool,
    /// Generation numbers in front
    #[arg(short = 'v')]
    pub(crate) generation: bool,
    /// One JSON object per file, each on a line
    #[arg(long)]
    pub(crate) json: bool,
    /// The image
    pub(crate) img: String,
    /// The files; the root directory unless given
    pub(crate) paths: Vec<OsString>,
}

/// `chattr`.
#[derive(Args, Debug)]
pub(crate) struct ChattrArgs {
    /// Directories with all that is in them
    #[arg(short = 'R')]
    pub(crate) recursive: bool,
    /// Set the generation number, where no checksum has it in it
    #[arg(short = 'v', value_name = "NUMBER")]
    pub(crate) generation: Option<u32>,
    /// Set the project number, where the volume has such
    #[arg(short = 'p', value_name = "PROJECT")]
    pub(crate) project: Option<u32>,
    /// The image
    pub(crate) img: String,
    /// Changes, and then the files: + to set, - to clear, = to have these and no others, any of aAcCdDeijPsStTuFx, for example +i or -dA
    #[arg(required = true, value_name = "FLAGS|PATH", allow_hyphen_values = true, value_parser = OsStringValueParser::new().try_map(FlagWord::parse))]
    pub(crate) words: Vec<FlagWord>,
}

impl ChattrArgs {
    /// What is to become of flags, in order.
    pub(crate) fn changes(&self) -> impl Iterator<Item = FlagChange> + '_ {
        self.words.iter().filter_map(|word| match word {
            FlagWord::Change(change) => Some(*change),
            FlagWord::Path(_) => None,
        })
    }

    /// Of which files.
    pub(crate) fn paths(&self) -> Vec<OsString> {
        let path = |word: &FlagWord| match word {
            FlagWord::Path(path) => Some(path.clone()),
            FlagWord::Change(_) => None,
        };
        self.words.iter().filter_map(path).collect()
    }
}
