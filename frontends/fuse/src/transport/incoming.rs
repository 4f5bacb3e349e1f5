//! One request: its parts, and the memory that its data has.
//!
//! Input: bytes of the kernel. Output: the request's header and arguments, its data, a buf for what is read on its behalf. Invariants: the
//! memory is reused for the next request; it is nobody else's while a request has it. Limits: [`ROOM`] bytes of data.

use crate::wire::MOST_DATA;
use crate::wire::input::HEADER;
use diorite_block::{Buf, Shared, Split};
use rustix::io::IoSliceMut;

/// What precedes the data of a write: the header, and `fuse_write_in`.
const BEFORE_DATA: usize = HEADER + 40;

/// The longest header of an operation, which io_uring gives apart from what is behind it.
pub(super) const OPERATION: usize = 128;

/// The kernel refuses to give requests to who has room for less than the largest write, its header and a page.
pub(super) const ROOM: usize = MOST_DATA + 4096;

/// One request. Its memory is reused for the next.
#[derive(Debug)]
pub struct Incoming {
    before: [u8; HEADER + OPERATION],
    before_len: usize,
    /// None after a panic in the middle of a read.
    memory: Option<Shared>,
    data_len: usize,
    /// So much of a write was done; it is executed again for what is behind that.
    written: Option<usize>,
    /// Both parts of a request that is not a write.
    whole: Vec<u8>,
}

impl Incoming {
    /// Memory for requests. None if the host gives none.
    #[must_use]
    pub fn try_new() -> Option<Incoming> {
        Shared::try_zeroed(ROOM).and_then(Incoming::over)
    }

    /// Requests whose data comes into this memory, of [`ROOM`] bytes. None if others have it, too.
    pub(super) fn over(mut memory: Shared) -> Option<Incoming> {
        // Touched now: later there may be no memory to be had.
        memory.bytes_mut()?.fill(0);
        Some(Incoming {
            before: [0; HEADER + OPERATION],
            before_len: 0,
            memory: Some(memory),
            data_len: 0,
            written: None,
            whole: Vec::with_capacity(MOST_DATA / 8),
        })
    }

    /// Requests without data: what stands here while another thread has the request.
    pub(crate) fn without_memory() -> Incoming {
        Incoming {
            before: [0; HEADER + OPERATION],
            before_len: 0,
            memory: None,
            data_len: 0,
            written: None,
            whole: Vec::new(),
        }
    }

    /// Whether the memory was lost by a panic.
    pub(super) fn has_lost_memory(&self) -> bool {
        self.memory.is_none()
    }

    /// Memory in place of what was lost, with the data of the request that comes.
    pub(super) fn has_memory_again(&mut self, memory: Shared) {
        self.memory = Some(memory);
    }

    /// Where a request goes that comes in one piece. None: the host gives no memory.
    pub(super) fn parts(&mut self) -> Option<[IoSliceMut<'_>; 2]> {
        if self.memory.is_none() {
            self.memory = Shared::try_zeroed(ROOM);
        }
        let data = self.memory.as_mut()?.bytes_mut()?;
        let before = &mut self.before[..BEFORE_DATA];
        Some([IoSliceMut::new(before), IoSliceMut::new(data)])
    }

    /// Such a request has come.
    pub(super) fn came(&mut self, len: usize) {
        self.before_len = len.min(BEFORE_DATA);
        self.data_len = len - self.before_len;
        self.written = None;
    }

    /// A request has come in two pieces: this header with the operation's, and so many bytes in the memory.
    pub(super) fn came_apart(&mut self, header: &[u8], operation: &[u8], data_len: usize) {
        self.before_len = header.len() + operation.len();
        self.before[..header.len()].copy_from_slice(header);
        self.before[header.len()..self.before_len].copy_from_slice(operation);
        self.data_len = data_len;
        self.written = None;
    }

    /// A write of this request was done: if the request is executed again, it is not.
    pub(crate) fn has_written(&mut self, count: usize) {
        self.written = Some(count);
    }

    /// How much of a write was done before, if it is executed again.
    pub(crate) fn take_written(&mut self) -> Option<usize> {
        self.written.take()
    }

    /// Such a request, for tests.
    #[cfg(test)]
    pub(crate) fn of(header: &[u8], operation: &[u8], data: &[u8]) -> Option<Incoming> {
        let mut request = Incoming::try_new()?;
        request.memory_mut(data.len())?.copy_from_slice(data);
        request.came_apart(header, operation, data.len());
        Some(request)
    }

    /// The bytes in front of the data of a write: all of them, if the request is as long.
    #[must_use]
    pub fn before(&self) -> &[u8] {
        &self.before[..self.before_len]
    }

    /// All bytes of the request, in one piece.
    pub fn whole(&mut self) -> &[u8] {
        self.whole.clear();
        self.whole
            .extend_from_slice(&self.before[..self.before_len]);
        let memory = self.memory.as_ref().map_or(&[][..], Shared::bytes);
        self.whole
            .extend_from_slice(&memory[..self.data_len.min(memory.len())]);
        &self.whole
    }

    /// How many bytes of data a write has brought.
    #[must_use]
    pub fn data_len(&self) -> usize {
        self.data_len
    }

    /// The data of a write.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.memory()[..self.data_len]
    }

    /// The first `len` bytes of the data, for a device to write. The next request needs them back.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn lend(&self, len: usize) -> Buf {
        let memory = self.memory.as_ref();
        memory.expect("a write has brought its data").lend(0..len)
    }

    pub(super) fn memory(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], Shared::bytes)
    }

    /// The first `len` bytes of the memory, for the reply. None: there is no such memory.
    pub fn memory_mut(&mut self, len: usize) -> Option<&mut [u8]> {
        self.memory.as_mut()?.bytes_mut()?.get_mut(..len)
    }

    /// Gives the first `len` bytes of the memory away for a moment, to be read into for the reply, or to be written with more than the
    /// data. None: there is no such memory.
    pub fn with_buf<T>(&mut self, len: usize, give: impl FnOnce(Buf) -> (Buf, T)) -> Option<T> {
        let memory = self.memory.take_if(|memory| len <= memory.len())?;
        let mut whole = Split::new(memory.into_buf());
        let (part, done) = give(whole.take(len));
        whole.absorb(part);
        self.memory = Shared::from_buf(whole.join()).ok();
        Some(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// The defect: the thread ended at its next request, and after as many panics as there are threads so did the mount.
    #[test]
    #[expect(clippy::unwrap_used, reason = "a test fails by it")]
    fn there_is_memory_again_after_a_panic() {
        let mut request = Incoming::try_new().unwrap();
        let read = || request.with_buf::<()>(4096, |_buf| panic!("in the middle of a read"));
        assert!(catch_unwind(AssertUnwindSafe(read)).is_err());
        assert!(request.memory().is_empty());
        let [_, data] = request.parts().unwrap();
        assert_eq!(data.len(), ROOM);
    }
}
