//! Mounts of qcow2 images.

use crate::bed::{Bed, bytes, diorite, may_mount, said, texts};
use crate::common::{overlays, scratch, skip};
use crate::life::until;
use std::fs::{self, File};
use xtask::run;

/// The defect: a server ends without giving its device up, so a qcow2 image would keep the mark of one that is being written.
#[test]
fn an_unmounted_qcow2_image_is_closed() {
    if !may_mount() {
        return;
    }
    let dir = scratch();
    let (image, at) = (dir.path().join("disk.qcow2"), dir.path().join("at"));
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (image_text, at_text) = (text(&image), text(&at));
    fs::create_dir(&at).unwrap();
    let made = run::tool("qemu-img")
        .args(["create", "-q", "-f", "qcow2", &image_text, "1G"])
        .status();
    if made.is_err() {
        return skip("qemu-img is not installed");
    }
    let ok = |args: &[&str]| {
        let done = diorite(args);
        assert!(done.status.success(), "{args:?}: {}", texts(&done).1);
    };
    let is_dirty = || bytes(&image)[79] == 1;
    // Who mounts may write there.
    ok(&["mkfs", "-q", "-E", "root_owner", &image_text]);
    ok(&["mount", &image_text, &at_text]);
    fs::write(at.join("file"), vec![9; 100_000]).unwrap();
    File::open(&at).unwrap().sync_all().unwrap();
    assert!(is_dirty());
    ok(&["umount", &at_text]);
    until("it is closed", || !is_dirty());
    said("qemu-img", &["check", "-q", "-f", "qcow2", &image_text]);
}

/// The defect: the sandbox of the server had the image and not what it names, so no overlay could be mounted.
#[test]
fn overlays_are_mounted() {
    let Some(bed) = Bed::sized(&[], "32M") else {
        return;
    };
    let Some(over) = overlays(&bed.image) else {
        return;
    };
    let dir = bed.image.parent().unwrap();
    let behind = ["disk.img", "base.qcow2", "mid.qcow2"].map(|name| dir.join(name));
    let before = behind.each_ref().map(|path| bytes(path));
    let at = bed.at.to_str().unwrap();
    for over in over {
        let locator = format!("{}?backing", over.display());
        let mount = |more: &[&str]| {
            let done = diorite(&[&["mount"], more, &[&locator, at]].concat());
            let err = texts(&done).1;
            assert!(done.status.success() && err.is_empty(), "{locator}: {err}");
        };
        mount(&[]);
        fs::write(bed.path("file"), [7; 100_000]).unwrap();
        bed.unmount();
        mount(&["-r"]);
        assert!(bytes(&bed.path("file")) == [7; 100_000]);
        bed.unmount();
        said(
            "qemu-img",
            &["check", "-q", "-f", "qcow2", over.to_str().unwrap()],
        );
        said(crate::bed::DIORITE, &["check", &locator]);
        let raw = dir.join("flat");
        let texts = [&over, &raw].map(|path| path.to_str().unwrap());
        said(
            "qemu-img",
            &[&["convert", "-O", "raw"], &texts[..]].concat(),
        );
        xtask::run::check(&raw).unwrap();
    }
    assert!(behind.each_ref().map(|path| bytes(path)) == before);
    bed.check();
}
