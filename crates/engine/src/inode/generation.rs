//! Generation numbers: they tell an inode from earlier inodes with the same number.
//!
//! Input: the old inode, its number and the time. Output: a number that looks random, so that neither checksums of the old file's blocks
//! nor old handles of a file server fit the new inode. Invariants: it differs from the old number. Limits: not for secrets.

use diorite_format::Ino;

/// The generation for a new inode. `old`: that of the inode that had this number before.
pub(crate) fn fresh(old: u32, ino: Ino, nanos: u64) -> u32 {
    let seed = nanos ^ u64::from(ino.get()).rotate_left(40) ^ u64::from(old).rotate_left(17);
    let new = u32::try_from(mix(seed) >> 32).expect("32 bits are left");
    if new == old { old.wrapping_add(1) } else { new }
}

/// A well mixed function of `x` (the finaliser of splitmix64).
fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
