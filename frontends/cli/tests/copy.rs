//! Tests of `cat` and `get`: the copies have the contents and metadata of the originals.

use crate::common::{
    Mount, copied_command, diorite, facts, files, get, image, is_root, odd_name, run, same,
    same_but, scratch, skip, tree, xattrs,
};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

fn path(p: &Path) -> &str {
    p.to_str().unwrap()
}

#[test]
fn cat_gives_the_bytes() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    for (name, args) in [
        ("a", ["-t", "ext4", "-b", "1024"]),
        ("b", ["-t", "ext2", "-b", "4096"]),
    ] {
        let img = image(dir.path(), name, "64M", &args, Some(&source));
        for engine in ["uring", "aio", "threads"] {
            let ran = diorite(&[
                "cat",
                "--io-engine",
                engine,
                &img,
                "/big",
                "small",
                "/empty",
                "dir/link",
            ])
            .ok();
            let small = fs::read(source.join("small")).unwrap();
            let want = [fs::read(source.join("big")).unwrap(), small.clone(), small].concat();
            assert!(ran.out == want, "{name}, {engine}");
        }
        assert!(
            diorite(&["cat", &img, "sparse"]).ok().out == fs::read(source.join("sparse")).unwrap()
        );
        let args = ["cat".into(), img.clone().into(), odd_name()];
        assert_eq!(diorite(&args).ok().out, b"odder\n");
    }
}

/// A closed pipe gives no message; a full disk does.
#[test]
fn cat_and_get_end_quietly_without_a_reader() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], Some(&source));
    for words in [&["cat", &img, "/big"][..], &["get", &img, "/big", "-"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_diorite"))
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), &*err), (Some(141), ""), "{words:?}");
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_diorite"))
        .args(["cat", &img, "/big"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&out.stderr),
        "diorite: write error: No space left on device\n"
    );
}

#[test]
fn get_copies_the_whole_tree() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    for (name, args) in [
        ("a", &["-t", "ext4"][..]),
        ("b", &["-t", "ext2", "-b", "1024"]),
        (
            "c",
            &["-t", "ext4", "-O", "inline_data,bigalloc", "-b", "4096"],
        ),
        ("d", &["-t", "ext4", "-b", "65536"]),
    ] {
        let img = image(dir.path(), name, "256M", args, Some(&source));
        let out = dir.path().join("out");
        get(&img, "/", &out);
        same(&source, &out);
        let blocks = |at: &Path| fs::metadata(at.join("sparse")).unwrap().blocks();
        assert!(
            blocks(&out) <= 512,
            "{name}: the copy has {} blocks",
            blocks(&out)
        );
        // Hard links are copied as links, not as separate files.
        let ino = |p: &str| fs::metadata(out.join(p)).unwrap().ino();
        assert_eq!(ino("big"), ino("dir/deeper/big too"));
        assert_eq!(ino("small"), ino("dir/small too"));
        // A second copy over the first one has the same result.
        get(&img, "/", &out);
        same(&source, &out);
        fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn get_puts_things_where_cp_would() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], Some(&source));
    let out = dir.path().join("out");
    diorite(&["get", &img, "/small", path(&out)]).ok();
    assert_eq!(fs::read(&out).unwrap(), b"a few words\n");
    diorite(&["get", &img, "/empty", path(&out)]).ok();
    assert_eq!(
        fs::read(&out).unwrap(),
        b"",
        "a file in the way is replaced"
    );
    diorite(&["get", &img, "/dir", path(&out)]).failed(1, "Not a directory");
    diorite(&["get", &img, "/small", "/empty", path(&out)]).failed(1, "Not a directory");
    fs::remove_file(&out).unwrap();
    fs::create_dir(&out).unwrap();
    diorite(&["get", &img, "/dir", "/small", "/link to dir", path(&out)]).ok();
    // One of the names of `big` is not below the copied directory.
    same_but(&source.join("dir"), &out.join("dir"), "big too");
    assert!(
        fs::symlink_metadata(out.join("link to dir"))
            .unwrap()
            .is_symlink()
    );
    assert_eq!(
        fs::metadata(out.join("small")).unwrap().ino(),
        fs::metadata(out.join("dir/small too")).unwrap().ino()
    );
    let ran = diorite(&["get", &img, "/nothing", "/small", path(&out.join("new"))]);
    ran.failed(1, "Not a directory");
    let ran = diorite(&["get", &img, "/nothing", "/empty", path(&out)]);
    ran.failed(1, "x:/nothing: No such file or directory");
    assert!(out.join("empty").exists(), "the others are copied");
    diorite(&[
        "get",
        &img,
        "/small",
        path(&dir.path().join("no/such/place")),
    ])
    .failed(1, "No such file or directory");
}

