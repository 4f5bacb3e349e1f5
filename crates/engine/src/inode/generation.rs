//! Generation numbers: what tells an inode from those that had its number before.
//!
//! Input: the old inode, its number and the time. Output: a number that looks random and is not the old one, so that sums of blocks of the file that
//! was there do not fit the new one, nor a handle that somebody kept of it. Invariants: it differs from the old one. Limits: no secret.

use diorite_format::{Ino, Inode as DiskInode};

/// The number of a new inode.
pub(crate) fn fresh(old: Option<&DiskInode>, ino: Ino, nanos: u64) -> u32 {
    let old = old.map_or(0, |disk| disk.generation);
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
