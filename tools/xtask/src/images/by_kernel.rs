//! What it is: the kernel as the judge of what an image holds.
//! Input: the root of a mount. Output: manifest entries.
//! Invariant: symlinks are not followed, so only the mount is read; entries are sorted by the bytes of their paths.

use crate::digest::Digest;
use crate::error::{Result, at};
use crate::manifest::{Entry, Facts, Kind, MAX_RANGES, Time, Xattr, encode, hex};
use rustix::fs::SeekFrom;
use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// All entries of the mount.
pub(super) fn walk(root: &Path) -> Result<Vec<Entry>> {
    let mut paths = vec![(b"/".to_vec(), root.to_path_buf())];
    let mut dirs = vec![(Vec::new(), root.to_path_buf())];
    while let Some((name, dir)) = dirs.pop() {
        for item in fs::read_dir(&dir).map_err(at(&dir))? {
            let item = item.map_err(at(&dir))?;
            let path = [&name[..], b"/", item.file_name().as_bytes()].concat();
            if item.file_type().map_err(at(&dir))?.is_dir() {
                dirs.push((path.clone(), item.path()));
            }
            paths.push((path, item.path()));
        }
    }
    paths.sort();
    let mut first: HashMap<u64, String> = HashMap::new();
    let mut entries = Vec::with_capacity(paths.len());
    for (name, path) in paths {
        let meta = fs::symlink_metadata(&path).map_err(at(&path))?;
        let (name, ino) = (encode(&name), meta.ino());
        let link_of = first.get(&ino).cloned();
        let facts = if link_of.is_some() {
            None
        } else {
            Some(facts(&path, &meta).map_err(at(&path))?)
        };
        first.entry(ino).or_insert_with(|| name.clone());
        entries.push(Entry {
            path: name,
            ino,
            link_of,
            facts,
        });
    }
    Ok(entries)
}

fn facts(path: &Path, meta: &Metadata) -> io::Result<Facts> {
    let kind = Kind::from_mode(meta.mode()).ok_or(io::ErrorKind::InvalidData)?;
    let (digest, data) = if kind == Kind::File {
        contents(path, meta.size())?
    } else {
        (None, None)
    };
    let target = if kind == Kind::Symlink {
        Some(encode(fs::read_link(path)?.as_os_str().as_bytes()))
    } else {
        None
    };
    let rdev = matches!(kind, Kind::Char | Kind::Block).then(|| {
        (
            rustix::fs::major(meta.rdev()),
            rustix::fs::minor(meta.rdev()),
        )
    });
    Ok(Facts {
        kind,
        mode: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
        size: meta.size(),
        nlink: meta.nlink(),
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        atime: time(meta.atime(), meta.atime_nsec()),
        ctime: time(meta.ctime(), meta.ctime_nsec()),
        crtime: birth(meta),
        rdev,
        target,
        xattrs: xattrs(path)?,
        digest,
        data,
    })
}

fn time(seconds: i64, nanos: i64) -> Time {
    Time(
        seconds,
        u32::try_from(nanos).expect("the kernel keeps nanoseconds below 10^9"),
    )
}

/// Images made here have birth times after 1970, so the difference is never negative.
fn birth(meta: &Metadata) -> Option<Time> {
    let since = meta.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Time(
        i64::try_from(since.as_secs()).ok()?,
        since.subsec_nanos(),
    ))
}

type Contents = (Option<u32>, Option<Vec<(u64, u64)>>);

/// Reads the ranges that SEEK_DATA reports; everything else is zeros. All ranges are determined before any byte is read, because
/// the kernel reports unwritten space as data once readahead has brought it into the page cache.
fn contents(path: &Path, size: u64) -> io::Result<Contents> {
    let file = File::open(path)?;
    let mut ranges = Vec::new();
    let mut end = 0;
    while let Some(start) = seek(&file, SeekFrom::Data(end))? {
        end = seek(&file, SeekFrom::Hole(start))?.unwrap_or(size);
        ranges.push((start, end - start));
    }
    let mut digest = Digest::new();
    for &(start, length) in &ranges {
        read(&file, start, start + length, &mut digest)?;
    }
    let data = (ranges.len() <= MAX_RANGES).then_some(ranges);
    Ok((Some(digest.finish()), data))
}

/// `None` if there is no further data or hole before the end.
fn seek(file: &File, to: SeekFrom) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, to) {
        Err(rustix::io::Errno::NXIO) => Ok(None),
        other => other.map(Some).map_err(Into::into),
    }
}

fn read(file: &File, mut from: u64, to: u64, digest: &mut Digest) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    while from < to {
        let want = usize::try_from(to - from)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        file.read_exact_at(&mut buffer[..want], from)?;
        digest.write(from, &buffer[..want]);
        from += want as u64;
    }
    Ok(())
}

fn xattrs(path: &Path) -> io::Result<Vec<Xattr>> {
    let mut names = vec![0u8; 1 << 16];
    let length = rustix::fs::llistxattr(path, &mut names)?;
    let mut value = vec![0u8; 1 << 16];
    let mut xattrs = Vec::new();
    for name in names[..length]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
    {
        let length = rustix::fs::lgetxattr(path, name, &mut value)?;
        xattrs.push(Xattr(
            String::from_utf8_lossy(name).into_owned(),
            hex(&value[..length]),
        ));
    }
    xattrs.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(xattrs)
}
