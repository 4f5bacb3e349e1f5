//! `diorite import` of directories and images.

use super::archives::archive;
use super::{clean, kernel_shows, number, path};
use crate::common::{diorite, files, get, is_root, noise, run, same_but, scratch, tree};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

#[test]
fn everything_of_a_directory_is_there() {
    let dir = scratch();
    let (source, img) = (dir.path().join("source"), dir.path().join("img"));
    tree(&source);
    for options in [
        &[][..],
        &["-b", "1024"],
        &["-t", "ext2"],
        &["-O", "bigalloc", "-C", "16384"],
        &["-I", "128"],
        &["-O", "inline_data"],
    ] {
        let mut args = vec!["import", "-q"];
        args.extend(options);
        args.extend([path(&source), path(&img)]);
        diorite(&args).ok();
        clean(&img);
        kernel_shows(&img, &dir.path().join("m"), |at| {
            same_but(&source, at, "lost+found")
        });
        let out = dir.path().join("out");
        get(path(&img), "/", &out);
        same_but(&source, &out, "lost+found");
        fs::remove_dir_all(&out).unwrap();
    }
}

/// Sizes by themselves: at most a mebibyte, or a hundredth, is free beyond what was asked for, and the image can be filled to its end.
#[test]
fn an_image_is_as_large_as_its_files_need() {
    let dir = scratch();
    let (source, img) = (dir.path().join("source"), dir.path().join("img"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("one"), noise(3_000_000, 1)).unwrap();
    let mut bytes = 3_000_000;
    for more in [0, 10_000_000, 60_000_000] {
        if more > 0 {
            fs::write(source.join(format!("of{more}")), noise(more, 2)).unwrap();
            bytes += more as u64;
        }
        for (size, asked) in [("auto", 0), ("auto+5M", 5 << 20), ("auto+50%", bytes / 2)] {
            for options in [
                &[][..],
                &["-O", "^has_journal"],
                &["-b", "1024"],
                &["-N", "5000"],
            ] {
                let mut args = vec!["import", "--json", "--size", size];
                args.extend(options);
                args.extend([path(&source), path(&img)]);
                let text = diorite(&args).ok().text();
                clean(&img);
                let free = number(&text, "available_blocks") * number(&text, "block_size");
                let most = (number(&text, "size") / 100).max(1 << 20);
                assert!(free >= asked && free - asked <= most, "{args:?}: {text}");
                assert_eq!(
                    number(&text, "size"),
                    fs::metadata(&img).unwrap().len(),
                    "{args:?}"
                );
            }
        }
    }
}

/// A size that is too small says what is missing; with that much more the files fit, up to the last block.
#[test]
fn what_is_missing_is_said() {
    let dir = scratch();
    let (source, img) = (dir.path().join("source"), dir.path().join("img"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), noise(20_000_000, 3)).unwrap();
    let ran = diorite(&[
        "import",
        "-q",
        "--size",
        "16M",
        "-b",
        "4096",
        path(&source),
        path(&img),
    ]);
    ran.failed(1, "blocks of 4096 bytes");
    assert!(!img.exists());
    let said = ran.err;
    let at = said.find("do not fit: ").unwrap() + 12;
    let missing: u64 = said[at..].split(' ').next().unwrap().parse().unwrap();
    let size = (16 << 20) + missing * 4096;
    diorite(&[
        "import",
        "-q",
        "--size",
        &size.to_string(),
        "-b",
        "4096",
        path(&source),
        path(&img),
    ])
    .ok();
    clean(&img);
    for n in 0..200 {
        fs::write(source.join(format!("{n}")), "x").unwrap();
    }
    let ran = diorite(&[
        "import",
        "-q",
        "--size",
        "64M",
        "-N",
        "16",
        path(&source),
        path(&img),
    ]);
    ran.failed(1, "inodes are missing");
}

/// The same files, time and seed make the same bytes, whatever the number of processors and the order in which the host lists names.
#[test]
fn the_same_is_made_again() {
    let dir = scratch();
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    let names: Vec<String> = (0..300).map(|n| format!("file-with-a-name-{n}")).collect();
    fs::create_dir(&one).unwrap();
    fs::create_dir(&other).unwrap();
    for (n, name) in names.iter().enumerate() {
        fs::write(one.join(name), noise(n * 37, n as u64)).unwrap();
    }
    for (n, name) in names.iter().enumerate().rev() {
        fs::write(other.join(name), noise(n * 37, n as u64)).unwrap();
    }
    let make = |from: &Path, to: &str, cpus: Option<&str>| {
        let to = dir.path().join(to);
        let own = env!("CARGO_BIN_EXE_diorite");
        let mut command = match cpus {
            Some(cpus) => {
                let mut command = Command::new("taskset");
                command.args(["-c", cpus, own]);
                command
            }
            None => Command::new(own),
        };
        let ran = command
            .args([
                "import",
                "-q",
                "--seed",
                "s",
                "--owner",
                "0:0",
                path(from),
                path(&to),
            ])
            .env("SOURCE_DATE_EPOCH", "1000000000")
            .status();
        assert!(ran.unwrap().success());
        fs::read(to).unwrap()
    };
    let first = make(&one, "a.img", None);
    assert!(first == make(&other, "b.img", Some("0")));
    assert!(first == make(&one, "c.img", None));
}

/// Directories of many names get a hash tree that the kernel, e2fsck and the engine find everything in.
#[test]
fn large_directories_have_trees() {
    let dir = scratch();
    let (source, img) = (dir.path().join("source"), dir.path().join("img"));
    fs::create_dir(&source).unwrap();
    let name = |n: usize| format!("{n:x>200}");
    for n in 0..9000 {
        fs::write(source.join(name(n)), "").unwrap();
    }
    diorite(&["import", "-q", "-b", "1024", path(&source), path(&img)]).ok();
    clean(&img);
    for n in [0, 1, 4321, 8999] {
        diorite(&["stat", path(&img), &name(n)]).ok();
    }
    let missing = diorite(&["stat", path(&img), &name(9000)]);
    assert!(missing.code == Some(1));
    kernel_shows(&img, &dir.path().join("m"), |at| {
        assert_eq!(fs::read_dir(at).unwrap().count(), 9001);
        assert!((0..9000).all(|n| at.join(name(n)).exists()));
    });
    // Room for more names is made by the engine as anywhere.
    diorite(&[
        "import",
        "-q",
        "--size",
        "auto+4M",
        "-b",
        "1024",
        path(&source),
        path(&img),
    ])
    .ok();
    diorite(&["mkdir", path(&img), &name(9001)]).ok();
    clean(&img);
}

/// Sources in order: what comes later replaces a file and keeps a directory; paths lead through links inside the tree.
#[test]
fn later_sources_are_above() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    files(
        &at("low"),
        &[("a/file", b"low"), ("a/other", b"low"), ("b", b"low")],
    );
    symlink("a", at("low").join("link")).unwrap();
    files(
        &at("high"),
        &[
            ("a/file", b"high"),
            ("b/below", b"high"),
            ("link/new", b"high"),
        ],
    );
    let img = at("img");
    diorite(&[
        "import",
        "-q",
        path(&at("low")),
        path(&at("high")),
        path(&img),
    ])
    .ok();
    clean(&img);
    let cat = |file: &str| diorite(&["cat", path(&img), file]).ok().text();
    assert_eq!(
        (cat("/a/file"), cat("/a/other"), cat("/b/below")),
        ("high".into(), "low".into(), "high".into())
    );
    // A directory is no link to one: it replaces it.
    assert_eq!(cat("/link/new"), "high");
}

