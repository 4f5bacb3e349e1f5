//! Tests of `put`: the image has the same files as the host, for diorite, for e2fsck and for the kernel.

use crate::common::{
    Mount, copied_command, diorite, facts, get, image, is_root, noise, run, same, same_but,
    scratch, skip, tree, xattrs,
};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

const KINDS: [(&str, &[&str]); 7] = [
    ("ext4", &["-t", "ext4", "-b", "4096"]),
    ("small blocks", &["-t", "ext4", "-b", "1024"]),
    ("no journal", &["-t", "ext4", "-O", "^has_journal"]),
    ("clusters", &["-t", "ext4", "-b", "4096", "-O", "bigalloc"]),
    ("large blocks", &["-t", "ext4", "-b", "65536"]),
    ("ext2", &["-t", "ext2", "-b", "1024"]),
    ("inline", &["-t", "ext4", "-O", "inline_data,ea_inode"]),
];

fn path(p: &Path) -> &str {
    p.to_str().unwrap()
}

fn contents(p: &Path) -> String {
    format!("{}/.", p.display())
}

fn fsck(img: &str) {
    run("e2fsck", &["-fn", img]);
}

/// Copies a directory out of an image again.
fn got(img: &str, dir: &Path, what: &str) -> std::path::PathBuf {
    let out = dir.join("out");
    if out.exists() {
        fs::remove_dir_all(&out).unwrap();
    }
    get(img, what, &out);
    out
}

#[test]
fn a_whole_tree_and_back() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    for (name, args) in KINDS {
        let img = image(dir.path(), "x", "256M", args, None);
        // A second copy over the first one has the same result.
        for round in 0..if name == "ext4" { 2 } else { 1 } {
            diorite(&["put", &img, &contents(&source), "/"]).ok();
            fsck(&img);
            let out = got(&img, dir.path(), "/");
            same(&source, &out);
            let blocks = fs::metadata(out.join("sparse")).unwrap().blocks();
            assert!(
                blocks <= 512,
                "{name}, {round}: the copy has {blocks} blocks"
            );
            let ino = |p: &str| fs::metadata(out.join(p)).unwrap().ino();
            assert_eq!(ino("big"), ino("dir/deeper/big too"));
            assert_eq!(ino("small"), ino("dir/small too"));
        }
        let stat = diorite(&["extents", "--json", &img, "/sparse"]).ok().text();
        assert!(stat.lines().count() <= 8, "{name}: holes are kept: {stat}");
        fs::remove_file(&img).unwrap();
    }
}

#[test]
fn things_go_where_cp_would_put_them() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], None);
    let at = |name: &str| path(&source.join(name)).to_owned();
    let cat = |name: &str| diorite(&["cat", &img, name]).ok().text();
    let small = "a few words\n";
    diorite(&["put", &img, &at("small"), "/file"]).ok();
    assert_eq!(cat("/file"), small);
    diorite(&["put", &img, &at("empty"), "/file"]).ok();
    assert_eq!(cat("/file"), "", "a file in the way is replaced");
    diorite(&["put", "-n", &img, &at("small"), "/file"]).ok();
    assert_eq!(cat("/file"), "", "not with -n");
    diorite(&["put", &img, &at("dir"), "/file"]).failed(1, "Not a directory");
    diorite(&["put", &img, &at("small"), &at("empty"), "/file"]).failed(1, "Not a directory");
    diorite(&["put", &img, &at("small"), "/no/such/place"]).failed(1, "No such file or directory");
    diorite(&["put", &img, &at("small")]).failed(2, "needs a SOURCE");
    diorite(&["mkdir", &img, "/d"]).ok();
    diorite(&[
        "put",
        "-r",
        &img,
        &at("dir"),
        &at("small"),
        &at("link to dir"),
        "/d",
    ])
    .ok();
    same_but(&source.join("dir"), &got(&img, dir.path(), "/d/dir"), "too");
    assert!(
        diorite(&["stat", &img, "/d/link to dir"])
            .ok()
            .text()
            .contains("symbolic link")
    );
    diorite(&["put", "-t", "/d", &img, &at("empty"), &at("many")]).ok();
    same(&source.join("many"), &got(&img, dir.path(), "/d/many"));
    diorite(&["put", "-T", &img, &at("small"), "/d"]).failed(1, "Is a directory");
    diorite(&["put", "-aT", &img, &at("dir"), "/d/dir"]).ok();
    same_but(&source.join("dir"), &got(&img, dir.path(), "/d/dir"), "too");
    // A file with the name of a directory stays; the other files are copied.
    diorite(&["rm", "-r", &img, "/d/dir"]).ok();
    diorite(&["put", &img, &at("small"), "/d/dir"]).ok();
    let ran = diorite(&["put", &img, &at("nothing"), &at("dir"), &at("pipe"), "/d"]);
    ran.failed(1, "/d/dir: what is there already is not a directory");
    ran.failed(1, "nothing: No such file or directory");
    assert_eq!(cat("/d/dir"), small);
    diorite(&["mkdir", &img, "/d/under", "/d/under/small"]).ok();
    diorite(&["put", &img, &at("small"), "/d/under"]).failed(1, "a directory is in its way");
    // A symbolic link in the image is followed only in DEST itself.
    diorite(&["ln", "-s", &img, "/d", "/link"]).ok();
    diorite(&["put", &img, &at("small"), "/link"]).ok();
    assert_eq!(cat("/d/small"), small);
    diorite(&["ln", "-sf", &img, "/file", "/d/small"]).ok();
    diorite(&["put", &img, &at("small"), "/d"]).ok();
    assert_eq!(cat("/file"), "");
    // A symbolic link replaces a file, and a pipe replaces a link.
    diorite(&["put", &img, &at("link to dir"), "/d/small"]).ok();
    diorite(&["put", &img, &at("pipe"), "/d/small"]).ok();
    assert!(
        diorite(&["stat", &img, "/d/small"])
            .ok()
            .text()
            .contains("fifo")
    );
    let left = diorite(&["ls", "-A", &img, "/d"]).ok().text();
    assert!(!left.contains("put~"), "{left}");
    fsck(&img);
}

