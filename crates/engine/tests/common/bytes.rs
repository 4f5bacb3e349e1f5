//! A model of what fallocate operations do to a file's bytes.
//!
//! Input: the bytes of a file, and an operation on it. Output: its bytes afterwards. Invariants: what was never written is zero.
//! Limits: files that fit into memory.

use diorite::Fallocate;

/// Asserts that these are the bytes of the model; a panic says where the first differs.
#[track_caller]
pub fn same(what: &str, found: &[u8], model: &[u8]) {
    assert_eq!(found.len(), model.len(), "{what}: size");
    if let Some(at) = (0..found.len()).find(|i| found[*i] != model[*i]) {
        panic!(
            "{what}: byte {at} is {:#x}, not {:#x}",
            found[at], model[at]
        );
    }
}

pub fn write(bytes: &mut Vec<u8>, pos: usize, data: &[u8]) {
    if bytes.len() < pos + data.len() {
        bytes.resize(pos + data.len(), 0);
    }
    bytes[pos..pos + data.len()].copy_from_slice(data);
}

pub fn fallocate(bytes: &mut Vec<u8>, mode: Fallocate, pos: usize, len: usize) {
    let end = pos + len;
    let (grows, zeroes) = match mode {
        Fallocate::CollapseRange => return drop(bytes.drain(pos..end)),
        Fallocate::InsertRange => {
            return drop(bytes.splice(pos..pos, std::iter::repeat_n(0, len)));
        }
        Fallocate::Allocate { keep_size } => (!keep_size, false),
        Fallocate::PunchHole => (false, true),
        Fallocate::ZeroRange { keep_size } | Fallocate::WriteZeroes { keep_size } => {
            (!keep_size, true)
        }
    };
    if grows && bytes.len() < end {
        bytes.resize(end, 0);
    }
    let end = end.min(bytes.len());
    if zeroes && pos < end {
        bytes[pos..end].fill(0);
    }
}