/// Paths of which one is below another, or that are the same, are copied as `cp -a` does. The defect: a directory that was
/// copied for one PATH was reported as a cycle for the next one, and not copied, although the image was sound.
#[test]
fn get_copies_each_path_whatever_the_others_are() {
    let dir = scratch();
    let source = dir.path().join("source");
    files(
        &source,
        &[
            ("a/one", b"one"),
            ("a/b/two", b"two"),
            ("a/b/c/three", b"three"),
        ],
    );
    fs::hard_link(source.join("a/one"), source.join("a/b/too")).unwrap();
    let img = image(dir.path(), "x", "8M", &["-t", "ext4"], Some(&source));
    let got = |name: &str, paths: [&str; 2]| {
        let out = dir.path().join(name);
        fs::create_dir(&out).unwrap();
        diorite(&["get", &img, paths[0], paths[1], path(&out)]).ok();
        out
    };
    for (n, paths) in [["/a", "/a/b"], ["/a", "/a"]].iter().enumerate() {
        let by_cp = dir.path().join(format!("cp{n}"));
        fs::create_dir(&by_cp).unwrap();
        let of_source = paths.map(|p| source.join(&p[1..]));
        run(
            "cp",
            &["-a", path(&of_source[0]), path(&of_source[1]), path(&by_cp)],
        );
        same(&by_cp, &got(&format!("got{n}"), *paths));
    }
    // cp itself reports a cycle for the second path here.
    let turned = got("turned", ["/a/b", "/a"]);
    same(&dir.path().join("got0"), &turned);
}

/// If the host is full, an incomplete copy has no name, and the old file with that name stays. The limit RLIMIT_FSIZE stands for
/// a full host: the write fails, whether its signal was ignored when the command began or not.
#[test]
fn get_leaves_nothing_half_done() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], Some(&source));
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("sparse"), "old").unwrap();
    for trap in ["", "trap '' XFSZ; "] {
        let words = format!("ulimit -f 100; {trap}exec \"$0\" get -q \"$1\" /small /sparse \"$2\"");
        let diorite = env!("CARGO_BIN_EXE_diorite");
        let ended = Command::new("sh")
            .args(["-c", &words, diorite, &img, path(&out)])
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(ended.code(), Some(1), "{trap}");
        assert_eq!(fs::read(out.join("sparse")).unwrap(), b"old", "{trap}");
        for entry in fs::read_dir(&out).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(name == "sparse" || name == "small", "{name:?}");
        }
    }
    assert_eq!(fs::read(out.join("small")).unwrap(), b"a few words\n");
}

