//! Tests of commands that write. `recover` and `sync`: an image that was not unmounted becomes clean for e2fsck; one that
//! cannot be recovered is not changed. `truncate` and `fallocate` have the same results as coreutils' and util-linux'.

use crate::common::{diorite, image, run, scratch, tree};
use ::diorite::{OpenFlags, OpenOptions};
use diorite_block::Buf;
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

/// An image with a tree in it.
fn some_image(dir: &Path) -> String {
    let source = dir.join("tree");
    tree(&source);
    image(dir, "image", "64M", &["-t", "ext4"], Some(&source))
}

/// Leaves one committed transaction in the log that was not checkpointed: it writes zeros to a block that holds zeros already.
fn leave_in_log(img: &str, dir: &Path) {
    std::fs::write(dir.join("zeros"), [0; 4096]).unwrap();
    let mut debugfs = xtask::run::tool("debugfs")
        .args(["-w", img])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let blocks = run("dumpe2fs", &["-h", img]);
    let count = blocks
        .lines()
        .find_map(|l| l.strip_prefix("Block count:"))
        .unwrap();
    let last = count.trim().parse::<u64>().unwrap() - 1;
    let zeros = dir.join("zeros");
    let words = format!("jo\njw -b {last} {}\njc\n", zeros.display());
    let mut input = debugfs.stdin.take().unwrap();
    input.write_all(words.as_bytes()).unwrap();
    drop(input);
    assert!(debugfs.wait().unwrap().success());
    assert!(run("dumpe2fs", &["-h", img]).contains("needs_recovery"));
}

#[test]
fn recover_replays_once_and_then_finds_nothing() {
    let dir = scratch();
    let img = some_image(dir.path());
    leave_in_log(&img, dir.path());
    let said = diorite(&["recover", &img]).ok().text();
    assert!(said.contains("the journal was replayed"), "{said}");
    assert!(!run("dumpe2fs", &["-h", &img]).contains("needs_recovery"));
    run("e2fsck", &["-fn", &img]);
    let again = diorite(&["recover", &img]).ok().text();
    assert_eq!(again, format!("{img}: clean, nothing to recover\n"));
}

#[test]
fn recover_says_so_in_json() {
    let dir = scratch();
    let img = some_image(dir.path());
    leave_in_log(&img, dir.path());
    for recovered in [true, false] {
        let out = diorite(&["recover", "--json", &img]).ok().out;
        let object: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(object["recovered"], recovered, "{object}");
        assert_eq!(object["image"], img);
        assert_eq!(object["done"].as_array().unwrap().is_empty(), !recovered);
    }
}

#[test]
fn recover_deletes_orphans_and_says_so() {
    let dir = scratch();
    let img = some_image(dir.path());
    let stat = diorite(&["stat", "--json", &img, "/sparse"]).ok().out;
    let ino = serde_json::from_slice::<Value>(&stat).unwrap()["ino"].clone();
    for request in [
        "unlink /sparse",
        &format!("sif <{ino}> links_count 0"),
        &format!("ssv last_orphan {ino}"),
    ] {
        run("debugfs", &["-w", "-R", request, &img]);
    }
    let said = diorite(&["recover", &img]).ok().text();
    assert!(said.contains("orphaned inodes: 1 deleted"), "{said}");
    run("e2fsck", &["-fn", &img]);
    let again = diorite(&["recover", &img]).ok().text();
    assert!(again.contains("nothing to recover"), "{again}");
}

#[test]
fn what_cannot_be_recovered_stays_as_it_is() {
    let dir = scratch();
    let img = some_image(dir.path());
    run("debugfs", &["-w", "-R", "ssv state 2", &img]);
    let before = std::fs::read(&img).unwrap();
    diorite(&["recover", &img]).failed(1, "run e2fsck");
    diorite(&["sync", &img]).failed(1, "run e2fsck");
    assert!(std::fs::read(&img).unwrap() == before);
    diorite(&["recover", "/nowhere"]).failed(1, "No such file or directory");
    diorite(&["recover"]).failed(2, "Usage");
}

#[test]
fn sync_leaves_nothing_in_the_log() {
    let dir = scratch();
    let img = some_image(dir.path());
    leave_in_log(&img, dir.path());
    let said = diorite(&["sync", &img, "/big"]).ok();
    assert_eq!(said.text(), "");
    assert!(!run("dumpe2fs", &["-h", &img]).contains("needs_recovery"));
    run("e2fsck", &["-fn", &img]);
    let nowhere = diorite(&["sync", &img, "/nowhere", "/big"]);
    nowhere.failed(1, "/nowhere: No such file or directory");
}

