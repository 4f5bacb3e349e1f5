//! What the options of a mount do is what they do to the kernel's ext4.
//!
//! Input: words of `-o`. Output: nothing, or what a program sees differently on both: access times, rights of programs and devices,
//! attributes, ACLs, groups of new files, sizes. Limits: root's.

use crate::bed::{Bed, has, is_root, said};
use crate::common::{Mount, skip};
use std::fs;

const EFFECTS: &str = include_str!("options.py");

/// What a program sees on a mount of the bed's image.
fn seen(bed: &Bed) -> String {
    let script = bed.image.with_extension("py");
    fs::write(&script, EFFECTS).unwrap();
    let (script, at) = (script.to_str().unwrap(), bed.at.to_str().unwrap());
    said("python3", &[script, at])
}

fn like_ext4(mke2fs: &[&str], lists: &[&str]) {
    if !is_root() {
        return skip("the kernel's ext4 is mounted by root");
    }
    if !has("python3") {
        return;
    }
    for words in lists {
        let (Some(ours), Some(theirs)) = (Bed::new(mke2fs), Bed::new(mke2fs)) else {
            return;
        };
        ours.open_to_all();
        theirs.open_to_all();
        let Some(kernel) = Mount::new(theirs.image.to_str().unwrap(), &theirs.at, words) else {
            return skip("the kernel mounts no loop device here");
        };
        let expected = seen(&theirs);
        drop(kernel);
        ours.mount(&["-o", words]);
        assert_eq!(seen(&ours), expected, "-o {words}");
        ours.end();
    }
}

#[test]
fn options_do_what_they_do_to_ext4() {
    let lists = [
        "rw",
        "noatime",
        "strictatime",
        "nodiratime",
        "lazytime",
        "nosuid",
        "nodev",
        "noexec",
        "nosymfollow",
        "ro",
        "sync",
        "dirsync",
        "data=journal",
        "discard",
        "commit=9",
    ];
    like_ext4(&[], &lists);
}

#[test]
fn new_files_have_the_group_that_was_asked_for() {
    like_ext4(&[], &["grpid", "bsdgroups,nogrpid"]);
    // By default as the superblock says.
    if is_root() && has("tune2fs") {
        let tuned = &["-m", "5"];
        let (Some(ours), Some(theirs)) = (Bed::new(tuned), Bed::new(tuned)) else {
            return;
        };
        for bed in [&ours, &theirs] {
            bed.open_to_all();
            said("tune2fs", &["-o", "bsdgroups", bed.image.to_str().unwrap()]);
        }
        let image = theirs.image.to_str().unwrap();
        let Some(kernel) = Mount::new(image, &theirs.at, "rw") else {
            return skip("the kernel mounts no loop device here");
        };
        let expected = seen(&theirs);
        drop(kernel);
        ours.mount(&[]);
        assert_eq!(seen(&ours), expected);
        ours.end();
    }
}

#[test]
fn whom_the_reserve_is_for_and_what_counts_as_size_are_as_asked() {
    like_ext4(&[], &["resuid=4242", "resgid=4242", "resuid=77", "minixdf"]);
}
