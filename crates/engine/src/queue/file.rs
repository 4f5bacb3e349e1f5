//! Open files, and their blocking calls.
//!
//! Input: an inode and how it is opened. Output: [`File`]s. Invariant: a blocking call is a request on a queue that nobody else uses
//! meanwhile, and its deferred work runs in the calling thread. Limits: direct I/O only; what goes through the page cache is in
//! `cached_file`, `cached_write` and `cached_space`.

use super::Pool;
use super::cached_file::Reading;
use crate::error::Error;
use crate::inode::{Inode, OpenFile, Quiesced};
use crate::mapping::Mapping;
use crate::op::Op;
use crate::options::OpenFlags;
use crate::request::{Completion, FileId, Request, RequestFlags};
use diorite_block::Buf;
use diorite_format::Ino;
use std::sync::Arc;

/// An open file. Send and Sync; cheap to clone. Clones are one open file: a failed flush is reported to one of them, once. Dropping it
/// waits for its read-ahead under way at most; a queue that has it attached keeps it open.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/example.rs"));
/// use diorite::{Buf, Fallocate, OpenOptions, Volume};
///
/// # fn main() -> Result<(), diorite::Error> {
/// # let volume = Volume::open_device(example_volume(), &OpenOptions::writable())?;
/// let file = volume.create("/file", 0o644)?;
/// file.fallocate(Fallocate::Allocate { keep_size: false }, 0, 1 << 20)?;
/// let (_buf, written) = file.write_buf(8192, Buf::zeroed(4096)); // direct: whole sectors, from memory that the device reads
/// assert_eq!(written?, 4096);
/// file.write_bytes(5, b"any bytes, anywhere")?; // through the page cache
/// file.sync()?;
/// let mut read = [0; 9];
/// assert_eq!(file.read_bytes(5, &mut read)?, 9);
/// assert_eq!(&read, b"any bytes");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct File {
    /// First, so that it is dropped first: its read-ahead has the inode, too.
    pub(super) reading: Arc<Reading>,
    /// Before the pool: the last user of the pool deletes inodes without a name.
    open: OpenFile,
    pool: Arc<Pool>,
}

impl File {
    pub(crate) fn new(pool: &Arc<Pool>, inode: Arc<Inode>, flags: OpenFlags) -> File {
        File {
            pool: pool.clone(),
            open: OpenFile::new(inode, flags),
            reading: Arc::new(Reading::new(pool.service().fs.level)),
        }
    }

