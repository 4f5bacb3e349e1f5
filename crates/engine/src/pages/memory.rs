//! The memory of one folio, and the part of the budget that it takes.
//!
//! Input: bytes granted by a [`PageCache`]. Output: memory for a folio; bufs to read into, and memory again. Invariants: what is granted is
//! given back when the memory goes; memory that nobody lends then becomes the next folio's without going back to the host. Limits: the
//! bytes of memory that was used before are those of another folio until they are written.

use super::PageCache;
use crate::error::Error;
use diorite_block::{Buf, Shared};
use std::ops::Range;

/// Bytes of a budget, given back on drop.
#[derive(Debug)]
pub(crate) struct Grant {
    cache: PageCache,
    bytes: u64,
    /// The memory is being read into.
    is_filling: bool,
}

/// Bytes of read-ahead under way, given back on drop.
#[derive(Debug)]
pub(crate) struct Ahead {
    cache: PageCache,
    bytes: u64,
}

impl Ahead {
    pub(super) fn new(cache: PageCache, bytes: u64) -> Ahead {
        Ahead { cache, bytes }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.cache.end_read_ahead(self.bytes);
    }
}

/// What became of the wish to write to memory.
#[derive(Debug)]
pub(super) enum Writable {
    /// Nobody reads it.
    Yes,
    /// It is a copy now; this is the memory that was lent, which keeps its part of the budget until it is dropped.
    Copied(Memory),
    /// A part is lent, and the budget has no room for a copy of so many bytes.
    NoRoom(u64),
}

/// Granted memory.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Always there until it is dropped.
    data: Option<Shared>,
    grant: Grant,
}

impl Grant {
    pub(super) fn new(cache: PageCache, bytes: u64) -> Grant {
        Grant {
            cache,
            bytes,
            is_filling: false,
        }
    }

    /// The memory that was read into, as [`Memory::into_buf`] gave it; none for any other buf.
    pub(crate) fn memory_of(mut self, buf: Buf) -> Option<Memory> {
        let data = Shared::from_buf(buf).ok()?;
        self.end_filling();
        Some(Memory::new(data, self))
    }
}

impl Grant {
    fn end_filling(&mut self) {
        if std::mem::take(&mut self.is_filling) {
            self.cache.end_filling(self.bytes);
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.end_filling();
        self.cache.give_back(self.bytes);
    }
}

impl Memory {
    pub(super) fn new(data: Shared, grant: Grant) -> Memory {
        Memory {
            data: Some(data),
            grant,
        }
    }

    pub(super) fn cache(&self) -> &PageCache {
        &self.grant.cache
    }

    fn data(&self) -> &Shared {
        self.data.as_ref().expect("it is there until the drop")
    }

    fn data_mut(&mut self) -> &mut Shared {
        self.data.as_mut().expect("it is there until the drop")
    }

    /// As a buf, to be read into.
    pub(crate) fn into_buf(mut self) -> (Buf, Grant) {
        let data = self.data.take().expect("it is there until the drop");
        let (cache, bytes) = (self.grant.cache.clone(), self.grant.bytes);
        // The bytes stay granted, to the new one.
        self.grant.bytes = 0;
        cache.begin_filling(bytes);
        let grant = Grant {
            cache,
            bytes,
            is_filling: true,
        };
        (data.into_buf(), grant)
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.data().bytes()
    }

    /// None while a part is lent.
    pub(super) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.data_mut().bytes_mut()
    }

    pub(super) fn lend(&self, bytes: Range<usize>) -> Buf {
        self.data().lend(bytes)
    }

    /// Makes it memory that nobody reads: a copy, if a part is lent. Blocks on nothing.
    ///
    /// # Errors
    /// `NoMemory`: the host has none for a copy.
    pub(super) fn make_writable(&mut self) -> Result<Writable, Error> {
        if self.data_mut().bytes_mut().is_some() {
            return Ok(Writable::Yes);
        }
        let len = self.data().len();
        let Some(mut copy) = self.grant.cache.memory_at_once(len as u64)? else {
            return Ok(Writable::NoRoom(len as u64));
        };
        let bytes = copy.data_mut().bytes_mut().expect("nobody else knows it");
        bytes.copy_from_slice(self.data().bytes());
        std::mem::swap(&mut self.data, &mut copy.data);
        Ok(Writable::Copied(copy))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Some(mut data) = self.data.take() else {
            return;
        };
        if data.bytes_mut().is_some() && self.grant.cache.keep_idle(data) {
            // Idle memory stays granted.
            self.grant.bytes = 0;
        }
    }
}
