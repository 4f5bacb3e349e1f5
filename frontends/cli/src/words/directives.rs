//! The directives of stat -c and find -printf: letters, what they print, what the help says of them.
//!
//! Input: none. Output: a table for each of the two commands, and its text for the help and the man page. Invariant: a letter stands for a
//! value of an enum, which the command prints by an exhaustive `match`, so a letter without a meaning does not compile. Limits: users
//! and groups are numbers; an image has no names for them.

use crate::words::inode_fields::mode_string;
use diorite_format::Inode;

/// A row of a table.
pub(crate) struct Directive<D> {
    /// Letters that mean the same.
    pub(crate) letters: &'static str,
    pub(crate) prints: D,
    pub(crate) takes: Takes,
    /// What it prints, for the help.
    means: &'static str,
}

/// What a directive may have besides flags and a width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    Nothing,
    /// A number of digits before the letter, as in `%.3X`.
    Digits,
    /// A second letter behind the first, as in `%TY`.
    Part,
}

/// The directives of a command.
pub(crate) trait Directives: Copy + Sized + 'static {
    const ALL: &'static [Directive<Self>];

    /// All of them with what they mean, for the help.
    fn help() -> String {
        let rows = Self::ALL.iter().map(|row| {
            let part = if row.takes == Takes::Part { "X" } else { "" };
            let letters = row.letters.chars().map(|c| format!("%{c}{part} "));
            letters.collect::<String>() + row.means
        });
        rows.collect::<Vec<_>>().join(", ")
    }
}

/// Fields of an inode that both commands print alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InodeField {
    Number,
    Size,
    Blocks,
    Links,
    Uid,
    Gid,
    /// The permissions in octal digits.
    Permissions,
    /// The type and the permissions in letters.
    ModeString,
}

impl InodeField {
    pub(crate) fn of(self, inode: &Inode) -> String {
        match self {
            InodeField::Number => inode.ino.get().to_string(),
            InodeField::Size => inode.size.to_string(),
            InodeField::Blocks => inode.blocks.to_string(),
            InodeField::Links => inode.links.to_string(),
            InodeField::Uid => inode.uid.to_string(),
            InodeField::Gid => inode.gid.to_string(),
            InodeField::Permissions => format!("{:o}", inode.mode & 0o7777),
            InodeField::ModeString => mode_string(inode.file_type, inode.mode),
        }
    }
}

/// What a directive of stat prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfStat {
    Inode(InodeField),
    Path,
    QuotedPath,
    Sector,
    BlockSize,
    Mode,
    Type,
    Major,
    Minor,
    Device,
    DeviceHex,
    Time(Stamp),
    Seconds(Stamp),
}

/// Which time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamp {
    Birth,
    Access,
    Modification,
    Change,
}

/// What a directive of find prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfFind {
    Inode(InodeField),
    Path,
    Name,
    Directory,
    Start,
    BelowStart,
    Target,
    Type,
    Depth,
    Kibibytes,
    Access,
    Modification,
    Change,
}

const fn row<D>(letters: &'static str, prints: D, means: &'static str) -> Directive<D> {
    Directive {
        letters,
        prints,
        takes: Takes::Nothing,
        means,
    }
}

const fn seconds(letters: &'static str, stamp: Stamp, means: &'static str) -> Directive<OfStat> {
    Directive {
        takes: Takes::Digits,
        ..row(letters, OfStat::Seconds(stamp), means)
    }
}

const fn part(letters: &'static str, time: OfFind, means: &'static str) -> Directive<OfFind> {
    Directive {
        takes: Takes::Part,
        ..row(letters, time, means)
    }
}

