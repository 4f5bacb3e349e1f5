//! What the world's tools write and take: archives without an end, with something behind it, with records for all; every way to pack; and
//! files that are something else than their name says.

use super::archives::{archive, header, records};
use super::{clean, path};
use crate::common::{Ran, diorite, files, noise, run, scratch, skip};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Imports an archive; what it said.
fn import(dir: &Path, bytes: &[u8]) -> Ran {
    let tar = dir.join("x.tar");
    fs::write(&tar, bytes).unwrap();
    let img = dir.join("img");
    let ran = diorite(&["import", "-q", path(&tar), path(&img)]);
    if ran.code == Some(0) {
        clean(&img);
    }
    ran
}

/// It was taken, with these words as a warning.
#[track_caller]
fn warned(ran: &Ran, words: &str) {
    assert!(
        ran.code == Some(0) && ran.err.contains("warning: "),
        "{}",
        ran.err
    );
    assert!(ran.err.contains(words), "{}", ran.err);
}

fn cat(dir: &Path, file: &str) -> String {
    diorite(&["cat", path(&dir.join("img")), file]).ok().text()
}

/// Whether a tool is there; if not, that is said.
fn has(tool: &str) -> bool {
    let mut asked = xtask::run::tool(tool);
    asked
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let is_there = asked.arg("--version").status().is_ok();
    if !is_there {
        skip(format!("{tool} is not installed"));
    }
    is_there
}

/// The defect: archives that every tar takes were refused.
#[test]
fn an_archive_may_end_without_its_zeros() {
    let dir = scratch();
    let whole = archive(&[("a", b'0', "", b"one"), ("b", b'0', "", b"two")]);
    let open = &whole[..whole.len() - 1024];
    warned(&import(dir.path(), open), "has no end");
    assert_eq!(cat(dir.path(), "/b"), "two");
    import(dir.path(), &open[..open.len() - 512]).failed(1, "ends in the middle");
    import(dir.path(), b"").failed(1, "has no end");
    // Records without the entry that they are of.
    let cut = [
        &open[..1024],
        &archive(&[("x", b'x', "", &records(&["uid=1"]))])[..1024],
    ]
    .concat();
    import(dir.path(), &cut).failed(1, "has no end");
}

/// The defect: records for all entries were ignored.
#[test]
fn records_for_all_are_of_all() {
    let dir = scratch();
    let all = [
        "mtime=1000.5",
        "uid=77",
        "SCHILY.xattr.user.a=v",
        "comment=0123abcd",
    ];
    let bytes = archive(&[
        ("g", b'g', "", &records(&all)),
        ("one", b'0', "", b"1"),
        ("x", b'x', "", &records(&["uid=5", "SCHILY.xattr.user.a=w"])),
        ("two", b'0', "", b"2"),
        ("g", b'g', "", &records(&["uid=88"])),
        ("three", b'0', "", b"3"),
    ]);
    import(dir.path(), &bytes).ok();
    let img = dir.path().join("img");
    let of = |file: &str| {
        let facts = diorite(&["stat", "-c", "%u %.1Y", path(&img), file])
            .ok()
            .text();
        let value = diorite(&[
            "getfattr",
            "-n",
            "user.a",
            "--only-values",
            path(&img),
            file,
        ]);
        format!("{} {}", facts.trim(), value.ok().text().trim())
    };
    assert_eq!(of("/one"), "77 1000.5 v");
    assert_eq!(of("/two"), "5 1000.5 w");
    assert_eq!(of("/three"), "88 1000.5 v");
    // Memory for them is bounded.
    let large = format!("comment={}", "x".repeat(3 << 20));
    let one = ("g", b'g', "", &records(&[large])[..]);
    import(dir.path(), &archive(&[one, one, one, ("f", b'0', "", b"")])).failed(1, "8 MiB");
}

/// The defect: of numbers that do not fit, some of the bits were taken.
#[test]
fn numbers_that_do_not_fit_are_refused() {
    let dir = scratch();
    for (at, len, words) in [
        (124, 12, "a length out of range"),
        (108, 8, "an owner out of range"),
        (136, 12, "a time out of range"),
        (329, 8, "the number of a device out of range"),
    ] {
        let kind = if at == 329 { b'3' } else { b'0' };
        let mut block = header("file", kind, "", 0);
        block[at..at + len].fill(0);
        // 2^64, or what fits into a short field.
        (block[at], block[at + len - 9.min(len - 1)]) = (0x80, 1);
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block.resize(512 + 1024, 0);
        import(dir.path(), &block).failed(1, words);
    }
}

