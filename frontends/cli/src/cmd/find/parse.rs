//! Parses the words of a `find` command line: paths, then an expression.
//!
//! Input: words. Output: a [`Query`]. Invariant: an unknown word is an error. Limits: parentheses and negations are nested at
//! most [`DEEPEST`] levels.

use super::pattern::{Form, compile};
use super::test::{Action, Compare, Permissions, Stamp, Test};
use crate::words::modes::ModeChange;
use crate::words::template::Template;
use crate::words::times;
use diorite_format::{FileType, Timestamp};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// The maximum nesting of parentheses and negations.
const DEEPEST: u32 = 64;

/// A parsed command line.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) paths: Vec<Vec<u8>>,
    pub(super) test: Test,
    pub(super) shallowest: usize,
    pub(super) deepest: usize,
    /// What -newer compares with.
    pub(super) references: Vec<Reference>,
    /// The users and groups that are named.
    pub(super) principals: Vec<(Principal, Vec<u8>)>,
    /// The contents of a directory come before the directory itself.
    pub(super) depth_first: bool,
    /// The expression has -delete.
    pub(super) deletes: bool,
}

/// What times are compared with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// A time of a file of the image.
    File(Vec<u8>, Stamp),
    Time(Timestamp),
}

/// Whose name it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Principal {
    User,
    Group,
}

/// Parses a command line.
pub(super) fn read(words: &[OsString]) -> Result<Query, String> {
    let words: Vec<&[u8]> = words.iter().map(|w| w.as_bytes()).collect();
    let begins = |w: &&[u8]| w.len() > 1 && w.starts_with(b"-") || *w == b"(" || *w == b"!";
    let paths = words.iter().position(begins).unwrap_or(words.len());
    let mut parser = Parser {
        words: &words[paths..],
        depth: 0,
        shallowest: 0,
        deepest: usize::MAX,
        references: Vec::new(),
        principals: Vec::new(),
        form: Form::Emacs,
        depth_first: false,
        deletes: false,
        acts: false,
    };
    let mut test = match parser.words.is_empty() {
        true => Test::All(Vec::new()),
        false => parser.any()?,
    };
    if !parser.acts {
        test = Test::All(vec![test, Test::Act(Action::Print)]);
    }
    if words[..paths].contains(&&b""[..]) {
        return Err("PATH is empty".to_owned());
    }
    if let Some(word) = parser.words.first() {
        return Err(format!("{}: not expected here", shown(word)));
    }
    let mut paths: Vec<Vec<u8>> = words[..paths].iter().map(|p| p.to_vec()).collect();
    if paths.is_empty() {
        paths.push(b"/".to_vec());
    }
    Ok(Query {
        paths,
        test,
        shallowest: parser.shallowest,
        deepest: parser.deepest,
        references: parser.references,
        principals: parser.principals,
        depth_first: parser.depth_first,
        deletes: parser.deletes,
    })
}

