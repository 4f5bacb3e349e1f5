//! Checks an undo file, and restores its device from it.
//!
//! Input: an undo file of diorite or of e2fsprogs; a device that nobody else uses. Output: the device with its old contents. Invariants:
//! all is judged before the first write; the superblock is written last, after the rest is durable and the device has its old length, so a
//! device on which this was interrupted still fits the undo file. Limits: pieces of at most [`MOST`] bytes; what is left of a key behind
//! the device's end must be zeros.

use super::form::{HEADER, Header, Key, Sizes, parse_keys};
use super::{SUPER, bad, failed, host, invert_magic, super_copy, super_crc};
use crate::error::Error;
use diorite_block::{Bio, Blocking, Buf, Device};
use diorite_format::csum::crc32c;
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of the longest piece. Those of e2fsprogs are a little longer than 1 MiB.
const MOST: u32 = 64 << 20;
/// A piece is checked and written in parts of so many bytes.
const PART: usize = 1 << 20;
/// Bytes that a power cut does not divide.
const SECTOR: usize = 512;

/// A piece of the device, and where the undo file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its first byte on the device.
    pub pos: u64,
    /// Bytes.
    pub len: u32,
    /// Its first byte in the undo file.
    pub at: u64,
    crc: u32,
}

/// What was put back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Pieces.
    pub pieces: u64,
    /// Bytes.
    pub bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub struct UndoFile {
    path: PathBuf,
    file: File,
    header: Header,
    header_is_right: bool,
    copy: [u8; SUPER],
    /// In the order of the device.
    pieces: Vec<Piece>,
    doubts: Vec<String>,
    /// Keys as they lie in the file, in blocks; and where the next block or piece would be.
    pub(super) last_keys: (u64, Vec<Key>),
    pub(super) end: u64,
}

impl UndoFile {
    /// Reads an undo file, but for the contents of its pieces. Blocks.
    ///
    /// # Errors
    /// It cannot be read, is no regular file, or its structure is impossible.
    pub fn open(path: &Path) -> Result<UndoFile, Error> {
        UndoFile::of(regular(path, false)?, path)
    }

