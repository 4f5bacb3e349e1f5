//! `diorite edit`: many changes of an image from a script, in transactions.
//!
//! Input: an image, a script. Output: nothing. Invariants: a script that makes no sense is not begun; a transaction of which a command
//! fails is given up: nothing of it is in the image, what was committed before it is, and what comes after it is not tried. Limits: a
//! transaction fits into one of the journal's, or is divided between lines if that was asked for; without a journal a crash while it is
//! committed may leave a part of it.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `words` | text -> lines of words |
//! | `script` | lines -> commands, in transactions |
//! | `batch` | a transaction -> several, none too large |

mod batch;
mod script;
mod words;

use crate::args::{EditArgs, Global};
use crate::image;
use crate::report::Report;
use diorite::{AtomicFill, Error, Volume};
use diorite_format::superblock::JournalPlace;
use script::Transaction;
use std::io::{self, Read};
use std::process::ExitCode;

/// Exit code for a script that makes no sense.
const WRONG: u8 = 2;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &EditArgs) -> ExitCode {
    let mut report = Report::new("edit", &args.img);
    let transactions = match read(args) {
        Ok(text) => script::read(&text, &args.img, args.each),
        Err(error) => {
            let why = crate::report::without_number(&error.to_string());
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
        let mut text = Vec::new();
        io::stdin().lock().read_to_end(&mut text)?;
        return Ok(text);
    }
    std::fs::read(&args.script)
}

fn apply(global: &Global, args: &EditArgs, mut todo: Vec<Transaction>, report: &mut Report) {
    if args.dry_run {
        // What comes later may need what is done before.
        todo = vec![todo.into_iter().flatten().collect()];
    }
    let Some(mut volume) = image::open_for_writing(&args.img, global, report) else {
        return;
    };
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
    if !args.dry_run {
        image::close(volume, report);
    }
}

/// Does one transaction, or nothing of it and says how far it was filled: then the volume takes no more.
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
    match args.dry_run {
        true => atomic.abandon()?,
        false => atomic.commit()?,
    }
    Ok(None)
}

/// Where a line of the script stands, for messages.
fn place(args: &EditArgs, line: usize) -> String {
    format!("{}:{line}", args.script.display())
}

/// Says what is in the image, and what is not.
fn give_up(
    args: &EditArgs,
    transaction: &Transaction,
    (done, fill): (usize, AtomicFill),
    report: &mut Report,
) {
    let first = transaction.first().map_or(0, |step| step.0);
    if fill.is_full {
        report.host(format_args!(
            "{}: the transaction that begins here does not fit into one of this image, which may change {} blocks of metadata: divide it by \
`commit` lines, or let --batch do it",
            place(args, first),
            fill.most
        ));
    }
    let before = match done {
        0 => "the image is as it was".to_owned(),
        1 => "the one before it is in the image".to_owned(),
        more => format!("the {more} before it are in the image"),
    };
    report.host(format_args!(
        "{}: nothing of the transaction that begins here is done; {before}",
        place(args, first)
    ));
}

/// The words of one line, for tests of what is said in `--help`.
#[cfg(test)]
pub(crate) fn split_words(line: &[u8]) -> Vec<Vec<u8>> {
    let lines = words::split(line).expect("an example's quotes end");
    lines.into_iter().flat_map(|line| line.words).collect()
}
