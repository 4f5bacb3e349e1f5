//! The commands' pages of the book, in Markdown.
//!
//! Input: the command with all of its texts. Output: `NAME.md` for each subcommand at every depth, `bench-cost.md` for `bench cost`.
//! Invariant: what a page says is what `--help` and the man page say. Limits: paragraphs with indented lines are shown as they are.

use super::{Said, command};
use clap::{Arg, Command};
use std::fmt::Write;
use std::io;
use std::path::Path;

/// Writes a page for each command that is shown.
pub(crate) fn write_pages(dir: &Path) -> io::Result<()> {
    let mut all = command().disable_help_subcommand(true);
    all.build();
    write_below(&all, "", "diorite", dir)
}

fn write_below(above: &Command, prefix: &str, words: &str, dir: &Path) -> io::Result<()> {
    for command in above.get_subcommands().filter(|c| !c.is_hide_set()) {
        let name = format!("{prefix}{}", command.get_name());
        let words = format!("{words} {}", command.get_name());
        write_below(command, &format!("{name}-"), &words, dir)?;
        std::fs::write(dir.join(format!("{name}.md")), page(command, &name, &words))?;
    }
    Ok(())
}

fn page(command: &Command, name: &str, words: &str) -> String {
    let said = Said::of(command);
    let mut page = format!("# {words}\n\n");
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage:").unwrap_or(&usage).trim();
    add(&mut page, format_args!("```text\n{usage}\n```\n\n"));
    for paragraph in said.about.split("\n\n").filter(|p| !p.is_empty()) {
        add(&mut page, format_args!("{}\n\n", prose(paragraph)));
    }
    let below: Vec<&Command> = command
        .get_subcommands()
        .filter(|c| !c.is_hide_set())
        .collect();
    if !below.is_empty() {
        page.push_str("## Commands\n\n");
    }
    for command in below {
        let its = command.get_name();
        let about = command.get_about().map(ToString::to_string);
        let about = plain(&about.unwrap_or_default());
        add(
            &mut page,
            format_args!("- [{its}]({name}-{its}.md): {about}\n"),
        );
    }
    for (title, args) in by_heading(command) {
        add(&mut page, format_args!("\n## {title}\n\n"));
        for arg in args {
            add(&mut page, format_args!("- {}\n", option(arg)));
        }
    }
    for (title, lines) in &said.sections {
        let (first, rest) = title.split_at(1);
        let title = format!("{first}{}", rest.to_lowercase());
        add(&mut page, format_args!("\n## {title}\n\n"));
        match title.as_str() {
            "Exit status" => add(&mut page, format_args!("{}\n", prose(&lines.join("\n")))),
            _ => add(
                &mut page,
                format_args!("```text\n{}\n```\n", lines.join("\n")),
            ),
        }
    }
    page
}

/// The arguments under their headings, as `--help` orders them.
fn by_heading(command: &Command) -> Vec<(String, Vec<&Arg>)> {
    let mut groups: Vec<(String, Vec<&Arg>)> = Vec::new();
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    for arg in shown.filter(|arg| !["help", "version"].contains(&arg.get_id().as_str())) {
        let own = if arg.is_positional() {
            "Arguments"
        } else {
            "Options"
        };
        let title = arg.get_help_heading().unwrap_or(own);
        match groups.iter_mut().find(|(name, _)| name == title) {
            Some((_, args)) => args.push(arg),
            None => groups.push((title.to_owned(), vec![arg])),
        }
    }
    // What is the command's own comes first.
    groups.sort_by_key(|(title, _)| match title.as_str() {
        "Arguments" => 0,
        "Options" => 1,
        _ => 2,
    });
    groups
}

/// `-q`, `--quiet <X>`: what it means.
fn option(arg: &Arg) -> String {
    let mut text = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(_)) => format!("`-{short}`, `{arg}`"),
        _ => format!("`{arg}`"),
    };
    let help = arg.get_long_help().or(arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    add(&mut text, format_args!(": {}", plain(&help)));
    let defaults: Vec<_> = arg.get_default_values().iter().collect();
    let shown = arg.get_action().takes_values() && !arg.is_hide_default_value_set();
    if let (true, [default]) = (shown, &defaults[..]) {
        add(
            &mut text,
            format_args!(" (default: `{}`)", default.display()),
        );
    }
    text
}

/// A paragraph, or lines as they are if some are indented.
fn prose(paragraph: &str) -> String {
    if paragraph.lines().any(|line| line.starts_with("  ")) {
        return format!("```text\n{paragraph}\n```");
    }
    plain(paragraph)
}

/// Words in which Markdown finds nothing but what is between backticks.
fn plain(words: &str) -> String {
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut text = String::new();
    let parts: Vec<&str> = words.split('`').collect();
    let paired = parts.len() % 2 == 1;
    for (n, part) in parts.iter().enumerate() {
        if n > 0 {
            text.push_str(if paired { "`" } else { "\\`" });
        }
        if paired && n % 2 == 1 {
            text.push_str(part);
            continue;
        }
        for c in part.chars() {
            match c {
                '<' => text.push_str("&lt;"),
                '*' | '_' | '[' | ']' | '|' | '~' | '\\' | '#' | '$' => text.extend(['\\', c]),
                c => text.push(c),
            }
        }
    }
    text
}

fn add(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what)
        .expect("a String takes everything that is written to it");
}

#[cfg(test)]
mod tests {
    use super::{page, plain, write_pages};
    use crate::manual::command;

    #[test]
    fn pages_have_every_option_and_the_examples() {
        let mut all = command();
        all.build();
        for command in all.get_subcommands().filter(|c| !c.is_hide_set()) {
            if command.get_name() == "help" {
                continue;
            }
            let page = page(command, command.get_name(), "diorite");
            let long = command.get_arguments().filter(|arg| !arg.is_hide_set());
            for long in long.filter_map(|arg| arg.get_long()) {
                let there = page.contains(&format!("--{long}"));
                assert!(
                    there || ["help", "version"].contains(&long),
                    "{long}: {page}"
                );
            }
            assert!(page.contains("\n## Examples\n"), "{page}");
            assert!(page.contains("\n## Exit status\n"), "{page}");
        }
    }

    #[test]
    fn marks_of_markdown_are_escaped() {
        assert_eq!(plain("a*b <c> `d*e` [f]"), "a\\*b &lt;c> `d*e` \\[f\\]");
        assert_eq!(plain("a `b"), "a \\`b");
    }

    #[test]
    fn commands_of_commands_have_pages() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        write_pages(dir.path()).expect("it can be written");
        assert!(dir.path().join("serve-nbd.md").exists());
        assert!(!dir.path().join("generate.md").exists());
    }
}
