//! Writes through the cache, and atomic changes.

use crate::cached::alone;
use crate::common::fsck;
use crate::common::names::open;
use diorite::{Error, OpenFlags};

/// What is written while an atomic change is open is committed with it, or never; what was written before is kept in any case.
#[test]
fn what_is_written_belongs_to_the_change() {
    for commit in [false, true] {
        let (_dir, image, volume) = alone("32M", &["-t", "ext4", "-b", "4096"]);
        let before = volume.create("/before", 0o644).unwrap();
        before.write_bytes(0, &[1; 10_000]).unwrap();
        let atomic = volume.atomic().unwrap();
        assert_eq!(volume.page_cache().dirty_bytes(), 0, "it was dirty before");
        let during = volume.create("/during", 0o644).unwrap();
        during.write_bytes(0, &[2; 10_000]).unwrap();
        before.append_bytes(&[3; 10_000]).unwrap();
        match commit {
            true => atomic.commit().unwrap(),
            false => atomic.abandon().unwrap(),
        }
        drop((before, during));
        match commit {
            true => volume.close().unwrap(),
            false => drop(volume),
        }
        fsck(&image);
        let volume = open(&image, false);
        let mut bytes = vec![0; 30_000];
        let file = volume.open_path("/before", OpenFlags::default()).unwrap();
        let count = file.read_bytes(0, &mut bytes).unwrap();
        assert_eq!(count, if commit { 20_000 } else { 10_000 });
        assert_eq!(bytes[..10_000], [1; 10_000]);
        assert!(bytes[10_000..count].iter().all(|b| *b == 3));
        let during = volume.open_path("/during", OpenFlags::default());
        match commit {
            true => assert_eq!(during.unwrap().size(), 10_000),
            false => assert!(matches!(during, Err(Error::NotFound { .. }))),
        }
    }
}

/// A write that the transaction of an atomic change cannot take fails itself.
#[test]
fn a_change_that_is_too_large_is_refused_by_the_write() {
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=1"];
    let (_dir, _image, volume) = alone("32M", &args);
    let file = volume.create("/file", 0o644).unwrap();
    let atomic = volume.atomic().unwrap();
    let refused = (0..20_000u64).find_map(|n| file.write_bytes(n * 900_000, b"scattered").err());
    let refused = refused.expect("the journal has 1 MiB");
    assert!(
        matches!(
            refused.root(),
            Error::AtomicTooLarge { .. } | Error::NoSpace { .. }
        ),
        "{refused}"
    );
    drop(file);
    atomic.abandon().unwrap();
}