#[test]
fn owners_names_and_labels_follow_the_rules() {
    let dir = scratch();
    let source = dir.path().join("source");
    files(
        &source,
        &[
            ("etc/passwd", b"x"),
            ("cache/big", b"x"),
            ("keep/cache/x.o", b"x"),
            ("keep/y.c", b"x"),
        ],
    );
    let contexts = dir.path().join("contexts");
    fs::write(&contexts, "# all\n/.* system_u:object_r:all_t:s0\n/etc(/.*)? system_u:object_r:etc_t:s0\n/keep -d <<none>>\n").unwrap();
    let img = dir.path().join("img");
    let args = [
        "import",
        "-q",
        "--owner",
        "12:34",
        "--exclude",
        "/cache",
        "--exclude",
        "*.o",
        "--file-contexts",
        path(&contexts),
        path(&source),
        path(&img),
    ];
    diorite(&args).ok();
    clean(&img);
    let listed = diorite(&["find", path(&img), "/"]).ok().text();
    let names: Vec<&str> = listed.lines().collect();
    assert_eq!(
        names,
        [
            "/",
            "/etc",
            "/etc/passwd",
            "/keep",
            "/keep/cache",
            "/keep/y.c",
            "/lost+found"
        ]
    );
    let owner = diorite(&["stat", "-c", "%u:%g", path(&img), "/etc/passwd"])
        .ok()
        .text();
    assert_eq!(owner.trim(), "12:34");
    let label = |file: &str| {
        diorite(&["getfattr", "-d", "-m", "-", path(&img), file])
            .ok()
            .text()
    };
    assert!(label("/etc/passwd").contains("etc_t") && label("/keep/y.c").contains("all_t"));
    assert!(!label("/keep").contains("_t:"), "{}", label("/keep"));
    let maps = [
        "import",
        "-q",
        "--owner",
        "5:5",
        "--uid-map",
        "x",
        path(&source),
        path(&img),
    ];
    diorite(&maps).failed(1, "no FROM:TO");
}

