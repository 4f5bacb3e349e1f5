//! Tests of `cp` from image to image: the copy equals the source for diorite, for e2fsck and for the kernel; and -v of all
//! commands that copy.

use crate::common::{
    Mount, debugfs, diorite, facts, files, get, image, noise, patch, run, same, scratch, tree,
};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

fn path(p: &Path) -> &str {
    p.to_str().unwrap()
}

fn fsck(img: &str) {
    run("e2fsck", &["-fn", img]);
}

fn text(args: &[&str]) -> String {
    diorite(args).ok().text()
}

/// An image with files of every type and all kinds of metadata.
fn full(dir: &Path, name: &str, args: &[&str]) -> String {
    let source = dir.join("source");
    if !source.exists() {
        tree(&source);
        let sparse = fs::File::create(source.join("ends in a hole")).unwrap();
        for (at, len) in [(5_000_u64, 3_usize), (1 << 20, 70_000), ((3 << 20) - 1, 2)] {
            sparse.write_at(&noise(len, at), at).unwrap();
        }
        sparse.set_len((9 << 20) + 7).unwrap();
        fs::write(source.join("tiny"), b"inline\n").unwrap();
        UnixListener::bind(source.join("socket")).unwrap();
        fs::File::create(source.join("hole"))
            .unwrap()
            .set_len(77)
            .unwrap();
    }
    let img = image(dir, name, "128M", args, Some(&source));
    let script = dir.join("script");
    let lines = "mknod /null c 1 3\nmknod -m 640 /disk b 259 70000\nmknod /p p\nln /null /null2\nln /p /p2\n\
        chown 12:34 /p /null /big\nchown --no-dereference 5:6 /dir/link\nchmod 4711 /tiny\nchown 7:8 /dir\n\
        setfattr -n trusted.on-a-link -v yes -h /dir/link\n\
        setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 /tiny\n\
        setfacl -m u:1000:rwX,d:u:1000:rwX /dir\nsetfacl -m u:1000:r /tiny\n\
        touch -d @1900000000.123456789 /dir /tiny\ntouch --no-dereference -d @0.000000001 /dir/link\n";
    let lines: Vec<&str> = lines.lines().map(str::trim).collect();
    fs::write(&script, lines.join("\n")).unwrap();
    let ran = diorite(&["edit", "--batch", "-f", path(&script), &img]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    diorite(&["truncate", "-s", "1M", &img, "/prealloc"]).ok();
    fsck(&img);
    img
}

/// The properties that must be the same for every file of two images.
fn said(img: &str) -> Vec<String> {
    let mut all = Vec::new();
    for line in text(&["find", "--json", img, "/"]).lines() {
        let mut facts: serde_json::Value = serde_json::from_str(line).unwrap();
        let map = facts.as_object_mut().unwrap();
        if map["type"] == "dir" {
            map.remove("size");
        }
        for key in ["ino", "blocks", "atime", "ctime", "crtime"] {
            map.remove(key);
        }
        if map["path"] != "/lost+found" {
            all.push(facts.to_string());
        }
    }
    for command in [&["getfattr", "-d", "-m", "-", "-R"][..], &["getfacl", "-R"]] {
        all.extend(
            text(&[command, &[img, "/"]].concat())
                .lines()
                .map(str::to_owned),
        );
    }
    all
}

#[track_caller]
fn alike(a: &str, b: &str) {
    let (a, b) = (said(a), said(b));
    for (a, b) in a.iter().zip(&b) {
        assert_eq!(a, b);
    }
    assert_eq!(a.len(), b.len());
}

/// Copies everything out of an image; for an ordinary user without devices and attributes that only root can set.
fn unpacked(img: &str, at: &Path) -> std::path::PathBuf {
    if at.exists() {
        fs::remove_dir_all(at).unwrap();
    }
    match crate::common::is_root() {
        true => get(img, "/", at),
        false => {
            diorite(&["get", "--no-same-owner", img, "/", path(at)]).failed(1, "devices can be");
        }
    }
    at.to_owned()
}

#[test]
fn everything_from_image_to_image() {
    let dir = scratch();
    let kinds: [&[&str]; 6] = [
        &["-t", "ext4", "-b", "4096"],
        &["-t", "ext4", "-b", "1024", "-O", "inline_data,ea_inode"],
        &["-t", "ext4", "-b", "65536"],
        &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
        &["-t", "ext4", "-I", "256", "-O", "^has_journal"],
        &["-t", "ext3", "-b", "1024", "-I", "256"],
    ];
    let sources: Vec<String> = kinds
        .iter()
        .enumerate()
        .map(|(n, args)| full(dir.path(), &format!("from{n}"), args))
        .collect();
    for (n, args) in kinds.iter().enumerate() {
        let from = &sources[(n + 1) % sources.len()];
        let before = fs::read(from).unwrap();
        let to = image(dir.path(), "to", "128M", args, None);
        // A second copy over the first one has the same result.
        for _ in 0..if n == 0 { 2 } else { 1 } {
            diorite(&["cp", "-r", &format!("{from}:/."), &format!("{to}:/")]).ok();
            fsck(&to);
            alike(from, &to);
        }
        assert!(before == fs::read(from).unwrap(), "the source is only read");
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let out = unpacked(&to, &b);
        same(&unpacked(from, &a), &out);
        let ino = |p: &str| fs::metadata(out.join(p)).unwrap().ino();
        assert_eq!(ino("big"), ino("dir/deeper/big too"));
        assert_eq!(ino("p"), ino("p2"));
        for (file, most) in [("sparse", 8), ("ends in a hole", 5), ("prealloc", 0)] {
            let extents = text(&["extents", "--json", &to, file]);
            assert!(extents.lines().count() <= most, "{file}: {extents}");
        }
        // A kernel without large folios cannot mount blocks larger than its pages.
        if [args, &kinds[(n + 1) % kinds.len()]]
            .iter()
            .any(|of| of.contains(&"65536"))
        {
            continue;
        }
        let mounts = [(from, "mnt-a"), (&to, "mnt-b")];
        let [Some(a), Some(b)] = mounts.map(|(i, at)| Mount::new(i, &dir.path().join(at), "ro"))
        else {
            continue;
        };
        same(&a.0, &b.0);
        for (name, _) in facts(&a.0) {
            let times = |at: &Path| {
                let m = fs::symlink_metadata(at.join(&name)).unwrap();
                (m.mtime(), m.mtime_nsec(), m.rdev())
            };
            assert_eq!(times(&a.0), times(&b.0), "{name:?}");
        }
    }
}

/// The options of `put` that are valid for each direction of `cp`, and those that are not.
#[test]
fn options_and_places() {
    let dir = scratch();
    let from = full(dir.path(), "from", &["-t", "ext4"]);
    let to = image(dir.path(), "to", "64M", &["-t", "ext4"], None);
    let (a, b) = (
        |p: &str| format!("{from}:{p}"),
        |p: &str| format!("{to}:{p}"),
    );
    diorite(&["cp", &a("/small"), &b("/file")]).ok();
    assert_eq!(text(&["cat", &to, "/file"]), "a few words\n");
    diorite(&["cp", "-n", &a("/big"), &b("/file")]).ok();
    assert_eq!(text(&["cat", &to, "/file"]), "a few words\n");
    diorite(&["cp", &a("/dir"), &b("/file")]).failed(1, "Not a directory");
    diorite(&["cp", &a("/big"), &a("/small"), &b("/file")]).failed(1, "Not a directory");
    let ran = diorite(&["cp", &a("/nothing"), &a("/big"), &b("/")]);
    ran.failed(1, &format!("cp: {from}:/nothing: No such file"));
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert_eq!(text(&["ls", &to, "/big"]), "/big\n");
    let owned = [
        "--owner",
        "3",
        "--group",
        "4",
        "--mode",
        "go=",
        "--no-xattrs",
    ];
    diorite(&[&["cp", "-x"], &owned[..], &[&a("/big"), &b("/mine")]].concat()).ok();
    let listed = text(&["ls", "-l", &to, "/mine"]);
    assert!(listed.starts_with("-rwx------ 1 3 4 "), "{listed}");
    // A symbolic link to a directory is followed in DEST, and in SOURCE only if it ends with a slash.
    diorite(&["cp", &a("/link to dir"), &b("/link")]).ok();
    assert_eq!(text(&["readlink", &to, "/link"]), "dir\n");
    diorite(&["cp", &a("/link to dir/"), &b("/followed")]).ok();
    assert!(text(&["ls", &to, "/followed"]).contains("one name"));
    fsck(&to);
    for (words, why) in [
        (
            &["cp", "-n", &a("/big"), "/tmp"][..],
            "are for copies in an image",
        ),
        (
            &["cp", "--owner", "1", &a("/big"), "/tmp"],
            "are for copies in an image",
        ),
        (
            &["cp", &a("/big"), "/etc/passwd", &b("/")],
            "to be in one image",
        ),
        (
            &["cp", &a("/big"), &b("/big"), &b("/")],
            "to be in one image",
        ),
    ] {
        diorite(words).failed(2, why);
    }
    diorite(&["cp", "/etc/hostname", &format!("{from}x:/")]).failed(2, "neither side");
    // Messages name the image that they are about.
    let none = dir.path().join("none");
    fs::write(&none, vec![0; 1 << 20]).unwrap();
    let none = format!("{}:/x", none.display());
    diorite(&["cp", &none, &b("/")]).failed(1, "none: ");
    diorite(&["cp", &b("/file"), &none]).failed(1, "none: ");
    fsck(&to);
}

#[test]
fn within_one_image() {
    let dir = scratch();
    for args in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-O", "^has_journal"],
        &["-t", "ext2", "-b", "1024"],
    ] {
        let source = dir.path().join("source");
        if !source.exists() {
            tree(&source);
            symlink("dir/deeper", source.join("shortcut")).unwrap();
        }
        let img = image(dir.path(), "x", "128M", args, Some(&source));
        // The same image under two names is recognised.
        let other = dir.path().join("other");
        let _ = fs::remove_file(&other);
        symlink(&img, &other).unwrap();
        let (a, b) = (
            |p: &str| format!("{img}:{p}"),
            |p: &str| format!("{}!{p}", other.display()),
        );
        for (words, why) in [
            (
                &["cp", &a("/dir"), &b("/dir/deeper")][..],
                "a directory is not copied into itself",
            ),
            (
                &["cp", &a("/dir"), &b("/dir/new")],
                "a directory is not copied into itself",
            ),
            (
                &["cp", &a("/dir"), &b("/shortcut/new")],
                "a directory is not copied into itself",
            ),
            (
                &["cp", &a("/"), &b("/dir")],
                "a directory is not copied into itself",
            ),
            (
                &["cp", &a("/dir/."), &b("/dir/deeper")],
                "a directory is not copied into itself",
            ),
            (&["cp", &a("/dir/."), &b("/dir")], "are the same file"),
            (&["cp", &a("/dir"), &b("/")], "are the same file"),
            (&["cp", &a("/small"), &b("/small")], "are the same file"),
            (
                &["cp", &a("/small"), &b("/dir/small too")],
                "are the same file",
            ),
        ] {
            let ran = diorite(words);
            ran.failed(1, why);
            assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        }
        let names = text(&["find", &img]);
        assert!(!names.contains("new"), "{names}");
        diorite(&["mkdir", &img, "/copy"]).ok();
        let tops = [
            "/big",
            "/dir",
            "/many",
            "/sparse",
            "/small",
            "/pipe",
            "/shortcut",
        ];
        let mut words = vec!["cp".to_owned()];
        words.extend(tops.iter().map(|top| a(top)));
        words.push(b("/copy"));
        diorite(&words).ok();
        fsck(&img);
        let (out, copy) = (dir.path().join("out"), dir.path().join("copy"));
        get(&img, "/dir", &out);
        get(&img, "/copy/dir", &copy);
        crate::common::same_but(&out, &copy, "too");
        let of = |p: &str| text(&["stat", "-c", "%h %s", &img, p]);
        assert_eq!(of("/copy/big"), of("/big"), "hard links are kept");
        let sparse = text(&["cmp", &img, "/copy/sparse", path(&source.join("sparse"))]);
        assert_eq!(sparse, "");
        let blocks = |p: &str| text(&["find", &img, p, "-type", "f", "-printf", "%k %s %P\\n"]);
        assert_eq!(lines(&blocks("/copy/many")), lines(&blocks("/many")));
        // The parent of a directory is not inside it, so this copy is permitted.
        diorite(&["cp", &a("/copy/dir/deeper/."), &b("/copy/dir")]).ok();
        fsck(&img);
        for made in [&out, &copy] {
            fs::remove_dir_all(made).unwrap();
        }
        fs::remove_file(&img).unwrap();
    }
}

