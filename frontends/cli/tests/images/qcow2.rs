//! Images in the qcow2 format: every command takes them, by their names or as it is said, and qemu-img judges what is written.

use super::path;
use crate::common::{Ran, diorite, has_qemu, held_by_qemu, image, noise, run, scratch, tree};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// qemu-img finds nothing wrong in it, and the same bytes as in a raw file.
fn is_same(qcow2: &Path, raw: &Path) {
    run("qemu-img", &["check", "-q", "-f", "qcow2", path(qcow2)]);
    let both = [path(raw), path(qcow2)];
    run(
        "qemu-img",
        &[&["compare", "-q", "-f", "raw", "-F", "qcow2"], &both[..]].concat(),
    );
}

fn copy(options: &[&str], from: &str, to: &str) -> Ran {
    diorite(&[&["copy"], options, &[from, to]].concat())
}

/// A scratch directory, if QEMU's tools are here.
fn bed() -> Option<tempfile::TempDir> {
    has_qemu().then(scratch)
}

#[test]
fn copies_both_ways() {
    let Some(dir) = bed() else { return };
    let at = |name: &str| dir.path().join(name);
    let source = dir.path().join("source");
    tree(&source);
    let raw = image(dir.path(), "raw", "60M", &[], Some(&source));
    let bytes = fs::read(&raw).unwrap();
    copy(&["--verify"], &raw, path(&at("a.qcow2"))).ok();
    is_same(&at("a.qcow2"), Path::new(&raw));
    let stored = fs::metadata(at("a.qcow2")).unwrap().len();
    assert!(stored < 20 << 20, "{stored}: holes are kept");
    copy(&["-O", "qcow2"], &raw, path(&at("b"))).ok();
    is_same(&at("b"), Path::new(&raw));
    copy(&["-f", "qcow2"], path(&at("b")), path(&at("c"))).ok();
    assert!(fs::read(at("c")).unwrap() == bytes);
    // As it is.
    copy(
        &["-f", "raw", "-O", "raw"],
        path(&at("a.qcow2")),
        path(&at("d.qcow2")),
    )
    .ok();
    assert!(fs::read(at("d.qcow2")).unwrap() == fs::read(at("a.qcow2")).unwrap());
    // Packed, and from there.
    copy(&[], path(&at("a.qcow2")), path(&at("x.zst"))).ok();
    copy(&[], path(&at("x.zst")), path(&at("e.qcow2"))).ok();
    is_same(&at("e.qcow2"), Path::new(&raw));
    // In place: the file becomes longer, and what is behind stays.
    run(
        "qemu-img",
        &["create", "-q", "-f", "qcow2", path(&at("f.qcow2")), "80M"],
    );
    copy(&["--verify"], &raw, path(&at("f.qcow2"))).ok();
    run("qemu-img", &["check", "-q", path(&at("f.qcow2"))]);
    copy(&[], path(&at("f.qcow2")), path(&at("f"))).ok();
    let whole = fs::read(at("f")).unwrap();
    assert!(whole[..bytes.len()] == bytes[..] && whole.len() == 80 << 20);
    // Compressed clusters are read.
    run(
        "qemu-img",
        &["convert", "-c", "-O", "qcow2", &raw, path(&at("g.qcow2"))],
    );
    diorite(&["compare", "-s", path(&at("g.qcow2")), &raw]).ok();
    // A copy that cannot be made leaves nothing.
    fs::write(at("odd"), [1; 1000]).unwrap();
    copy(&[], path(&at("odd")), path(&at("odd.qcow2"))).failed(1, "no multiple of 512");
    assert!(!at("odd.qcow2").exists());
}

