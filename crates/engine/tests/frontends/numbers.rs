//! Inodes by their numbers, which clients may keep for longer than a name exists, and may make up.
//!
//! Input: small volumes. Output: none. Invariant: e2fsck judges each volume after it is closed. Limits: none of its own.

use crate::common::fixture::writable;
use crate::common::fsck;
use crate::common::names::fresh;
use crate::frontends::permissions;
use diorite::{Error, Fallocate, File, Ino, OpenFlags, OpenOptions, SetAttr, Timestamp, Volume};
use diorite_block::Buf;
use std::time::{Duration, Instant};

/// An inode that a frontend has declared known can still be opened by its number without a name, until it was forgotten as often.
#[test]
fn what_is_known_stays_without_a_name() {
    let (_dir, image, volume) = fresh("8M", &["-t", "ext4"]);
    let file = volume.create("/file", 0o644).unwrap();
    let (ino, flags) = (file.ino(), writable());
    file.write_buf(0, Buf::zeroed(64 << 10)).1.unwrap();
    let before = volume.usage().free_inodes;
    volume.know(ino).unwrap();
    volume.know(ino).unwrap();
    drop(file);
    volume.unlink("/file").unwrap();
    volume.sync().unwrap();
    volume.forget(ino, 1);
    let again = volume.open_ino(ino, flags).unwrap();
    assert_eq!(again.size(), 64 << 10);
    again.write_buf(64 << 10, Buf::zeroed(4096)).1.unwrap();
    volume.set_attr(ino, &permissions(0o600)).unwrap();
    drop(again);
    volume.sync().unwrap();
    assert_eq!(volume.usage().free_inodes, before, "it is there");
    volume.forget(ino, 7);
    assert_eq!(volume.usage().free_inodes, before + 1, "it is gone");
    assert!(matches!(
        volume.open_ino(ino, flags),
        Err(Error::NotInUse { .. })
    ));
    assert!(matches!(volume.know(ino), Err(Error::NotInUse { .. })));
    volume.forget(ino, 1);
    // An inode without a name cannot be opened by its number, unless it is known.
    let open = volume.create("/open", 0o644).unwrap();
    volume.unlink("/open").unwrap();
    assert!(matches!(
        volume.open_ino(open.ino(), flags),
        Err(Error::NotInUse { .. })
    ));
    drop(open);
    // An inode that is still known when the volume is closed is deleted then, if it has no name.
    let left = volume.create("/left", 0o644).unwrap().ino();
    volume.know(left).unwrap();
    volume.unlink("/left").unwrap();
    volume.close().unwrap();
    fsck(&image);
}

/// Of the inodes that are known only some are held in memory. The defect: an empty file that was not held any more was deleted with its
/// last name, and another file got its number while the frontend still knew the first by it.
#[test]
fn what_is_known_and_not_held_stays_without_a_name() {
    let (_dir, image, volume) = fresh("8M", &["-t", "ext4", "-N", "1500"]);
    let ino = volume.create("/file", 0o644).unwrap().ino();
    volume.know(ino).unwrap();
    // More than are held.
    for n in 0..1100 {
        let other = volume.create(&format!("/{n}"), 0o644).unwrap().ino();
        volume.know(other).unwrap();
    }
    volume.unlink("/file").unwrap();
    assert_eq!(volume.metadata(ino).unwrap().0.links, 0);
    volume.set_attr(ino, &permissions(0o600)).unwrap();
    assert_ne!(volume.create("/next", 0o644).unwrap().ino(), ino);
    volume.forget(ino, 1);
    assert!(matches!(volume.metadata(ino), Err(Error::NotInUse { .. })));
    assert_eq!(volume.create("/again", 0o644).unwrap().ino(), ino);
    volume.close().unwrap();
    fsck(&image);
}