struct Parser<'a> {
    words: &'a [&'a [u8]],
    depth: u32,
    shallowest: usize,
    deepest: usize,
    references: Vec<Reference>,
    principals: Vec<(Principal, Vec<u8>)>,
    /// The form of the regular expressions that follow.
    form: Form,
    depth_first: bool,
    deletes: bool,
    /// The expression has an action, so -print is not added.
    acts: bool,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn take(&mut self, words: &[&str]) -> bool {
        let is = |w: &&[u8]| words.iter().any(|x| x.as_bytes() == *w);
        let found = self.words.first().is_some_and(is);
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    /// Parses tests joined by -o.
    fn any(&mut self) -> Result<Test, String> {
        let mut tests = vec![self.all()?];
        while self.take(&["-o", "-or"]) {
            tests.push(self.all()?);
        }
        Ok(Test::Any(tests))
    }

    /// Parses tests joined by -a, or by nothing.
    fn all(&mut self) -> Result<Test, String> {
        let mut tests = vec![self.one()?];
        let ends = |w: &&[u8]| matches!(*w, b"-o" | b"-or" | b")");
        loop {
            let and = self.take(&["-a", "-and"]);
            if !and && self.words.first().is_none_or(ends) {
                return Ok(Test::All(tests));
            }
            tests.push(self.one()?);
        }
    }

    fn one(&mut self) -> Result<Test, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("more than {DEEPEST} parentheses in one another"));
        }
        let test = if self.take(&["!", "-not"]) {
            Test::Not(Box::new(self.one()?))
        } else if self.take(&["("]) {
            let inner = self.any()?;
            if !self.take(&[")"]) {
                return Err("( without )".to_owned());
            }
            inner
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(test)
    }

    fn test(&mut self) -> Result<Test, String> {
        let word = self.next().ok_or("the expression ends too early")?;
        let yes = Test::All(Vec::new());
        match word {
            // There is one file system, and its directories are read whatever their links.
            b"-true" | b"-xdev" | b"-mount" | b"-noleaf" => return Ok(yes),
            b"-false" => return Ok(Test::Any(Vec::new())),
            b"-prune" => return Ok(Test::Prune),
            b"-quit" => return Ok(Test::Quit),
            b"-ls" => return Ok(self.act(Action::Ls)),
            b"-print" => return Ok(self.act(Action::Print)),
            b"-print0" => return Ok(self.act(Action::Print0)),
            b"-delete" => {
                (self.depth_first, self.deletes) = (true, true);
                return Ok(self.act(Action::Delete));
            }
            b"-depth" => {
                self.depth_first = true;
                return Ok(yes);
            }
            b"-empty" => return Ok(Test::Empty),
            _ => {}
        }
        let name = shown(word);
        let known = [
            "-name",
            "-iname",
            "-path",
            "-ipath",
            "-wholename",
            "-iwholename",
            "-regex",
            "-iregex",
            "-regextype",
            "-lname",
            "-ilname",
            "-user",
            "-group",
            "-mmin",
            "-amin",
            "-cmin",
            "-type",
            "-size",
            "-uid",
            "-gid",
            "-links",
            "-inum",
            "-perm",
            "-maxdepth",
            "-mindepth",
            "-newer",
            "-mtime",
            "-atime",
            "-ctime",
            "-printf",
        ];
        if !known.contains(&name.as_str()) && newer(&name).is_none() {
            return Err(format!("{name}: no test that is known here"));
        }
        let value = self
            .next()
            .ok_or_else(|| format!("{name}: a value is missing"))?;
        self.with_value(&name, value)
            .map_err(|why| format!("{name} {}: {why}", shown(value)))
    }

    fn act(&mut self, action: Action) -> Test {
        self.acts = true;
        Test::Act(action)
    }

    fn with_value(&mut self, name: &str, value: &[u8]) -> Result<Test, String> {
        let pattern = value.to_vec();
        let fold = name.starts_with("-i");
        if let Some((stamp, of)) = newer(name) {
            return self.newer(stamp, of, value);
        }
        Ok(match name {
            "-name" | "-iname" => Test::Name { pattern, fold },
            "-path" | "-ipath" | "-wholename" | "-iwholename" => Test::Path { pattern, fold },
            "-lname" | "-ilname" => Test::Target { pattern, fold },
            "-regex" | "-iregex" => Test::Regex(compile(value, self.form, fold)?),
            "-regextype" => {
                self.form = Form::parse(value)?;
                Test::All(Vec::new())
            }
            "-user" => self.owner(Principal::User, value),
            "-group" => self.owner(Principal::Group, value),
            "-type" => Test::Type(types(value)?),
            "-size" => size(value)?,
            "-uid" => Test::Uid(Compare::parse(value)?),
            "-gid" => Test::Gid(Compare::parse(value)?),
            "-links" => Test::Links(Compare::parse(value)?),
            "-inum" => Test::Inode(Compare::parse(value)?),
            "-perm" => Test::Permissions(permissions(value)?),
            "-maxdepth" => {
                self.deepest = depth(value)?;
                Test::All(Vec::new())
            }
            "-mtime" => age(Stamp::Modification, value)?,
            "-atime" => age(Stamp::Access, value)?,
            "-ctime" => age(Stamp::Change, value)?,
            "-mmin" => minutes(Stamp::Modification, value)?,
            "-amin" => minutes(Stamp::Access, value)?,
            "-cmin" => minutes(Stamp::Change, value)?,
            "-printf" => self.act(Action::Printf(Template::of_find(value)?)),
            _ => {
                self.shallowest = depth(value)?;
                Test::All(Vec::new())
            }
        })
    }
}

impl Parser<'_> {
    fn newer(&mut self, stamp: Stamp, of: Option<Stamp>, value: &[u8]) -> Result<Test, String> {
        self.references.push(match of {
            Some(of) => Reference::File(value.to_vec(), of),
            None => Reference::Time(times::parse(&shown(value))?),
        });
        let reference = self.references.len() - 1;
        Ok(Test::Newer { stamp, reference })
    }

    /// A name is looked up in the image; all digits are an id.
    fn owner(&mut self, principal: Principal, value: &[u8]) -> Test {
        let id = Compare::parse(value).ok();
        if let Some(id @ Compare::Exactly(_)) = id {
            return match principal {
                Principal::User => Test::Uid(id),
                Principal::Group => Test::Gid(id),
            };
        }
        self.principals.push((principal, value.to_vec()));
        Test::Owner(principal, self.principals.len() - 1)
    }
}

