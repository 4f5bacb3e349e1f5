//! The command line of `diorite bench`: a subcommand for each experiment, and for a load of the user's own.
//!
//! Input: the process's arguments. Output: [`Args`]. Invariant: the experiments are those of [`exp::ALL`], in that order. Limits: the child
//! process of the experiment `cost` is hidden, since only experiments start it.

use super::args::{ChildOptions, Options, RunOptions};
use super::exp::{self, Experiment};
use clap::error::ErrorKind;
use clap::{ArgMatches, Command, FromArgMatches, Subcommand};
use std::fmt;

/// Measure diorite against the raw device, its own policies and the kernel.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub(super) what: What,
}

/// What is to be run.
#[derive(Debug)]
pub(super) enum What {
    Experiment(Named, Options),
    Other(Other),
}

/// An experiment of the list.
pub(super) struct Named(pub(super) &'static Experiment);

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Other {
    /// One load that the options describe, with fio's names for them
    Run(RunOptions),
    #[command(hide = true)]
    CostChild(ChildOptions),
}

impl FromArgMatches for What {
    fn from_arg_matches(matches: &ArgMatches) -> Result<What, clap::Error> {
        let Some((name, said)) = matches.subcommand() else {
            return Err(clap::Error::new(ErrorKind::MissingSubcommand));
        };
        match exp::ALL.into_iter().find(|e| e.name == name) {
            Some(experiment) => Ok(What::Experiment(
                Named(experiment),
                Experiment::options(said)?,
            )),
            None => Other::from_arg_matches(matches).map(What::Other),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = What::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for What {
    fn augment_subcommands(command: Command) -> Command {
        let all = exp::ALL.into_iter().map(Experiment::command);
        Other::augment_subcommands(command.subcommands(all))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        What::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        exp::ALL.into_iter().any(|e| e.name == name) || Other::has_subcommand(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Names and ids of targets say which experiment and which ratio is meant.
    #[test]
    fn names_and_ids_are_unique() {
        let names: BTreeSet<&str> = exp::ALL.iter().map(|e| e.name).collect();
        assert_eq!(names.len(), exp::ALL.len());
        let ids: BTreeSet<&str> = exp::goals().iter().map(|goal| goal.id).collect();
        assert_eq!(ids.len(), exp::goals().len());
        assert!(ids.contains("contended"));
    }

    /// The child process is offered to nobody.
    #[test]
    fn the_help_has_all_but_the_child() {
        let mut command = What::augment_subcommands(Command::new("bench"));
        let help = command.render_help().to_string();
        assert!(exp::ALL.iter().all(|e| help.contains(e.name)), "{help}");
        assert!(!help.contains("cost-child"), "{help}");
    }
}