    /// See [`OpenFile::kept`].
    pub(super) fn kept(&self) -> File {
        File {
            open: self.open.kept(),
            ..self.clone()
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

    /// The size in bytes, including appends that are complete but not yet committed, and what is not written back yet.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.inode().visible_size()
    }

    /// The largest size in bytes that the file can have.
    #[must_use]
    pub fn max_size(&self) -> u64 {
        self.inode().max_size
    }

    /// The inode as it is now, including changes that are not committed yet. Its size is [`File::size`].
    #[must_use]
    pub fn metadata(&self) -> Arc<diorite_format::Inode> {
        self.inode().seen()
    }

    /// Reads into `buf` from byte `pos`. Returns the buffer and the count of bytes, which is smaller than the buffer only at the end of
    /// the file. Position and length must be multiples of the device's logical block ([`crate::device::Geometry::logical`], mostly 512
    /// bytes); the buffer's address must have the device's DMA alignment, as every [`Buf`] of `zeroed` has. The length is at most
    /// [`crate::request::MAX_REQUEST`] bytes. Blocks.
    ///
    /// # Errors
    /// `Unaligned`; a damaged map; the device's.
    pub fn read_buf(&self, pos: u64, buf: Buf) -> (Buf, Result<usize, Error>) {
        self.call(Op::Read, pos, buf, RequestFlags::default())
    }

    /// Writes `buf` at byte `pos`, which may be in a hole or behind the end. Alignment as for [`File::read_buf`]. Writes the whole buffer
    /// or returns an error. Blocks; with [`OpenFlags::dsync`] until the data is durable.
    ///
    /// # Errors
    /// `Unaligned`; `ReadOnly`; `TooBig`; `NoSpace`; `NotPermitted` by the file's flags; a damaged map; the device's.
    pub fn write_buf(&self, pos: u64, buf: Buf) -> (Buf, Result<usize, Error>) {
        self.call(Op::Write, pos, buf, RequestFlags::default())
    }

    /// Writes `buf` at byte `pos` so that readers, and whoever opens the volume after a power cut, find all of it or nothing of it: see
    /// [`Request::atomic`]. It does not go through the page cache, however the file was opened. Writes the whole buffer or returns an
    /// error. Blocks; with [`OpenFlags::dsync`] until the data is durable.
    ///
    /// # Errors
    /// `Invalid`: the length is no power of two, is outside the bounds of [`crate::Volume::atomic_limits`], or `pos` is no multiple of it.
    /// `NotSupported`: the volume has no atomic writes, or the file's data goes through the journal. Those of [`File::write_buf`].
    pub fn write_atomic(&self, pos: u64, buf: Buf) -> (Buf, Result<usize, Error>) {
        self.call(Op::WriteAtomic, pos, buf, RequestFlags::default())
    }

    /// Writes `buf` at the end of the file, behind all earlier appends. Returns the byte position at which it was written. The buffer's
    /// length and the file's end must be multiples of the device's logical block; its address must be as for [`File::read_buf`]. Blocks.
    ///
    /// # Errors
    /// `Unaligned`; `NoSpace`, with nothing written; `TooBig`; those of [`File::write_buf`].
    pub fn append_buf(&self, buf: Buf) -> (Buf, Result<u64, Error>) {
        let done = self.run(Request::append(FileId::NONE, buf, 0));
        (done.buf, done.result.map(|_| done.pos))
    }

    /// Writes the first `len` bytes of `buf` at `pos` as the last bytes of the file, which ends at `pos + len` afterwards. `len` need not
    /// be aligned: `buf` is `len` rounded up to logical blocks of the device, and its bytes behind `len` become zeros. Alignment
    /// otherwise and durability as for [`File::write_buf`]. A `len` of 0 stands for the whole buffer: it is [`File::write_buf`]. Blocks.
    ///
    /// # Errors
    /// `Invalid` if the file does not become longer by this, or if the buffer is longer than the last block; those of [`File::write_buf`].
    pub fn write_last(&self, pos: u64, buf: Buf, len: u64) -> (Buf, Result<usize, Error>) {
        let done = self.run(Request::write_last(FileId::NONE, pos, buf, len, 0));
        (done.buf, done.result)
    }

    /// Runs a request of any operation, with flags; `pos` and `buf` are as in [`Request`]. Blocks, as far as `flags` allow. The errors are
    /// those of the operation; [`Op::Fallocate`] always fails, as there is no length.
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

    /// Runs a request on this file; `request.file` is ignored. Blocks.
    pub(crate) fn run(&self, request: Request) -> Completion {
        self.pool.call(self, request)
    }

    /// Makes durable every write of the file that was acknowledged before (fsync). For a directory, opened without `write`: every name
    /// that was created, moved or removed in it before, by anybody. A new file that must be found after a crash needs both: a sync of the
    /// file, and one of the directory with its name. Blocks.
    ///
    /// # Errors
    /// The device's. After a flush of the volume's device has failed, whoever asked for it, earlier writes may be lost: the first sync of
    /// each open file after that fails, once. The next sync covers what was written since.
    pub fn sync(&self) -> Result<(), Error> {
        self.call(Op::Sync, 0, Buf::empty(), RequestFlags::default())
            .1
            .map(|_| ())
    }

    /// As [`File::sync`], but without what no reader of the data needs, mostly times (fdatasync). For a directory it is [`File::sync`].
    /// Blocks.
    ///
    /// # Errors
    /// Those of [`File::sync`].
    pub fn sync_data(&self) -> Result<(), Error> {
        self.call(Op::DataSync, 0, Buf::empty(), RequestFlags::default())
            .1
            .map(|_| ())
    }

    /// Writes back what was written through the page cache before. Afterwards it is on the device, which may keep it in a volatile cache:
    /// only [`File::sync`] makes it durable. For many files see [`crate::Volume::write_back`]. Blocks.
    ///
    /// # Errors
    /// A failed write-back that was not reported through this open file; sync reports it no more then. As for sync, a failure that is
    /// reported through each open file that may have written what was lost is not reported by [`crate::Volume::sync`] again.
    pub fn write_back(&self) -> Result<(), Error> {
        let written = self.inode().write_back();
        self.open.tell_page_failure().and(written)
    }

    /// The mappings of `len` bytes at `pos`, rounded out to whole blocks, holes included. Dirty pages there are written back first, so that
    /// they have their places. Blocks while the map is read.
    ///
    /// # Errors
    /// A corrupt map; a device that fails.
    pub fn mappings(&self, pos: u64, len: u64) -> Result<Vec<Mapping>, Error> {
        let inode = self.inode();
        let bits = inode.volume.block_size().trailing_zeros();
        let blocks = pos >> bits..pos.saturating_add(len).div_ceil(1 << bits);
        if inode.pages.is_unwritten(&blocks) {
            inode
                .volume
                .write_back(std::slice::from_ref(inode), blocks.clone())?;
        }
        inode.mappings(blocks)
    }

    /// Keeps direct requests, and write-back of cached pages, out of the file until the guard is dropped. Waits for those in flight; later
    /// ones wait for the guard: so does a sync of the file or of its volume, also one by the thread that has the guard. Blocks. While it
    /// waits it drains the volume's queues, so it does not depend on their owners.
    #[must_use]
    pub fn quiesce(&self) -> Quiesced<'_> {
        self.inode().quiesce()
    }
}
