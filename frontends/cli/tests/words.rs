//! Tests of the output and exit codes of commands, against coreutils and findutils in a directory of the host with the same
//! files.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Mount, Ran, debugfs, diorite, image, noise, run, scratch};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn path(p: &Path) -> &str {
    p.to_str().unwrap()
}

fn fsck(img: &str) {
    run("e2fsck", &["-fn", img]);
}

/// A directory of the host, and an image with the same files.
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

/// The output of a tool of the host in that directory, where paths are those of the image without the leading slash.
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

/// Runs a command of diorite. The image comes after the name and the options, and before the other words.
fn in_image(img: &str, words: &[&str]) -> Ran {
    let options = words[1..].iter().take_while(|w| w.starts_with('-')).count();
    let (front, rest) = words.split_at(1 + options);
    diorite(&[front, &[img], rest].concat())
}

/// Removes the leading slash from paths of the image.
fn bare(text: &str) -> String {
    text.replace("'/", "'")
}

/// -v prints what coreutils print.
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
    // A line of a script that is applied twice prints it once.
    let script = dir.path().join("script");
    fs::write(&script, "mkdir -v /one\nrmdir -v /one\n").unwrap();
    let said = diorite(&["edit", "--batch", "-f", path(&script), &img]).ok();
    assert_eq!(
        bare(&said.text()),
        "mkdir: created directory 'one'\nrmdir: removing directory, 'one'\n"
    );
}

/// A message names the path that caused the error, not the other one.
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

/// Messages have neither Rust's debug notation nor repetitions.
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
    // Encrypted and case-folded names have different messages.
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

/// The options with which fsck is called at boot.
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

/// readlink prints the targets of links; for other files only its exit code shows the error.
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

