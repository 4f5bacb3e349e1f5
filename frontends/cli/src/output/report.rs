//! Messages: what went wrong with which file of which image, on standard error, and the exit code that follows.
//!
//! Input: errors of the engine and of the host; descriptions of changes. Output: `diorite: COMMAND: IMG:PATH: reason` on
//! standard error; lines of -v on standard output. Invariants: a message says what the user can do, if anything can be done; a
//! line does not repeat itself; every failure affects the exit code. Limits: errors that coreutils also has are printed with
//! coreutils' errno texts.

use crate::output::{Out, complain_best_effort};
use diorite::{Error, Undo};
use diorite_format::{Corrupt, FormatError};
use indicatif::ProgressBar;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// The end of what is said of a write that failed on its device.
const FAILED_WRITE: &str = "input/output error";
const NO_SPACE: &str = "No space left on device";

/// The reason for a failure, as text.
#[derive(Clone, Debug)]
pub(crate) struct Reason(String);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Reason {
    /// A reason with the command's own text.
    pub(crate) fn new(text: impl Into<String>) -> Reason {
        Reason(text.into())
    }

    /// An error of the host, with a description of the failed operation.
    pub(crate) fn host(doing: impl fmt::Display, errno: Errno) -> Reason {
        Reason(format!("{doing}: {}", errno_text(errno)))
    }
}

impl From<&Error> for Reason {
    fn from(error: &Error) -> Reason {
        Reason(match error.root() {
            Error::NotInUse { ino } => {
                format!("inode {ino} is not in use; the directory is corrupt, run e2fsck")
            }
            Error::NotFound { .. } => "No such file or directory".to_owned(),
            Error::NotADirectory { .. } => "Not a directory".to_owned(),
            Error::IsADirectory { .. } => "Is a directory".to_owned(),
            Error::Exists { .. } => "File exists".to_owned(),
            Error::NotEmpty { .. } => "Directory not empty".to_owned(),
            Error::Busy { .. } => "Device or resource busy".to_owned(),
            Error::NameTooLong { .. } => "File name too long".to_owned(),
            Error::TooManyLinks { .. } => "Too many links".to_owned(),
            Error::NoSpace { .. } | Error::NoInodes { .. } => {
                let said = error.root().to_string();
                let why = said.split_once(": ").map_or(&said[..], |(_, why)| why);
                let help = match error.root() {
                    Error::NoInodes { .. } => "adds inodes with further groups of blocks",
                    _ => "makes it larger",
                };
                format!("{NO_SPACE}: {why}; 'diorite grow' {help}")
            }
            Error::DirectoryFull { .. } | Error::AttributesFull { .. } => {
                format!("{NO_SPACE}: {}", error.root())
            }
            Error::NoAttribute { .. } => "No such attribute".to_owned(),
            Error::AttributeExists { .. } => "File exists".to_owned(),
            Error::AttributeName { .. } => "Numerical result out of range".to_owned(),
            Error::AttributeTooBig { .. } => "Argument list too long".to_owned(),
            Error::SymlinkLoop { .. } => "Too many levels of symbolic links".to_owned(),
            Error::Format(format) => with_help(error, format),
            _ => without_number(&error.to_string()),
        })
    }
}

impl From<Error> for Reason {
    fn from(error: Error) -> Reason {
        Reason::from(&error)
    }
}

impl From<diorite::mkfs::Error> for Reason {
    fn from(error: diorite::mkfs::Error) -> Reason {
        Reason::from(Error::from(error))
    }
}

/// The text of a format error, with advice for the user.
fn with_help(error: &Error, format: &FormatError) -> String {
    match format {
        FormatError::Corrupt(Corrupt::DeviceTooSmall { .. }) => {
            format!("{error}: the image is cut off; copy it again, or let e2fsck save what is left")
        }
        FormatError::Corrupt(Corrupt::SuperMagic { .. }) => {
            format!("{error}; 'IMG?offset=1M' says where in a file the file system begins")
        }
        FormatError::Corrupt(_) => {
            let text = error.to_string();
            if text.contains("e2fsck") {
                text
            } else {
                format!("{text}; run e2fsck")
            }
        }
        _ => error.to_string(),
    }
}

/// The host's text for an errno, without Rust's "(os error N)".
pub(crate) fn errno_text(errno: Errno) -> String {
    without_number(&std::io::Error::from(errno).to_string())
}

/// The text of an error of the standard library without "(os error N)".
pub(crate) fn without_number(text: &str) -> String {
    let Some((words, rest)) = text.split_once(" (os error ") else {
        return text.to_owned();
    };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{words}{}", rest.strip_prefix(')').unwrap_or(rest))
}

/// A line to print.
enum Line {
    /// On standard error.
    Complaint(String),
    /// On standard output.
    Done(String),
}

impl Line {
    fn print(&self) {
        match self {
            Line::Complaint(text) => complain_best_effort(text),
            Line::Done(text) => {
                let mut out = Out::new();
                out.line(text);
                out.flush();
            }
        }
    }
}

