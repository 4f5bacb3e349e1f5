//! The command line of a helper of mount(8) or umount(8), as one of `diorite mount` or `diorite umount`; that of mke2fs, tune2fs,
//! e2label, resize2fs or e2undo, as one of `diorite mkfs`, `tune`, `label`, `resize2fs` or `undo`.
//!
//! Input: the process's arguments; the name that it was started by. Output: arguments. Invariant: under any other name the arguments stay.
//! Limits: the options that the two programs give to helpers. Source: man 8 mount, man 8 umount, "external helpers".

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The exit code of mount(8), and of programs of e2fsprogs, for wrong usage.
pub(super) const WRONG_USAGE: i32 = 1;

/// Was the process started as a helper, or in place of another program?
pub(super) fn is_one() -> bool {
    let program = std::env::args_os().next();
    command(program.as_deref()).is_some() || stand_in(program.as_deref()).is_some()
}

/// The program of e2fsprogs that this process takes the place of, and the command that it is.
fn stand_in(program: Option<&OsStr>) -> Option<(&'static str, &'static [&'static str])> {
    let name = Path::new(program?).file_name()?.to_str()?;
    let mkfs = ["mke2fs", "mkfs.ext2", "mkfs.ext3", "mkfs.ext4"].map(|name| (name, MKFS));
    let others = [
        ("tune2fs", TUNE),
        ("e2label", LABEL),
        ("resize2fs", RESIZE),
        ("e2undo", UNDO),
    ];
    let mut all = mkfs.into_iter().chain(others);
    all.find(|(known, _)| *known == name)
}

/// The commands that they are, before their arguments; mkfs also has the name as one.
const MKFS: &[&str] = &["mkfs", "--stand-in"];
const TUNE: &[&str] = &["tune"];
const LABEL: &[&str] = &["label"];
const RESIZE: &[&str] = &["resize2fs"];
const UNDO: &[&str] = &["undo"];

/// The command that a program of this name is.
fn command(program: Option<&OsStr>) -> Option<&'static str> {
    let name = Path::new(program?).file_name()?.to_str()?;
    match name.split_once('.')?.0 {
        "mount" => Some("mount"),
        "umount" => Some("umount"),
        _ => None,
    }
}

/// The arguments as of `diorite`.
pub(super) fn translated(
    mut args: impl Iterator<Item = OsString>,
) -> Box<dyn Iterator<Item = OsString>> {
    let program = args.next();
    if let Some((name, words)) = stand_in(program.as_deref()) {
        let first = std::iter::once("diorite").chain(words.iter().copied());
        let first = first.chain((words == MKFS).then_some(name));
        // e2undo prints the header with -h.
        let own = args.map(|arg| match words == UNDO && arg == "-h" {
            true => OsString::from("--header"),
            false => arg,
        });
        let all: Vec<OsString> = first.map(OsString::from).chain(own).collect();
        return Box::new(all.into_iter());
    }
    let Some(command) = command(program.as_deref()) else {
        let all: Vec<OsString> = program.into_iter().chain(args).collect();
        return Box::new(all.into_iter());
    };
    let mut out: Vec<OsString> = vec!["diorite".into(), command.into(), "--helper".into()];
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--") => out.extend(std::iter::once(arg).chain(args.by_ref())),
            Some(flags) if flags.len() > 1 && flags.starts_with('-') => {
                out.extend(letters(command, &flags[1..], &mut args));
            }
            _ => out.push(arg),
        }
    }
    Box::new(out.into_iter())
}

/// What letters behind one dash stand for. A letter with a value is the last one: its value is the rest of the word, or the next word.
fn letters(command: &str, all: &str, next: &mut impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut out = Vec::new();
    for (at, letter) in all.char_indices() {
        if !matches!(letter, 'o' | 't' | 'N') {
            out.extend(flag(command, letter));
            continue;
        }
        let value = match &all[at + letter.len_utf8()..] {
            "" => next.next(),
            rest => Some(rest.into()),
        };
        // A type, a namespace: they are those that the helper was chosen by.
        if letter == 'o' {
            out.extend(std::iter::once("-o".into()).chain(value));
        }
        break;
    }
    out
}

/// What a letter stands for. A letter that is not known stays, and is refused.
fn flag(command: &str, letter: char) -> Option<OsString> {
    Some(match (command, letter) {
        // No entry in mtab; a line on success, which there is none; read-only if it cannot be unmounted.
        (_, 'n' | 'v') | ("umount", 'r') => return None,
        ("mount", 's') => "--sloppy".into(),
        ("mount", 'f') => "--fake".into(),
        ("mount", 'r') => "--read-only".into(),
        ("mount", 'w') => return None,
        ("umount", 'l') => "--lazy".into(),
        // A server that does not answer is not asked.
        ("umount", 'f') => return None,
        (_, other) => format!("-{other}").into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_helpers() {
        let of = |args: &[&str]| -> Vec<String> {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            let all = translated(args.into_iter());
            all.map(|arg| arg.into_string().expect("text")).collect()
        };
        assert_eq!(of(&["diorite", "ls", "-l"]), ["diorite", "ls", "-l"]);
        assert_eq!(
            of(&[
                "/sbin/mount.fuse.diorite",
                "a.img",
                "/mnt",
                "-sfnv",
                "-o",
                "ro,x=-y"
            ]),
            [
                "diorite", "mount", "--helper", "a.img", "/mnt", "--sloppy", "--fake", "-o",
                "ro,x=-y"
            ]
        );
        assert_eq!(
            of(&[
                "mount.fuse.diorite",
                "a.img",
                "/mnt",
                "-snoro,noatime",
                "-tfuse.diorite",
                "-orw"
            ]),
            [
                "diorite",
                "mount",
                "--helper",
                "a.img",
                "/mnt",
                "--sloppy",
                "-o",
                "ro,noatime",
                "-o",
                "rw"
            ]
        );
        assert_eq!(
            of(&["umount.fuse.diorite", "/mnt", "-l", "-t", "fuse.diorite"]),
            ["diorite", "umount", "--helper", "/mnt", "--lazy"]
        );
    }
}