/// Files of all types that only root can create, created by the kernel.
#[test]
fn get_as_root_keeps_owners_devices_and_attributes() {
    let dir = scratch();
    let img = image(
        dir.path(),
        "x",
        "64M",
        &["-t", "ext4", "-O", "ea_inode"],
        None,
    );
    let (at, out) = (dir.path().join("mnt"), dir.path().join("out"));
    {
        let Some(mount) = Mount::new(&img, &at, "rw") else {
            return;
        };
        tree(&mount.0.join("tree"));
        let script = "mknod null c 1 3; mknod disk b 259 70000; mkfifo -m 0622 p; chown 12:34 p null tree/big; \
            chown -h 5:6 tree/dir/link; cp /bin/true cap; chmod 4711 cap; mkdir d; chown 7:8 d; \
            touch -d '2030-01-02 03:04:05.123456789' d cap; touch -h -d '1970-01-01 00:00:00.000000001' tree/dir/link; \
            fallocate -l 1M tree/prealloc; true";
        run(
            "sh",
            &["-c", &format!("cd {} && {script}", mount.0.display())],
        );
        let set = |name: &str, key: &str, value: &[u8]| {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::lsetxattr(mount.0.join(name), key, value, flags).unwrap();
        };
        set(
            "cap",
            "security.capability",
            b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        );
        set("d", "trusted.large", &[9; 30_000]);
        set("tree/dir/link", "trusted.on-a-link", b"yes");
        let acl = b"\x02\0\0\0\x01\0\x07\0\xff\xff\xff\xff\x02\0\x07\0\xe8\x03\0\0\
            \x04\0\x05\0\xff\xff\xff\xff\x10\0\x07\0\xff\xff\xff\xff\x20\0\x05\0\xff\xff\xff\xff";
        set("d", "system.posix_acl_default", acl);
        set("d", "system.posix_acl_access", acl);
    }
    // The destination is a file system that can hold all of this metadata.
    let host = image(
        dir.path(),
        "host",
        "512M",
        &["-t", "ext4", "-O", "ea_inode"],
        None,
    );
    let Some(_host) = Mount::new(&host, &out, "rw") else {
        return;
    };
    get(&img, "/", &out);
    let Some(mount) = Mount::new(&img, &at, "ro") else {
        return;
    };
    same(&mount.0, &out);
    for (name, _) in facts(&mount.0) {
        let times = |p: &Path| {
            let m = fs::symlink_metadata(p).unwrap();
            (m.mtime(), m.mtime_nsec())
        };
        assert_eq!(
            times(&mount.0.join(&name)),
            times(&out.join(&name)),
            "{name:?}"
        );
    }
    assert_eq!(xattrs(&out.join("d")).len(), 3);
}

/// For an ordinary user everything possible is copied, with one warning, and no file that belonged to root stays set-user-id.
#[test]
fn get_without_root_warns_once() {
    if !is_root() {
        return skip("only root can make an image of root's and become somebody else");
    }
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    run("chmod", &["4755", path(&source.join("big"))]);
    run("mknod", &[path(&source.join("null")), "c", "1", "3"]);
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], Some(&source));
    let binary = copied_command(dir.path());
    let out = dir.path().join("out");
    run("chmod", &["a+rwx", path(dir.path())]);
    run("chmod", &["a+r", &img]);
    let ran = xtask::run::tool("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            path(&binary),
            "get",
            &img,
            "/",
            path(&out),
        ])
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(1), "{err}");
    assert_eq!(err.matches("owners are not kept").count(), 1, "{err}");
    assert!(
        err.contains("x:/null: cannot make it: Operation not permitted"),
        "{err}"
    );
    assert_eq!(
        fs::metadata(out.join("big")).unwrap().mode() & 0o7777,
        0o755
    );
    assert!(fs::read(out.join("big")).unwrap() == fs::read(source.join("big")).unwrap());
    assert_eq!(xattrs(&out.join("big")).len(), 2);
}

