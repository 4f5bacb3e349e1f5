//! What it is: debugfs as the judge of what an image holds, if the kernel cannot be used.
//! Input: an image. Output: manifest entries as the kernel's judge makes them, except `data`, which debugfs does not report.
//! Invariant: inodes are given to debugfs by number (`<12>`), so no path needs quoting.
//! Limit: one process per regular file and per xattr; names with newlines are refused.

use crate::digest::Digest;
use crate::error::{Error, Result, at};
use crate::manifest::{Entry, Facts, Kind, Time, Xattr, encode, hex};
use crate::run;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

/// All entries of the image. Scripts and values are written to `scratch`.
pub(super) fn walk(image: &Path, scratch: &Path) -> Result<Vec<Entry>> {
    let judge = Judge { image, scratch };
    let mut names = judge.names()?;
    names.sort();
    let inodes: Vec<u64> = names.iter().map(|(_, ino)| *ino).collect();
    let stats = judge.each("stat", &inodes)?;
    let mut first: HashMap<u64, String> = HashMap::new();
    let mut entries = Vec::with_capacity(names.len());
    for (name, ino) in names {
        let path = encode(&name);
        let link_of = first.get(&ino).cloned();
        let facts = match link_of {
            Some(_) => None,
            None => Some(judge.facts(ino, stats.get(&ino).map_or("", String::as_str))?),
        };
        first.entry(ino).or_insert_with(|| path.clone());
        entries.push(Entry {
            path,
            ino,
            link_of,
            facts,
        });
    }
    Ok(entries)
}

struct Judge<'a> {
    image: &'a Path,
    scratch: &'a Path,
}

impl Judge<'_> {
    /// All paths with their inode numbers, level by level.
    fn names(&self) -> Result<Vec<(Vec<u8>, u64)>> {
        const ROOT: u64 = 2;
        let mut names = vec![(b"/".to_vec(), ROOT)];
        let mut level = vec![(Vec::new(), ROOT)];
        while !level.is_empty() {
            let mut below = Vec::new();
            for (path, ino) in level {
                for (name, ino, dir) in self.list(ino)? {
                    let path = [&path[..], b"/", &name].concat();
                    if dir {
                        below.push((path.clone(), ino));
                    }
                    names.push((path, ino));
                }
            }
            level = below;
        }
        Ok(names)
    }

    /// `ls -p` prints `/INO/MODE/UID/GID/NAME/SIZE/` a line; a name has no slash.
    fn list(&self, dir: u64) -> Result<Vec<(Vec<u8>, u64, bool)>> {
        let text = run::debugfs(self.image, &format!("ls -p <{dir}>"))?;
        let mut names = Vec::new();
        for line in text
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let fields: Vec<&[u8]> = line.split(|&byte| byte == b'/').collect();
            let [_, ino, mode, _, _, name, ..] = fields[..] else {
                return Err(odd("ls -p", line));
            };
            let ino: u64 = number(ino).ok_or_else(|| odd("ls -p", line))?;
            if ino != 0 && name != b"." && name != b".." {
                names.push((name.to_vec(), ino, mode.starts_with(b"04")));
            }
        }
        Ok(names)
    }

    /// Runs `VERB <INO>` for all inodes in one process; returns the output per inode.
    fn each(&self, verb: &str, inodes: &[u64]) -> Result<HashMap<u64, String>> {
        let mut script = String::new();
        for ino in inodes {
            writeln!(script, "{verb} <{ino}>").expect("a String takes everything");
        }
        let path = self.scratch.join("requests");
        std::fs::write(&path, script).map_err(at(&path))?;
        let text = run::debugfs_script(self.image, &path, false)?;
        let mut answers = HashMap::new();
        // Each request is echoed as `debugfs: VERB <INO>` before its output. Each byte becomes one character, so that a symlink's
        // target is preserved.
        let text: String = text.into_iter().map(char::from).collect();
        for part in text.split("debugfs: ").skip(1) {
            let (request, answer) = part.split_once('\n').unwrap_or((part, ""));
            let ino = request
                .split_once('<')
                .and_then(|(_, rest)| rest.strip_suffix('>'));
            let ino = ino
                .and_then(|ino| ino.parse().ok())
                .ok_or_else(|| odd("an echo", request.as_bytes()))?;
            answers.insert(ino, answer.to_owned());
        }
        Ok(answers)
    }

    fn facts(&self, ino: u64, stat: &str) -> Result<Facts> {
        let bad = || odd("stat", stat.as_bytes());
        let kind = word(stat, "Type: ").and_then(kind).ok_or_else(bad)?;
        let size = value(stat, "Size: ").ok_or_else(bad)?;
        let mode = word(stat, "Mode:  ")
            .and_then(|mode| u32::from_str_radix(mode, 8).ok())
            .ok_or_else(bad)?;
        let (digest, target) = match kind {
            Kind::File => (Some(self.digest(ino)?), None),
            Kind::Symlink => (None, Some(self.target(ino, stat)?)),
            _ => (None, None),
        };
        Ok(Facts {
            kind,
            mode,
            uid: owner(stat, "User: ").ok_or_else(bad)?,
            gid: owner(stat, "Group: ").ok_or_else(bad)?,
            size,
            nlink: value(stat, "Links: ").ok_or_else(bad)?,
            mtime: time(stat, "mtime: ").ok_or_else(bad)?,
            atime: time(stat, "atime: ").ok_or_else(bad)?,
            ctime: time(stat, "ctime: ").ok_or_else(bad)?,
            crtime: time(stat, "crtime: "),
            rdev: device(stat),
            target,
            xattrs: self.xattrs(ino, stat)?,
            digest,
            data: None,
        })
    }

    /// Reads the file through a pipe: it may be sparse, and too large for the host.
    fn digest(&self, ino: u64) -> Result<u32> {
        let request = format!("cat <{ino}>");
        let args = [
            OsStr::new("-R"),
            OsStr::new(&request),
            self.image.as_os_str(),
        ];
        let mut child = run::stream("debugfs", &args)?;
        let mut pipe = child.stdout.take().expect("started with a pipe");
        let (mut digest, mut offset, mut buffer) = (Digest::new(), 0, vec![0; 1 << 18]);
        loop {
            let got = pipe.read(&mut buffer).map_err(at(self.image))?;
            if got == 0 {
                break;
            }
            digest.write(offset, &buffer[..got]);
            offset += got as u64;
        }
        child.wait().map_err(at(self.image))?;
        Ok(digest.finish())
    }

    /// A fast symlink's target is in the inode; any other target is in data blocks.
    fn target(&self, ino: u64, stat: &str) -> Result<String> {
        if let Some((_, rest)) = stat.split_once("Fast link dest: \"") {
            let (target, _) = rest
                .rsplit_once('"')
                .ok_or_else(|| odd("stat", stat.as_bytes()))?;
            // Converts back from one character per byte; see `each`.
            let bytes: Vec<u8> = target.chars().map(|c| c as u8).collect();
            return Ok(encode(&bytes));
        }
        Ok(encode(&run::debugfs(self.image, &format!("cat <{ino}>"))?))
    }

    fn xattrs(&self, ino: u64, stat: &str) -> Result<Vec<Xattr>> {
        let Some((_, list)) = stat.split_once("Extended attributes:\n") else {
            return Ok(Vec::new());
        };
        let mut xattrs = Vec::new();
        for line in list.lines().map_while(|line| line.strip_prefix("  ")) {
            let Some((name, _)) = line.split_once(" (") else {
                continue;
            };
            // The data of an inline file is stored as this attribute, but is none.
            if name == "system.data" {
                continue;
            }
            let path = self.scratch.join("value");
            run::debugfs(
                self.image,
                &format!("ea_get -f {} <{ino}> {name}", path.display()),
            )?;
            let mut value = std::fs::read(&path).map_err(at(&path))?;
            if name.starts_with("system.posix_acl_") {
                no_ids(&mut value);
            }
            xattrs.push(Xattr(name.to_owned(), hex(&value)));
        }
        xattrs.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(xattrs)
    }
}

