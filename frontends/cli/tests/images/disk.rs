//! `diorite disk`: sfdisk and the kernel find in the table what was asked for, and the images are in the partitions.

use super::{clean, path};
use crate::common::{diorite, held_by_qemu, image, is_root, noise, run, scratch, skip, tree};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const ESP: &str = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B";
const ROOT: &str = "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709";

/// Runs `disk` with these words in front of DISK.
fn disk(options: &[&str], disk: &Path, parts: &[&str]) {
    let words = [&["disk", "-q"], options, &[path(disk)], parts].concat();
    diorite(&words).ok();
}

/// What sfdisk reads, after it has found nothing wrong.
fn judged(disk: &Path) -> Value {
    let said = run("sfdisk", &["--verify", path(disk)]);
    assert!(said.contains("No errors detected"), "{said}");
    let read: Value = serde_json::from_str(&run("sfdisk", &["-J", path(disk)])).unwrap();
    read["partitiontable"].clone()
}

fn bytes(disk: &Path, part: &Value) -> Vec<u8> {
    let at = |key: &str| part[key].as_u64().unwrap() as usize * 512;
    fs::read(disk).unwrap()[at("start")..at("start") + at("size")].to_vec()
}

#[test]
fn sfdisk_reads_what_was_asked_for() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("esp"), noise(3_000_001, 1)).unwrap();
    fs::write(at("a,b"), noise(70_000, 2)).unwrap();
    let root = image(dir.path(), "root", "20M", &[], None);
    let uuid = "01234567-89AB-CDEF-0123-456789ABCDEF";
    let to = at("disk");
    disk(
        &[
            "--size",
            "64M",
            "--disk-id",
            "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
        ],
        &to,
        &[
            &format!("{},type=esp,name=the esp,bootable", path(&at("esp"))),
            &format!("{root},type=root-x86-64,uuid={uuid},size=+,name=wörld"),
            &format!("{},type={ESP}", path(&dir.path().join("a,,b"))),
            "5M,type=swap",
        ],
    );
    let table = judged(&to);
    assert_eq!(table["label"], "gpt");
    assert_eq!(table["id"], "AAAAAAAA-BBBB-CCCC-DDDD-EEEEEEEEEEEE");
    assert_eq!(
        (&table["firstlba"], &table["lastlba"]),
        (&34.into(), &((64 << 11) - 34).into())
    );
    let parts = table["partitions"].as_array().unwrap();
    let of = |key: &str| parts.iter().map(|p| p[key].clone()).collect::<Vec<Value>>();
    assert_eq!(of("type")[..3], [ESP, ROOT, ESP]);
    assert_eq!(
        of("name"),
        ["the esp".into(), "wörld".into(), Value::Null, Value::Null]
    );
    assert_eq!(parts[1]["uuid"], uuid);
    assert_eq!(parts[0]["attrs"], "LegacyBIOSBootable");
    // 3,000,001 bytes are 5,860 sectors; the rest is what an alignment of 2,048 leaves.
    assert_eq!(of("start"), [2048, 8192, 116_736, 118_784]);
    assert_eq!(of("size"), [5860, 108_544, 137, 10_240]);
    let starts_with = |part: &Value, image: &Path| {
        let (found, image) = (bytes(&to, part), fs::read(image).unwrap());
        assert!(found[..image.len()] == image[..]);
        assert!(found[image.len()..].iter().all(|b| *b == 0));
    };
    starts_with(&parts[0], &at("esp"));
    starts_with(&parts[1], Path::new(&root));
    starts_with(&parts[2], &at("a,b"));
    // What sfdisk repairs from the backup is what was there.
    let whole = fs::read(&to).unwrap();
    let mut hurt = whole.clone();
    hurt[512..512 + (33 << 9)].fill(0);
    fs::write(at("hurt"), hurt).unwrap();
    let mut child = xtask::run::tool("sfdisk")
        .args(["--no-tell-kernel", "-q", "--append", path(&at("hurt"))])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let again = judged(&at("hurt"));
    assert_eq!(again["partitions"].as_array().unwrap().len(), 4, "{again}");
}