/// The defect: a question mark was one byte, so `caf?` left the file `café` in.
#[test]
fn a_question_mark_is_a_character() {
    use std::os::unix::ffi::OsStrExt;
    let dir = scratch();
    let source = dir.path().join("source");
    files(&source, &[("caf\u{e9}", b"x"), ("cafes", b"x")]);
    // What is no character counts as one.
    fs::write(source.join(std::ffi::OsStr::from_bytes(b"caf\xff")), "x").unwrap();
    let img = dir.path().join("img");
    for (pattern, left) in [
        ("caf?", "cafes"),
        ("/ca??", "cafes"),
        ("caf??", "caf\u{e9} caf\u{fffd}"),
        ("*\u{e9}", "cafes caf\u{fffd}"),
    ] {
        diorite(&[
            "import",
            "-q",
            "--exclude",
            pattern,
            path(&source),
            path(&img),
        ])
        .ok();
        let listed = diorite(&["find", path(&img), "/", "-type", "f"])
            .ok()
            .text();
        let mut names: Vec<&str> = listed.lines().map(|name| &name[1..]).collect();
        names.sort_unstable();
        assert_eq!(names.join(" "), left, "{pattern}");
    }
}

/// An image in an image: its files, or a part of them.
#[test]
fn another_image_is_a_source() {
    let dir = scratch();
    let (source, one, two) = (
        dir.path().join("source"),
        dir.path().join("one.img"),
        dir.path().join("two.img"),
    );
    tree(&source);
    diorite(&["import", "-q", path(&source), path(&one)]).ok();
    diorite(&["import", "-q", path(&one), path(&two)]).ok();
    clean(&two);
    let out = dir.path().join("out");
    get(path(&two), "/", &out);
    same_but(&source, &out, "lost+found");
    let part = format!("{}:/dir", path(&one));
    diorite(&["import", "-q", &part, path(&two)]).ok();
    clean(&two);
    let before = run("debugfs", &["-R", "ls -p /dir", path(&one)])
        .lines()
        .count();
    let after = run("debugfs", &["-R", "ls -p /", path(&two)])
        .lines()
        .count();
    assert_eq!(after, before + 1, "lost+found is one more");
}

/// An image that was there stays until the new one is whole.
#[test]
fn a_failure_leaves_the_old_image() {
    let dir = scratch();
    let (source, img) = (dir.path().join("source"), dir.path().join("img"));
    files(&source, &[("file", b"x"), ("secret", b"x")]);
    fs::write(&img, "old").unwrap();
    let none = diorite(&[
        "import",
        "-q",
        path(&dir.path().join("nothing")),
        path(&img),
    ]);
    none.failed(1, "nothing");
    assert_eq!(fs::read(&img).unwrap(), b"old");
    if !is_root() {
        let secret = source.join("secret");
        fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o0)).unwrap();
        diorite(&["import", "-q", path(&source), path(&img)]).failed(1, "secret");
        assert_eq!(fs::read(&img).unwrap(), b"old");
    }
    let names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

