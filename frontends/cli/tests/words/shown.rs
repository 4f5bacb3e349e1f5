//! What commands print that only look: readlink, stat, find, ls, df, du.
//!
//! Input: an image, and a directory of the host or the kernel's mount with the same files. Output: none. Invariant: coreutils and
//! findutils print the same. Limits: df and du are compared only where mounting is allowed.

use crate::common::{Mount, debugfs, diorite, image, run, scratch};
use crate::words::{both, fsck, in_image, on_host, path};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

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

/// The letters that a help gives a meaning: each stands behind a % and before a space, or before an X that stands for a part of a time.
fn letters_of(command: &str) -> Vec<String> {
    let help = diorite(&[command, "--help"]).ok().text();
    let words = help.split_whitespace().filter_map(|w| w.strip_prefix('%'));
    let plain = words.map(|word| word.trim_end_matches([',', ';']));
    let mut letters: Vec<String> = plain
        .filter(|w| w.len() == 1 || w.len() == 2 && w.ends_with('X'))
        .flat_map(|w| match w.strip_suffix('X') {
            Some("") | None => vec![w.to_owned()],
            Some(time) => vec![format!("{time}@"), format!("{time}+")],
        })
        .collect();
    letters.sort();
    letters.dedup();
    letters
}

/// Every letter of a FORMAT prints what coreutils' stat and findutils' find print of the same file on the kernel's mount. The defect: a
/// letter that had no arm printed the time of the last change.
#[test]
fn every_letter_prints_what_the_tools_print() {
    let dir = scratch();
    let (img, _) = both(dir.path());
    debugfs(&img, "mknod fifo p");
    diorite(&["mknod", &img, "device", "b", "259", "70000"]).ok();
    let (of_stat, of_find) = (letters_of("stat"), letters_of("find"));
    assert_eq!(
        (of_stat.len(), of_find.len()),
        (28, 28),
        "{of_stat:?} {of_find:?}"
    );
    let Some(mount) = Mount::new(&img, &dir.path().join("mount"), "ro") else {
        return;
    };
    for file in [
        "big", "dir", "dir/one", "dir/link", "a file", "fifo", "device",
    ] {
        // The tools print names of users and groups, which an image has none of.
        for letter in of_stat.iter().filter(|l| !["U", "G"].contains(&&l[..])) {
            let format = format!("%{letter}");
            let theirs = on_host(&mount.0, &["stat", "-c", &format, file]).1;
            let ours = diorite(&["stat", "-c", &format, &img, file]).ok().text();
            assert_eq!(ours, theirs, "stat %{letter} of {file}");
        }
        for letter in of_find.iter().filter(|l| !["u", "g"].contains(&&l[..])) {
            let theirs = [
                "find",
                file,
                "-maxdepth",
                "0",
                "-printf",
                &format!("%{letter}"),
            ];
            let ours = [&["find", &img], &theirs[1..]].concat();
            let ours = diorite(&ours).ok().text();
            let theirs = on_host(&mount.0, &theirs).1;
            assert_eq!(ours, theirs, "find %{letter} of {file}");
        }
    }
}
