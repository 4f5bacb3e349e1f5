//! The experiments of `diorite bench`: the only code that measures speed, always as a ratio within one run.
//!
//! Input: the command line. Output: rows and ratios, as text or as one JSON object. Invariants: two rows that are compared use
//! the same load generator and run interleaved, and the reference runs twice per round (the A/A pair), which shows the noise; a
//! bench removes the files and devices that it makes. Limits: no test depends on a time.
//!
//! The route: `command` and `args` -> an experiment of the list in `exp` -> a test bed (`bed`) -> `rounds` of arms -> `drive` keeps a
//! target busy through its lanes (`raw`, `image`) -> `report`.

mod args;
mod bed;
mod calls;
mod command;
mod drive;
mod exp;
mod failure;
mod fio;
mod host;
mod host_file;
mod image;
mod job;
mod lane;
mod load;
mod locks;
mod peer;
mod polled;
mod raw;
mod report;
mod rounds;
mod signals;
mod targets;
mod tool;
mod verify;

/// Compiles the examples in the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use args::Common;
pub use command::Args;
pub use failure::{Failure, FailureKind};
pub use report::Print;

use args::{Options, RunOptions};
use command::{Named, Other, What};
use report::Report;

/// Runs the experiment that the command line names; blocks until its end. Rows go to `out` as they are measured.
///
/// # Errors
/// See [`FailureKind`]; [`FailureKind::NobodyReads`] is no error for a user.
pub fn run(args: &Args, common: &Common, out: Print) -> Result<(), Failure> {
    signals::watch()?;
    let (experiment, options) = match &args.what {
        What::Experiment(Named(experiment), options) => (experiment, options),
        What::Other(Other::Run(o)) => {
            let options = RunOptions {
                common: common.clone(),
                ..o.clone()
            };
            return exp::free::run(&options, out);
        }
        What::Other(Other::CostChild(o)) => return exp::cost_child::run(o, out),
    };
    let options = Options {
        io_engine: common.io_engine,
        force: common.force,
        ..options.clone()
    };
    let mut report = Report::new(experiment.name, options.json, exp::goals(), out);
    let load = host::load_average();
    if load > 0.7 {
        report.note(format!(
            "the load average is {load} before this begins: others' work will show as noise"
        ))?;
    }
    (experiment.run)(&options, &mut report)?;
    report.finish()
}
