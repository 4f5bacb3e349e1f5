//! Archives in and out, beside GNU tar; and archives that lie.

use super::{clean, path};
use crate::common::{diorite, get, is_root, run, same_but, scratch, skip, tree};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

/// GNU tar of a directory.
fn packed(source: &Path, to: &Path, options: &[&str]) {
    let mut args = vec!["-cf", path(to), "-S"];
    args.extend(options);
    args.extend(["-C", path(source), "."]);
    run("tar", &args);
}

#[test]
fn archives_of_gnu_tar_are_read() {
    let dir = scratch();
    let (source, tar, img) = (
        dir.path().join("source"),
        dir.path().join("x.tar"),
        dir.path().join("img"),
    );
    tree(&source);
    for format in ["pax", "posix", "gnu", "pax -z"] {
        let mut options = vec![];
        let mut words = format.split(' ');
        let kind = format!("--format={}", words.next().unwrap());
        options.push(&kind[..]);
        options.extend(words);
        if !format.starts_with("gnu") {
            options.extend(["--xattrs", "--acls"]);
        }
        packed(&source, &tar, &options);
        for stdin in [false, true] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_diorite"));
            command.args([
                "import",
                "-q",
                if stdin { "-" } else { path(&tar) },
                path(&img),
            ]);
            if stdin {
                let mut cat = Command::new("cat")
                    .arg(&tar)
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap();
                command.stdin(cat.stdout.take().unwrap());
                assert!(command.status().unwrap().success(), "{format}");
                assert!(cat.wait().unwrap().success());
            } else {
                assert!(command.status().unwrap().success(), "{format}");
            }
            clean(&img);
            let out = dir.path().join("out");
            get(path(&img), "/", &out);
            if format == "gnu" {
                // This format keeps no attributes and no parts of seconds.
                for file in ["big", "small", "sparse", "empty"] {
                    let both = [&source, &out].map(|dir| fs::read(dir.join(file)).unwrap());
                    assert!(both[0] == both[1], "{file}");
                }
            } else {
                same_but(&source, &out, "lost+found");
            }
            fs::remove_dir_all(&out).unwrap();
        }
    }
}

/// What goes out comes in again, through every format, and is read by GNU tar.
#[test]
fn archives_go_round() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let (source, img) = (at("source"), at("img"));
    tree(&source);
    diorite(&["import", "-q", path(&source), path(&img)]).ok();
    let first = at("first.tar");
    diorite(&["export", "-q", path(&img), path(&first)]).ok();
    for end in ["tar", "tar.gz", "tar.zst"] {
        let (again, other) = (at(&format!("again.{end}")), at("other.img"));
        diorite(&["export", "-q", path(&img), path(&again)]).ok();
        diorite(&["import", "-q", path(&again), path(&other)]).ok();
        clean(&other);
        let last = at("last.tar");
        diorite(&["export", "-q", path(&other), path(&last)]).ok();
        assert!(
            fs::read(&first).unwrap() == fs::read(&last).unwrap(),
            "{end}"
        );
    }
    let listed = run("tar", &["-tf", path(&first)]);
    assert_eq!(listed.lines().next(), Some("./"));
    let out = at("out");
    fs::create_dir(&out).unwrap();
    if is_root() {
        run(
            "tar",
            &[
                "-xf",
                path(&first),
                "--xattrs",
                "--xattrs-include=*",
                "--acls",
                "-C",
                path(&out),
            ],
        );
        same_but(&source, &out, "lost+found");
    } else {
        skip("what tar makes of owners needs root");
    }
    let stdout = diorite(&["export", path(&img), "-"]).ok();
    assert!(stdout.out == fs::read(&first).unwrap());
    diorite(&["export", "-q", path(&img), path(&at("x.zip"))]).failed(1, "is an archive");
    assert!(!at("x.zip").exists());
}

/// One header of an archive, with its sum.
pub(super) fn header(name: &str, kind: u8, link: &str, size: u64) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..107].copy_from_slice(b"0000644");
    block[108..115].copy_from_slice(b"0000000");
    block[116..123].copy_from_slice(b"0000000");
    block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    block[136..147].copy_from_slice(b"00000000000");
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link.as_bytes());
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block
}

