//! The lines of `ls -l`: collected first, so that the columns are aligned.
//!
//! Input: inodes with names. Output: aligned lines under a total. Invariant: a name whose inode could not be read is still
//! listed, with question marks. Limits: for the mark of an ACL the attributes of every file are read.

use super::Entry;
use super::name_style::NameStyle;
use crate::args::LsArgs;
use crate::images::image;
use crate::output::Out;
use crate::words::inode_fields::mode_string;
use crate::words::names::quoted;
use crate::words::sizes::human;
use diorite::{Error, File, Volume};
use diorite_format::{Ino, Inode, Timestamp};
use std::sync::Arc;

/// The parts of one line.
pub(super) struct Row {
    ino: String,
    mode: String,
    links: String,
    uid: String,
    gid: String,
    size: String,
    time: String,
    name: Vec<u8>,
    /// In units of 512 bytes.
    blocks: u64,
}

impl Row {
    /// The line of a name whose inode could not be read.
    pub(super) fn unknown(name: &[u8], ino: Ino, terminal: bool) -> Row {
        let unknown = || "?".to_owned();
        Row {
            ino: ino.to_string(),
            mode: "?????????".to_owned() + "?",
            links: unknown(),
            uid: unknown(),
            gid: unknown(),
            size: unknown(),
            time: "           ?".to_owned(),
            name: quoted(name, terminal).into_owned(),
            blocks: 0,
        }
    }

    /// The line of a file; errors of its details are added to a list.
    pub(super) fn new(
        volume: &Volume,
        file: &File,
        (name, path): (&[u8], &[u8]),
        (style, args): (&NameStyle, &LsArgs),
        time: impl Fn(Timestamp) -> String,
    ) -> (Row, Vec<Error>) {
        let inode = &*file.metadata();
        let mut errors = Vec::new();
        let mark = mark(volume, inode, &mut errors);
        let target = image::target(volume, inode);
        let mut shown = style.name(name, Some(inode), target.is_some());
        match target {
            Some(Ok(target)) => {
                shown.extend(b" -> ");
                // A target that does not exist is printed without colour.
                let end = style
                    .needs_inodes()
                    .then(|| look_at(volume, path))
                    .flatten();
                shown.extend(style.name(&target, end.as_deref(), false));
            }
            Some(Err(error)) => errors.push(error),
            None => {}
        }
        let row = Row {
            ino: inode.ino.to_string(),
            mode: mode_string(inode.file_type, inode.mode) + mark,
            links: inode.links.to_string(),
            uid: inode.uid.to_string(),
            gid: inode.gid.to_string(),
            size: inode.rdev().map_or_else(
                || size(inode.size, args.human_readable),
                |r| format!("{}, {:>3}", r.major, r.minor),
            ),
            time: time(args.time(inode)),
            name: shown,
            blocks: inode.blocks,
        };
        (row, errors)
    }
}

/// The inode that a link leads to.
fn look_at(volume: &Volume, path: &[u8]) -> Option<Arc<Inode>> {
    Some(image::find(volume, path, true).ok()?.metadata())
}

/// A number of bytes, with a unit if `for_people` is set.
fn size(bytes: u64, for_people: bool) -> String {
    match for_people {
        true => human(bytes),
        false => bytes.to_string(),
    }
}

/// `+` for an ACL, `.` for a security label alone.
fn mark(volume: &Volume, inode: &Inode, errors: &mut Vec<Error>) -> &'static str {
    let names: Vec<Vec<u8>> = match volume.xattrs(inode.ino) {
        Ok(xattrs) => xattrs.into_iter().map(|x| x.name).collect(),
        Err(error) => {
            errors.push(error);
            return "";
        }
    };
    if names.iter().any(|n| n.starts_with(b"system.posix_acl_")) {
        "+"
    } else if names.iter().any(|n| n == b"security.selinux") {
        "."
    } else {
        ""
    }
}

/// The space of a number of sectors, in KiB or with a unit.
fn space(sectors: u64, human_readable: bool) -> String {
    match human_readable {
        true => human(sectors.saturating_mul(512)),
        false => sectors.div_ceil(2).to_string(),
    }
}

fn total(sectors: impl Iterator<Item = u64>, args: &LsArgs, out: &mut Out) {
    let all = sectors.fold(0, u64::saturating_add);
    out.line(format_args!("total {}", space(all, args.human_readable)));
}

/// The space of each file, before its name, if it is printed; with the total, for a directory.
pub(super) fn spaces(
    entries: &[Entry],
    of_directory: bool,
    args: &LsArgs,
    out: &mut Out,
) -> Vec<String> {
    if !args.space {
        return vec![String::new(); entries.len()];
    }
    let sectors = |e: &Entry| e.file.as_ref().map(|file| file.metadata().blocks);
    if of_directory {
        total(entries.iter().filter_map(sectors), args, out);
    }
    let shown = |e: &Entry| sectors(e).map_or("?".to_owned(), |n| space(n, args.human_readable));
    let all: Vec<String> = entries.iter().map(shown).collect();
    let widest = all.iter().map(String::len).max().unwrap_or(0);
    all.iter().map(|one| format!("{one:>widest$} ")).collect()
}

/// Prints the lines, for a directory below the line with the total.
pub(super) fn print(rows: &[Row], of_directory: bool, args: &LsArgs, out: &mut Out) {
    let inodes = args.inode;
    if of_directory {
        total(rows.iter().map(|row| row.blocks), args, out);
    }
    let spaces: Vec<String> = match args.space {
        true => rows
            .iter()
            .map(|row| space(row.blocks, args.human_readable))
            .collect(),
        false => Vec::new(),
    };
    let wide = spaces.iter().map(String::len).max().unwrap_or(0);
    let mut spaces = spaces.iter();
    let widest = |part: fn(&Row) -> &String| rows.iter().map(|r| part(r).len()).max().unwrap_or(0);
    let ino = if inodes { widest(|r| &r.ino) } else { 0 };
    let (mode, links) = (widest(|r| &r.mode), widest(|r| &r.links));
    let (uid, gid, size) = (widest(|r| &r.uid), widest(|r| &r.gid), widest(|r| &r.size));
    let time = widest(|r| &r.time);
    for row in rows {
        if inodes {
            out.bytes(format!("{:>ino$} ", row.ino).as_bytes());
        }
        if let Some(space) = spaces.next() {
            out.bytes(format!("{space:>wide$} ").as_bytes());
        }
        let mut line = format!(
            "{:<mode$} {:>links$} {:>uid$} {:>gid$} {:>size$} {:>time$} ",
            row.mode, row.links, row.uid, row.gid, row.size, row.time,
        )
        .into_bytes();
        line.extend(&row.name);
        line.push(b'\n');
        out.bytes(&line);
    }
}
