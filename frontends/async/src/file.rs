//! Files whose requests are futures.
//!
//! Input: positions and buffers. Output: futures. Invariant: a file stays attached to the queue until its last handle and its last request
//! are gone. Limits: direct I/O only, aligned as [`diorite::File::read_buf`] says; bytes at any position go through `AsyncStream` or
//! [`AsyncFile::blocking`].

use crate::driver::Attached;
use crate::io::{Append, Call, Io, Sync, Whole};
use crate::pool::Pool;
use diorite::{Buf, Fallocate, File, FileId, Request};
use std::sync::Arc;

/// An open file of an [`crate::AsyncVolume`]. A clone is the same open file. Send and Sync: any number of tasks may have requests under
/// way, in any order.
#[derive(Clone, Debug)]
pub struct AsyncFile {
    pub(crate) attached: Arc<Attached>,
    #[cfg_attr(not(any(feature = "tokio", feature = "smol")), expect(dead_code))]
    pub(crate) pool: Arc<Pool>,
}

impl AsyncFile {
    /// Reads into `buf` from byte `pos`: see [`diorite::File::read_buf`] for alignment and errors.
    pub fn read_at(&self, pos: u64, buf: Buf) -> Io {
        Io(self.call(Request::read(self.attached.id, pos, buf, 0)))
    }

    /// Writes `buf` at byte `pos`: see [`diorite::File::write_buf`].
    pub fn write_at(&self, pos: u64, buf: Buf) -> Io {
        Io(self.call(Request::write(self.attached.id, pos, buf, 0)))
    }

    /// Writes `buf` at byte `pos` so that all of it is found or nothing of it, also after a power cut: see [`diorite::File::write_atomic`].
    pub fn write_atomic(&self, pos: u64, buf: Buf) -> Io {
        Io(self.call(Request::write(self.attached.id, pos, buf, 0).atomic()))
    }

    /// Writes `buf` at the end of the file: see [`diorite::File::append_buf`].
    pub fn append(&self, buf: Buf) -> Append {
        Append(self.call(Request::append(self.attached.id, buf, 0)))
    }

    /// Makes durable what was acknowledged before, and the inode (fsync): see [`diorite::File::sync`].
    pub fn sync(&self) -> Sync {
        Sync(self.call(Request::sync(self.attached.id, false, 0)))
    }

    /// Makes durable what was acknowledged before, without times (fdatasync): see [`diorite::File::sync_data`].
    pub fn sync_data(&self) -> Sync {
        Sync(self.call(Request::sync(self.attached.id, true, 0)))
    }

    /// Makes the file `size` bytes long: see [`diorite::File::truncate`].
    pub fn truncate(&self, size: u64) -> Sync {
        Sync(self.call(Request::truncate(self.attached.id, size, 0)))
    }

    /// Changes what `len` bytes at `pos` are mapped to: see [`diorite::File::fallocate`].
    pub fn fallocate(&self, mode: Fallocate, pos: u64, len: u64) -> Sync {
        Sync(self.call(Request::fallocate(self.attached.id, mode, pos, len, 0)))
    }

    /// Any request, made by `make` for the file's id; its token is not kept. For flags such as `dsync`, and for
    /// [`Request::write_last`]:
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/engine/tests/common/example.rs"));
    /// # use diorite::{Buf, OpenOptions, Request, Volume};
    /// # use diorite_async::AsyncVolume;
    /// # fn main() -> Result<(), diorite::Error> {
    /// # let volume = Volume::open_device(example_volume(), &OpenOptions::writable())?;
    /// # let volume = AsyncVolume::new(volume, 64)?;
    /// # futures_lite::future::block_on(async {
    /// let file = volume.create("/notes", 0o644).await?;
    /// let mut buf = Buf::zeroed(512);
    /// buf.copy_in(0, b"seven\n.");
    /// let done = file.request(|id| Request::write_last(id, 0, buf, 7, 0)).await;
    /// assert_eq!((done.result?, file.size()), (7, 7));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn request(&self, make: impl FnOnce(FileId) -> Request) -> Whole {
        Whole(self.call(make(self.attached.id)))
    }

    /// The size in bytes, as readers see it.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.attached.file.size()
    }

    /// The same open file with calls that block.
    #[must_use]
    pub fn blocking(&self) -> &File {
        &self.attached.file
    }

    fn call(&self, request: Request) -> Call {
        Call::new(&self.attached, request)
    }
}
