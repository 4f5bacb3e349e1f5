//! Tests of the commands that create, move and remove names and change metadata: coreutils run on the host and diorite in an
//! image, and afterwards both trees are the same and e2fsck finds no errors.

use crate::common::{Mount, debugfs, diorite, image, is_root, run, same, scratch, skip};
use std::path::Path;
use std::process::Command;

/// An image and a directory of the host, both empty.
fn both(dir: &Path, args: &[&str]) -> (String, std::path::PathBuf) {
    let host = dir.join("host");
    std::fs::create_dir(&host).unwrap();
    (image(dir, "image", "32M", args, None), host)
}

/// Runs a command in the image, and the same command of coreutils in the host's directory. Words that begin with a slash are
/// paths.
fn twice(img: &str, host: &Path, words: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    let (options, rest): (Vec<&str>, Vec<&str>) =
        words[1..].iter().partition(|w| w.starts_with('-'));
    let args = [&[words[0]], &options[..], &[img], &rest[..]].concat();
    diorite(&args).ok();
    let on_host = rest.iter().map(|word| match word.strip_prefix('/') {
        Some(path) => host.join(path).into_os_string(),
        None => word.into(),
    });
    let out = Command::new(words[0])
        .args(&options)
        .args(on_host)
        .output()
        .unwrap();
    assert!(out.status.success(), "{words:?}: {out:?}");
}

const SAME: [&str; 30] = [
    "mkdir /a /b /c",
    "mkdir -p /a/deep/er/still /a/deep",
    "mkdir -m700 /a/mine",
    "mkdir -m2755 /a/group",
    "touch /a/one /a/two /b/three",
    "ln /a/one /a/again",
    "ln -s nowhere /a/link",
    "ln -s a/very/long/target/that/does/not/fit/into/the/inode/of/the/link/itself /b",
    "ln /a/two /b",
    "mv /a/one /a/uno",
    "mv /a/uno /b",
    "mv /a/deep /b",
    "mv /b/three /a/again /c",
    "mv -T /a/mine /c/mine",
    "mv -n /b/two /c/again",
    "chmod 751 /b/deep",
    "chmod u+x,g=u,o= /c/three",
    "chmod a+rX /b/deep/er",
    "chmod 4755 /c/again",
    "touch /d /e",
    "ln -sf elsewhere /d",
    "ln -f /c/three /e",
    "mkdir -p /gone/one/two/three",
    "touch /gone/x /gone/one/y",
    "ln -s x /gone/one/two/z",
    "rm -r /gone",
    "rm -f /not/there /a/link",
    "rm -d /a/group",
    "touch -t202001021530.45 /c/three",
    "touch -at7001010200 /c/three",
];

