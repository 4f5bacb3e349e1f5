//! A flag that changes the way of a file's data.

use crate::disk::cache::Kind;
use crate::mapping::MappingState;
use crate::testing::small_volume;
use diorite_block::Buf;
use diorite_format::InodeFlags;

/// The cache has a block as it was before it was the file's: of somebody who looked at attributes that were just taken away, say. Data that
/// begins to go through the cache is what was written since.
#[test]
fn data_through_the_journal_begins_with_what_is_on_the_device() {
    let volume = small_volume("16M", &[]);
    let inner = volume.inner();
    let file = volume.create("/file", 0o644).unwrap();
    let filled = |byte| {
        let mut buf = Buf::zeroed(1024);
        buf.as_mut_slice().fill(byte);
        buf
    };
    file.write_at(0, filled(1)).1.unwrap();
    let mapping = file.mappings(0, 1024).unwrap()[0];
    let MappingState::Written(place) = mapping.state else {
        panic!("{mapping:?}");
    };
    let kind = Kind::Xattr;
    let read = inner.cache.read(&inner.blocking, place, kind, |_| Ok(()));
    assert_eq!(read.unwrap()[0], 1);
    file.write_at(0, filled(2)).1.unwrap();
    let flags = file.metadata().flags.with(InodeFlags::JOURNAL_DATA);
    file.set_flags(flags).unwrap();
    let (read, done) = file.read_at(0, Buf::zeroed(1024));
    assert_eq!(done.unwrap(), 1024);
    assert!(read.as_slice().iter().all(|b| *b == 2));
    drop(file);
    volume.close().unwrap();
}