#[test]
fn truncate_does_to_a_file_what_coreutils_does() {
    let dir = scratch();
    let img = some_image(dir.path());
    let (host, copy) = (dir.path().join("tree/big"), dir.path().join("copy"));
    let host = host.to_str().unwrap();
    let copied = ["get", &img, "/big", copy.to_str().unwrap()];
    for size in [
        "%4K", "+1KB", "-70001", "<1M", ">900K", "/4096", "5000000", "-9G", "64KiB",
    ] {
        run("truncate", &["-s", size, host]);
        assert_eq!(
            diorite(&["truncate", "-s", size, &img, "/big"]).ok().text(),
            ""
        );
        std::fs::remove_file(&copy).ok();
        diorite(&copied).ok();
        let same = std::fs::read(host).unwrap() == std::fs::read(&copy).unwrap();
        assert!(same, "{size}");
        run("e2fsck", &["-fn", &img]);
    }
}

#[test]
fn truncate_makes_files_unless_told_not_to() {
    let dir = scratch();
    let img = some_image(dir.path());
    diorite(&["truncate", "-c", "-s", "1M", &img, "/new"]).ok();
    diorite(&["stat", &img, "/new"]).failed(1, "No such file or directory");
    diorite(&["truncate", "--size=1M", &img, "/new", "/dir/new"]).ok();
    for path in ["/new", "/dir/new"] {
        let said = diorite(&["stat", &img, path]).ok().text();
        assert!(said.contains("Size: 1048576 "), "{said}");
        assert!(said.contains("Blocks: 0 "), "{said}");
    }
    run("e2fsck", &["-fn", &img]);
    diorite(&["truncate", "-s", "1", &img, "/dir"]).failed(1, "Is a directory");
    diorite(&["truncate", "-s", "1", &img, "/no/such"]).failed(1, "No such file or directory");
    diorite(&["truncate", "-s", "1E", &img, "/big"]).failed(1, "/big: ");
    diorite(&["truncate", "-s", "/0", &img, "/big"]).failed(2, "division by zero");
    diorite(&["truncate", &img, "/big"]).failed(2, "--size");
}

#[test]
fn fallocate_does_to_a_file_what_the_kernel_does() {
    let dir = scratch();
    let img = some_image(dir.path());
    // The host's file system may not support all of these modes, so the test computes the expected result.
    let mut bytes = std::fs::read(dir.path().join("tree/big")).unwrap();
    let out = dir.path().join("copy");
    let mut check = |words: &str, change: &dyn Fn(&mut Vec<u8>)| {
        change(&mut bytes);
        let args: Vec<&str> = words.split(' ').collect();
        let args = [&["fallocate"], &args[..], &[&img, "/big"]].concat();
        assert_eq!(diorite(&args).ok().text(), "");
        std::fs::remove_file(&out).ok();
        diorite(&["get", &img, "/big", out.to_str().unwrap()]).ok();
        assert!(std::fs::read(&out).unwrap() == bytes, "{words}");
        run("e2fsck", &["-fn", &img]);
    };
    check("-p -o 5000 -l 100KB", &|b| b[5000..105_000].fill(0));
    check("-z -o 1M -l 8193", &|b| b[1 << 20..][..8193].fill(0));
    check("-w -o 100 -l 64K", &|b| b[100..65_636].fill(0));
    check("-c -o 8K -l 40K", &|b| drop(b.drain(8192..49_152)));
    check("-i -o 12K -l 4K", &|b| {
        drop(b.splice(12_288..12_288, [0; 4096]))
    });
    check("-n -o 4M -l 1M", &|_| {});
    check("-x -o 3M -l 1M", &|b| b.resize(4 << 20, 0));
    check("-l 5MiB", &|b| b.resize(5 << 20, 0));
}

