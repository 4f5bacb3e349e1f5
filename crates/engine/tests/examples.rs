//! The programs in `examples/` work.

#[allow(dead_code)] // Its `main` is for the command line.
#[path = "../examples/append_log.rs"]
mod append_log;
#[allow(dead_code)] // Its `main` is for the command line.
#[path = "../examples/loop_in_loop.rs"]
mod loop_in_loop;
#[allow(dead_code)] // Its `main` is for the command line.
#[path = "../examples/overwrite.rs"]
mod overwrite;

use crate::common::nest::nested;
use crate::common::{fsck, image, scratch};
use diorite::{OpenFlags, OpenOptions, Volume};
use std::path::Path;

fn contents(image: &Path, path: &str) -> Vec<u8> {
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::default()).unwrap();
    let file = volume.open_path(path, OpenFlags::default()).unwrap();
    let mut bytes = vec![0; file.size() as usize];
    file.read_bytes(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_file_is_overwritten_with_many_requests_in_flight() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("database"), vec![1; 1000 * 4096]).unwrap();
    let image = image(dir.path(), "32M", &["-t", "ext4"], &tree);
    let count = overwrite::overwrite(image.to_str().unwrap(), "/database").unwrap();
    assert_eq!(count, 1000);
    let bytes = contents(&image, "/database");
    for (n, word) in bytes.chunks_exact(8).enumerate() {
        assert_eq!(word, (n as u64 / 512).to_le_bytes());
    }
    fsck(&image);
}

#[test]
fn appended_records_are_all_there_and_share_commits() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let image = image(dir.path(), "32M", &["-t", "ext4"], &tree);
    let commits = append_log::append_log(image.to_str().unwrap(), "/log", 50).unwrap();
    assert!((1..=200).contains(&commits), "{commits}");
    let bytes = contents(&image, "/log");
    let mut of = [0; 5];
    for record in bytes.chunks_exact(4096) {
        assert!(record.iter().all(|b| *b == record[0]));
        of[usize::from(record[0])] += 1;
    }
    assert_eq!(of, [0, 50, 50, 50, 50]);
    fsck(&image);
}

#[test]
fn a_file_is_read_through_two_loop_devices() {
    let dir = scratch();
    let locator = nested(dir.path());
    let outer = locator.split('!').next().unwrap();
    let bytes = loop_in_loop::read(outer, "/inner", "/inner", "/data").unwrap();
    assert_eq!(bytes, std::fs::read(dir.path().join("s0/data")).unwrap());
}
