//! Contents that come from standard input, go to standard output, or are compared.
//!
//! Input: files of many lengths. Output: none. Invariant: cmp of the host says the same. Limits: none of its own.

use crate::common::{Ran, diorite, image, noise, scratch};
use crate::words::{fsck, path};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs diorite with something on its standard input.
fn with_input(args: &[&str], input: &[u8]) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_diorite"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let bytes = input.to_vec();
    // The command may end without reading all of its input.
    let feed = std::thread::spawn(move || drop(stdin.write_all(&bytes)));
    let out = child.wait_with_output().unwrap();
    feed.join().unwrap();
    Ran {
        code: out.status.code(),
        out: out.stdout,
        err: String::from_utf8_lossy(&out.stderr).into_owned(),
    }
}

#[test]
fn standard_input_and_output() {
    let dir = scratch();
    for options in [
        &["-t", "ext4"][..],
        &["-t", "ext2", "-b", "1024"],
        &["-t", "ext4", "-O", "inline_data"],
    ] {
        let img = image(dir.path(), "x", "64M", options, None);
        for len in [0, 1, 100, 4096, 700_001, 9 << 20] {
            let bytes = noise(len, 7);
            with_input(&["put", &img, "-", "/file"], &bytes).ok();
            assert!(
                diorite(&["get", &img, "/file", "-"]).ok().out == bytes,
                "{len}"
            );
        }
        fsck(&img);
        let facts: serde_json::Value =
            serde_json::from_slice(&diorite(&["stat", "--json", &img, "/file"]).ok().out).unwrap();
        assert_eq!(
            (&facts["uid"], &facts["perms"]),
            (&0.into(), &"-rw-r--r--".into())
        );
        with_input(
            &[
                "put", "--owner", "5", "--mode", "u=rw,go=", &img, "-", "/file",
            ],
            b"short",
        )
        .ok();
        let owned = diorite(&["ls", "-l", &img, "/file"]).ok().text();
        assert!(owned.starts_with("-rw------- 1 5 0 5 "), "{owned}");
        with_input(&["put", "-n", &img, "-", "/file"], b"other").ok();
        let both = diorite(&["get", &img, "/file", "/file", "-"]).ok();
        assert_eq!(both.text(), "shortshort");
        fs::remove_file(&img).unwrap();
    }
    let img = image(dir.path(), "x", "8M", &["-t", "ext4"], None);
    with_input(&["put", &img, "-", "/"], b"x").failed(1, "standard input has no name");
    with_input(&["put", &img, "-", "/a", "/b"], b"x").failed(2, "standard input has no name");
    with_input(&["put", &img, "-", "/no/file"], b"x").failed(1, "/no/file: No such file");
    with_input(&["put", &img, "-", "/full"], &noise(12 << 20, 1)).failed(1, "No space left");
    diorite(&["ls", &img, "/full"]).failed(2, "No such file");
    diorite(&["get", &img, "/", "-"]).failed(1, "only the contents of a file");
    let script = dir.path().join("script");
    fs::write(&script, "put - /x\n").unwrap();
    diorite(&["edit", "-f", path(&script), &img])
        .failed(2, "standard input cannot be read in a script");
    fsck(&img);
}

