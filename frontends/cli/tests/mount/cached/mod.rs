//! What the kernel caches of a mount: attributes, pages, bytes that it has not handed over yet.
//!
//! Input: scripts of python3 that change files in every way, as root and as another user. Output: what they print, which is each place
//! where a cache shows what is no longer so: nothing. Limits: with two users it needs root.

use crate::bed::{Bed, bytes, has, is_root, said};
use crate::common::skip;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

const WORDS: &str = include_str!("words.py");
const ATTRIBUTES: &str = include_str!("attributes.py");
const LATE: &str = include_str!("late.py");
const RIGHTS: &str = include_str!("rights.py");
const DIRECT: &str = include_str!("direct.py");
const CUT: &str = include_str!("cut.py");
const REPLACED: &str = include_str!("replaced.py");

/// The script, with its words, beside the image.
fn in_file(bed: &Bed, script: &str) -> PathBuf {
    let path = bed.image.with_extension("py");
    fs::write(&path, format!("{WORDS}{script}")).unwrap();
    path
}

/// Mounts an image with these options, and runs a script there.
fn on_mount(options: &str, script: &str, args: &[&str]) {
    let Some(bed) = Bed::new(&["-b", "4096"]) else {
        return;
    };
    if !has("python3") {
        return;
    }
    bed.open_to_all();
    bed.mount(&["-o", options]);
    let (script, at) = (in_file(&bed, script), bed.at.to_str().unwrap());
    let found = said("python3", &[&[script.to_str().unwrap(), at], args].concat());
    assert_eq!(found, "", "-o {options} {args:?}");
    bed.end();
}

/// The defects: the mode after a write that had taken set-user-id away, and the blocks after a long attribute was set, were the old ones.
#[test]
fn attributes_are_those_of_the_server() {
    on_mount("suid", ATTRIBUTES, &[]);
}

#[test]
fn attributes_are_those_of_the_server_where_the_kernel_collects() {
    on_mount("suid,writeback_cache", ATTRIBUTES, &[]);
}

#[test]
fn attributes_are_those_of_the_server_by_io_uring() {
    on_mount("suid,io_uring", ATTRIBUTES, &[]);
}

/// The defect: a reply that its caller took after somebody else had changed the names brought back the attributes from before.
#[test]
fn a_late_reply_brings_no_old_attributes_back() {
    on_mount("rw", LATE, &[]);
}

/// The defect: a program ran with the rights of its owner after somebody else had written it, until someone asked for all its attributes.
#[test]
fn a_program_that_others_have_written_has_no_rights() {
    if !is_root() {
        return skip("two users of a mount need root");
    }
    for options in ["suid", "suid,writeback_cache", "suid,direct_io"] {
        on_mount(options, RIGHTS, &[]);
    }
}

/// The defect: pages that were read while an asynchronous direct write was under way stayed, with the bytes from before it.
#[test]
fn no_page_is_older_than_a_direct_write() {
    for how in ["aio", "sync"] {
        on_mount("rw", DIRECT, &[how, "300"]);
    }
}

#[test]
fn no_page_is_older_than_a_write_of_a_file_that_became_direct() {
    on_mount("rw", DIRECT, &["toggled", "300"]);
}

#[test]
fn no_page_is_older_than_a_direct_write_with_few_threads() {
    for options in ["max_threads=1", "io_uring", "writeback_cache"] {
        on_mount(options, DIRECT, &["aio", "150"]);
    }
}

/// The defect: a size that the kernel heard of late left the page at the old end in the cache, with zeros in place of what was written. A
/// mount that collects writes keeps its own size then (docs/mount.md).
#[test]
fn a_page_that_was_cut_during_a_direct_write_is_that_of_the_image() {
    for options in ["rw", "io_uring", "direct_io"] {
        on_mount(options, CUT, &["300"]);
    }
}

/// Runs the script until it says that the name is durable, kills all processes of the mount, and shows what has the name.
fn replaced(options: &str, how: &str, length: usize) -> Option<Vec<u8>> {
    let bed = Bed::new(&[])?;
    if !has("python3") {
        return None;
    }
    bed.mount(&["-o", options]);
    let mut writer = Command::new("timeout")
        .args(["--signal=KILL", "60", "python3"])
        .arg(in_file(&bed, REPLACED))
        .arg(&bed.at)
        .args([how, &length.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut from = BufReader::new(writer.stdout.take().unwrap());
    from.read_line(&mut line).unwrap();
    assert_eq!(line, "durable\n", "-o {options}: {how}");
    for pid in bed.processes() {
        let _gone = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
    while !bed.processes().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    // timeout passes this on to the script.
    let pid = Pid::from_child(&writer);
    let _gone = kill_process(pid, Signal::TERM);
    writer.wait().unwrap();
    if bed.is_mounted() {
        said("umount", &["-l", bed.at.to_str().unwrap()]);
    }
    bed.mount(&[]);
    let found = bytes(&bed.path("name"));
    bed.end();
    Some(found)
}

/// The defect: bytes that the kernel had collected, or that were in a mapping, were not asked for before their file took another's name: it
/// was empty after a crash, or full of zeros.
#[test]
fn a_file_that_takes_a_name_is_whole_after_a_kill() {
    if !is_root() {
        return skip("a mount whose processes were killed is taken away by root");
    }
    for options in [
        "writeback_cache",
        "rw",
        "writeback_cache,io_uring",
        "writeback_cache,max_threads=1",
    ] {
        for how in [
            "rename",
            "mapped",
            "exchange",
            "exchange back",
            "link",
            "temporary",
        ] {
            let Some(found) = replaced(options, how, 100_000) else {
                return;
            };
            let good = found.iter().filter(|byte| **byte == b'n').count();
            assert_eq!(
                (found.len(), good),
                (100_000, 100_000),
                "-o {options}: {how}"
            );
        }
    }
}
