//! Tips for command lines that were refused: the word that was meant.
//!
//! Input: the error of the parser, the words of the process. Output: a tip in the error's message. Invariant: an error stays the error that
//! it was. Limits: the mistakes that newcomers make most.

use crate::images::image::as_two_words;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use std::path::Path;

/// Words that are no commands here, and what does that.
const MEANT: [(&str, &str); 29] = [
    ("fsck", "'diorite check IMG'"),
    ("e2fsck", "'diorite check IMG'"),
    ("fsck.ext4", "'diorite check IMG'"),
    ("repair", "'diorite check --repair IMG'"),
    (
        "resize",
        "'diorite grow IMG SIZE', 'diorite shrink IMG SIZE' and 'diorite minimise IMG'",
    ),
    ("minimize", "'diorite minimise IMG'"),
    ("version", "'diorite --version'"),
    ("mke2fs", "'diorite mkfs IMG SIZE'"),
    ("mkfs.ext4", "'diorite mkfs IMG SIZE'"),
    ("format", "'diorite mkfs IMG SIZE'"),
    ("tune2fs", "'diorite tune IMG'"),
    ("e2undo", "'diorite undo FILE IMG'"),
    ("dumpe2fs", "'diorite info IMG'"),
    ("show", "'diorite info IMG'"),
    (
        "debugfs",
        "'diorite edit -f SCRIPT IMG', and commands like ls, stat and extents",
    ),
    (
        "create",
        "'diorite import DIRECTORY IMG' or 'diorite mkfs IMG SIZE'",
    ),
    (
        "make",
        "'diorite import DIRECTORY IMG' or 'diorite mkfs IMG SIZE'",
    ),
    ("build", "'diorite import DIRECTORY IMG'"),
    ("pack", "'diorite import DIRECTORY IMG'"),
    (
        "unpack",
        "'diorite get IMG / DIRECTORY' or 'diorite copy IMG.gz IMG'",
    ),
    ("extract", "'diorite get IMG / DIRECTORY'"),
    ("convert", "'diorite copy SRC DST'"),
    ("dd", "'diorite copy SRC DST'"),
    ("clone", "'diorite copy SRC DST'"),
    ("diff", "'diorite compare SRC DST'"),
    ("unmount", "'diorite umount DIRECTORY'"),
    ("delete", "'diorite rm IMG PATH'"),
    ("rename", "'diorite mv IMG PATH NEW'"),
    ("add", "'diorite put IMG FILE /'"),
];

/// Adds a tip, if there is one.
pub(super) fn add(error: &mut clap::Error, words: &[OsString]) {
    let words: Vec<&str> = words.iter().skip(1).filter_map(|w| w.to_str()).collect();
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => unknown(error),
        ErrorKind::MissingRequiredArgument
        | ErrorKind::TooFewValues
        | ErrorKind::WrongNumberOfValues => missing(&words),
        ErrorKind::ValueValidation => disordered(error, &words),
        _ => None,
    };
    if let Some(tip) = tip {
        error.remove(ContextKind::SuggestedSubcommand);
        let tips = vec![StyledStr::from(tip)];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
}

fn unknown(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let (_, does) = MEANT.iter().find(|(given, _)| given == word)?;
    let s = if does.contains(" and ") || does.contains(" or ") {
        "do"
    } else {
        "does"
    };
    Some(format!("{does} {s} that"))
}

fn missing(words: &[&str]) -> Option<String> {
    let at = words.iter().position(|word| !word.starts_with('-'))?;
    let (command, behind) = (words[at], &words[at + 1..]);
    let plain: Vec<&str> = behind
        .iter()
        .copied()
        .filter(|w| !w.starts_with('-'))
        .collect();
    if let Some((word, (image, path))) = plain
        .iter()
        .find_map(|word| Some((*word, as_two_words(word)?)))
        && command != "cp"
    {
        return Some(format!("'{word}' is two words here: '{image} {path}'"));
    }
    match (command, &plain[..]) {
        ("get", [image, path]) => Some(format!(
            "DEST is missing: 'diorite get {image} {path} .' copies it here, and '-' prints it"
        )),
        ("put", [image, source]) => Some(format!(
            "DEST is missing: 'diorite put {image} {source} /' copies it into the root directory"
        )),
        ("import", [source]) => {
            let name = source.trim_end_matches('/').rsplit('/').next()?;
            let name = if matches!(name, "" | "." | "..") {
                "new"
            } else {
                name
            };
            Some(format!(
                "the new image is missing: 'diorite import {source} {name}.img'"
            ))
        }
        ("chmod" | "chown", [image, value]) => Some(format!(
            "PATH is missing: 'diorite {command} {image} {value} /file'"
        )),
        _ => None,
    }
}

/// The order of chmod(1) and chown(1), in which the image is given where a mode or an owner is expected.
fn disordered(error: &clap::Error, words: &[&str]) -> Option<String> {
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else {
        return None;
    };
    let command = words.iter().find(|w| matches!(**w, "chmod" | "chown"))?;
    let at = words.iter().position(|word| word == value)?;
    let (before, rest) = (words.get(at.checked_sub(1)?)?, &words[at + 1..]);
    let rest = if rest.is_empty() {
        vec!["/file"]
    } else {
        rest.to_vec()
    };
    Path::new(value).exists().then(|| {
        let rest = rest.join(" ");
        format!("the image comes first: 'diorite {command} {value} {before} {rest}'")
    })
}
