//! Inodes on the orphan list: which lookups find them, and what becomes of the list if it cannot be changed.

use crate::SetAttr;
use crate::error::Error;
use crate::options::OpenFlags;
use crate::testing::small_volume;
use diorite_format::Ino;

/// A lookup must not return an inode that is being deleted, as another inode gets its number soon. The defect: it was found in memory, as
/// a file with a name.
#[test]
fn what_is_being_deleted_is_not_found() {
    let volume = small_volume("16M", &[]);
    let inner = volume.inner();
    let file = volume.create("/file", 0o644).unwrap();
    let ino = file.ino();
    volume.unlink("/file").unwrap();
    let going = super::doomed::read(inner, ino).unwrap();
    let is_gone = |error: Error| matches!(error, Error::NotInUse { .. });
    assert!(is_gone(inner.inode(ino).unwrap_err()));
    assert!(is_gone(
        volume.open_ino(ino, OpenFlags::default()).unwrap_err()
    ));
    let times = SetAttr::default();
    assert!(is_gone(volume.set_attr(ino, &times).unwrap_err()));
    // A neighbour that leaves the list finds it.
    assert!(inner.known_inode(ino).is_some());
    drop(going);
    drop(file);
    volume.close().unwrap();
}

/// A file without a name is on the list for that, and because of a truncation that has left blocks behind its size. When it gets a name it
/// stays on the list because of the truncation.
#[test]
fn what_is_cut_stays_on_the_list_when_it_is_named() {
    let volume = small_volume("16M", &[]);
    let list = &volume.inner().orphans;
    let file = volume.temporary("/", 0o644).unwrap();
    file.inode().note_cut(true);
    volume.link_file(&file, "/file").unwrap();
    assert!(list.has(file.ino()));
    // Whoever makes the file longer ends it.
    file.truncate(4096).unwrap();
    assert!(!list.has(file.ino()));
    drop(file);
    volume.close().unwrap();
}

/// An inode that cannot be deleted does not keep others from being deleted when the volume is closed. Defect: the first failure ended the
/// last attempt.
#[test]
fn what_cannot_be_deleted_keeps_no_others() {
    let volume = small_volume("16M", &[]);
    let list = &volume.inner().orphans;
    let going = volume.temporary("/", 0o644).unwrap();
    // No inode of the volume, so it cannot be read.
    let damaged = Ino::new(u32::MAX);
    let ino = going.ino();
    drop(going);
    list.doom(damaged);
    assert!(list.has(ino));
    super::delete_doomed_best_effort(volume.inner());
    assert!(!list.has(ino));
    assert_eq!(list.next_doomed(), Some(damaged));
    volume.close().unwrap();
}
