//! Entries of the list of noted times when an inode number is used again.
//!
//! Input: a small volume. Output: none. Invariants: none of its own. Limits: times themselves are tested in `tests/rules/times.rs`.

use crate::inode::read_inode;
use crate::testing::small_volume;
use diorite_format::Ino;

/// An inode number is used again while the thread that writes the list still has the old inode, which owes no times any more. The times
/// noted of the new inode must stay in the list.
#[test]
fn another_one_with_the_same_number_stays() {
    let volume = small_volume("16M", &[]);
    let ino = volume.create("/file", 0o644).unwrap().ino();
    let volume = volume.inner();
    let old = read_inode(volume, ino).unwrap();
    let new = volume.inode(ino).unwrap();
    new.touch(1);
    assert!(volume.has_noted_times());
    volume.forget_written_times(&old);
    assert!(volume.has_noted_times());
    volume.write_noted_times().unwrap();
    assert!(!volume.has_noted_times());
}

/// Once the list was given up nothing is noted, and nothing kept in memory.
#[test]
fn nothing_is_noted_behind_the_end() {
    let volume = small_volume("16M", &[]);
    let ino = volume.create("/file", 0o644).unwrap().ino();
    let volume = volume.inner();
    volume.inode(ino).unwrap().touch(1);
    assert!(volume.has_noted_times());
    volume.end_own_changes();
    assert!(!volume.has_noted_times());
    volume.inode(Ino::ROOT).unwrap().touch(2);
    assert!(!volume.has_noted_times());
}
