//! Inodes that get pages when the volume is closed.

use crate::error::Error;
use crate::testing::small_volume;

/// A write that has passed its checks meets the end of the volume. The defect: the refusal made a guard, and dropped it under the lock
/// that the guard's end takes.
#[test]
fn a_closed_volume_keeps_no_inode() {
    let volume = small_volume("16M", &[]);
    let file = volume.create("/file", 0o644).unwrap();
    let cached = &volume.inner().cached;
    assert!(cached.keep(file.inode()).is_some());
    cached.close();
    assert!(cached.keep(file.inode()).is_none());
    let refused = cached.note_dirty(file.inode());
    assert!(matches!(refused, Err(Error::ShutDown)), "{refused:?}");
    drop(file);
    volume.close().unwrap();
}
