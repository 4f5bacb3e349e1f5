//! `getfattr`, `setfattr`, `lsattr` and `chattr`: compared with the programs of attr and e2fsprogs on the kernel's mount of the
//! same image.

use crate::common::{Mount, diorite, image, run, scratch, skip, xattrs};
use std::path::Path;
use std::process::Command;

fn make(dir: &Path) -> String {
    let source = dir.join("tree");
    std::fs::create_dir_all(source.join("d/sub")).unwrap();
    for name in ["f", "d/g", "d/.hidden", "d/sub/h"] {
        std::fs::write(source.join(name), name).unwrap();
    }
    std::os::unix::fs::symlink("f", source.join("link")).unwrap();
    image(dir, "image", "16M", &["-t", "ext4"], Some(&source))
}

/// The output of a tool for files of the mount, with the mount point removed from the paths.
fn told(mount: &Mount, program: &str, args: &[&str]) -> String {
    let out = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .current_dir(&mount.0)
        .output()
        .unwrap();
    assert!(out.status.success(), "{program} {args:?}: {out:?}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

const VALUES: [(&str, &str); 7] = [
    ("user.text", "hello"),
    ("user.bytes", "0x00ff0a"),
    ("user.sixty-four", "0sAAECAwQ="),
    (
        "user.quotes",
        "\"a \\\"b\\\" \\012 and more of that, which is text for the most part\"",
    ),
    ("user.plain", "back\\slash"),
    ("trusted.t", "t"),
    ("user.empty", ""),
];

#[test]
fn attributes_set_and_shown() {
    let dir = scratch();
    let img = make(dir.path());
    for (name, value) in VALUES {
        diorite(&["setfattr", "-n", name, "-v", value, &img, "/f", "d/g"]).ok();
    }
    diorite(&["setfattr", "-n", "user.none", &img, "/f"]).ok();
    diorite(&["setfattr", "-x", "user.none", &img, "/f"]).ok();
    diorite(&[
        "setfattr",
        "-h",
        "-n",
        "trusted.link",
        "-v",
        "x",
        &img,
        "/link",
    ])
    .ok();
    run("e2fsck", &["-fn", &img]);
    let missing = diorite(&["setfattr", "-x", "user.none", &img, "/f"]);
    missing.failed(1, "f: No such attribute");
    let odd = diorite(&["setfattr", "-n", "odd.name", "-v", "x", &img, "/f"]);
    odd.failed(1, "not supported");
    diorite(&["setfattr", "-n", "user.a", "-v", "0xg", &img, "/f"]).failed(2, "not hexadecimal");
    diorite(&["getfattr", "-n", "user.none", &img, "/f"]).failed(1, "user.none: No such attribute");
    let value = diorite(&["getfattr", "--only-values", "-n", "user.plain", &img, "/f"]).ok();
    assert_eq!(value.text(), "back\\slash");
    let json = diorite(&["getfattr", "--json", "-n", "user.text", &img, "/f"])
        .ok()
        .text();
    assert!(json.contains("\"value_hex\":\"68656c6c6f\""), "{json}");
    let Some(mount) = Mount::new(&img, &dir.path().join("mount"), "ro") else {
        return;
    };
    assert_eq!(xattrs(&mount.0.join("f")).len(), VALUES.len());
    if !has("getfattr") {
        return skip("getfattr is not there");
    }
    for args in [
        &["-d"][..],
        &[],
        &["-d", "-m", "-"],
        &["-m", "^trusted|text$"],
        &["-m", "^(user|trusted)\\.[[:alpha:]]{4}s?$"],
        &["-m", "[\\.]t"],
        &["-d", "-e", "hex"],
        &["-d", "-e", "base64"],
        &["-d", "-e", "text"],
        &["-n", "user.bytes"],
    ] {
        for paths in [&["f"][..], &["f", "d/g", "d"]] {
            if args.contains(&"-n") && paths.len() > 1 {
                continue;
            }
            let theirs = told(&mount, "getfattr", &[args, paths].concat());
            let ours = [&["getfattr"], args, &[img.as_str()], paths].concat();
            assert_eq!(diorite(&ours).ok().text(), theirs, "{args:?}");
        }
    }
}

/// The arguments of e2fsprogs' chattr: several changes, -p. A flag that cannot be changed is refused with its name, and stays.
#[test]
fn changes_of_flags_and_what_is_refused() {
    let dir = scratch();
    let img = make(dir.path());
    let mapped = image(dir.path(), "mapped", "16M", &["-t", "ext3"], None);
    diorite(&["chattr", &img, "+dA", "-d", "/f", "/d"]).ok();
    let flags = |img: &str, path: &str| {
        let line = diorite(&["lsattr", "-d", img, path]).ok().text();
        line.split(' ').next().unwrap().replace('-', "")
    };
    assert_eq!([flags(&img, "/f"), flags(&img, "/d")], ["Ae", "Ae"]);
    let refused = |args: &[&str], why: &str| {
        diorite(&[&["chattr"], args].concat()).failed(1, why);
    };
    refused(&[&img, "-e", "/f"], "extents (e) do not turn into");
    refused(&[&img, "+F", "/d/sub"], "begins to fold case (F)");
    refused(&[&img, "+D", "/f"], "flags D (0x10000)");
    refused(&["-p", "7", &img, "/f"], "without the feature project");
    diorite(&["chattr", "-p", "0", &img, "/f"]).ok();
    diorite(&["touch", &mapped, "/g"]).ok();
    refused(
        &[&mapped, "+e", "/g"],
        "a map of blocks does not turn into extents",
    );
    assert_eq!(
        [
            flags(&img, "/f"),
            flags(&img, "/d/sub"),
            flags(&mapped, "/g")
        ],
        ["Ae", "e", ""]
    );
    let wrong = |args: &[&str], why: &str| {
        diorite(&[&["chattr"], args].concat()).failed(2, why);
    };
    wrong(&[&img, "/f"], "flags are asked for");
    wrong(&[&img, "+i"], "no path");
    wrong(&["-p", "-1", &img, "/f"], "");
    run("e2fsck", &["-fn", &img]);
}

#[test]
fn flags_set_and_shown() {
    let dir = scratch();
    let img = make(dir.path());
    diorite(&["chattr", &img, "+dA", "/f", "/d"]).ok();
    diorite(&["chattr", &img, "-d", "/f"]).ok();
    diorite(&["chattr", &img, "=Sa", "/d/g"]).ok();
    diorite(&["chattr", "-R", &img, "+c", "/d/sub"]).ok();
    diorite(&["chattr", &img, "+i", "/d/sub/h"]).ok();
    run("e2fsck", &["-fn", &img]);
    diorite(&["chattr", &img, "+q", "/f"]).failed(2, "'q' is no flag");
    diorite(&["chattr", &img, "+D", "/f"]).failed(1, "not supported");
    diorite(&["chattr", &img, "+d", "/link"]).failed(1, "not supported");
    diorite(&["chattr", &img, "+d", "/d/sub/h"]).failed(1, "immutable");
    diorite(&["rm", &img, "/d/sub/h"]).failed(1, "immutable");
    diorite(&["lsattr", &img, "/nothing"]).failed(1, "No such file");
    let json = diorite(&["lsattr", "--json", &img, "/f"]).ok().text();
    assert!(json.contains("\"flags\":\"Ae\""), "{json}");
    let script = dir.path().join("script");
    std::fs::write(
        &script,
        "chattr -i /d/sub/h\nsetfattr -n user.a -v b /d/sub/h\n",
    )
    .unwrap();
    diorite(&["edit", "--script", script.to_str().unwrap(), &img]).ok();
    let Some(mount) = Mount::new(&img, &dir.path().join("mount"), "ro") else {
        return;
    };
    for args in [
        &["d"][..],
        &["-a", "d"],
        &["-d", "d", "f"],
        &["-R", "d"],
        &["-Ra", "d/sub"],
        &["-v", "f"],
    ] {
        let theirs = told(&mount, "lsattr", args);
        let at = args.iter().position(|a| !a.starts_with('-')).unwrap();
        let ours = [&["lsattr"], &args[..at], &[img.as_str()], &args[at..]].concat();
        // The kernel also returns names in the order of their hashes, but begins at another place.
        let sorted = |text: String| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(
            sorted(diorite(&ours).ok().text()),
            sorted(theirs),
            "{args:?}"
        );
    }
}

/// In an image with the feature inline_data, the copy of a small file is inline; that of a larger file is not.
#[test]
fn small_files_stay_in_their_inodes() {
    let dir = scratch();
    let img = image(
        dir.path(),
        "image",
        "16M",
        &["-t", "ext4", "-O", "inline_data"],
        None,
    );
    let (small, large) = (dir.path().join("small"), dir.path().join("large"));
    std::fs::write(&small, [b's'; 80]).unwrap();
    std::fs::write(&large, [b'l'; 5000]).unwrap();
    diorite(&[
        "put",
        &img,
        small.to_str().unwrap(),
        large.to_str().unwrap(),
        "/",
    ])
    .ok();
    run("e2fsck", &["-fn", &img]);
    let flags = diorite(&["lsattr", &img, "/small", "/large"]).ok().text();
    assert!(flags.contains("N--- /small"), "{flags}");
    assert!(flags.contains("e------- /large"), "{flags}");
    let read = diorite(&["cat", &img, "/small"]).ok().text();
    assert_eq!(read.as_bytes(), [b's'; 80]);
    let Some(mount) = Mount::new(&img, &dir.path().join("mount"), "ro") else {
        return;
    };
    assert_eq!(std::fs::read(mount.0.join("small")).unwrap(), [b's'; 80]);
}

/// Changes of access control lists in the tree of `make`, in the order in which they are made.
const LISTS: [&[&str]; 17] = [
    &["-m", "u:1000:rwx,g:33:rx", "f"],
    &["-m", "u:1001:r", "-m", "g:34:w", "d", "d/g"],
    &["-m", "m::r", "f"],
    &["-n", "-m", "u:5:rwx", "f"],
    &["-d", "-m", "u:5:rwx", "d"],
    &["-m", "d:g:7:r,d:o::-", "d"],
    &["-R", "-m", "u:77:rwX,d:u:78:rX", "d"],
    &["-x", "u:1000", "f"],
    &["-x", "u:1234", "f", "d/.hidden"],
    &["-m", "o::5,g::7", "f"],
    &["-x", "u:5,g:33", "f"],
    &["-x", "m", "f"],
    &["-m", "u:8:r,u:8:w", "f"],
    &["-k", "d/sub"],
    &["-b", "d/g"],
    &["-b", "-m", "u:9:4", "d/sub"],
    &["-x", "d:u:5,u:1001", "d"],
];

#[test]
fn lists_as_json() {
    let dir = scratch();
    let img = make(dir.path());
    let (own, default) = ("u:1000:rwx,g:33:rx", "d:u:5:r");
    diorite(&["setfacl", "-m", own, &img, "/d", "/f"]).ok();
    diorite(&["setfacl", "-m", default, &img, "/d"]).ok();
    diorite(&["chown", &img, "3:4", "/f", "/d"]).ok();
    let object = |args: &[&str]| -> serde_json::Value {
        let text = diorite(&[&["getfacl", "--json"], args].concat())
            .ok()
            .text();
        serde_json::from_str(&text).unwrap()
    };
    let found = object(&[&img, "/f"]);
    assert_eq!((&found["uid"], &found["gid"]), (&3.into(), &4.into()));
    let access = serde_json::json!([
        "user::rw-",
        "user:1000:rwx",
        "group::r--",
        "group:33:r-x",
        "mask::rwx",
        "other::r--"
    ]);
    assert_eq!((&found["path"], &found["access"]), (&"/f".into(), &access));
    assert_eq!(found["default"], serde_json::json!([]));
    let found = object(&["-d", &img, "/d"]);
    assert_eq!(found["default"][1], "user:5:r--");
    assert!(found["access"].is_null(), "{found}");
    let all = diorite(&["getfacl", "--json", "-Rs", &img, "/"])
        .ok()
        .text();
    assert_eq!(all.lines().count(), 2, "{all}");
}

#[test]
fn lists_set_and_shown() {
    let dir = scratch();
    let img = make(dir.path());
    let theirs = dir.path().join("theirs");
    std::fs::copy(&img, &theirs).unwrap();
    diorite(&["chmod", &img, "3750", "/d"]).ok();
    diorite(&["chmod", theirs.to_str().unwrap(), "3750", "/d"]).ok();
    for words in LISTS {
        let at = words.iter().rposition(|w| w.starts_with('-')).unwrap();
        let takes = usize::from(!matches!(words[at], "-k" | "-b"));
        let (options, paths) = words.split_at(at + 1 + takes);
        diorite(&[&["setfacl"], options, &[img.as_str()], paths].concat()).ok();
    }
    run("e2fsck", &["-fn", &img]);
    diorite(&["setfacl", "-x", "u::", &img, "/f"]).failed(1, "entry");
    diorite(&["setfacl", "-m", "d:u:7:r", &img, "/f"]).failed(1, "no directory");
    diorite(&["setfacl", "-m", "u:root:r", &img, "/f"]).failed(2, "given as numbers");
    diorite(&["setfacl", &img, "/f"]).failed(2, "nothing is asked for");
    let at = dir.path().join("mount");
    if !has("setfacl") {
        return skip("setfacl is not there");
    }
    {
        let Some(mount) = Mount::new(theirs.to_str().unwrap(), &at, "rw") else {
            return;
        };
        LISTS
            .iter()
            .for_each(|words| drop(told(&mount, "setfacl", words)));
    }
    let all = ["f", "d", "d/g", "d/.hidden", "d/sub", "d/sub/h"];
    for options in [&["-n"][..], &["-nd"], &["-nad"], &["-ncs"]] {
        let shown: Vec<String> = [img.as_str(), theirs.to_str().unwrap()]
            .map(|img| {
                diorite(&[&["getfacl"], options, &[img], &all].concat())
                    .ok()
                    .text()
            })
            .into();
        let mount = Mount::new(&img, &at, "ro").unwrap();
        let kernel = told(&mount, "getfacl", &[options, &all[..]].concat());
        assert_eq!(shown[0], kernel, "{options:?}");
        assert_eq!(shown[1], kernel, "{options:?}");
    }
}
