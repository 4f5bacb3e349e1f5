//! `diorite edit`: applies a script of changes to an image, in transactions.
//!
//! Input: an image, a script. Output: nothing. Invariants: a script with invalid lines is not started; if a command fails, its
//! transaction is discarded: nothing of it is among the image's files, earlier transactions are, and later ones are not tried; with -n
//! the same is done to a copy in memory, and nothing is written at all. Limits: a
//! transaction has to fit into one transaction of the journal, or is divided between lines with --batch; without a journal a
//! crash during a commit may leave a part of the transaction.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `words` | text -> lines, divided into words |
//! | `script` | lines -> commands, in transactions |
//! | `batch` | a transaction -> several that each fit into the journal |

mod batch;
mod script;
mod words;

use crate::args::{EditArgs, Global};
use crate::images::image;
use crate::output::report::Report;
use diorite::{AtomicFill, Error, Volume};
use diorite_block::check_stdin;
use diorite_format::superblock::JournalPlace;
use script::Transaction;
use std::io::{self, Read};
use std::process::ExitCode;

/// Exit code for a script with invalid lines.
const WRONG: u8 = 2;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &EditArgs) -> ExitCode {
    let mut report = Report::new("edit", &args.img).with_undo(global.undo.as_ref());
    let transactions = match read(args) {
        Ok(text) => script::read(&text, &args.img, args.each),
        Err(error) => {
            let why = crate::output::report::without_number(&error.to_string());
            report.host(format_args!("{}: {why}", args.script.display()));
            return report.exit_code();
        }
    };
    match transactions {
        Ok(transactions) => apply(global, args, transactions, &mut report),
        Err(wrong) => {
            for (line, what) in wrong {
                report.host(format_args!("{}:{line}: {what}", args.script.display()));
            }
            report.failed(WRONG);
        }
    }
    report.exit_code()
}

fn read(args: &EditArgs) -> io::Result<Vec<u8>> {
    if args.script.as_os_str() == "-" {
        check_stdin()?;
        let mut text = Vec::new();
        io::stdin().lock().read_to_end(&mut text)?;
        return Ok(text);
    }
    std::fs::read(&args.script)
}

fn apply(global: &Global, args: &EditArgs, todo: Vec<Transaction>, report: &mut Report) {
    let opened = match args.dry_run {
        true => image::open_for_trial(&args.img, global, report),
        false => image::open_for_writing(&args.img, global, report),
    };
    let Some(mut volume) = opened else { return };
    if matches!(volume.superblock().journal(), JournalPlace::None) && !args.dry_run {
        report.warn(format_args!(
            "{}: has no journal: if the machine stops while a transaction is committed, a part of it may be there",
            args.img
        ));
    }
    for (done, transaction) in todo.iter().enumerate() {
        if args.batch {
            match batch::run(volume, global, args, transaction, report) {
                Some(open) => volume = open,
                None => return,
            }
            continue;
        }
        match one(&volume, args, transaction, report) {
            Ok(None) => {}
            Ok(Some(fill)) => return give_up(args, transaction, (done, fill), report),
            Err(error) => return report.image(error),
        }
    }
    image::close(volume, report);
}

/// Applies one transaction. If a command fails, nothing of it is applied, the result says how full the transaction was, and the
/// volume accepts no more changes.
fn one(
    volume: &Volume,
    args: &EditArgs,
    transaction: &Transaction,
    report: &mut Report,
) -> Result<Option<AtomicFill>, Error> {
    let atomic = volume.atomic()?;
    for (line, step) in transaction {
        report.place = Some(place(args, *line));
        step.apply(volume, report);
        report.place = None;
        if report.has_failed() {
            let fill = atomic.fill();
            atomic.abandon()?;
            return Ok(Some(fill));
        }
    }
    // With -n the volume's writes stay in memory: a later transaction finds the space that this one has freed.
    atomic.commit()?;
    Ok(None)
}

/// The file and line of a command of the script, for messages.
fn place(args: &EditArgs, line: usize) -> String {
    format!("{}:{line}", args.script.display())
}

/// Prints which parts of the script are in the image and which are not.
fn give_up(
    args: &EditArgs,
    transaction: &Transaction,
    (done, fill): (usize, AtomicFill),
    report: &mut Report,
) {
    let first = transaction.first().map_or(0, |step| step.0);
    if fill.is_full {
        report.host(format_args!(
            "{}: the transaction that begins here does not fit into one of this image, which may change {} blocks \
                of metadata: divide it by `commit` lines, or let --batch do it",
            place(args, first),
            fill.most
        ));
    }
    let would = args.dry_run;
    let is = |real| if would { "would be" } else { real };
    let before = match done {
        0 if would => "the files of the image would be as they were".to_owned(),
        0 => "the files of the image are as they were".to_owned(),
        1 => format!("the one before it {} in the image", is("is")),
        more => format!("the {more} before it {} in the image", is("are")),
    };
    report.host(format_args!(
        "{}: nothing of the transaction that begins here {} done; {before}",
        place(args, first),
        is("is")
    ));
}

/// The words of one line, for tests of the examples in `--help`.
#[cfg(test)]
pub(crate) fn split_words(line: &[u8]) -> Vec<Vec<u8>> {
    let lines = words::split(line).expect("an example's quotes end");
    lines.into_iter().flat_map(|line| line.words).collect()
}