/// The defects: entries that GNU tar takes or leaves out with a warning made the archive one that is refused.
#[test]
fn what_gnu_tar_warns_of_is_warned_of() {
    let dir = scratch();
    let with = |text: &str| records(&[text]);
    let acl = "SCHILY.acl.default=user::rwx,group::r-x,other::r-x";
    for (entries, words) in [
        (vec![("f", b'Z', "", &b"zz"[..])], "unknown type 'Z'"),
        (
            vec![("f", b'0', "", b"zz"), ("m", b'M', "", b"rest")],
            "from another archive",
        ),
        (
            vec![
                ("x", b'x', "", &with("SCHILY.xattr.user.a=v")),
                ("l", b'2', "f", b""),
                ("f", b'0', "", b"zz"),
            ],
            "/img: l: its attribute user.a is left out",
        ),
        (
            vec![
                ("x", b'x', "", &with("SCHILY.xattr.user.a=v")),
                ("p", b'6', "", b""),
                ("f", b'0', "", b"zz"),
            ],
            "p: its attribute user.a",
        ),
        (
            vec![("x", b'x', "", &with(acl)), ("f", b'0', "", b"zz")],
            "posix_acl_default",
        ),
    ] {
        let ran = import(dir.path(), &archive(&entries));
        warned(&ran, words.trim_start_matches("/img: "));
        assert_eq!(cat(dir.path(), "/f"), "zz");
        assert!(!cat_lists(dir.path(), "/m"), "{words}");
    }
}

fn cat_lists(dir: &Path, file: &str) -> bool {
    diorite(&["stat", path(&dir.join("img")), file]).code == Some(0)
}

/// The defect: attributes in bsdtar's own words were lost. Judged by what bsdtar writes, and by hand.
#[test]
fn attributes_of_bsdtar_are_kept() {
    let dir = scratch();
    let bytes = archive(&[
        (
            "x",
            b'x',
            "",
            &records(&["LIBARCHIVE.xattr.user.a%3Db=aGVsbG8"]),
        ),
        ("f", b'0', "", b""),
    ]);
    import(dir.path(), &bytes).ok();
    let img = dir.path().join("img");
    let value = |name: &str| {
        let words = ["getfattr", "-n", name, "--only-values", path(&img), "/f"];
        diorite(&words).ok().text().trim().to_owned()
    };
    assert_eq!(value("user.a=b"), "hello");
    if !has("bsdtar") {
        return;
    }
    let source = dir.path().join("source");
    files(&source, &[("f", b"f")]);
    let set = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(source.join("f"), "user.b", b"of bsdtar", set).is_err() {
        return skip("no attributes of users here");
    }
    let tar = dir.path().join("b.tar");
    run(
        "bsdtar",
        &["-cf", path(&tar), "--format=pax", "-C", path(&source), "f"],
    );
    diorite(&["import", "-q", path(&tar), path(&img)]).ok();
    assert_eq!(value("user.b"), "of bsdtar");
}

/// The defect: a layer with a file below a name that a lower layer has for a file was refused.
#[test]
fn a_directory_of_an_upper_source_takes_the_place_of_a_file() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    fs::write(
        at("low.tar"),
        archive(&[("p", b'0', "", b"file"), ("k", b'0', "", b"k")]),
    )
    .unwrap();
    fs::write(at("up.tar"), archive(&[("p/q", b'0', "", b"below")])).unwrap();
    let img = at("img");
    diorite(&[
        "import",
        "-q",
        path(&at("low.tar")),
        path(&at("up.tar")),
        path(&img),
    ])
    .ok();
    clean(&img);
    assert_eq!(
        (cat(dir.path(), "/p/q"), cat(dir.path(), "/k")),
        ("below".into(), "k".into())
    );
    // In one archive it makes no sense.
    import(
        dir.path(),
        &archive(&[("p", b'0', "", b""), ("p/q", b'0', "", b"")]),
    )
    .failed(1, "no directory");
}

