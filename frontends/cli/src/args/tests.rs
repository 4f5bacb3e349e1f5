//! Tests of the names of options.

use super::*;
use crate::manual;
use clap::Arg;
use clap::CommandFactory;
use std::ffi::OsString;

/// Calls `look` for every command and subcommand, with the global options that it inherits.
fn each(
    command: &clap::Command,
    above: &[Arg],
    path: &str,
    look: &mut impl FnMut(&str, &clap::Command, &[Arg]),
) {
    look(path, command, above);
    let own = command.get_arguments().filter(|arg| arg.is_global_set());
    let global: Vec<Arg> = above.iter().cloned().chain(own.cloned()).collect();
    for below in command.get_subcommands() {
        let path = format!("{path} {}", below.get_name());
        each(below, &global, &path, look);
    }
}

/// All names of an option: its id, its long names, its letters.
fn names(arg: &Arg) -> Vec<String> {
    let long = arg.get_long_and_visible_aliases().unwrap_or_default();
    let hidden = arg.get_all_aliases().unwrap_or_default();
    let short = arg.get_short_and_visible_aliases().unwrap_or_default();
    let id = format!("the id {}", arg.get_id());
    let words = long.into_iter().chain(hidden).map(|l| format!("--{l}"));
    let letters = short.into_iter().map(|s| format!("-{s}"));
    std::iter::once(id).chain(words).chain(letters).collect()
}

/// `rm -f` and `ln -sf` opened images that were mounted: the id of their `--force` was that of an option of every command, and clap
/// gives a global option the value of whatever has its id.
#[test]
fn no_command_has_an_option_with_the_name_of_one_of_every_command() {
    let mut looked = 0;
    let mut all = Cli::command();
    all.build();
    each(&all, &[], "diorite", &mut |path, command, above| {
        let inherited = |own: &Arg| {
            own.is_global_set() && above.iter().any(|other| other.get_id() == own.get_id())
        };
        let own = command.get_arguments().filter(|own| !inherited(own));
        for (own, other) in own.flat_map(|own| above.iter().map(move |o| (own, o))) {
            let taken = names(other);
            for name in names(own) {
                assert!(
                    !taken.contains(&name),
                    "{path}: {name} is already an option of every command"
                );
            }
            looked += 1;
        }
    });
    assert!(looked > 500, "{looked}");
}

/// Only commands that write can ignore a lock, and only with the option --ignore-lock. With --force some replace names, or a device,
/// unasked.
#[test]
fn commands_that_write_can_ignore_a_lock_and_no_others() {
    const READ: [&str; 19] = [
        "readlink", "df", "du", "export", "cmp", "compare", "info", "ls", "tree", "stat", "cat",
        "get", "extents", "getfattr", "getfacl", "lsattr", "umount", "generate", "help",
    ];
    let mut all = Cli::command();
    all.build();
    assert!(all.get_arguments().all(|arg| arg.get_id() != "ignore_lock"));
    for command in all.get_subcommands() {
        let name = command.get_name();
        let can = command
            .get_arguments()
            .any(|arg| arg.get_long() == Some("ignore-lock"));
        assert_eq!(can, !READ.contains(&name), "{name}");
        let forced = command
            .get_arguments()
            .any(|arg| arg.get_long() == Some("force"));
        let replaces = ["rm", "ln", "copy", "import", "export", "undo"];
        assert_eq!(forced, replaces.contains(&name), "{name}");
    }
}

#[test]
fn force_of_a_command_is_its_own() {
    let read = |words: &[&str]| {
        let words = words.iter().map(OsString::from).collect();
        manual::parse(words).expect("a command line")
    };
    for (words, ignores) in [
        (&["diorite", "rm", "-rf", "img", "/a"][..], false),
        (&["diorite", "rm", "--force", "img", "/a"], false),
        (&["diorite", "rm", "--ignore-lock", "img", "/a"], true),
    ] {
        let cli = read(words);
        let Command::Rm(rm) = &cli.command else {
            panic!("{words:?}: {cli:?}");
        };
        assert_eq!(rm.global(&cli.global).ignore_lock, ignores, "{words:?}");
        assert_eq!(rm.args.force, !ignores, "{words:?}");
    }
    let before = ["diorite", "--ignore-lock", "ls", "img"].map(OsString::from);
    manual::parse(before.into()).expect_err("a command that reads has no such option");
}
