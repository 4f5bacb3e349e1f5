//! What a device or file holds is not replaced unasked on a terminal: beside the installed mke2fs, on terminals made by script(1).

use super::path;
use crate::common::{diorite, run, scratch};
use diorite::{OpenOptions, Volume};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use xtask::loopback::Loop;

/// Runs a command line of the shell on a terminal at which `answer` is typed: what it shows, and its exit code.
fn on_terminal(line: &str, answer: &str) -> (Vec<String>, Option<i32>) {
    let (text, code) = shown(line, answer, Duration::ZERO);
    (questions(&text), code)
}

/// All that is shown, if it takes so long to answer.
fn shown(line: &str, answer: &str, pause: Duration) -> (String, Option<i32>) {
    let mut script = xtask::run::tool("script")
        .args(["-qec", line, "/dev/null"])
        .env("TZ", "Europe/Berlin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = script.stdin.take().unwrap();
    thread::sleep(pause);
    // A command that asks nothing may have ended.
    let _ = writeln!(stdin, "{answer}");
    let out = script.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).replace('\r', "");
    (text, out.status.code())
}

fn questions(text: &str) -> Vec<String> {
    // What is typed is echoed wherever the output is at that moment.
    let told = |line: &&str| {
        ["contains a", "Found a", "\tcreated", "\tlast", "Proceed"]
            .iter()
            .any(|start| line.contains(start))
    };
    let lines = text.lines().filter(told);
    let lines = lines.map(|line| {
        line.split(") ")
            .next()
            .unwrap()
            .trim_end_matches(')')
            .to_owned()
    });
    lines.collect()
}

fn mkfs() -> String {
    format!("{} mkfs", env!("CARGO_BIN_EXE_diorite"))
}

/// Files with something on them, made by tools that every host has.
fn held(dir: &Path) -> Vec<PathBuf> {
    let new = |name: &str| {
        let at = dir.join(name);
        File::create(&at).unwrap().set_len(4 << 20).unwrap();
        at
    };
    let table = |name: &str, words: &str| {
        let at = new(name);
        let mut sfdisk = xtask::run::tool("sfdisk")
            .args(["-q", path(&at)])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        sfdisk
            .stdin
            .take()
            .unwrap()
            .write_all(words.as_bytes())
            .unwrap();
        assert!(sfdisk.wait().unwrap().success(), "{words}");
        at
    };
    let mut all = vec![
        table("gpt", "label: gpt\n,\n"),
        table("dos", "label: dos\n,\n"),
        table("empty-dos", "label: dos\n"),
        table("sun", "label: sun\n"),
        table("sgi", "label: sgi\n"),
    ];
    for (name, program, args) in [
        ("swap", "mkswap", &["-q", "-L", "here"][..]),
        ("minix", "mkfs.minix", &[]),
        ("ext2", "mke2fs", &["-q", "-t", "ext2", "-L", "two"]),
        ("ext3", "mke2fs", &["-q", "-t", "ext3"]),
        ("ext4", "mke2fs", &["-q", "-t", "ext4"]),
        ("journal", "mke2fs", &["-q", "-O", "journal_dev"]),
        (
            "mounted",
            "mke2fs",
            &["-q", "-t", "ext4", "-M", "/mnt/here"],
        ),
    ] {
        let at = new(name);
        // mkswap complains of permissions.
        run(program, &[args, &[path(&at)]].concat());
        if name == "mounted" {
            run("debugfs", &["-w", "-R", "ssv mtime 86400", path(&at)]);
        }
        all.push(at);
    }
    all
}

/// `mkfs` replaced GPT, MBR, swap and others unasked, and exited with 0 after a no. With a no nothing changes; with a yes or -F, and
/// without a terminal, it goes on.
#[test]
fn the_question_of_mke2fs() {
    let dir = scratch();
    let img = dir.path().join("img");
    for held in held(dir.path()) {
        let name = path(&held).to_owned();
        let both = |words: &str, answer: &str| {
            let of = |program: &str| {
                fs::copy(&held, &img).unwrap();
                on_terminal(&format!("{program} -q {words} {}", path(&img)), answer)
            };
            let theirs = of("mke2fs");
            let ours = of(&mkfs());
            assert_eq!(ours, theirs, "{name} {words} {answer}");
            ours
        };
        let (lines, code) = both("", "n");
        assert_eq!(code, Some(1), "{name}: {lines:?}");
        assert!(
            fs::read(&img).unwrap() == fs::read(&held).unwrap(),
            "{name}"
        );
        let (lines, code) = both("-F", "n");
        assert_eq!((lines.len(), code), (lines.len().max(1), Some(0)), "{name}");
        let (_, code) = both("", "yes");
        assert_eq!(code, Some(0), "{name}");
        run("e2fsck", &["-fn", path(&img)]);
        fs::copy(&held, &img).unwrap();
        diorite(&["mkfs", "-q", path(&img)]).ok();
        run("e2fsck", &["-fn", path(&img)]);
    }
    // Of nothing there is no question.
    File::create(&img).unwrap().set_len(4 << 20).unwrap();
    let (lines, code) = on_terminal(&format!("{} -q {}", mkfs(), path(&img)), "n");
    assert_eq!((lines, code), (Vec::new(), Some(0)));
}

