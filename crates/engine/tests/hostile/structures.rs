//! The volume's own structures in each other's blocks. Each change of one damages the other, and the defect was that they were changed.

use crate::common::{run, scratch};
use diorite::{OpenOptions, Volume};
use diorite_check::{CheckOptions, Kind, check};
use std::path::Path;

const WORDS: [&str; 4] = [
    "-t ext4 -b 1024",
    "-t ext4 -b 4096 -O ^metadata_csum,^64bit -g 8192",
    "-t ext4 -b 1024 -O bigalloc,^resize_inode -C 4096",
    "-t ext4 -b 1024 -O meta_bg,^resize_inode",
];

/// Group 1, or group 3 which has copies, with a structure in that of another: the word for debugfs, and whose place it gets.
const OVERLAPS: [(&str, &str); 5] = [
    ("block_bitmap", "0 block_bitmap"),
    ("inode_bitmap", "0 block_bitmap"),
    ("block_bitmap", "0 inode_table"),
    ("inode_table", "0 inode_table"),
    ("block_bitmap", "1 head"),
];

#[test]
fn overlapping_structures_are_refused_for_writing() {
    for words in WORDS {
        for (what, over) in OVERLAPS {
            let dir = scratch();
            let path = dir.path().join("image");
            std::fs::File::create(&path)
                .unwrap()
                .set_len(64 << 20)
                .unwrap();
            let name = path.to_str().unwrap();
            let mut args: Vec<&str> = vec!["-q", "-F"];
            args.extend(words.split_whitespace());
            args.push(name);
            run("mke2fs", &args);
            let place = place_of(name, over);
            // A place in the middle of a table; not the same table, where nothing would be seen but its first block.
            let place = if over.ends_with("inode_table") {
                place + 1
            } else {
                place
            };
            let script = format!("set_bg 1 {what} {place}\nset_bg 1 checksum calc\n");
            let file = dir.path().join("script");
            std::fs::write(&file, script).unwrap();
            run("debugfs", &["-w", "-f", file.to_str().unwrap(), name]);
            judge(&path, &format!("{words}: {what} of group 1 at {over}"));
        }
    }
}

/// The first block of a structure.
fn place_of(name: &str, what: &str) -> u64 {
    let volume = Volume::open(name, &OpenOptions::default()).unwrap();
    if what == "1 head" {
        let group = diorite_format::GroupNo::new(1);
        return volume.superblock().group_first_block(group).get();
    }
    let (group, what) = what.split_once(' ').unwrap();
    let said = run("debugfs", &["-R", "stats", name]);
    let from = format!(" Group  {group}:");
    let line = said.lines().find(|line| line.starts_with(&from)).unwrap();
    let key = format!("{} at ", what.replace('_', " "));
    let rest = line.split(&key).nth(1).unwrap();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

fn judge(path: &Path, label: &str) {
    let name = path.to_str().unwrap();
    let before = std::fs::read(path).unwrap();
    let refused = Volume::open(name, &OpenOptions::writable()).unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("overlap"), "{label}: {said}");
    assert!(
        std::fs::read(path).unwrap() == before,
        "{label}: it was changed"
    );
    let volume = Volume::open(name, &OpenOptions::default()).unwrap();
    let notes = volume.notes().join("\n");
    assert!(notes.contains("overlap"), "{label}: {notes}");
    drop(volume);
    let found = check(name, &CheckOptions::default(), &|_| ()).unwrap();
    let named = found
        .findings
        .iter()
        .find(|findings| findings.kind == Kind::DoubleUse);
    let first = &named.unwrap_or_else(|| panic!("{label}")).kept[0];
    assert!(
        said.contains(&first.what),
        "{label}: {said}, and check: {first}"
    );
    let theirs = xtask::run::tool("e2fsck")
        .arg("-fn")
        .arg(path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&theirs.stderr) + String::from_utf8_lossy(&theirs.stdout);
    // It may take copies of the descriptors in their place, and be content with these.
    assert!(
        !theirs.status.success() || said.contains("look bad"),
        "{label}: {said}"
    );
}