/// The messages of one command about one image.
pub(crate) struct Report {
    command: &'static str,
    image: String,
    /// Exit code if something failed.
    code: u8,
    /// The place in a script (file and line) of the command that runs.
    pub(crate) place: Option<String>,
    /// The progress bar on the same terminal: it is hidden while a message is printed.
    pub(crate) bar: Option<ProgressBar>,
    /// What is missing was said. Others that find no space are told without it.
    told_space: Cell<bool>,
    /// Lines that are not printed yet, because the work may have to be repeated.
    held: Option<RefCell<Vec<Line>>>,
    /// Why writes fail, if its file does: who runs the command says that.
    undo: Option<Undo>,
}

impl Report {
    /// No failures yet.
    pub(crate) fn new(command: &'static str, image: &str) -> Report {
        Report {
            command,
            image: image.to_owned(),
            code: 0,
            place: None,
            bar: None,
            told_space: Cell::new(false),
            held: None,
            undo: None,
        }
    }

    /// The same, of a command with an undo file: writes that fail because of that are not said before the reason.
    pub(crate) fn with_undo(self, undo: Option<&Undo>) -> Report {
        Report {
            undo: undo.cloned(),
            ..self
        }
    }

    /// A report for work that may have to be repeated: nothing is printed before [`Report::absorb`].
    pub(crate) fn trial(&self, place: String) -> Report {
        Report {
            place: Some(place),
            held: Some(RefCell::default()),
            undo: self.undo.clone(),
            ..Report::new(self.command, &self.image)
        }
    }

    /// Prints the messages of a trial and takes over its exit code.
    pub(crate) fn absorb(&mut self, trial: Report) {
        self.failed(trial.code);
        for line in trial.held.into_iter().flat_map(RefCell::into_inner) {
            line.print();
        }
    }

    /// Prints on standard output what was done (option -v).
    pub(crate) fn done(&self, what: impl fmt::Display) {
        self.print(Line::Done(what.to_string()));
    }

    /// Reports the failure of a file of the image.
    pub(crate) fn file(&mut self, path: &[u8], reason: impl Into<Reason>) {
        let (reason, path) = (reason.into(), String::from_utf8_lossy(path));
        self.failed(1);
        if self.follows(&reason) {
            return;
        }
        self.say(format_args!("{}:{}: {reason}", self.image, shown(&path)));
    }

    /// Reports a failure of the image itself.
    pub(crate) fn image(&mut self, reason: impl Into<Reason>) {
        let reason = reason.into();
        self.failed(1);
        if self.follows(&reason) {
            return;
        }
        if reason.0.contains(self.image.as_str()) {
            self.say(reason);
        } else {
            self.say(format_args!("{}: {reason}", self.image));
        }
    }

    /// Reports a failure on the host.
    pub(crate) fn host(&mut self, what: impl fmt::Display) {
        self.failed(1);
        self.say(what);
    }

    /// Reports the failure of a file outside this image.
    pub(crate) fn elsewhere(&mut self, path: &Path, reason: impl fmt::Display) {
        self.failed(1);
        let path = path.to_string_lossy();
        self.say(format_args!("{}: {reason}", shown(&path)));
    }

    /// Prints a warning; the exit code does not change.
    pub(crate) fn warn(&self, what: impl fmt::Display) {
        self.say(format_args!("warning: {what}"));
    }

    /// The name of the command.
    pub(crate) fn command(&self) -> &'static str {
        self.command
    }

    /// Prints a warning about one file.
    pub(crate) fn warn_file(&self, path: &[u8], what: impl fmt::Display) {
        let path = String::from_utf8_lossy(path);
        self.warn(format_args!("{}:{}: {what}", self.image, shown(&path)));
    }

    /// Raises the exit code to at least this one.
    pub(crate) fn failed(&mut self, code: u8) {
        self.code = self.code.max(code);
    }

    /// Whether anything failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.code != 0
    }

    /// The command's exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }

    /// Whether a write has failed because its old contents were not kept.
    fn follows(&self, reason: &Reason) -> bool {
        let has_failed = |undo: &Undo| undo.failure().is_some();
        self.undo.as_ref().is_some_and(has_failed) && reason.0.ends_with(FAILED_WRITE)
    }

    fn say(&self, what: impl fmt::Display) {
        let what = self.shortened(what.to_string());
        let place = self
            .place
            .as_ref()
            .map_or(String::new(), |p| format!("{p}: "));
        let command = self.command;
        self.print(Line::Complaint(format!(
            "diorite: {command}: {place}{what}"
        )));
    }

    /// Leaves out what is missing for want of space if that was said before.
    fn shortened(&self, what: String) -> String {
        match what.split_once(NO_SPACE) {
            Some((before, more)) if more.starts_with(": ") && self.told_space.replace(true) => {
                format!("{before}{NO_SPACE}")
            }
            _ => what,
        }
    }

    fn print(&self, line: Line) {
        match (&self.held, &self.bar) {
            (Some(held), _) => held.borrow_mut().push(line),
            (None, Some(bar)) => bar.suspend(|| line.print()),
            (None, None) => line.print(),
        }
    }
}

/// A path for a terminal: control characters are escaped.
fn shown(path: &str) -> String {
    path.chars()
        .flat_map(|c| {
            let escaped: Vec<char> = if c.is_control() {
                c.escape_default().collect()
            } else {
                vec![c]
            };
            escaped
        })
        .collect()
}