#[test]
fn as_coreutils_do() {
    for args in [
        &["-t", "ext4"][..],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext2"],
    ] {
        let dir = scratch();
        let (img, host) = both(dir.path(), args);
        diorite(&["rm", "-r", &img, "/lost+found"]).ok();
        SAME.iter().for_each(|words| twice(&img, &host, words));
        run("e2fsck", &["-fn", &img]);
        let out = dir.path().join("out");
        diorite(&[
            "get",
            "-q",
            "--no-same-owner",
            &img,
            "/",
            out.to_str().unwrap(),
        ])
        .ok();
        let list = |at: &Path| {
            // Times and the sizes of directories differ, so they are left out.
            let words = "find . -mindepth 1 ( -type d -printf %P|%y|%m|%n\\n -o -printf %P|%y|%m|%n|%s|%l\\n )";
            let out = Command::new("find")
                .current_dir(at)
                .args(words.split(' ').skip(1))
                .output()
                .unwrap();
            assert!(out.status.success(), "{out:?}");
            let text = String::from_utf8(out.stdout).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let (ours, mut theirs) = (list(&out), list(&host));
        assert!(theirs.len() > 10);
        if !is_root() {
            // A file that belonged to root and was copied by another user has lost its set-user-id bit.
            let without = theirs.iter().map(|line| line.replace("|4755|", "|755|"));
            theirs = without.collect();
        }
        assert_eq!(ours, theirs);
    }
}

/// Compares with the kernel's mount of the image, if it can be mounted.
#[test]
fn nodes_owners_times() {
    let dir = scratch();
    let (img, _) = both(dir.path(), &["-t", "ext4"]);
    diorite(&["mknod", &img, "/null", "c", "1", "3"]).ok();
    diorite(&["mknod", "-m", "600", &img, "/disk", "b", "259", "70000"]).ok();
    diorite(&["mknod", &img, "/pipe", "p"]).ok();
    diorite(&["mkdir", "-p", &img, "/d/e"]).ok();
    diorite(&["touch", &img, "/d/f"]).ok();
    diorite(&["chown", &img, "70000:5", "/null"]).ok();
    diorite(&["chown", "-R", &img, ":33", "/d"]).ok();
    run("e2fsck", &["-fn", &img]);
    let told = diorite(&["ls", "-lR", &img, "/"]).ok().text();
    for line in [
        "crw-r--r-- 1 70000 5 1, 3",
        "brw------- 1 0 0 259, 70000",
        "prw-r--r--",
    ] {
        let squeezed = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed.contains(line), "{line}: {told}");
    }
    assert!(debugfs(&img, "stat /d/e").contains("Group:    33"));
    // A time in the past, then now.
    run(
        "debugfs",
        &["-w", "-R", "sif /d/f mtime 20010101000000", &img],
    );
    run(
        "debugfs",
        &["-w", "-R", "sif /d/f atime 20010101000000", &img],
    );
    diorite(&["touch", "-m", &img, "/d/f"]).ok();
    let stat = debugfs(&img, "stat /d/f");
    let line = |what: &str| stat.lines().find(|l| l.contains(what)).unwrap().to_owned();
    assert!(line("atime:").contains("2001") && !line("mtime:").contains("2001"));
    // A given time, and the time of another file.
    let date = "2036-05-06T07:08:09.25Z";
    diorite(&["touch", "-a", "-d", date, &img, "/d/f"]).ok();
    diorite(&["touch", "-d", "@-1.5", &img, "/d/e"]).ok();
    diorite(&["touch", "-r", "/d/f", &img, "/like"]).ok();
    let times = |path: &str| {
        let told = diorite(&["stat", "--json", &img, path]).ok().text();
        let stat: serde_json::Value = serde_json::from_str(&told).unwrap();
        let stat = stat.get(0).unwrap_or(&stat).clone();
        (stat["atime"].clone(), stat["mtime"].clone())
    };
    assert_eq!(times("/like"), times("/d/f"));
    let like = debugfs(&img, "stat /like");
    assert!(like.contains("atime: 0x7ccae059:3b9aca00"), "{like}");
    assert!(debugfs(&img, "stat /d/e").contains("0xfffffffe:77359400"));
    diorite(&["touch", "-r", "/none", &img, "/like"]).failed(1, "No such file or directory");
    diorite(&["touch", "-d", "yesterday", &img, "/like"]).failed(2, "invalid time: yesterday");
    // A time after the last one that an inode can hold becomes that last time.
    diorite(&["touch", "-d", "2600-01-01", &img, "/like"]).ok();
    assert!(debugfs(&img, "stat /like").contains("2446"));
    diorite(&["touch", &img, "/not/there"]).failed(1, "No such file or directory");
    diorite(&["touch", "-c", &img, "/none"]).ok();
    diorite(&["stat", &img, "/none"]).failed(1, "No such file");
    let at = dir.path().join("mnt");
    std::fs::create_dir(&at).unwrap();
    let Some(_mount) = Mount::new(&img, &at, "ro") else {
        return skip("the kernel's mount");
    };
    run("test", &["-p", at.join("pipe").to_str().unwrap()]);
    assert_eq!(
        run(
            "stat",
            &["-c", "%t %T %u", at.join("null").to_str().unwrap()]
        )
        .trim(),
        "1 3 70000"
    );
    assert_eq!(
        run(
            "stat",
            &["-c", "%Hr %Lr", at.join("disk").to_str().unwrap()]
        )
        .trim(),
        "259 70000"
    );
}

