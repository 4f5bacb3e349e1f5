//! Reads the process's command line, or refuses it.
//!
//! Input: the process's arguments. Output: the parsed command line; otherwise the process ends, with the exit code that the
//! named command has for wrong usage. Invariants: if the help or the version cannot be printed completely, the process fails.
//! Limits: `check` has the exit codes of e2fsck.

mod helper;
mod hints;

use crate::args::{Cli, Command};
use crate::manual;
use crate::output;
use clap::error::ErrorKind;
use clap::{CommandFactory, Subcommand};
use std::ffi::OsString;
use std::io::Write;

/// The exit codes of e2fsck.
const WRONG_USAGE_OF_CHECK: i32 = 16;
const FAILURE_OF_CHECK: u8 = 8;

/// Parses the process's arguments. Ends the process on wrong usage, and after printing help or the version.
pub(crate) fn read() -> Cli {
    let words = words();
    // To define all commands takes long.
    let is_check = command_word(&words, Command::has_subcommand) == Some("check");
    if is_check {
        output::fail_with(FAILURE_OF_CHECK);
    }
    let given = words.clone();
    manual::parse(words).unwrap_or_else(|mut error| {
        hints::add(&mut error, &given);
        let open = match error.use_stderr() {
            true => Ok(()),
            false => output::check_open().map_err(std::io::Error::from),
        };
        let printed = open
            .and_then(|()| error.print())
            .and_then(|()| std::io::stdout().flush());
        if !error.use_stderr() {
            output::printed(printed);
        }
        std::process::exit(if error.use_stderr() && is_check {
            WRONG_USAGE_OF_CHECK
        } else if error.use_stderr() && helper::is_one() {
            helper::WRONG_USAGE
        } else {
            error.exit_code()
        })
    })
}

/// The arguments of this process: those up to the name of its command, and those behind it.
pub(crate) fn around(command: &str) -> (Vec<OsString>, Vec<OsString>) {
    let mut upto: Vec<OsString> = words().into_iter().skip(1).collect();
    let name = upto.iter().position(|arg| *arg == *command);
    let behind = upto.split_off(name.map_or(0, |at| at + 1));
    (upto, behind)
}

/// Ends the process: the command line could be parsed, but makes no sense.
pub(crate) fn wrong(why: &str) -> ! {
    let (cli, words) = (Cli::command(), words());
    let is_one = |word: &str| cli.find_subcommand(word).is_some();
    let name = command_word(&words, is_one).map(str::to_owned);
    let kind = ErrorKind::ArgumentConflict;
    let misused = manual::misused(cli, name.as_deref(), kind, why);
    if helper::is_one() {
        // Best effort: the exit code says it, too.
        let _ = misused.print();
        std::process::exit(helper::WRONG_USAGE);
    }
    misused.exit()
}

/// The words of this process, its own name first.
fn words() -> Vec<OsString> {
    helper::translated(std::env::args_os()).collect()
}

/// The first argument that is the name of a command.
fn command_word(words: &[OsString], is_one: impl Fn(&str) -> bool) -> Option<&str> {
    // A word that is no text is no command.
    let mut words = words.iter().skip(1).filter_map(|word| word.to_str());
    words.find(|word| is_one(word))
}
