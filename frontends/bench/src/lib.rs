//! The experiments of `diorite bench`: the only code that measures speed, always as a ratio within one run.
//!
//! Input: the command line. Output: rows and ratios, as text or as one JSON object. Invariants: two rows that are compared use
//! the same load generator and run interleaved, and the reference runs twice per round (the A/A pair), which shows the noise; a
//! bench removes the files and devices that it makes. Limits: no test depends on a time.
//!
//! The route: `args` -> an experiment in `exp` -> a test bed (`bed`) -> `rounds` of arms -> `drive` keeps a target busy
//! through its lanes (`raw`, `image`) -> `report`.

mod args;
mod bed;
mod calls;
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

pub use args::{Args, Common};
pub use failure::{Failure, FailureKind};
pub use report::Print;

use args::{Options, RunOptions, What};
use report::Report;

/// Runs the experiment that the command line names; blocks until its end. Rows go to `out` as they are measured.
///
/// # Errors
/// See [`FailureKind`]; [`FailureKind::NobodyReads`] is no error for a user.
pub fn run(args: &Args, common: &Common, out: Print) -> Result<(), Failure> {
    signals::watch()?;
    let (name, experiment, options): (_, Experiment, _) = match &args.what {
        What::Completion(o) => ("completion", exp::completion::run, o),
        What::ReadScaling(o) => ("read-scaling", exp::read_scaling::run, o),
        What::Unaligned(o) => ("unaligned", exp::unaligned::run, o),
        What::Cost(o) => ("cost", exp::cost::run, o),
        What::Raw(o) => ("raw", exp::raw::run, o),
        What::LoopLayer(o) => ("loop-layer", exp::loops::layers::run, o),
        What::Loop(o) => ("loop", exp::loops::run, &o.with_loops()),
        What::Append(o) => ("append", exp::append::run, o),
        What::Holes(o) => ("holes", exp::holes::run, o),
        What::Unwritten(o) => ("unwritten", exp::unwritten::run, o),
        What::Fsync(o) => ("fsync", exp::fsync::run, o),
        What::Atomic(o) => ("atomic", exp::atomic::run, o),
        What::Names(o) => ("names", exp::names::run, &o.with_counts()),
        What::Buffered(o) => ("buffered", exp::buffered::run, &o.with_files()),
        What::Fuse(o) => ("fuse", exp::fuse::run, o),
        What::Image(o) => ("image", exp::image::run, o),
        What::Nbd(o) => ("nbd", exp::nbd::run, o),
        What::Check(o) => ("check", exp::check::run, &o.with_files()),
        What::Run(o) => {
            let options = RunOptions {
                common: common.clone(),
                ..o.clone()
            };
            return exp::free::run(&options, out);
        }
        What::CostChild(o) => return exp::cost_child::run(o, out),
    };
    let options = Options {
        io_engine: common.io_engine,
        force: common.force,
        ..options.clone()
    };
    let mut report = Report::new(name, options.json, out);
    let load = host::load_average();
    if load > 0.7 {
        report.note(format!(
            "the load average is {load} before this begins: others' work will show as noise"
        ))?;
    }
    experiment(&options, &mut report)?;
    report.finish()
}

type Experiment = fn(&Options, &mut Report) -> Result<(), Failure>;