#[test]
fn fallocate_makes_files_where_it_allocates() {
    let dir = scratch();
    let img = some_image(dir.path());
    diorite(&["fallocate", "-l", "1M", &img, "/new"]).ok();
    let said = diorite(&["extents", "--json", &img, "/new"]).ok().text();
    assert!(said.contains("\"unwritten\""), "{said}");
    let stat = diorite(&["stat", &img, "/new"]).ok().text();
    assert!(stat.contains("Size: 1048576 "), "{stat}");
    for option in ["-p", "-z", "-c", "-i", "-w", "-n"] {
        let ran = diorite(&["fallocate", option, "-l", "4K", &img, "/other"]);
        ran.failed(1, "/other: No such file or directory");
    }
    diorite(&["fallocate", "-l", "0", &img, "/new"]).failed(1, "/new: ");
    diorite(&["fallocate", "-p", "-z", "-l", "1", &img, "/new"]).failed(2, "cannot be used");
    diorite(&["fallocate", "-n", "-c", "-l", "1", &img, "/new"]).failed(2, "cannot be used");
    diorite(&["fallocate", &img, "/new"]).failed(2, "--length");
    run("e2fsck", &["-fn", &img]);
}

#[test]
fn truncate_goes_by_another_file_and_counts_blocks() {
    let dir = scratch();
    // truncate -o on the host (tmpfs) counts in pages, so the image gets blocks of 4096 bytes.
    let source = dir.path().join("tree");
    tree(&source);
    let kind = ["-t", "ext4", "-b", "4096"];
    let img = image(dir.path(), "image", "64M", &kind, Some(&source));
    let size = |path: &str| {
        let said = diorite(&["stat", "--json", &img, path]).ok().out;
        serde_json::from_slice::<Value>(&said).unwrap()["size"]
            .as_u64()
            .unwrap()
    };
    let (big, host) = (size("/big"), dir.path().join("host"));
    let (model, host) = (dir.path().join("tree/big"), host.to_str().unwrap());
    for words in [
        &["-r", "REF"][..],
        &["-r", "REF", "-s", "+5"],
        &["--reference=REF", "-s", "<5K"],
        &["-r", "REF", "-s", "%1M"],
        &["-s", "3", "-o"],
        &["-o", "-s", "+2"],
        &["--io-blocks", "-s", "/1"],
        &["-r", "REF", "-o", "-s", "-3"],
    ] {
        let with = |reference: &str| -> Vec<String> {
            words.iter().map(|w| w.replace("REF", reference)).collect()
        };
        let (host_words, words) = (with(model.to_str().unwrap()), with("/big"));
        let host_words: Vec<&str> = host_words.iter().map(String::as_str).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        run("truncate", &[&host_words[..], &[host]].concat());
        let args = [&["truncate"], &words[..], &[&img, "/new"]].concat();
        assert_eq!(diorite(&args).ok().text(), "");
        let want = std::fs::metadata(host).unwrap().len();
        assert_eq!(size("/new"), want, "{words:?}");
    }
    assert_eq!(size("/big"), big);
    run("e2fsck", &["-fn", &img]);
    let both = diorite(&["truncate", "-r", "/big", "-s", "5", &img, "/new"]);
    both.failed(2, "--reference");
    diorite(&["truncate", "-o", "-r", "/big", &img, "/new"]).failed(2, "--size");
    let nowhere = diorite(&["truncate", "-r", "/nowhere", &img, "/made"]);
    nowhere.failed(1, "/nowhere: No such file or directory");
    diorite(&["stat", &img, "/made"]).failed(1, "No such file or directory");
    let large = diorite(&["truncate", "-o", "-s", "8E", &img, "/new"]);
    large.failed(1, "as large");
}

