//! Mounts of qcow2 images.

use crate::bed::{bytes, diorite, may_mount, said, texts};
use crate::common::{scratch, skip};
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