#[test]
fn cmp_says_what_cmp_says() {
    let dir = scratch();
    let host = dir.path().join("host");
    fs::create_dir(&host).unwrap();
    let big = noise(900_000, 3);
    let mut changed = big.clone();
    changed[700_000] ^= 1;
    for (name, bytes) in [
        ("empty", &b""[..]),
        ("ab", b"ab"),
        ("ab-line", b"ab\n"),
        ("abcd", b"ab\ncd"),
        ("abce", b"ab\nce"),
        ("big", &big),
        ("changed", &changed),
        ("cut", &big[..262_144]),
    ] {
        fs::write(host.join(name), bytes).unwrap();
    }
    let img = image(dir.path(), "x", "32M", &["-t", "ext4"], Some(&host));
    let names: Vec<_> = fs::read_dir(&host)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    for a in &names {
        for b in &names {
            let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
            let theirs = Command::new("cmp")
                .args([a, b])
                .current_dir(&host)
                .output()
                .unwrap();
            let on_host = host.join(b);
            let ran = diorite(&["cmp", &img, a, path(&on_host)]);
            assert_eq!(ran.code, theirs.status.code(), "{a} {b}: {}", ran.err);
            let plain = |text: &str| {
                text.replace(&format!("{img}:"), "")
                    .replace(&format!("{}/", host.display()), "")
                    .replace("diorite: cmp: ", "cmp: ")
            };
            assert_eq!(plain(&ran.text()), String::from_utf8_lossy(&theirs.stdout));
            assert_eq!(plain(&ran.err), String::from_utf8_lossy(&theirs.stderr));
        }
    }
    let abce = host.join("abce");
    assert_eq!(
        diorite(&["cmp", "-n", "4", &img, "abcd", path(&abce)])
            .ok()
            .text(),
        ""
    );
    let silent = diorite(&["cmp", "-s", &img, "abcd", path(&abce)]);
    assert_eq!(
        (silent.code, silent.text(), silent.err),
        (Some(1), String::new(), String::new())
    );
    with_input(&["cmp", &img, "big", "-"], &big).ok();
    let input = with_input(&["cmp", &img, "abcd", "-"], b"ab\nce");
    assert_eq!(
        input.text(),
        format!("{img}:abcd - differ: byte 5, line 2\n")
    );
    diorite(&["cmp", &img, "/nothing", path(&abce)]).failed(2, "/nothing: No such file");
    diorite(&["cmp", &img, "ab", "/nothing"]).failed(2, "/nothing: No such file");
    diorite(&["cmp", &img, "/", path(&abce)]).failed(2, "Not a regular file");
}

/// Defect: a command that could not print what it had changed ended at once. On a volume without a journal its changes were lost, or e2fsck
/// found half of them.
#[test]
fn an_image_is_closed_although_nobody_reads_what_was_changed() {
    let dir = scratch();
    let host = dir.path().join("host");
    fs::create_dir(&host).unwrap();
    for n in 0..1000 {
        fs::write(host.join(format!("file{n}")), noise(n * 9, n as u64)).unwrap();
    }
    for features in ["has_journal", "^has_journal"] {
        for is_pipe in [true, false] {
            let img = image(
                dir.path(),
                "x",
                "64M",
                &["-t", "ext4", "-O", features],
                None,
            );
            let without_reader = |words: &[&str]| {
                let stdout = match is_pipe {
                    true => Stdio::piped(),
                    false => Stdio::from(fs::File::create("/dev/full").unwrap()),
                };
                let mut child = Command::new(env!("CARGO_BIN_EXE_diorite"))
                    .args(words)
                    .stdin(Stdio::null())
                    .stdout(stdout)
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap();
                drop(child.stdout.take());
                let out = child.wait_with_output().unwrap();
                let err = String::from_utf8_lossy(&out.stderr).into_owned();
                let expected = match is_pipe {
                    true => (Some(141), ""),
                    false => (Some(1), "diorite: write error: No space left on device\n"),
                };
                assert_eq!((out.status.code(), &err[..]), expected, "{words:?}");
            };
            without_reader(&["put", "-v", &img, path(&host), "/host"]);
            fsck(&img);
            let names = diorite(&["ls", &img, "/host"]).ok().text();
            assert_eq!(names.lines().count(), 1000, "{features}");
            without_reader(&["find", &img, "/host/file1", "-print", "-delete"]);
            without_reader(&["rm", "-rv", &img, "/host"]);
            fsck(&img);
            diorite(&["ls", &img, "/host"]).failed(2, "No such file");
            without_reader(&["grow", &img, "80M"]);
            fsck(&img);
            fs::remove_file(&img).unwrap();
        }
    }
}

