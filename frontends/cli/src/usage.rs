//! The process's command line: read, or refused.
//!
//! Input: the process's arguments. Output: what is asked; else the process ends, with the codes of the command that was meant. Invariants: what
//! was asked of the command line itself - help, the version - is printed whole or fails. Limits: `check` ends as e2fsck does.

use crate::args::Cli;
use crate::manual;
use crate::output;
use clap::CommandFactory;
use clap::error::ErrorKind;
use std::io::Write;

/// As e2fsck ends.
const WRONG_USAGE_OF_CHECK: i32 = 16;
const FAILURE_OF_CHECK: i32 = 8;

/// The process's arguments. Wrong usage, and what is asked of this itself, ends the process.
pub(crate) fn read() -> Cli {
    if is_check() {
        output::fail_with(FAILURE_OF_CHECK);
    }
    manual::parse(std::env::args_os()).unwrap_or_else(|error| {
        let printed = error.print().and_then(|()| std::io::stdout().flush());
        if !error.use_stderr() {
            output::printed(printed);
        }
        std::process::exit(if error.use_stderr() && is_check() {
            WRONG_USAGE_OF_CHECK
        } else {
            error.exit_code()
        })
    })
}

/// Ends the process: the command line was understood, and makes no sense.
pub(crate) fn wrong(why: &str) -> ! {
    let name = command_word();
    let kind = ErrorKind::ArgumentConflict;
    manual::misused(Cli::command(), name.as_deref(), kind, why).exit()
}

fn is_check() -> bool {
    command_word().as_deref() == Some("check")
}

/// The first word that is a command.
fn command_word() -> Option<String> {
    let cli = Cli::command();
    let command = |word: &String| cli.find_subcommand(word).is_some();
    std::env::args().skip(1).find(command)
}
