//! Reads the files behind an image, and an image that the library does not know: with zstd, extended entries, or one of the bits.
//!
//! Input: a chain of files that was judged, the upper one first. Output: the bytes of the disk, and how they are stored. Invariants:
//! nothing is written; a read walks down the chain once for each run of bytes; what is read of a file is a block of a table, the data of
//! one cluster, or the caller's bytes; a table lies in its file. Limits: tables and unpacked clusters are kept up to [`MOST_KEPT`] each,
//! for the whole chain.

use crate::chain::Layer;
use crate::entries::{Layout, Place};
use crate::header::{Header, be64};
use crate::kept::Kept;
use crate::packed::unpack;
use crate::tables::table_of;
use diorite_block::{Bio, BioError, BioOp, Geometry, Run, RunsBios, Stored};
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes of tables that are read at once.
const BLOCK: u64 = 32 << 10;
const MOST_KEPT: usize = 8 << 20;
/// Of the smallest clusters.
const MOST_CLUSTERS: usize = 64;

/// See the module.
pub(crate) struct Reader {
    files: Vec<Opened>,
    size: u64,
    tables: Kept,
    clusters: Kept,
}

/// A file of the chain.
struct Opened {
    file: File,
    len: u64,
    /// Of the disk in it.
    size: u64,
    /// Of a raw file: None.
    tables: Option<(Header, Layout)>,
    name: String,
}

fn damaged(what: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.files.iter().map(|file| &file.name))
            .finish()
    }
}

