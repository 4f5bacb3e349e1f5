//! The same random calls on a mount and on one of the kernel's ext4, as root and two users.
//!
//! | file | what |
//! |---|---|
//! | `mod` | mounts, and what is left of both afterwards |
//! | `differ.py` | makes each call on both, compares; finds as few steps as show a difference |
//! | `steps.py` | random steps |
//! | `calls.py` | system calls with results that can be compared |
//! | `load.rs`, `load.py` | several processes make such calls at once; what they leave reads the same in all ways |
//!
//! Input: `DIORITE_SEED`, `DIORITE_STEPS`. Output: nothing, or the steps that lead to a difference. Invariants: each seed gives the same
//! steps, and without `DIORITE_SEED` it is always the same one: a run of CI finds what it found before. Limits: what docs/mount.md names as
//! different is not asked for, or excused in `differ.py`; calls are made one after the other.

mod load;

use crate::bed::{Bed, has, is_root, said, texts};
use crate::common::{Mount, skip};
use std::path::Path;
use std::process::Command;

fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs the comparison of two mounts; with these words a random one.
fn compare(ours: &Path, theirs: &Path, words: &[&str]) {
    // Seconds. A hundred steps take about one.
    let patience = 600 + words.get(1).map_or(0, |steps| steps.parse().unwrap_or(0)) / 10;
    python(
        "differ.py",
        patience,
        &[&[ours, theirs], &paths(words)[..]].concat(),
    );
}

fn paths<'a>(words: &'a [&str]) -> Vec<&'a Path> {
    words.iter().map(Path::new).collect()
}

/// Runs a script of this directory, at most for so many seconds; it succeeds.
fn python(script: &str, patience: u64, args: &[&Path]) {
    let done = Command::new("timeout")
        .args(["--signal=KILL", &patience.to_string(), "python3", "-B"])
        .arg(format!(
            "{}/tests/mount/differ/{script}",
            env!("CARGO_MANIFEST_DIR")
        ))
        .args(args)
        .output()
        .unwrap();
    let (out, err) = texts(&done);
    assert!(
        done.status.success(),
        "{script} {args:?}: {}\n{out}{err}",
        done.status
    );
}

/// Compares a mount with these options, of an image that mke2fs makes of these words, with the kernel's.
fn run(options: &str, mke2fs: &[&str], seed: u64) {
    if !is_root() {
        return skip("three users of two mounts need root");
    }
    if !has("python3") {
        return;
    }
    let (Some(ours), Some(theirs)) = (Bed::new(mke2fs), Bed::new(mke2fs)) else {
        return;
    };
    let seed = number("DIORITE_SEED", seed).to_string();
    let steps = number("DIORITE_STEPS", 400).to_string();
    eprintln!("differ {options} {mke2fs:?}: DIORITE_SEED={seed} DIORITE_STEPS={steps}");
    ours.open_to_all();
    theirs.open_to_all();
    let image = |bed: &Bed| bed.image.to_str().unwrap().to_owned();
    let by_kernel = |bed: &Bed, at: &Path| Mount::new(&image(bed), at, "noatime");
    let Some(kernel) = by_kernel(&theirs, &theirs.at) else {
        return;
    };
    ours.mount(&["-o", options]);
    let mut words = vec![&seed[..], &steps];
    if options.contains("writeback_cache") {
        // The times of files are the kernel's own then.
        words.push("timeless");
    }
    if mke2fs.iter().any(|word| word.contains("^extent")) {
        words.push("unallocated");
    }
    compare(&ours.at, &theirs.at, &words);
    ours.unmount();
    drop(kernel);
    ours.check();
    theirs.check();
    // What was cached is gone: everything comes from the images.
    let kernel = by_kernel(&theirs, &theirs.at);
    ours.mount(&["-o", options]);
    compare(&ours.at, &theirs.at, &[]);
    ours.unmount();
    let both = by_kernel(&ours, &ours.at);
    compare(&ours.at, &theirs.at, &[]);
    drop((both, kernel));
    said("rm", &["-f", &image(&ours), &image(&theirs)]);
}

#[test]
fn cached() {
    run("noatime", &["-b", "4096"], 1);
}

#[test]
fn of_small_blocks() {
    run("noatime,io_uring", &["-b", "1024"], 2);
}

#[test]
fn collected_by_the_kernel() {
    run("noatime,writeback_cache", &["-b", "4096"], 3);
}

#[test]
fn past_the_cache() {
    run("noatime,direct_io", &["-b", "4096", "-O", "inline_data"], 4);
}

#[test]
fn of_an_old_volume() {
    run(
        "noatime",
        &["-O", "^extent,^64bit,^metadata_csum", "-b", "4096"],
        5,
    );
}
