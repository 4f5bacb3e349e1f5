//! Adds to the command line the texts that `--help` and the man pages have besides the options, and writes the man pages.
//!
//! Input: the definitions in `args`. Output: the clap command, which parses and prints help; a man page for it and for each of
//! its subcommands. Invariants: the help and the man page of every command give the same text about its exit status; pages are
//! generated only from the definitions, so they cannot be out of date. Limits: English.

pub(crate) mod book;

use crate::args::{Cli, Command as Commands, Global, Look, MAX_TERM_WIDTH, NAME};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Args, Command, CommandFactory, FromArgMatches, Subcommand};
use clap_mangen::Man;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

/// The first words of the paragraphs that become sections of their own in a man page.
const EXIT: &str = "Exit status";
const EXAMPLES: &str = "Examples:";

/// The exit status of commands whose own text does not describe it.
const OF_READERS: &str =
    "0 if all went well; 1 if something could not be read or copied; 2 for wrong usage.";
const OF_WRITERS: &str = "0 if everything was done and is durable; 1 if something could not be done: the other changes stay; \
    2 for wrong usage.";
const OF_LS: &str = "0 if all went well; 1 if something below a given directory could not be read; 2 if a given path \
    could not be read, for an image that cannot be opened, and for wrong usage.";
const OF_BENCH: &str =
    "0 if everything was measured; 1 if something failed; 2 for wrong usage; 130 when interrupted.";
const OF_SERVE: &str = "0 if a signal ended it; 1 if something could not be opened or made durable; 2 for wrong usage.";

/// Commands that change an image or make changes durable, and whose exit status is [`OF_WRITERS`].
const WRITERS: [&str; 17] = [
    "chattr",
    "chmod",
    "chown",
    "fallocate",
    "label",
    "ln",
    "mkdir",
    "mknod",
    "mv",
    "rm",
    "rmdir",
    "setfacl",
    "setfattr",
    "sync",
    "touch",
    "truncate",
    "uuid",
];

/// The whole command.
pub(crate) fn command() -> Command {
    complete(Cli::command(), |_| true)
}

/// Completes those of the subcommands that are wanted, by their names.
fn complete(mut all: Command, is_wanted: impl Fn(&str) -> bool) -> Command {
    let names = all.get_subcommands().map(|c| c.get_name().to_owned());
    let names: Vec<String> = names.filter(|name| is_wanted(name)).collect();
    for name in names {
        all = all.mut_subcommand(&name, with_exit_status);
    }
    all
}

/// Reads a command line. If its first word is a subcommand, no other one is looked at.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    let first = words.get(1).and_then(|word| word.to_str());
    let command = match first.filter(|name| Commands::has_subcommand(name)) {
        Some(name) => alone(name),
        None => complete(Cli::command(), |name| words.iter().any(|word| word == name)),
    };
    read(command, words.into_iter())
}

/// The command, as [`Cli`] defines it, with this subcommand alone: clap copies the options of every command into each subcommand that is
/// there, and that was most of what short commands did.
fn alone(name: &str) -> Command {
    let none = Command::new(NAME);
    let all = match Look::has_subcommand(name) {
        true => Look::augment_subcommands(none),
        false => Commands::augment_subcommands(none),
    };
    let command = Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .max_term_width(MAX_TERM_WIDTH)
        .subcommand_required(true);
    let named = all.find_subcommand(name).cloned().map(with_exit_status);
    // To free it takes as long as to make it, and a process reads one command line.
    std::mem::forget(all);
    Global::augment_args(command).subcommands(named)
}

/// Reads words as this command.
///
/// # Errors
/// Words that clap refuses; an empty word where a path is expected, which would mean the root directory and mostly comes from
/// an unset variable of a shell.
pub(crate) fn read<T: FromArgMatches>(
    mut command: Command,
    words: impl Iterator<Item = OsString>,
) -> Result<T, clap::Error> {
    let matches = command.try_get_matches_from_mut(words)?;
    if let Some(empty) = empty_positional(&command, &matches) {
        let (name, why) = (matches.subcommand_name(), format!("{empty} is empty"));
        return Err(misused(command, name, ErrorKind::InvalidValue, why));
    }
    if let Some(error) = without_last(&command, &matches) {
        return Err(error);
    }
    T::from_arg_matches(&matches)
}

/// The error for a command line that could be parsed but makes no sense, with the usage of the command that it names.
pub(crate) fn misused(
    mut command: Command,
    name: Option<&str>,
    kind: ErrorKind,
    why: impl fmt::Display,
) -> clap::Error {
    command.build();
    match name.and_then(|name| command.find_subcommand_mut(name)) {
        Some(its) => its.error(kind, why),
        None => command.error(kind, why),
    }
}

/// Of commands whose last path is another thing than the others: it is not there. Options may stand between the paths, so that the parser
/// does not count them.
fn without_last(command: &Command, matches: &ArgMatches) -> Option<clap::Error> {
    let (name, given) = matches.subcommand()?;
    let last = match name {
        "import" => "<IMG>",
        "cp" => "<DEST>",
        _ => return None,
    };
    if given.get_raw("paths")?.len() > 1 {
        return None;
    }
    let mut its = command.find_subcommand(name)?.clone();
    let mut error = clap::Error::new(ErrorKind::MissingRequiredArgument).with_cmd(&its);
    let usage = ContextValue::StyledStr(its.render_usage());
    error.insert(ContextKind::Usage, usage);
    let missing = ContextValue::Strings(vec![last.to_owned()]);
    error.insert(ContextKind::InvalidArg, missing);
    Some(error)
}