pub(super) fn archive(entries: &[(&str, u8, &str, &[u8])]) -> Vec<u8> {
    let mut all = Vec::new();
    for (name, kind, link, data) in entries {
        all.extend(header(name, *kind, link, data.len() as u64));
        all.extend(*data);
        all.resize(all.len().next_multiple_of(512), 0);
    }
    all.resize(all.len() + 1024, 0);
    all
}

/// Records of PAX.
pub(super) fn records(texts: &[impl AsRef<str>]) -> Vec<u8> {
    let one = |text: &str| {
        let mut len = text.len() + 3;
        while len != text.len() + 2 + len.to_string().len() {
            len = text.len() + 2 + len.to_string().len();
        }
        format!("{len} {text}\n")
    };
    texts
        .iter()
        .map(|text| one(text.as_ref()))
        .collect::<String>()
        .into_bytes()
}

/// Nothing leads out of the image, nothing is believed, and nothing is made of an archive that is wrong.
#[test]
fn archives_that_lie_are_refused() {
    let dir = scratch();
    let img = dir.path().join("img");
    let huge = [header("file", b'0', "", 0o77_777_777_777), vec![0; 2048]].concat();
    let mut damaged = archive(&[("file", b'0', "", b"x")]);
    damaged[3] ^= 1;
    let record =
        |text: &str| archive(&[("x", b'x', "", text.as_bytes()), ("file", b'0', "", b"x")]);
    let long = "n".repeat(256);
    let long = format!("{} path={long}\n", 256 + 10);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (archive(&[("../up", b'0', "", b"x")]), "'..' is refused"),
        (
            archive(&[("a/../../up", b'0', "", b"x")]),
            "'..' is refused",
        ),
        (
            archive(&[("l", b'2', "l", b""), ("l/x", b'0', "", b"x")]),
            "too many symbolic links",
        ),
        (archive(&[("h", b'1', "nowhere", b"")]), "is not there"),
        (
            archive(&[("d", b'5', "", b""), ("h", b'1', "d", b"")]),
            "hard link to a directory",
        ),
        (
            archive(&[("f", b'0', "", b"x"), ("f/x", b'0', "", b"x")]),
            "no directory",
        ),
        (huge, "ends in the middle"),
        (damaged, "damaged"),
        (
            archive(&[("file", b'0', "", &[b'x'; 600])])[..900].to_vec(),
            "ends in the middle",
        ),
        (
            archive(&[("file", b'0', "", b"x")])[..300].to_vec(),
            "middle of a header",
        ),
        (vec![b'x'; 5000], "no tar archive"),
        (record("99 path=x\n"), "damaged record"),
        (record("10 uid=xy\n"), "no number"),
        (record(&long), "cannot be a name"),
        (
            record("22 GNU.sparse.major=1\n28 GNU.sparse.realsize=1000\n"),
            "ends in the middle",
        ),
        (
            record("22 GNU.sparse.map=0,9\n27 GNU.sparse.size=1000000\n"),
            "less data than its map says",
        ),
    ];
    for (n, (bytes, why)) in cases.iter().enumerate() {
        let tar = dir.path().join("x.tar");
        fs::write(&tar, bytes).unwrap();
        diorite(&["import", "-q", path(&tar), path(&img)]).failed(1, why);
        let ran = Command::new(env!("CARGO_BIN_EXE_diorite"))
            .args(["import", "-q", "-", path(&img)])
            .stdin(File::open(&tar).unwrap())
            .output();
        assert_eq!(ran.unwrap().status.code(), Some(1), "{n}: {why}");
        assert!(!img.exists(), "{n}: {why}");
    }
}

