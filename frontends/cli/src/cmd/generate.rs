//! `diorite generate`: writes man pages, completions and the commands' pages of the book, made from the definitions of the command line.
//!
//! Input: a directory. Output: files in it. Invariant: nothing in them is written by hand, so they cannot be out of date.
//! Limits: existing files are replaced; a missing directory is created.

use crate::args::{GenerateArgs, Generated};
use crate::manual;
use crate::output::report::Report;
use clap::ValueEnum;
use clap_complete::Shell;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(args: &GenerateArgs) -> ExitCode {
    let mut report = Report::new("generate", &args.dir.display().to_string());
    let mut cli = manual::command();
    let made = std::fs::create_dir_all(&args.dir).and_then(|()| match args.what {
        Generated::Man => manual::write_pages(&args.dir),
        Generated::Book => manual::book::write_pages(&args.dir),
        Generated::Completions => Shell::value_variants().iter().try_for_each(|s| {
            clap_complete::generate_to(*s, &mut cli, "diorite", &args.dir).map(|_| ())
        }),
    });
    if let Err(error) = made {
        report.host(format_args!("{}: {error}", args.dir.display()));
    }
    report.exit_code()
}