fn empty_positional(command: &Command, matches: &ArgMatches) -> Option<String> {
    let (name, given) = matches.subcommand()?;
    let ids = command.find_subcommand(name)?.get_positionals();
    // `find` parses the words after its paths itself: they are its expression. A label may be empty.
    let mut ids = ids
        .map(Arg::get_id)
        .filter(|id| name != "find" && *id != "label");
    let is_empty = |id: &&clap::Id| {
        let mut raw = given.get_raw(id.as_str()).into_iter().flatten();
        raw.any(OsStr::is_empty)
    };
    Some(ids.find(is_empty)?.as_str().to_uppercase())
}

/// Appends the text about the exit status, unless the command has its own.
fn with_exit_status(command: Command) -> Command {
    let said = command
        .get_long_about()
        .is_some_and(|about| about.to_string().contains(EXIT));
    if said || command.is_hide_set() {
        return command;
    }
    let status = match command.get_name() {
        "ls" => OF_LS,
        "bench" => OF_BENCH,
        "serve" => OF_SERVE,
        name if WRITERS.contains(&name) => OF_WRITERS,
        _ => OF_READERS,
    };
    let examples = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    command.after_long_help(format!("{examples}\n\n{EXIT}: {status}"))
}

/// Writes a page for the command and for all of its subcommands at every depth, so that every page that is referred to exists.
pub(crate) fn write_pages(dir: &Path) -> io::Result<()> {
    let mut all = command().disable_help_subcommand(true);
    all.build();
    write_pages_of(&all, "diorite", dir)
}

fn write_pages_of(command: &Command, name: &str, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        // The page's name has a hyphen where the command line has a space.
        write_pages_of(below, &format!("{name}-{}", below.get_name()), dir)?;
    }
    std::fs::write(dir.join(format!("{name}.1")), page(command.clone(), name)?)
}

/// A page in roff.
fn page(mut command: Command, name: &str) -> io::Result<Vec<u8>> {
    let said = Said::of(&command);
    command = command
        .long_about(said.about.clone())
        .display_name(name.to_owned());
    let has_commands = command.get_subcommands().any(|c| !c.is_hide_set());
    let man = Man::new(command)
        .title(name.to_uppercase())
        .manual("diorite");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if has_commands {
        man.render_subcommands_section(&mut out)?;
    }
    for (title, lines) in &said.sections {
        section(&mut out, title, lines)?;
    }
    man.render_version_section(&mut out)?;
    Ok(out)
}

/// The texts of a command besides its options, divided into sections.
struct Said {
    about: String,
    sections: Vec<(String, Vec<String>)>,
}

impl Said {
    fn of(command: &Command) -> Said {
        let text = |said: Option<&clap::builder::StyledStr>| {
            said.map(ToString::to_string).unwrap_or_default()
        };
        let about = match command.get_long_about() {
            Some(long) => long.to_string(),
            None => text(command.get_about()),
        };
        let after = match command.get_after_long_help() {
            Some(long) => long.to_string(),
            None => text(command.get_after_help()),
        };
        let mut said = Said {
            about: String::new(),
            sections: Vec::new(),
        };
        for paragraph in about.split("\n\n") {
            said.add(paragraph, true);
        }
        for paragraph in after.split("\n\n") {
            said.add(paragraph, false);
        }
        said.sections.sort_by_key(|(title, _)| title == "EXAMPLES");
        said
    }

    fn add(&mut self, paragraph: &str, is_about: bool) {
        let lines = |text: &str| text.lines().map(str::to_owned).collect();
        if let Some(examples) = paragraph.strip_prefix(EXAMPLES) {
            let examples = examples.trim_start_matches('\n');
            self.sections.push(("EXAMPLES".to_owned(), lines(examples)));
        } else if let Some(status) = paragraph.strip_prefix(EXIT) {
            let status = status.trim_start_matches([':', ',', ' ']);
            self.sections
                .push(("EXIT STATUS".to_owned(), lines(status)));
        } else if is_about {
            let gap = if self.about.is_empty() { "" } else { "\n\n" };
            self.about = format!("{}{gap}{paragraph}", self.about);
        } else if let Some((title, rest)) = paragraph.split_once(":\n") {
            self.sections.push((title.to_uppercase(), lines(rest)));
        }
    }
}

/// Writes one section. If all of its lines begin with a space, they are not filled.
fn section(out: &mut impl Write, title: &str, lines: &[String]) -> io::Result<()> {
    let escaped = |line: &str| {
        line.replace('\\', "\\e")
            .replace('-', "\\-")
            .replace('\'', "\\(aq")
    };
    writeln!(out, ".SH \"{title}\"")?;
    let kept = lines.iter().all(|line| line.starts_with(' '));
    if kept {
        writeln!(out, ".nf")?;
    }
    for line in lines {
        // `\&` in front: a point or quote at the beginning of a line would be a request of roff.
        writeln!(out, "\\&{}", escaped(line.trim_start()))?;
    }
    if kept {
        writeln!(out, ".fi")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
