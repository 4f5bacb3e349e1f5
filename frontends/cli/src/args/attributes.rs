//! Options of the commands that read and set extended attributes, access control lists and flags.
//!
//! Input: the process's arguments. Output: options. Invariant: parsing opens nothing. Limits: the options are those of attr,
//! acl and e2fsprogs; the image comes before the paths.

use super::shared::{JsonOfFiles, LongHelp};
use crate::words::attributes::{AclWord, Encoding, FlagChange, FlagWord, Pattern, parse_value};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;

/// `getfattr`.
#[derive(Args, Debug)]
pub(crate) struct GetfattrArgs {
    /// Print only this attribute, with its value
    #[arg(short, long)]
    pub(crate) name: Option<OsString>,
    /// Print the values as well
    #[arg(short, long)]
    pub(crate) dump: bool,
    /// Print attributes whose names match this regular expression; - for all
    #[arg(
        short = 'm',
        long = "match",
        value_name = "PATTERN",
        default_value = "^user\\.",
        allow_hyphen_values = true,
        value_parser = Pattern::parse
    )]
    pub(crate) pattern: Pattern,
    /// How values are printed; by default as text if most of the value is printable, else in base64
    #[arg(short, long, value_enum)]
    pub(crate) encoding: Option<Encoding>,
    /// Print only the values, as raw bytes
    #[arg(long)]
    pub(crate) only_values: bool,
    /// Use a symbolic link itself, not its target
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    /// Include everything below directories
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Keep leading slashes of paths
    #[arg(long)]
    pub(crate) absolute_names: bool,
    #[command(flatten)]
    pub(crate) json: JsonOfFiles,
    #[command(flatten)]
    help: LongHelp,
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
    /// The value: text, 0x and hexadecimal digits, or 0s and base64; inside quotes \ooo is an octal byte; empty by default
    #[arg(short, long, requires = "name", allow_hyphen_values = true, value_parser = parse_value)]
    pub(crate) value: Option<crate::words::attributes::Value>,
    /// Remove this attribute
    #[arg(short = 'x', long, value_name = "NAME")]
    pub(crate) remove: Option<OsString>,
    /// Use a symbolic link itself, not its target
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    #[command(flatten)]
    help: LongHelp,
    /// The image
    pub(crate) img: String,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `getfacl`.
#[derive(Args, Debug)]
pub(crate) struct GetfaclArgs {
    /// Print only the file's own list
    #[arg(short, long)]
    pub(crate) access: bool,
    /// Print only the default list
    #[arg(short, long)]
    pub(crate) default: bool,
    /// Print no lines with path, owner and group
    #[arg(short = 'c', long)]
    pub(crate) omit_header: bool,
    /// Print only files that have a list
    #[arg(short, long)]
    pub(crate) skip_base: bool,
    /// Print users and groups as numbers (always done)
    #[arg(short, long)]
    numeric: bool,
    /// Include everything below directories
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Keep leading slashes of paths
    #[arg(short = 'p', long)]
    pub(crate) absolute_names: bool,
    #[command(flatten)]
    pub(crate) json: JsonOfFiles,
    /// The image
    pub(crate) img: String,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
}

/// `setfacl`.
#[derive(Args, Debug)]
pub(crate) struct SetfaclArgs {
    /// Set entries: u:UID:rwx, g:GID:rX, u::rw, g::r, m::rx, o::-, separated by commas; d: in front for the default list
    #[arg(short, long, value_name = "ENTRIES", value_parser = AclWord::to_set)]
    pub(crate) modify: Vec<AclWord>,
    /// Remove entries: u:UID, g:GID, m; done before entries are set
    #[arg(short = 'x', long, value_name = "ENTRIES", value_parser = AclWord::to_remove)]
    pub(crate) remove: Vec<AclWord>,
    /// Remove the default list and all entries except those of the permissions; done first
    #[arg(short = 'b', long)]
    pub(crate) remove_all: bool,
    /// Remove the default list; done first
    #[arg(short = 'k', long)]
    pub(crate) remove_default: bool,
    /// Apply all entries to the default list
    #[arg(short, long)]
    pub(crate) default: bool,
    /// Do not recalculate the mask
    #[arg(short, long)]
    pub(crate) no_mask: bool,
    /// Include everything below directories
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
    /// Include directories below directories
    #[arg(short = 'R')]
    pub(crate) recursive: bool,
    /// Include names that begin with a dot
    #[arg(short)]
    pub(crate) all: bool,
    /// Print directories themselves, not their contents
    #[arg(short)]
    pub(crate) directory: bool,
    /// Print project numbers
    #[arg(short)]
    pub(crate) project: bool,
    /// Print generation numbers
    #[arg(short = 'v')]
    pub(crate) generation: bool,
    #[command(flatten)]
    pub(crate) json: JsonOfFiles,
    /// The image
    pub(crate) img: String,
    /// The files; by default the root directory
    pub(crate) paths: Vec<OsString>,
}

/// `chattr`.
#[derive(Args, Debug)]
pub(crate) struct ChattrArgs {
    /// Include everything below directories
    #[arg(short = 'R')]
    pub(crate) recursive: bool,
    /// Set the generation number, if no checksum includes it
    #[arg(short = 'v', value_name = "NUMBER")]
    pub(crate) generation: Option<u32>,
    /// Set the project number, if the volume has project numbers
    #[arg(short = 'p', value_name = "PROJECT")]
    pub(crate) project: Option<u32>,
    /// The image
    pub(crate) img: String,
    /// Changes, then the files: + sets flags, - clears them, = sets exactly these; any of aAcCdDeijPsStTuFx, for example +i or
    /// -dA
    #[arg(
        required = true,
        value_name = "FLAGS|PATH",
        allow_hyphen_values = true,
        value_parser = OsStringValueParser::new().try_map(FlagWord::parse)
    )]
    pub(crate) words: Vec<FlagWord>,
}

impl ChattrArgs {
    /// The changes of flags, in order.
    pub(crate) fn changes(&self) -> impl Iterator<Item = FlagChange> + '_ {
        self.words.iter().filter_map(|word| match word {
            FlagWord::Change(change) => Some(*change),
            FlagWord::Path(_) => None,
        })
    }

    /// The files to change.
    pub(crate) fn paths(&self) -> Vec<OsString> {
        let path = |word: &FlagWord| match word {
            FlagWord::Path(path) => Some(path.clone()),
            FlagWord::Change(_) => None,
        };
        self.words.iter().filter_map(path).collect()
    }
}
