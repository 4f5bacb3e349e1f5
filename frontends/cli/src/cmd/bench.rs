//! `diorite bench`: hands the global options to the bench, and its failure to standard error.
//!
//! Input: options. Output: an exit code. Invariant: 2 for wrong usage, 130 when interrupted, 141 when the reader of standard
//! output has closed it (128 plus the signal's number, as shells show it); otherwise 1 for a failure. Limits: none.

use crate::args::Global;
use crate::output::{Guarded, complain_best_effort};
use diorite_bench::{Args, Common, FailureKind};
use std::io::Write;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &Args) -> ExitCode {
    let common = Common {
        io_engine: global.io_engine,
        policy: global.policy,
        force: global.ignore_lock,
    };
    let Err(failure) = diorite_bench::run(args, &common, print) else {
        return ExitCode::SUCCESS;
    };
    if failure.kind != FailureKind::NobodyReads {
        complain_best_effort(format_args!("diorite: bench: {failure}"));
    }
    ExitCode::from(match failure.kind {
        FailureKind::Usage => 2,
        FailureKind::Interrupted => 130,
        FailureKind::NobodyReads => 141,
        _ => 1,
    })
}

/// Writes to standard output at once.
fn print(text: std::fmt::Arguments<'_>) -> std::io::Result<()> {
    let mut out = Guarded(std::io::stdout().lock());
    out.write_fmt(text)?;
    out.flush()
}
