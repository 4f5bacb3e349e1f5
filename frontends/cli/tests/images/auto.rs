//! `auto`: what a file is follows from its first bytes if that is asked for, and never else. Judged by the tools that made the files.

use super::packed::has;
use super::path;
use crate::common::{diorite, files, image, noise, run, scratch};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A file system with a file, and forms of it by their words, each in a file with another name than its form has.
fn forms(dir: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let at = |name: &str| dir.join(name);
    files(&at("source"), &[("file", &noise(100_000, 3))]);
    image(dir, "raw", "8M", &[], Some(&at("source")));
    let raw = at("raw");
    let mut all = vec![("raw", fs::read(&raw).unwrap())];
    for (word, tool, words) in [
        ("gz", "gzip", &["-k"][..]),
        ("zst", "zstd", &["-q"]),
        ("xz", "xz", &["-k"]),
        ("bz2", "bzip2", &["-k"]),
        ("lz4", "lz4", &["-q", "-k"]),
        ("zip", "zip", &["-q", "-j"]),
        ("android-sparse", "img2simg", &[]),
        ("qcow2", "qemu-img", &["convert", "-q", "-O", "qcow2"]),
        ("vhd", "qemu-img", &["convert", "-q", "-O", "vpc"]),
        ("vmdk", "qemu-img", &["convert", "-q", "-O", "vmdk"]),
    ] {
        if !has(tool) {
            continue;
        }
        let to = at(&format!("raw.{word}"));
        match tool {
            "zip" => run(tool, &[words, &[path(&to), path(&raw)]].concat()),
            "lz4" | "img2simg" | "qemu-img" => {
                run(tool, &[words, &[path(&raw), path(&to)]].concat())
            }
            _ => run(tool, &[words, &[path(&raw)]].concat()),
        };
        all.push((word, fs::read(&to).unwrap()));
    }
    all
}

#[test]
fn auto_takes_what_the_first_bytes_say() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let all = forms(dir.path());
    let raw = all[0].1.clone();
    let (img, to) = (at("x.img"), at("to"));
    let auto = format!("{}?format=auto", path(&img));
    for (word, bytes) in &all {
        fs::write(&img, bytes).unwrap();
        let mut stdin = Command::new(env!("CARGO_BIN_EXE_diorite"));
        stdin.args(["copy", "-q", "-f", "auto", "-", path(&to)]);
        stdin.stdin(Stdio::from(fs::File::open(&img).unwrap()));
        let ways = [
            diorite(&["copy", "-q", "-f", "auto", path(&img), path(&at("one"))]),
            diorite(&["copy", "-q", &auto, path(&at("two"))]),
        ];
        let from_stdin = stdin.output().unwrap();
        if ["vhd", "vmdk"].contains(word) {
            for ran in ways {
                ran.failed(1, "'qemu-img convert' makes a raw image of it");
            }
            assert!(!at("one").exists() && !at("two").exists());
            let _ = fs::remove_file(&to);
            continue;
        }
        for (ran, to) in ways.into_iter().zip([at("one"), at("two")]) {
            ran.ok();
            assert!(fs::read(&to).unwrap() == raw, "{word}");
            fs::remove_file(to).unwrap();
        }
        // qcow2 is no stream.
        assert_eq!(from_stdin.status.success(), *word != "qcow2", "{word}");
        if from_stdin.status.success() {
            assert!(fs::read(&to).unwrap() == raw, "{word}");
            fs::remove_file(&to).unwrap();
        }
        // Unasked, nobody looks.
        let plain = diorite(&["copy", "-q", path(&img), path(&to)]);
        assert_eq!(
            (plain.code, plain.err.contains(&format!("-f {word}"))),
            (Some(0), *word != "raw")
        );
        assert!(fs::read(&to).unwrap() == *bytes, "{word}");
        fs::remove_file(&to).unwrap();
        // The other commands open what is a device, and say what unpacks the rest.
        let cat = diorite(&["cat", &auto, "/file"]);
        let part = diorite(&["disk", "-q", path(&at("disk")), &auto]);
        match *word {
            "raw" | "qcow2" => {
                assert!(cat.ok().out == noise(100_000, 3));
                diorite(&["info", &auto]).ok();
                diorite(&["export", "-q", &auto, path(&at("to.tar"))]).ok();
                part.ok();
            }
            _ => {
                let hint = format!("'diorite copy -f {word} {auto} NEW.img' unpacks it");
                assert!(cat.err.contains(&hint), "{word}: {}", cat.err);
                part.failed(1, "'diorite copy' unpacks it");
            }
        }
    }
}