/// A block device is used in place; a link leads to what is replaced; what is neither is refused.
#[test]
fn places_are_what_they_are() {
    let dir = scratch();
    let source = dir.path().join("source");
    files(&source, &[("file", b"x")]);
    let (img, link) = (dir.path().join("img"), dir.path().join("link"));
    symlink(&img, &link).unwrap();
    fs::write(&img, "old").unwrap();
    diorite(&["import", "-q", path(&source), path(&link)]).ok();
    clean(&img);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    let inside = format!("{}:/inner.img", path(&img));
    diorite(&["import", "-q", path(&source), &inside]).failed(1, "made on the host");
    diorite(&["import", "-q", path(&source), path(dir.path())]).failed(1, "no regular file");
    let with = format!("{}?offset=4096", path(&img));
    diorite(&["import", "-q", path(&source), &with]).failed(1, "no parameters but ?format=");
    // The defect: a format was refused, which mkfs and copy take.
    for (name, format, start) in [
        ("n.img", "qcow2", &b"QFI\xfb"[..]),
        ("n.qcow2", "raw", &[0; 4]),
    ] {
        let new = dir.path().join(name);
        let with = format!("{}?format={format}", path(&new));
        diorite(&["import", "-q", path(&source), &with]).ok();
        assert_eq!(&fs::read(&new).unwrap()[..4], start, "{with}");
        assert_eq!(diorite(&["cat", &with, "/file"]).ok().text(), "x");
        // It is not taken into itself the next time.
        diorite(&["import", "-q", path(&source), path(dir.path()), &with]).ok();
        assert_eq!(diorite(&["ls", &with, &format!("/{name}")]).code, Some(2));
    }
    // A name that says that the file is packed by what is not known here.
    let packed = format!("{}.xz", path(&img));
    diorite(&["import", "-q", path(&source), &packed]).failed(1, "xz is read, but not written");
    diorite(&["import", "-q", "--format", "raw", path(&source), &packed]).ok();
    let backing = dir.path().join("backing");
    fs::write(&backing, vec![0x5A; 32 << 20]).unwrap();
    let Some(device) = xtask::loopback::Loop::attach_or_skip(&backing, &[]) else {
        return;
    };
    diorite(&["import", "-q", path(&source), device.device()]).ok();
    run("e2fsck", &["-fn", device.device()]);
    assert_eq!(diorite(&["cat", device.device(), "/file"]).ok().text(), "x");
    diorite(&["mkfs", "-q", "-d", path(&source), device.device()]).ok();
    run("e2fsck", &["-fn", device.device()]);
    let large = diorite(&[
        "import",
        "-q",
        "--size",
        "64M",
        path(&source),
        device.device(),
    ]);
    large.failed(1, "fewer than the image needs");
}

/// An image in use stays; a replaced one keeps its permissions; the image that is made does not go into itself.
#[test]
fn what_is_replaced_is_looked_at() {
    use std::os::unix::fs::PermissionsExt;
    let dir = scratch();
    let source = dir.path().join("source");
    files(&source, &[("file", b"x")]);
    let img = source.join("own.img");
    diorite(&["import", "-q", "--seed", "s", path(&source), path(&img)]).ok();
    let size = fs::metadata(&img).unwrap().len();
    fs::set_permissions(&img, fs::Permissions::from_mode(0o600)).unwrap();
    diorite(&["import", "-q", "--seed", "s", path(&source), path(&img)]).ok();
    let meta = fs::metadata(&img).unwrap();
    assert_eq!(
        (meta.len(), meta.permissions().mode() & 0o777),
        (size, 0o600)
    );
    assert!(diorite(&["stat", path(&img), "/own.img"]).code == Some(1));
    let dangling = dir.path().join("dangling");
    symlink("nowhere/at/all", &dangling).unwrap();
    diorite(&["import", "-q", path(&source), path(&dangling)]).failed(1, "leads to nothing");
    let at = dir.path().join("m");
    fs::create_dir(&at).unwrap();
    let Some(mount) = crate::common::Mount::new(path(&img), &at, "loop") else {
        return;
    };
    let ran = diorite(&["import", "-q", path(&source), path(&img)]);
    assert!(ran.code == Some(1), "an image in use is not replaced");
    drop(mount);
    clean(&img);
}