/// Both images are in a third one, or one is in the other, or they are partitions of one disk.
#[test]
fn images_that_share_what_they_lie_in() {
    let dir = scratch();
    let inner = dir.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("file"), noise(1_000_001, 1)).unwrap();
    fs::create_dir(inner.join("dir")).unwrap();
    let holder = dir.path().join("holder");
    fs::create_dir(&holder).unwrap();
    for name in ["a.img", "b.img"] {
        image(&holder, name, "8M", &["-t", "ext4"], Some(&inner));
    }
    fs::write(holder.join("outside"), noise(500_001, 2)).unwrap();
    let outer = image(
        dir.path(),
        "outer.img",
        "64M",
        &["-t", "ext4"],
        Some(&holder),
    );
    let at = |p: &str| format!("{outer}:{p}");
    diorite(&["cp", &at("/a.img:/file"), &at("/b.img:/dir/copy")]).ok();
    diorite(&["cp", &at("/a.img:/file"), &at("/from-a")]).ok();
    diorite(&["cp", &at("/outside"), &at("/b.img:/from-outside")]).ok();
    diorite(&["cp", &at("/b.img:/from-outside"), &at("/b.img:/again")]).ok();
    diorite(&["cp", &at("/b.img"), &at("/b.img:/")])
        .failed(1, "the image is not copied into itself");
    diorite(&["cp", &at("/b.img:/dir"), &at("/b.img:/dir/x")]).failed(1, "into itself");
    diorite(&["cp", &at("/a.img:/file"), &at("/a.img")]).failed(1, "would overwrite the image");
    fsck(&outer);
    let b = at("/b.img");
    for (img, name, host) in [
        (&b, "/dir/copy", inner.join("file")),
        (&outer, "/from-a", inner.join("file")),
        (&b, "/from-outside", holder.join("outside")),
        (&b, "/again", holder.join("outside")),
    ] {
        assert_eq!(text(&["cmp", img, name, path(&host)]), "");
    }
    diorite(&["get", &outer, "/b.img", path(&dir.path().join("b"))]).ok();
    fsck(path(&dir.path().join("b")));
    diorite(&["cp", &at("/nothing.img:/x"), &at("/b.img:/")]).failed(1, "No such file");
    diorite(&["cp", &at("/a.img:/file"), &at("/nothing.img:/")]).failed(1, "No such file");

    let disk = dir.path().join("disk");
    let holes = fs::File::create(&disk).unwrap();
    holes.set_len(24 << 20).unwrap();
    let table = dir.path().join("table");
    fs::write(
        &table,
        "label: gpt\nstart=2048, size=16384\nstart=18432, size=16384\n",
    )
    .unwrap();
    let sfdisk = format!(
        "sfdisk -q --no-tell-kernel {} <{}",
        disk.display(),
        table.display()
    );
    run("sh", &["-c", &sfdisk]);
    for start in [1 << 20, 9 << 20] {
        let bytes = fs::read(holder.join("a.img")).unwrap();
        holes.write_all_at(&bytes, start).unwrap();
    }
    let part = |n: u32, p: &str| format!("{}?part={n}:{p}", disk.display());
    diorite(&["rm", &format!("{}?part=2", disk.display()), "/file"]).ok();
    diorite(&["cp", &part(1, "/file"), &part(2, "/")]).ok();
    let second = format!("{}?part=2", disk.display());
    assert_eq!(
        text(&["cmp", &second, "/file", path(&inner.join("file"))]),
        ""
    );
    // In a path to copy, all that is behind the image is a name.
    diorite(&["cp", &part(1, "/file"), &part(2, "/dir/f?ro")]).ok();
    assert_eq!(
        text(&["cmp", &second, "/dir/f?ro", path(&inner.join("file"))]),
        ""
    );
    // The same partition, named by its offset.
    let begins = format!("{}?offset=9M&size=8M:/dir", disk.display());
    diorite(&["cp", &part(2, "/dir"), &begins]).failed(1, "into itself");
    diorite(&["cp", &part(2, "/file"), &begins]).ok();
    assert_eq!(
        text(&["cmp", &second, "/dir/file", path(&inner.join("file"))]),
        ""
    );
    diorite(&["check", &second]).ok();
}

