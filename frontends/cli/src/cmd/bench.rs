//! `diorite bench`: hands the global options to the bench, and its failure to standard error.
//!
//! Input: options. Output: an exit code. Invariant: 2 for wrong usage, 130 when interrupted, 141 when the reader of standard
//! output has closed it (128 plus the signal's number, as shells show it); otherwise 1 for a failure. Limits: none.

use crate::args::Global;
use crate::bench::{self, Args, Common, FailureKind};
use crate::output::complain_best_effort;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &Args) -> ExitCode {
    let common = Common {
        io_engine: global.io_engine,
        policy: global.policy,
        force: global.ignore_lock,
    };
    let Err(failure) = bench::run(args, &common) else {
        return ExitCode::SUCCESS;
    };
    if failure.kind != FailureKind::NobodyReads {
        complain_best_effort(format_args!("diorite: bench: {failure}"));
    }
    ExitCode::from(match failure.kind {
        FailureKind::Usage => 2,
        FailureKind::Interrupted => 130,
        FailureKind::NobodyReads => 141,
        FailureKind::Failed | FailureKind::Unavailable => 1,
    })
}
