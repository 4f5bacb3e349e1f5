//! What commands print and how they end, beside coreutils and findutils in a directory of the host with the same in it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Ran, debugfs, diorite, image, noise, run, scratch};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

fn path(p: &Path) -> &str {
    p.to_str().unwrap()
}

fn fsck(img: &str) {
    run("e2fsck", &["-fn", img]);
}

/// A directory of the host, and an image with the same in it.
fn both(dir: &Path) -> (String, PathBuf) {
    let host = dir.join("host");
    fs::create_dir_all(host.join("dir/deep")).unwrap();
    fs::create_dir_all(host.join("empty")).unwrap();
    fs::write(host.join("a file"), b"some words\n").unwrap();
    fs::write(host.join("big"), noise(300_001, 1)).unwrap();
    fs::write(host.join("dir/one"), noise(5_000, 2)).unwrap();
    fs::write(host.join("dir/deep/two"), b"2\n").unwrap();
    symlink("../big", host.join("dir/link")).unwrap();
    for (name, mode) in [("big", 0o755), ("dir", 0o2750), ("dir/one", 0o4640)] {
        fs::set_permissions(host.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    (
        image(dir, "image", "32M", &["-t", "ext4"], Some(&host)),
        host,
    )
}

/// What a tool of the host prints in its directory, where paths are as in the image but for the slash in front.
fn on_host(host: &Path, words: &[&str]) -> (Option<i32>, String) {
    let bare = |word: &&str| match word.strip_prefix('/') {
        Some("") => ".".to_owned(),
        Some(path) => path.to_owned(),
        None => (*word).to_owned(),
    };
    let out = Command::new(words[0])
        .args(words[1..].iter().map(bare))
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "Europe/Berlin")
        .current_dir(host)
        .output()
        .unwrap();
    (
        out.status.code(),
        String::from_utf8_lossy(&out.stdout).into_owned(),
    )
}

/// Runs a command of diorite's: its name, its options, the image, the rest.
fn in_image(img: &str, words: &[&str]) -> Ran {
    let options = words[1..].iter().take_while(|w| w.starts_with('-')).count();
    let (front, rest) = words.split_at(1 + options);
    diorite(&[front, &[img], rest].concat())
}

/// Paths of the image without the slash in front.
fn bare(text: &str) -> String {
    text.replace("'/", "'")
}

/// -v says what coreutils say.
#[test]
fn what_is_done_is_told() {
    let dir = scratch();
    let (img, host) = both(dir.path());
    for words in [
        &["mkdir", "-pv", "/x/y/z", "/x/y", "/dir"][..],
        &["mkdir", "-v", "/new"],
        &["ln", "-v", "/big", "/x/again"],
        &["ln", "-v", "/big", "/x/y"],
        &["ln", "-sv", "some where", "/x/link"],
        &["mv", "-v", "/a file", "/x"],
        &["mv", "-v", "/x/again", "/x/more"],
        &["chmod", "-v", "600", "/big"],
        &["chmod", "-v", "600", "/big"],
        &["chmod", "-Rv", "g+s", "/dir/deep"],
        &["rmdir", "-v", "/new"],
        &["rmdir", "-pv", "x/y/z"],
        &["rmdir", "-v", "--ignore-fail-on-non-empty", "/dir"],
        &["rm", "-v", "/x/more"],
        &["rm", "-dv", "/empty"],
        &["rm", "-fv", "/nothing"],
        &["rm", "-rv", "/dir/deep"],
        &["rm", "/x/link"],
    ] {
        let (code, want) = on_host(&host, words);
        let ran = in_image(&img, words);
        assert_eq!(ran.code, code, "{words:?}: {}", ran.err);
        assert_eq!(bare(&ran.text()), want, "{words:?}");
    }
    diorite(&["chown", &img, "0:0", "/big"]).ok();
    for (owner, told) in [
        ("0", "ownership of 'big' retained as 0\n"),
        ("5", "changed ownership of 'big' from 0 to 5\n"),
        (":7", "changed group of 'big' from 0 to 7\n"),
        (":7", "group of 'big' retained as 7\n"),
        ("6:8", "changed ownership of 'big' from 5:7 to 6:8\n"),
    ] {
        assert_eq!(
            bare(&diorite(&["chown", "-v", &img, owner, "/big"]).ok().text()),
            told
        );
    }
    fsck(&img);
    // A line of a script says it once, also if it is done twice.
    let script = dir.path().join("script");
    fs::write(&script, "mkdir -v /one\nrmdir -v /one\n").unwrap();
    let said = diorite(&["edit", "--batch", "-f", path(&script), &img]).ok();
    assert_eq!(
        bare(&said.text()),
        "mkdir: created directory 'one'\nrmdir: removing directory, 'one'\n"
    );
}

/// The path that is to blame is named, not the other one.
#[test]
fn who_is_to_blame() {
    let dir = scratch();
    let (img, _) = both(dir.path());
    for (words, to_blame) in [
        (&["ln", "/nope", "/hard"][..], "/nope: No such file"),
        (&["ln", "/big", "/nodir/x"], "/nodir/x: No such file"),
        (&["ln", "/big", "/dir/one"], "/dir/one: File exists"),
        (&["ln", "/dir", "/hard"], "/dir: "),
        (&["ln", "-s", "x", "/big"], "/big: File exists"),
        (
            &["ln", "/big", "/dir/deep/two/x"],
            "/dir/deep/two/x: Not a directory",
        ),
        (&["mv", "/big", "/nodir/x"], "/nodir/x: No such file"),
        (&["mv", "/nope", "/x"], "/nope: No such file"),
        (&["mv", "/nope", "/nodir/x"], "/nope: No such file"),
        (&["mv", "-T", "/big", "/dir"], "/dir: Is a directory"),
        (&["mv", "-T", "/dir", "/big"], "/big: Not a directory"),
        (&["mv", "/dir", "/dir/deep"], "/dir: "),
        (&["rmdir", "/dir"], "/dir: Directory not empty"),
        (&["rmdir", "/big"], "/big: Not a directory"),
    ] {
        let ran = in_image(&img, words);
        ran.failed(1, &format!("diorite: {}: {img}:{to_blame}", words[0]));
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    }
    fsck(&img);
}

/// Words of Rust's, and what was said twice.
#[test]
fn messages_are_for_people() {
    let dir = scratch();
    let (img, _) = both(dir.path());
    diorite(&["ls", "/dev/null"]).failed(2, "it is a character device");
    diorite(&["ls", path(dir.path())]).failed(2, "it is a directory");
    let full = dir.path().join("full");
    fs::write(&full, noise(40 << 20, 5)).unwrap();
    let ran = diorite(&["put", &img, path(&full), "/full"]);
    ran.failed(1, "No space left on device: ");
    assert!(!ran.err.contains("no space left"), "{}", ran.err);
    let block = debugfs(&img, "bmap /big 0");
    debugfs(&img, &format!("freeb {}", block.trim()));
    let said = diorite(&["check", &img]).text();
    let one = format!("block {} is marked as free, which it is not", block.trim());
    assert!(said.contains(&one), "{said}");
    debugfs(&img, "freei /dir");
    assert!(!diorite(&["check", &img]).text().contains("..="));
    // Encrypted names and those that fold case are not the same.
    for (feature, note) in [
        ("encrypt", "note: encrypted names are not compared"),
        ("casefold", "note: names that fold case are not compared"),
    ] {
        let img = image(
            dir.path(),
            feature,
            "8M",
            &["-t", "ext4", "-O", feature],
            None,
        );
        let said = diorite(&["check", &img]).ok().text();
        assert!(said.contains(note), "{said}");
        assert_eq!(said.matches("are not compared").count(), 1, "{said}");
    }
}

/// As fsck's callers ask.
#[test]
fn check_takes_the_options_of_e2fsck() {
    let dir = scratch();
    let (img, _) = both(dir.path());
    let usual = diorite(&["check", &img]).ok().text();
    for options in [&["-f"][..], &["-n"], &["-fn"], &["-f", "-v"]] {
        let said = diorite(&[&["check"], options, &[&img]].concat())
            .ok()
            .text();
        assert_eq!(said, usual, "{options:?}");
    }
    for options in [&["-p"][..], &["-fp"], &["-a"]] {
        let said = diorite(&[&["check"], options, &[&img]].concat())
            .ok()
            .text();
        assert_eq!(said, "", "{options:?}");
    }
    assert_eq!(diorite(&["check", "-np", &img]).code, Some(16));
    debugfs(&img, "sif /big links_count 7");
    let damaged = diorite(&["check", "-p", &img]);
    assert_eq!(damaged.code, Some(4));
    assert!(
        damaged.text().contains("NOT clean: 1 finding;"),
        "{}",
        damaged.text()
    );
}

/// readlink prints links and tells nothing of others, but by its exit code.
#[test]
fn links_are_read() {
    let dir = scratch();
    let (img, host) = both(dir.path());
    for words in [
        &["readlink", "/dir/link"][..],
        &["readlink", "-n", "/dir/link"],
        &["readlink", "-z", "/dir/link", "/dir/link"],
        &["readlink", "/big", "/dir/link", "/nothing"],
    ] {
        let (code, want) = on_host(&host, words);
        let ran = in_image(&img, words);
        assert_eq!(
            (ran.code, ran.text(), &ran.err[..]),
            (code, want, ""),
            "{words:?}"
        );
    }
    diorite(&["readlink", "-v", &img, "/big"]).failed(1, "/big: Invalid argument");
}