/// The times that a word of the form -newerXY compares: X of a file with Y of a reference, or none for a time that is given itself.
fn newer(word: &str) -> Option<(Stamp, Option<Stamp>)> {
    let stamp = |letter| match letter {
        'a' => Some(Stamp::Access),
        'B' => Some(Stamp::Birth),
        'c' => Some(Stamp::Change),
        'm' => Some(Stamp::Modification),
        _ => None,
    };
    let mut letters = match word {
        "-anewer" => "am",
        "-cnewer" => "cm",
        "-newer" => "mm",
        other => other.strip_prefix("-newer")?,
    }
    .chars();
    let (x, y) = (letters.next()?, letters.next()?);
    let of = match y {
        't' => None,
        y => Some(stamp(y)?),
    };
    letters.next().is_none().then_some((stamp(x)?, of))
}

fn minutes(stamp: Stamp, value: &[u8]) -> Result<Test, String> {
    let minutes = Compare::parse(value)?;
    Ok(Test::Minutes { stamp, minutes })
}

fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

fn depth(value: &[u8]) -> Result<usize, String> {
    shown(value)
        .parse()
        .map_err(|_| "no number of levels".to_owned())
}

fn age(stamp: Stamp, value: &[u8]) -> Result<Test, String> {
    let days = Compare::parse(value)?;
    Ok(Test::Age { stamp, days })
}

fn types(value: &[u8]) -> Result<Vec<FileType>, String> {
    let one = |word: &[u8]| match word {
        b"f" => Ok(FileType::Regular),
        b"d" => Ok(FileType::Directory),
        b"l" => Ok(FileType::Symlink),
        b"b" => Ok(FileType::BlockDevice),
        b"c" => Ok(FileType::CharDevice),
        b"p" => Ok(FileType::Fifo),
        b"s" => Ok(FileType::Socket),
        _ => Err("types are f, d, l, b, c, p, s, with commas between".to_owned()),
    };
    value.split(|c| *c == b',').map(one).collect()
}

fn size(value: &[u8]) -> Result<Test, String> {
    let (unit, number) = match value.split_last() {
        Some((b'c', number)) => (1, number),
        Some((b'w', number)) => (2, number),
        Some((b'b', number)) => (512, number),
        Some((b'k', number)) => (1 << 10, number),
        Some((b'M', number)) => (1 << 20, number),
        Some((b'G', number)) => (1 << 30, number),
        _ => (512, value),
    };
    let size = Compare::parse(number)?;
    Ok(Test::Size { size, unit })
}

fn permissions(value: &[u8]) -> Result<Permissions, String> {
    let (how, digits): (fn(u16) -> Permissions, &[u8]) = match value {
        [b'-', rest @ ..] => (Permissions::All, rest),
        [b'/', rest @ ..] => (Permissions::Any, rest),
        all => (Permissions::Exactly, all),
    };
    // Letters change no permissions at all, as for find(1).
    match ModeChange::parse(&shown(digits)) {
        Ok(change) => Ok(how(change.of(0, false))),
        Err(_) => Err("neither an octal mode nor one of letters".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(words: &str) -> Result<Query, String> {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        read(&words)
    }

    #[test]
    fn paths_come_first() {
        let found = query("/a b -maxdepth 2 -name *.c -print0").expect("well formed");
        assert_eq!(found.paths, [b"/a".to_vec(), b"b".to_vec()]);
        assert_eq!((found.deepest, found.depth_first), (2, false));
        let deletes = query("-newer /x -delete").expect("well formed");
        assert!(deletes.depth_first && deletes.deletes);
        let newer = Reference::File(b"/x".to_vec(), Stamp::Modification);
        assert_eq!(deletes.references, [newer]);
        assert_eq!(read(&[]).expect("nothing").paths, [b"/"]);
        let all = query("( -type f -o ! -name x ) -size +3k -a -perm -4000").expect("well formed");
        assert_eq!(all.paths, [b"/"]);
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for (words, why) in [
            ("-name", "a value is missing"),
            ("-frob x", "no test that is known"),
            ("( -type f", "( without )"),
            ("-type f )", "not expected"),
            ("-type q", "types are"),
            ("-size 3q", "no number"),
            ("-size +", "no number"),
            ("-perm 9", "octal"),
            ("-type f -o", "too early"),
            ("-maxdepth -1", "no number"),
            ("-mtime x", "no number"),
            ("-printf %q", "no directive"),
            ("-newer", "a value is missing"),
            ("!", "too early"),
        ] {
            let error = query(words).expect_err(words);
            assert!(error.contains(why), "{words}: {error}");
        }
        let deep = "( ".repeat(100) + "-type f";
        assert!(query(&deep).expect_err("deep").contains("parentheses"));
    }
}
