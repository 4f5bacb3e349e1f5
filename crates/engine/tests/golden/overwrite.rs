//! Overwrites one block of one file with what it holds. Afterwards the image must be the same, byte for byte, except for the
//! superblock, the file's times and the journal.
//!
//! Input: an image and its manifest. Output: the differences. Invariants: the image is copied first, with its holes, to the same
//! directory, because images of 16 TiB do not fit every file system. Limits: the first file that may be overwritten.

use crate::common::run;
use diorite::{File, MappingState, OpenFlags, OpenOptions, Volume};
use diorite_block::Buf;
use diorite_crash::view::data_ranges;
use diorite_format::superblock::JournalPlace;
use diorite_format::{Ino, MapKind};
use rustix::fs::{SeekFrom, seek};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use xtask::manifest::{Entry, Kind};

/// See the module.
pub(crate) fn same_bytes(image: &Path, entries: &[Entry], dir: &Path, found: &mut Vec<String>) {
    let scratch = tempfile::tempdir_in(dir).unwrap();
    let copy = scratch.path().join("copy");
    let (from, to) = (image.to_str().unwrap(), copy.to_str().unwrap());
    run("cp", &["--sparse=always", from, to]);
    match overwrite(to, entries) {
        Err(what) => found.push(format!("overwriting: {what}")),
        Ok(changed) => {
            if let Err(what) = same(image, &copy, &changed) {
                found.push(format!("after overwriting with the same bytes: {what}"));
            }
        }
    }
    let fsck = xtask::run::tool("e2fsck")
        .args(["-fn", to])
        .output()
        .unwrap();
    if !fsck.status.success() {
        let said = String::from_utf8_lossy(&fsck.stdout).into_owned();
        found.push(format!("e2fsck after overwriting: {said}"));
    }
}

/// What an overwrite may change besides the data: byte ranges of the image.
type Changed = Vec<Range<u64>>;

/// Opens for writing, writes, syncs, closes.
fn overwrite(image: &str, entries: &[Entry]) -> Result<Changed, String> {
    let volume = Volume::open(image, &OpenOptions::writable()).map_err(|e| e.to_string())?;
    let (file, pos, len) = candidate(&volume, entries)?;
    let what = format!("inode {}, {len} bytes at {pos}", file.ino());
    let told = |e: diorite::Error| format!("{what}: {e}");
    let (buf, read) = file.read_buf(pos, Buf::zeroed(len));
    read.map_err(told)?;
    let before = buf.as_slice().to_vec();
    let (buf, written) = file.write_buf(pos, buf);
    let written = written.map_err(told)?;
    if written != len || buf.as_slice() != before {
        return Err(format!("{what}: {written} bytes were written"));
    }
    file.sync().map_err(told)?;
    if volume.counters().inline == 0 {
        return Err(format!("{what}: nothing completed inline"));
    }
    let changed = may_change(&volume, file.ino()).map_err(|e| e.to_string())?;
    drop(file);
    volume.close().map_err(|e| e.to_string())?;
    Ok(changed)
}

/// The superblock, the inode, the journal.
fn may_change(volume: &Volume, ino: Ino) -> Result<Changed, diorite::Error> {
    let sb = volume.superblock();
    let block = u64::from(sb.block_size());
    let place = sb.inode_place(ino)?;
    let table = volume.groups()[place.group.get() as usize].inode_table;
    let inode = (table.get() + u64::from(place.table_block)) * block + u64::from(place.offset);
    let mut changed = vec![
        1024..2048,
        inode..inode + u64::from(sb.geometry().inode_size()),
    ];
    if let JournalPlace::Internal(journal) = sb.journal() {
        let journal = volume.open_ino(journal, OpenFlags::default())?;
        for mapping in journal.mappings(0, journal.size())? {
            if let MappingState::Written(at) = mapping.state {
                changed.push(at.get() * block..(at.get() + mapping.len) * block);
            }
        }
    }
    Ok(changed)
}

/// A file that may be overwritten, and the position and length of a written block in it, cut at the end of the file.
fn candidate(volume: &Volume, entries: &[Entry]) -> Result<(File, u64, usize), String> {
    let block = u64::from(volume.superblock().block_size());
    let logical = u64::from(volume.device().geometry().logical);
    for entry in entries {
        let plain = entry.facts.as_ref().is_some_and(|facts| {
            facts.kind == Kind::File && facts.mode & 0o6000 == 0 && facts.xattrs.is_empty()
        });
        if !plain {
            continue;
        }
        let ino = Ino::new(u32::try_from(entry.ino).unwrap());
        let flags = OpenFlags::writable();
        let file = volume
            .open_ino(ino, flags)
            .map_err(|e| format!("{}: {e}", entry.path))?;
        if file.metadata().map_kind() == MapKind::Inline {
            continue;
        }
        let room = data_ranges(&file, block)?
            .into_iter()
            .map(|range| (range.start, (range.end - range.start).min(block)))
            .find(|(_, len)| *len >= logical);
        if let Some((pos, len)) = room {
            return Ok((file, pos, (len - len % logical) as usize));
        }
    }
    Err("no file has a block to overwrite".into())
}

/// Do two sparse files hold the same bytes?
fn same(one: &Path, other: &Path, changed: &Changed) -> Result<(), String> {
    let open = |path: &Path| std::fs::File::open(path).unwrap();
    let (one, other) = (open(one), open(other));
    let len = |file: &std::fs::File| file.metadata().unwrap().len();
    if len(&one) != len(&other) {
        return Err(format!("{} bytes became {}", len(&one), len(&other)));
    }
    contained(&one, &other, changed)?;
    contained(&other, &one, changed)
}

/// Does the second file hold the same bytes where the first has data? Its holes are compared by calling this the other way round.
fn contained(one: &std::fs::File, other: &std::fs::File, changed: &Changed) -> Result<(), String> {
    let (mut mine, mut yours, mut at) = (vec![0; 1 << 20], vec![0; 1 << 20], 0);
    // ENXIO: no data behind `at`.
    while let Ok(start) = seek(one, SeekFrom::Data(at)) {
        let end = seek(one, SeekFrom::Hole(start)).unwrap();
        let mut pos = start;
        while pos < end {
            let take = (end - pos).min(mine.len() as u64) as usize;
            one.read_exact_at(&mut mine[..take], pos).unwrap();
            other.read_exact_at(&mut yours[..take], pos).unwrap();
            let allowed = |at: u64| changed.iter().any(|range| range.contains(&at));
            let differs = |n: &usize| mine[*n] != yours[*n] && !allowed(pos + *n as u64);
            if mine[..take] != yours[..take]
                && let Some(first) = (0..take).find(differs)
            {
                return Err(format!("the image differs at byte {}", pos + first as u64));
            }
            pos += take as u64;
        }
        at = end;
    }
    Ok(())
}