/// Failures are reported with coreutils' messages, and the rest is done.
#[test]
fn refusals() {
    let dir = scratch();
    let (img, _) = both(dir.path(), &["-t", "ext4"]);
    diorite(&["mkdir", "-p", &img, "/d/e", "/x"]).ok();
    diorite(&["touch", &img, "/f", "/d/g"]).ok();
    let img = img.as_str();
    let refused: [(&[&str], &str); 17] = [
        (&["mkdir", img, "/d"], "/d: File exists"),
        (&["mkdir", img, "/no/d"], "/no/d: No such file or directory"),
        (&["mkdir", img, "/f/d"], "/f/d: Not a directory"),
        (&["mkdir", "-p", img, "/f/d"], "/f: File exists"),
        (&["rm", img, "/d"], "/d: Is a directory"),
        (&["rm", "-d", img, "/d"], "/d: Directory not empty"),
        (&["rm", img, "/none"], "/none: No such file or directory"),
        (&["rm", "-r", img, "/"], "refusing to remove it"),
        (&["rm", "-r", img, "/d/.."], "refusing to remove it"),
        (&["mv", img, "/d", "/d/e"], "inside of what is moved"),
        (&["mv", "-T", img, "/f", "/d"], "/d: Is a directory"),
        (&["mv", "-T", img, "/x", "/d"], "/d: Directory not empty"),
        (
            &["mv", img, "/f", "/x", "/none"],
            "/none: No such file or directory",
        ),
        (
            &["ln", img, "/d", "/y"],
            "is a directory: this is not permitted",
        ),
        (&["ln", "-s", img, "t", "/f"], "/f: File exists"),
        (
            &["mknod", img, "/n", "c"],
            "a device has a major and a minor number",
        ),
        (
            &["chmod", img, "644", "/none"],
            "/none: No such file or directory",
        ),
    ];
    for (args, words) in refused {
        diorite(args).failed(1, words);
    }
    for args in [
        &["chmod", img, "u+y", "/f"][..],
        &["chown", img, "root", "/f"],
        &["rm", img],
    ] {
        assert_eq!(diorite(args).code, Some(2), "{args:?}");
    }
    // An empty path, as of an unset shell variable, is not the root directory.
    for args in [
        &["rm", "-r", img, ""][..],
        &["chmod", "-R", img, "0", ""],
        &["chown", "-R", img, "1:1", "/f", ""],
        &["mv", img, "/f", ""],
        &["chattr", "-R", img, "+i", ""],
        &["find", img, "", "-name", "x"],
        &["get", img, "", "/tmp/x"],
        &["ls", img, ""],
        &["put", "-t", "", img, "/dev/null"],
    ] {
        diorite(args).failed(2, "is empty");
    }
    diorite(&["find", img, "-name", ""]).ok();
    diorite(&["chown", img, "4294967295", "/f"]).failed(2, "invalid owner");
    // The other directories are created.
    diorite(&["mkdir", img, "/d", "/made"]).failed(1, "/d: File exists");
    assert!(diorite(&["ls", img]).ok().text().contains("made"));
    let long = format!("/{}", "n".repeat(256));
    diorite(&["mkdir", img, &long]).failed(1, "File name too long");
    run("e2fsck", &["-fn", img]);
    let copy = dir.path().join("copy");
    let again = dir.path().join("again");
    for to in [&copy, &again] {
        diorite(&[
            "get",
            "-q",
            "--no-same-owner",
            img,
            "/d",
            to.to_str().unwrap(),
        ])
        .ok();
    }
    same(&copy, &again);
}

/// As in coreutils, `touch --no-dereference` creates no files, and a missing file is an error unless -c is given. The defect:
/// there was no error.
#[test]
fn touch_of_a_link_that_is_not_there() {
    let dir = scratch();
    let (img, host) = both(dir.path(), &["-t", "ext4"]);
    let missing = host.join("missing");
    let on_host = Command::new("touch").arg("-h").arg(&missing).output();
    assert_eq!(on_host.unwrap().status.code(), Some(1));
    let wanted = "/missing: No such file or directory";
    diorite(&["touch", "--no-dereference", &img, "/missing"]).failed(1, wanted);
    twice(&img, &host, "touch --no-dereference -c /missing");
    diorite(&["ls", &img, "/missing"]).failed(2, "No such file");
    assert!(!missing.exists());
}
