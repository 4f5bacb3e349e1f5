//! Names for addresses: which part of a program's memory a trace of accesses shows.
//!
//! Input: references. Output: names with the ranges of addresses that they lie in. Invariants: a range is that of a value that lives now.
//! Limits: for measurements; the value may move or end later.

use std::ops::Range;

/// Parts of memory by name.
#[derive(Debug, Default)]
pub struct Parts(Vec<(String, Range<usize>)>);

impl Parts {
    /// None yet.
    #[must_use]
    pub fn new() -> Parts {
        Parts::default()
    }

    /// Names the memory of a value; not what it points to.
    pub fn add<T: ?Sized>(&mut self, name: impl Into<String>, value: &T) {
        let from = std::ptr::from_ref(value).cast::<u8>().addr();
        self.add_range(name, from, size_of_val(value));
    }

    /// Names `len` bytes from an address on.
    pub fn add_range(&mut self, name: impl Into<String>, from: usize, len: usize) {
        self.0.push((name.into(), from..from.saturating_add(len)));
    }

    /// All of them.
    #[must_use]
    pub fn into_vec(self) -> Vec<(String, Range<usize>)> {
        self.0
    }
}