fn odd(what: &'static str, text: &[u8]) -> Error {
    Error::Answer {
        what,
        text: String::from_utf8_lossy(text).into_owned(),
    }
}

fn number<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.trim().parse().ok()
}

/// The word after `label`.
fn word<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.split_once(label)?.1.split_whitespace().next()
}

fn value<T: std::str::FromStr>(text: &str, label: &str) -> Option<T> {
    word(text, label)?.parse().ok()
}

/// ACL entries without a user or group have the id 2^32 - 1 in the kernel's output and 0 in that of debugfs. An ACL is a version (4
/// bytes) and entries of a tag (2), permissions (2) and an id (4).
fn no_ids(acl: &mut [u8]) {
    const USER: u8 = 2;
    const GROUP: u8 = 8;
    for entry in acl.get_mut(4..).unwrap_or_default().chunks_exact_mut(8) {
        if entry[0] != USER && entry[0] != GROUP {
            entry[4..].fill(0xff);
        }
    }
}

/// debugfs prints owners from 2^31 up as negative numbers.
fn owner(text: &str, label: &str) -> Option<u32> {
    let number: i64 = value(text, label)?;
    u32::try_from(number & 0xffff_ffff).ok()
}

fn kind(word: &str) -> Option<Kind> {
    Some(match word {
        "regular" => Kind::File,
        "directory" => Kind::Dir,
        "symlink" => Kind::Symlink,
        "FIFO" => Kind::Fifo,
        "character" => Kind::Char,
        "block" => Kind::Block,
        "socket" => Kind::Socket,
        _ => return None,
    })
}

/// `LOW:EXTRA -- date`, or `LOW -- date` in inodes of 128 bytes. EXTRA holds two epoch bits and
/// the nanoseconds: 0x7fffffff:ee6b27ff is (3 << 32) + 0x7fffffff s and 999,999,999 ns.
fn time(stat: &str, label: &str) -> Option<Time> {
    let mut halves = word(stat, label)?.split(':');
    let mut half = || {
        halves
            .next()
            .map(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16))
    };
    let low = half()?.ok()?;
    let extra = half().transpose().ok()?.unwrap_or(0);
    let seconds = i64::from(i32::from_ne_bytes(low.to_ne_bytes())) + (i64::from(extra & 3) << 32);
    Some(Time(seconds, extra >> 2))
}

fn device(stat: &str) -> Option<(u32, u32)> {
    let (major, minor) = word(stat, "Device major/minor number: ")?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