/// Numbers come from clients. The defect: the orphan file and the values of attributes could be given names, owners and times, the first
/// be opened for writing; a value's times are its sum and the count of those that have it.
#[test]
fn the_volumes_own_inodes_are_nobodys_to_change() {
    let args = ["-t", "ext4", "-O", "orphan_file,ea_inode"];
    let (_dir, image, volume) = fresh("16M", &args);
    let file = volume.create("/file", 0o644).unwrap();
    let before: Vec<u32> = (1..40).collect();
    let is_used = |ino: &u32| {
        let opened = volume.open_ino(Ino::new(*ino), OpenFlags::default());
        opened.is_ok_and(|file| file.metadata().holds_value())
    };
    volume
        .set_xattr(file.ino(), "user.long", &[7; 20_000])
        .unwrap();
    volume.sync().unwrap();
    let value = before.into_iter().find(is_used).map(Ino::new).unwrap();
    let orphans = volume.superblock().orphan_file().unwrap();
    for ino in [orphans, value] {
        let set = SetAttr::default().uid(1);
        let refused = [
            volume.link_ino(ino, "/named"),
            volume.set_attr(ino, &set),
            volume.set_xattr(ino, "user.x", b"x"),
            volume.open_ino(ino, writable()).map(drop),
        ];
        for (n, done) in refused.into_iter().enumerate() {
            assert!(
                matches!(done, Err(Error::NotPermitted { .. })),
                "{n}: {done:?}"
            );
        }
    }
    drop(file);
    volume.close().unwrap();
    fsck(&image);
}

/// A file without a name or a user takes no space. The defect: the list of noted times kept a file that was written, and then had its times
/// set, or its size changed: its space stayed in use until something else was deleted.
#[test]
fn what_is_forgotten_takes_no_space() {
    let (_dir, image, volume) = fresh("64M", &["-t", "ext4"]);
    let free = || volume.space().free;
    let empty = free();
    type Change = fn(&File);
    let changes: [(&str, Change); 6] = [
        ("nothing", |_| {}),
        ("shorter", |file| file.truncate(1 << 20).unwrap()),
        ("longer", |file| file.truncate(8 << 20).unwrap()),
        ("times", |file| {
            let times = SetAttr::default()
                .mtime(Timestamp::default())
                .atime(Timestamp::default());
            file.set_attr(&times).unwrap();
        }),
        ("space", |file| {
            let mode = Fallocate::Allocate { keep_size: true };
            file.fallocate(mode, 4 << 20, 1 << 20).unwrap();
        }),
        ("pages", |file| {
            file.write_bytes(5, b"bytes").map(drop).unwrap()
        }),
    ];
    for synced in [false, true] {
        for (what, change) in changes {
            let file = volume.create("/file", 0o644).unwrap();
            let ino = file.ino();
            volume.know(ino).unwrap();
            file.write_buf(0, Buf::zeroed(4 << 20)).1.unwrap();
            let mut read = [0; 100];
            file.read_bytes(0, &mut read).unwrap();
            if synced {
                file.sync().unwrap();
            }
            // As a frontend does it: through another open file.
            change(&volume.open_ino(ino, writable()).unwrap());
            drop(file);
            volume.unlink("/file").unwrap();
            volume.forget(ino, 1);
            assert_eq!(free(), empty, "{what}, synced: {synced}");
        }
    }
    volume.close().unwrap();
    fsck(&image);
}

/// As above, if the last user is one that deletes nothing: the keeper does it. Another one asks for it.
#[test]
fn the_space_of_a_file_comes_back_whoever_uses_it_last() {
    const PATIENCE: Duration = Duration::from_secs(60);
    /// Longer than it takes the keeper to do what is left.
    const IDLE: Duration = Duration::from_millis(500);
    let (_dir, image, volume) = fresh("64M", &["-t", "ext4"]);
    volume.close().unwrap();
    let options = OpenOptions::writable().commit_interval(Duration::from_millis(50));
    let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
    let empty = volume.space().free;
    for asks in [true, false] {
        let queue = volume.queue(4).unwrap();
        let file = volume.create("/file", 0o644).unwrap();
        file.write_buf(0, Buf::zeroed(4 << 20)).1.unwrap();
        let attached = queue.attach(&file).unwrap();
        drop(file);
        volume.unlink("/file").unwrap();
        volume.make_clean().unwrap();
        std::thread::sleep(IDLE);
        assert_ne!(volume.space().free, empty, "it is attached");
        queue.detach(attached);
        if asks {
            volume.delete_unused();
            assert_eq!(volume.space().free, empty);
        }
        let began = Instant::now();
        while volume.space().free != empty {
            assert!(began.elapsed() < PATIENCE, "its space stays in use");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    volume.close().unwrap();
    fsck(&image);
}
