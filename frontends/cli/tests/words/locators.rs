//! The ways in which people name images inside images, and the sides of a copy.
//!
//! Input: images in images. Output: none. Invariants: none of its own. Limits: three levels.

use crate::common::{diorite, image, scratch};
use crate::words::{both, fsck, path};
use std::fs;

/// A colon instead of the exclamation mark, and sizes with units.
#[test]
fn locators_as_people_type_them() {
    let dir = scratch();
    let (img, host) = both(dir.path());
    let outer = image(dir.path(), "outer", "64M", &["-t", "ext4"], None);
    diorite(&["put", &outer, &img, "/inner.img"]).ok();
    for inner in [
        format!("{outer}:/inner.img"),
        format!("{outer}?ro:/inner.img"),
    ] {
        let got = diorite(&["cat", &inner, "/big"]).ok();
        assert!(got.out == fs::read(host.join("big")).unwrap());
    }
    diorite(&["ls", &format!("{outer}:/nothing")]).failed(2, "No such file or directory");
    let outermost = image(dir.path(), "outermost", "128M", &["-t", "ext4"], None);
    diorite(&["put", &outermost, &outer, "/middle.img"]).ok();
    let inner = format!("{outermost}:/middle.img:/inner.img");
    let got = diorite(&["cat", &inner, "/big"]).ok();
    assert!(got.out == fs::read(host.join("big")).unwrap());
    diorite(&["mkdir", &inner, "/made"]).ok();
    diorite(&[
        "cp",
        &format!("{inner}:/big"),
        &format!("{outermost}!/middle.img!/inner.img!/made"),
    ])
    .ok();
    assert_eq!(diorite(&["ls", &inner, "/made"]).ok().text(), "big\n");
    fsck(&outermost);
    let deep = format!("{img}{}", ":/a".repeat(17));
    diorite(&["ls", &deep]).failed(2, "more than 16 volumes inside each other");
    let shifted = dir.path().join("shifted");
    let bytes = [vec![0; 1 << 20], fs::read(&img).unwrap()].concat();
    fs::write(&shifted, bytes).unwrap();
    for offset in ["1M", "1MiB", "2048s", "0x100000", "1048576"] {
        diorite(&["ls", &format!("{}?offset={offset}", path(&shifted)), "/big"]).ok();
    }
    diorite(&["truncate", "-s", "3s", &img, "/big"]).ok();
    assert_eq!(
        diorite(&["du", "-b", &img, "/big"]).ok().text(),
        "1536\t/big\n"
    );
}

#[test]
fn cp_knows_its_sides() {
    let dir = scratch();
    let (img, host) = both(dir.path());
    let at = |path: &str| format!("{img}:{path}");
    let out = dir.path().join("out");
    diorite(&["cp", "-r", &at("/dir"), path(&out)]).ok();
    assert!(fs::read(out.join("one")).unwrap() == fs::read(host.join("dir/one")).unwrap());
    diorite(&["cp", &format!("{img}!/big"), &at("/a file"), path(&out)]).ok();
    assert!(fs::read(out.join("big")).unwrap() == fs::read(host.join("big")).unwrap());
    diorite(&[
        "cp",
        path(&out.join("big")),
        path(&out.join("deep")),
        &at("/empty"),
    ])
    .ok();
    assert_eq!(diorite(&["ls", &img, "/empty"]).ok().text(), "big\ndeep\n");
    assert_eq!(
        diorite(&["cp", &at("/dir/deep/two"), "-"]).ok().text(),
        "2\n"
    );
    fsck(&img);
    let nothing = at("/nothing");
    diorite(&["cp", &nothing, path(&out)]).failed(1, "diorite: cp: ");
    diorite(&["cp", path(&out), path(&host)]).failed(2, "neither side is in an image");
    diorite(&["cp", &at("/big"), &at("/more")]).ok();
    assert_eq!(
        diorite(&["cmp", &img, "/more", path(&host.join("big"))])
            .ok()
            .text(),
        ""
    );
    diorite(&["cp", &at("/big"), path(&out), path(&host)]).failed(2, "to be in one image");
    assert_eq!(diorite(&["cp", &at("/big")]).code, Some(2));
}
