//! Cuts one buf into parts that several bios carry at the same time, and restores the whole.
//!
//! Input: a [`Buf`] and lengths. Output: disjoint parts, then the whole. Invariant: the whole is not given out while a part is.
//! Limits: parts are taken in order and returned in any order.

use super::Buf;

/// A buf cut into disjoint parts that several bios carry at the same time.
///
/// [`Split::take`] hands out parts in order, [`Split::absorb`] takes them back in any order, and when all are back
/// [`Split::join`] returns the whole. No allocation unless the buf is vectored.
#[derive(Debug)]
pub struct Split {
    /// The whole buf. Nobody may access it while parts are out: the field is private, and only `join` returns it.
    whole: Buf,
    /// What has not been taken yet.
    rest: Buf,
    out: usize,
}

impl Split {
    /// Starts to split `buf`.
    #[must_use]
    pub fn new(buf: Buf) -> Split {
        Split {
            whole: buf.ghost(),
            rest: buf,
            out: 0,
        }
    }

    /// The next `len` bytes as a buf of their own.
    ///
    /// # Panics
    /// If fewer are left.
    #[must_use]
    pub fn take(&mut self, len: usize) -> Buf {
        let rest = self.rest.split_off(len);
        self.out += len;
        std::mem::replace(&mut self.rest, rest)
    }

    /// Skips the next `len` bytes and writes zeros to them.
    ///
    /// # Panics
    /// If fewer are left.
    pub fn skip_zeroed(&mut self, len: usize) {
        let mut part = self.take(len);
        part.zero(0..len);
        self.absorb(part);
    }

    /// Takes a part back.
    ///
    /// # Panics
    /// If it is not a part of this buf.
    pub fn absorb(&mut self, part: Buf) {
        let mut parts = std::iter::once(&part).chain(part.rest());
        let mine = |p: &Buf| p.len == 0 || self.ghosts().any(|g| p.lies_in(g));
        assert!(
            parts.all(mine),
            "a part goes back to the buf that it was cut from"
        );
        self.out -= part.len();
    }

    fn ghosts(&self) -> impl Iterator<Item = &Buf> {
        std::iter::once(&self.whole).chain(self.whole.rest())
    }

    /// Bytes that are handed out.
    #[must_use]
    pub fn out(&self) -> usize {
        self.out
    }

    /// Returns the whole buf.
    ///
    /// # Panics
    /// If a part is still out.
    #[must_use]
    pub fn join(self) -> Buf {
        assert_eq!(self.out, 0, "every part is back before the whole is used");
        self.whole
    }
}
