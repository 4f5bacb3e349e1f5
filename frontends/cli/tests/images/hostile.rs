//! Archives that want too much of whoever reads them. Each is refused with its reason, or makes an image in which e2fsck finds nothing.

use super::archives::{archive, header, records};
use super::{clean, path};
use crate::common::{Ran, diorite, scratch};
use std::fs;
use std::path::Path;

fn import(dir: &Path, bytes: &[u8]) -> Ran {
    let tar = dir.join("x.tar");
    fs::write(&tar, bytes).unwrap();
    diorite(&["import", "-q", path(&tar), path(&dir.join("img"))])
}

/// An entry with records before it.
fn with(texts: &[String], name: &str, kind: u8, data: &[u8]) -> Vec<u8> {
    archive(&[("x", b'x', "", &records(texts)), (name, kind, "", data)])
}

#[test]
fn what_wants_too_much_is_refused() {
    let dir = scratch();
    let words = |all: &[&str]| {
        all.iter()
            .map(|text| (*text).to_owned())
            .collect::<Vec<_>>()
    };
    let attributes: Vec<String> = (0..5000)
        .map(|n| format!("SCHILY.xattr.user.{n}=x"))
        .collect();
    let large = format!("SCHILY.xattr.user.large={}", "x".repeat(70_000));
    let long = format!("path={}", "a/".repeat(2100));
    let size = 0x4000_0000_0000_0000_u64;
    let huge = [
        "GNU.sparse.map=0,1".to_owned(),
        format!("GNU.sparse.size={size}"),
    ];
    let far = words(&[
        "GNU.sparse.map=18446744073709551615,2",
        "GNU.sparse.size=100",
    ]);
    for (bytes, why) in [
        (
            with(&attributes, "f", b'0', b""),
            "more than 4096 extended attributes",
        ),
        (with(&[large], "f", b'0', b""), "65536 can be"),
        (with(&[long], "f", b'0', b""), "a path of 4199 bytes"),
        (
            with(&words(&["size=18446744073709551615"]), "f", b'0', b""),
            "out of range",
        ),
        (with(&huge, "f", b'0', b"x"), "this volume stores at most"),
        (with(&far, "f", b'0', b"x"), "makes no sense"),
        (
            with(
                &words(&["GNU.sparse.map=0,2,1,2", "GNU.sparse.size=4"]),
                "f",
                b'0',
                b"xxxx",
            ),
            "makes no sense",
        ),
        (
            with(
                &words(&["GNU.sparse.map=0,9", "GNU.sparse.size=4"]),
                "f",
                b'0',
                b"xxxxxxxxx",
            ),
            "makes no sense",
        ),
        (
            with(
                &words(&["GNU.sparse.map=0,2", "GNU.sparse.size=4"]),
                "f",
                b'0',
                b"xxxx",
            ),
            "more data than its map says",
        ),
        (archive(&[("", b'0', "", b"")]), "the root is a directory"),
        (archive(&[("h", b'1', "h", b"")]), "is not there"),
        (
            archive(&[("h", b'1', "later", b""), ("later", b'0', "", b"")]),
            "is not there",
        ),
        (with(&words(&["mtime=1e9"]), "f", b'0', b""), "no time"),
        (
            with(&words(&["uid=4294967296"]), "f", b'0', b""),
            "out of range",
        ),
        (
            archive(&[("x", b'x', "", &vec![b'1'; 9 << 20]), ("f", b'0', "", b"")]),
            "more than 8 MiB of records",
        ),
    ] {
        import(dir.path(), &bytes).failed(1, why);
        assert!(!dir.path().join("img").exists(), "{why}");
    }
}

/// Names of any bytes, times of any year, entries that are there again and again.
#[test]
fn what_is_odd_is_kept() {
    let dir = scratch();
    let img = dir.path().join("img");
    let (most, odd) = ("n".repeat(255), "line\nbreak\t\u{1b}[31m");
    let mut bytes = Vec::new();
    let mut add = |texts: &[&str], name: &str, kind: u8| {
        let all = with(
            &texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>(),
            name,
            kind,
            b"",
        );
        bytes.extend_from_slice(&all[..all.len() - 1024]);
    };
    add(&[&format!("path={most}")], "f", b'0');
    add(&[&format!("path={odd}")], "f", b'0');
    for (name, time) in [
        ("y2514", "17179869184.5"),
        ("y9999", "253402300799"),
        ("old", "-3000000000"),
        ("last", "9223372036854775807"),
    ] {
        add(&[&format!("mtime={time}")], name, b'0');
    }
    for n in 0..2000 {
        // A file, a directory with a file, a file again.
        add(&[], "again", b'0' + 5 * u8::from(n % 2 == 1));
        if n % 2 == 1 {
            add(&[], "again/inside", b'0');
        }
    }
    bytes.extend(header("old", b'1', "old", 0));
    bytes.resize(bytes.len() + 1024, 0);
    import(dir.path(), &bytes).ok();
    clean(&img);
    for name in [&most[..], odd, "again/inside", "y9999"] {
        assert_eq!(
            diorite(&["cat", path(&img), name]).ok().text(),
            "",
            "{name}"
        );
    }
}

