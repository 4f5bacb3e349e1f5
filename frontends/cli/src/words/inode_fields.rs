//! The fields of an inode as text and as JSON: shared by `ls` and `stat`.
//!
//! Input: checked inodes. Output: mode strings, type words, fields of JSON objects. Invariant: the names of the JSON fields do
//! not change, because scripts depend on them. Limits: users and groups are numbers; an image has no names for them.

use crate::words::names::json_name;
use diorite::xattr::Xattr;
use diorite_format::{FileType, Inode, Timestamp};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// `file`, `dir`, `symlink`, `fifo`, `char`, `block`, `socket`; `unknown` for reserved inodes without a type.
pub(crate) fn type_word(kind: Option<FileType>) -> &'static str {
    match kind {
        Some(FileType::Regular) => "file",
        Some(FileType::Directory) => "dir",
        Some(FileType::Symlink) => "symlink",
        Some(FileType::Fifo) => "fifo",
        Some(FileType::CharDevice) => "char",
        Some(FileType::BlockDevice) => "block",
        Some(FileType::Socket) => "socket",
        None => "unknown",
    }
}

/// `-rw-r--r--` and the like.
pub(crate) fn mode_string(kind: Option<FileType>, mode: u16) -> String {
    let letter = match kind {
        Some(FileType::Regular) => '-',
        Some(FileType::Directory) => 'd',
        Some(FileType::Symlink) => 'l',
        Some(FileType::Fifo) => 'p',
        Some(FileType::CharDevice) => 'c',
        Some(FileType::BlockDevice) => 'b',
        Some(FileType::Socket) => 's',
        None => '?',
    };
    let triple = |shift: u32, special: bool, small: char, large: char| {
        let bits = mode >> shift;
        let x = match (special, bits & 1 != 0) {
            (true, true) => small,
            (true, false) => large,
            (false, true) => 'x',
            (false, false) => '-',
        };
        [
            if bits & 4 != 0 { 'r' } else { '-' },
            if bits & 2 != 0 { 'w' } else { '-' },
            x,
        ]
    };
    let mut text = String::from(letter);
    text.extend(triple(6, mode & 0o4000 != 0, 's', 'S'));
    text.extend(triple(3, mode & 0o2000 != 0, 's', 'S'));
    text.extend(triple(0, mode & 0o1000 != 0, 't', 'T'));
    text
}

/// A time in JSON.
#[derive(Serialize)]
pub(crate) struct JsonTime {
    sec: i64,
    nsec: u32,
}

impl From<Timestamp> for JsonTime {
    fn from(time: Timestamp) -> JsonTime {
        JsonTime {
            sec: time.secs,
            nsec: time.nanos,
        }
    }
}

/// One file as `ls --json` and `stat --json` print it: `path` (or `name` and `dir`), `ino`, `type`, `mode` (number of the low
/// 12 bits), `perms` (text), `links`, `uid`, `gid`, `size`, `blocks` (of 512 bytes), `atime`, `mtime`, `ctime`, `crtime`
/// (`{"sec", "nsec"}`; crtime may be missing), `target` of a link, `major` and `minor` of a device. `stat` adds the fields of
/// [`More`]. A name that is not UTF-8 has a second field with the suffix `_hex`.
pub(crate) struct JsonFile<'a> {
    pub(crate) dir: Option<&'a [u8]>,
    /// The whole path, or the name in `dir`.
    pub(crate) name: &'a [u8],
    pub(crate) inode: &'a Inode,
    pub(crate) target: Option<&'a [u8]>,
    pub(crate) more: Option<More<'a>>,
}

/// The fields that `stat --json` adds: `block_size`, `flags` (number), `flags_text` (letters of lsattr), `generation`,
/// `version`, `projid`, `extents`, `extents_counted_all` (false if there are more), `xattrs` (`[{"name", "value_hex"}]`).
pub(crate) struct More<'a> {
    pub(crate) block_size: u32,
    pub(crate) extents: u64,
    pub(crate) counted_all: bool,
    pub(crate) xattrs: &'a [Xattr],
}

impl Serialize for JsonFile<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.dir {
            Some(dir) => {
                json_name(&mut map, "dir", dir)?;
                json_name(&mut map, "name", self.name)?;
            }
            None => json_name(&mut map, "path", self.name)?,
        }
        inode_fields(&mut map, self.inode)?;
        if let Some(target) = self.target {
            json_name(&mut map, "target", target)?;
        }
        if let Some(more) = &self.more {
            more_fields(&mut map, self.inode, more)?;
        }
        map.end()
    }
}

fn inode_fields<M: SerializeMap>(map: &mut M, inode: &Inode) -> Result<(), M::Error> {
    map.serialize_entry("ino", &inode.ino.get())?;
    map.serialize_entry("type", type_word(inode.file_type))?;
    map.serialize_entry("mode", &(inode.mode & 0o7777))?;
    map.serialize_entry("perms", &mode_string(inode.file_type, inode.mode))?;
    map.serialize_entry("links", &inode.links)?;
    map.serialize_entry("uid", &inode.uid)?;
    map.serialize_entry("gid", &inode.gid)?;
    map.serialize_entry("size", &inode.size)?;
    map.serialize_entry("blocks", &inode.blocks)?;
    for (key, time) in [
        ("atime", inode.atime),
        ("mtime", inode.mtime),
        ("ctime", inode.ctime),
    ] {
        map.serialize_entry(key, &JsonTime::from(time))?;
    }
    if let Some(time) = inode.crtime {
        map.serialize_entry("crtime", &JsonTime::from(time))?;
    }
    if let Some(rdev) = inode.rdev() {
        map.serialize_entry("major", &rdev.major)?;
        map.serialize_entry("minor", &rdev.minor)?;
    }
    Ok(())
}

fn more_fields<M: SerializeMap>(
    map: &mut M,
    inode: &Inode,
    more: &More<'_>,
) -> Result<(), M::Error> {
    map.serialize_entry("block_size", &more.block_size)?;
    map.serialize_entry("flags", &inode.flags.bits())?;
    map.serialize_entry("flags_text", &inode.flags.letters())?;
    map.serialize_entry("generation", &inode.generation)?;
    map.serialize_entry("version", &inode.version)?;
    map.serialize_entry("projid", &inode.projid)?;
    map.serialize_entry("extents", &more.extents)?;
    map.serialize_entry("extents_counted_all", &more.counted_all)?;
    let xattrs: Vec<JsonXattr<'_>> = more.xattrs.iter().map(JsonXattr).collect();
    map.serialize_entry("xattrs", &xattrs)
}

pub(crate) struct JsonXattr<'a>(pub(crate) &'a Xattr);

impl Serialize for JsonXattr<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        json_name(&mut map, "name", &self.0.name)?;
        map.serialize_entry("value_hex", &crate::words::names::hex(&self.0.value))?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_as_ls_writes_them() {
        let file = Some(FileType::Regular);
        assert_eq!(mode_string(file, 0o100_644), "-rw-r--r--");
        assert_eq!(mode_string(file, 0o104_755), "-rwsr-xr-x");
        assert_eq!(mode_string(file, 0o106_640), "-rwSr-S---");
        assert_eq!(
            mode_string(Some(FileType::Directory), 0o41_777),
            "drwxrwxrwt"
        );
        assert_eq!(
            mode_string(Some(FileType::Directory), 0o41_770),
            "drwxrwx--T"
        );
        assert_eq!(mode_string(None, 0), "?---------");
    }
}
