//! What commands say of what they do, of errors and of findings.
//!
//! Input: an image, and a directory of the host with the same files. Output: none. Invariant: coreutils print the same, but for the
//! leading slash of paths. Limits: none of its own.

use crate::common::{debugfs, diorite, image, noise, scratch, skip};
use crate::words::{bare, both, fsck, in_image, on_host, path};
use std::fs;

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

/// Mistakes of newcomers. Defect: the messages sent them elsewhere: to an argument that was there, to other programs, to nothing.
#[test]
fn mistakes_lead_to_what_was_meant() {
    let dir = scratch();
    let (img, _) = both(dir.path());
    let file = dir.path().join("f");
    fs::write(&file, "text").unwrap();
    let file = path(&file);
    let twice = format!("{img}:/small");
    let two = format!("'{img} /small'");
    let (root, dir_in) = (format!("{img}:/"), format!("'{img} /'"));
    for (words, code, tip) in [
        (&["fsck", &img][..], 2, "'diorite check IMG' does that"),
        (&["resize", &img], 2, "'diorite grow IMG SIZE'"),
        (&["version"], 2, "'diorite --version' does that"),
        (
            &["get", &img, "/small"],
            2,
            "DEST is missing: 'diorite get ",
        ),
        (&["import", "tree"], 2, "'diorite import tree tree.img'"),
        (&["import", "tree", "--size", "4M"], 2, "<IMG>"),
        (&["cp", "-n", "tree"], 2, "<DEST>"),
        (
            &["chmod", "600", &img, "/small"],
            2,
            "the image comes first: 'diorite chmod ",
        ),
        (&["chmod", &img, "600"], 2, "PATH is missing: "),
        (&["cat", &twice], 2, &two),
        (&["ls", &root], 2, &dir_in),
        (&["import", "--owner", "0", file, "y.img"], 1, "--owner 0:0"),
    ] {
        let ran = diorite(words);
        assert_eq!(ran.code, Some(code), "{words:?}: {}", ran.err);
        assert!(ran.err.contains(tip), "{words:?}: {}", ran.err);
    }
    // What one command takes the other takes too.
    diorite(&["put", "--owner", "5:7", &img, file, "/of-5-and-7"]).ok();
    diorite(&[
        "put",
        "--owner",
        "5",
        "--group",
        "8",
        &img,
        file,
        "/of-5-and-8",
    ])
    .ok();
    let owners = |name: &str| diorite(&["stat", "-c", "%u:%g", &img, name]).ok().text();
    assert_eq!(owners("/of-5-and-7"), "5:7\n");
    assert_eq!(owners("/of-5-and-8"), "5:8\n");
    // A disk is one for mount as for ls.
    let disk = dir.path().join("disk.img");
    diorite(&["disk", path(&disk), &format!("{img},type=linux")]).ok();
    let at = dir.path().join("at");
    fs::create_dir(&at).unwrap();
    diorite(&["mount", path(&disk), path(&at)]).failed(1, "name one of them: ");
}

/// On a terminal a copy leaves a line that says what was copied, as import does. Defect: its bar went, and nothing stayed.
#[test]
fn a_copy_on_a_terminal_ends_with_a_line() {
    let dir = scratch();
    let img = image(dir.path(), "x", "8M", &["-t", "ext4"], None);
    let on_terminal = |options: &str, to: &str| {
        let line = format!(
            "{} copy {options} {img} {to}",
            env!("CARGO_BIN_EXE_diorite")
        );
        let mut script = xtask::run::tool("script");
        script
            .args(["-qec", &line, "/dev/null"])
            .current_dir(dir.path());
        let out = script.stdin(std::process::Stdio::null()).output().ok()?;
        assert!(out.status.success(), "{out:?}");
        Some(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let Some(said) = on_terminal("", "one.img.zst") else {
        return skip("script(1) is not installed");
    };
    assert!(said.contains("-> one.img.zst: 8388608 bytes, "), "{said}");
    assert_eq!(on_terminal("-q", "two.img").as_deref(), Some(""));
}

/// The paths of `import` and `cp` were counted between two options.
#[test]
fn options_stand_between_paths() {
    let dir = scratch();
    let (tree, img) = (dir.path().join("tree"), dir.path().join("img"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "contents").unwrap();
    diorite(&["import", path(&tree), "--size", "4M", "-q", path(&img)]).ok();
    let at = |name: &str| format!("{}:{name}", path(&img));
    diorite(&["cp", &at("/file"), "-n", &at("/more")]).ok();
    let shown = diorite(&["cat", path(&img), "/more"]).ok();
    assert_eq!(shown.text(), "contents");
}
