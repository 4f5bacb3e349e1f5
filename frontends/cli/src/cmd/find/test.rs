//! The tests of a `find` expression.
//!
//! Input: an expression, a file. Output: whether the file matches. Invariant: the recursion is bounded by the nesting that the
//! parser allows. Limits: none of its own.

use super::glob;
use crate::descent::Visit;
use crate::format::Template;
use crate::names::last_name;
use diorite::{Error, File, Volume};
use diorite_format::{FileType, Timestamp};

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
    Type(Vec<FileType>),
    /// The size in units, rounded up.
    Size {
        size: Compare,
        unit: u64,
    },
    Uid(Compare),
    Gid(Compare),
    Links(Compare),
    Inode(Compare),
    Permissions(Permissions),
    /// An empty regular file or an empty directory.
    Empty,
    /// Modified after the reference file with this index in [`super::parse::Query::references`].
    Newer(usize),
    /// The age of a time in days, rounded down.
    Age {
        stamp: Stamp,
        days: Compare,
    },
    Act(Action),
}

/// One of a file's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    Access,
    Change,
    Modification,
}

/// An action, which is part of an expression.
#[derive(Debug)]
pub(super) enum Action {
    Print,
    /// Prints the path with a NUL at the end.
    Print0,
    Printf(Template),
    Delete,
}

/// What the tests need besides the file.
pub(super) struct Surroundings<'a> {
    pub(super) volume: &'a Volume,
    pub(super) now: Timestamp,
    /// The modification times of the reference files.
    pub(super) references: &'a [Timestamp],
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
                if !fits(test, around, visit, file, act)? {
                    return Ok(false);
                }
            }
            true
        }
        Test::Any(tests) => {
            for test in tests {
                if fits(test, around, visit, file, act)? {
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
        Test::Newer(reference) => {
            let after = |time: Timestamp| (time.secs, time.nanos);
            let reference = around.references.get(*reference);
            reference.is_some_and(|time| after(inode.mtime) > after(*time))
        }
        Test::Age { stamp, days } => {
            let time = match stamp {
                Stamp::Access => inode.atime,
                Stamp::Change => inode.ctime,
                Stamp::Modification => inode.mtime,
            };
            let nanos = |time: Timestamp| i128::from(time.secs) * SECOND + i128::from(time.nanos);
            days.fits_age((nanos(around.now) - nanos(time)).div_euclid(86_400 * SECOND))
        }
        Test::Act(action) => act(action),
    })
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
