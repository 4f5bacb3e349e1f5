//! What it is: volumes for the targets, and functions that cut an input into pieces.
//! Input: the first byte of a fuzz input. Output: a checked superblock of that kind, without checksums.

pub mod files;
pub mod images;

use diorite_format::Superblock;

/// Makes a superblock. Bits of the first byte: 0-1 block size (1, 2, 4, 64 KiB), 2 64bit, 3 filetype, 4 inline_data and ea_inode, 5
/// large_dir, 6 256-byte inodes, 7 dir_index.
pub fn volume(kind: u8) -> Superblock {
    let log = [0u32, 1, 2, 6][usize::from(kind & 3)];
    let bit = |n: u8, value: u32| if kind >> n & 1 != 0 { value } else { 0 };
    let block_size = 1024u32 << log;
    let per_group = block_size * 8;
    let first = u32::from(log == 0);
    let groups = 64u32;
    let inodes_per_group = 2048u32;
    let mut b = [0u8; 1024];
    let mut put = |at: usize, v: u32| b[at..at + 4].copy_from_slice(&v.to_le_bytes());
    put(0x0, groups * inodes_per_group);
    put(0x4, groups * per_group + first);
    put(0x14, first);
    put(0x18, log);
    put(0x1C, log);
    put(0x20, per_group);
    put(0x24, per_group);
    put(0x28, inodes_per_group);
    put(0x38, 0xEF53);
    put(0x4C, 1);
    put(0x54, 11);
    put(0x58, if kind >> 6 & 1 != 0 { 256 } else { 128 });
    put(0x5C, 0x8 | bit(7, 0x20));
    put(
        0x60,
        0x240 | bit(2, 0x80) | bit(3, 0x2) | bit(4, 0x8400) | bit(5, 0x4000),
    );
    put(0x64, 0x6B);
    b[0xFE] = 64;
    Superblock::parse(&b).expect("a legal volume")
}

/// Takes `n` bytes from the front, filled up with zeros.
pub fn take(data: &mut &[u8], n: usize) -> Vec<u8> {
    let have = n.min(data.len());
    let mut piece = data[..have].to_vec();
    piece.resize(n, 0);
    *data = &data[have..];
    piece
}

/// Takes the first byte.
pub fn byte(data: &mut &[u8]) -> u8 {
    take(data, 1)[0]
}
