//! Tests of `tree` and `find`: `find` prints the same as find(1).

use crate::common::{diorite, files, image, run, scratch, tree};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

fn path(p: &Path) -> &str {
    p.to_str().unwrap()
}

#[test]
fn trees_are_drawn() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir_all(source.join("a/deep/.hidden")).unwrap();
    fs::create_dir_all(source.join("b")).unwrap();
    files(
        &source,
        &[("a/deep/file", b"four"), ("a/.x", b""), ("z", b"")],
    );
    symlink("a/deep", source.join("link")).unwrap();
    let img = image(dir.path(), "x", "8M", &["-t", "ext4"], Some(&source));
    diorite(&["rm", "-d", &img, "/lost+found"]).ok();
    let drawn = |args: &[&str]| diorite(&[&["tree"], args].concat()).ok().text();
    let all = "/\n├── a\n│   └── deep\n│       └── file\n\
        ├── b\n├── link -> a/deep\n└── z\n\n3 directories, 3 files\n";
    assert_eq!(drawn(&[&img]), all);
    let hidden = "a\n├── .x\n└── deep\n    ├── .hidden\n    └── file\n\n2 directories, 2 files\n";
    assert_eq!(drawn(&["-a", &img, "a"]), hidden);
    assert_eq!(
        drawn(&["-d", &img]),
        "/\n├── a\n│   └── deep\n└── b\n\n3 directories\n"
    );
    assert_eq!(
        drawn(&["-L", "1", &img, "/a"]),
        "/a\n└── deep\n\n1 directory, 0 files\n"
    );
    let sized = "/a/deep\n└── [          4]  file\n\n0 directories, 1 file\n";
    assert_eq!(drawn(&["-s", &img, "/a/deep"]), sized);
    diorite(&["tree", &img, "/nothing"]).failed(1, "/nothing: No such file");
    diorite(&["tree", "-L", "0", &img]).failed(2, "0");
}

/// Users and groups of the image, -ls, and the end that -quit makes.
#[test]
fn names_lines_and_ends() {
    let dir = scratch();
    let source = dir.path().join("source");
    files(
        &source,
        &[
            (
                "etc/passwd",
                b"root:x:0:0::/:/bin/sh\nuser:x:1234:5::/home:\n",
            ),
            ("etc/group", b"root:x:0:\nstaff:x:50:\n"),
            ("a", b"aaaa"),
            ("b", b"b"),
        ],
    );
    symlink("a", source.join("link")).unwrap();
    let img = image(dir.path(), "x", "8M", &["-t", "ext4"], Some(&source));
    diorite(&["chown", &img, "1234:50", "/a"]).ok();
    let found = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        diorite(&[&["find", &img], &words[..]].concat())
    };
    assert_eq!(found("-user user").ok().text(), "/a\n");
    assert_eq!(found("-group staff -user 1234").ok().text(), "/a\n");
    assert_eq!(
        found("-user root -name b").ok().text(),
        "/b\n".repeat(usize::from(crate::common::is_root()))
    );
    found("-user nobody").failed(1, "/etc/passwd: 'nobody' is not there");
    assert_eq!(found("/ -name a -print -quit").ok().text(), "/a\n");
    assert_eq!(found("/b /a -print -quit").ok().text(), "/b\n");
    assert_eq!(found("/b -quit -o -print").ok().text(), "");
    assert_eq!(found("/b ! -quit -o -print").ok().text(), "");
    assert_eq!(found("/ -depth -name a -print -quit").ok().text(), "/a\n");
    let line = found("/a -ls").ok().text();
    let fields: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(
        fields[2..7],
        ["-rw-r--r--", "1", "1234", "50", "4"],
        "{line}"
    );
    assert_eq!(fields[10..], ["/a"], "{line}");
    assert!(found("/link -ls").ok().text().ends_with(" /link -> a\n"));
    for (words, why) in [
        ("-newermt nonsense", "-newermt nonsense: "),
        ("-newermq x", "no test that is known here"),
        ("-perm +111", "neither an octal mode nor one of letters"),
        ("-regex [a", "[ without ]"),
        ("-regextype perl", "forms are"),
        ("-mmin x", "no number"),
    ] {
        found(words).failed(2, why);
    }
}