#[test]
fn images_inside_images_and_partitions() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let inner = image(
        dir.path(),
        "inner.img",
        "32M",
        &["-t", "ext4"],
        Some(&source),
    );
    let holder = dir.path().join("holder");
    fs::create_dir(&holder).unwrap();
    fs::rename(&inner, holder.join("inner.img")).unwrap();
    let outer = image(
        dir.path(),
        "outer.img",
        "100M",
        &["-t", "ext4", "-b", "4096"],
        Some(&holder),
    );
    let nested = format!("{outer}!/inner.img");
    assert_eq!(
        diorite(&["cat", &nested, "small"]).ok().out,
        b"a few words\n"
    );
    let out = dir.path().join("out");
    get(&nested, "/", &out);
    same(&source, &out);
    // The defect: a parameter of the inner image was taken as a part of its name, without a message.
    diorite(&["ls", &format!("{nested}?part=1")]).failed(2, "no partition table");
    diorite(&["ls", &format!("{nested}?partition=1")]).failed(2, "not all known parameters");
    let parted = diorite(&["ls", &format!("{outer}!/nothing")]);
    parted.failed(2, "No such file or directory");

    let disk = dir.path().join("disk");
    fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    let table = dir.path().join("table");
    fs::write(
        &table,
        "label: gpt\nstart=2048, size=2048\nstart=8192, size=65536\n",
    )
    .unwrap();
    run(
        "sh",
        &[
            "-c",
            &format!(
                "sfdisk -q --no-tell-kernel {} <{}",
                disk.display(),
                table.display()
            ),
        ],
    );
    let from = dir.path().join("part");
    fs::copy(holder.join("inner.img"), &from).unwrap();
    run(
        "dd",
        &[
            "bs=1M",
            "seek=4",
            "conv=notrunc,sparse",
            "status=none",
            &format!("if={}", from.display()),
            &format!("of={}", disk.display()),
        ],
    );
    // The same disk inside an image.
    let within = dir.path().join("within");
    fs::create_dir(&within).unwrap();
    fs::copy(&disk, within.join("disk")).unwrap();
    let within = image(
        dir.path(),
        "within.img",
        "100M",
        &["-t", "ext4", "-b", "4096"],
        Some(&within),
    );
    let named = format!("name one of them: '{within}!/disk?part=");
    diorite(&["ls", &format!("{within}:/disk")]).failed(2, &named);
    assert_eq!(
        diorite(&["cat", &format!("{within}:/disk?part=2"), "small"])
            .ok()
            .out,
        b"a few words\n"
    );
    assert_eq!(
        diorite(&["cat", &format!("{}?part=2", disk.display()), "small"])
            .ok()
            .out,
        b"a few words\n"
    );
    assert_eq!(
        diorite(&["cat", &format!("{}?offset=4M", disk.display()), "small"])
            .ok()
            .out,
        b"a few words\n"
    );
    let listed = "it is a disk with partitions; its GPT has 1 (Linux filesystem, ";
    for (command, code) in [("ls", 2), ("info", 1), ("check", 8)] {
        let ran = diorite(&[command, path(&disk)]);
        ran.failed(code, listed);
        ran.failed(code, &format!("name one of them: '{}?part=", path(&disk)));
    }
    diorite(&["rm", path(&disk), "/small"]).failed(1, listed);
    let other = diorite(&["ls", &format!("{}?part=1", disk.display())]);
    other.failed(
        2,
        "partition 1 holds no ext2/ext3/ext4 file system; its GPT has",
    );
    other.failed(2, &format!("'{}?part=2'", disk.display()));
    diorite(&["ls", &format!("{}?part=7", disk.display())]).failed(2, "7");
}

/// With inline_data, mke2fs makes a file of zeros or of a hole an inline file without stored data, whatever its size. The
/// kernel and e2fsck accept it; the defect: diorite could not read it. It can be read, copied with its hole, truncated,
/// extended and written to like any other file.
#[test]
fn files_of_zeros_that_have_nothing_stored() {
    let dir = scratch();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let sizes = [100, 5000, 100_000];
    for size in sizes {
        let file = std::fs::File::create(source.join(size.to_string())).unwrap();
        file.set_len(size).unwrap();
    }
    let args = ["-t", "ext4", "-b", "1024", "-O", "inline_data"];
    let img = image(dir.path(), "image", "8M", &args, Some(&source));
    let read = |name: &str| diorite(&["cat", &img, name]).ok().out;
    for size in sizes {
        assert_eq!(read(&format!("/{size}")), vec![0; size as usize]);
    }
    let to = dir.path().join("copy");
    get(&img, "/", &to);
    for size in sizes {
        let copy = std::fs::read(to.join(size.to_string())).unwrap();
        assert_eq!(copy, vec![0; size as usize]);
    }
    diorite(&["truncate", "-s", "90", &img, "/100"]).ok();
    diorite(&["truncate", "-s", "200000", &img, "/100000"]).ok();
    diorite(&["fallocate", "-p", "-o", "30", "-l", "40", &img, "/5000"]).ok();
    run("e2fsck", &["-fn", &img]);
    diorite(&["check", &img]).ok();
    assert_eq!(read("/100"), [0; 90]);
    assert_eq!(read("/100000"), vec![0; 200_000]);
    assert_eq!(read("/5000"), [0; 5000]);
    diorite(&["truncate", "-s", "4000", &img, "/5000"]).ok();
    diorite(&["truncate", "-s", "50", &img, "/100000"]).ok();
    run("e2fsck", &["-fn", &img]);
    diorite(&["check", &img]).ok();
    assert_eq!(
        (read("/5000"), read("/100000")),
        (vec![0; 4000], vec![0; 50])
    );
}