/// Runs the command with something as its standard input, and ends it if it does not end by itself.
fn soon(words: &[&str], stdin: &str) -> (Option<i32>, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_diorite"))
        .args(words)
        .stdin(fs::File::open(stdin).unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{words:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let ran = child.wait_with_output().unwrap();
    (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
}

/// The defect: a FIFO that nobody writes, or a device without an end, was waited for.
#[test]
fn what_has_no_end_is_not_read_for_ever() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let (fifo, img) = (at("fifo"), at("img"));
    run("mkfifo", &[path(&fifo)]);
    let layout = at("layout");
    let index = r#"{"manifests":[{"digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000"}]}"#;
    files(
        &layout,
        &[("oci-layout", b"{}"), ("index.json", index.as_bytes())],
    );
    fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    let blob = layout.join(format!("blobs/sha256/{}", "0".repeat(64)));
    std::os::unix::fs::symlink(&fifo, &blob).unwrap();
    for word in ["", "tar:", "docker:", "oci:", "manifest:"] {
        for file in [path(&fifo), "/dev/zero"] {
            let (code, err) = soon(
                &["import", "-q", &format!("{word}{file}"), path(&img)],
                "/dev/null",
            );
            assert_eq!(code, Some(1), "{word}{file}");
            assert!(err.contains("no regular file"), "{word}{file}: {err}");
        }
    }
    let (code, err) = soon(&["import", "-q", path(&layout), path(&img)], "/dev/null");
    assert!(code == Some(1) && err.contains("no regular file"), "{err}");
    // An archive that zeros without an end begin is empty; one of an image is none.
    assert_eq!(
        soon(&["import", "-q", "-", path(&img)], "/dev/zero").0,
        Some(0)
    );
    assert_eq!(
        soon(&["import", "-q", "docker:-", path(&img)], "/dev/zero").0,
        Some(1)
    );
}

/// The defect: images with something behind their stream, as OpenWrt has them, were refused; and files that are packed by xz, bzip2, lz4
/// and zip. Each is read as an archive and as an image, whole, and not if it is cut off or damaged.
#[test]
fn every_way_to_pack_is_read() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let tar = archive(&[
        ("f", b'0', "", &noise(300_000, 9)),
        ("g", b'0', "", &[0; 70_000]),
    ]);
    fs::write(at("x.tar"), &tar).unwrap();
    fs::write(at("x.img"), &tar).unwrap();
    for (tool, end, words) in [
        ("gzip", "gz", &["-k"][..]),
        ("zstd", "zst", &["-q"]),
        ("xz", "xz", &["-k"]),
        ("bzip2", "bz2", &["-k"]),
        ("lz4", "lz4", &["-q", "-k"]),
        ("zip", "zip", &["-q"]),
    ] {
        if !has(tool) {
            continue;
        }
        let packed = at(&format!("x.img.{end}"));
        match tool {
            "zip" => run(tool, &["-q", "-j", path(&packed), path(&at("x.img"))]),
            "lz4" => run(tool, &["-q", path(&at("x.img")), path(&packed)]),
            _ => run(tool, &[words, &[path(&at("x.img"))]].concat()),
        };
        let bytes = fs::read(&packed).unwrap();
        diorite(&["copy", "-q", path(&packed), path(&at("again"))]).ok();
        assert!(fs::read(at("again")).unwrap() == tar, "{tool}");
        fs::remove_file(at("again")).unwrap();
        // What it is is seen, whatever its name.
        import(dir.path(), &bytes).ok();
        assert_eq!(
            diorite(&["cat", path(&at("img")), "/f"]).ok().out,
            noise(300_000, 9)
        );
        let behind = [&bytes[..], b"{ \"signed\": 1 }"].concat();
        if !matches!(tool, "xz" | "zip") {
            warned(
                &import(dir.path(), &behind),
                "behind the end of the stream is ignored",
            );
            fs::write(&packed, &behind).unwrap();
            let copied = diorite(&["copy", "-q", path(&packed), path(&at("again"))]);
            warned(&copied, "behind the end of the stream is ignored");
            assert!(fs::read(at("again")).unwrap() == tar, "{tool}");
            fs::remove_file(at("again")).unwrap();
        }
        for len in [bytes.len() / 2, bytes.len() - 30] {
            if tool == "zip" && len > bytes.len() / 2 {
                continue;
            }
            fs::write(&packed, &bytes[..len]).unwrap();
            diorite(&["copy", "-q", path(&packed), path(&at("again"))]).failed(1, "cut off");
            import(dir.path(), &bytes[..len]).failed(1, "x.tar: ");
        }
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 3] ^= 0x55;
        fs::write(&packed, &damaged).unwrap();
        diorite(&["copy", "-q", path(&packed), path(&at("again"))]).failed(1, "cannot be copied");
        assert!(!at("again").exists(), "{tool}");
        diorite(&["copy", path(&at("x.img")), path(&at(&format!("y.{end}")))])
            .code
            .unwrap();
    }
}