/// Of entries with one name the last counts, links keep what they name, and links lead nowhere but into the image.
#[test]
fn odd_archives_mean_what_tar_means() {
    let dir = scratch();
    let (tar, img) = (dir.path().join("x.tar"), dir.path().join("img"));
    let bytes = archive(&[
        ("file", b'0', "", b"first"),
        ("same", b'1', "file", b""),
        ("file", b'0', "", b"second"),
        ("etc", b'5', "", b""),
        ("link", b'2', "/etc", b""),
        ("link/passwd", b'0', "", b"inside"),
        ("up", b'2', "../../..", b""),
        ("up/top", b'0', "", b"top"),
        ("/abs/file", b'0', "", b"abs"),
        ("made/by/itself", b'0', "", b"deep"),
    ]);
    fs::write(&tar, bytes).unwrap();
    diorite(&["import", "-q", path(&tar), path(&img)]).ok();
    clean(&img);
    for (file, what) in [
        ("/file", "second"),
        ("/same", "first"),
        ("/etc/passwd", "inside"),
        ("/top", "top"),
        ("/abs/file", "abs"),
        ("/made/by/itself", "deep"),
    ] {
        assert_eq!(
            diorite(&["cat", path(&img), file]).ok().text(),
            what,
            "{file}"
        );
    }
}

/// The defect: GNU tar's label of a volume, and a directory of its incremental archives, were refused.
#[test]
fn labels_and_incremental_archives_are_read() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let (source, tar, img) = (at("source"), at("x.tar"), at("img"));
    fs::create_dir_all(source.join("dir")).unwrap();
    fs::write(source.join("dir/file"), "x").unwrap();
    packed(
        &source,
        &tar,
        &["--format=gnu", "-V", "label", "-g", path(&at("snapshot"))],
    );
    diorite(&["import", "-q", path(&tar), path(&img)]).ok();
    clean(&img);
    let text = diorite(&["find", path(&img), "/"]).ok().text();
    let mut found: Vec<&str> = text.lines().collect();
    found.sort_unstable();
    assert_eq!(found, ["/", "/dir", "/dir/file", "/lost+found"]);
    assert_eq!(diorite(&["cat", path(&img), "/dir/file"]).ok().text(), "x");
}

/// The defect: a link to a socket, which is left out itself, made the archive one that nobody unpacks.
#[test]
fn no_name_of_a_socket_is_in_an_archive() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let (source, tar, img) = (at("source"), at("x.tar"), at("img"));
    fs::create_dir(&source).unwrap();
    let socket = source.join("a");
    let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    fs::hard_link(&socket, source.join("b")).unwrap();
    fs::write(source.join("file"), "x").unwrap();
    diorite(&["import", "-q", path(&source), path(&img)]).ok();
    let ran = diorite(&["export", path(&img), path(&tar)]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("1 sockets were left out"), "{}", ran.err);
    let out = at("out");
    fs::create_dir(&out).unwrap();
    run("tar", &["-xf", path(&tar), "-C", path(&out)]);
    assert!(out.join("file").exists() && !out.join("b").exists());
}

/// Frames of zstd that follow each other, and one that is to be skipped, are one stream.
#[test]
fn parts_of_a_compressed_stream_follow_each_other() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let bytes = archive(&[
        ("first", b'0', "", &[b'x'; 3000]),
        ("second", b'0', "", b"y"),
    ]);
    let frame = |part: &[u8]| {
        let stored = u32::try_from(part.len()).unwrap();
        // RFC 8878: one raw block, the last, in a frame with a size of four bytes.
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
        frame.extend(stored.to_le_bytes());
        frame.extend(&(stored << 3 | 1).to_le_bytes()[..3]);
        frame.extend(part);
        frame
    };
    let (head, tail) = bytes.split_at(3000);
    let skipped = [
        &0x184D_2A5Bu32.to_le_bytes()[..],
        &5u32.to_le_bytes()[..],
        b"12345",
    ]
    .concat();
    let zst = [skipped.clone(), frame(head), skipped, frame(tail)].concat();
    fs::write(at("x.tar.zst"), &zst).unwrap();
    diorite(&["import", "-q", path(&at("x.tar.zst")), path(&at("img"))]).ok();
    clean(&at("img"));
    assert_eq!(
        diorite(&["cat", path(&at("img")), "/second"]).ok().text(),
        "y"
    );
    fs::write(at("cut.tar.zst"), frame(head)).unwrap();
    diorite(&["import", "-q", path(&at("cut.tar.zst")), path(&at("img"))])
        .failed(1, "ends in the middle");
}