/// `auto` is of what is read; in another image, a qcow2 image is refused as it is by its own word.
#[test]
fn auto_makes_nothing() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("x"), noise(10_240, 1)).unwrap();
    let to = path(&at("to")).to_owned();
    diorite(&["copy", "-O", "auto", path(&at("x")), &to]).failed(1, "auto is read");
    files(&at("source"), &[("f", b"f")]);
    diorite(&["import", "--format", "auto", path(&at("source")), &to]).failed(1, "auto is read");
    assert!(!at("to").exists());
    // The defect: the name of a file that is to be made said nothing if the locator said `auto`.
    let new = |name: &str| format!("{}?format=auto", path(&at(name)));
    diorite(&["copy", "-q", path(&at("x")), &new("new.qcow2")]).ok();
    diorite(&["copy", "-q", path(&at("x")), &new("new.img")]).ok();
    diorite(&["mkfs", "-q", &new("fs.qcow2"), "4M"]).ok();
    for (name, magic) in [
        ("new.qcow2", b"QFI\xfb"),
        ("fs.qcow2", b"QFI\xfb"),
        (
            "new.img",
            &fs::read(at("x")).unwrap()[..4].try_into().unwrap(),
        ),
    ] {
        assert_eq!(&fs::read(at(name)).unwrap()[..4], magic, "{name}");
    }
    if !has("qemu-img") {
        return;
    }
    let outer = image(dir.path(), "outer", "8M", &[], Some(&at("source")));
    let qcow2 = at("q");
    run(
        "qemu-img",
        &["create", "-q", "-f", "qcow2", path(&qcow2), "1M"],
    );
    diorite(&["put", &outer, path(&qcow2), "/q.img"]).ok();
    let inner = format!("{outer}:/q.img?format=auto");
    diorite(&["info", &inner]).failed(1, "a qcow2 image in another image is not opened");
    diorite(&["copy", &inner, &to]).failed(1, "a qcow2 image in another image is not opened");
    // A qcow2 image that exists is one, whatever its name.
    let existing = format!("{}?format=auto", path(&qcow2));
    diorite(&["copy", "-q", path(&at("x")), &existing]).ok();
    run("qemu-img", &["check", "-q", "-f", "qcow2", path(&qcow2)]);
}

/// The defect: an option for the format overrode that of the locator without a word.
#[test]
fn an_option_and_a_locator_that_differ_are_refused() {
    let dir = scratch();
    let at = |name: &str| path(&dir.path().join(name)).to_owned();
    fs::write(at("x"), noise(10_240, 1)).unwrap();
    files(&dir.path().join("source"), &[("f", b"f")]);
    let said = |format: &str| format!("{}?format={format}", at("x"));
    for (option, format, other) in [
        ("-f", "raw", "auto"),
        ("-f", "gz", "raw"),
        ("-f", "auto", "qcow2"),
        ("-O", "qcow2", "raw"),
        ("-O", "raw", "qcow2"),
    ] {
        let words = format!("'{option} {format}' and '?format={other}'");
        let (from, to) = match option {
            "-f" => (said(other), at("to")),
            _ => (at("source/f"), said(other)),
        };
        diorite(&["copy", option, format, &from, &to]).failed(1, &words);
    }
    let import = ["import", "--format", "raw", &at("source"), &said("qcow2")];
    diorite(&import).failed(1, "'--format raw' and '?format=qcow2'");
    assert!(fs::read(at("x")).unwrap() == noise(10_240, 1));
    assert!(!dir.path().join("to").exists());
    diorite(&["copy", "-q", "-f", "raw", &said("raw"), &at("to")]).ok();
}
