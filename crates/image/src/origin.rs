//! Where the bytes of a file are.
//!
//! Input: an origin of each node. Output: [`Contents`] for the engine. Invariant: a source that has fewer bytes than it had is an error
//! that names it. Limits: blocks.

use crate::error::Error;
use crate::host::{self, Root};
use diorite::mkfs::{Contents, NodeId};
use diorite::{Ino, OpenFlags, Volume};
use diorite_block::uncached;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// A part of a file that lies somewhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Where it is in the file.
    pub(crate) pos: u64,
    /// Where it is in what holds it.
    pub(crate) at: u64,
    pub(crate) len: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) enum Origin {
    /// It has no bytes.
    None,
    /// A file of the host: a whole path, or one below a source.
    Host(Option<Arc<Root>>, Box<Path>),
    /// Parts of an open file: an archive, or what was set aside.
    Spans(Arc<File>, Box<[Span]>),
    /// A file of a volume.
    Volume(Arc<Volume>, Ino),
}

/// Which kind of origin, in the upper bits of [`Packed::of`].
const WHOLE: u32 = 0;
const SPANS: u32 = 1;
const HOST: u32 = 2;
const VOLUME: u32 = 3;
/// Bits of a number below the kind.
const NUMBER: u32 = 30;

/// An origin in few bytes: there may be millions.
#[derive(Clone, Copy, Debug)]
struct Packed {
    node: u32,
    /// Two bits of the kind, and the number of the open file, of the directory of the host or of the volume.
    of: u32,
    /// Where the file is in what holds it; the first span, and how many there are; where the name is, and its length; the inode.
    at: [u32; 2],
}

/// A directory of the host, below a source if that is one.
type Folder = (Option<Arc<Root>>, Box<Path>);

/// Origins by node: see the module.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    /// In the order of their nodes.
    list: Vec<Packed>,
    files: Vec<Arc<File>>,
    spans: Vec<Span>,
    folders: Vec<Folder>,
    names: Vec<u8>,
    volumes: Vec<Arc<Volume>>,
}

fn many() -> Error {
    Error::new("the sources have too many files")
}

fn halves(word: u64) -> [u32; 2] {
    [(word >> 32) as u32, word as u32]
}

/// The number of `item` in a list, where it is the last one or is added. Sources give their files one after the other.
fn number<T>(list: &mut Vec<T>, item: T, same: impl Fn(&T, &T) -> bool) -> Result<u32, Error> {
    if !list.last().is_some_and(|last| same(last, &item)) {
        list.push(item);
    }
    let number = u32::try_from(list.len() - 1).ok();
    number.filter(|n| *n < 1 << NUMBER).ok_or_else(many)
}

impl Origins {
    /// Adds the origin of a node with `len` bytes. Nodes come in order.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn add(&mut self, node: NodeId, len: u64, origin: Origin) -> Result<(), Error> {
        let (kind, number, at) = match origin {
            Origin::None => return Ok(()),
            Origin::Spans(file, spans) => {
                let number = number(&mut self.files, file, Arc::ptr_eq)?;
                match &spans[..] {
                    [all] if all.pos == 0 && all.len == len => (WHOLE, number, halves(all.at)),
                    spans => {
                        let small = |count: usize| u32::try_from(count).map_err(|_| many());
                        let at = [small(self.spans.len())?, small(spans.len())?];
                        self.spans.extend_from_slice(spans);
                        (SPANS, number, at)
                    }
                }
            }
            Origin::Host(root, path) => {
                let folder = (root, path.parent().unwrap_or(Path::new("")).into());
                let name = path.file_name().unwrap_or_default().as_bytes();
                let same = |a: &Folder, b: &Folder| {
                    a.1 == b.1 && a.0.as_ref().map(Arc::as_ptr) == b.0.as_ref().map(Arc::as_ptr)
                };
                let number = number(&mut self.folders, folder, same)?;
                // Names of the host have at most 255 bytes, and memory has fewer than 2^48.
                let at = (self.names.len() as u64) << 16 | name.len() as u64;
                self.names.extend_from_slice(name);
                (HOST, number, halves(at))
            }
            // It is opened when it is read: an open inode takes two KiB.
            Origin::Volume(volume, ino) => (
                VOLUME,
                number(&mut self.volumes, volume, Arc::ptr_eq)?,
                [ino.get(), 0],
            ),
        };
        // The tree has fewer than 2^32 nodes.
        let node = node.index() as u32;
        debug_assert!(self.list.last().is_none_or(|last| last.node < node));
        self.list.push(Packed {
            node,
            of: kind << NUMBER | number,
            at,
        });
        Ok(())
    }

    fn of_host(&self, folder: usize, at: u64, pos: u64, out: &mut [u8]) -> io::Result<()> {
        let start = (at >> 16) as usize;
        let name = &self.names[start..start + (at & 0xFFFF) as usize];
        let (root, folder) = &self.folders[folder];
        let path = folder.join(OsStr::from_bytes(name));
        let file = match root {
            Some(root) => root.file(&path),
            None => host::file(&path),
        };
        let read = file.and_then(|file| uncached::read_exact_at(file, out, pos));
        read.map_err(|error| {
            let shown = root.as_ref().map_or(path.clone(), |root| root.path(&path));
            let why = match error.kind() {
                io::ErrorKind::UnexpectedEof => "it became shorter while it was read".to_owned(),
                _ => error.to_string(),
            };
            io::Error::new(error.kind(), format!("{}: {why}", shown.display()))
        })
    }
}

impl Contents for Origins {
    fn read(&self, node: NodeId, pos: u64, out: &mut [u8]) -> io::Result<()> {
        let found = self
            .list
            .binary_search_by_key(&node.index(), |packed| packed.node as usize);
        let Ok(found) = found else {
            out.fill(0);
            return Ok(());
        };
        let Packed { of, at, .. } = self.list[found];
        let number = (of & ((1 << NUMBER) - 1)) as usize;
        let word = u64::from(at[0]) << 32 | u64::from(at[1]);
        match of >> NUMBER {
            WHOLE => uncached::read_exact_part_at(&self.files[number], out, word + pos),
            SPANS => {
                let spans = &self.spans[at[0] as usize..][..at[1] as usize];
                of_spans(&self.files[number], spans, pos, out)
            }
            HOST => self.of_host(number, word, pos, out),
            _ => {
                let opened = self.volumes[number].open_ino(Ino::new(at[0]), OpenFlags::default());
                let (file, mut done) = (opened.map_err(io::Error::other)?, 0);
                while done < out.len() {
                    let got = file.read_bytes(pos + done as u64, &mut out[done..]);
                    match got.map_err(io::Error::other)? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        count => done += count,
                    }
                }
                Ok(())
            }
        }
    }
}

fn of_spans(file: &File, spans: &[Span], pos: u64, out: &mut [u8]) -> io::Result<()> {
    let end = pos + out.len() as u64;
    let first = spans.partition_point(|span| span.pos + span.len <= pos);
    let mut at = pos;
    for span in &spans[first..] {
        if span.pos >= end {
            break;
        }
        if at < span.pos {
            out[(at - pos) as usize..(span.pos - pos) as usize].fill(0);
            at = span.pos;
        }
        let stop = end.min(span.pos + span.len);
        let part = &mut out[(at - pos) as usize..(stop - pos) as usize];
        uncached::read_exact_part_at(file, part, span.at + (at - span.pos))?;
        at = stop;
    }
    out[(at - pos) as usize..].fill(0);
    Ok(())
}