/// A zip archive is taken for one file: also one of a pipe, whose lengths are behind it, and of Python.
#[test]
fn a_zip_archive_holds_one_file() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("x.img"), noise(100_000, 2)).unwrap();
    let script = "import sys, zipfile\n\
        d, kind, how = sys.argv[1:4]\n\
        z = zipfile.ZipFile(d + '/p.zip', 'w', getattr(zipfile, kind))\n\
        data = open(d + '/x.img', 'rb').read()\n\
        z.writestr('dir/', '')\n\
        if how == 'stream':\n    \
            with z.open('dir/x.img', 'w', force_zip64=True) as f: f.write(data)\n\
        else: z.writestr('dir/x.img', data)\n\
        if how == 'two': z.writestr('other', 'x')\n\
        if how == 'mac': z.writestr('__MACOSX/dir/._x.img', 'x')\n\
        z.close()\n";
    let make = |kind: &str, how: &str| {
        run("python3", &["-c", script, path(dir.path()), kind, how]);
        let to = at("again");
        let _ = fs::remove_file(&to);
        diorite(&["copy", "-q", path(&at("p.zip")), path(&to)])
    };
    for (kind, how) in [
        ("ZIP_STORED", "plain"),
        ("ZIP_DEFLATED", "plain"),
        ("ZIP_DEFLATED", "stream"),
        ("ZIP_DEFLATED", "mac"),
    ] {
        make(kind, how).ok();
        assert!(
            fs::read(at("again")).unwrap() == noise(100_000, 2),
            "{kind} {how}"
        );
    }
    make("ZIP_DEFLATED", "two").failed(1, "several files");
    make("ZIP_BZIP2", "plain").failed(1, "method 12");
    if has("zip") {
        let piped = "cat \"$0/x.img\" | zip -q - - > \"$0/p.zip\"";
        run("sh", &["-c", piped, path(dir.path())]);
        let _ = fs::remove_file(at("again"));
        diorite(&["copy", "-q", path(&at("p.zip")), path(&at("again"))]).ok();
        assert!(fs::read(at("again")).unwrap() == noise(100_000, 2));
    }
}

/// The defect: what a name does not say was copied as if it were the disk, without a word.
#[test]
fn another_name_is_told() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    fs::write(
        at("raw"),
        [&noise(100_000, 2)[..], &[0; 34_656 - 4096]].concat(),
    )
    .unwrap();
    let raw = fs::read(at("raw")).unwrap();
    for (end, words) in [
        ("gz", "gzip stream"),
        ("zst", "zstd stream"),
        ("simg", "Android sparse"),
        ("qcow2", "qcow2 image"),
    ] {
        let packed = at(&format!("x.{end}"));
        diorite(&["copy", "-q", path(&at("raw")), path(&packed)]).ok();
        let other = at("other.img");
        fs::copy(&packed, &other).unwrap();
        let word = if end == "simg" { "android-sparse" } else { end };
        for (source, stdin) in [(path(&other), "/dev/null"), ("-", path(&other))] {
            let copied = |options: &[&str]| {
                let _ = fs::remove_file(at("again"));
                let to = at("again");
                let words = [&["copy", "-q"], options, &[source, path(&to)]].concat();
                soon(&words, stdin)
            };
            let (code, err) = copied(&[]);
            assert!(code == Some(0) && err.contains(words), "{end}: {err}");
            assert!(err.contains(&format!("-f {word} ")), "{err}");
            assert!(fs::read(at("again")).unwrap() == fs::read(&other).unwrap());
            // Who says what it is is not told.
            assert_eq!(copied(&["-f", "raw"]), (Some(0), String::new()));
            if source != "-" || end != "qcow2" {
                assert_eq!(copied(&["-f", word]), (Some(0), String::new()));
                assert!(fs::read(at("again")).unwrap() == raw, "{end}");
            }
        }
        let disk = diorite(&["disk", "-q", path(&at("disk")), path(&other)]);
        assert!(disk.err.contains(words), "{}", disk.err);
    }
    // A fixed VHD is the disk with a footer.
    fs::write(at("v.img"), [&raw[..], b"conectix", &[0; 504]].concat()).unwrap();
    let _ = fs::remove_file(at("again"));
    let vhd = diorite(&["copy", "-q", path(&at("v.img")), path(&at("again"))]);
    warned(&vhd, "VHD image");
}

