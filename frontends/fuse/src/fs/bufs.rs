//! Memory for reads, one set per thread.
//!
//! Input: lengths. Output: bufs of exactly that length. Invariant: a few bufs of the lengths that were used last are kept. Limits: a length
//! that is new takes memory from the host.

use diorite_block::Buf;

/// How many are kept.
const KEPT: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Bufs(Vec<Buf>);

impl Bufs {
    /// A buf of `len` bytes, with bytes of its last user. None if the host gives no memory.
    pub(crate) fn get(&mut self, len: usize) -> Option<Buf> {
        match self.0.iter().rposition(|buf| buf.len() == len) {
            Some(at) => Some(self.0.remove(at)),
            None => Buf::try_zeroed(len),
        }
    }

    /// Gives a buf back.
    pub(crate) fn put(&mut self, buf: Buf) {
        if self.0.len() == KEPT {
            self.0.remove(0);
        }
        self.0.push(buf);
    }
}
