//! `diorite extents`: prints where the data of a file is on the volume, in the columns of `filefrag -v`.
//!
//! Input: an image and paths. Output: a table per file, or JSON lines with `path`, `index`, `start`, `physical`, `length` (in
//! blocks), `block_size`, `state` (`written`, `unwritten`, `inline`) and `last`. Invariant: the map is read in windows and
//! never held completely. Limits: inline data is one extent, in bytes.

use crate::args::{ExtentsArgs, Global};
use crate::images::image::{self, bytes};
use crate::output::Out;
use crate::output::report::{Reason, Report};
use crate::walking::extents::{Extent, Extents};
use crate::words::names::json_name;
use diorite::{Error, File, Volume};
use diorite_format::MapKind;
use serde::ser::{SerializeMap, Serializer};
use std::process::ExitCode;

/// The offset of inline data (`i_block`) in an inode, in bytes.
const INLINE_OFFSET: u64 = 40;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &ExtentsArgs) -> ExitCode {
    let mut report = Report::new("extents", &args.img);
    let Some(volume) = image::open(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    let mut out = Out::new();
    for path in args.paths.iter().map(|p| bytes(p)) {
        let printed = image::find(&volume, path, true)
            .map_err(Reason::from)
            .and_then(|file| one(&volume, &file, path, args.json, &mut out));
        if let Err(reason) = printed {
            out.flush();
            report.file(path, reason);
        }
    }
    out.finish();
    report.exit_code()
}

fn one(volume: &Volume, file: &File, path: &[u8], json: bool, out: &mut Out) -> Result<(), Reason> {
    let kind = file.metadata().map_kind();
    if matches!(kind, MapKind::Device | MapKind::None | MapKind::FastSymlink) {
        return Err(Reason::new(
            "it has no blocks: it is a device, a pipe, a socket or a short link",
        ));
    }
    let mut rows = Rows {
        path,
        block_size: volume.superblock().block_size(),
        size: file.size(),
        merged: kind == MapKind::Indirect,
        json,
        printed: 0,
        expected: 0,
        pieces: 0,
    };
    rows.head(out);
    if kind == MapKind::Inline {
        rows.inline(volume, file, out)?;
    } else {
        rows.all(file, out)?;
    }
    rows.foot(out);
    Ok(())
}

/// The table of one file.
struct Rows<'a> {
    path: &'a [u8],
    block_size: u32,
    size: u64,
    /// Files with block pointers get the flag "merged", as FIEMAP reports them.
    merged: bool,
    json: bool,
    printed: u64,
    /// The physical minus the logical block of the last extent, modulo 2^64, since it may be negative.
    expected: u64,
    pieces: u64,
}

