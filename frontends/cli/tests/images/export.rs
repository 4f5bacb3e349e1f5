//! `diorite export` to directories and other images; archives are in `archives`.

use super::{clean, path};
use crate::common::{Ran, diorite, files, is_root, run, same, same_but, scratch, tree};
use std::fs;
use std::os::unix::fs::symlink;

/// It went well. An ordinary user is told that nobody else gets files of a directory.
#[track_caller]
fn fine(ran: Ran) -> Ran {
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let is_told = |line: &str| !is_root() && line.contains("owners are not kept");
    assert!(ran.err.lines().all(is_told), "{}", ran.err);
    ran
}

#[test]
fn the_same_goes_to_directories_archives_and_images() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let (source, img) = (at("source"), at("img"));
    tree(&source);
    files(&source, &[("sub/dir/one", b"1"), ("sub/two", b"2")]);
    diorite(&["import", "-q", path(&source), path(&img)]).ok();
    // To a directory: one that is made, one that is there and empty, one of a part of the image.
    let made = at("made");
    fine(diorite(&[
        "export",
        "-q",
        path(&img),
        &format!("{}/", path(&made)),
    ]));
    same_but(&source, &made, "lost+found");
    fs::create_dir(at("empty")).unwrap();
    fine(diorite(&["export", "-q", path(&img), path(&at("empty"))]));
    same_but(&source, &at("empty"), "lost+found");
    let part = format!("{}:/sub", path(&img));
    fine(diorite(&[
        "export",
        "-q",
        "--as",
        "directory",
        &part,
        path(&at("part")),
    ]));
    same(&source.join("sub"), &at("part"));
    // To another image.
    for (name, more) in [
        ("other.img", ""),
        ("other.qcow2", ""),
        ("other.img.zst", ""),
        ("plain", "image"),
    ] {
        let other = at(name);
        let mut args = vec!["export", "-q"];
        if !more.is_empty() {
            args.extend(["--as", more]);
        }
        args.extend([path(&img), path(&other)]);
        diorite(&args).ok();
        let unpacked = match name.ends_with(".zst") {
            true => {
                diorite(&["copy", "-q", path(&other), path(&at("unpacked"))]).ok();
                at("unpacked")
            }
            false => other,
        };
        if !name.ends_with("qcow2") {
            clean(&unpacked);
        }
        let out = at(&format!("of-{name}"));
        fine(diorite(&[
            "export",
            "-q",
            path(&unpacked),
            &format!("{}/", path(&out)),
        ]));
        same_but(&source, &out, "lost+found");
    }
    fine(diorite(&["export", "-q", &part, path(&at("part.img"))]));
    let listed = diorite(&["ls", path(&at("part.img"))]).ok().text();
    assert!(listed.contains("two") && listed.contains("dir"), "{listed}");
    // The archive of each is the same.
    let tar = |img: &str, name: &str| {
        let tar = at(name);
        fine(diorite(&["export", "-q", img, path(&tar)]));
        run("tar", &["-tvf", path(&tar), "--exclude=./lost+found"])
    };
    let first = tar(path(&img), "first.tar");
    assert_eq!(first, tar(path(&at("other.img")), "second.tar"));
    fine(diorite(&[
        "export",
        "-q",
        "--as",
        "archive",
        path(&img),
        path(&at("third")),
    ]));
    assert!(fs::read(at("third")).unwrap() == fs::read(at("first.tar")).unwrap());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    files(&at("source"), &[("file", b"x")]);
    diorite(&["import", "-q", path(&at("source")), path(&at("img"))]).ok();
    let img = at("img");
    diorite(&["export", "-q", path(&img), path(&at("what"))])
        .failed(1, "--as archive, --as image, --as directory");
    files(&at("full"), &[("there", b"x")]);
    diorite(&["export", "-q", path(&img), path(&at("full"))]).failed(1, "it is not empty");
    assert_eq!(fs::read_dir(at("full")).unwrap().count(), 1);
    // Not over itself.
    symlink(&img, at("link.img")).unwrap();
    let before = fs::read(&img).unwrap();
    for kind in ["image", "archive"] {
        for to in [&at("link.img"), &img] {
            let words = ["export", "-q", "--as", kind, path(&img), path(to)];
            diorite(&words).failed(1, "the files come from there");
            assert!(fs::read(&img).unwrap() == before);
        }
    }
    diorite(&[
        "export",
        "-q",
        &format!("{}:/none", path(&img)),
        path(&at("x.img")),
    ])
    .failed(1, "none");
    assert!(!at("x.img").exists());
    let shown = fine(diorite(&[
        "export",
        "--json",
        path(&img),
        &format!("{}/", path(&at("d"))),
    ]))
    .text();
    assert!(shown.contains("\"directory\""), "{shown}");
}
