//! Copies that are refused before a byte is written.

use super::{copy, same, text};
use crate::common::{diorite, image, noise, run, scratch};
use std::fs;
use std::path::Path;

/// The same device twice, overlapping ranges, one inside the other, also under other names: refused, and nothing is changed.
#[test]
fn a_copy_that_would_destroy_its_source_is_refused() {
    let dir = scratch();
    let img = image(dir.path(), "v.img", "64M", &["-t", "ext4"], None);
    let small = image(dir.path(), "small", "16M", &["-t", "ext4"], None);
    copy(&[&small, &format!("{img}:/i")]).ok();
    diorite(&["ln", &img, "/i", "/same"]).ok();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&img, &link).unwrap();
    let hard = dir.path().join("hard");
    fs::hard_link(&img, &hard).unwrap();
    let (link, hard) = (text(&link), text(&hard));
    let before = fs::read(&img).unwrap();
    for (from, to, words) in [
        (img.clone(), img.clone(), "they are the same device"),
        (img.clone(), link.clone(), "they are the same device"),
        (hard.clone(), img.clone(), "they are the same device"),
        (
            img.clone(),
            format!("{link}:/new"),
            "DST is in a file of SRC",
        ),
        (format!("{hard}:/i"), img.clone(), "SRC is in a file of DST"),
        (
            format!("{img}:/i"),
            format!("{link}:/i"),
            "they are the same device",
        ),
        (
            format!("{img}:/i"),
            format!("{img}:/same"),
            "they are the same device",
        ),
        (
            format!("{img}:/i"),
            format!("{img}:/same:/new"),
            "DST is in a file of SRC",
        ),
        (
            format!("{img}:/i:/lost+found"),
            format!("{img}:/same"),
            "SRC is in a file of DST",
        ),
        (img.clone(), format!("{link}?offset=1M"), "they share bytes"),
        (
            format!("{img}?size=2M"),
            format!("{img}?offset=1M&size=2M"),
            "they share bytes",
        ),
    ] {
        let ran = copy(&[&from, &to]);
        ran.failed(1, words);
        assert!(ran.err.contains("nothing was changed"), "{}", ran.err);
        // A volume that is opened for writing may note that in its superblock, and closes clean.
        if !to.contains(":/") {
            assert!(fs::read(&img).unwrap() == before, "{from} {to}");
        }
    }
    run("e2fsck", &["-fn", &img]);
    assert!(diorite(&["compare", &small, &format!("{img}:/i")]).code == Some(0));
}

#[test]
fn what_cannot_be_a_target_is_refused() {
    let dir = scratch();
    let a = dir.path().join("a");
    fs::write(&a, noise(10_000, 1)).unwrap();
    let (a, b) = (text(&a), text(&dir.path().join("b")));
    let img = image(dir.path(), "v.img", "8M", &["-t", "ext4"], None);
    copy(&[&a, "mem:4K"]).failed(1, "it has 4096 bytes, but");
    copy(&[&a, &format!("{b}?offset=1M")]).failed(1, "a file to be created has no parameters");
    copy(&["-n", &a, &b]).failed(1, "No such file");
    copy(&["-n", &a, &format!("{img}:/new")]).failed(1, "No such file");
    copy(&[&a, &format!("{img}:/lost+found")]).failed(1, "");
    copy(&[&a, &format!("{img}:/no/such")]).failed(1, "No such file");
    copy(&[&a, &format!("{img}:/new?part=1")]).failed(1, "");
    copy(&[&a, dir.path().to_str().unwrap()]).failed(1, "it is a directory");
    copy(&[&a, &text(&dir.path().join("no/b"))]).failed(1, "No such file");
    copy(&[&text(&dir.path().join("no")), &b]).failed(1, "No such file");
    copy(&[&a, &format!("{img}?ro")]).failed(1, "cannot");
    let dangling = dir.path().join("dangling");
    std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
    copy(&[&a, &text(&dangling)]).failed(1, "No such file");
    assert!(!Path::new(&b).exists());
    run("e2fsck", &["-fn", &img]);
}

/// A file that another process has open as an image, with QEMU's locks, is not written to unless told to.
#[test]
fn locks_are_respected() {
    let dir = scratch();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    fs::write(&a, noise(1 << 20, 1)).unwrap();
    fs::write(&b, vec![5; 1 << 20]).unwrap();
    let _held =
        diorite_block::FileDevice::open(&diorite_block::FileOptions::new(b.clone())).unwrap();
    copy(&[&text(&a), &text(&b)]).failed(1, "cannot be opened for writing");
    assert!(fs::read(&b).unwrap() == vec![5; 1 << 20]);
    copy(&["--ignore-lock", &text(&a), &text(&b)]).ok();
    same(&a, &b, "--ignore-lock");
}