#[test]
fn every_command_takes_them() {
    let Some(dir) = bed() else { return };
    let at = |name: &str| dir.path().join(name);
    let source = dir.path().join("source");
    tree(&source);
    let img = at("a.qcow2");
    diorite(&["mkfs", "-q", path(&img), "100M"]).ok();
    diorite(&["put", path(&img), path(&source), "/"]).ok();
    diorite(&["rm", path(&img), "/source/small"]).ok();
    diorite(&["check", path(&img)]).ok();
    run("qemu-img", &["check", "-q", path(&img)]);
    run(
        "qemu-img",
        &["convert", "-O", "raw", path(&img), path(&at("raw"))],
    );
    run("e2fsck", &["-fn", path(&at("raw"))]);
    assert!(
        diorite(&["ls", path(&img), "/source"])
            .ok()
            .text()
            .contains("big")
    );
    // Made of files, and inside a disk.
    diorite(&["import", "-q", path(&source), path(&at("b.qcow2"))]).ok();
    diorite(&["check", path(&at("b.qcow2"))]).ok();
    let disk = at("d.qcow2");
    diorite(&[
        "disk",
        "-q",
        path(&disk),
        "3M,type=esp",
        path(&img),
        path(&at("b.qcow2")),
    ])
    .ok();
    run("qemu-img", &["check", "-q", path(&disk)]);
    let part = |number: u32| format!("{}?part={number}", path(&disk));
    diorite(&["check", &part(2)]).ok();
    diorite(&["mkdir", &part(2), "/new"]).ok();
    diorite(&[
        "cp",
        &format!("{}:/big", part(3)),
        &format!("{}:/new", part(2)),
    ])
    .ok();
    diorite(&["check", &part(2)]).ok();
    diorite(&["check", &part(3)]).ok();
    run("qemu-img", &["check", "-q", path(&disk)]);
    let told = diorite(&["info", "-d", path(&disk)]).ok().text();
    assert!(told.contains("threads, buffered, qcow2"), "{told}");
    assert!(told.contains("2 (Linux filesystem, 100 MiB)"), "{told}");
    run(
        "qemu-img",
        &["convert", "-O", "raw", path(&disk), path(&at("draw"))],
    );
    run("sfdisk", &["--verify", path(&at("draw"))]);
    // An existing one, and a size that it does not have.
    diorite(&["mkfs", "-q", path(&img)]).ok();
    diorite(&["mkfs", "-q", path(&img), "50M"]).ok();
    assert_eq!(diorite(&["mkfs", "-q", path(&img), "500M"]).code, Some(1));
    run("qemu-img", &["check", "-q", path(&img)]);
    // The file system becomes smaller and larger, and the file keeps what it is.
    diorite(&["mkfs", "-q", path(&img)]).ok();
    diorite(&["shrink", "-q", path(&img), "60M"]).ok();
    diorite(&["check", path(&img)]).ok();
    diorite(&["grow", "-q", path(&img)]).ok();
    diorite(&["grow", "-q", path(&img), "1G"]).failed(1, path(&img));
    diorite(&["check", path(&img)]).ok();
    run("qemu-img", &["check", "-q", path(&img)]);
    let told = run("qemu-img", &["info", path(&img)]);
    assert!(told.contains("virtual size: 100 MiB"), "{told}");
    // A part of it cannot be copied to another: two writers would share its tables.
    copy(&[], &part(1), &part(2)).failed(1, "nothing was changed");
    copy(&[], path(&img), path(&img)).failed(1, "the same device");
}

/// A guest that writes the header of an image into its raw disk gets nothing by it.
#[test]
fn contents_and_names_in_them_are_not_trusted() {
    let Some(dir) = bed() else { return };
    let at = |name: &str| dir.path().join(name);
    fs::write(at("secret"), noise(1 << 20, 4)).unwrap();
    let create = [
        "create",
        "-q",
        "-f",
        "qcow2",
        "-F",
        "raw",
        "-b",
        path(&at("secret")),
        path(&at("evil")),
    ]
    .map(str::to_owned);
    run("qemu-img", &create);
    let evil = fs::read(at("evil")).unwrap();
    let told = copy(&[], path(&at("evil")), path(&at("copy")));
    assert_eq!(told.code, Some(0), "{}", told.err);
    assert!(told.err.contains("with -f qcow2"), "{}", told.err);
    assert!(
        fs::read(at("copy")).unwrap() == evil,
        "its bytes, as they are"
    );
    diorite(&["ls", path(&at("evil"))]).failed(2, "?format=qcow2' opens it");
    fs::rename(at("evil"), at("evil.qcow2")).unwrap();
    let why = format!("it has the backing file \"{}\"", path(&at("secret")));
    for args in [
        vec!["copy", path(&at("evil.qcow2")), path(&at("other"))],
        vec!["stat", path(&at("evil.qcow2")), "/"],
        vec!["mkfs", path(&at("evil.qcow2"))],
        vec!["info", "-d", path(&at("evil.qcow2"))],
    ] {
        diorite(&args).failed(1, &why);
    }
    assert!(fs::read(at("evil.qcow2")).unwrap() == evil && !at("other").exists());
    let trusted = format!("{}?backing", path(&at("evil.qcow2")));
    copy(&[], &trusted, path(&at("other"))).ok();
    assert!(fs::read(at("other")).unwrap() == fs::read(at("secret")).unwrap());
    // In another image it is a file like any other.
    let img = image(dir.path(), "img", "8M", &[], None);
    diorite(&["put", &img, path(&at("evil.qcow2")), "/evil.qcow2"]).ok();
    let inner = format!("{img}:/evil.qcow2");
    copy(&["-f", "raw"], &inner, path(&at("third"))).ok();
    assert!(fs::read(at("third")).unwrap() == evil);
    diorite(&["stat", &format!("{inner}?format=qcow2"), "/"])
        .failed(1, "in another image is not opened");
}

