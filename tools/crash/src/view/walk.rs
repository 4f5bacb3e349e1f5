//! Reads the whole tree of an image, in the form of a manifest.
//!
//! Input: a volume. Output: entries sorted by path, in the form of xtask's judges, and the errors found on the way. Invariant: no
//! entry is left out; a failed call is reported with its path. Limits: paths are held in memory.

use super::read::Reader;
use diorite::{File, OpenFlags, Volume};
use diorite_format::{FileType, Ino, Timestamp};
use std::collections::HashMap;
use xtask::manifest::{Entry, Facts, Kind, MAX_RANGES, Time, Xattr, encode, hex};

/// All entries from the root on.
pub fn walk(volume: &Volume, found: &mut Vec<String>) -> Vec<Entry> {
    let mut names = names(volume, found);
    names.sort_by(|a, b| a.0.cmp(&b.0));
    let mut reader = Reader::new(volume);
    let mut first: HashMap<Ino, String> = HashMap::new();
    let mut entries = Vec::with_capacity(names.len());
    for (name, ino, stored) in names {
        let path = encode(&name);
        let link_of = first.get(&ino).cloned();
        let facts = if link_of.is_some() {
            None
        } else {
            facts(volume, ino, &mut reader, found, &path)
        };
        if let (Some(facts), Some(stored)) = (&facts, stored)
            && facts.kind != kind(stored)
        {
            found.push(format!(
                "{path}: the directory calls it {stored:?}, its inode {:?}",
                facts.kind
            ));
        }
        first.entry(ino).or_insert_with(|| path.clone());
        entries.push(Entry {
            path,
            ino: u64::from(ino.get()),
            link_of,
            facts,
        });
    }
    entries
}

type Name = (Vec<u8>, Ino, Option<FileType>);

/// All paths. Each directory must have correct entries for itself and its parent.
fn names(volume: &Volume, found: &mut Vec<String>) -> Vec<Name> {
    let mut names = vec![(b"/".to_vec(), Ino::ROOT, None)];
    let mut dirs = vec![(Vec::new(), Ino::ROOT, Ino::ROOT)];
    while let Some((path, ino, parent)) = dirs.pop() {
        let entries = match volume.read_dir(ino) {
            Ok(entries) => entries,
            Err(error) => {
                found.push(format!("{}: {error}", encode(&path)));
                continue;
            }
        };
        let (mut own, mut up) = (None, None);
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    found.push(format!("{}: {error}", encode(&path)));
                    continue;
                }
            };
            match &entry.name[..] {
                b"." => own = Some(entry.ino),
                b".." => up = Some(entry.ino),
                name => {
                    let path = [&path[..], b"/", name].concat();
                    if is_dir(volume, entry.ino, entry.file_type) {
                        dirs.push((path.clone(), entry.ino, ino));
                    }
                    names.push((path, entry.ino, entry.file_type));
                }
            }
        }
        if (own, up) != (Some(ino), Some(parent)) {
            found.push(format!(
                "{}: \".\" is {own:?} and \"..\" {up:?}, not {ino} and {parent}",
                encode(&path)
            ));
        }
    }
    names
}

/// Whether it is a directory: by the directory entry's type, or by the inode if the entry has none.
fn is_dir(volume: &Volume, ino: Ino, stored: Option<FileType>) -> bool {
    stored.map_or_else(
        || {
            let file = volume.open_ino(ino, OpenFlags::default());
            file.is_ok_and(|file| file.metadata().is_dir())
        },
        |stored| stored == FileType::Directory,
    )
}

fn kind(of: FileType) -> Kind {
    match of {
        FileType::Fifo => Kind::Fifo,
        FileType::CharDevice => Kind::Char,
        FileType::Directory => Kind::Dir,
        FileType::BlockDevice => Kind::Block,
        FileType::Regular => Kind::File,
        FileType::Symlink => Kind::Symlink,
        FileType::Socket => Kind::Socket,
    }
}

fn time(of: Timestamp) -> Time {
    Time(of.secs, of.nanos)
}

fn facts(
    volume: &Volume,
    ino: Ino,
    reader: &mut Reader<'_>,
    found: &mut Vec<String>,
    path: &str,
) -> Option<Facts> {
    let mut told = |error: &dyn std::fmt::Display| found.push(format!("{path}: {error}"));
    let file = volume
        .open_ino(ino, OpenFlags::default())
        .map_err(|error| told(&error))
        .ok()?;
    let disk = file.metadata();
    let Some(kind) = disk.file_type.map(kind) else {
        told(&"its inode has no type");
        return None;
    };
    let target = (kind == Kind::Symlink).then(|| {
        let target = volume.read_link(ino).map_err(|error| told(&error));
        encode(&target.unwrap_or_default())
    });
    let xattrs = xattrs(volume, ino, &mut told);
    let (digest, data) = if kind == Kind::File {
        contents(&file, reader, &mut told)
    } else {
        (None, None)
    };
    Some(Facts {
        kind,
        mode: u32::from(disk.mode & 0o7777),
        uid: disk.uid,
        gid: disk.gid,
        size: file.size(),
        nlink: u64::from(disk.links),
        mtime: time(disk.mtime),
        atime: time(disk.atime),
        ctime: time(disk.ctime),
        crtime: disk.crtime.map(time),
        rdev: disk.rdev().map(|rdev| (rdev.major, rdev.minor)),
        target,
        xattrs,
        digest,
        data,
    })
}

/// Sorted by name, as in the manifest.
fn xattrs(volume: &Volume, ino: Ino, told: &mut dyn FnMut(&dyn std::fmt::Display)) -> Vec<Xattr> {
    let all = volume.xattrs(ino).map_err(|error| told(&error));
    let mut all: Vec<Xattr> = all
        .unwrap_or_default()
        .into_iter()
        .map(|x| Xattr(String::from_utf8_lossy(&x.name).into_owned(), hex(&x.value)))
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

type Contents = (Option<u32>, Option<Vec<(u64, u64)>>);

fn contents(
    file: &File,
    reader: &mut Reader<'_>,
    told: &mut dyn FnMut(&dyn std::fmt::Display),
) -> Contents {
    match reader.contents(file) {
        Ok((digest, ranges)) => (Some(digest), (ranges.len() <= MAX_RANGES).then_some(ranges)),
        Err(error) => {
            told(&error);
            (None, None)
        }
    }
}