    pub(super) fn of(file: File, path: &Path) -> Result<UndoFile, Error> {
        let cannot = |error: io::Error| host(path, "read", &error);
        let len = file.metadata().map_err(cannot)?.len();
        let mut raw = [0; HEADER];
        match file.read_exact_at(&mut raw, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(bad(path, "it is no undo file: it is too short"));
            }
            read => read.map_err(cannot)?,
        }
        let (header, header_is_right) = Header::parse(&raw).map_err(|what| bad(path, what))?;
        let mut read = UndoFile {
            path: path.to_owned(),
            file,
            header,
            header_is_right,
            copy: [0; SUPER],
            pieces: Vec::new(),
            doubts: Vec::new(),
            last_keys: (0, Vec::new()),
            end: 0,
        };
        if !header_is_right {
            read.doubts.push("its header has a wrong checksum".into());
        }
        if read.header.unknown != 0 {
            read.doubts.push("it has unknown features".into());
        }
        if !read.header.finished {
            let what = "it is not finished: who wrote it was interrupted";
            read.doubts.push(what.into());
        }
        let copy_at = read.place(read.header.super_block, SUPER as u64, len)?;
        let copy = read.file.read_exact_at(&mut read.copy, copy_at);
        copy.map_err(cannot)?;
        if super_crc(&read.copy) != read.header.super_crc {
            let what = "its copy of the superblock has a wrong checksum";
            read.doubts.push(what.into());
        }
        read.read_keys(len)?;
        Ok(read)
    }

    /// Where a block of the undo file is, if so many bytes from there are inside it.
    fn place(&self, block: u64, bytes: u64, len: u64) -> Result<u64, Error> {
        let at = block.checked_mul(u64::from(self.header.block_size));
        let end = at.and_then(|at| at.checked_add(bytes));
        match at.filter(|_| end.is_some_and(|end| end <= len)) {
            Some(at) => Ok(at),
            None => Err(bad(
                &self.path,
                format_args!("it ends at byte {len}, before what it says it has"),
            )),
        }
    }

    fn read_keys(&mut self, len: u64) -> Result<(), Error> {
        let size = u64::from(self.header.block_size);
        // Each piece has a block at least.
        if self.header.keys > len / size {
            let what = format!(
                "{} pieces cannot be in {len} bytes: it was cut",
                self.header.keys
            );
            return Err(bad(&self.path, what));
        }
        let (mut left, mut block) = (self.header.keys, self.header.key_block);
        let mut raw = vec![0; self.header.block_size as usize];
        self.end = self.place(block, 0, u64::MAX)?;
        while left > 0 {
            let at = self.place(block, size, len)?;
            let read = self.file.read_exact_at(&mut raw, at);
            read.map_err(|error| host(&self.path, "read", &error))?;
            let count = (self.header.keys_per_block() as u64).min(left);
            let keys = parse_keys(&raw, usize::try_from(count).unwrap_or(0));
            let Some((keys, is_right)) = keys else {
                return Err(bad(
                    &self.path,
                    format_args!("block {block} is no block of keys"),
                ));
            };
            if !is_right {
                let what = format!("the keys in block {block} have a wrong checksum");
                self.doubts.push(what);
            }
            left -= count;
            let mut next = at + size;
            for key in &keys {
                next = self.take(key, next, len)?;
            }
            self.last_keys = (at, keys);
            self.end = next;
            block = next / size;
        }
        self.pieces.sort_unstable_by_key(|piece| piece.pos);
        if let Some(Sizes { before, .. }) = self.header.sizes {
            let unit = u64::from(self.header.fs_block_size);
            let end = before.checked_next_multiple_of(unit);
            if end.is_none_or(|end| end < self.pieces_end()) {
                let what = format!(
                    "it says that the device had {before} bytes, and has pieces behind these"
                );
                self.doubts.push(what);
                self.header.sizes = None;
            }
        }
        let overlap = |two: &[Piece]| two[0].pos + u64::from(two[0].len) > two[1].pos;
        if let Some(two) = self.pieces.windows(2).find(|two| overlap(two)) {
            let what = format!("two pieces overlap at byte {} of the device", two[1].pos);
            return Err(bad(&self.path, what));
        }
        Ok(())
    }

    /// Takes the piece of a key, which is at `at`. Returns where the next one is.
    fn take(&mut self, key: &Key, at: u64, len: u64) -> Result<u64, Error> {
        let unit = u64::from(self.header.fs_block_size);
        let pos = key.block.checked_mul(unit);
        let end = pos.and_then(|pos| pos.checked_add(u64::from(key.len)));
        let possible = key.len > 0 && key.len <= MOST && u64::from(key.len).is_multiple_of(512);
        let (Some(pos), true) = (pos.filter(|_| end.is_some()), possible) else {
            let what = format!("a piece of {} bytes at block {}", key.len, key.block);
            return Err(bad(&self.path, format_args!("{what} cannot be")));
        };
        if at
            .checked_add(u64::from(key.len))
            .is_none_or(|end| end > len)
        {
            let what = format!("it was cut: what block {} had is not in it", key.block);
            return Err(bad(&self.path, what));
        }
        self.pieces.push(Piece {
            pos,
            len: key.len,
            at,
            crc: key.crc,
        });
        Ok(at + self.header.padded(key.len))
    }

    /// The pieces, in the order of the device.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Where in its file or disk the device begins, if the undo file says it.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.header.offset
    }

    /// How many bytes the device had before the first change and after the last, if the undo file says it, under a right checksum.
    #[must_use]
    pub fn sizes(&self) -> Option<(u64, u64)> {
        self.known_sizes().map(|sizes| (sizes.before, sizes.after))
    }

    fn known_sizes(&self) -> Option<Sizes> {
        self.header.sizes.filter(|_| self.header_is_right)
    }

    /// The length that a device of `now` bytes gets again: none, if it has that, or has a length that no change gave it.
    #[must_use]
    pub fn old_length(&self, now: u64) -> Option<u64> {
        let sizes = self.known_sizes()?;
        let is_ours = now == sizes.after || (sizes.from != 0 && now == sizes.from);
        (is_ours && now != sizes.before).then_some(sizes.before)
    }

    /// Where the last piece ends.
    fn pieces_end(&self) -> u64 {
        let last = self.pieces.last();
        last.map_or(0, |piece| piece.pos + u64::from(piece.len))
    }

    /// Its header, one line for each field.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let header = &self.header;
        let mut lines = vec![
            format!("pieces: {}", header.keys),
            format!("superblock: block {}", header.super_block),
            format!("first keys: block {}", header.key_block),
            format!("block size: {}", header.block_size),
            format!("block size of the device: {}", header.fs_block_size),
            format!("finished: {}", if header.finished { "yes" } else { "no" }),
        ];
        if let Some(offset) = header.offset {
            lines.push(format!("offset: {offset}"));
        }
        if let Some(sizes) = header.sizes {
            let (before, after) = (sizes.before, sizes.after);
            lines.push(format!(
                "size of the device: {before} before, {after} after"
            ));
        }
        let crc = if self.header_is_right {
            "right"
        } else {
            "wrong"
        };
        lines.push(format!("checksum: {crc}"));
        lines
    }

    /// What speaks against it, without a look at a device.
    pub(super) fn doubts(&self) -> &[String] {
        &self.doubts
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// Whether the device is as the writer of the undo file left it. Blocks.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn fits(&self, device: &Blocking) -> Result<bool, Error> {
        Ok(super_copy(device)? == self.copy)
    }

    /// The superblock that it puts back, as in a copy. None: it leaves that alone.
    pub(super) fn old_super(&self) -> Result<Option<[u8; SUPER]>, Error> {
        let start = SUPER as u64;
        let has_it = |p: &&Piece| p.pos <= start && p.pos + u64::from(p.len) >= 2 * start;
        let Some(piece) = self.pieces.iter().find(has_it) else {
            return Ok(None);
        };
        let mut copy = [0; SUPER];
        let read = self
            .file
            .read_exact_at(&mut copy, piece.at + start - piece.pos);
        read.map_err(|error| host(&self.path, "read", &error))?;
        invert_magic(&mut copy);
        Ok(Some(copy))
    }

    /// Whether a power cut has torn the last write of [`UndoFile::restore`]: each sector of the superblock is new or old.
    fn is_half_restored(&self, device: &Blocking) -> Result<bool, Error> {
        let Some(old) = self.old_super()? else {
            return Ok(false);
        };
        let now = super_copy(device)?;
        let sectors = now
            .chunks(SECTOR)
            .zip(old.chunks(SECTOR).zip(self.copy.chunks(SECTOR)));
        let is_mixed = sectors
            .clone()
            .all(|(now, (old, new))| now == old || now == new);
        Ok(is_mixed && now != old)
    }

    /// Why it should not be put back on this device of `size` bytes: nothing, if it should. Reads all of it. Blocks.
    ///
    /// # Errors
    /// The device, or the undo file, cannot be read; a piece is not what was kept, or lies behind the end of the device.
    pub fn judge(&self, device: &Arc<dyn Device>, size: u64) -> Result<Vec<String>, Error> {
        let mut doubts = self.doubts.clone();
        let blocking = Blocking::new(device.clone());
        if !self.fits(&blocking)? && !self.is_half_restored(&blocking)? {
            let what = "the device has another superblock than after that change: it is another one, or was changed since";
            doubts.push(what.into());
        }
        let sector = u64::from(device.geometry().logical);
        for piece in &self.pieces {
            self.placed(piece, size, sector)?;
            let crc = self.read(piece, |at, part| {
                let inside = size.saturating_sub(at).min(part.len() as u64);
                let behind = &part[usize::try_from(inside).unwrap_or(part.len())..];
                match behind.iter().all(|byte| *byte == 0) {
                    true => Ok(()),
                    false => Err(bad(
                        &self.path,
                        format_args!("the device ends at byte {size}, before a piece at {at}"),
                    )),
                }
            })?;
            if crc != piece.crc {
                let what = format!(
                    "the piece for byte {} of the device has a wrong checksum",
                    piece.pos
                );
                return Err(bad(&self.path, what));
            }
        }
        Ok(doubts)
    }

    /// Whether a device of `size` bytes has a place for a piece.
    pub(super) fn placed(&self, piece: &Piece, size: u64, sector: u64) -> Result<(), Error> {
        let Piece { pos, len, .. } = *piece;
        if pos >= size {
            let what = format!("the device ends at byte {size}, before a piece at {pos}");
            return Err(bad(&self.path, what));
        }
        let end = pos + u64::from(len);
        if !pos.is_multiple_of(sector) || (end < size && !end.is_multiple_of(sector)) {
            let what = format!(
                "its piece of {len} bytes at {pos} is no whole number of the device's sectors of {sector} bytes; nothing was changed: \
                 add ?sector=512 to the name of the image"
            );
            return Err(bad(&self.path, what));
        }
        Ok(())
    }

    /// Reads a piece in parts, each with its place on the device. Returns its checksum.
    fn read(
        &self,
        piece: &Piece,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), Error>,
    ) -> Result<u32, Error> {
        let (mut crc, mut done) = (!0, 0);
        let mut part = vec![0; PART.min(piece.len as usize)];
        while done < piece.len as usize {
            let len = part.len().min(piece.len as usize - done);
            let read = self
                .file
                .read_exact_at(&mut part[..len], piece.at + done as u64);
            read.map_err(|error| host(&self.path, "read", &error))?;
            crc = crc32c(crc, &part[..len]);
            each(piece.pos + done as u64, &part[..len])?;
            done += len;
        }
        Ok(crc)
    }

    /// Puts all pieces back, and is told of each; before the superblock comes back, all else is durable, and `cut` gives the device its old
    /// length if it is too long. To be judged before. Blocks.
    ///
    /// # Errors
    /// The device fails, or `cut` does, or the undo file cannot be read: the same call may be repeated.
    pub fn restore<E: From<Error>>(
        &self,
        device: &Arc<dyn Device>,
        mut each: impl FnMut(&Piece),
        cut: impl FnOnce() -> Result<(), E>,
    ) -> Result<Restored, E> {
        let blocking = Blocking::new(device.clone());
        // Behind the old end nothing was overwritten: what is there now is somebody else's.
        let old_end = self.sizes().map_or(u64::MAX, |(before, _)| before);
        let sector = u64::from(device.geometry().logical).max(SECTOR as u64);
        let super_at = SUPER as u64 / sector * sector;
        let last = super_at..(2 * SUPER as u64).next_multiple_of(sector);
        let mut done = Restored::default();
        for piece in &self.pieces {
            each(piece);
            self.read(piece, |at, part| {
                let around = outside(at..at + part.len() as u64, &last);
                let mut parts = around.into_iter().filter(|range| !range.is_empty());
                parts.try_for_each(|range| put(&blocking, (range, old_end), (at, part)))
            })?;
            done.pieces += 1;
            done.bytes += u64::from(piece.len);
        }
        let flush = || {
            let flushed = blocking.flush();
            flushed.map_err(|error| unwritable(&blocking, "be flushed", &error))
        };
        flush()?;
        cut()?;
        for piece in &self.pieces {
            if piece.pos >= last.end || piece.pos + u64::from(piece.len) <= last.start {
                continue;
            }
            self.read(piece, |at, part| {
                let end = (at + part.len() as u64).min(last.end);
                let range = at.max(last.start)..end;
                match range.is_empty() {
                    true => Ok(()),
                    false => put(&blocking, (range, old_end), (at, part)),
                }
            })?;
        }
        flush()?;
        Ok(done)
    }
}

