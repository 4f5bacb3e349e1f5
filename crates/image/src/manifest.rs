//! A manifest as a source: a line for each file, in the form of mtree(5).
//!
//! Input: `./etc/passwd type=file mode=0644 uid=0 gid=0 time=1700000000.0 contents=files/passwd`; `/set` and `/unset`. Output: entries.
//! Invariants: a keyword that is not known is refused, except checksums and sizes that other tools write; contents are regular files of the
//! host, named from the directory of the manifest. Limits: full paths only. Source: man 5 mtree of libarchive; `xattr.NAME=` (base64) as of
//! FreeBSD's.

use crate::assembly::{Assembly, shown};
use crate::base64::base64;
use crate::error::{Error, Place};
use crate::host;
use crate::origin::Origin;
use diorite::mkfs::{Attribute, Node, NodeKind};
use diorite::{Rdev, Timestamp};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Keywords that say what is checked by other tools, or what has no meaning here.
const IGNORED: [&str; 20] = [
    "size",
    "nlink",
    "cksum",
    "md5",
    "md5digest",
    "rmd160",
    "rmd160digest",
    "sha1",
    "sha1digest",
    "sha256",
    "sha256digest",
    "sha384",
    "sha384digest",
    "sha512",
    "sha512digest",
    "inode",
    "flags",
    "optional",
    "nochange",
    "ignore",
];

type Words = BTreeMap<String, String>;

/// Adds the files of a manifest.
pub(crate) fn add(assembly: &mut Assembly, manifest: &Path) -> Result<(), Error> {
    let text = host::named(manifest).and_then(std::io::read_to_string);
    let text = text.at(manifest.display())?;
    let beside = manifest.parent().unwrap_or(Path::new("."));
    let mut set = Words::new();
    // A line that ends with a backslash goes on in the next one.
    let text = text.replace("\\\n", " ");
    for (n, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next().filter(|word| !word.starts_with('#')) else {
            continue;
        };
        let place = format!("{}: line {}", manifest.display(), n + 1);
        match first {
            "/set" => {
                for word in words {
                    let (key, value) = keyword(word);
                    set.insert(key, value);
                }
            }
            "/unset" => words.for_each(|key| match key {
                "all" => set.clear(),
                key => drop(set.remove(key)),
            }),
            ".." => return Err(Error::new("only manifests with full paths are read")).at(place),
            path => {
                let mut all = set.clone();
                all.extend(words.map(keyword));
                one(assembly, beside, &unescaped(path), &all).at(place)?;
            }
        }
    }
    Ok(())
}

fn keyword(word: &str) -> (String, String) {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    (key.to_owned(), value.to_owned())
}

/// Bytes for the escapes of vis(3); what begins like one, and is none, stays.
fn unescaped(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        let (byte, len) = match first {
            b'\\' => escape(tail).unwrap_or((b'\\', 0)),
            other => (*other, 0),
        };
        out.push(byte);
        rest = &tail[len..];
    }
    out
}

/// The byte of what stands behind a backslash, and how many characters that takes.
fn escape(text: &[u8]) -> Option<(u8, usize)> {
    let control = |c: u8| if c == b'?' { 0x7f } else { c & 0x1f };
    Some(match text {
        [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
            ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), 3)
        }
        [b'M', b'-', c, ..] => (c | 0x80, 3),
        [b'M', b'^', c, ..] => (control(*c) | 0x80, 3),
        [b'^', c, ..] => (control(*c), 2),
        [b'a', ..] => (7, 1),
        [b'b', ..] => (8, 1),
        [b't', ..] => (b'\t', 1),
        [b'n', ..] => (b'\n', 1),
        [b'v', ..] => (11, 1),
        [b'f', ..] => (12, 1),
        [b'r', ..] => (b'\r', 1),
        [b's', ..] => (b' ', 1),
        [c, ..] if c.is_ascii_punctuation() => (*c, 1),
        _ => return None,
    })
}

