//! How hard to compress.
//!
//! Input: the number of an option. Output: the numbers of compressors. Invariant: a number that the compressor has not is refused before
//! anything is written.

use crate::args::Encoding;
use flate2::Compression;

/// See the module. None: as the program of that name does by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level(Option<u8>);

impl Level {
    /// The level for what is written in this encoding.
    ///
    /// # Errors
    /// There is nothing to compress, or no such level.
    pub(crate) fn new(level: Option<u8>, encoding: Encoding) -> Result<Level, String> {
        match (level, encoding) {
            (None, _) | (Some(1..=9), Encoding::Gzip) | (Some(1..=19), Encoding::Zstd) => {
                Ok(Level(level))
            }
            (Some(level), Encoding::Gzip | Encoding::Zstd) => Err(format!(
                "--level {level}: gz has the levels 1 to 9, and zst 1 to 19"
            )),
            (Some(_), _) => Err("--level is for what is compressed: gz and zst".to_owned()),
        }
    }

    pub(crate) fn of_gzip(self) -> Compression {
        self.0
            .map_or_else(Compression::default, |level| Compression::new(level.into()))
    }

    pub(super) fn of_zstd(self) -> i32 {
        self.0.map_or(zstd::DEFAULT_COMPRESSION_LEVEL, i32::from)
    }
}