/// Fields of a line of a table.
fn fields(text: &str, line: usize) -> Vec<String> {
    text.lines()
        .nth(line)
        .unwrap()
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[test]
fn df_and_du_say_what_the_kernel_says() {
    let dir = scratch();
    let (img, host) = both(dir.path());
    fs::hard_link(host.join("big"), host.join("again")).unwrap();
    for options in [
        &["-t", "ext4"][..],
        &["-t", "ext2", "-b", "1024", "-m", "10"],
        &["-t", "ext4", "-O", "bigalloc", "-C", "65536"],
    ] {
        let img = image(dir.path(), "other", "64M", options, Some(&host));
        let Some(mount) = Mount::new(&img, &dir.path().join("mnt"), "ro") else {
            return;
        };
        for (option, of_df) in [
            ("-k", "size,used,avail,pcent"),
            ("-i", "itotal,iused,iavail"),
        ] {
            let want = on_host(&mount.0, &["df", &format!("--output={of_df}"), "-k", "."]).1;
            let ours = diorite(&["df", option, &img]).ok().text();
            let want = fields(&want, 1);
            assert_eq!(
                fields(&ours, 1)[1..=want.len()],
                want[..],
                "{options:?} {ours}"
            );
        }
        for words in [
            &["du", "/"][..],
            &["du", "-a", "/"],
            &["du", "-s", "/dir", "/big"],
            &["du", "-ac", "/dir", "/big"],
            &["du", "-l", "/"],
            &["du", "-d1", "/"],
            &["du", "-h", "/dir"],
        ] {
            // Which of two names is visited first, and counted, depends on the order of the walk.
            let sorted = |text: &str| {
                let one = |line: &str| match line.split_once('\t') {
                    Some((size, "total")) => format!("{size} total"),
                    Some((size, path)) => {
                        let path = path.trim_start_matches("./").trim_start_matches(['.', '/']);
                        format!("{size} /{}", path.replace("again", "big"))
                    }
                    None => line.to_owned(),
                };
                let mut lines: Vec<String> = text.lines().map(one).collect();
                lines.sort();
                lines
            };
            let want = sorted(&on_host(&mount.0, words).1);
            let ours = in_image(&img, words).ok().text();
            assert_eq!(sorted(&ours), want, "{words:?}");
        }
    }
    let human = diorite(&["df", "-h", &img]).ok().text();
    assert!(
        fields(&human, 0).contains(&"Size".to_owned()) && human.contains("%\n"),
        "{human}"
    );
    let json: serde_json::Value =
        serde_json::from_slice(&diorite(&["df", "--json", &img]).ok().out).unwrap();
    let number = |key: &str| json[key].as_u64().unwrap();
    assert_eq!(number("used") + number("free"), number("size"));
    assert!(number("available") < number("free"));
    assert_eq!(
        diorite(&["du", "-sb", &img, "/dir/one"]).ok().text(),
        "5000\t/dir/one\n"
    );
    let lines = diorite(&["du", "--json", "-a", &img, "/dir"]).ok().text();
    assert!(
        lines.contains(r#"{"path":"/dir/one","bytes":5120}"#),
        "{lines}"
    );
    diorite(&["du", &img, "/nothing", "/dir"]).failed(1, "/nothing: No such file");
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

/// A colon instead of the exclamation mark, and sizes with units.
#[test]
fn locators_as_people_type_them() {
    let dir = scratch();
    let (img, host) = both(dir.path());
    let outer = image(dir.path(), "outer", "64M", &["-t", "ext4"], None);
    diorite(&["put", &outer, &img, "/inner.img"]).ok();
    for inner in [
        format!("{outer}:/inner.img"),
        format!("{outer}?ro:/inner.img"),
    ] {
        let got = diorite(&["cat", &inner, "/big"]).ok();
        assert!(got.out == fs::read(host.join("big")).unwrap());
    }
    diorite(&["ls", &format!("{outer}:/nothing")]).failed(2, "No such file or directory");
    let outermost = image(dir.path(), "outermost", "128M", &["-t", "ext4"], None);
    diorite(&["put", &outermost, &outer, "/middle.img"]).ok();
    let inner = format!("{outermost}:/middle.img:/inner.img");
    let got = diorite(&["cat", &inner, "/big"]).ok();
    assert!(got.out == fs::read(host.join("big")).unwrap());
    diorite(&["mkdir", &inner, "/made"]).ok();
    diorite(&[
        "cp",
        &format!("{inner}:/big"),
        &format!("{outermost}!/middle.img!/inner.img!/made"),
    ])
    .ok();
    assert_eq!(diorite(&["ls", &inner, "/made"]).ok().text(), "big\n");
    fsck(&outermost);
    let deep = format!("{img}{}", ":/a".repeat(17));
    diorite(&["ls", &deep]).failed(2, "more than 16 volumes inside each other");
    let shifted = dir.path().join("shifted");
    let bytes = [vec![0; 1 << 20], fs::read(&img).unwrap()].concat();
    fs::write(&shifted, bytes).unwrap();
    for offset in ["1M", "1MiB", "2048s", "0x100000", "1048576"] {
        diorite(&["ls", &format!("{}?offset={offset}", path(&shifted)), "/big"]).ok();
    }
    diorite(&["truncate", "-s", "3s", &img, "/big"]).ok();
    assert_eq!(
        diorite(&["du", "-b", &img, "/big"]).ok().text(),
        "1536\t/big\n"
    );
}

#[test]
fn stat_and_find_print_what_they_are_told() {
    let dir = scratch();
    let (img, host) = both(dir.path());
    for (name, date) in [
        ("big", "2001-02-03 04:05:06.789"),
        ("dir/one", "2 days ago"),
        ("dir/deep/two", "2030-01-01"),
        ("a file", "10 minutes ago"),
    ] {
        run("touch", &["-d", date, path(&host.join(name))]);
        let stamp = run("stat", &["-c", "@%.9Y", path(&host.join(name))]);
        diorite(&["touch", "-d", stamp.trim(), &img, name]).ok();
    }
    for format in [
        "%n|%s|%a|%A|%f|%F|%u:%g|%h",
        "%N",
        "%y|%Y|%.3Y|%.Y",
        "[%8s] [%-8s] [%08s] 100%%",
        "%t %T",
    ] {
        for file in ["big", "dir/one", "dir/link", "empty/", "a file"] {
            let theirs = on_host(&host, &["stat", "-c", format, file]).1;
            let theirs_alone = format.contains('s') && file == "empty/";
            let untouched = format.contains("%y") && ["empty/", "dir/link"].contains(&file);
            if theirs_alone || untouched {
                continue;
            }
            let ours = diorite(&["stat", "-c", format, &img, file]).ok().text();
            assert_eq!(ours, theirs, "{format} {file}");
        }
    }
    assert_eq!(
        diorite(&["stat", "--printf", "%s\\t\\x", &img, "/big"]).code,
        Some(2)
    );
    assert_eq!(
        diorite(&["stat", "--printf", "%s\\t%n\\0", &img, "/big"])
            .ok()
            .text(),
        "300001\t/big\0"
    );
    diorite(&["stat", "-c", "%q", &img, "/big"]).failed(2, "no directive that is known");

    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    for words in [
        &["find", "dir", "-newer", "dir/one"][..],
        &["find", "dir", "-type", "f", "-mtime", "+1"],
        &["find", "dir", "-mtime", "-1", "-type", "f"],
        &["find", "dir", "-mtime", "2", "-o", "-name", "two", "-print"],
        &[
            "find",
            "dir",
            "-printf",
            "%p|%f|%h|%P|%H|%y|%d|%m|%M|%n|%l\\n",
        ],
        &[
            "find",
            "big",
            "-printf",
            "%s %t %T@ %TY-%Tm-%Td %TH:%TM:%TS %T+ %TT %TF%%\\n",
        ],
        &[
            "find",
            "dir",
            "-name",
            "one",
            "-printf",
            "<%10f>\\n",
            "-o",
            "-type",
            "l",
            "-print",
        ],
        // This was the mode: `%A` alone is stat's word for it.
        &["find", "dir/deep/two", "-printf", "%A@ %AY-%Am\\n"],
        &["find", "dir", "-depth"],
    ] {
        let theirs = on_host(&host, words).1;
        let ours = diorite(&[&["find", &img], &words[1..]].concat())
            .ok()
            .text();
        assert_eq!(sorted(&ours), sorted(&theirs), "{words:?}");
    }
    diorite(&["find", &img, "/", "-newer", "/nothing"]).failed(1, "/nothing: No such file");
    let before = fs::read(&img).unwrap();
    diorite(&["find", &img, "/", "-name", "none", "-o", "-printf", ""]).ok();
    assert!(
        fs::read(&img).unwrap() == before,
        "what only looks writes nothing"
    );
    // Before 1970 the nanoseconds count upwards: this was shown as -1.500.
    for (date, shown) in [
        ("@-0.5", "-0.500"),
        ("@-1.23456", "-1.234"),
        ("@-2", "-2.000"),
    ] {
        diorite(&["touch", "-d", date, &img, "/dir/one"]).ok();
        let ours = diorite(&["stat", "-c", "%.3Y", &img, "/dir/one"]).ok();
        assert_eq!(ours.text().trim(), shown);
        run("touch", &["-d", date, path(&host.join("dir/one"))]);
        let theirs = run("stat", &["-c", "%.3Y", path(&host.join("dir/one"))]);
        assert_eq!(theirs.trim(), shown);
    }
    let gone = diorite(&["find", &img, "/dir", "-type", "f", "-print", "-delete"])
        .ok()
        .text();
    assert_eq!(gone, "/dir/deep/two\n/dir/one\n");
    diorite(&["find", &img, "/dir", "-name", "dir", "-delete"])
        .failed(1, "/dir: Directory not empty");
    diorite(&["find", &img, "/", "-delete"]).ok();
    assert_eq!(diorite(&["ls", "-A", &img]).ok().text(), "");
    fsck(&img);
}

#[test]
fn names_with_marks_and_colours() {
    let dir = scratch();
    let (img, host) = both(dir.path());
    run("mkfifo", &[host.join("dir/pipe")]);
    diorite(&["mknod", &img, "/dir/pipe", "p"]).ok();
    let theirs = on_host(&host, &["ls", "-F", "/dir"]).1;
    assert_eq!(diorite(&["ls", "-F", &img, "/dir"]).ok().text(), theirs);
    let long = diorite(&["ls", "-lF", &img, "/dir"]).ok().text();
    assert!(
        long.contains("link -> ../big*\n") && long.contains("deep/\n"),
        "{long}"
    );
    // Links to a directory, to a link, to a pipe, to a missing file, and to itself.
    for (target, name) in [
        ("deep", "1"),
        ("1", "2"),
        ("pipe", "3"),
        ("none", "4"),
        ("5", "5"),
    ] {
        symlink(target, host.join("dir").join(name)).unwrap();
        diorite(&["ln", "-s", &img, target, &format!("/dir/{name}")]).ok();
    }
    for options in ["-lF", "-F"] {
        let end = |text: &str| -> Vec<String> {
            let of = |line: &str| line.split_once(" -> ").map(|(_, end)| end.to_owned());
            text.lines().filter_map(of).collect()
        };
        let theirs = end(&on_host(&host, &["ls", options, "/dir"]).1);
        assert_eq!(
            end(&diorite(&["ls", options, &img, "/dir"]).ok().text()),
            theirs
        );
        assert_eq!(theirs.len(), if options == "-lF" { 6 } else { 0 });
    }
    let colors = diorite(&["ls", "-lF", "--color=always", &img, "/dir/1"])
        .ok()
        .text();
    assert!(
        colors.ends_with(" \x1b[01;36m/dir/1\x1b[0m -> \x1b[01;34mdeep\x1b[0m/\n"),
        "{colors:?}"
    );
    for name in ["1", "2", "3", "4", "5"] {
        diorite(&["rm", &img, &format!("/dir/{name}")]).ok();
    }
    let colored = |options: &[&str], colors: &str| {
        let out = Command::new(env!("CARGO_BIN_EXE_diorite"))
            .args(["ls"])
            .args(options)
            .args([&img, "/dir"])
            .env("LS_COLORS", colors)
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let plain = "deep\nlink\none\npipe\n";
    assert_eq!(colored(&["--color=never"], ""), plain);
    assert_eq!(colored(&["--color=auto"], ""), plain);
    assert_eq!(
        colored(&["--color", "-F"], ""),
        "\x1b[01;34mdeep\x1b[0m/\n\x1b[01;36mlink\x1b[0m@\n\x1b[37;41mone\x1b[0m\n\x1b[40;33mpipe\x1b[0m|\n"
    );
    diorite(&["chmod", &img, "644", "/dir/one"]).ok();
    // Codes that are not numbers are not sent to the terminal.
    assert_eq!(
        colored(&["--color=always"], "di=:ln=00:*ne=07:pi=\x07;1:fi=1"),
        "deep\nlink\n\x1b[07mone\x1b[0m\n\x1b[40;33mpipe\x1b[0m\n"
    );
}

#[test]
fn cp_knows_its_sides() {
    let dir = scratch();
    let (img, host) = both(dir.path());
    let at = |path: &str| format!("{img}:{path}");
    let out = dir.path().join("out");
    diorite(&["cp", "-r", &at("/dir"), path(&out)]).ok();
    assert!(fs::read(out.join("one")).unwrap() == fs::read(host.join("dir/one")).unwrap());
    diorite(&["cp", &format!("{img}!/big"), &at("/a file"), path(&out)]).ok();
    assert!(fs::read(out.join("big")).unwrap() == fs::read(host.join("big")).unwrap());
    diorite(&[
        "cp",
        path(&out.join("big")),
        path(&out.join("deep")),
        &at("/empty"),
    ])
    .ok();
    assert_eq!(diorite(&["ls", &img, "/empty"]).ok().text(), "big\ndeep\n");
    assert_eq!(
        diorite(&["cp", &at("/dir/deep/two"), "-"]).ok().text(),
        "2\n"
    );
    fsck(&img);
    let nothing = at("/nothing");
    diorite(&["cp", &nothing, path(&out)]).failed(1, "diorite: cp: ");
    diorite(&["cp", path(&out), path(&host)]).failed(2, "neither side is in an image");
    diorite(&["cp", &at("/big"), &at("/more")]).ok();
    assert_eq!(
        diorite(&["cmp", &img, "/more", path(&host.join("big"))])
            .ok()
            .text(),
        ""
    );
    diorite(&["cp", &at("/big"), path(&out), path(&host)]).failed(2, "to be in one image");
    assert_eq!(diorite(&["cp", &at("/big")]).code, Some(2));
}
