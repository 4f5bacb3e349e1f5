//! The form of an undo file: a header, a copy of the superblock, and blocks of keys, each followed by what its keys lead to.
//!
//! Input: bytes. Output: a [`Header`], [`Key`]s, and the bytes of these. Invariants: no number of the file is used before it is checked.
//! Limits: version 2, which e2fsprogs writes since 1.43. Source: undo files of e2fsprogs 1.47, and what e2undo makes of changed ones.

use diorite_format::csum::{crc32c, crc32c_with_hole};

/// Bytes of a header.
pub(super) const HEADER: usize = 512;
/// Where its checksum is, over all before it.
const HEADER_CRC: usize = 508;
const MAGIC: &[u8; 8] = b"E2UNDO02";
const KEY_MAGIC: u32 = 0xcade_cade;
/// Bytes of a key, and of the head of a block of keys.
pub(super) const KEY: usize = 16;
/// The writer has ended.
const FINISHED: u32 = 1;
/// A compatible feature: the header says where in the file or disk the device begins.
const HAS_OFFSET: u32 = 1;
/// Behind what e2fsprogs uses, in bytes that it leaves alone: [`Sizes`].
const SIZES: usize = 448;
const SIZES_MAGIC: &[u8; 8] = b"diorite1";
/// Sizes of blocks that can be.
const BLOCKS: std::ops::RangeInclusive<u32> = 1024..=1 << 20;

/// The head of an undo file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) keys: u64,
    /// In blocks of the undo file: the copy of the superblock, and the first block of keys.
    pub(super) super_block: u64,
    pub(super) key_block: u64,
    /// Bytes of a block of the undo file.
    pub(super) block_size: u32,
    /// Bytes of a block of the device, in which keys count.
    pub(super) fs_block_size: u32,
    /// Of the superblock that was copied. 0 for one that has a checksum of its own.
    pub(super) super_crc: u32,
    pub(super) finished: bool,
    /// Incompatible features, of both kinds; none is known.
    pub(super) unknown: u32,
    pub(super) offset: Option<u64>,
    pub(super) sizes: Option<Sizes>,
}

/// Bytes of the device. A change of its size is announced here, durably, before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Before the first change.
    pub(super) before: u64,
    /// After the last.
    pub(super) after: u64,
    /// What it had when the change to `after` was announced, if that is not known to be done. 0: no change is announced.
    pub(super) from: u64,
}

impl Sizes {
    pub(super) fn same(bytes: u64) -> Sizes {
        Sizes {
            before: bytes,
            after: bytes,
            from: 0,
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]))
}

impl Header {
    /// Reads a header. Returns with it whether its checksum is right.
    pub(super) fn parse(bytes: &[u8; HEADER]) -> Result<(Header, bool), String> {
        if &bytes[..8] != MAGIC {
            return Err("it is no undo file".to_owned());
        }
        let is_right = crc32c(!0, &bytes[..HEADER_CRC]) == u32_at(bytes, HEADER_CRC);
        let has_sizes = &bytes[SIZES..SIZES + 8] == SIZES_MAGIC;
        let header = Header {
            keys: u64_at(bytes, 8),
            super_block: u64_at(bytes, 16),
            key_block: u64_at(bytes, 24),
            block_size: u32_at(bytes, 32),
            fs_block_size: u32_at(bytes, 36),
            super_crc: u32_at(bytes, 40),
            finished: u32_at(bytes, 44) & FINISHED != 0,
            unknown: u32_at(bytes, 52) | u32_at(bytes, 56),
            offset: (u32_at(bytes, 48) & HAS_OFFSET != 0).then(|| u64_at(bytes, 64)),
            sizes: has_sizes.then(|| Sizes {
                before: u64_at(bytes, SIZES + 8),
                after: u64_at(bytes, SIZES + 16),
                from: u64_at(bytes, SIZES + 24),
            }),
        };
        for size in [header.block_size, header.fs_block_size] {
            if !size.is_power_of_two() || !BLOCKS.contains(&size) {
                return Err(format!("its blocks cannot have {size} bytes"));
            }
        }
        Ok((header, is_right))
    }

    pub(super) fn bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, MAGIC);
        put(8, &self.keys.to_le_bytes());
        put(16, &self.super_block.to_le_bytes());
        put(24, &self.key_block.to_le_bytes());
        put(32, &self.block_size.to_le_bytes());
        put(36, &self.fs_block_size.to_le_bytes());
        put(40, &self.super_crc.to_le_bytes());
        put(44, &u32::from(self.finished).to_le_bytes());
        if let Some(offset) = self.offset {
            put(48, &HAS_OFFSET.to_le_bytes());
            put(64, &offset.to_le_bytes());
        }
        if let Some(sizes) = self.sizes {
            put(SIZES, SIZES_MAGIC);
            put(SIZES + 8, &sizes.before.to_le_bytes());
            put(SIZES + 16, &sizes.after.to_le_bytes());
            put(SIZES + 24, &sizes.from.to_le_bytes());
        }
        let crc = crc32c(!0, &bytes[..HEADER_CRC]);
        bytes[HEADER_CRC..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// How many keys a block of them has room for.
    pub(super) fn keys_per_block(&self) -> usize {
        self.block_size as usize / KEY - 1
    }

    /// So many bytes as whole blocks of the undo file.
    pub(super) fn padded(&self, len: u32) -> u64 {
        u64::from(len).next_multiple_of(u64::from(self.block_size))
    }
}

/// A piece of the device in an undo file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// In blocks of the device.
    pub(super) block: u64,
    pub(super) crc: u32,
    /// Bytes.
    pub(super) len: u32,
}

/// Reads the first `count` keys of a block of them. Returns with them whether its checksum is right.
pub(super) fn parse_keys(bytes: &[u8], count: usize) -> Option<(Vec<Key>, bool)> {
    if u32_at(bytes, 0) != KEY_MAGIC {
        return None;
    }
    let is_right = crc32c_with_hole(!0, bytes, 4, 4) == u32_at(bytes, 4);
    let key = |raw: &[u8]| Key {
        block: u64_at(raw, 0),
        crc: u32_at(raw, 8),
        len: u32_at(raw, 12),
    };
    let keys = bytes[KEY..].chunks_exact(KEY).take(count).map(key);
    Some((keys.collect(), is_right))
}

/// A block of keys of so many bytes. There are no more keys than it has room for.
pub(super) fn key_bytes(keys: &[Key], block_size: u32) -> Vec<u8> {
    let mut bytes = vec![0; block_size as usize];
    bytes[..4].copy_from_slice(&KEY_MAGIC.to_le_bytes());
    for (key, raw) in keys.iter().zip(bytes[KEY..].chunks_exact_mut(KEY)) {
        raw[..8].copy_from_slice(&key.block.to_le_bytes());
        raw[8..12].copy_from_slice(&key.crc.to_le_bytes());
        raw[12..].copy_from_slice(&key.len.to_le_bytes());
    }
    let crc = crc32c(!0, &bytes);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    bytes
}
