//! Files inside images as exports: alone, several of one image, and what may not be served together.

use crate::common::{self, diorite, scratch};
use crate::serve::{MIB, Served, noise, ok, sparse, tool};
use std::fs;

/// A file inside an image, which is a consistent image afterwards.
#[test]
fn a_file_inside_an_image() {
    let Some(mut copy) = tool("nbdcopy") else {
        return;
    };
    let dir = scratch();
    let source = sparse(dir.path(), "source.img");
    let outer = common::image(dir.path(), "outer.img", "64M", &["-t", "ext4"], None);
    let inner = dir.path().join("inner.img");
    fs::write(&inner, vec![0; 16 * MIB]).unwrap();
    diorite(&["put", &outer, inner.to_str().unwrap(), "/inner.img"]).ok();
    let served = Served::start(dir.path(), &[&format!("{outer}!/inner.img")]);
    copy.args(["--flush", source.to_str().unwrap(), &served.uri]);
    ok(copy);
    served.end();
    diorite(&["cmp", &outer, "/inner.img", source.to_str().unwrap()]).ok();
    common::run("e2fsck", &["-fn", &outer]);
}

/// Several files of one image are served at once, each writable, next to one inside one of them; the image is consistent afterwards.
#[test]
fn files_of_one_image() {
    let Some(mut sh) = tool("nbdsh") else { return };
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    let part = |name: &str| fs::write(source.join(name), noise(9, MIB)).unwrap();
    part("a");
    part("b");
    let inner = common::image(dir.path(), "inner", "16M", &["-t", "ext4"], Some(&source));
    fs::rename(&inner, source.join("inner")).unwrap();
    let outer = common::image(dir.path(), "outer", "64M", &["-t", "ext4"], Some(&source));
    let inside = |path: &str| format!("{outer}!/{path}");
    let served = Served::start(
        dir.path(),
        &[
            &inside("a"),
            &inside("b"),
            &format!("c={}", inside("inner!/a")),
            &format!("d={}", inside("inner!/b?ro")),
        ],
    );
    let script = "
for name in ['a', 'b', 'c', 'd']:
    h = nbd.NBD()
    h.set_export_name(name)
    h.connect_unix(uri)
    assert h.get_size() == 1048576
    assert h.is_read_only() == (name == 'd')
    if name != 'd':
        h.pwrite(name.encode() * 4096, 8192, nbd.CMD_FLAG_FUA)
print('fine')
";
    let script = format!("uri = {:?}\n{script}", served.socket.to_str().unwrap());
    sh.args(["-n", "-c", "import nbd", "-c", &script]);
    assert_eq!(ok(sh).trim(), "fine");
    served.end();
    for path in ["a", "b", "inner!/a"] {
        let image = outer.clone() + path.rsplit_once('!').map_or("", |_| "!/inner");
        let name = &path[path.len() - 1..];
        let byte = if path.contains('!') {
            b'c'
        } else {
            name.as_bytes()[0]
        };
        let found = diorite(&["cat", &image, &format!("/{name}")]).ok().out;
        assert!(found[8192..12_288].iter().all(|b| *b == byte), "{path}");
        assert!(found[..8192] == noise(9, MIB)[..8192], "{path}");
    }
    common::run("e2fsck", &["-fn", &outer]);
}

/// One byte is not in two exports of which one is writable, whatever locks are ignored.
#[test]
fn exports_share_no_byte() {
    let dir = scratch();
    let socket = dir.path().join("s");
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("a"), noise(9, MIB)).unwrap();
    let inner = common::image(dir.path(), "inner", "16M", &["-t", "ext4"], Some(&source));
    fs::rename(&inner, source.join("inner")).unwrap();
    let outer = common::image(dir.path(), "outer", "64M", &["-t", "ext4"], Some(&source));
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&outer, &link).unwrap();
    let link = link.to_str().unwrap();
    let inside = format!("a={outer}!/a");
    let nested = [format!("{outer}!/inner"), format!("b={outer}!/inner!/a")];
    let window = |from: u32| format!("w{from}={outer}?offset={from}M&size=2M");
    for (one, other, words) in [
        (
            outer.as_str(),
            inside.as_str(),
            "it has bytes of the export",
        ),
        (&outer, &format!("x={link}"), "it has bytes of the export"),
        (
            &outer,
            &format!("x={link}?ro"),
            "it has bytes of the export",
        ),
        (&window(1), &window(2), "it has bytes of the export"),
        (&nested[0], &nested[1], "another export has bytes of"),
        (&nested[1], &nested[0], "another export has bytes of"),
        (
            &format!("{}?ro", nested[0]),
            &nested[1],
            "another export has bytes of",
        ),
        (
            &nested[1],
            &format!("{}?ro", nested[0]),
            "another export has bytes of",
        ),
        (
            &inside,
            &format!("x={outer}!//a?ro"),
            "another export has bytes of",
        ),
        (
            &inside,
            &format!("x={outer}!/a"),
            "another export has bytes of",
        ),
    ] {
        for ignored in [None, Some("--ignore-lock")] {
            let args = [
                "serve",
                "nbd",
                "--socket",
                socket.to_str().unwrap(),
                one,
                other,
            ];
            let args: Vec<&str> = args.into_iter().chain(ignored).collect();
            diorite(&args).failed(1, words);
        }
    }
    // Reading twice is harmless, and opens nothing for writing.
    let served = Served::start(dir.path(), &["-r", &outer, &format!("x={link}"), &inside]);
    served.end();
    let read = [format!("{outer}?ro"), format!("{inside}?ro")];
    let served = Served::start(dir.path(), &[&read[0], &read[1]]);
    diorite(&["touch", &outer, "/new"]).ok();
    served.end();
}
