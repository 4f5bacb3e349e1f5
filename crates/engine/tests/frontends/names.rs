//! Names by the inode of their directory and the name in it, as servers know them.
//!
//! Input: small volumes. Output: none. Invariant: e2fsck judges each volume after it is closed. Limits: none of its own.

use crate::common::fsck;
use crate::common::names::fresh;
use diorite::dir::RenameFlags;
use diorite::{Error, Ino};
use std::time::{Duration, Instant};

/// Each change of a name that can be made by path can also be made by the directory's inode and the name in it.
#[test]
fn names_by_their_directory() {
    let (_dir, image, volume) = fresh("8M", &["-t", "ext4"]);
    let (a, b) = (
        volume.mkdir("/a", 0o755).unwrap(),
        volume.mkdir((Ino::ROOT, "b"), 0o755).unwrap(),
    );
    let file = volume.create((a, "file"), 0o644).unwrap();
    assert_eq!(volume.lookup(a, "file").unwrap(), Some(file.ino()));
    assert_eq!(volume.resolve("/a/file", false).unwrap(), file.ino());
    assert_eq!(volume.lookup(b, b"file").unwrap(), None);
    volume.link_ino(file.ino(), (b, "second")).unwrap();
    volume.symlink("file", (a, "link")).unwrap();
    volume
        .rename((a, "file"), (b, "moved"), RenameFlags::default())
        .unwrap();
    volume.unlink((b, "second")).unwrap();
    let nameless = volume.temporary_in(a, 0o600).unwrap();
    volume.link_file(&nameless, (a, "named")).unwrap();
    volume.replace_file(&nameless, (b, "moved")).unwrap();
    assert_eq!(volume.lookup(b, "moved").unwrap(), Some(nameless.ino()));
    volume.unlink((a, "link")).unwrap();
    volume.unlink((a, "named")).unwrap();
    volume.rmdir((Ino::ROOT, "a")).unwrap();
    // Only a single name is accepted, in a directory; the error message says which.
    for name in ["x/y", "/x", "x/"] {
        assert!(
            matches!(volume.mkdir((b, name), 0o755), Err(Error::Invalid(_))),
            "{name}"
        );
    }
    let missing = volume.unlink((b, "nobody")).unwrap_err().to_string();
    assert!(
        missing.contains(&format!("nobody (in directory inode {b})")),
        "{missing}"
    );
    let no_directory = volume.mkdir((nameless.ino(), "x"), 0o755);
    assert!(matches!(no_directory, Err(Error::NotADirectory { .. })));
    drop((file, nameless));
    volume.close().unwrap();
    fsck(&image);
}

/// A directory that was removed while somebody knows it has no names, as for the kernel: its parent may be gone too, and that number
/// another's. The defect: ".." led to a file that had got the number, and a directory could be moved "into" that.
#[test]
fn a_removed_directory_has_no_names() {
    let (_dir, image, volume) = fresh("8M", &["-t", "ext4"]);
    let parent = volume.mkdir("/parent", 0o755).unwrap();
    let child = volume.mkdir((parent, "child"), 0o755).unwrap();
    volume.know(child).unwrap();
    let stream = volume.read_dir(child).unwrap();
    volume.rmdir((parent, "child")).unwrap();
    volume.rmdir("/parent").unwrap();
    let next = volume.create("/file", 0o644).unwrap();
    assert_eq!(next.ino(), parent, "the number is used again");
    for name in [".", "..", "x"] {
        assert_eq!(volume.lookup(child, name).unwrap(), None, "{name}");
    }
    assert_eq!(stream.count(), 0);
    assert_eq!(volume.read_dir(child).unwrap().count(), 0);
    let is_missing = |done: Result<(), Error>| {
        assert!(matches!(done, Err(Error::NotFound { .. })), "{done:?}");
    };
    volume.mkdir("/moved", 0o755).unwrap();
    let flags = RenameFlags::default();
    is_missing(volume.rename("/moved", (child, "moved"), flags));
    is_missing(volume.rename((child, "x"), "/x", flags));
    is_missing(volume.mkdir((child, "x"), 0o755).map(drop));
    is_missing(volume.link_ino(next.ino(), (child, "x")));
    volume.forget(child, 1);
    drop(next);
    volume.close().unwrap();
    fsck(&image);
}

/// Names have 255 bytes at most; who looks a longer one up is told, as of the kernel.
#[test]
fn a_name_that_is_too_long_is_no_missing_one() {
    let (_dir, _image, volume) = fresh("8M", &["-t", "ext4"]);
    let longest = "n".repeat(255);
    let ino = volume.mkdir((Ino::ROOT, &longest), 0o755).unwrap();
    assert_eq!(volume.lookup(Ino::ROOT, &longest).unwrap(), Some(ino));
    let longer = volume.lookup(Ino::ROOT, &"n".repeat(256));
    assert!(matches!(longer, Err(Error::NameTooLong { .. })));
    volume.close().unwrap();
}

/// Whoever needs space waits for a known inode without a name only just after that lost its name or a user, and no longer than until it is
/// forgotten.
#[test]
fn what_is_about_to_be_forgotten() {
    let (_dir, image, volume) = fresh("8M", &["-t", "ext4"]);
    const LONG: Duration = Duration::from_secs(600);
    let ino = volume.create("/a", 0o644).unwrap().ino();
    volume.know(ino).unwrap();
    assert!(volume.known_without_name(LONG).is_empty());
    volume.unlink("/a").unwrap();
    let first = volume.known_without_name(LONG);
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].0, ino);
    assert!(volume.known_without_name(Duration::ZERO).is_empty());
    assert!(!volume.await_forgotten(first.clone(), first[0].1));
    std::thread::sleep(Duration::from_millis(2));
    volume.note_closed(ino);
    let again = volume.known_without_name(LONG);
    assert!(again[0].1 > first[0].1, "{again:?} {first:?}");
    std::thread::scope(|threads| {
        threads.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            volume.forget(ino, 1);
        });
        assert!(volume.await_forgotten(again, Instant::now() + LONG));
    });
    assert!(volume.known_without_name(LONG).is_empty());
    volume.note_closed(ino);
    assert!(volume.known_without_name(LONG).is_empty());
    volume.close().unwrap();
    fsck(&image);
}
