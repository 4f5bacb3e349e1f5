//! What a transaction that fails, or that is only tried, leaves and says.

use crate::common::{diorite, image, noise, run, scratch};
use crate::edit::{edit, fsck, path};
use std::fs;

/// Defect: -n wrote the data of new files into free blocks of the image, and into its superblock and journal.
#[test]
fn a_trial_writes_nothing() {
    let dir = scratch();
    for args in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^has_journal"]] {
        let img = image(dir.path(), "x", "32M", args, None);
        fs::write(dir.path().join("data"), noise(3 << 20, 7)).unwrap();
        let data = path(&dir.path().join("data")).to_owned();
        let before = fs::read(&img).unwrap();
        let mut mode = fs::metadata(&img).unwrap().permissions();
        mode.set_readonly(true);
        fs::set_permissions(&img, mode).unwrap();
        // A line sees what an earlier one did.
        let script = format!("put {data} /one\nmkdir /d\nmv /one /d/two\nchmod 600 /d/two\n");
        edit(dir.path(), &img, &["-n"], &script).ok();
        edit(dir.path(), &img, &["-n"], "put /no/such /x\n").failed(1, "script:1: ");
        assert!(before == fs::read(&img).unwrap(), "{args:?}");
        fs::remove_file(&img).unwrap();
    }
}

/// Defect: a file larger than the free space failed with the words for what an open transaction cannot do.
#[test]
fn too_large_is_no_space() {
    let dir = scratch();
    let img = image(dir.path(), "x", "8M", &["-t", "ext4"], None);
    fs::write(dir.path().join("data"), noise(12 << 20, 7)).unwrap();
    let script = format!("put {} /big\n", path(&dir.path().join("data")));
    for options in [&[][..], &["--batch"], &["-n"]] {
        let ran = edit(dir.path(), &img, options, &script);
        ran.failed(1, "script:1: ");
        let line = ran.err.lines().next().unwrap();
        assert!(line.contains("/big: No space left on device: "), "{line}");
        assert!(line.contains("were asked for, "), "{line}");
    }
    fsck(&img);
    // What is free afterwards can be used.
    let fits = format!("mkdir /d\nput {} /d/f\n", path(&dir.path().join("script")));
    edit(dir.path(), &img, &[], &fits).ok();
    fsck(&img);
}

/// Defect: each of the directories above one that could not be removed was reported, with its path: messages in the square of the depth.
#[test]
fn a_deep_tree_says_once_why_it_stays() {
    let dir = scratch();
    let source = dir.path().join("source");
    let deep = "d/".repeat(900);
    fs::create_dir_all(source.join(&deep)).unwrap();
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "2000"];
    let img = image(dir.path(), "x", "32M", &args, Some(&source));
    for options in [&[][..], &["--batch"]] {
        let ran = edit(dir.path(), &img, options, "rm -rf /d\n");
        ran.failed(1, "the atomic change is too large");
        let about = ran.err.matches("the atomic change is too large").count();
        assert_eq!((about, ran.err.lines().count()), (1, 3), "{}", ran.err);
    }
    fsck(&img);
    diorite(&["rm", "-r", &img, "/d"]).ok();
    fsck(&img);
}

/// A file that cannot be removed is reported, the directories above it are not, and what lies beside them is removed, as by rm(1).
#[test]
fn what_stays_is_reported_where_it_is() {
    let dir = scratch();
    let source = dir.path().join("source");
    for name in ["a/b/c", "a/x", "z"] {
        fs::create_dir_all(source.join(name)).unwrap();
        fs::write(source.join(name).join("file"), name).unwrap();
    }
    let img = image(dir.path(), "x", "8M", &["-t", "ext4"], Some(&source));
    run(
        "debugfs",
        &["-w", "-R", "sif /a/b/c/file flags 0x80010", &img],
    );
    let ran = diorite(&["rm", "-rv", &img, "/a", "/z"]);
    ran.failed(1, "/a/b/c/file: ");
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    let left = diorite(&["find", &img, "/a", "/z"]);
    assert_eq!(left.text(), "/a\n/a/b\n/a/b/c\n/a/b/c/file\n");
}