/// With a corrupt or malicious image a copy stays inside DEST, ends, and leaves no incomplete file.
#[test]
fn damaged_sources_and_full_images() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir_all(source.join("deep/er")).unwrap();
    files(
        &source,
        &[
            ("deep/names/aXXbXXevil", b"x"),
            ("deep/fine", b"fine\n"),
            ("trap/QQQQ2/evil", b"evil\n"),
        ],
    );
    symlink("/", source.join("trap/QQQQ1")).unwrap();
    fs::write(source.join("huge"), noise(9 << 20, 3)).unwrap();
    let plain = ["-t", "ext4", "-O", "^metadata_csum,^dir_index"];
    let from = image(dir.path(), "from", "32M", &plain, Some(&source));
    debugfs(&from, "link /deep /deep/er/circle");
    assert!(patch(&from, b"aXXbXXevil", b"../../evil") > 0);
    // Two entries with the same name: a symbolic link that leads outside, and a directory with a file in it.
    patch(&from, b"QQQQ1", b"trap!");
    patch(&from, b"QQQQ2", b"trap!");
    let to = image(dir.path(), "to", "8M", &["-t", "ext4"], None);
    let ran = diorite(&["cp", &format!("{from}:/deep"), &format!("{to}:/")]);
    ran.failed(1, "the directories form a circle");
    ran.failed(1, "a NUL or a slash");
    assert_eq!(ran.err.lines().count(), 2, "{}", ran.err);
    diorite(&["cp", &format!("{from}:/trap"), &format!("{to}:/")]).failed(1, "trap!");
    fsck(&to);
    assert_eq!(
        lines(&text(&["find", &to, "/deep"])),
        [
            "/deep",
            "/deep/er",
            "/deep/er/circle",
            "/deep/fine",
            "/deep/names"
        ]
    );
    assert!(!text(&["ls", &to, "/"]).contains("evil"));
    let ran = diorite(&["cp", &format!("{from}:/huge"), &format!("{to}:/")]);
    ran.failed(1, "No space left on device");
    fsck(&to);
    diorite(&["ls", &to, "/huge"]).failed(2, "No such file");
    // A block pointer of the source that is outside the volume.
    debugfs(&from, "sif /huge block[5] 0x00ffffff");
    let ran = diorite(&["cp", &format!("{from}:/huge"), &format!("{from}:/copy")]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    diorite(&["ls", &from, "/copy"]).failed(2, "No such file");
}

