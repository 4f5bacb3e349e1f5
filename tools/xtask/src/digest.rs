//! What it is: the checksum of a file's contents that manifests carry.
//! Input: pieces of the file in rising order of offset. Output: a `u32`.
//! The file is divided into chunks of 4096 bytes; the last one is padded with zeros. A chunk of zeros is skipped; any other chunk
//! adds its index (`u64`, little-endian) and its bytes to the checksum.
//! Invariant: holes, unwritten space and written zeros give the same digest, so the cost for a sparse file of 5 GiB is that of its
//! data. The size is recorded separately.

/// Bytes per chunk.
pub const CHUNK: usize = 4096;

/// A chunk of zeros. A chunk is compared with it as a whole, which is one memcmp.
static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// A digest that is being computed.
#[derive(Debug, Clone)]
pub struct Digest {
    crc: u32,
    index: u64,
    filled: usize,
    chunk: Box<[u8; CHUNK]>,
}

impl Default for Digest {
    fn default() -> Self {
        Self {
            crc: 0,
            index: 0,
            filled: 0,
            chunk: Box::new([0; CHUNK]),
        }
    }
}

impl Digest {
    /// Starts at offset 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The digest of a byte string.
    #[must_use]
    pub fn of(bytes: &[u8]) -> u32 {
        let mut digest = Self::new();
        digest.write(0, bytes);
        digest.finish()
    }

    /// Adds `bytes`, which are at `offset` of the file. The bytes between the last piece's end and `offset` count as zeros.
    ///
    /// # Panics
    /// If `offset` is before the end of the last piece.
    pub fn write(&mut self, offset: u64, mut bytes: &[u8]) {
        self.advance(offset);
        while !bytes.is_empty() {
            // debugfs writes the holes of a sparse file as zeros, which may be gigabytes.
            if self.filled == 0 && bytes.starts_with(&ZEROS) {
                self.index += 1;
                bytes = &bytes[CHUNK..];
                continue;
            }
            let take = bytes.len().min(CHUNK - self.filled);
            let (now, later) = bytes.split_at(take);
            self.chunk[self.filled..self.filled + take].copy_from_slice(now);
            self.filled += take;
            bytes = later;
            if self.filled == CHUNK {
                self.close_chunk();
            }
        }
    }

    /// Ends the last chunk and returns the digest.
    #[must_use]
    pub fn finish(mut self) -> u32 {
        self.close_chunk();
        self.crc
    }

    /// Moves to `offset`; the bytes in between are zeros.
    fn advance(&mut self, offset: u64) {
        let chunk = CHUNK as u64;
        let here = self.index * chunk + self.filled as u64;
        assert!(
            offset >= here,
            "piece at {offset} comes after {here} was passed"
        );
        if offset / chunk > self.index {
            self.close_chunk();
            self.index = offset / chunk;
        }
        // Smaller than CHUNK, so it fits whatever the width of usize.
        self.filled = (offset % chunk) as usize;
    }

    /// Adds the chunk unless it is all zeros, and starts the next one.
    fn close_chunk(&mut self) {
        if self.chunk[..] != ZEROS[..] {
            self.crc = crc32c::crc32c_append(self.crc, &self.index.to_le_bytes());
            self.crc = crc32c::crc32c_append(self.crc, &self.chunk[..]);
            self.chunk.fill(0);
        }
        self.index += 1;
        self.filled = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_written_zeros_are_the_same() {
        let mut whole = vec![0u8; 5 * CHUNK + 17];
        whole[3 * CHUNK + 5..3 * CHUNK + 9].copy_from_slice(b"data");
        let mut sparse = Digest::new();
        sparse.write(3 * CHUNK as u64 + 5, b"da");
        sparse.write(3 * CHUNK as u64 + 7, b"ta");
        assert_eq!(Digest::of(&whole), sparse.finish());
        assert_eq!(Digest::of(&[0; 9]), 0);
    }

    #[test]
    fn place_matters() {
        let mut first = Digest::new();
        first.write(0, b"x");
        let mut second = Digest::new();
        second.write(CHUNK as u64, b"x");
        assert_ne!(first.finish(), second.finish());
    }

    #[test]
    fn pieces_do_not_matter() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for step in [1, 13, 4095, 4096, 4097] {
            let mut digest = Digest::new();
            for (n, piece) in bytes.chunks(step).enumerate() {
                digest.write((n * step) as u64, piece);
            }
            assert_eq!(digest.finish(), Digest::of(&bytes));
        }
    }
}
