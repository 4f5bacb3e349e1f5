//! `diorite grow`, `shrink` and `minimise`.

use super::{clean, kernel_shows, number, path};
use crate::common::{diorite, get, image, is_root, run, same, scratch, tree};
use std::fs::{self, File};
use std::path::Path;

const MIB: u64 = 1 << 20;

fn made(dir: &Path, size: &str) -> String {
    let source = dir.join("source");
    fs::create_dir(&source).unwrap();
    tree(&source);
    image(dir, "img", size, &["-b", "1024"], Some(&source))
}

fn len(img: &str) -> u64 {
    fs::metadata(img).unwrap().len()
}

/// What is in the image is what went in.
fn whole(dir: &Path, img: &str) {
    let (source, out) = (dir.join("source"), dir.join("out"));
    fs::create_dir(&out).unwrap();
    get(img, "/.", &out);
    fs::remove_dir_all(out.join("lost+found")).unwrap();
    same(&source, &out);
    fs::remove_dir_all(&out).unwrap();
    clean(Path::new(img));
}

#[test]
fn a_file_and_its_file_system_grow() {
    let dir = scratch();
    let img = made(dir.path(), "20M");
    let said = diorite(&["grow", &img, "50M"]).ok().text();
    assert_eq!(
        said,
        format!("{img}: 51200 blocks of 1024 bytes (50M), 20480 before\n")
    );
    assert_eq!(len(&img), 50 * MIB);
    whole(dir.path(), &img);
    let json = diorite(&["grow", "--json", &img, "+10M"]).ok().text();
    assert_eq!(
        (number(&json, "blocks_before"), number(&json, "blocks")),
        (51200, 61440)
    );
    assert_eq!((number(&json, "bytes"), len(&img)), (60 * MIB, 60 * MIB));
    // Without a size, as large as the file.
    File::options()
        .write(true)
        .open(&img)
        .unwrap()
        .set_len(70 * MIB + 500)
        .unwrap();
    assert!(
        diorite(&["grow", &img])
            .ok()
            .text()
            .contains("71680 blocks of")
    );
    assert!(
        diorite(&["grow", &img])
            .ok()
            .text()
            .ends_with("71680 blocks of 1024 bytes (70M), as before\n")
    );
    assert_eq!(diorite(&["grow", "-q", &img]).ok().text(), "");
    whole(dir.path(), &img);
    kernel_shows(Path::new(&img), &dir.path().join("mnt"), |at| {
        assert!(at.join("lost+found").is_dir());
    });
}

#[test]
fn what_cannot_grow_stays_as_it_is() {
    let dir = scratch();
    let img = made(dir.path(), "20M");
    let before = fs::read(&img).unwrap();
    diorite(&["grow", &img, "10M"]).failed(1, "fewer");
    diorite(&["grow", &img, "20T"]).failed(1, "need the feature 64bit");
    assert_eq!(len(&img), 20 * MIB);
    diorite(&["grow", &img, "-1x"]).failed(2, "");
    diorite(&["grow", "nowhere.img"]).failed(1, "No such file");
    // Opened for writing and closed, without a change.
    assert!(fs::read(&img).unwrap() == before);
    // A partition does not grow.
    let disk = dir.path().join("disk");
    File::create(&disk).unwrap().set_len(64 * MIB).unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "label: gpt\nstart=2048, size=81920\n").unwrap();
    let sfdisk = format!(
        "sfdisk -q --no-tell-kernel {} <{}",
        path(&disk),
        path(&script)
    );
    run("sh", &["-c", &sfdisk]);
    let part = format!("{}?part=1", path(&disk));
    diorite(&["copy", &img, &part]).ok();
    diorite(&["grow", &part, "50M"]).failed(1, "device");
    assert!(
        diorite(&["grow", &part])
            .ok()
            .text()
            .contains("40960 blocks of")
    );
    diorite(&["check", &part]).ok();
    assert_eq!(fs::metadata(&disk).unwrap().len(), 64 * MIB);
}