/// The defect: a file that is made anew took the place of the backing file of what it was made from.
#[test]
fn what_a_source_is_on_is_not_replaced() {
    let Some(dir) = bed() else { return };
    let at = |name: &str| dir.path().join(name);
    let base = image(dir.path(), "base.img", "8M", &[], None);
    let over = path(&at("over.qcow2")).to_owned();
    let create = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", &base];
    run("qemu-img", &[&create[..], &[&over]].concat());
    let (was, source) = (fs::read(&base).unwrap(), format!("{over}?backing"));
    let (part, tree) = (
        format!("{source},type=root-x86-64"),
        format!("image:{source}"),
    );
    fs::hard_link(&base, at("link.gz")).unwrap();
    let (map, link) = (format!("--bmap={base}"), path(&at("link.gz")).to_owned());
    let out = path(&at("out")).to_owned();
    for args in [
        &["copy", "-O", "gz", &source, &base][..],
        &["copy", "-O", "android-sparse", &source, &base],
        &["copy", &source, &link],
        &["copy", &map, &source, &out],
        &["copy", "-O", "gz", &map, &source, &out],
        &["copy", &source, &base],
        &["export", &source, &base],
        &["export", "--as", "archive", &source, &base],
        &["import", &tree, &base],
        &["import", &tree, &link],
        &["import", &map, &tree, &out],
        &["disk", &base, &part],
    ] {
        diorite(args).failed(1, "nothing was changed");
        assert!(fs::read(&base).unwrap() == was, "{args:?}");
        assert!(!at("out").exists(), "{args:?}");
    }
    diorite(&["copy", "-q", "-O", "gz", &source, path(&at("other.gz"))]).ok();
}

#[test]
fn a_disk_of_somebody_else_is_not_written() {
    let dir = scratch();
    let img = dir.path().join("a.qcow2");
    diorite(&["mkfs", "-q", path(&img), "20M"]).ok();
    let Some(mut holder) = held_by_qemu("qcow2", &img) else {
        return;
    };
    diorite(&["mkdir", path(&img), "/new"]).failed(1, "qemu-io");
    drop(holder.stdin.take());
    holder.wait().unwrap();
    diorite(&["mkdir", path(&img), "/new"]).ok();
    let names: Vec<PathBuf> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    assert_eq!(names, [img]);
}

/// The same files and seed make the same file, which qemu-img finds nothing wrong in.
#[test]
fn imports_are_the_same_again() {
    let Some(dir) = bed() else { return };
    let at = |name: &str| dir.path().join(name);
    tree(&at("source"));
    let mut made = Vec::new();
    for name in ["one.qcow2", "two.qcow2", "raw.img"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diorite"));
        command.env("SOURCE_DATE_EPOCH", "1700000000");
        command.args(["import", "-q", "--seed", "x", "--size", "700M"]);
        command.args([at("source"), at(name)]);
        assert!(command.status().unwrap().success());
        made.push(fs::read(at(name)).unwrap());
    }
    assert!(made[0] == made[1]);
    is_same(&at("one.qcow2"), &at("raw.img"));
    diorite(&["check", path(&at("one.qcow2"))]).ok();
    // It is written like any other.
    diorite(&["mkdir", path(&at("one.qcow2")), "/new"]).ok();
    run("qemu-img", &["check", "-q", path(&at("one.qcow2"))]);
}
