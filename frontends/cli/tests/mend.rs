//! Commands that write. `recover` and `sync`: an image that was not unmounted becomes one that e2fsck has nothing to say about; one
//! that cannot be recovered stays as it is. `truncate` and `fallocate` do what those of coreutils
//! and util-linux do.
#![allow(clippy::unwrap_used)]

mod common;

use common::{diorite, image, run, scratch, tree};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// An image with a tree in it.
fn some_image(dir: &Path) -> String {
    let source = dir.join("tree");
    tree(&source);
    image(dir, "image", "64M", &["-t", "ext4"], Some(&source))
}

/// Leaves one committed transaction in the log that was not brought home: zeros for a block that holds them already.
fn leave_in_log(img: &str, dir: &Path) {
    std::fs::write(dir.join("zeros"), [0; 4096]).unwrap();
    let mut debugfs = Command::new("/usr/sbin/debugfs")
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
    assert!(said.contains("orphaned inodes were deleted"), "{said}");
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
    // The host's file system need not know all of them: what has to come out is worked out here.
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