/// A directory that is named twice, as damage leaves it, ends an import and an export.
#[test]
fn circles_of_directories_end() {
    let dir = scratch();
    let (source, img) = (dir.path().join("source"), dir.path().join("img"));
    files(&source, &[("d/file", b"x")]);
    diorite(&["import", "-q", path(&source), path(&img)]).ok();
    run("debugfs", &["-w", "-R", "link d d/loop", path(&img)]);
    let other = dir.path().join("other");
    diorite(&["import", "-q", path(&img), path(&other)]).failed(1, "two names");
    diorite(&["export", "-q", path(&img), path(&dir.path().join("x.tar"))]).failed(1, "two names");
}

/// A wrong option is wrong at any size: it ends the search at once.
#[test]
fn a_search_for_a_size_ends() {
    let dir = scratch();
    let (source, img) = (dir.path().join("source"), dir.path().join("img"));
    files(&source, &[("file", b"x")]);
    for (words, why) in [
        ("-E desc_size=96", "descriptors of 96 bytes"),
        ("--size auto+15E", "stay free"),
        ("--size auto+1P", "stay free"),
        ("-m 99", "99 %"),
    ] {
        let mut args = vec!["import", "-q"];
        args.extend(words.split(' '));
        args.extend([path(&source), path(&img)]);
        diorite(&args).failed(1, why);
    }
    diorite(&["import", "-q", "-J", "size=40", path(&source), path(&img)]).ok();
    clean(&img);
}

/// The defects: a line of a path lost to expressions behind it, '.' matched no newline, and an unknown type of file was taken for one
/// that no file has; libselinux has it otherwise.
#[test]
fn labels_are_those_of_libselinux() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let (source, img, contexts) = (at("source"), at("img"), at("contexts"));
    files(
        &source,
        &[("etc/shadow", b"x"), ("etc/a.b", b"x"), ("etc/n\nl", b"x")],
    );
    let import = |text: &str| {
        fs::write(&contexts, text).unwrap();
        let contexts = path(&contexts);
        diorite(&[
            "import",
            "-q",
            "--file-contexts",
            contexts,
            path(&source),
            path(&img),
        ])
    };
    import("/etc/shadow u:r:shadow\n/etc/a\\.b u:r:ab\n/etc/.* u:r:etc\n").ok();
    for (file, label) in [
        ("/etc/shadow", "u:r:shadow"),
        ("/etc/a.b", "u:r:ab"),
        ("/etc/n\nl", "u:r:etc"),
    ] {
        let args = [
            "getfattr",
            "-n",
            "security.selinux",
            "--only-values",
            path(&img),
            file,
        ];
        assert_eq!(
            diorite(&args).ok().text().trim_end_matches('\0'),
            label,
            "{file}"
        );
    }
    import("/etc -x u:r:etc\n").failed(1, "line 1: -x is no type of file");
}

/// The defects: directories that are in no source were not mapped, and numbers beyond the largest one became that of nobody.
#[test]
fn maps_are_of_all_owners() {
    let dir = scratch();
    let (tar, img) = (dir.path().join("tar"), dir.path().join("img"));
    fs::write(&tar, archive(&[("dir/file", b'0', "", b"x")])).unwrap();
    let import = |map: &str| {
        let words = ["import", "-q", "--uid-map", map, "--gid-map", map];
        diorite(&[&words[..], &[path(&tar), path(&img)]].concat())
    };
    import("0:100000:65536").ok();
    for name in ["/dir", "/dir/file"] {
        let owner = diorite(&["stat", "-c", "%u:%g", path(&img), name]);
        assert_eq!(owner.ok().text(), "100000:100000\n", "{name}");
    }
    import("0:4294967294").ok();
    for map in [
        "0:4294967295",
        "4294967295:0",
        "0:4294967000:296",
        "5:0:4294967295",
    ] {
        import(map).failed(1, "no owners above 4294967294");
    }
}
