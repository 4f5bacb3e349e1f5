//! Options of a command that are defined when the command is used: so a run of the program builds the options of one command, not of all.
//!
//! Input: a command with its name and texts, without options. Output: the command, which gets its options when clap builds it. Invariant:
//! the texts that it has stay. Limit: the options do not exist before the command is built; the help, the man pages and the completions
//! build it.

use clap::builder::Resettable;
use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::ops::Deref;

/// Options of one command.
#[derive(Debug)]
pub(crate) struct Late<T>(T);

impl<T> Deref for Late<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Defines the options. Their definition has a text of its own, which is not that of the command.
fn define<T: Args>(command: Command) -> Command {
    let about = command.get_about().cloned();
    let long_about = command.get_long_about().cloned();
    T::augment_args(command)
        .about(Resettable::from(about))
        .long_about(Resettable::from(long_about))
        .mut_args(may_repeat)
}

/// Lets an option be given twice: the last one counts.
fn may_repeat(arg: Arg) -> Arg {
    match arg.get_action() {
        ArgAction::Set | ArgAction::SetTrue if !arg.is_positional() => {
            let itself = arg.get_id().clone();
            arg.overrides_with(itself)
        }
        _ => arg,
    }
}

impl<T: Args> Args for Late<T> {
    fn augment_args(command: Command) -> Command {
        command.defer(define::<T>)
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(define::<T>)
    }
}

impl<T: FromArgMatches> FromArgMatches for Late<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Late)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}
