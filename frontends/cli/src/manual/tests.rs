//! Tests of the commands' texts: examples parse, every command describes its exit status, the table of commands and the man pages are
//! complete.

use super::*;
use crate::cmd::edit::split_words;
use clap::Command;

fn shown() -> Vec<Command> {
    let all = command();
    let shown = all.get_subcommands().filter(|c| !c.is_hide_set());
    shown.cloned().collect()
}

#[test]
fn every_command_has_examples_and_an_exit_status() {
    for mut command in shown() {
        let help = command.render_long_help().to_string();
        let name = command.get_name();
        assert!(help.contains("Exit status"), "{name}: {help}");
        assert!(help.contains("Examples:\n  "), "{name}: {help}");
        assert!(help.contains(&format!("diorite {name}")), "{name}: {help}");
    }
}

/// Every example can be parsed.
#[test]
fn examples_parse() {
    let mut parsed = 0;
    for command in shown() {
        let examples = command.get_after_help().map(ToString::to_string);
        for line in examples.unwrap_or_default().lines().skip(1) {
            let words = split_words(line.trim().as_bytes());
            let text = |w: &Vec<u8>| String::from_utf8_lossy(w).into_owned();
            let words: Vec<String> = words.iter().map(text).collect();
            // Each command of a pipe by itself.
            for part in words.split(|w| w == "|" || w == "&&") {
                let begins = part.iter().position(|w| w == "diorite");
                let Some(at) = begins else { continue };
                let mut part = part.to_vec();
                if part[..at].iter().any(|w| w == "xargs") {
                    part.push("what xargs adds".to_owned());
                }
                let read = super::command().try_get_matches_from(&part[at..]);
                if let Err(error) = read {
                    panic!("{line}: {error}");
                }
                parsed += 1;
            }
        }
    }
    assert!(parsed > 50, "{parsed}");
}

/// A command that is named first is read without the others, and says the same as among them.
#[test]
fn a_command_alone_is_as_among_the_others() {
    let mut checked = 0;
    for its in command().get_subcommands() {
        let name = its.get_name();
        for words in [
            &[name][..],
            &[name, "--help"],
            &[name, "-h"],
            &[name, "--version"],
            &[name, "--no-such-option"],
            &[name, "--polic", "diorite"],
            &[name, "--io-engine", "none", "a"],
            &[name, "--journal"],
            &[name, "a", "b", "c", "d", "e"],
        ] {
            let words = ["diorite"].iter().chain(words).map(OsString::from);
            let words: Vec<OsString> = words.collect();
            let alone = parse(words.clone());
            let among = read::<Cli>(complete(Cli::command(), |n| n == name), words.into_iter());
            match (alone, among) {
                (Err(alone), Err(among)) => {
                    assert_eq!(alone.to_string(), among.to_string());
                    assert_eq!(alone.kind(), among.kind());
                }
                (alone, among) => assert_eq!(format!("{alone:?}"), format!("{among:?}")),
            }
            checked += 1;
        }
    }
    assert!(checked > 500, "{checked}");
}

#[test]
fn the_table_of_commands_is_complete() {
    let table = include_str!("../../../../docs/book/src/reference/commands.md");
    let named = xtask::documents::keys(table);
    for command in shown() {
        let name = command.get_name();
        assert!(
            named.iter().any(|n| n == name),
            "{name} has no row in commands.md"
        );
    }
}

#[test]
fn there_is_a_page_for_each() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    write_pages(dir.path()).expect("the directory can be written");
    let read = |name: &str| {
        let path = dir.path().join(format!("{name}.1"));
        std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    for command in shown() {
        let page = read(&format!("diorite-{}", command.get_name()));
        for section in [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "\"EXIT STATUS\"",
            "\"EXAMPLES\"",
        ] {
            let found = page
                .lines()
                .filter(|l| *l == format!(".SH {section}"))
                .count();
            assert_eq!(found, 1, "{}: {section}: {page}", command.get_name());
        }
    }
    let page = read("diorite");
    assert!(
        page.contains("diorite\\-put(1)") && page.contains("EXIT STATUS"),
        "{page}"
    );
    assert!(!page.contains("generate"), "{page}");
}

/// Regression test: the page of `bench` referred to pages of its experiments that did not exist.
#[test]
fn every_page_that_is_named_is_there() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    write_pages(dir.path()).expect("the directory can be written");
    let mut named = 0;
    for page in std::fs::read_dir(dir.path()).expect("it was written") {
        let text = std::fs::read_to_string(page.expect("an entry").path()).expect("a page");
        for word in text.replace("\\-", "-").split_whitespace() {
            if let Some(name) = word
                .strip_suffix("(1)")
                .filter(|n| n.starts_with("diorite"))
            {
                assert!(dir.path().join(format!("{name}.1")).exists(), "{name}");
                named += 1;
            }
        }
    }
    assert!(named > 40, "{named}");
}

/// The page of features has each one, and the advice of those that are limited, in the words of `info`.
#[test]
fn the_page_of_features_is_that_of_the_table() {
    use diorite_format::features::{Verdict, verdicts};
    let page = include_str!("../../../../docs/book/src/reference/features.md");
    for row in verdicts() {
        let word = format!("`{}`", row.name);
        if (row.read, row.write) == (Verdict::Full, Verdict::Full) {
            assert!(page.contains(&word), "{word} is not in features.md");
            continue;
        }
        let said = |verdict| match verdict {
            Verdict::Full => "yes",
            Verdict::Partial => "partly",
            Verdict::Refused => "refused",
        };
        let (read, write) = (said(row.read), said(row.write));
        let line = format!("| {word} | {read} | {write} | {} |", row.help);
        assert!(page.contains(&line), "features.md has no row {line}");
    }
}