/// The replacement of a link, a pipe or a device is created beside it, under a temporary name. The defect: this name was the
/// original name with four more letters, which was too long for names of more than 251 bytes and could exist already.
#[test]
fn what_takes_a_place_is_made_under_any_name() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    let long = "n".repeat(255);
    for name in [&long, "link"] {
        std::os::unix::fs::symlink("new", source.join(name)).unwrap();
    }
    let img = image(dir.path(), "x", "8M", &["-t", "ext4"], None);
    diorite(&["touch", &img, "/link.put~", "/.put~0", "/.put~1"]).ok();
    for name in [&long, "link"] {
        diorite(&["ln", "-s", &img, "old", &format!("/{name}")]).ok();
        let from = source.join(name);
        diorite(&["put", &img, from.to_str().unwrap(), &format!("/{name}")]).ok();
        let now = diorite(&["stat", &img, &format!("/{name}")]).ok().text();
        assert!(now.contains("-> new"), "{now}");
    }
    let names = diorite(&["ls", "-A", &img, "/"]).ok().text();
    assert_eq!(names.matches("put~").count(), 3, "{names}");
    fsck(&img);
}

#[test]
fn owners_and_modes_as_told() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], None);
    let args = [
        "put",
        "--owner",
        "12",
        "--group",
        "34",
        "--mode",
        "u=rwX,go=rX",
    ];
    diorite(&[&args[..], &[&img, &contents(&source), "/"]].concat()).ok();
    let listed = diorite(&["ls", "-lR", &img, "/"]).ok().text();
    for line in listed.lines().filter(|l| l.starts_with(['-', 'd', 'p'])) {
        if !line.ends_with("lost+found") {
            assert!(line.contains(" 12 34 "), "{line}");
            assert!(
                [
                    "drwxr-xr-x",
                    "drwxr-sr-x",
                    "drwxr-xr-t",
                    "-rw-r--r--",
                    "-rwxr-xr-x",
                    "prw-r--r--"
                ]
                .iter()
                .any(|m| line.starts_with(m)),
                "{line}"
            );
        }
    }
    diorite(&[
        "put",
        "--mode",
        "600",
        "--no-xattrs",
        &img,
        path(&source),
        "/again",
    ])
    .ok();
    let listed = diorite(&["ls", "-lR", &img, "/again"]).ok().text();
    assert!(
        listed
            .lines()
            .any(|l| l.starts_with("-rw-------") && l.ends_with("big")),
        "{listed}"
    );
    assert!(
        listed
            .lines()
            .any(|l| l.starts_with("drwxr-s---") && l.ends_with("dir")),
        "{listed}"
    );
    assert!(
        !diorite(&["stat", &img, "/again/big"])
            .ok()
            .text()
            .contains("user.")
    );
    fsck(&img);
}