/// Lines in any order.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// -v prints what cp prints, for copied files and created directories.
#[test]
fn what_is_copied_is_told() {
    let dir = scratch();
    let source = dir.path().join("source");
    files(
        &source,
        &[
            ("dir/a file", b"a\n"),
            ("dir/it's", &noise(3_000_000, 1)),
            ("dir/deep/empty", b""),
        ],
    );
    fs::hard_link(source.join("dir/it's"), source.join("dir/same")).unwrap();
    symlink("nowhere", source.join("dir/link")).unwrap();
    run("mkfifo", &[source.join("dir/pipe")]);
    let (img, other) = (
        image(dir.path(), "x", "32M", &["-t", "ext4"], None),
        image(dir.path(), "y", "32M", &["-t", "ext4"], None),
    );
    let host = dir.path().join("host");
    let from = source.join("dir");
    // A second time: directories that exist are not printed again.
    for options in ["-a", "-aT"] {
        let theirs = run("cp", &[options, "-v", path(&from), path(&host)]);
        let of_host = |to: &str| {
            let told = lines(&theirs.replace(path(&host), to));
            // cp removes a file that it replaces and prints this; put replaces it in one step.
            told.into_iter().filter(|l| !l.starts_with("removed "))
        };
        let option = if options == "-a" { "-r" } else { "-T" };
        let put = diorite(&["put", "-v", option, &img, path(&from), "/there"]).ok();
        let told: Vec<String> = of_host("/there").collect();
        assert_eq!(lines(&put.text()), told, "{options}");
    }
    diorite(&["rm", "-r", &img, "/there"]).ok();
    let theirs = |from_: &str, to: &str| {
        let made = dir.path().join("made");
        let said = run("cp", &["-av", path(&from), path(&made)]);
        fs::remove_dir_all(&made).unwrap();
        lines(&said.replace(path(&made), to).replace(path(&from), from_))
    };
    let inside = format!("{img}:/there");
    let cp = diorite(&["cp", "-v", path(&from), &inside]).ok().text();
    assert_eq!(lines(&cp), theirs(path(&from), &inside));
    let out = dir.path().join("out");
    let owners: &[&str] = if crate::common::is_root() {
        &[]
    } else {
        &["--no-same-owner"]
    };
    let words = [&["get", "-v"], owners, &[&img, "/there", path(&out)]].concat();
    let got = diorite(&words).ok().text();
    assert_eq!(lines(&got), theirs("/there", path(&out)));
    let second = dir.path().join("second");
    if crate::common::is_root() {
        let cp = diorite(&["cp", "-v", &inside, path(&second)]).ok().text();
        assert_eq!(lines(&cp), theirs(&inside, path(&second)));
    }
    let to = format!("{other}:/copy");
    let cp = diorite(&["cp", "-v", &inside, &to]).ok().text();
    assert_eq!(lines(&cp), theirs(&inside, &to));
    // A copy into a directory, and one of a file to a name.
    let into = format!("'/there/a file' -> '{}/a file'\n", out.display());
    let words = [&["get", "-v"], owners, &[&img, "/there/a file", path(&out)]].concat();
    assert_eq!(diorite(&words).ok().text(), into);
    assert_eq!(
        text(&["cp", "-v", &format!("{inside}/a file"), &to]),
        format!("'{inside}/a file' -> '{to}/a file'\n")
    );
    // Nothing is printed between the bytes of files.
    assert_eq!(text(&["get", "-v", &img, "/there/a file", "-"]), "a\n");
    assert_eq!(text(&["cp", "-v", &format!("{inside}/a file"), "-"]), "a\n");
    // Neither files that stay because of -n nor failed copies are printed.
    let words = ["cp", "-nv", &format!("{inside}/a file"), &to];
    assert_eq!(text(&words), "");
    let ran = diorite(&["cp", "-v", path(&source.join("none")), path(&from), &to]);
    ran.failed(1, "none: No such file");
    assert!(!ran.text().contains("none"), "{}", ran.text());
    fsck(&img);
    fsck(&other);
}
