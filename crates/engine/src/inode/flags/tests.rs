//! Changes of the flag by which a file's data goes through the journal (`j`).

use crate::disk::cache::Kind;
use crate::error::Error;
use crate::mapping::MappingState;
use crate::queue::File;
use crate::testing::small_volume;
use diorite_block::Buf;
use diorite_format::InodeFlags;

fn filled(byte: u8) -> Buf {
    let mut buf = Buf::zeroed(1024);
    buf.as_mut_slice().fill(byte);
    buf
}

fn holds(file: &File, byte: u8) {
    let (read, done) = file.read_buf(0, Buf::zeroed(1024));
    assert_eq!(done.unwrap(), 1024);
    assert!(read.as_slice().iter().all(|b| *b == byte));
}

/// The cache has a block from before it was the file's, as when somebody read attributes that were removed since. When the file's data
/// begins to go through the cache, a read must return what was written since.
#[test]
fn data_through_the_journal_begins_with_what_is_on_the_device() {
    let volume = small_volume("16M", &[]);
    let inner = volume.inner();
    let file = volume.create("/file", 0o644).unwrap();
    file.write_buf(0, filled(1)).1.unwrap();
    let mapping = file.mappings(0, 1024).unwrap()[0];
    let MappingState::Written(place) = mapping.state else {
        panic!("{mapping:?}");
    };
    let kind = Kind::Xattr;
    let read = inner.cache.read(&inner.blocking, place, kind, |_| Ok(()));
    assert_eq!(read.unwrap()[0], 1);
    file.write_buf(0, filled(2)).1.unwrap();
    let flags = file.metadata().flags.with(InodeFlags::JOURNAL_DATA);
    file.set_flags(flags).unwrap();
    holds(&file, 2);
    drop(file);
    volume.close().unwrap();
}

/// Two threads set flags of a file, and one has the flags from before the other's change. The defect: whether the data begins or ceases
/// to go through the journal was decided before any lock was taken. So it ceased without a commit, and blocks of the log were written
/// home over newer data.
#[test]
fn data_leaves_the_journal_only_with_the_turn() {
    let volume = small_volume("16M", &[]);
    let (none, data) = (InodeFlags::NODUMP, InodeFlags::JOURNAL_DATA);
    let file = volume.create("/file", 0o644).unwrap();
    let (inode, plain) = (file.inode(), file.metadata().flags);
    file.write_buf(0, filled(1)).1.unwrap();
    // The first decides here, and goes on when the second has written.
    file.set_flags(plain.with(data)).unwrap();
    file.write_buf(0, filled(2)).1.unwrap();
    let done = inode.write_flags(plain.with(none), None).unwrap();
    assert_eq!(done, None);
    assert!(inode.is_journalled());
    holds(&file, 2);
    file.set_flags(plain.with(none)).unwrap();
    assert!(!inode.is_journalled());
    holds(&file, 2);
    file.write_buf(0, filled(3)).1.unwrap();
    volume.sync().unwrap();
    holds(&file, 3);
    // And the other way round.
    let done = inode.write_flags(plain.with(none).with(data), None);
    assert_eq!(done.unwrap(), None);
    assert!(!inode.is_journalled());
    drop(file);
    volume.close().unwrap();
}

/// Whether flags may be changed is checked under the lock: an inode that another thread has made immutable meanwhile stays as it is.
#[test]
fn an_inode_is_immutable_from_when_it_is_made_so() {
    let volume = small_volume("16M", &[]);
    let file = volume.create("/file", 0o644).unwrap();
    let plain = file.metadata().flags;
    let stays = plain.with(InodeFlags::IMMUTABLE);
    file.set_flags(stays).unwrap();
    let refused = file
        .inode()
        .write_flags(stays.with(InodeFlags::NODUMP), None)
        .unwrap_err();
    assert!(matches!(refused, Error::NotPermitted { .. }), "{refused}");
    assert_eq!(file.metadata().flags, stays);
    drop(file);
    volume.close().unwrap();
}