impl Reader {
    /// Of a chain whose headers were checked.
    pub(crate) fn new(chain: Vec<Layer>) -> Reader {
        let files: Vec<Opened> = chain.into_iter().map(Opened::new).collect();
        Reader {
            // A raw file may end in a part of a sector, and reads zeros behind that.
            size: files
                .first()
                .map_or(0, |file| file.size.next_multiple_of(512)),
            files,
            tables: Kept::new(MOST_KEPT, MOST_KEPT / BLOCK as usize),
            clusters: Kept::new(MOST_KEPT, MOST_CLUSTERS),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn geometry(&self) -> Geometry {
        Geometry {
            physical: 4096,
            read_only: true,
            ..Geometry::plain(self.size)
        }
    }

    /// Fills `out` with the bytes at `at`.
    pub(crate) fn read(&self, mut out: &mut [u8], mut at: u64) -> io::Result<()> {
        while !out.is_empty() {
            let (n, place, len) = self.find(at, out.len() as u64)?;
            // At most the length of `out`.
            let (now, rest) = out.split_at_mut(len as usize);
            match place {
                Place::Below | Place::Zeros => now.fill(0),
                Place::Data(from) => self.files[n].read(now, from)?,
                Place::Packed { at: from, len } => {
                    let cluster = self.unpacked(n, from, len)?;
                    let skip = (at % cluster.len() as u64) as usize;
                    now.copy_from_slice(&cluster[skip..][..now.len()]);
                }
            }
            out = rest;
            at += len;
        }
        Ok(())
    }

    /// Which file has the bytes at `at`, where, and how many of `most`.
    pub(crate) fn find(&self, at: u64, most: u64) -> io::Result<(usize, Place, u64)> {
        let mut most = most;
        for (n, file) in self.files.iter().enumerate() {
            if at >= file.size {
                return Ok((n, Place::Zeros, most));
            }
            most = most.min(file.size - at);
            let of = |e: io::Error| io::Error::new(e.kind(), format!("\"{}\": {e}", file.name));
            let (place, len) = match &file.tables {
                None => (Place::Data(at), most),
                Some((header, layout)) => {
                    let word = |at: u64| self.word(n, file, at);
                    let run = find(header, layout, at, most, file.len, word);
                    run.map_err(of)?
                }
            };
            most = len;
            if place != Place::Below {
                return Ok((n, place, most));
            }
        }
        Ok((self.files.len(), Place::Below, most))
    }

    /// A number of a table.
    fn word(&self, n: usize, file: &Opened, at: u64) -> io::Result<u64> {
        let from = at - at % BLOCK;
        let block = self.tables.get((n, from), || {
            let mut block = vec![0; BLOCK as usize];
            file.read(&mut block, from).map(|()| block)
        })?;
        Ok(be64(&block, (at - from) as usize))
    }

    fn unpacked(&self, n: usize, at: u64, len: usize) -> io::Result<Arc<Vec<u8>>> {
        let file = &self.files[n];
        let of = |e: io::Error| io::Error::new(e.kind(), format!("\"{}\": {e}", file.name));
        let Some((header, layout)) = &file.tables else {
            return Err(damaged("a raw file has no compressed clusters"));
        };
        let made = self.clusters.get((n, at), || {
            // The last sector may be a part of one.
            let len = len.min(usize::try_from(file.len.saturating_sub(at)).unwrap_or(usize::MAX));
            let mut data = vec![0; len];
            file.file.read_exact_at(&mut data, at)?;
            unpack(header.packing, &data, layout.cluster as usize)
        });
        made.map_err(of)
    }

    /// How the bytes at `at` are stored, and how many of `most`.
    pub(crate) fn run(&self, at: u64, most: u64) -> io::Result<(Stored, u64)> {
        let (_, place, len) = self.find(at, most)?;
        let stored = match place {
            Place::Below => Stored::Hole,
            Place::Zeros => Stored::Zero,
            Place::Data(_) | Place::Packed { .. } => Stored::Data,
        };
        Ok((stored, len))
    }

    /// How a range inside the disk is stored: see `Device::stored`.
    pub(crate) fn stored(&self, range: Range<u64>, most: usize) -> io::Result<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        let mut at = range.start;
        while at < range.end && runs.len() < most {
            let (stored, len) = self.run(at, range.end - at)?;
            match runs.last_mut() {
                Some(last) if last.stored == stored => last.len += len,
                _ => runs.push(Run { len, stored }),
            }
            at += len;
        }
        Ok(runs)
    }

    fn transfer(&self, bio: &mut Bio) -> io::Result<()> {
        match bio.op {
            BioOp::Flush => Ok(()),
            BioOp::Read if bio.len == bio.buf.len() as u64 => {
                let mut at = bio.pos;
                bio.buf.parts_mut().try_for_each(|part| {
                    let from = at;
                    at += part.len() as u64;
                    self.read(part, from)
                })
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

impl RunsBios for Reader {
    fn run(&self, bio: &mut Bio) {
        bio.result = match self.geometry().check(bio) {
            Ok(()) => self.transfer(bio).map_err(|error| BioError::from(&error)),
            Err(error) => Err(error),
        };
    }
}

impl Opened {
    fn new(layer: Layer) -> Opened {
        let name = layer.path.display().to_string();
        Opened {
            size: layer
                .header
                .as_ref()
                .map_or(layer.len, |header| header.size),
            file: layer.file,
            len: layer.len,
            tables: layer.header.map(|header| {
                let layout = Layout::of(&header);
                (header, layout)
            }),
            name,
        }
    }

    /// Reads bytes of the file, zeros in the part of a cluster that it lacks at its end.
    fn read(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        let have = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX);
        let (there, behind) = out.split_at_mut(have.min(out.len()));
        behind.fill(0);
        self.file.read_exact_at(there, at)
    }
}

/// Where the bytes at `at` of the disk are in a file of `len` bytes, and how many of `most`; `word` reads a number of a table.
fn find(
    header: &Header,
    layout: &Layout,
    at: u64,
    most: u64,
    len: u64,
    word: impl Fn(u64) -> io::Result<u64>,
) -> io::Result<(Place, u64)> {
    let span = layout.span();
    let most = most.min(span - at % span);
    // The header has an entry for each part of the disk.
    let first = header.l1.0 + at / span * 8;
    let Some(table) = table_of(word(first)?).map_err(damaged)? else {
        return Ok((Place::Below, most));
    };
    if !table.is_multiple_of(layout.cluster) || table.saturating_add(layout.cluster) > len {
        return Err(damaged("a table of clusters does not lie in the file"));
    }
    let place = |at: u64| -> io::Result<Place> {
        let entry = table + at % span / layout.cluster * layout.entry;
        let bitmaps = match layout.is_extended() {
            true => word(entry + 8)?,
            false => 0,
        };
        let unit = at % layout.cluster / layout.unit;
        let place = layout.place(word(entry)?, bitmaps, unit).map_err(damaged)?;
        let start = match place {
            Place::Data(at) => at,
            Place::Packed { at, .. } => at,
            _ => 0,
        };
        match start < len {
            true => Ok(place),
            false => Err(damaged(format!(
                "a table leads to {start}, behind the end of the file"
            ))),
        }
    };
    let begin = place(at)?;
    if matches!(begin, Place::Packed { .. }) {
        return Ok((begin, most.min(layout.cluster - at % layout.cluster)));
    }
    let skip = at % layout.unit;
    let mut run = layout.unit - skip;
    let here = begin.plus(skip).unwrap_or(begin);
    while run < most && here.plus(run) == Some(place(at + run)?) {
        run += layout.unit;
    }
    Ok((here, run.min(most)))
}
