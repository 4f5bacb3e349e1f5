//! Compresses a stream by zstd.
//!
//! Input: a stream. Output: one frame, with a checksum as `zstd` writes it. Limits: one thread.

use super::Level;
use crate::copying::ranges::LARGE;
use std::io::{self, Read, Write};
use zstd::stream::write::Encoder;

/// See the module. `size` is that of the stream, if it is known.
pub(crate) fn compress(
    mut from: impl Read,
    out: impl Write,
    level: Level,
    size: Option<u64>,
) -> io::Result<()> {
    let mut encoder = Encoder::new(out, level.of_zstd())?;
    encoder.include_checksum(true)?;
    encoder.set_pledged_src_size(size)?;
    let mut piece = vec![0; LARGE];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return encoder.finish()?.flush(),
            Ok(count) => encoder.write_all(&piece[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
