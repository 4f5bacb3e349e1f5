//! The tests of a `find` expression.
//!
//! Input: an expression, a file. Output: whether the file matches. Invariant: the recursion is bounded by the nesting that the
//! parser allows. Limits: none of its own.

use super::glob;
use super::parse::Principal;
use crate::images::image;
use crate::walking::tree::Visit;
use crate::words::directives::OfFind;
use crate::words::names::last_name;
use crate::words::template::Template;
use diorite::{Error, File, Volume};
use diorite_format::{FileType, Inode, Timestamp};
use regex::bytes::Regex;
use std::cell::Cell;

/// A second in nanoseconds.
const SECOND: i128 = 1_000_000_000;

/// An expression.
#[derive(Debug)]
pub(super) enum Test {
    /// All of these; true if there are none.
    All(Vec<Test>),
    Any(Vec<Test>),
    Not(Box<Test>),
    Name {
        pattern: Vec<u8>,
        fold: bool,
    },
    Path {
        pattern: Vec<u8>,
        fold: bool,
    },
    /// The whole path.
    Regex(Regex),
    /// The target of a symbolic link.
    Target {
        pattern: Vec<u8>,
        fold: bool,
    },
    Type(Vec<FileType>),
    /// The size in units, rounded up.
    Size {
        size: Compare,
        unit: u64,
    },
    Uid(Compare),
    Gid(Compare),
    /// The user, or the group, with this index in [`super::parse::Query::principals`].
    Owner(Principal, usize),
    Links(Compare),
    Inode(Compare),
    Permissions(Permissions),
    /// An empty regular file or an empty directory.
    Empty,
    /// A time after that of the reference with this index in [`super::parse::Query::references`].
    Newer {
        stamp: Stamp,
        reference: usize,
    },
    /// The age of a time in days, rounded down.
    Age {
        stamp: Stamp,
        days: Compare,
    },
    /// The age of a time in minutes, rounded up.
    Minutes {
        stamp: Stamp,
        minutes: Compare,
    },
    /// True; the directory is not entered.
    Prune,
    /// Ends the command.
    Quit,
    Act(Action),
}

/// One of a file's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    Access,
    Birth,
    Change,
    Modification,
}

impl Stamp {
    /// This time of a file; it may have none of its birth.
    pub(super) fn of(self, inode: &Inode) -> Option<Timestamp> {
        Some(match self {
            Stamp::Access => inode.atime,
            Stamp::Birth => return inode.crtime,
            Stamp::Change => inode.ctime,
            Stamp::Modification => inode.mtime,
        })
    }
}

/// An action, which is part of an expression.
#[derive(Debug)]
pub(super) enum Action {
    Print,
    /// Prints the path with a NUL at the end.
    Print0,
    Printf(Template<OfFind>),
    /// Prints a line as `ls -dils` does.
    Ls,
    Delete,
}

/// What the tests need besides the file.
pub(super) struct Surroundings<'a> {
    pub(super) volume: &'a Volume,
    pub(super) now: Timestamp,
    /// The times that -newer compares with.
    pub(super) references: &'a [Timestamp],
    /// The ids of the users and groups that were named.
    pub(super) principals: &'a [u32],
    /// The directory that was tested last is not entered.
    pub(super) pruned: Cell<bool>,
    /// The command ends.
    pub(super) quits: Cell<bool>,
}

/// `5`, `+5`, `-5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    Exactly(u64),
    More(u64),
    Less(u64),
}

/// `644`, `-644`, `/6000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permissions {
    Exactly(u16),
    All(u16),
    Any(u16),
}

impl Compare {
    pub(super) fn parse(word: &[u8]) -> Result<Compare, String> {
        let (how, digits): (fn(u64) -> Compare, &[u8]) = match word {
            [b'+', rest @ ..] => (Compare::More, rest),
            [b'-', rest @ ..] => (Compare::Less, rest),
            all => (Compare::Exactly, all),
        };
        let plain = digits.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(digits).ok().filter(|_| plain);
        number
            .and_then(|n| n.parse().ok())
            .map(how)
            .ok_or_else(|| "no number".to_owned())
    }

    /// The same for an age, which is negative for a time in the future.
    fn fits_age(self, age: i128) -> bool {
        match u64::try_from(age) {
            Ok(age) => self.fits(age),
            Err(_) => matches!(self, Compare::Less(_)),
        }
    }

