//! The bytes of replies.
//!
//! Input: values of the server. Output: bytes, appended to a list. Invariants: a reply's length is that of what follows it; the
//! last chunk of a reply says that it is the last. Limits: contents of reads are sent from the memory that the device filled, so
//! only their headers are made here.

use super::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, EXTENDED_REPLY_MAGIC, Errno, OPTION_REPLY_MAGIC,
    SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, info, rep,
};
use diorite_block::{Run, Stored};

/// The form of replies on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One header for each.
    Simple,
    /// Chunks for reads and block status, simple replies otherwise.
    Structured,
    /// Chunks with extended headers for everything.
    Extended,
}

/// A reply to an option.
pub fn option_reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    let len = u32::try_from(data.len()).expect("what the server says about an option is short");
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    for word in [option, kind, len] {
        out.extend(word.to_be_bytes());
    }
    out.extend(data);
}

/// An entry of the list of exports.
pub fn server_entry(out: &mut Vec<u8>, option: u32, name: &str) {
    let len = u32::try_from(name.len()).expect("names are short");
    let data = [&len.to_be_bytes(), name.as_bytes()].concat();
    option_reply(out, option, rep::SERVER, &data);
}

/// Size and flags of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoExport {
    /// In bytes.
    pub size: u64,
    /// The bits of `export_flag`.
    pub flags: u16,
}

/// Size and flags, in reply to INFO and GO.
pub fn info_export(out: &mut Vec<u8>, option: u32, export: InfoExport) {
    let mut data = info::EXPORT.to_be_bytes().to_vec();
    data.extend(export.size.to_be_bytes());
    data.extend(export.flags.to_be_bytes());
    option_reply(out, option, rep::INFO, &data);
}

/// A name or a description.
pub fn info_text(out: &mut Vec<u8>, option: u32, kind: u16, text: &str) {
    let data = [&kind.to_be_bytes(), text.as_bytes()].concat();
    option_reply(out, option, rep::INFO, &data);
}

/// The least, the preferred and the largest size of requests.
pub fn info_block_size(out: &mut Vec<u8>, option: u32, sizes: [u32; 3]) {
    let mut data = info::BLOCK_SIZE.to_be_bytes().to_vec();
    data.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
    option_reply(out, option, rep::INFO, &data);
}

/// The metadata context `base:allocation`.
pub fn meta_context(out: &mut Vec<u8>, option: u32) {
    let data = [
        &BASE_ALLOCATION_ID.to_be_bytes(),
        BASE_ALLOCATION.as_bytes(),
    ]
    .concat();
    option_reply(out, option, rep::META_CONTEXT, &data);
}

/// The reply to the option that names an export.
pub fn export_name_reply(out: &mut Vec<u8>, export: InfoExport, zeroes: bool) {
    out.extend(export.size.to_be_bytes());
    out.extend(export.flags.to_be_bytes());
    if zeroes {
        out.extend([0; 124]);
    }
}

/// Which request a reply is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// The form.
    pub mode: Mode,
    /// The client's name for the request.
    pub cookie: u64,
    /// The request's first byte.
    pub offset: u64,
}

/// The kind of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Chunk {
    /// Nothing more.
    None = 0,
    /// Contents.
    OffsetData = 1,
    /// Contents that are zeros.
    OffsetHole = 2,
    /// Extents of 32 bits.
    BlockStatus = 5,
    /// Extents of 64 bits.
    BlockStatusExt = 6,
    /// An error.
    Error = 1 << 15 | 1,
}

const DONE: u16 = 1;

impl Heads {
    /// The whole reply to a request without contents.
    #[inline]
    pub fn done(&self, out: &mut Vec<u8>) {
        match self.mode {
            Mode::Simple | Mode::Structured => self.simple(out, 0),
            Mode::Extended => self.chunk(out, Chunk::None, true, 0),
        }
    }

