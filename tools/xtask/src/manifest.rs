//! What it is: the record of what an image holds, as the kernel or debugfs reports it.
//! Input: the tree of a kernel mount, or as debugfs lists it. Output: `NAME.manifest.jsonl`.
//! Format: JSON, one object per line. The first line is a [`Header`], each further line an [`Entry`]. Bytes that need not be UTF-8
//! (paths, symlink targets) are percent-encoded: `%XX` for `%`, control bytes and bytes from 0x7f up. Values of xattrs are
//! hexadecimal.
//! Invariants: entries are sorted by path bytes; paths start with `/`; further names of an inode have only `path`, `ino` and
//! `link_of`; numbers are integers, never floating point.

use crate::error::{Error, Result, at};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

/// The version of the format. It is also raised when a recipe's filling or the reported fields change.
pub const VERSION: u32 = 2;

/// The first line of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub diorite_manifest: u32,
    /// The recipe's name.
    pub recipe: String,
    /// Bytes per block.
    pub block_size: u32,
    /// True if the maker was root and allowed to mount this image.
    pub root_used: bool,
    /// True if the kernel added its part of the filling.
    pub kernel_filled: bool,
    /// The judge: `kernel` or `debugfs`.
    pub truth: String,
    /// Why the judge was not the kernel.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A character device.
    Char,
    /// A block device.
    Block,
    /// A socket.
    Socket,
}

impl Kind {
    /// From the type bits of `st_mode` or `i_mode`.
    #[must_use]
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o100_000 => Self::File,
            0o040_000 => Self::Dir,
            0o120_000 => Self::Symlink,
            0o010_000 => Self::Fifo,
            0o020_000 => Self::Char,
            0o060_000 => Self::Block,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }
}

/// A time: seconds since 1970, and nanoseconds (0 or more).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time(pub i64, pub u32);

/// One xattr: the full name (`user.x`) and the value in hexadecimal. ACLs (`system.posix_acl_*`) have the format that `getxattr`
/// returns, not the one on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xattr(pub String, pub String);

/// Everything that the names of an inode share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The type.
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky: the low 12 bits of the mode.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes; for a symlink the length of its target.
    pub size: u64,
    /// Number of names.
    pub nlink: u64,
    /// Last change of contents.
    pub mtime: Time,
    /// Last read.
    pub atime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Birth time, if the inode has room for it and the judge reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crtime: Option<Time>,
    /// Major and minor number of a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdev: Option<(u32, u32)>,
    /// A symlink's target, percent-encoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Extended attributes, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub xattrs: Vec<Xattr>,
    /// The digest of a regular file's contents; see [`crate::digest::Digest`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<u32>,
    /// Ranges (offset, length) that SEEK_DATA reported; everything else reads as zeros. Only from the kernel, and not for files of
    /// more than [`MAX_RANGES`] ranges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Vec<(u64, u64)>>,
}

/// The longest list of data ranges that is recorded.
pub const MAX_RANGES: usize = 1000;

/// One path of the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The absolute path, percent-encoded.
    pub path: String,
    /// Inode number.
    pub ino: u64,
    /// The first path of the same inode, if that is another path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_of: Option<String>,
    /// The inode; only at its first path.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Facts>,
}

impl Entry {
    /// The path as it is on disk.
    #[must_use]
    pub fn path_bytes(&self) -> Vec<u8> {
        decode(&self.path)
    }
}

/// Header and entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The first line.
    pub header: Header,
    /// The others.
    pub entries: Vec<Entry>,
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// The file cannot be read or a line cannot be parsed.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(at(path))?;
        let wrong = |line: usize, why: String| Error::Manifest {
            path: path.to_path_buf(),
            line,
            why,
        };
        let mut lines = text.lines().enumerate();
        let (_, first) = lines.next().ok_or_else(|| wrong(1, "empty".into()))?;
        let header: Header = serde_json::from_str(first).map_err(|e| wrong(1, e.to_string()))?;
        if header.diorite_manifest != VERSION {
            return Err(wrong(
                1,
                format!("version {} instead of {VERSION}", header.diorite_manifest),
            ));
        }
        let entries = lines
            .map(|(n, line)| serde_json::from_str(line).map_err(|e| wrong(n + 1, e.to_string())))
            .collect::<Result<_>>()?;
        Ok(Self { header, entries })
    }

    /// Writes the manifest to a temporary file and renames that, so that a manifest is complete or absent.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn store(&self, path: &Path) -> Result<()> {
        let part = path.with_extension("part");
        let file = std::fs::File::create(&part).map_err(at(&part))?;
        let mut out = std::io::BufWriter::new(file);
        let json = |e: serde_json::Error| at::<std::io::Error>(&part)(e.into());
        serde_json::to_writer(&mut out, &self.header).map_err(json)?;
        for entry in &self.entries {
            out.write_all(b"\n").map_err(at(&part))?;
            serde_json::to_writer(&mut out, entry).map_err(json)?;
        }
        out.write_all(b"\n").map_err(at(&part))?;
        out.flush().map_err(at(&part))?;
        std::fs::rename(&part, path).map_err(at(path))
    }
}

/// Percent-encodes bytes.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'%' | 0..=0x1f | 0x7f.. => {
                write!(text, "%{byte:02x}").expect("a String takes everything");
            }
            _ => text.push(char::from(byte)),
        }
    }
    text
}

/// Reverses [`encode`]. A `%` without two hexadecimal digits after it stands for itself.
#[must_use]
pub fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let coded = if *first == b'%' { tail.get(..2) } else { None };
        let byte = coded.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            bytes.push(byte);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    bytes
}

/// Bytes in hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a String takes everything");
            text
        })
}

/// Reverses [`hex`]; `None` if the text is not hexadecimal.
#[must_use]
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive_encoding() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), all);
        assert_eq!(unhex(&hex(&all)), Some(all));
        assert_eq!(decode("%zz%"), b"%zz%");
    }
}
