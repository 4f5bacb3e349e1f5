//! Copies and comparisons with many requests in flight.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `ranges` | two devices, ranges of them -> the second one written, or compared |
//! | `files` | files of images, many at once -> their data out of an image, into one, or from one to another |
//! | `in_order` | a file of an image -> its bytes in order, for a stream |
//!
//! Input: open devices and files. Output: writes; calls with bytes. Invariant: memory is bounded by pools. Limits: those of the pools.

pub(crate) mod files;
pub(crate) mod in_order;
pub(crate) mod ranges;