#[test]
fn an_mbr_is_read_by_sfdisk() {
    let dir = scratch();
    let to = dir.path().join("disk");
    disk(
        &[
            "--table",
            "mbr",
            "--disk-id",
            "0x1234abcd",
            "--size",
            "12G",
            "--align",
            "4K",
        ],
        &to,
        &["5M,type=esp", "1M,type=0x42", "9G,bootable", "+,type=swap"],
    );
    let table = judged(&to);
    assert_eq!(
        (&table["label"], &table["id"]),
        (&"dos".into(), &"0x1234abcd".into())
    );
    let parts = table["partitions"].as_array().unwrap();
    let of = |key: &str| parts.iter().map(|p| p[key].clone()).collect::<Vec<Value>>();
    assert_eq!(of("type"), ["ef", "42", "83", "82"]);
    assert_eq!(
        of("bootable"),
        [Value::Null, Value::Null, true.into(), Value::Null]
    );
    assert_eq!(of("start"), [8, 10_248, 12_296, 18_886_664]);
    assert_eq!(of("size")[3], (12u64 << 21) - 18_886_664);
    assert!(fs::metadata(&to).unwrap().blocks() <= 64, "it is a hole");
}

/// A disk in sectors of 4096 bytes: our reader finds its table without being told.
#[test]
fn sectors_of_4096_bytes() {
    let dir = scratch();
    let to = dir.path().join("disk");
    let root = image(dir.path(), "root", "8M", &[], None);
    disk(&["--sector", "4096"], &to, &["3M", &root]);
    let said = run("fdisk", &["-b", "4096", "-l", path(&to)]);
    assert!(said.contains("Disklabel type: gpt"), "{said}");
    let second = ["1024", "3071", "2048", "8M"];
    let is_second = |line: &str| line.split_whitespace().skip(1).take(4).eq(second);
    assert!(said.lines().any(is_second), "{said}");
    diorite(&["ls", &format!("{}?part=2", path(&to))]).ok();
}

/// Images are files of the host, partitions and files in images; `ls`, `mkfs`, `check` and another `disk` take the partitions.
#[test]
fn partitions_are_images() {
    let dir = scratch();
    let source = dir.path().join("source");
    tree(&source);
    let root = image(dir.path(), "root", "40M", &[], Some(&source));
    let (to, again) = (dir.path().join("disk"), dir.path().join("again"));
    disk(&[], &to, &[&format!("{root},size=48M"), "9M"]);
    let part = |disk: &Path, number: u32| format!("{}?part={number}", path(disk));
    clean(Path::new(&root));
    diorite(&["check", &part(&to, 1)]).ok();
    diorite(&["mkfs", "-q", &part(&to, 2)]).ok();
    diorite(&["check", &part(&to, 2)]).ok();
    diorite(&["put", &part(&to, 2), &root, "/inner"]).ok();
    let inner = format!("{}:/inner", part(&to, 2));
    assert_eq!(
        diorite(&["put", &part(&to, 2), &root, "/big"]).code,
        Some(1),
        "it is full"
    );
    disk(&["--table", "mbr"], &again, &[&part(&to, 1), &inner]);
    let listed = |img: &str| diorite(&["ls", "-lR", img]).ok().text();
    assert_eq!(listed(&part(&again, 1)), listed(&root));
    assert_eq!(listed(&part(&again, 2)), listed(&root));
    let stored = |file: &Path| fs::metadata(file).unwrap().blocks() * 512;
    assert!(
        stored(&again) <= 2 * stored(Path::new(&root)) + (1 << 20),
        "holes are kept"
    );
}

