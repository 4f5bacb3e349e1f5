//! Whose times an entry of the list stands for.
//!
//! Input: a small volume. Output: none. Invariants: none of its own. Limits: what becomes of times is looked at in `tests/rules/times.rs`.

use crate::inode::read_inode;
use crate::testing::small_volume;
use std::sync::Arc;

/// A number is given out again while the list's writer still has the inode that had it before, of which no time is owed any more: what is
/// noted of the new one stays noted.
#[test]
fn another_one_with_the_same_number_stays() {
    let volume = small_volume("16M", &[]);
    let ino = volume.create("/file", 0o644).unwrap().ino();
    let volume = volume.inner();
    let old = Arc::new(read_inode(volume, ino).unwrap());
    let new = volume.inode(ino).unwrap();
    new.touch(1);
    assert!(volume.has_noted_times());
    volume.forget_written_times(&old);
    assert!(volume.has_noted_times());
    volume.write_noted_times().unwrap();
    assert!(!volume.has_noted_times());
}
