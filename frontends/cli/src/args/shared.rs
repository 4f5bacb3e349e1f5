//! Options that several commands have with the same meaning: one definition each.
//!
//! Input: the process's arguments. Output: options. Invariant: parsing opens nothing. Limits: none of its own.

use clap::Args;

/// `--json` of a command that has one result.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct JsonObject {
    /// Print one JSON object
    #[arg(id = "json", long = "json")]
    pub(crate) on: bool,
}

/// `--json` of a command that has a result for each file.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct JsonOfFiles {
    /// Print one JSON object per file, one per line
    #[arg(id = "json", long = "json")]
    pub(crate) on: bool,
}

/// `-v` of a command that changes files.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct VerboseChanges {
    /// Print each change
    #[arg(id = "verbose", short = 'v', long = "verbose")]
    pub(crate) on: bool,
}

/// `-z` of a command whose changes can be undone.
#[derive(Args, Clone, Debug)]
pub(crate) struct UndoFile {
    /// Keep in FILE what is overwritten, for `diorite undo` or e2undo
    #[arg(id = "undo", short = 'z', long = "undo", value_name = "FILE")]
    pub(crate) file: Option<String>,
}

/// `--help` of a command whose `-h` means something else.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct LongHelp {
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}
