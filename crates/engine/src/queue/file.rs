//! Files: how a path or an inode number becomes something to attach to a queue, and the blocking calls on top.
//!
//! Input: a volume and a path. Output: [`File`]s. Invariant: a blocking call is a request on a queue that nobody else uses
//! meanwhile, and its own deferred work runs in the calling thread. Limits: direct I/O only; [`File::read_bytes`] copes with any
//! alignment by going through a bounce buffer.

use super::Pool;
use crate::error::Error;
use crate::inode::{Inode, OpenFile, Quiesced};
use crate::mapping::Mapping;
use crate::op::Op;
use crate::options::OpenFlags;
use crate::request::{Completion, FileId, Request, RequestFlags};
use diorite_block::Buf;
use diorite_format::Ino;
use std::sync::Arc;

/// An open file. Send and Sync; cheap to clone: clones are one open file, which is told of a failed flush once. Dropping it waits for
/// nothing: queues that have it attached keep it.
#[derive(Clone, Debug)]
pub struct File {
    pool: Arc<Pool>,
    open: OpenFile,
}

impl File {
    pub(crate) fn new(pool: &Arc<Pool>, inode: Arc<Inode>, flags: OpenFlags) -> File {
        File {
            pool: pool.clone(),
            open: OpenFile::new(inode, flags),
        }
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn open_file(&self) -> &OpenFile {
        &self.open
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.open.inode
    }

    /// The inode's number.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.inode().ino
    }

    /// The size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.inode().size()
    }

    /// The inode as it is now; what is not committed yet is in it.
    #[must_use]
    pub fn metadata(&self) -> Arc<diorite_format::Inode> {
        self.inode().disk()
    }

    /// Reads into `buf` from byte `pos`; gives the buffer back with the count (short only at the end of the file). Position and length
    /// must be multiples of the device's logical block ([`crate::device::Geometry::logical`], mostly 512), the address of its DMA
    /// alignment, which that of every [`Buf`] made by `zeroed` is; at most [`crate::request::MAX_REQUEST`] bytes. Blocks.
    ///
    /// # Errors
    /// `Unaligned`; a damaged map; the device's.
    pub fn read_at(&self, pos: u64, buf: Buf) -> (Buf, Result<usize, Error>) {
        self.call(Op::Read, pos, buf, RequestFlags::default())
    }

    /// Writes `buf` at byte `pos`, also over holes and behind the end. Alignment as for [`File::read_at`]. All of it or an error. Blocks;
    /// with [`OpenFlags::dsync`] until the data is durable.
    ///
    /// # Errors
    /// `Unaligned`; `ReadOnly`; `TooBig`; `NoSpace`; `NotPermitted` by the file's flags; a damaged map; the device's.
    pub fn write_at(&self, pos: u64, buf: Buf) -> (Buf, Result<usize, Error>) {
        self.call(Op::Write, pos, buf, RequestFlags::default())
    }

    /// Writes `buf` at the end of the file, behind every append before; says at which byte it went. The buffer's length and the file's
    /// end must be multiples of the device's logical block, its address is as for [`File::read_at`]. Blocks.
    ///
    /// # Errors
    /// `Unaligned`; `NoSpace`, and then nothing is written; `TooBig`; those of [`File::write_at`].
    pub fn append(&self, buf: Buf) -> (Buf, Result<u64, Error>) {
        let done = self.run(Request::append(FileId::NONE, buf, 0));
        (done.buf, done.result.map(|_| done.pos))
    }

    /// Writes the first `len` bytes of `buf` at `pos` as the last ones of the file, which ends at `pos + len` afterwards, also inside a
    /// logical block of the device. `buf` ends with that block; what it has behind those bytes becomes zeros. Else as [`File::write_at`].
    /// Blocks.
    ///
    /// # Errors
    /// `Invalid` if the file does not become longer by it, or the buffer is longer than the last block; those of [`File::write_at`].
    pub fn write_last(&self, pos: u64, buf: Buf, len: u64) -> (Buf, Result<usize, Error>) {
        let done = self.run(Request::write_last(FileId::NONE, pos, buf, len, 0));
        (done.buf, done.result)
    }

    /// As [`File::read_at`] and [`File::write_at`], with flags.
    pub fn call(
        &self,
        op: Op,
        pos: u64,
        buf: Buf,
        flags: RequestFlags,
    ) -> (Buf, Result<usize, Error>) {
        let request = Request {
            flags,
            ..Request::write(FileId::NONE, pos, buf, 0)
        };
        let done = self.run(Request { op, ..request });
        (done.buf, done.result)
    }

    /// Runs a request of this file, whatever file it names. Blocks.
    pub(crate) fn run(&self, request: Request) -> Completion {
        self.pool.call(self, request)
    }

    /// Makes durable every write that was acknowledged before (fsync). Of a directory, opened without `write`: every name that was made,
    /// moved or removed in it before, by whomever. A file that is to be found after a crash needs both: its own, and that of the
    /// directory with its name. Blocks.
    ///
    /// # Errors
    /// The device's. Where a flush of the volume's device has failed, whoever asked for it, what was written before may be lost: each open
    /// file is told so once, by the first sync after it. The one after that promises what was written since.
    pub fn sync(&self) -> Result<(), Error> {
        self.call(Op::Sync, 0, Buf::empty(), RequestFlags::default())
            .1
            .map(|_| ())
    }

    /// The same without what no reader of the data needs (fdatasync): times, mostly. Of a directory it is the same. Blocks.
    ///
    /// # Errors
    /// Those of [`File::sync`].
    pub fn sync_data(&self) -> Result<(), Error> {
        self.call(Op::DataSync, 0, Buf::empty(), RequestFlags::default())
            .1
            .map(|_| ())
    }

    /// Reads any range, aligned or not, through a bounce buffer; says how many bytes there were before the end of the
    /// file. Blocks.
    ///
    /// # Errors
    /// Those of [`File::read_at`].
    pub fn read_bytes(&self, pos: u64, out: &mut [u8]) -> Result<usize, Error> {
        let logical = u64::from(self.inode().volume.device.geometry().logical);
        let bounce = (1 << 20).max(logical as usize);
        let mut done = 0;
        while done < out.len() {
            let at = pos + done as u64;
            let start = at - at % logical;
            let want = ((out.len() - done) as u64 + (at - start))
                .next_multiple_of(logical)
                .min(bounce as u64);
            let (buf, got) = self.read_at(start, Buf::zeroed(want as usize));
            let skip = (at - start) as usize;
            let got = got?.saturating_sub(skip).min(out.len() - done);
            out[done..done + got].copy_from_slice(&buf.as_slice()[skip..skip + got]);
            done += got;
            if got == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// The mappings of `pos..pos + len` (bytes), rounded out to blocks; holes included. Reads the map as needed: blocks.
    ///
    /// # Errors
    /// A corrupt map, a failing device.
    pub fn mappings(&self, pos: u64, len: u64) -> Result<Vec<Mapping>, Error> {
        let bits = self.inode().volume.block_size().trailing_zeros();
        let end = pos.saturating_add(len).div_ceil(1 << bits);
        self.inode().mappings(pos >> bits..end)
    }

    /// Keeps direct requests out of the file until the guard is dropped: those in flight end first, later ones wait. Blocks,
    /// draining the volume's queues, so it does not depend on their owners.
    #[must_use]
    pub fn quiesce(&self) -> Quiesced<'_> {
        self.inode().quiesce()
    }
}
