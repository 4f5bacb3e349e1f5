//! Tests with corrupt and malicious images and wrong usage: the messages and exit codes of the command.

use crate::common::{debugfs, diorite, files, image, noise, patch, scratch, tree};
use std::fs;
use std::os::unix::fs::symlink;

/// A plain ext4 without checksums, so that bytes can be changed.
const PLAIN: [&str; 4] = ["-t", "ext4", "-O", "^metadata_csum,^dir_index"];

#[test]
fn wrong_usage_and_missing_things() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], Some(&source));
    assert_eq!(diorite(&["ls"]).code, Some(2));
    assert_eq!(diorite(&["frobnicate"]).code, Some(2));
    assert_eq!(diorite(&["cat", &img]).code, Some(2));
    assert_eq!(diorite(&["ls", "--policy", "linux-9", &img]).code, Some(2));
    assert_eq!(diorite(&["ls", "--io-engine", "steam", &img]).code, Some(2));
    diorite(&["ls", &img, "/nothing"]).failed(
        2,
        &format!("diorite: ls: {img}:/nothing: No such file or directory\n"),
    );
    diorite(&["cat", &img, "/nothing"]).failed(1, "No such file or directory");
    diorite(&["cat", &img, "/small/x"]).failed(1, "Not a directory");
    diorite(&["cat", &img, "/dir"]).failed(1, "Is a directory");
    diorite(&["cat", &img, "/pipe"]).failed(1, "Not a regular file");
    diorite(&["stat", &img, "/nothing"]).failed(1, "No such file or directory");
    diorite(&["extents", &img, "/pipe"]).failed(1, "no blocks");
    for (command, code) in [("info", 1), ("ls", 2)] {
        let ran = diorite(&[command, "/no/such/image"]);
        ran.failed(code, "/no/such/image");
        assert!(!ran.err.contains("os error"), "{}", ran.err);
        assert_eq!(ran.err.matches("/no/such/image").count(), 1, "{}", ran.err);
    }
    // Files that can be read are printed, even if others fail.
    let ran = diorite(&["cat", &img, "/nothing", "/small"]);
    assert_eq!((ran.code, &ran.out[..]), (Some(1), &b"a few words\n"[..]));
}

#[test]
fn images_that_are_none() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], Some(&source));
    let garbage = dir.path().join("garbage");
    fs::write(&garbage, noise(1 << 20, 5)).unwrap();
    diorite(&["ls", garbage.to_str().unwrap()]).failed(2, "no ext2/ext3/ext4 superblock");
    let cut = dir.path().join("cut");
    fs::write(&cut, &fs::read(&img).unwrap()[..4 << 20]).unwrap();
    diorite(&["cat", cut.to_str().unwrap(), "/small"]).failed(1, "the image is cut off");
    let tiny = dir.path().join("tiny");
    fs::write(&tiny, b"x").unwrap();
    assert_eq!(diorite(&["info", tiny.to_str().unwrap()]).code, Some(1));
    diorite(&["info", dir.path().to_str().unwrap()]).failed(1, "");
}

/// An image with doubtful contents is read, with one warning.
#[test]
fn readers_are_told_what_is_doubtful() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let img = image(dir.path(), "x", "64M", &["-t", "ext4"], Some(&source));
    debugfs(&img, "ssv state 2");
    let ran = diorite(&["cat", &img, "/small"]);
    assert_eq!((ran.code, &ran.out[..]), (Some(0), &b"a few words\n"[..]));
    assert!(
        ran.err.contains("warning:") && ran.err.contains("errors are recorded"),
        "{}",
        ran.err
    );
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
}

/// Random bytes are changed anywhere: the command always ends with an exit code, and never crashes.
#[test]
fn flipped_bytes_end_in_a_message() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir_all(source.join("a/b")).unwrap();
    fs::write(source.join("a/b/file"), noise(40_000, 9)).unwrap();
    symlink("b", source.join("a/link")).unwrap();
    let img = image(
        dir.path(),
        "x",
        "2M",
        &[
            "-t",
            "ext4",
            "-O",
            "^metadata_csum,^has_journal",
            "-b",
            "1024",
        ],
        Some(&source),
    );
    let clean = fs::read(&img).unwrap();
    let bad = dir.path().join("bad");
    let places = noise(8 * 60, 11);
    for (n, place) in places.chunks(8).enumerate() {
        let mut bytes = clean.clone();
        // Most of the metadata is in the first 100 KiB.
        for part in place.chunks(2) {
            let at = 1024 + usize::from(u16::from_ne_bytes([part[0], part[1]])) * 3 / 2;
            bytes[at] ^= part[0] | 1;
        }
        fs::write(&bad, bytes).unwrap();
        let bad = bad.to_str().unwrap();
        let out = dir.path().join(format!("out{n}"));
        for args in [
            &["ls", "-lR", bad][..],
            &["info", bad],
            &["get", bad, "/", out.to_str().unwrap()],
        ] {
            let ran = diorite(args);
            assert!(
                matches!(ran.code, Some(0..=2)),
                "{n}: {args:?}: {:?} {}",
                ran.code,
                ran.err
            );
            assert!(!ran.err.contains("panicked"), "{}", ran.err);
        }
    }
}