/// The kernel finds the partitions of both tables, mounts them, and agrees on their UUIDs.
#[test]
fn the_kernel_finds_the_partitions() {
    if !is_root() {
        return skip("loop devices need root");
    }
    let dir = scratch();
    let root = image(dir.path(), "root", "20M", &[], None);
    for (table, sector) in [("gpt", "512"), ("mbr", "512"), ("gpt", "4096")] {
        let to = dir.path().join(format!("disk {table} {sector}"));
        disk(&["--table", table, "--sector", sector], &to, &["2M", &root]);
        let tried = xtask::run::tool("losetup")
            .args(["-P", "--show", "-f", "-b", sector, path(&to)])
            .output()
            .unwrap();
        if !tried.status.success() {
            return skip("no loop device can be made here");
        }
        let device = PathBuf::from(String::from_utf8(tried.stdout).unwrap().trim());
        let name = device.file_name().unwrap().to_str().unwrap().to_owned();
        let read = |number: u32, what: &str| {
            let at = format!("/sys/block/{name}/{name}p{number}/{what}");
            fs::read_to_string(at).map(|text| text.trim().to_owned())
        };
        let found = (read(2, "start"), read(2, "size"));
        run("losetup", &["-d", path(&device)]);
        let (Ok(start), Ok(size)) = found else {
            return skip("the kernel makes no partitions of loop devices");
        };
        assert_eq!(
            (&start[..], &size[..]),
            ("6144", "40960"),
            "{table} {sector}"
        );
    }
}

#[test]
fn a_seed_makes_the_same_bytes() {
    let dir = scratch();
    let made = |name: &str, options: &[&str]| {
        let to = dir.path().join(name);
        disk(options, &to, &["1M", "2M,type=esp"]);
        fs::read(to).unwrap()
    };
    let seeded = made("a", &["--seed", "x"]);
    assert!(seeded == made("b", &["--seed", "x"]));
    assert!(seeded != made("c", &["--seed", "y"]));
    assert!(made("d", &[]) != made("e", &[]));
    let id = ["--disk-id", "01234567-89ab-cdef-0123-456789abcdef"];
    assert!(made("f", &id) == made("g", &id));
}

#[test]
fn what_is_printed() {
    let dir = scratch();
    let to = dir.path().join("disk");
    let words = [
        "--seed",
        "x",
        path(&to),
        "1M,type=esp,name=boot",
        "+,size=2M",
    ];
    let wrong = diorite(&[&["disk"], &words[..]].concat());
    wrong.failed(1, "+,size=2M: its size is there twice");
    let words = [
        "disk",
        "--seed",
        "x",
        path(&to),
        "1M,type=esp,name=boot",
        "2M",
    ];
    let shown = "4194304 bytes, GPT has 1 (EFI System, 1 MiB), 2 (Linux filesystem, 2 MiB)\n";
    assert!(
        diorite(&words)
            .ok()
            .text()
            .ends_with(&shown.replace("4194304", "5242880"))
    );
    let told = diorite(&[&words[..1], &["--json"], &words[1..]].concat())
        .ok()
        .text();
    let told: Value = serde_json::from_str(&told).unwrap();
    let read = judged(&to);
    for (ours, theirs) in [
        (&told["id"], &read["id"]),
        (
            &told["partitions"][0]["uuid"],
            &read["partitions"][0]["uuid"],
        ),
        (
            &told["partitions"][0]["type"],
            &read["partitions"][0]["type"],
        ),
    ] {
        let (ours, theirs) = (ours.as_str().unwrap(), theirs.as_str().unwrap());
        assert_eq!(ours.to_uppercase(), theirs);
    }
    assert_eq!(told["partitions"][1]["start"], 2 << 20);
}

/// A failure leaves nothing, and what was there.
#[test]
fn whole_or_not_at_all() {
    let dir = scratch();
    let to = dir.path().join("disk");
    fs::write(&to, "before").unwrap();
    let big = dir.path().join("big");
    fs::File::create(&big).unwrap().set_len(3 << 20).unwrap();
    for (words, why) in [
        (vec!["/nowhere/image"], "/nowhere/image: No such file"),
        (vec!["1M", path(&to)], "which would be replaced"),
        (
            vec!["1M,type=lnux"],
            "partition 1: \"lnux\" is no type of a partition in a GPT",
        ),
        (vec!["1M,uuid=1"], "could not parse UUID"),
        (vec!["+"], "say how large the disk is"),
        (
            vec!["--size", "1M", "1M"],
            "with the table they need 3145728",
        ),
        (vec!["--table", "mbr", "1M,name=x"], "an MBR has no names"),
        (
            vec!["--table", "mbr", "--disk-id", "0x123456789", "1M"],
            "is written 0x1234abcd",
        ),
        (
            vec!["--disk-id", "0x12345678", "1M"],
            "could not parse UUID",
        ),
        (vec!["--sector", "1000", "1M"], "a sector of 1000"),
    ] {
        let (options, parts): (Vec<&str>, Vec<&str>) = {
            let at = words.iter().position(|w| !w.starts_with("--")).unwrap();
            // Options have values.
            let at = words
                .iter()
                .rposition(|w| w.starts_with("--"))
                .map_or(at, |at| at + 2);
            (words[..at].to_vec(), words[at..].to_vec())
        };
        let args = [vec!["disk", "-q"], options, vec![path(&to)], parts].concat();
        diorite(&args).failed(1, why);
        assert_eq!(fs::read(&to).unwrap(), b"before", "{why}");
    }
    let small = format!("{},size=1M", path(&big));
    diorite(&["disk", path(&to), &small])
        .failed(1, "its image has 3145728 bytes, more than 1048576");
    diorite(&["disk", "mem:8M", "1M"]).failed(1, "a disk is made as a file of the host");
    diorite(&["disk", path(dir.path()), "1M"])
        .failed(1, "it is no regular file; a disk is made as a file");
    let names = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(names, 2, "nothing is left");
    disk(&[], &to, &["1M"]);
    assert_eq!(fs::metadata(&to).unwrap().len(), 3 << 20);
}

