//! A second mount of an image that has a server.
//!
//! Input: mounts under other names, detached, and about to end. Output: none. Invariants: whoever finds a mount in use fails with its
//! place, and does not wait for its end; whoever finds one that ends waits for that. Limits: none of them asserts a time: a mount that
//! waits for one in use is ended by the patience of `bed`, and has no message then.

use crate::bed::{Bed, diorite, is_root, said, texts, within};
use crate::common::{scratch, skip};
use std::fs::{self, File};
use std::io::Write;

/// What a second mount of the image says, which fails.
fn refused(bed: &Bed, options: &[&str]) -> String {
    let other = scratch();
    let (image, place) = (bed.image.to_str().unwrap(), other.path().to_str().unwrap());
    let done = diorite(&[&["mount"], options, &[image, place]].concat());
    let (_, err) = texts(&done);
    assert_eq!(done.status.code(), Some(1), "{err}");
    err
}

/// The mount table does not have the image's name.
#[test]
fn a_mount_with_another_source_is_found() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&["-o", "fsname=something else"]);
    let hint = format!("it is mounted at {}", bed.at.display());
    for options in [&[][..], &["-o", "fsname=third"]] {
        let err = refused(&bed, options);
        assert!(err.contains(&hint), "{err}");
    }
    bed.end();
}

/// Nor does it have a mount that was detached while somebody used it.
#[test]
fn a_detached_mount_in_use_is_found() {
    if !is_root() {
        return skip("umount -l needs root");
    }
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&[]);
    let mut file = File::create(bed.path("file")).unwrap();
    said("umount", &["-l", bed.at.to_str().unwrap()]);
    assert!(!bed.is_mounted());
    let err = refused(&bed, &[]);
    let hint = format!("its mount at {} is still in use", bed.at.display());
    assert!(err.contains(&hint), "{err}");
    // It goes on for its user, and the next mount has what that wrote.
    file.write_all(b"to the end").unwrap();
    file.sync_all().unwrap();
    drop(file);
    bed.mount(&[]);
    assert_eq!(fs::read(bed.path("file")).unwrap(), b"to the end");
    bed.end();
}

/// umount(8) does not wait for the server; the next mount does, each time.
#[test]
fn mounts_follow_each_other() {
    if !is_root() {
        return skip("umount(8) needs root here");
    }
    let Some(bed) = Bed::new(&[]) else { return };
    for n in 0..20 {
        bed.mount(&["-o", &format!("fsname=number {n}")]);
        for old in 0..n {
            let text = fs::read_to_string(bed.path(&format!("{old}"))).unwrap();
            assert_eq!(text, old.to_string());
        }
        fs::write(bed.path(&format!("{n}")), n.to_string()).unwrap();
        let lazily = if n % 3 == 0 { &["-l"][..] } else { &[] };
        let words = [lazily, &[bed.at.to_str().unwrap()]].concat();
        // A program that another test starts has the files open until it is another program.
        let mut tries = 0;
        while !within("umount", &words).status.success() {
            tries += 1;
            assert!(tries < 100, "the mount stays busy");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    bed.mount(&[]);
    bed.end();
}