/// The output of both, sorted, with the host's paths changed into those of the image.
#[test]
fn as_find_has_it() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    run("chmod", &["6711", path(&source.join("empty"))]);
    // The root directory belongs to the user who runs the test, as `source` does.
    let args = ["-t", "ext4", "-E", "root_owner"];
    let img = image(dir.path(), "x", "64M", &args, Some(&source));
    diorite(&["rm", "-d", &img, "/lost+found"]).ok();
    for expression in [
        "-type f",
        "-type d,l",
        "-name *1*",
        "-iname FILE?1*",
        "-name [!a-m]*",
        "-path *dir/*",
        "-type f -size +3k",
        "-type f -size -2",
        "-type f -size 1c",
        "-type f -empty",
        "-empty",
        "-links 2",
        "-links +2",
        "-perm 755",
        "-perm -4000",
        "-perm /7000",
        "-uid 0",
        "! -uid 0",
        "-maxdepth 1",
        "-mindepth 2 -maxdepth 2 -not -name file*",
        "-name a -o ( -type p -o -name s* ) -a ! -name small",
        "-type l -print",
        "-true -print0",
        "-perm -u+s",
        "-perm /u+s,g+s",
        "-perm u=rwx,go=rx",
        "-name dir -prune -o -print",
        "-type d -name d* -prune -o -type f -print",
        "-depth -name dir -prune",
        "-false -o -type l",
        "-lname *e*",
        "-ilname *E*",
        "-regex .*/[a-f][^/]*",
        "-iregex .*/\\(A\\|S.*\\)",
        "-regextype posix-extended -regex .*/(a|s.{2,3})",
        "-regextype sed -regex .*/s.\\{2,3\\}",
        "-newermt 2001-02-03",
        "! -newermt 2001-02-03",
        "-newer ./dir",
        "-mmin -5",
        "-mmin +5",
        "-mount -xdev -noleaf -wholename *dir*",
        "-maxdepth 0 -group 0",
    ] {
        let words: Vec<&str> = expression.split(' ').collect();
        let ran = diorite(&[&["find", &img, "/"], &words[..]].concat()).ok();
        let out = Command::new("find")
            .arg(".")
            .args(&words)
            .current_dir(&source)
            .output()
            .unwrap();
        assert!(out.status.success(), "{expression}");
        // One name of the tree contains a newline, so the outputs are compared as sets of lines.
        let lines = |bytes: &[u8]| -> BTreeSet<Vec<u8>> {
            bytes
                .split(|c| *c == b'\n' || *c == 0)
                .map(<[u8]>::to_vec)
                .collect()
        };
        let theirs: BTreeSet<Vec<u8>> = lines(&out.stdout)
            .into_iter()
            .map(|line| match line.strip_prefix(b".") {
                Some(b"") => b"/".to_vec(),
                Some(rest) if rest.starts_with(b"/") => rest.to_vec(),
                _ => line,
            })
            .collect();
        assert_eq!(lines(&ran.out), theirs, "{expression}");
        assert_eq!(ran.out.contains(&0), expression.contains("print0"));
    }
    let json = diorite(&["find", "--json", &img, "dir", "-type", "l"])
        .ok()
        .text();
    assert_eq!(json.lines().count(), 2);
    assert!(
        json.lines().all(|l| l.starts_with("{\"path\":\"dir/")),
        "{json}"
    );
    diorite(&["find", &img, "/nothing", "-name", "x"]).failed(1, "No such file");
    diorite(&["find", &img, "-frob"]).failed(2, "-frob: no test that is known here");
}
