//! Extended attributes that are too large for a block (ea_inode), beside e2fsck and the kernel.

use super::{clean, kernel_shows, path};
use crate::common::{diorite, run, scratch, xattrs};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A record of a PAX header: its length in decimal digits counts itself.
fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = 1 + key.len() + 1 + value.len() + 1;
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    let mut all = format!("{len} {key}=").into_bytes();
    all.extend_from_slice(value);
    all.push(b'\n');
    all
}

fn entry(name: &str, kind: u8, data: &[u8]) -> Vec<u8> {
    let mut raw = vec![0; 512];
    raw[..name.len()].copy_from_slice(name.as_bytes());
    for (at, text) in [
        (100, "0000644\0".to_owned()),
        (108, "0001750\0".to_owned()),
        (116, "0001750\0".to_owned()),
        (124, format!("{:011o}\0", data.len())),
        (136, "00000000000\0".to_owned()),
        (148, "        ".to_owned()),
        (257, "ustar\x0000".to_owned()),
    ] {
        raw[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    raw[156] = kind;
    let sum: u32 = raw.iter().map(|b| u32::from(*b)).sum();
    raw[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    raw.extend_from_slice(data);
    raw.resize(raw.len().next_multiple_of(512), 0);
    raw
}

type Attributes = Vec<(String, Vec<u8>)>;

/// An archive of files with attributes.
fn archive(at: &Path, files: &[(&str, Attributes)]) {
    let mut all = Vec::new();
    for (name, attributes) in files {
        let records: Vec<u8> = attributes
            .iter()
            .flat_map(|(name, value)| record(&format!("SCHILY.xattr.{name}"), value))
            .collect();
        all.extend(entry("pax", b'x', &records));
        all.extend(entry(name, b'0', b"contents"));
    }
    all.extend([0; 1024]);
    fs::write(at, all).unwrap();
}

fn value(len: usize, seed: u64) -> Vec<u8> {
    crate::common::noise(len, seed)
}

fn named(all: &[(&str, Vec<u8>)]) -> Attributes {
    let one = |(name, value): &(&str, Vec<u8>)| (format!("user.{name}"), value.clone());
    all.iter().map(one).collect()
}

fn files() -> Vec<(&'static str, Attributes)> {
    let big = value(65_536, 1);
    let many = (0..30).map(|n| (format!("user.m{n:03}"), value(100 + n, n as u64)));
    vec![
        ("a", named(&[("big", big.clone()), ("small", value(1, 2))])),
        // The same value, in an inode of two users; and twice in one file.
        (
            "b",
            named(&[
                ("big", big.clone()),
                ("again", big),
                ("other", value(5_000, 3)),
            ]),
        ),
        (
            "c",
            named(&[
                ("one", value(3_000, 4)),
                ("two", value(3_000, 5)),
                ("three", value(100, 6)),
            ]),
        ),
        ("d", many.collect()),
        ("e", named(&[("exact", value(4_096, 7))])),
    ]
}

#[test]
fn large_attributes_get_inodes() {
    let dir = scratch();
    let (tar, img) = (dir.path().join("x.tar"), dir.path().join("img"));
    let files = files();
    archive(&tar, &files);
    for options in [
        "-O ea_inode",
        "-O ea_inode -b 1024",
        "-O ea_inode,bigalloc",
        "-O ea_inode,quota",
        "-O ea_inode,^extent,^64bit",
        "-O ea_inode -I 128",
        "-O ea_inode,^metadata_csum",
        "-O ea_inode --size 40M",
    ] {
        let make = |at: &Path| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_diorite"));
            command
                .args(["import", "-q", "--seed", "x"])
                .args(options.split(' '));
            command
                .args([&tar, at])
                .env("SOURCE_DATE_EPOCH", "1700000000");
            assert!(command.status().unwrap().success(), "{options}");
        };
        make(&img);
        clean(&img);
        kernel_shows(&img, &dir.path().join("m"), |at| {
            for (name, attributes) in &files {
                let mut wanted: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
                wanted.extend(
                    attributes
                        .iter()
                        .map(|(n, v)| (n.clone().into_bytes(), v.clone())),
                );
                wanted.sort();
                let mut found = xattrs(&at.join(name));
                found.retain(|(name, _)| name.starts_with(b"user."));
                found.sort();
                assert!(found == wanted, "{options}: {name}");
            }
        });
        let again = dir.path().join("again");
        make(&again);
        assert!(
            fs::read(&img).unwrap() == fs::read(&again).unwrap(),
            "{options}"
        );
        // Out again, and into another image.
        let (out, second) = (dir.path().join("out.tar"), dir.path().join("second"));
        diorite(&["export", "-q", path(&img), path(&out)]).ok();
        diorite(&["import", "-q", "-O", "ea_inode", path(&out), path(&second)]).ok();
        clean(&second);
        if !options.contains("quota") {
            // Users go one by one.
            for name in ["/a", "/b", "/c"] {
                diorite(&["rm", path(&img), name]).ok();
                clean(&img);
            }
        }
    }
}

/// What does not fit is named: the file, the attribute, its length, and what would help.
#[test]
fn attributes_that_do_not_fit_are_named() {
    let dir = scratch();
    let (tar, img) = (dir.path().join("x.tar"), dir.path().join("img"));
    for (attributes, options, words) in [
        (
            named(&[("big", value(5_000, 1))]),
            "^ea_inode",
            ["/f:", "user.big of 5000 bytes", "-O ea_inode"],
        ),
        (
            named(&[("big", value(65_537, 1))]),
            "ea_inode",
            ["/f:", "user.big has 65537 bytes", "65536 can be"],
        ),
        (
            (0..300)
                .map(|n| (format!("user.{n:0200}"), value(8, n)))
                .collect(),
            "ea_inode",
            ["/f:", "300 extended attributes", "4096 bytes"],
        ),
    ] {
        archive(&tar, &[("f", attributes)]);
        let ran = diorite(&["import", "-q", "-O", options, path(&tar), path(&img)]);
        for word in words {
            ran.failed(1, word);
        }
        assert!(!img.exists());
    }
}

/// The kernel finds what diorite shares: a new file with the same value gets the same inode.
#[test]
fn values_are_found_again_by_diorite() {
    let dir = scratch();
    let (tar, img) = (dir.path().join("x.tar"), dir.path().join("img"));
    archive(&tar, &files());
    diorite(&[
        "import",
        "-q",
        "-O",
        "ea_inode",
        "--size",
        "40M",
        path(&tar),
        path(&img),
    ])
    .ok();
    for name in ["user.big", "user.more"] {
        diorite(&["setfattr", "-n", name, "-v", "short", path(&img), "/a"]).ok();
        clean(&img);
    }
    let text = run("debugfs", &["-R", "ea_list /b", path(&img)]);
    assert!(text.contains("user.big (65536)"), "{text}");
}