#[test]
fn fallocate_digs_holes() {
    let dir = scratch();
    let (tree, out) = (dir.path().join("tree"), dir.path().join("copy"));
    std::fs::create_dir(&tree).unwrap();
    let mut bytes = vec![7u8; 3 << 20];
    for zeros in [
        0..4096,
        9000..30_000,
        1_000_000..2_500_000,
        3_100_001..3 << 20,
    ] {
        bytes[zeros].fill(0);
    }
    bytes.extend([0; 5]);
    std::fs::write(tree.join("file"), b"").unwrap();
    let kind = ["-t", "ext4", "-b", "4096"];
    let img = image(dir.path(), "image", "32M", &kind, Some(&tree));
    write_in_full(&img, &bytes);
    let blocks = || -> u64 {
        let said = diorite(&["extents", "--json", &img, "/file"]).ok().text();
        let lines = said.lines().map(serde_json::from_str::<Value>);
        lines.map(|v| v.unwrap()["length"].as_u64().unwrap()).sum()
    };
    assert_eq!(blocks(), 769);
    // First with a range: only blocks completely inside it become holes.
    diorite(&[
        "fallocate",
        "-d",
        "-o",
        "5000",
        "-l",
        "20000",
        &img,
        "/file",
    ])
    .ok();
    assert_eq!(blocks(), 769 - 3);
    diorite(&["fallocate", "--dig-holes", &img, "/file"]).ok();
    let full = |n: usize| {
        bytes[n * 4096..bytes.len().min((n + 1) * 4096)]
            .iter()
            .any(|b| *b != 0)
    };
    let left = (0..769).filter(|n| full(*n)).count() as u64;
    assert_eq!(blocks(), left);
    diorite(&["get", &img, "/file", out.to_str().unwrap()]).ok();
    assert!(std::fs::read(&out).unwrap() == bytes);
    run("e2fsck", &["-fn", &img]);
    diorite(&["fallocate", "-d", &img, "/nowhere"]).failed(1, "No such file or directory");
    diorite(&["fallocate", "-d", "-p", "-l", "1", &img, "/file"]).failed(2, "cannot be used");
}

/// Writes a file completely, including the blocks of zeros that mke2fs leaves out when it copies.
fn write_in_full(img: &str, bytes: &[u8]) {
    let volume = ::diorite::Volume::open(img, &OpenOptions::writable()).unwrap();
    let flags = OpenFlags::writable();
    let file = volume.open_path("/file", flags).unwrap();
    let mut buf = Buf::zeroed(bytes.len().next_multiple_of(512));
    buf.copy_in(0, bytes);
    file.write_buf(0, buf).1.unwrap();
    file.truncate(bytes.len() as u64).unwrap();
    drop(file);
    volume.close().unwrap();
}

#[test]
fn sync_of_data_alone() {
    let dir = scratch();
    let img = some_image(dir.path());
    assert_eq!(diorite(&["sync", "-d", &img, "/big"]).ok().text(), "");
    let nowhere = diorite(&["sync", "--data", &img, "/big", "/nowhere"]);
    nowhere.failed(1, "/nowhere: No such file or directory");
    diorite(&["sync", "-d", &img]).failed(2, "PATH");
    run("e2fsck", &["-fn", &img]);
}

/// A file whose extent tree has a node of the wrong depth. The defect: `rm` removed its name and returned 0 without a message;
/// the inode could not be deleted, so the next command that wrote was refused. `rm` has to fail with a message that names the
/// block, and to change nothing.
#[test]
fn what_cannot_be_deleted_keeps_its_name() {
    for features in ["bigalloc,^metadata_csum", "^metadata_csum"] {
        let dir = scratch();
        let source = dir.path().join("source");
        std::fs::create_dir(&source).unwrap();
        let file = std::fs::File::create(source.join("file")).unwrap();
        for n in 0..20 {
            std::os::unix::fs::FileExt::write_all_at(&file, b"x", n << 17).unwrap();
        }
        std::fs::write(source.join("other"), b"y").unwrap();
        let args = ["-t", "ext4", "-b", "1024", "-O", features];
        let img = image(dir.path(), "image", "32M", &args, Some(&source));
        let tree = run("debugfs", &["-R", "stat /file", &img]);
        let node = tree.split_once("(ETB0):").unwrap().1;
        let node: usize = node.split(',').next().unwrap().trim().parse().unwrap();
        let mut bytes = std::fs::read(&img).unwrap();
        bytes[node * 1024 + 6] = 2;
        std::fs::write(&img, &bytes).unwrap();
        let said = format!("extent node in block {node}: depth 2, expected 0");
        diorite(&["rm", &img, "/file"]).failed(1, &said);
        diorite(&["mv", &img, "/other", "/file"]).failed(1, &said);
        // The volume is unchanged and can be written to.
        diorite(&["mkdir", &img, "/dir"]).ok();
        diorite(&["rm", &img, "/other"]).ok();
        let listed = diorite(&["ls", &img, "/"]).ok().text();
        assert_eq!(listed, "dir\nfile\nlost+found\n");
        let judged = diorite(&["check", &img]);
        assert_eq!(judged.code, Some(4));
        assert!(!judged.text().contains("orphan"), "{}", judged.text());
    }
}
