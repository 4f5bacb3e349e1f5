//! What is behind the end of a stream.
//!
//! Input: a stream at its end. Output: a warning, where other programs give one. Invariant: the rest is read, up to a bound, so that its
//! writer does not get a closed pipe. Limits: [`MOST`] bytes.

use crate::warnings::Warnings;
use std::io::{self, Read};

/// Bytes behind an end that are read, at most.
const MOST: u64 = 16 << 20;

/// Reads on, and does not mind what is there.
pub(crate) fn read(from: &mut (impl Read + ?Sized)) -> io::Result<()> {
    io::copy(&mut from.take(MOST), &mut io::sink()).map(drop)
}

/// Reads on behind bytes that are no stream of `kind`, and warns of them, as gunzip does.
pub(crate) fn told(
    from: &mut (impl Read + ?Sized),
    kind: &str,
    warnings: &Warnings,
) -> io::Result<()> {
    warnings.add(format!(
        "{kind}: what is behind the end of the stream is ignored"
    ));
    read(from)
}