impl Directives for OfStat {
    const ALL: &'static [Directive<OfStat>] = &[
        row("n", OfStat::Path, "path"),
        row("N", OfStat::QuotedPath, "path and target in quotes"),
        row("s", OfStat::Inode(InodeField::Size), "size"),
        row("b", OfStat::Inode(InodeField::Blocks), "blocks taken"),
        row("B", OfStat::Sector, "bytes of each of these blocks"),
        row(
            "o",
            OfStat::BlockSize,
            "bytes of a block of the file system",
        ),
        row(
            "a",
            OfStat::Inode(InodeField::Permissions),
            "permissions in octal",
        ),
        row(
            "A",
            OfStat::Inode(InodeField::ModeString),
            "permissions in letters",
        ),
        row("f", OfStat::Mode, "mode in hexadecimal"),
        row("F", OfStat::Type, "type"),
        row("uU", OfStat::Inode(InodeField::Uid), "number of the owner"),
        row("gG", OfStat::Inode(InodeField::Gid), "number of the group"),
        row("h", OfStat::Inode(InodeField::Links), "links"),
        row("i", OfStat::Inode(InodeField::Number), "inode"),
        row("t", OfStat::Major, "major device number in hexadecimal"),
        row("T", OfStat::Minor, "minor device number in hexadecimal"),
        row("r", OfStat::Device, "device number in decimal"),
        row("R", OfStat::DeviceHex, "device number in hexadecimal"),
        row("w", OfStat::Time(Stamp::Birth), "time of birth"),
        row("x", OfStat::Time(Stamp::Access), "time of the last access"),
        row(
            "y",
            OfStat::Time(Stamp::Modification),
            "time of the last change of the data",
        ),
        row(
            "z",
            OfStat::Time(Stamp::Change),
            "time of the last change of the inode",
        ),
        seconds("W", Stamp::Birth, "time of birth in seconds since 1970"),
        seconds("X", Stamp::Access, "last access in seconds"),
        seconds(
            "Y",
            Stamp::Modification,
            "last change of the data in seconds",
        ),
        seconds("Z", Stamp::Change, "last change of the inode in seconds"),
    ];
}

impl Directives for OfFind {
    const ALL: &'static [Directive<OfFind>] = &[
        row("p", OfFind::Path, "path"),
        row("f", OfFind::Name, "its last name"),
        row("h", OfFind::Directory, "its part before that"),
        row("H", OfFind::Start, "the PATH that it was found below"),
        row("P", OfFind::BelowStart, "its part behind that"),
        row("s", OfFind::Inode(InodeField::Size), "size"),
        row(
            "m",
            OfFind::Inode(InodeField::Permissions),
            "permissions in octal",
        ),
        row(
            "M",
            OfFind::Inode(InodeField::ModeString),
            "permissions in letters",
        ),
        row("y", OfFind::Type, "type"),
        row("uU", OfFind::Inode(InodeField::Uid), "number of the owner"),
        row("gG", OfFind::Inode(InodeField::Gid), "number of the group"),
        row("i", OfFind::Inode(InodeField::Number), "inode"),
        row("n", OfFind::Inode(InodeField::Links), "links"),
        row("l", OfFind::Target, "target of a symbolic link"),
        row("d", OfFind::Depth, "depth"),
        row(
            "b",
            OfFind::Inode(InodeField::Blocks),
            "blocks of 512 bytes",
        ),
        row("k", OfFind::Kibibytes, "blocks of 1024 bytes"),
        row(
            "t",
            OfFind::Modification,
            "time of the last change of the data",
        ),
        row("a", OfFind::Access, "time of the last access"),
        row("c", OfFind::Change, "time of the last change of the inode"),
        part(
            "T",
            OfFind::Modification,
            "the part X of the time of %t (@ Y m d H M S F T + and others)",
        ),
        part("A", OfFind::Access, "the part X of the time of %a"),
        part("C", OfFind::Change, "the part X of the time of %c"),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn letters<D: Directives>() -> String {
        let mut seen = BTreeSet::new();
        let all: Vec<char> = D::ALL.iter().flat_map(|d| d.letters.chars()).collect();
        assert!(
            all.iter().all(|c| seen.insert(*c)),
            "a letter is there twice"
        );
        seen.into_iter().collect()
    }

    #[test]
    fn every_letter_is_there_once() {
        assert_eq!(letters::<OfStat>(), "ABFGNRTUWXYZabfghinorstuwxyz");
        assert_eq!(letters::<OfFind>(), "ACGHMPTUabcdfghiklmnpstuy");
    }
}