/// Levels make files smaller; what is no level is refused.
#[test]
fn levels_are_those_of_the_programs() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let text = [include_str!("archives.rs"), include_str!("taken.rs")].concat();
    fs::write(at("raw"), &text).unwrap();
    for end in ["gz", "zst"] {
        let len = |level: &str| {
            let to = at(&format!("x.{end}"));
            diorite(&["copy", "-q", "--level", level, path(&at("raw")), path(&to)]).ok();
            let _ = fs::remove_file(at("again"));
            diorite(&["copy", "-q", path(&to), path(&at("again"))]).ok();
            assert!(fs::read(at("again")).unwrap() == text.as_bytes());
            fs::metadata(&to).unwrap().len()
        };
        assert!(len("9") < len("1"), "{end}");
    }
    let level = |level: &str, to: &str| {
        diorite(&[
            "copy",
            "-q",
            "--level",
            level,
            path(&at("raw")),
            path(&at(to)),
        ])
    };
    level("10", "y.gz").failed(1, "levels 1 to 9");
    level("3", "y.img").failed(1, "--level is for");
    level("20", "y.zst").failed(2, "20");
    if has("zstd") {
        diorite(&["copy", "-q", path(&at("raw")), path(&at("z.zst"))]).ok();
        run(
            "zstd",
            &["-q", "-3", path(&at("raw")), "-o", path(&at("theirs.zst"))],
        );
        let len = |name: &str| fs::metadata(at(name)).unwrap().len();
        assert!(len("z.zst") * 100 <= len("theirs.zst") * 102);
    }
}

/// An image of umoci, and what skopeo makes of it: a layer has a directory where the one below has a file.
#[test]
fn images_of_umoci_and_skopeo_are_read() {
    if !has("umoci") {
        return;
    }
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let (layout, bundle) = (at("layout"), at("bundle"));
    let image = format!("{}:one", path(&layout));
    run("umoci", &["init", "--layout", path(&layout)]);
    run("umoci", &["new", "--image", &image]);
    let change = |change: &dyn Fn(&Path)| {
        let _ = fs::remove_dir_all(&bundle);
        run(
            "umoci",
            &["unpack", "--rootless", "--image", &image, path(&bundle)],
        );
        change(&bundle.join("rootfs"));
        run("umoci", &["repack", "--image", &image, path(&bundle)]);
    };
    change(&|root| files(root, &[("p", b"file"), ("k", b"keep"), ("gone", b"x")]));
    change(&|root| {
        fs::remove_file(root.join("p")).unwrap();
        fs::remove_file(root.join("gone")).unwrap();
        files(root, &[("p/q", b"below")]);
    });
    let look = |source: &str| {
        diorite(&["import", "-q", source, path(&at("img"))]).ok();
        clean(&at("img"));
        assert_eq!(
            (cat(dir.path(), "/p/q"), cat(dir.path(), "/k")),
            ("below".into(), "keep".into())
        );
        assert!(!cat_lists(dir.path(), "/gone"), "{source}");
    };
    look(path(&layout));
    if has("skopeo") {
        for kind in ["docker-archive", "oci-archive"] {
            let to = format!("{kind}:{}", path(&at(kind)));
            let from = format!("oci:{image}");
            run("skopeo", &["copy", "-q", "--insecure-policy", &from, &to]);
            look(path(&at(kind)));
            look(&to);
        }
    }
}
