//! Parses a script: its lines become commands, in transactions.
//!
//! Input: a script's text. Output: transactions of commands; or all invalid lines. Invariant: the whole script is parsed before
//! its first command runs. Limits: only commands that write, with the options that they have on the command line.

use super::words::{self, Line};
use crate::args::{
    ChattrArgs, ChmodArgs, ChownArgs, LnArgs, MkdirArgs, MknodArgs, MvArgs, PutArgs, RmArgs,
    RmdirArgs, SetfaclArgs, SetfattrArgs, TouchArgs, TruncateArgs,
};
use crate::cmd;
use crate::manual;
use crate::output::report::Report;
use clap::{CommandFactory, Parser, Subcommand};
use diorite::Volume;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// The words of one line, in the form that clap parses.
#[derive(Debug, Parser)]
#[command(name = "edit", no_binary_name = true, disable_help_subcommand = true)]
struct Words {
    #[command(subcommand)]
    step: Step,
}

/// The commands that a line may have.
#[derive(Debug, Subcommand)]
pub(super) enum Step {
    Put(PutArgs),
    Mkdir(MkdirArgs),
    Rm(RmArgs),
    Rmdir(RmdirArgs),
    Mv(MvArgs),
    Ln(LnArgs),
    Mknod(MknodArgs),
    Touch(TouchArgs),
    Chmod(ChmodArgs),
    Chown(ChownArgs),
    Truncate(TruncateArgs),
    #[command(disable_help_flag = true)]
    Setfattr(SetfattrArgs),
    Setfacl(SetfaclArgs),
    Chattr(ChattrArgs),
}

impl Step {
    /// The checks that clap does not make.
    fn check(&self) -> Result<(), &'static str> {
        match self {
            Step::Put(args) if args.paths.iter().any(|path| path == cmd::put::STDIN) => {
                Err("standard input cannot be read in a script, of which lines may be done twice")
            }
            Step::Put(args) => cmd::put::check(args),
            Step::Truncate(args) => cmd::truncate::check(args),
            Step::Chattr(args) => cmd::chattr::check(args),
            Step::Setfacl(args) => cmd::setfacl::check(args),
            _ => Ok(()),
        }
    }

    /// Runs the command on an open image; failures are in the report.
    pub(super) fn apply(&self, volume: &Volume, report: &mut Report) {
        match self {
            Step::Put(args) => cmd::put::apply(volume, report, args),
            Step::Mkdir(args) => cmd::mkdir::apply(volume, report, args),
            Step::Rm(args) => cmd::rm::apply(volume, report, args),
            Step::Rmdir(args) => cmd::rmdir::apply(volume, report, args),
            Step::Mv(args) => cmd::mv::apply(volume, report, args),
            Step::Ln(args) => cmd::ln::apply(volume, report, args),
            Step::Mknod(args) => cmd::mknod::apply(volume, report, args),
            Step::Touch(args) => cmd::touch::apply(volume, report, args),
            Step::Chmod(args) => cmd::chmod::apply(volume, report, args),
            Step::Chown(args) => cmd::chown::apply(volume, report, args),
            Step::Truncate(args) => cmd::truncate::apply(volume, report, args),
            Step::Setfattr(args) => cmd::setfattr::apply(volume, report, args),
            Step::Setfacl(args) => cmd::setfacl::apply(volume, report, args),
            Step::Chattr(args) => cmd::chattr::apply(volume, report, args),
        }
    }
}

/// Commands that are applied together, each with its line number.
pub(super) type Transaction = Vec<(usize, Step)>;

/// A line number and the reason why the line is invalid.
pub(super) type Wrong = (usize, String);

/// Parses a script for an image. With `each`, every line is a transaction.
pub(super) fn read(text: &[u8], img: &str, each: bool) -> Result<Vec<Transaction>, Vec<Wrong>> {
    let lines = words::split(text).map_err(|wrong| vec![wrong])?;
    let (mut all, mut running, mut wrong) = (Vec::new(), Transaction::new(), Vec::new());
    for line in lines {
        let number = line.number;
        match &line.words[..] {
            [word] if word == b"commit" => all.push(std::mem::take(&mut running)),
            [word] if word == b"begin" && running.is_empty() => {}
            [word] if word == b"begin" => {
                let what = "begin: there are commands since the last commit";
                wrong.push((number, what.to_owned()));
            }
            _ => match step(line, img) {
                Ok(step) => running.push((number, step)),
                Err(what) => wrong.push((number, what)),
            },
        }
        if each {
            all.push(std::mem::take(&mut running));
        }
    }
    all.push(running);
    all.retain(|transaction| !transaction.is_empty());
    if wrong.is_empty() {
        Ok(all)
    } else {
        Err(wrong)
    }
}

/// Parses the command of a line; the image, which the line does not name, is inserted.
fn step(line: Line, img: &str) -> Result<Step, String> {
    let mut words: Vec<OsString> = line.words.into_iter().map(OsString::from_vec).collect();
    words.insert(1, img.into());
    let read: Words =
        manual::read(Words::command(), words.into_iter()).map_err(|error| first_line(&error))?;
    read.step.check()?;
    Ok(read.step)
}

/// The line of clap's message that gives the reason.
fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim);
    let first = lines.next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    // clap prints the names of missing arguments on the next line.
    match lines.next() {
        Some(second) if first.ends_with(':') => format!("{first} {second}"),
        _ => first.to_owned(),
    }
}
