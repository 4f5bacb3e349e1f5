//! The stored length of a directory record, in blocks of names and in hash-tree nodes.
//!
//! Source: the kernel's ext4 documentation ("directory entries", `rec_len`), for blocks of 64 KiB.

use crate::Superblock;

/// Decodes a stored record length. With 64 KiB blocks the two low bits, always clear in a length, hold bits 16 and 17, and both
/// 0 and 65,535 mean the whole block.
pub(crate) fn record_len(stored: u16, huge_block: bool) -> u32 {
    let v = u32::from(stored);
    if !huge_block {
        return v;
    }
    if stored == 0 || stored == u16::MAX {
        return 65536;
    }
    (v & 0xFFFC) | ((v & 3) << 16)
}

/// As [`record_len`], in this volume's encoding.
pub(crate) fn record_len_of(sb: &Superblock, stored: u16) -> u32 {
    record_len(stored, sb.block_size() >= 65536)
}