/// The two parts of a range before and behind another; they may be empty.
fn outside(all: Range<u64>, without: &Range<u64>) -> [Range<u64>; 2] {
    let before = all.start..all.end.min(without.start);
    [before, all.start.max(without.end)..all.end]
}

/// Writes a range of the bytes at `at`.
fn put(
    device: &Blocking,
    (range, old_end): (Range<u64>, u64),
    (at, bytes): (u64, &[u8]),
) -> Result<(), Error> {
    let inside = |pos: u64| usize::try_from(pos - at).unwrap_or(bytes.len());
    let part = &bytes[inside(range.start)..inside(range.end)];
    write(device, (range.start, old_end), part)
}

/// Writes what of these bytes is inside the device, and before its old end.
fn write(device: &Blocking, (at, old_end): (u64, u64), bytes: &[u8]) -> Result<(), Error> {
    let geometry = device.device().geometry();
    let sector = geometry.logical as usize;
    let len = geometry.size.min(old_end).saturating_sub(at);
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(bytes.len());
    if len == 0 {
        return Ok(());
    }
    let whole = len.next_multiple_of(sector);
    let mut buf = Buf::zeroed(whole);
    if whole > len {
        // The rest of the last sector stays as it is.
        let last = at + (whole - sector) as u64;
        let rest = device.read(last, Buf::zeroed(sector));
        let rest =
            rest.map_err(|error| unwritable(device, &format!("be read at {last}"), &error))?;
        buf.copy_in(whole - sector, rest.as_slice());
    }
    buf.copy_in(0, &bytes[..len]);
    let written = device.run(Bio::write(at, buf, 0)).result;
    written.map_err(|error| unwritable(device, &format!("be written at {at}"), &error))
}

fn unwritable(device: &Blocking, what: &str, error: &dyn std::fmt::Display) -> Error {
    failed(format!(
        "{} cannot {what}: {error}; repeat the command",
        device.device().name()
    ))
}

/// Opens an undo file that is there. A FIFO or device is refused without waiting for it, also one that is put there meanwhile.
pub(super) fn regular(path: &Path, write: bool) -> Result<File, Error> {
    let cannot = |error: io::Error| host(path, "opened", &error);
    let meta = std::fs::metadata(path).map_err(cannot)?;
    if !meta.is_file() {
        return Err(bad(path, "it is no regular file"));
    }
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(write);
    opened(path, &mut options, "opened")
}

/// Opens what is at a path without waiting for it. It is a regular file.
pub(super) fn opened(
    path: &Path,
    options: &mut std::fs::OpenOptions,
    what: &str,
) -> Result<File, Error> {
    let cannot = |error: io::Error| host(path, what, &error);
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    options.custom_flags(flags.bits().cast_signed());
    let file = options.open(path).map_err(cannot)?;
    match file.metadata().map_err(cannot)?.is_file() {
        true => Ok(file),
        false => Err(bad(path, "it is no regular file")),
    }
}