/// Nor do other commands that write a whole device.
#[test]
fn devices_of_other_commands() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("tree")).unwrap();
    fs::write(at("tree/file"), "contents").unwrap();
    let img = at("tree.img");
    diorite(&["import", "-q", path(&at("tree")), path(&img)]).ok();
    let backing = at("backing");
    File::create(&backing).unwrap().set_len(32 << 20).unwrap();
    let Some(device) = Loop::attach_or_skip(&backing, &[]) else {
        return;
    };
    let device = device.device();
    let command = env!("CARGO_BIN_EXE_diorite");
    for line in [
        format!("import -q {} {}", path(&at("tree")), device),
        format!("copy -q {} {}", path(&img), device),
        format!("copy -q - {} < {}", device, path(&img)),
        format!("export -q --as image {} {}", path(&img), device),
    ] {
        run("mkswap", &["-q", device]);
        let blkid = || run("blkid", &["-p", "-o", "value", "-s", "TYPE", device]);
        assert_eq!(blkid().trim(), "swap");
        let shown = on_terminal(&format!("{command} {line}"), "n");
        if line.starts_with("copy -q -") {
            // Standard input is no terminal.
            assert_eq!(shown, (Vec::new(), Some(0)), "{line}");
            assert_eq!(blkid().trim(), "ext4", "{line}");
            continue;
        }
        let told = format!("{} contains a swap file system", device);
        let asked = vec![told.clone(), "Proceed anyway? (y,N".to_owned()];
        assert_eq!(shown, (asked, Some(1)), "{line}");
        assert_eq!(blkid().trim(), "swap", "{line}");
        let (word, rest) = line.split_once(' ').unwrap();
        let shown = on_terminal(&format!("{command} {word} -F {rest}"), "n");
        assert_eq!(shown, (vec![told], Some(0)), "{line}");
        assert_eq!(blkid().trim(), "ext4", "{line}");
    }
}

/// `copy` drew its bar over the question, and its refusal named no device.
#[test]
fn copy_asks_before_it_draws() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let (img, backing) = (at("img"), at("backing"));
    for at in [&img, &backing] {
        File::create(at).unwrap().set_len(8 << 20).unwrap();
    }
    let Some(device) = Loop::attach_or_skip(&backing, &[]) else {
        return;
    };
    let device = device.device();
    run("mkswap", &["-q", device]);
    let line = format!(
        "{} copy {} {device}",
        env!("CARGO_BIN_EXE_diorite"),
        path(&img)
    );
    let (text, code) = shown(&line, "n", Duration::from_millis(600));
    assert_eq!(code, Some(1), "{text}");
    let refusal = format!("diorite: copy: {device}: it was not replaced; nothing was changed");
    assert!(text.contains(&refusal), "{text}");
    // Whoever reads the question sees nothing but it.
    assert!(!text.contains('\x1b'), "{text:?}");
}

/// A new name below /dev is a typing error. /dev/shm is a place for files.
#[test]
fn no_file_is_made_among_devices() {
    let dir = scratch();
    let img = dir.path().join("img");
    diorite(&["mkfs", "-q", path(&img), "4M"]).ok();
    let missing = "/dev/diorite-no-such-device";
    for words in [
        &["mkfs", missing, "4M"][..],
        &["mkfs", missing],
        &["import", path(dir.path()), missing],
        &["copy", path(&img), missing],
        &["copy", "-O", "gz", path(&img), missing],
        &["disk", missing, "4M"],
        &["export", "--as", "archive", path(&img), missing],
        &["export", "--as", "image", path(&img), missing],
    ] {
        diorite(words).failed(1, "there is no such device");
        assert!(!Path::new(missing).exists(), "{words:?}");
    }
}

/// -FF makes a file system on what another program has open for writing; -F does not, and says what would.
#[test]
fn twice_forced() {
    let dir = scratch();
    let img = dir.path().join("img");
    diorite(&["mkfs", "-q", path(&img), "8M"]).ok();
    let holder = Volume::open(path(&img), &OpenOptions::writable()).unwrap();
    diorite(&["mkfs", "-q", "-F", path(&img)]).failed(1, "--ignore-lock");
    diorite(&["mkfs", "-q", "-FF", path(&img)]).ok();
    drop(holder);
}