/// Files of all types that only root can create; checked on the kernel's mount, with times to the nanosecond.
#[test]
fn as_root_owners_devices_and_attributes_are_kept() {
    let dir = scratch();
    let host = image(dir.path(), "host", "512M", &["-t", "ext4"], None);
    let (from, at) = (dir.path().join("from"), dir.path().join("mnt"));
    let Some(_host) = Mount::new(&host, &from, "rw") else {
        return;
    };
    tree(&from.join("tree"));
    let script = "mknod null c 1 3; mknod disk b 259 70000; mkfifo -m 0622 p; chown 12:34 p null tree/big; \
        chown -h 5:6 tree/dir/link; cp /bin/true cap; chmod 4711 cap; mkdir d e; chown 7:8 d; \
        touch -d '2030-01-02 03:04:05.123456789' d cap; touch -h -d '1970-01-01 00:00:00.000000001' tree/dir/link; \
        fallocate -l 1M tree/prealloc; truncate -s 3M tree/hole; ln null null2; true";
    run("sh", &["-c", &format!("cd {} && {script}", from.display())]);
    let set = |name: &str, key: &str, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(from.join(name), key, value, flags).unwrap();
    };
    let capability = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    set("cap", "security.capability", capability);
    set("tree/dir/link", "trusted.on-a-link", b"yes");
    let acl = b"\x02\0\0\0\x01\0\x07\0\xff\xff\xff\xff\x02\0\x07\0\xe8\x03\0\0\
        \x04\0\x05\0\xff\xff\xff\xff\x10\0\x07\0\xff\xff\xff\xff\x20\0\x05\0\xff\xff\xff\xff";
    set("d", "system.posix_acl_default", acl);
    set("d", "system.posix_acl_access", acl);
    fs::write(from.join("d/has the default"), b"x").unwrap();
    fs::write(from.join("e/has none"), b"x").unwrap();
    rustix::fs::removexattr(from.join("d/has the default"), "system.posix_acl_access").unwrap();

    let img = image(dir.path(), "x", "256M", &["-t", "ext4"], None);
    diorite(&["put", &img, &contents(&from), "/"]).ok();
    fsck(&img);
    let Some(mount) = Mount::new(&img, &at, "ro") else {
        return;
    };
    same(&from, &mount.0);
    for (name, _) in facts(&from) {
        let times = |p: &Path| {
            let m = fs::symlink_metadata(p).unwrap();
            (m.mtime(), m.mtime_nsec())
        };
        assert_eq!(
            times(&from.join(&name)),
            times(&mount.0.join(&name)),
            "{name:?}"
        );
    }
    assert_eq!(xattrs(&mount.0.join("d")).len(), 2);
    assert_eq!(fs::metadata(at.join("tree/hole")).unwrap().blocks(), 0);
}

/// A full volume: a message for every file that was not copied, complete copies of all others, and no leaked blocks.
#[test]
fn a_full_image() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    for n in 0..60 {
        fs::write(source.join(format!("f{n:02}")), noise(500_001, n)).unwrap();
    }
    for args in [
        &["-t", "ext4"][..],
        &["-t", "ext2"],
        &["-t", "ext4", "-O", "^has_journal"],
    ] {
        let img = image(dir.path(), "x", "16M", args, None);
        let ran = diorite(&["put", &img, path(&source), "/in"]);
        ran.failed(1, "No space left on device");
        fsck(&img);
        let there = diorite(&["ls", &img, "/in"]).ok().text();
        let (whole, missing) = (there.lines().count(), ran.err.lines().count());
        assert_eq!(whole + missing, 60, "{}", ran.err);
        assert!(whole > 5, "{there}");
        let out = got(&img, dir.path(), "/in");
        for name in there.lines() {
            assert!(fs::read(out.join(name)).unwrap() == fs::read(source.join(name)).unwrap());
        }
        // The space of the failed copies is free again.
        diorite(&["rm", "-r", &img, "/in"]).ok();
        diorite(&[
            "put",
            &img,
            path(&source.join("f00")),
            path(&source.join("f01")),
            "/",
        ])
        .ok();
        fsck(&img);
        fs::remove_file(&img).unwrap();
    }
}

/// Inodes run out before blocks do.
#[test]
fn no_inodes_left() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let img = image(dir.path(), "x", "256M", &["-t", "ext4", "-N", "200"], None);
    diorite(&["put", &img, &contents(&source), "/"]).failed(1, "No space left on device");
    fsck(&img);
}