#[test]
fn a_file_system_and_its_file_shrink() {
    let dir = scratch();
    let img = made(dir.path(), "20M");
    diorite(&["grow", &img, "100M"]).ok();
    let said = diorite(&["shrink", &img, "-70M"]).ok().text();
    assert!(
        said.ends_with("30720 blocks of 1024 bytes (30M), 102400 before\n"),
        "{said}"
    );
    assert_eq!(len(&img), 30 * MIB);
    whole(dir.path(), &img);
    assert!(
        diorite(&["shrink", &img, "1G"])
            .ok()
            .text()
            .contains("as before")
    );
    diorite(&["shrink", &img, "4M"]).failed(1, "its files and its own");
    assert_eq!(len(&img), 30 * MIB);
    whole(dir.path(), &img);
    diorite(&["shrink", &img, "100K"]).failed(1, "its files and its own");
    // What is behind it in its file stays.
    let mut bytes = fs::read(&img).unwrap();
    bytes.extend_from_slice(b"something else");
    fs::write(&img, &bytes).unwrap();
    diorite(&["shrink", &img, "25M"]).failed(0, "keeps its length");
    assert_eq!(len(&img), 30 * MIB + 14);
    whole(dir.path(), &img);
}

#[test]
fn an_image_becomes_as_small_as_its_files() {
    let dir = scratch();
    let img = made(dir.path(), "400M");
    // Files all over the place, and what keeps them apart goes.
    let filler = dir.path().join("filler");
    File::create(&filler).unwrap().set_len(0).unwrap();
    fs::write(&filler, crate::common::noise(3 << 20, 7)).unwrap();
    for n in 0..60 {
        diorite(&["put", &img, path(&filler), &format!("/filler{n}")]).ok();
    }
    for n in 0..58 {
        diorite(&["rm", &img, &format!("/filler{n}")]).ok();
    }
    let told = diorite(&["minimise", "-n", "--json", &img]).ok().text();
    assert_eq!(len(&img), 400 * MIB);
    let said = diorite(&["minimise", &img]).ok().text();
    let small = len(&img);
    assert!(said.ends_with(", 409600 before\n"), "{said}");
    assert!(small < 20 * MIB, "{said}");
    assert!(small <= number(&told, "bytes") + MIB, "{said} {told}");
    clean(Path::new(&img));
    for n in 58..60 {
        diorite(&["cmp", &img, &format!("/filler{n}"), path(&filler)]).ok();
        diorite(&["rm", &img, &format!("/filler{n}")]).ok();
    }
    diorite(&["minimize", "--headroom", "5M", &img]).ok();
    let df = diorite(&["df", "--json", &img]).ok().text();
    assert!(number(&df, "free") >= 5 * MIB, "{df}");
    assert!(len(&img) < small, "{}", len(&img));
    diorite(&["minimise", "--headroom", "many%", &img]).failed(1, "no percentage");
    whole(dir.path(), &img);
}

/// What lies behind a file system in its file stays, and is not grown over.
#[test]
fn others_in_the_file_are_left_alone() {
    let dir = scratch();
    let img = made(dir.path(), "20M");
    let mut bytes = fs::read(&img).unwrap();
    bytes.resize(40 << 20, 0);
    bytes[30 << 20] = 7;
    let behind = dir.path().join("behind");
    fs::write(&behind, &bytes).unwrap();
    diorite(&["grow", path(&behind)]).failed(1, "other data behind");
    assert!(fs::read(&behind).unwrap() == bytes);
    // In the middle of a disk.
    let disk = dir.path().join("disk");
    let mut all = vec![0; 1 << 20];
    all.extend_from_slice(&bytes);
    fs::write(&disk, &all).unwrap();
    let inside = format!("{}?offset=1M", path(&disk));
    diorite(&["grow", &inside]).failed(1, "?part=");
    diorite(&["grow", &inside, "35M"]).failed(1, "other data behind");
    diorite(&["grow", &inside, "25M"]).failed(1, "other data behind");
    diorite(&["shrink", &inside, "15M"]).ok();
    assert_eq!(fs::metadata(&disk).unwrap().len(), 41 << 20);
    assert!(fs::read(&disk).unwrap()[21 << 20..] == all[21 << 20..]);
    diorite(&["check", &inside]).ok();
}

