//! Changes of inode flags, in chattr's letters.
//!
//! Input: a word such as `+i`, `-dA` or `=d`, or a path. Output: changed flags. Invariant: a letter that no user can set is
//! refused. Limits: a path does not begin with +, - or =; `=` leaves the flags that describe the on-disk form of a file
//! (extents, casefold). Source: man 1 chattr.

use diorite_format::InodeFlags;
use std::ffi::OsString;

const LETTERS: [(char, InodeFlags); 17] = [
    ('a', InodeFlags::APPEND),
    ('A', InodeFlags::NOATIME),
    ('c', InodeFlags::COMPR),
    ('C', InodeFlags::NOCOW),
    ('d', InodeFlags::NODUMP),
    ('D', InodeFlags::DIRSYNC),
    ('e', InodeFlags::EXTENTS),
    ('i', InodeFlags::IMMUTABLE),
    ('j', InodeFlags::JOURNAL_DATA),
    ('P', InodeFlags::PROJINHERIT),
    ('s', InodeFlags::SECRM),
    ('S', InodeFlags::SYNC),
    ('t', InodeFlags::NOTAIL),
    ('T', InodeFlags::TOPDIR),
    ('u', InodeFlags::UNRM),
    ('F', InodeFlags::CASEFOLD),
    ('x', InodeFlags::DAX),
];

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagChange {
    /// Set these flags, too.
    Set(InodeFlags),
    /// Clear these flags.
    Clear(InodeFlags),
    /// Set exactly these, of the flags that can be set.
    Exactly(InodeFlags),
}

/// A word that follows the image on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FlagWord {
    /// A change that applies to all paths.
    Change(FlagChange),
    /// A file to change.
    Path(OsString),
}

impl FlagWord {
    /// Decides whether a word is a change or a path.
    ///
    /// # Errors
    /// Names a letter that is not a flag.
    pub(crate) fn parse(word: OsString) -> Result<FlagWord, String> {
        match word.as_encoded_bytes().first() {
            Some(b'+' | b'-' | b'=') => {
                FlagChange::parse(&word.to_string_lossy()).map(FlagWord::Change)
            }
            _ => Ok(FlagWord::Path(word)),
        }
    }
}

impl FlagChange {
    /// Parses a change.
    ///
    /// # Errors
    /// Names a letter that is not a flag.
    fn parse(word: &str) -> Result<FlagChange, String> {
        let mut letters = word.chars();
        let change = match letters.next() {
            Some('+') => FlagChange::Set,
            Some('-') => FlagChange::Clear,
            Some('=') => FlagChange::Exactly,
            _ => return Err("flags begin with +, - or =".to_owned()),
        };
        letters
            .try_fold(InodeFlags::default(), |all, letter| {
                let known = LETTERS.iter().find(|(l, _)| *l == letter);
                let (_, flag) = known.ok_or(format!("'{letter}' is no flag that can be set"))?;
                Ok(all.with(*flag))
            })
            .map(change)
    }

    /// The flags after the change.
    pub(crate) fn of(self, flags: InodeFlags) -> InodeFlags {
        match self {
            FlagChange::Set(more) => flags.with(more),
            FlagChange::Clear(fewer) => flags.without(fewer),
            FlagChange::Exactly(these) => {
                let layout = InodeFlags::EXTENTS.with(InodeFlags::CASEFOLD);
                let settable = LETTERS
                    .iter()
                    .fold(InodeFlags::default(), |all, (_, flag)| all.with(*flag));
                flags.without(settable.without(layout)).with(these)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let flags = InodeFlags::EXTENTS.with(InodeFlags::NODUMP);
        let of = |word: &str| {
            FlagChange::parse(word)
                .expect("one that is right")
                .of(flags)
                .letters()
        };
        assert_eq!(of("+i"), "----i-d-------e-------");
        assert_eq!(of("-d"), "--------------e-------");
        assert_eq!(of("=A"), "-------A------e-------");
        assert_eq!(of("="), "--------------e-------");
        for wrong in ["", "i", "+q", "+I"] {
            assert!(FlagChange::parse(wrong).is_err(), "{wrong}");
        }
    }
}
