//! Where the bytes of a file are.
//!
//! Input: an origin of each node. Output: [`Contents`] for the engine. Invariant: a source that has fewer bytes than it had is an error
//! that names it. Limits: blocks.

use diorite::mkfs::{Contents, NodeId};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
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
    /// A file of the host.
    Host(Box<Path>),
    /// Parts of an open file: an archive, or what was set aside.
    Spans(Arc<File>, Box<[Span]>),
    /// A file of a volume.
    Volume(diorite::File),
}

/// Origins by node.
#[derive(Debug)]
pub(crate) struct Origins(Vec<Origin>);

impl Origins {
    pub(crate) fn new(origins: Vec<Origin>) -> Origins {
        Origins(origins)
    }
}

impl Contents for Origins {
    fn read(&self, node: NodeId, pos: u64, out: &mut [u8]) -> io::Result<()> {
        match self.0.get(node.index()) {
            None | Some(Origin::None) => {
                out.fill(0);
                Ok(())
            }
            Some(Origin::Host(path)) => {
                let read = open(path).and_then(|file| file.read_exact_at(out, pos));
                read.map_err(|error| match error.kind() {
                    io::ErrorKind::UnexpectedEof => {
                        let why =
                            format!("{}: it became shorter while it was read", path.display());
                        io::Error::new(error.kind(), why)
                    }
                    kind => io::Error::new(kind, format!("{}: {error}", path.display())),
                })
            }
            Some(Origin::Spans(file, spans)) => of_spans(file, spans, pos, out),
            Some(Origin::Volume(file)) => {
                let mut done = 0;
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

/// Opens a file for reading. It is no symbolic link by now, and its time of access stays if that is permitted.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let quietly = rustix::fs::open(path, flags | OFlags::NOATIME, Mode::empty());
    let file = match quietly {
        Err(rustix::io::Errno::PERM) => rustix::fs::open(path, flags, Mode::empty())?,
        opened => opened?,
    };
    Ok(File::from(file))
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
        file.read_exact_at(part, span.at + (at - span.pos))?;
        at = stop;
    }
    out[(at - pos) as usize..].fill(0);
    Ok(())
}