impl Rows<'_> {
    fn all(&mut self, file: &File, out: &mut Out) -> Result<(), Error> {
        let mut walk = Extents::all(file, self.block_size);
        let mut next = walk.next();
        while let Some(extent) = next {
            let extent = extent?;
            next = walk.next();
            self.row(extent, next.is_none(), out);
        }
        Ok(())
    }

    fn head(&self, out: &mut Out) {
        if self.json {
            return;
        }
        let blocks = self.size.div_ceil(u64::from(self.block_size));
        let s = if blocks == 1 { "" } else { "s" };
        out.line("Filesystem type is: ef53");
        let (path, bs) = (String::from_utf8_lossy(self.path), self.block_size);
        out.line(format_args!(
            "File size of {path} is {} ({blocks} block{s} of {bs} bytes)",
            self.size
        ));
        if self.size > 0 {
            out.line(
                " ext:     logical_offset:        physical_offset: length:   expected: flags:",
            );
        }
    }

    fn foot(&self, out: &mut Out) {
        if !self.json {
            let s = if self.pieces == 1 { "" } else { "s" };
            let path = String::from_utf8_lossy(self.path);
            out.line(format_args!("{path}: {} extent{s} found", self.pieces));
        }
    }

    fn row(&mut self, extent: Extent, last: bool, out: &mut Out) {
        let end = (extent.start + extent.len) * u64::from(self.block_size);
        let flags = [
            (last, "last"),
            (!extent.written, "unwritten"),
            (self.merged, "merged"),
            (end >= self.size, "eof"),
        ];
        let state = if extent.written {
            "written"
        } else {
            "unwritten"
        };
        self.print(extent, state, &flags, out);
    }

    fn print(&mut self, extent: Extent, state: &str, flags: &[(bool, &str)], out: &mut Out) {
        let (start, at, len) = (extent.start, extent.at.get(), extent.len);
        let index = self.printed;
        self.printed += 1;
        // `expected` counts a hole as if its blocks were allocated.
        let expected = if index == 0 {
            start
        } else {
            self.expected.wrapping_add(start)
        };
        let moved = expected != 0 && expected != at;
        self.pieces += u64::from(index == 0 || moved);
        self.expected = (at + len).wrapping_sub(start + len);
        if self.json {
            let (path, block_size, last) = (self.path, self.block_size, flags[0].0);
            out.json(&JsonExtent {
                path,
                index,
                start,
                at,
                len,
                block_size,
                state,
                last,
            });
            return;
        }
        let expected = moved.then_some(expected);
        out.line(table_row(index, &extent, expected, flags));
    }

    /// Prints inline data: one extent, in bytes.
    fn inline(&mut self, volume: &Volume, file: &File, out: &mut Out) -> Result<(), Reason> {
        if self.size == 0 {
            return Ok(());
        }
        let sb = volume.superblock();
        let place = sb.inode_place(file.ino()).map_err(Error::from)?;
        let table = volume.groups()[place.group.get() as usize]
            .inode_table
            .get();
        let block = table + u64::from(place.table_block);
        let at = block * u64::from(self.block_size) + u64::from(place.offset) + INLINE_OFFSET;
        let extent = Extent {
            start: 0,
            at: diorite_format::FsBlock::new(at),
            len: self.size,
            written: true,
        };
        let flags = [
            (true, "last"),
            (true, "not_aligned"),
            (true, "inline"),
            (true, "eof"),
        ];
        self.print(extent, "inline", &flags, out);
        Ok(())
    }
}

/// A row in the columns of `filefrag`.
fn table_row(index: u64, extent: &Extent, expected: Option<u64>, flags: &[(bool, &str)]) -> String {
    let (start, at, len) = (extent.start, extent.at.get(), extent.len);
    let expected = expected.map_or_else(|| " ".repeat(12), |e| format!(" {e:>10}:"));
    let set = flags.iter().filter(|(set, _)| *set);
    let set: Vec<&str> = set.map(|(_, name)| *name).collect();
    let flags = if set.is_empty() {
        String::new()
    } else {
        format!(" {}", set.join(","))
    };
    let (end, until) = (start + len - 1, at + len - 1);
    format!("{index:4}: {start:8}..{end:8}: {at:10}..{until:10}: {len:6}:{expected}{flags}")
}

struct JsonExtent<'a> {
    path: &'a [u8],
    index: u64,
    start: u64,
    at: u64,
    len: u64,
    block_size: u32,
    state: &'a str,
    last: bool,
}

impl serde::Serialize for JsonExtent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        json_name(&mut map, "path", self.path)?;
        map.serialize_entry("index", &self.index)?;
        map.serialize_entry("start", &self.start)?;
        map.serialize_entry("physical", &self.at)?;
        map.serialize_entry("length", &self.len)?;
        // Inline data is counted in bytes.
        let unit = if self.state == "inline" {
            1
        } else {
            self.block_size
        };
        map.serialize_entry("block_size", &unit)?;
        map.serialize_entry("state", self.state)?;
        map.serialize_entry("last", &self.last)?;
        map.end()
    }
}