/// Defect: a growth that was killed before its commit could not be repeated: its own bitmaps were "other data".
#[test]
fn a_growth_that_was_interrupted_is_repeated() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    tree(&source);
    // Without copies: what lies behind the old end is what was written before the commit.
    let words = ["-b", "1024", "-O", "sparse_super2", "-E", "num_backup_sb=0"];
    let img = image(dir.path(), "img", "20M", &words, Some(&source));
    let old = fs::read(&img).unwrap();
    diorite(&["grow", &img, "100M"]).ok();
    let mut killed = fs::read(&img).unwrap();
    let behind = old.len();
    killed[..behind].copy_from_slice(&old);
    let last = killed.iter().rposition(|byte| *byte != 0).unwrap();
    assert!(last > behind);
    for (size, until) in [
        ("100M", last + 1),
        ("+80M", last - 3),
        ("", last + 1),
        ("90M", last),
    ] {
        let mut bytes = killed.clone();
        bytes[until..].fill(0);
        fs::write(&img, &bytes).unwrap();
        let args = ["grow", &img, size];
        diorite(&args[..2 + usize::from(!size.is_empty())]).ok();
        assert!(len(&img) >= 90 * MIB, "{size}");
        whole(dir.path(), &img);
    }
    // Other data, in such a place and elsewhere.
    for at in [last, behind + 5] {
        let mut bytes = killed.clone();
        bytes[at] ^= 0x5A;
        fs::write(&img, &bytes).unwrap();
        diorite(&["grow", &img, "100M"]).failed(1, "other data behind");
        assert!(fs::read(&img).unwrap() == bytes);
    }
}

/// Defect: a growth that was cut off between its commit and the copies of the superblock left them out of date for ever. If the
/// host was full, nothing said that the file system had grown.
#[test]
fn copies_that_a_growth_did_not_write_are_written_when_it_is_repeated() {
    let dir = scratch();
    let img = made(dir.path(), "40M");
    let notes = || diorite(&["check", &img]).ok().text();
    let before = fs::read(&img).unwrap();
    diorite(&["grow", &img, "200M"]).ok();
    let grown = fs::read(&img).unwrap();
    assert!(!notes().contains("copy"));
    // As if it had been cut off: 73729 is in the new groups.
    let mut cut = grown.clone();
    for block in [8193, 24577] {
        let copy = block * 1024..(block + 1) * 1024;
        cut[copy.clone()].copy_from_slice(&before[copy]);
    }
    cut[73729 * 1024..73730 * 1024].fill(0);
    fs::write(&img, &cut).unwrap();
    assert!(notes().contains("is out of date"), "{}", notes());
    diorite(&["grow", &img, "200M"]).ok();
    assert!(!notes().contains("copy"), "{}", notes());
    whole(dir.path(), &img);
    // What is as it should be is not written again.
    let before = fs::read(&img).unwrap();
    diorite(&["grow", &img, "200M"]).ok();
    let after = fs::read(&img).unwrap();
    assert!(before[8193 * 1024..][..1024] == after[8193 * 1024..][..1024]);
}