/// Links lead deeper than any path could: everything that walks the tree takes a list in place of its stack.
#[test]
fn depth_has_no_end() {
    let dir = scratch();
    let img = dir.path().join("img");
    let mut bytes = Vec::new();
    let (step, mut at) = ("d/".repeat(400), String::new());
    for n in 0..30 {
        // Each link leads through the one before, 400 directories below.
        let below = format!("{at}{step}");
        let texts = [format!("path={below}end")];
        let file = with(&texts, "f", b'0', b"x");
        bytes.extend_from_slice(&file[..file.len() - 1024]);
        let link = ["x", &format!("linkpath={below}")].map(str::to_owned);
        let link = archive(&[
            ("x", b'x', "", &records(&link[1..])),
            (&format!("l{n}"), b'2', "", b""),
        ]);
        bytes.extend_from_slice(&link[..link.len() - 1024]);
        at = format!("l{n}/");
    }
    bytes.resize(bytes.len() + 1024, 0);
    import(dir.path(), &bytes).ok();
    diorite(&["check", path(&img)]).ok();
    let found = diorite(&["find", path(&img), "/", "-name", "end"])
        .ok()
        .text();
    assert_eq!(found.lines().count(), 30);
    // What goes out has paths that nothing takes in.
    let out = dir.path().join("out.tar");
    diorite(&["export", "-q", path(&img), path(&out)]).ok();
    diorite(&["import", "-q", path(&out), path(&img)]).failed(1, "4096 can be");
}

/// Names that say what is gone: of no name, of everything, of what lies above them.
#[test]
fn whiteouts_lead_nowhere() {
    let dir = scratch();
    let img = dir.path().join("img");
    let one = archive(&[
        ("a/b/old", b'0', "", b"1"),
        ("keep", b'0', "", b"1"),
        (".wh.x", b'0', "", b""),
    ]);
    let saved = |two: &[(&str, u8, &str, &[u8])]| {
        let layers: &[u8] = br#"[{"Layers":["one","two"]}]"#;
        archive(&[
            ("one", b'0', "", &one),
            ("two", b'0', "", &archive(two)),
            ("manifest.json", b'0', "", layers),
        ])
    };
    for (name, why) in [
        (".wh..", "a whiteout of no name"),
        (".wh...", "a whiteout of no name"),
        ("a/../.wh.keep", "'..' is refused"),
    ] {
        import(dir.path(), &saved(&[(name, b'0', "", b"")])).failed(1, why);
    }
    let listed = |two: &[(&str, u8, &str, &[u8])]| {
        import(dir.path(), &saved(two)).ok();
        clean(&img);
        let found = diorite(&["find", path(&img), "/", "-type", "f"])
            .ok()
            .text();
        found.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        listed(&[(".wh..wh..opq", b'0', "", b""), ("a/new", b'0', "", b"2")]),
        ["/a/new"]
    );
    assert_eq!(
        listed(&[("a/b/new", b'0', "", b"2"), (".wh.a", b'0', "", b"")]),
        ["/a/b/new", "/keep"]
    );
    // Of other programs, of nothing, of what is not there: nothing is gone.
    let nothing = [
        (".wh..wh.plnk", b'0', "", &b""[..]),
        (".wh.", b'0', "", b""),
        ("no/where/.wh.x", b'0', "", b""),
    ];
    assert_eq!(listed(&nothing), ["/a/b/old", "/keep"]);
    // A link to the root above a mark: what is meant is inside the image.
    let linked = [
        ("up", b'2', "../../..", &b""[..]),
        ("up/.wh.keep", b'0', "", b""),
    ];
    assert_eq!(listed(&linked), ["/a/b/old"]);
}