fn one(assembly: &mut Assembly, beside: &Path, path: &[u8], words: &Words) -> Result<(), Error> {
    if assembly.is_excluded(path) {
        return Ok(());
    }
    for key in words.keys() {
        let known = [
            "type", "mode", "uid", "gid", "uname", "gname", "time", "link", "device", "contents",
            "content", "hardlink",
        ];
        if !known.contains(&&key[..]) && !IGNORED.contains(&&key[..]) && !key.starts_with("xattr.")
        {
            return Err(Error::new(format!("the keyword {key} is unknown")));
        }
    }
    let word = |key: &str| words.get(key).map(String::as_str);
    let number = |key: &str| -> Result<u32, Error> {
        let text = word(key).unwrap_or("0");
        text.parse()
            .map_err(|_| Error::new(format!("{key}={text}: no number")))
    };
    if let Some(target) = word("hardlink") {
        return assembly.hard_link(path, &unescaped(target));
    }
    let contents = word("contents").or(word("content"));
    let host = contents.map(|name| beside.join(OsString::from_vec(unescaped(name))));
    let kind = word("type").unwrap_or(if host.is_some() { "file" } else { "dir" });
    let device = || -> Result<Rdev, Error> {
        let text = word("device").ok_or_else(|| Error::new("a device needs device=MAJOR,MINOR"))?;
        let parts: Vec<&str> = text.split(',').collect();
        // Also "native,8,1".
        let numbers: Option<Vec<u32>> = parts
            .iter()
            .rev()
            .take(2)
            .rev()
            .map(|part| part.parse().ok())
            .collect();
        match numbers.as_deref() {
            Some([major, minor]) => Ok(Rdev {
                major: *major,
                minor: *minor,
            }),
            _ => Err(Error::new(format!("device={text}: no two numbers"))),
        }
    };
    let (mut usual, mut origin) = (0o644, Origin::None);
    let kind = match kind {
        "file" => match &host {
            Some(host) => {
                let meta = host.metadata().at(host.display())?;
                if !meta.is_file() {
                    return Err(Error::new("it is no regular file")).at(host.display());
                }
                if let Some(size) = word("size")
                    && size.parse() != Ok(meta.len())
                {
                    let why = format!("size={size}, and it has {} bytes", meta.len());
                    return Err(Error::new(why)).at(host.display());
                }
                // A link may name it; from here on it is no link.
                origin = Origin::Host(None, host.canonicalize().at(host.display())?.into());
                NodeKind::plain_file(meta.len())
            }
            None if word("size").is_some_and(|size| size != "0") => {
                return Err(Error::new("a file with a size needs contents=FILE"));
            }
            None => NodeKind::plain_file(0),
        },
        "dir" => {
            usual = 0o755;
            NodeKind::Directory
        }
        "link" => {
            usual = 0o777;
            let target = word("link").ok_or_else(|| Error::new("a link needs link=TARGET"))?;
            NodeKind::Symlink(unescaped(target).into())
        }
        "char" => NodeKind::CharDevice(device()?),
        "block" => NodeKind::BlockDevice(device()?),
        "fifo" => NodeKind::Fifo,
        "socket" => NodeKind::Socket,
        other => return Err(Error::new(format!("type={other} is unknown"))),
    };
    let mode = match word("mode") {
        None => usual,
        Some(text) => {
            let mode = u16::from_str_radix(text, 8)
                .ok()
                .filter(|mode| *mode <= 0o7777);
            mode.ok_or_else(|| Error::new(format!("mode={text}: no permissions in octal digits")))?
        }
    };
    let mtime = match word("time") {
        None => assembly.made_at(),
        Some(text) => {
            let (secs, nanos) = text.split_once('.').unwrap_or((text, "0"));
            let wrong = || Error::new(format!("time={text}: no time"));
            Timestamp {
                secs: secs.parse().map_err(|_| wrong())?,
                nanos: nanos
                    .parse()
                    .ok()
                    .filter(|n| *n < 1_000_000_000)
                    .ok_or_else(wrong)?,
            }
        }
    };
    let mut attributes: Vec<Attribute> = Vec::new();
    for (key, value) in words {
        if let Some(name) = key.strip_prefix("xattr.") {
            let value =
                base64(value.as_bytes()).ok_or_else(|| Error::new(format!("{key}: no base64")))?;
            attributes.push((name.as_bytes().into(), value.into()));
        }
    }
    for name in ["uname", "gname"] {
        if let Some(of) = word(name)
            && of != "root"
            && word(if name == "uname" { "uid" } else { "gid" }).is_none()
        {
            return Err(Error::new(format!(
                "{name}={of}: owners are known by number only"
            )));
        }
    }
    let node = Node {
        kind,
        mode,
        uid: number("uid")?,
        gid: number("gid")?,
        mtime,
        attributes,
    };
    assembly.put(path, node, origin).at(shown(path))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        assert_eq!(unescaped("a\\040b\\134"), b"a b\\");
        assert_eq!(unescaped("\\9"), b"\\9");
        assert_eq!(unescaped("\\400\\"), b"\\400\\");
        assert_eq!(unescaped("\\t\\s\\\\\\#\\*"), b"\t \\#*");
        assert_eq!(
            unescaped("\\^A\\^?\\M-i\\M^A"),
            [1, 0x7f, b'i' | 0x80, 0x81]
        );
    }
}