#[test]
fn an_ordinary_user_copies_what_he_can_read() {
    if !is_root() {
        return skip("only root can become somebody else");
    }
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    fs::write(source.join("secret"), b"x").unwrap();
    run("chmod", &["600", path(&source.join("secret"))]);
    run("chmod", &["a+r", path(&source.join("small"))]);
    run("chmod", &["-R", "a+rX", path(&source.join("dir"))]);
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], None);
    let binary = copied_command(dir.path());
    run("chmod", &["a+rwx", path(dir.path())]);
    run("chmod", &["a+rw", &img]);
    let ran = xtask::run::tool("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args([path(&binary), "put", &img, path(&source), "/copy"])
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(1), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.contains("secret: Permission denied"), "{err}");
    fsck(&img);
    fs::remove_file(source.join("secret")).unwrap();
    same(&source, &got(&img, dir.path(), "/copy"));
}

#[test]
fn odd_sources() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    let img = image(&source, "x.img", "64M", &["-t", "ext4"], None);
    // Data that begins and ends inside blocks, after holes.
    let sparse = fs::File::create(source.join("sparse")).unwrap();
    for (at, len) in [(5_000_u64, 3_usize), (1 << 20, 70_000), ((3 << 20) - 1, 2)] {
        sparse.write_at(&noise(len, at), at).unwrap();
    }
    sparse.set_len((9 << 20) + 7).unwrap();
    symlink("/", source.join("root")).unwrap();
    let deep = "d/".repeat(300);
    fs::create_dir_all(source.join(&deep)).unwrap();
    fs::write(source.join(&deep).join("bottom"), b"here\n").unwrap();
    let ran = diorite(&["put", &img, &contents(&source), "/"]);
    ran.failed(1, "/x.img: the image is not copied into itself");
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    fsck(&img);
    let out = got(&img, dir.path(), "/");
    assert!(!out.join("x.img").exists());
    let img = dir.path().join("x.img");
    fs::rename(source.join("x.img"), &img).unwrap();
    let img = path(&img).to_owned();
    same(&source, &out);
    // Into an image inside an image.
    let inner = image(dir.path(), "inner.img", "8M", &["-t", "ext4"], None);
    diorite(&["put", &img, &inner, "/inner.img"]).ok();
    let nested = format!("{img}!/inner.img");
    diorite(&["put", &nested, path(&source.join("sparse")), "/"]).ok();
    assert!(
        diorite(&["cat", &nested, "/sparse"]).ok().out == fs::read(source.join("sparse")).unwrap()
    );
    fsck(&img);
}

/// Files whose contents the kernel generates when they are read (/proc) have size 0; they must not become empty copies.
#[test]
fn files_without_a_size_are_refused() {
    let dir = scratch();
    let img = image(dir.path(), "x", "16M", &["-t", "ext4"], None);
    diorite(&["put", &img, "/proc/version", "/v"]).failed(1, "says that it is empty");
    diorite(&["ls", &img, "/v"]).failed(2, "No such file");
    let source = dir.path().join("empty");
    std::fs::write(&source, "").unwrap();
    let source = source.to_str().unwrap();
    diorite(&["put", &img, source, "/"]).ok();
    diorite(&["put", "--owner", "4294967295", &img, source, "/"]).failed(2, "4294967295");
}

/// An error in the arguments is printed with the usage of the named command, not with that of the whole program.
#[test]
fn wrong_usage_shows_the_command() {
    let usage = "Usage: diorite put [OPTIONS] <IMG> <SOURCE>... <DEST>";
    diorite(&["put", "image", "source"]).failed(2, usage);
    diorite(&["put", "image", "", "/x"]).failed(2, usage);
    diorite(&["truncate", "-s", "1", "image", ""]).failed(2, "Usage: diorite truncate [OPTIONS]");
}

/// Defect: an attribute for which there is no room was dropped with a warning, and with success.
#[test]
fn an_attribute_without_room_is_a_failure() {
    let dir = scratch();
    let file = dir.path().join("file");
    fs::write(&file, "data").unwrap();
    let img = image(dir.path(), "x", "8M", &["-t", "ext4", "-b", "1024"], None);
    let value = "v".repeat(2000);
    let set = std::process::Command::new("setfattr")
        .args(["-n", "user.big", "-v", &value, path(&file)])
        .status();
    if !set.is_ok_and(|status| status.success()) {
        return skip("attributes of this size on the host");
    }
    let ran = diorite(&["put", &img, path(&file), "/file"]);
    ran.failed(1, "attribute user.big is not in the image for 1 file: ");
    assert_eq!(diorite(&["cat", &img, "/file"]).ok().text(), "data");
    diorite(&["put", "--no-xattrs", &img, path(&file), "/other"]).ok();
    fsck(&img);
}

