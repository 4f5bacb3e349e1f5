//! Messages: what went wrong with which file of which image, on standard error, and the exit code that follows.
//!
//! Input: errors of the engine and of the host; what was done. Output: `diorite: COMMAND: IMG:PATH: reason` on standard error; lines of -v on standard output. Invariants: a message says what
//! to do where something can be done; nothing is said twice in one line; every failure counts. Limits: errno texts are those
//! of coreutils for what coreutils knows.

use crate::output::{Out, complain_best_effort};
use diorite::Error;
use diorite_format::{Corrupt, FormatError};
use indicatif::ProgressBar;
use rustix::io::Errno;
use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// Why something failed, in words.
#[derive(Clone, Debug)]
pub(crate) struct Reason(String);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Reason {
    /// A reason of our own.
    pub(crate) fn new(text: impl Into<String>) -> Reason {
        Reason(text.into())
    }

    /// A host error, with what was being done.
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
                format!("No space left on device: {why}")
            }
            Error::DirectoryFull { .. } | Error::AttributesFull { .. } => {
                format!("No space left on device: {}", error.root())
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

/// What else to try when a volume makes no sense.
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
        FormatError::Unsupported(_) => error.to_string(),
    }
}

/// The host's words, without Rust's "(os error N)".
pub(crate) fn errno_text(errno: Errno) -> String {
    without_number(&std::io::Error::from(errno).to_string())
}

/// The same words, of an error of the standard library.
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
                out.finish();
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
    /// Where in a script the command stands.
    pub(crate) place: Option<String>,
    /// Drawn on the same terminal: it steps aside for messages.
    pub(crate) bar: Option<ProgressBar>,
    /// Lines that are not printed yet, of something that may have to be done again.
    held: Option<RefCell<Vec<Line>>>,
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
            held: None,
        }
    }

    /// For something that may have to be done again: nothing is said before [`Report::absorb`].
    pub(crate) fn trial(&self, place: String) -> Report {
        Report {
            place: Some(place),
            held: Some(RefCell::default()),
            ..Report::new(self.command, &self.image)
        }
    }

    /// Says what a trial had to say, and counts its failures.
    pub(crate) fn absorb(&mut self, trial: Report) {
        self.failed(trial.code);
        for line in trial.held.into_iter().flat_map(RefCell::into_inner) {
            line.print();
        }
    }

    /// What was done, on standard output, for who wants to know (-v).
    pub(crate) fn done(&self, what: impl fmt::Display) {
        self.print(Line::Done(what.to_string()));
    }

    /// A file of the image failed.
    pub(crate) fn file(&mut self, path: &[u8], reason: impl Into<Reason>) {
        let (reason, path) = (reason.into(), String::from_utf8_lossy(path));
        self.failed(1);
        self.say(format_args!("{}:{}: {reason}", self.image, shown(&path)));
    }

    /// The image itself failed.
    pub(crate) fn image(&mut self, reason: impl Into<Reason>) {
        let reason = reason.into();
        self.failed(1);
        if reason.0.contains(self.image.as_str()) {
            self.say(reason);
        } else {
            self.say(format_args!("{}: {reason}", self.image));
        }
    }

    /// Something of the host failed.
    pub(crate) fn host(&mut self, what: impl fmt::Display) {
        self.failed(1);
        self.say(what);
    }

    /// A file that is none of this image failed.
    pub(crate) fn elsewhere(&mut self, path: &Path, reason: impl fmt::Display) {
        self.failed(1);
        let path = path.to_string_lossy();
        self.say(format_args!("{}: {reason}", shown(&path)));
    }

    /// Worth knowing, but no failure.
    pub(crate) fn warn(&self, what: impl fmt::Display) {
        self.say(format_args!("warning: {what}"));
    }

    /// Worth knowing about one file.
    pub(crate) fn warn_file(&self, path: &[u8], what: impl fmt::Display) {
        let path = String::from_utf8_lossy(path);
        self.warn(format_args!("{}:{}: {what}", self.image, shown(&path)));
    }

    /// Exit with at least this code.
    pub(crate) fn failed(&mut self, code: u8) {
        self.code = self.code.max(code);
    }

    /// Has anything failed?
    pub(crate) fn has_failed(&self) -> bool {
        self.code != 0
    }

    /// The command's exit code.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }

    fn say(&self, what: impl fmt::Display) {
        let place = self
            .place
            .as_ref()
            .map_or(String::new(), |p| format!("{p}: "));
        let command = self.command;
        self.print(Line::Complaint(format!(
            "diorite: {command}: {place}{what}"
        )));
    }

    fn print(&self, line: Line) {
        match (&self.held, &self.bar) {
            (Some(held), _) => held.borrow_mut().push(line),
            (None, Some(bar)) => bar.suspend(|| line.print()),
            (None, None) => line.print(),
        }
    }
}

/// A path for a terminal: control characters are shown, not sent.
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