/// A name with slashes, made by changing bytes on the disk.
#[test]
fn names_cannot_climb_out() {
    let dir = scratch();
    let source = dir.path().join("source");
    files(
        &source,
        &[("inside/QQQQQQQQQQ", b"evil\n"), ("inside/good", b"good\n")],
    );
    let img = image(dir.path(), "x", "8M", &PLAIN, Some(&source));
    assert_eq!(patch(&img, b"QQQQQQQQQQ", b"../../evil"), 1);
    fs::create_dir_all(dir.path().join("deep/out")).unwrap();
    let ran = diorite(&[
        "get",
        &img,
        "/",
        dir.path().join("deep/out").to_str().unwrap(),
    ]);
    ran.failed(1, "slash");
    assert!(!dir.path().join("deep/evil").exists() && !dir.path().join("evil").exists());
}

/// Two entries with the same name: first a symbolic link that leads outside, then a directory with a file in it.
#[test]
fn links_in_the_image_are_not_followed() {
    let dir = scratch();
    let (source, outside) = (dir.path().join("source"), dir.path().join("outside"));
    fs::create_dir_all(source.join("QQQQ2")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(source.join("QQQQ2/evil"), b"evil\n").unwrap();
    symlink(&outside, source.join("QQQQ1")).unwrap();
    let img = image(dir.path(), "x", "8M", &PLAIN, Some(&source));
    patch(&img, b"QQQQ1", b"trap!");
    patch(&img, b"QQQQ2", b"trap!");
    let out = dir.path().join("out");
    let ran = diorite(&["get", &img, "/", out.to_str().unwrap()]);
    ran.failed(1, "trap!");
    assert_eq!(
        fs::read_dir(&outside).unwrap().count(),
        0,
        "nothing landed outside"
    );
    // An existing link at the destination is not followed either: the copy replaces it.
    fs::remove_dir_all(&out).unwrap();
    fs::create_dir(&out).unwrap();
    fs::write(source.join("file"), b"new\n").unwrap();
    fs::write(outside.join("victim"), b"old\n").unwrap();
    symlink(outside.join("victim"), out.join("file")).unwrap();
    let img = image(dir.path(), "y", "8M", &PLAIN, Some(&source));
    diorite(&["get", &img, "/file", out.to_str().unwrap()]).ok();
    assert_eq!(fs::read(outside.join("victim")).unwrap(), b"old\n");
    assert_eq!(fs::read(out.join("file")).unwrap(), b"new\n");
}

/// A directory that contains itself.
#[test]
fn circles_of_directories_end() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir_all(source.join("a/b")).unwrap();
    fs::write(source.join("a/b/file"), b"x").unwrap();
    let img = image(dir.path(), "x", "8M", &["-t", "ext4"], Some(&source));
    debugfs(&img, "link /a /a/b/again");
    let out = dir.path().join("out");
    diorite(&["get", &img, "/", out.to_str().unwrap()]).failed(1, "circle");
    assert!(out.join("a/b/file").exists());
    diorite(&["ls", "-R", &img]).failed(1, "circle");
    diorite(&["tree", &img]).failed(1, "circle");
    diorite(&["find", &img, "-name", "x"]).failed(1, "circle");
    diorite(&["chmod", "-R", &img, "a+r", "/"]).failed(1, "circle");
}

/// A name of an inode that is not in use is corruption, not a missing name. The defect: `rm -f`, `touch -c` and `truncate -c`
/// succeeded although the name was still there, and without -c the commands tried to create the file and reported that it
/// existed.
#[test]
fn a_name_of_an_inode_that_is_not_in_use_is_damage() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("x"), b"data").unwrap();
    let img = image(dir.path(), "x", "8M", &["-t", "ext4"], Some(&source));
    debugfs(&img, "clri /x");
    let commands: [&[&str]; 9] = [
        &["rm", "-f", &img, "/x"],
        &["rm", &img, "/x"],
        &["touch", "-c", &img, "/x"],
        &["touch", "--no-dereference", &img, "/x"],
        &["touch", &img, "/x"],
        &["truncate", "-c", "-s", "0", &img, "/x"],
        &["truncate", "-s", "0", &img, "/x"],
        &["fallocate", "-l", "1M", &img, "/x"],
        &["put", &img, "/dev/null", "/x"],
    ];
    for args in commands {
        let ran = diorite(args);
        ran.failed(1, "is not in use; the directory is corrupt, run e2fsck");
    }
    diorite(&["rm", "-f", &img, "/nothing"]).ok();
    diorite(&["touch", "-c", &img, "/nothing"]).ok();
}