/// The defect: space was taken by whichever request came first, so the same files lay in other places, and in more pieces, each time.
#[test]
fn the_same_files_lie_in_the_same_places() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    for n in 0..6 {
        fs::write(source.join(format!("f{n}")), noise(70_000 << n, n)).unwrap();
    }
    let sparse = fs::File::create(source.join("sparse")).unwrap();
    for n in 0..100 {
        sparse.write_all_at(&[7; 9000], n * 20_000).unwrap();
    }
    for (kind, most, times) in [
        (&["-t", "ext4", "-b", "1024"][..], 8, 20),
        (&["-t", "ext3", "-b", "1024"], 40, 5),
        (&["-t", "ext4", "-O", "bigalloc"], 1, 5),
    ] {
        let empty = image(dir.path(), "empty", "64M", kind, None);
        let img = dir.path().join("copy");
        let mut first = None;
        for n in 0..times {
            fs::copy(&empty, &img).unwrap();
            diorite(&["put", "-q", path(&img), &contents(&source), "/"]).ok();
            fsck(path(&img));
            let lie = |name: &str| {
                let told = diorite(&["extents", path(&img), &format!("/{name}")]).ok();
                told.text()
            };
            let all: Vec<String> = (0..6).map(|n| lie(&format!("f{n}"))).collect();
            // One line tells of the kind, one of the size, one is a heading, and one is the sum.
            let large = all[5].lines().count() - 4;
            assert!(large <= most, "{kind:?}: {}", all[5]);
            let now = (all, lie("sparse"));
            assert!(
                *first.get_or_insert_with(|| now.clone()) == now,
                "{kind:?}: copy {n} lies elsewhere: {first:?} and {now:?}"
            );
        }
    }
}

/// The defect: the link /proc/self/fd/0 was copied. As cp(1): what the descriptor gives, with the name that the path has, and of a file
/// also its mode.
#[test]
fn a_path_of_a_descriptor_is_what_it_has_open() {
    let dir = scratch();
    let img = image(dir.path(), "a.img", "8M", &[], None);
    let file = dir.path().join("file");
    fs::write(&file, noise(100_000, 3)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let put = |words: &str| {
        let shell = format!("exec 5<\"$2\"; {words}");
        let mut command = std::process::Command::new("bash");
        command.args([
            "-c",
            &shell,
            env!("CARGO_BIN_EXE_diorite"),
            &img,
            path(&file),
        ]);
        let out = command.output().unwrap();
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(0), "{words}: {err}");
    };
    let mode = |name: &str| {
        let told = diorite(&["stat", "-c", "%a %F", &img, name]).ok();
        told.text().trim().to_owned()
    };
    for (words, name, rights) in [
        ("cat \"$2\" | \"$0\" put \"$1\" /dev/stdin /x", "/x", "644"),
        (
            "cat \"$2\" | \"$0\" put \"$1\" /dev/stdin /",
            "/stdin",
            "644",
        ),
        ("\"$0\" put \"$1\" <(cat \"$2\") /y", "/y", "644"),
        ("\"$0\" put \"$1\" /dev/stdin /z <\"$2\"", "/z", "640"),
        ("\"$0\" put \"$1\" /dev/fd/5 /proc/self/fd/5 /", "/5", "640"),
    ] {
        put(words);
        assert_eq!(mode(name), format!("{rights} regular file"), "{words}");
        assert!(
            diorite(&["cat", &img, name]).ok().out == noise(100_000, 3),
            "{words}"
        );
    }
    // A link that is no name of a descriptor stays a link.
    symlink("/dev/stdin", dir.path().join("link")).unwrap();
    diorite(&["put", &img, path(&dir.path().join("link")), "/link"]).ok();
    assert_eq!(
        diorite(&["readlink", &img, "/link"]).ok().text().trim(),
        "/dev/stdin"
    );
    fsck(&img);
}

/// The defect: the names of a standard input that was closed gave an empty file, where `-` was refused.
#[test]
fn a_closed_standard_input_is_refused_by_each_name() {
    let dir = scratch();
    let img = image(dir.path(), "a.img", "8M", &[], None);
    let put = |source: &str, how: &str| {
        let shell = format!("exec \"$0\" put \"$1\" {source} /file {how}");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &shell, env!("CARGO_BIN_EXE_diorite"), &img]);
        let out = command.output().unwrap();
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    for source in ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"] {
        let (code, err) = put(source, "<&-");
        assert_eq!(code, Some(1), "{source}: {err}");
        assert!(err.contains("Bad file descriptor"), "{source}: {err}");
        diorite(&["stat", &img, "/file"]).failed(1, "");
        let (code, err) = put(source, "</etc/hostname");
        assert_eq!(code, Some(0), "{source}: {err}");
        diorite(&["rm", &img, "/file"]).ok();
    }
}