/// What an archive says and ext4 cannot hold is refused, or means what it says.
#[test]
fn what_cannot_be_stored_is_refused() {
    let dir = scratch();
    let (tar, img) = (dir.path().join("x.tar"), dir.path().join("img"));
    let with = |texts: &[&str], name: &str, kind: u8| {
        archive(&[("x", b'x', "", &records(texts)), (name, kind, "", b"")])
    };
    let mut device = header("dev", b'3', "", 0);
    device[329..336].copy_from_slice(b"7777777");
    device[337..344].copy_from_slice(b"0000001");
    device[148..156].fill(b' ');
    let sum: u32 = device.iter().map(|b| u32::from(*b)).sum();
    device[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    device.resize(512 + 1024, 0);
    let long = format!("SCHILY.xattr.user.{}=x", "a".repeat(300));
    let far = "linkpath=".to_owned() + &"a/".repeat(3000);
    for (bytes, why) in [
        (Vec::new(), "has no end"),
        (with(&["linkpath=a\0b"], "l", b'2'), "NUL"),
        (with(&[&far], "l", b'2'), "target of 6000 bytes"),
        (with(&[&long], "f", b'0'), "cannot be named so"),
        (
            with(
                &["SCHILY.acl.access=u::rwx,u::r--,g::r--,o::r--"],
                "f",
                b'0',
            ),
            "",
        ),
        (
            with(&["GNU.sparse.major=7", "GNU.sparse.realsize=9"], "f", b'0'),
            "unknown format",
        ),
        (
            archive(&[("lost+found", b'0', "", b"x")]),
            "lost+found is no directory",
        ),
        (device, "up to 4095:1048575"),
    ] {
        fs::write(&tar, bytes).unwrap();
        diorite(&["import", "-q", path(&tar), path(&img)]).failed(1, why);
    }
    let last = ["SCHILY.xattr.user.a=first", "SCHILY.xattr.user.a=last"];
    fs::write(&tar, with(&last, "f", b'0')).unwrap();
    diorite(&["import", "-q", "-O", "^ext_attr", path(&tar), path(&img)]).ok();
    clean(&img);
    let shown = diorite(&["getfattr", "-d", path(&img), "/f"]).ok().text();
    assert!(
        shown.contains("user.a=\"last\"") && !shown.contains("first"),
        "{shown}"
    );
    // Before 1970, as GNU tar stores it.
    let mut old = header("f", b'0', "", 0);
    old[136..148].fill(0xff);
    old[147] = 0x18;
    old[148..156].fill(b' ');
    let sum: u32 = old.iter().map(|b| u32::from(*b)).sum();
    old[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    old.resize(512 + 1024, 0);
    fs::write(&tar, old).unwrap();
    diorite(&["import", "-q", path(&tar), path(&img)]).ok();
    let time = diorite(&["stat", "-c", "%Y", path(&img), "/f"]).ok().text();
    assert_eq!(time.trim(), "-232");
}

/// Of a file, a pipe, and compressed: the same archive makes the same image.
#[test]
fn the_way_of_an_archive_changes_nothing() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let zeros = [vec![0; 3 << 20], b"x".to_vec()].concat();
    fs::write(
        at("x.tar"),
        archive(&[("zeros", b'0', "", &zeros), ("f", b'0', "", b"f")]),
    )
    .unwrap();
    run("gzip", &["-kf", path(&at("x.tar"))]);
    let made = |from: &str, to: &str, stdin: Stdio| {
        let ran = Command::new(env!("CARGO_BIN_EXE_diorite"))
            .args(["import", "-q", "--seed", "s", from, path(&at(to))])
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .stdin(stdin)
            .status();
        assert!(ran.unwrap().success(), "{from}");
        fs::read(at(to)).unwrap()
    };
    let first = made(path(&at("x.tar")), "a.img", Stdio::null());
    assert!(first == made(path(&at("x.tar.gz")), "b.img", Stdio::null()));
    let mut cat = Command::new("cat")
        .arg(at("x.tar"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(first == made("-", "c.img", Stdio::from(cat.stdout.take().unwrap())));
    assert!(cat.wait().unwrap().success());
}

/// The defect: zeros behind a gzip stream, as of tapes, made the archive one that was refused. gzip reads it.
#[test]
fn zeros_behind_a_gzip_stream_are_nothing() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("x.tar"), archive(&[("f", b'0', "", b"f")])).unwrap();
    run("gzip", &["-kf", path(&at("x.tar"))]);
    let plain = fs::read(at("x.tar.gz")).unwrap();
    for zeros in [1, 3, 700] {
        let padded = [&plain[..], &vec![0; zeros]].concat();
        fs::write(at("x.tar.gz"), &padded).unwrap();
        diorite(&["import", "-q", path(&at("x.tar.gz")), path(&at("img"))]).ok();
        clean(&at("img"));
        diorite(&["copy", path(&at("x.tar.gz")), path(&at("again"))]).ok();
        assert_eq!(
            fs::read(at("x.tar")).unwrap(),
            fs::read(at("again")).unwrap()
        );
        fs::remove_file(at("again")).unwrap();
    }
}

/// The defect: labels of SELinux that GNU tar and star have in records of their own were lost.
#[test]
fn labels_of_selinux_are_kept() {
    let dir = scratch();
    let (tar, img) = (dir.path().join("x.tar"), dir.path().join("img"));
    let label = records(&["RHT.security.selinux=system_u:object_r:etc_t:s0"]);
    let both = records(&[
        "RHT.security.selinux=system_u:object_r:etc_t:s0\0",
        "SCHILY.xattr.security.selinux=other_u:object_r:etc_t:s0\0",
    ]);
    let bytes = archive(&[
        ("x", b'x', "", &label),
        ("f", b'0', "", b"f"),
        ("x", b'x', "", &both),
        ("g", b'0', "", b"g"),
    ]);
    fs::write(&tar, bytes).unwrap();
    diorite(&["import", "-q", path(&tar), path(&img)]).ok();
    clean(&img);
    let label = |file: &str| {
        let args = [
            "getfattr",
            "--only-values",
            "-n",
            "security.selinux",
            path(&img),
            file,
        ];
        diorite(&args).ok().text()
    };
    assert_eq!(label("/f"), "system_u:object_r:etc_t:s0\0");
    assert_eq!(label("/g"), "other_u:object_r:etc_t:s0\0");
}

/// The defect: an attribute with '=' in its name came in under the name that GNU tar writes for it, and could not go out.
#[test]
fn names_of_attributes_are_written_as_gnu_tar_writes_them() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let names = [
        "user.a=b",
        "user.p%q",
        "user.p%3Dq",
        "user.p%25q",
        "user.p%",
    ];
    fs::create_dir(at("source")).unwrap();
    fs::write(at("source/f"), "f").unwrap();
    for name in names {
        run("setfattr", &["-n", name, "-v", "v", path(&at("source/f"))]);
    }
    let shown = |img: &Path| diorite(&["getfattr", "-d", path(img), "/f"]).ok().text();
    diorite(&["import", "-q", path(&at("source")), path(&at("a.img"))]).ok();
    let whole = shown(&at("a.img"));
    assert_eq!(whole.matches("user.").count(), names.len(), "{whole}");
    packed(&at("source"), &at("gnu.tar"), &["--xattrs"]);
    diorite(&["import", "-q", path(&at("gnu.tar")), path(&at("b.img"))]).ok();
    assert_eq!(shown(&at("b.img")), whole);
    diorite(&["export", "-q", path(&at("a.img")), path(&at("x.tar"))]).ok();
    diorite(&["import", "-q", path(&at("x.tar")), path(&at("c.img"))]).ok();
    assert_eq!(shown(&at("c.img")), whole);
    fs::create_dir(at("out")).unwrap();
    run(
        "tar",
        &[
            "-xf",
            path(&at("x.tar")),
            "--xattrs",
            "-C",
            path(&at("out")),
            "./f",
        ],
    );
    diorite(&["import", "-q", path(&at("out")), path(&at("d.img"))]).ok();
    assert_eq!(shown(&at("d.img")), whole);
}

/// The defect: a symbolic link had the permissions of its header, which tar and the kernel give to none.
#[test]
fn symbolic_links_have_all_permissions() {
    let dir = scratch();
    let (tar, img) = (dir.path().join("x.tar"), dir.path().join("img"));
    fs::write(&tar, archive(&[("l", b'2', "target", b"")])).unwrap();
    diorite(&["import", "-q", path(&tar), path(&img)]).ok();
    let mode = diorite(&["stat", "-c", "%A", path(&img), "/l"]).ok().text();
    assert_eq!(mode.trim(), "lrwxrwxrwx");
}