/// A host that is full by then: the file system has grown, and the message says so.
#[test]
fn a_growth_whose_copies_find_no_room_says_what_it_has_done() {
    if !is_root() {
        return xtask::skip::skipped("only root can mount a small file system");
    }
    let dir = scratch();
    let img = made(dir.path(), "64M");
    let small = dir.path().join("small");
    fs::create_dir(&small).unwrap();
    // With more and more room, until the copies, which take 2 MiB, are what it does not suffice for.
    let words = format!(
        "set -e; mount -t tmpfs -o size=64M none {0}; cd {0}; \
         for room in $(seq 1 40); do \
           cp --sparse=always {img} img; dd if=/dev/zero of=fill bs=4k 2>/dev/null || true; truncate -s -${{room}}M fill; \
           {1} grow img 20G 2>../said || true; rm fill; grep repeating ../said && break; \
         done; \
         {1} grow img 20G; {1} check img",
        path(&small),
        env!("CARGO_BIN_EXE_diorite")
    );
    let said = run("unshare", &["--mount", "sh", "-c", &words]);
    assert!(said.contains("repeating this writes them"), "{said}");
    assert!(said.contains("as before"), "{said}");
    assert!(!said.contains("copy of"), "{said}");
}

/// Defect: nothing was said of what a shrinking that was killed before its file was cut had left there, and zeros stayed.
#[test]
fn a_shrinking_that_was_interrupted_is_repeated() {
    let dir = scratch();
    let img = made(dir.path(), "40M");
    diorite(&["shrink", &img, "20M"]).ok();
    let mut bytes = fs::read(&img).unwrap();
    bytes.resize(40 << 20, 0);
    fs::write(&img, &bytes).unwrap();
    diorite(&["shrink", &img, "20M"]).ok();
    assert_eq!(len(&img), 20 * MIB);
    bytes[30 << 20] = 1;
    fs::write(&img, &bytes).unwrap();
    diorite(&["shrink", &img, "20M"]).failed(0, "'truncate -s 20971520'");
    assert_eq!(len(&img), 40 * MIB);
}

#[test]
fn a_block_map_takes_no_image_away() {
    let dir = scratch();
    let img = made(dir.path(), "20M");
    let before = fs::read(&img).unwrap();
    let new = dir.path().join("new.img");
    let new = path(&new);
    diorite(&["copy", "--bmap", &img, &img, new]).failed(1, "take the place of an image");
    diorite(&["copy", "--bmap", new, &img, new]).failed(1, "take the place of an image");
    let nowhere = dir.path().join("nowhere/map");
    diorite(&["copy", "--bmap", path(&nowhere), &img, new]).failed(1, "nowhere");
    assert!(!Path::new(new).exists());
    let source = dir.path().join("source");
    diorite(&["import", "--bmap", new, path(&source), new]).failed(1, "take the place of an image");
    diorite(&["copy", &img, "-"]).failed(1, "standard output");
    diorite(&["copy", &img, &format!("{new}.xz")]).failed(1, "xz is read, but not written");
    assert!(fs::read(&img).unwrap() == before);
}

/// As root: an image is not made on the device that its files are read from.
#[test]
fn an_image_is_not_made_over_its_source() {
    let dir = scratch();
    let img = made(dir.path(), "20M");
    let Some(device) = xtask::loopback::Loop::attach_or_skip(Path::new(&img), &[]) else {
        return;
    };
    let name = device.device().to_owned();
    diorite(&["import", &format!("{name}:/"), &name]).failed(1, "is on it");
    diorite(&["import", &format!("{img}:/"), &name]).failed(1, "");
    drop(device);
    whole(dir.path(), &img);
}

/// Defect: `minimise --headroom` with more than is free said "as before", with success.
#[test]
fn headroom_that_is_not_there_is_told() {
    let dir = scratch();
    let img = made(dir.path(), "32M");
    for options in [&["-n"][..], &[]] {
        let all = [&["minimise", "--headroom", "1G", &img], options].concat();
        diorite(&all).failed(1, "1073741824 bytes are to be free, and only ");
    }
    diorite(&["minimise", "--headroom", "4M", &img]).ok();
    run("e2fsck", &["-fn", &img]);
}