/// An image that somebody uses is not replaced.
#[test]
fn a_disk_in_use_stays() {
    let dir = scratch();
    let to = dir.path().join("disk");
    disk(&[], &to, &["1M"]);
    let Some(mut holder) = held_by_qemu("raw", &to) else {
        return;
    };
    diorite(&["disk", path(&to), "2M"]).failed(1, "qemu-io");
    drop(holder.stdin.take());
    holder.wait().unwrap();
    disk(&[], &to, &["2M"]);
}

/// A table that is odd is told by `info -d`, and nobody writes to a partition that shares bytes with another.
#[test]
fn odd_tables_are_told() {
    let dir = scratch();
    let to = dir.path().join("disk");
    disk(&["--table", "mbr", "--size", "32M"], &to, &["8M", "8M"]);
    let told = |what: &str| {
        let said = diorite(&["info", "-d", path(&to)]).ok().text();
        let json = diorite(&["info", "-d", "--json", path(&to)]).ok().text();
        let json: Value = serde_json::from_str(&json).unwrap();
        let all = json["warnings"].as_array().unwrap();
        match what {
            "" => assert!(all.is_empty() && !said.contains("warning"), "{said}"),
            _ => assert!(
                all.iter().any(|w| w == what) && said.contains(what),
                "{said} {all:?}"
            ),
        }
    };
    told("");
    let mut bytes = fs::read(&to).unwrap();
    // The number of sectors of the first partition.
    bytes[446 + 12..446 + 16].copy_from_slice(&30_000u32.to_le_bytes());
    fs::write(&to, &bytes).unwrap();
    told("partitions 1 and 2 overlap");
    let part = |number: u32| format!("{}?part={number}", path(&to));
    for number in [1, 2] {
        diorite(&["mkfs", "-q", &part(number)]).failed(1, "overlaps partition");
        // Whoever reads destroys nothing.
        diorite(&["copy", "-q", &part(number), path(&dir.path().join("part"))]).ok();
    }
    assert!(fs::read(&to).unwrap() == bytes);
    let all_the_same = format!("{}?offset=1M&size=8M", path(&to));
    diorite(&["mkfs", "-q", &all_the_same]).ok();
    bytes[446 + 12..446 + 16].copy_from_slice(&16384u32.to_le_bytes());
    bytes[462 + 12..462 + 16].copy_from_slice(&90_000u32.to_le_bytes());
    fs::write(&to, &bytes).unwrap();
    told("partition 2 ends behind the disk");
}

/// Defect: a file with the name "-" was made.
#[test]
fn standard_output_is_no_disk() {
    let dir = scratch();
    let img = dir.path().join("a.img");
    diorite(&["mkfs", "-q", path(&img), "8M"]).ok();
    let ran = std::process::Command::new(env!("CARGO_BIN_EXE_diorite"))
        .args(["disk", "-", "a.img"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(
        said.contains("standard output is no place for an image"),
        "{said}"
    );
    assert!(!ran.status.success() && !dir.path().join("-").exists());
}