/// Two thousand nested directories with names of the maximum length. The defect: each open directory held its whole path, half
/// a gigabyte in all, and so did the list of directories that `rm -r` was going to remove.
#[test]
fn deep_trees_take_memory_with_their_depth_alone() {
    let dir = scratch();
    let img = image(dir.path(), "x", "32M", &["-t", "ext4", "-N", "4000"], None);
    let script = dir.path().join("script");
    let name = "n".repeat(255);
    fs::write(&script, format!("mkdir {name}\ncd {name}\n").repeat(2000)).unwrap();
    let script = script.to_str().unwrap();
    crate::common::run("debugfs", &["-w", "-f", script, &img]);
    let top = format!("/{name}");
    let mut counted = None;
    for args in [
        &["find", &img, "/", "-name", "x"][..],
        &["tree", &img],
        &["getfattr", "-R", &img, "/"],
        &["chmod", "-R", &img, "go-w", "/"],
        &["rm", "-r", &img, &top],
    ] {
        // The limit of data memory is 200 MiB.
        let ran = std::process::Command::new("sh")
            .args(["-c", "ulimit -d 204800; exec \"$0\" \"$@\""])
            .arg(env!("CARGO_BIN_EXE_diorite"))
            .args(args)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{}: {said:.300}", args[0]);
        if args[0] == "tree" {
            let text = String::from_utf8_lossy(&ran.stdout);
            counted = text.lines().last().map(str::to_owned);
        }
    }
    assert_eq!(counted.as_deref(), Some("2001 directories, 0 files"));
    diorite(&["ls", &img, &top]).failed(2, "No such file");
    crate::common::run("e2fsck", &["-fn", &img]);
}

/// The copy of a file that maps far more blocks than the volume has ends with a message, and does not fill the disk.
#[test]
fn a_map_larger_than_its_volume_is_refused() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir_all(&source).unwrap();
    // Indirect blocks: 12 direct ones, then a block of pointers.
    fs::write(source.join("file"), noise(40 << 10, 3)).unwrap();
    let img = image(
        dir.path(),
        "x",
        "1M",
        &["-t", "ext2", "-b", "1024"],
        Some(&source),
    );
    let pointers = debugfs(&img, "stat /file");
    let ind: u32 = pointers
        .split("(IND):")
        .nth(1)
        .and_then(|rest| rest.split([',', '\n', ' ']).next())
        .unwrap()
        .parse()
        .unwrap();
    // Makes the double indirect block point 256 times to a block whose pointers all lead to the same data.
    let mut bytes = fs::read(&img).unwrap();
    let free = 900 * 1024;
    for n in 0..256 {
        bytes[free + n * 4..free + n * 4 + 4].copy_from_slice(&ind.to_le_bytes());
    }
    fs::write(&img, bytes).unwrap();
    debugfs(&img, "set_inode_field /file block[DIND] 900");
    debugfs(&img, "set_inode_field /file size 67000000");
    let out = dir.path().join("out");
    diorite(&["get", &img, "/file", out.to_str().unwrap()])
        .failed(1, "more blocks than the volume has");
    diorite(&["extents", "--json", &img, "/file"]).failed(1, "more blocks than the volume has");
}

#[test]
fn man_pages_and_completions_are_made() {
    let dir = scratch();
    let at = dir.path().to_str().unwrap();
    diorite(&["generate", "man", at]).ok();
    diorite(&["generate", "completions", at]).ok();
    let names: Vec<String> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in [
        "diorite.1",
        "diorite-get.1",
        "diorite-info.1",
        "diorite.bash",
        "_diorite",
        "diorite.fish",
    ] {
        assert!(
            names.iter().any(|n| n == name),
            "{name} is not among {names:?}"
        );
    }
    let page = fs::read_to_string(dir.path().join("diorite-get.1")).unwrap();
    assert!(page.contains("hard links"), "{page}");
    for command in ["info", "ls", "stat", "cat", "get", "extents"] {
        let help = diorite(&[command, "--help"]).ok().text();
        assert!(help.contains("Examples:"), "{command}: {help}");
    }
    assert!(diorite(&["--version"]).ok().text().starts_with("diorite "));
}

/// A name in an encrypted directory may be any bytes, and is no path. The defect: `rm -r` of such a directory, and `find -delete`,
/// removed the file that the path led to.
#[test]
fn what_is_removed_is_the_name_that_was_met() {
    let dir = scratch();
    let source = dir.path().join("source");
    files(&source, &[("victim", b"data"), ("enc/zzzzzzzzz", b"")]);
    let features = ["-t", "ext4", "-O", "encrypt,^metadata_csum,^dir_index"];
    let img = image(dir.path(), "x", "8M", &features, Some(&source));
    debugfs(&img, "sif /enc flags 0x80800");
    assert_eq!(patch(&img, b"zzzzzzzzz", b"../victim"), 1);
    for args in [
        &["rm", "-r", &img, "/enc"][..],
        &["find", &img, "/enc", "-type", "f", "-delete"],
    ] {
        assert_eq!(diorite(args).code, Some(1), "{args:?}");
        assert_eq!(diorite(&["cat", &img, "/victim"]).ok().out, b"data");
    }
}