    /// The whole reply to a request that failed. `chunked`: a request whose reply consists of chunks if structured replies were
    /// agreed on.
    pub fn failed(&self, out: &mut Vec<u8>, errno: Errno, chunked: bool) {
        match self.mode {
            Mode::Simple => self.simple(out, errno.number()),
            Mode::Structured if !chunked => self.simple(out, errno.number()),
            Mode::Structured | Mode::Extended => {
                self.chunk(out, Chunk::Error, true, 6);
                out.extend(errno.number().to_be_bytes());
                out.extend(0u16.to_be_bytes());
            }
        }
    }

    /// What comes before the contents of a simple reply to a read.
    #[inline]
    pub fn contents(&self, out: &mut Vec<u8>) {
        self.simple(out, 0);
    }

    /// What comes before `len` bytes from `offset` on.
    #[inline]
    pub fn data(&self, out: &mut Vec<u8>, offset: u64, len: u32, last: bool) {
        self.chunk(out, Chunk::OffsetData, last, u64::from(len) + 8);
        out.extend(offset.to_be_bytes());
    }

    /// `len` zeros from `offset` on.
    pub fn hole(&self, out: &mut Vec<u8>, offset: u64, len: u32, last: bool) {
        self.chunk(out, Chunk::OffsetHole, last, 12);
        out.extend(offset.to_be_bytes());
        out.extend(len.to_be_bytes());
    }

    /// A chunk that says nothing but that the reply has ended.
    pub fn end(&self, out: &mut Vec<u8>) {
        self.chunk(out, Chunk::None, true, 0);
    }

    #[inline]
    fn simple(&self, out: &mut Vec<u8>, error: u32) {
        let mut head = [0; 16];
        head[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        head[4..8].copy_from_slice(&error.to_be_bytes());
        head[8..].copy_from_slice(&self.cookie.to_be_bytes());
        out.extend_from_slice(&head);
    }

    #[inline]
    fn chunk(&self, out: &mut Vec<u8>, kind: Chunk, last: bool, len: u64) {
        let extended = self.mode == Mode::Extended;
        let magic = if extended {
            EXTENDED_REPLY_MAGIC
        } else {
            STRUCTURED_REPLY_MAGIC
        };
        let flags = if last { DONE } else { 0 };
        out.extend(magic.to_be_bytes());
        out.extend(flags.to_be_bytes());
        out.extend((kind as u16).to_be_bytes());
        out.extend(self.cookie.to_be_bytes());
        if extended {
            out.extend(self.offset.to_be_bytes());
            out.extend(len.to_be_bytes());
        } else {
            let len = u32::try_from(len).expect("a payload is at most 32 MiB");
            out.extend(len.to_be_bytes());
        }
    }
}

/// The whole reply to a request for the status of blocks. `runs` are those of the request's range, at least one.
pub fn block_status(out: &mut Vec<u8>, heads: &Heads, runs: &[Run]) {
    let extended = heads.mode == Mode::Extended;
    let count = runs.len() as u64;
    match extended {
        true => heads.chunk(out, Chunk::BlockStatusExt, true, 8 + 16 * count),
        false => heads.chunk(out, Chunk::BlockStatus, true, 4 + 8 * count),
    }
    out.extend(BASE_ALLOCATION_ID.to_be_bytes());
    if extended {
        out.extend(u32::try_from(count).expect("runs are few").to_be_bytes());
    }
    for run in runs {
        let flags = match run.stored {
            Stored::Data => 0,
            Stored::Zero => super::state::ZERO,
            Stored::Hole => super::state::HOLE | super::state::ZERO,
        };
        if extended {
            out.extend(run.len.to_be_bytes());
            out.extend(u64::from(flags).to_be_bytes());
        } else {
            let len = u32::try_from(run.len).expect("a compact request asks for 32 bits at most");
            out.extend(len.to_be_bytes());
            out.extend(flags.to_be_bytes());
        }
    }
}