    /// The same for an age in parts of a unit: exactly is up to one unit less.
    fn fits_rounded_up(self, age: i128, unit: i128) -> bool {
        let units = |n: u64| i128::from(n) * unit;
        match self {
            Compare::Exactly(n) => age <= units(n) && age > units(n) - unit,
            Compare::More(n) => age > units(n),
            Compare::Less(n) => age < units(n),
        }
    }

    fn fits(self, value: u64) -> bool {
        match self {
            Compare::Exactly(n) => value == n,
            Compare::More(n) => value > n,
            Compare::Less(n) => value < n,
        }
    }
}

impl Permissions {
    fn fit(self, mode: u16) -> bool {
        let mode = mode & 0o7777;
        match self {
            Permissions::Exactly(bits) => mode == bits,
            Permissions::All(bits) => mode & bits == bits,
            Permissions::Any(bits) => bits == 0 || mode & bits != 0,
        }
    }
}

/// Whether the file matches. The actions of the expression are run by `act`, which returns whether they succeeded.
pub(super) fn fits(
    test: &Test,
    around: &Surroundings<'_>,
    visit: &Visit,
    file: &File,
    act: &mut impl FnMut(&Action) -> bool,
) -> Result<bool, Error> {
    let inode = file.metadata();
    Ok(match test {
        Test::All(tests) => {
            for test in tests {
                if !fits(test, around, visit, file, act)? || around.quits.get() {
                    return Ok(false);
                }
            }
            true
        }
        Test::Any(tests) => {
            for test in tests {
                if fits(test, around, visit, file, act)? || around.quits.get() {
                    return Ok(true);
                }
            }
            false
        }
        Test::Not(test) => !fits(test, around, visit, file, act)?,
        Test::Name { pattern, fold } => {
            let name = last_name(&visit.name);
            let name = if name.is_empty() { b"/" } else { name };
            glob::fits(pattern, name, *fold)
        }
        Test::Path { pattern, fold } => glob::fits(pattern, &visit.path, *fold),
        Test::Regex(whole) => whole.is_match(&visit.path),
        Test::Target { pattern, fold } => match image::target(around.volume, &inode) {
            Some(target) => glob::fits(pattern, &target?, *fold),
            None => false,
        },
        Test::Type(types) => inode.file_type.is_some_and(|t| types.contains(&t)),
        Test::Size { size, unit } => size.fits(inode.size.div_ceil(*unit)),
        Test::Uid(uid) => uid.fits(inode.uid.into()),
        Test::Gid(gid) => gid.fits(inode.gid.into()),
        Test::Links(links) => links.fits(inode.links.into()),
        Test::Inode(ino) => ino.fits(inode.ino.get().into()),
        Test::Permissions(permissions) => permissions.fit(inode.mode),
        Test::Empty if inode.is_file() => inode.size == 0,
        Test::Empty if inode.is_dir() => is_empty(around.volume, file)?,
        Test::Empty => false,
        Test::Owner(principal, index) => {
            let id = match principal {
                Principal::User => inode.uid,
                Principal::Group => inode.gid,
            };
            around.principals.get(*index) == Some(&id)
        }
        Test::Newer { stamp, reference } => {
            let after = |time: Timestamp| (time.secs, time.nanos);
            let reference = around.references.get(*reference);
            let time = stamp.of(&inode);
            time.zip(reference)
                .is_some_and(|(time, than)| after(time) > after(*than))
        }
        Test::Age { stamp, days } => age(around.now, *stamp, &inode)
            .is_some_and(|age| days.fits_age(age.div_euclid(86_400 * SECOND))),
        Test::Minutes { stamp, minutes } => age(around.now, *stamp, &inode)
            .is_some_and(|age| minutes.fits_rounded_up(age, 60 * SECOND)),
        Test::Prune => {
            around.pruned.set(true);
            true
        }
        Test::Quit => {
            around.quits.set(true);
            true
        }
        Test::Act(action) => act(action),
    })
}

/// The age of one of a file's times, in nanoseconds.
fn age(now: Timestamp, stamp: Stamp, inode: &Inode) -> Option<i128> {
    let nanos = |time: Timestamp| i128::from(time.secs) * SECOND + i128::from(time.nanos);
    Some(nanos(now) - nanos(stamp.of(inode)?))
}

fn is_empty(volume: &Volume, dir: &File) -> Result<bool, Error> {
    for entry in volume.read_dir(dir.ino())? {
        let name = entry?.name;
        if name != b"." && name != b".." {
            return Ok(false);
        }
    }
    Ok(true)
}
