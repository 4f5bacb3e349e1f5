//! The checksums of the format: crc32c for everything with `metadata_csum`, crc16 for descriptors with `uninit_bg`.
//! Input: bytes and a running seed. Output: the running value, without the usual final inversion.
//! Invariant: `crc32c(crc32c(s, a), b) == crc32c(s, a ++ b)`, so parts can be fed one by one.
//! Source: the kernel's ext4 documentation, "checksums"; the seeds checked by experiment against mke2fs.

use crate::types::Ino;

/// The longest structure that [`crc32c_with_hole`] copies: an inode of the usual size.
pub(crate) const SHORT: usize = 256;

/// The initial seed, unless another is specified.
pub const SEED: u32 = !0;

const CRC16: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_MODBUS);

/// Continues a crc32c (Castagnoli) from `seed` over `bytes`, raw: no inversion before or after.
#[must_use]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!seed, bytes)
}

/// The crc16 (polynomial 0x8005 reflected, starting from 0xFFFF) of the parts one after another.
#[must_use]
pub fn crc16(parts: &[&[u8]]) -> u16 {
    let mut digest = CRC16.digest();
    for part in parts {
        digest.update(part);
    }
    digest.finalize()
}

/// crc32c over `bytes` with the `len` bytes at `hole` taken as zeros: the checksum of a structure that contains its own
/// checksum. A hole that reaches past the end is cut there.
#[must_use]
pub fn crc32c_with_hole(seed: u32, bytes: &[u8], hole: usize, len: usize) -> u32 {
    let end = hole.saturating_add(len).min(bytes.len());
    let start = hole.min(end);
    // A short structure is summed at once, as a copy: each call has a cost of its own.
    let mut copy = [0u8; SHORT];
    if let Some(copy) = copy.get_mut(..bytes.len()) {
        copy.copy_from_slice(bytes);
        copy.get_mut(start..end).unwrap_or(&mut []).fill(0);
        return crc32c(seed, copy);
    }
    let before = bytes.get(..start).unwrap_or(&[]);
    let after = bytes.get(end..).unwrap_or(&[]);
    let zeros = [0u8; 8];
    let mut sum = crc32c(seed, before);
    let mut left = end.saturating_sub(start);
    while left > 0 {
        let n = left.min(zeros.len());
        sum = crc32c(sum, zeros.get(..n).unwrap_or(&[]));
        left = left.saturating_sub(n);
    }
    crc32c(sum, after)
}

/// The seed for everything that belongs to one inode: extent blocks, directory blocks, the inode itself.
/// `volume_seed` is [`crate::Superblock::csum_seed`].
#[must_use]
pub fn inode_seed(volume_seed: u32, ino: Ino, generation: u32) -> u32 {
    let both = u64::from(generation) << 32 | u64::from(ino.get());
    crc32c(volume_seed, &both.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_check_values() {
        assert_eq!(!crc32c(SEED, b"123456789"), 0xE306_9283);
        assert_eq!(crc16(&[b"1234", b"56789"]), 0x4B37);
    }

    #[test]
    fn parts_and_holes_add_up() {
        let data: Vec<u8> = (0..=255).collect();
        for cut in 0..data.len() {
            let (a, b) = data.split_at(cut);
            assert_eq!(crc32c(crc32c(7, a), b), crc32c(7, &data));
            let mut zeroed = data.clone();
            let end = (cut + 20).min(data.len());
            zeroed[cut..end].fill(0);
            assert_eq!(crc32c_with_hole(7, &data, cut, 20), crc32c(7, &zeroed));
        }
    }
}