/// Standard output that is closed (`>&-`), as for cat(1): what was to be printed is missing, so the command fails. Defect: the standard
/// library opens /dev/null in its place, and all of it was a success.
#[test]
fn a_closed_standard_output_is_no_success() {
    let dir = scratch();
    let img = image(dir.path(), "x", "8M", &["-t", "ext4"], None);
    with_input(&["put", &img, "-", "/f"], &noise(70_000, 3)).ok();
    for (words, code) in [
        ("cat IMG /f", 1),
        ("get IMG /f -", 1),
        ("get IMG /f /dev/stdout", 1),
        ("export -q IMG -", 1),
        ("ls IMG", 1),
        ("check IMG", 8),
        ("--version", 1),
        ("ls --help", 1),
        // Nothing to be printed.
        ("mkdir IMG /d", 0),
        ("get IMG /f OUT", 0),
    ] {
        let out = path(&dir.path().join("out")).to_owned();
        let words = words.replace("IMG", &img).replace("OUT", &out);
        let line = format!("exec {} {words} >&-", env!("CARGO_BIN_EXE_diorite"));
        let ran = Command::new("sh").args(["-c", &line]).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(code), "{words}: {said}");
        assert_eq!(
            said.contains("Bad file descriptor"),
            code != 0,
            "{words}: {said}"
        );
    }
    fsck(&img);
}

/// With --json the result of cmp is one object, and the exit code as without it.
#[test]
fn cmp_prints_facts() {
    let dir = scratch();
    let img = image(dir.path(), "x", "8M", &["-t", "ext4"], None);
    with_input(&["put", &img, "-", "/f"], b"one\ntwo\n").ok();
    for (theirs, code, same, place, ends) in [
        (&b"one\ntwo\n"[..], 0, true, (None, None), None),
        (b"one\ntoo\n", 1, false, (Some(6), Some(2)), None),
        (b"one\n", 1, false, (None, None), Some(("host", 4))),
        (
            b"one\ntwo\nthree",
            1,
            false,
            (None, None),
            Some(("image", 8)),
        ),
    ] {
        let ran = with_input(&["cmp", "--json", &img, "/f", "-"], theirs);
        assert_eq!(ran.code, Some(code), "{}", ran.err);
        let facts: serde_json::Value = serde_json::from_slice(&ran.out).unwrap();
        let ends = ends.map(|(which, bytes)| serde_json::json!({"which": which, "bytes": bytes}));
        let expected = serde_json::json!({
            "image": img, "path": "/f", "host": "-", "same": same, "byte": place.0, "line": place.1, "ends": ends,
        });
        assert_eq!(facts, expected);
    }
    let none = diorite(&["cmp", "--json", &img, "/none", "/dev/null"]);
    none.failed(2, "No such file");
    assert!(none.out.is_empty());
}

/// Standard input that is closed (`<&-`), as for cat(1): what was to be read is missing, so the command fails. Defect: the standard library
/// opens /dev/null in its place, and the copy was empty.
#[test]
fn a_closed_standard_input_is_no_success() {
    let dir = scratch();
    let img = image(dir.path(), "x", "8M", &["-t", "ext4"], None);
    with_input(&["put", &img, "-", "/empty"], b"").ok();
    let out = path(&dir.path().join("out")).to_owned();
    for (words, code) in [
        ("copy -q - OUT", 1),
        ("put -q IMG - /f", 1),
        ("cp -q - IMG:/f", 1),
        ("edit -f - IMG", 1),
        ("cmp IMG /empty -", 2),
        // Nothing to be read.
        ("ls IMG", 0),
    ] {
        let words = words.replace("IMG", &img).replace("OUT", &out);
        let line = format!("exec {} {words} <&-", env!("CARGO_BIN_EXE_diorite"));
        let ran = Command::new("sh").args(["-c", &line]).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(code), "{words}: {said}");
        let is_told = said.contains("Bad file descriptor");
        assert_eq!(is_told, code != 0, "{words}: {said}");
    }
    assert!(!Path::new(&out).exists());
    diorite(&["ls", &img, "/f"]).failed(2, "No such file");
    fsck(&img);
}
