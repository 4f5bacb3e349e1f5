//! Several processes on one mount; what they leave reads the same twice through the cache, past it, by a mapping, after a new mount, and by
//! the kernel.
//!
//! Input: `DIORITE_SEED`, `DIORITE_LOAD_SECONDS`. Output: nothing, or the files that differ. Limits: a seed repeats what each process asks
//! for, not how the processes meet.

use super::{number, paths, python};
use crate::bed::{Bed, has, is_root};
use crate::common::{Mount, skip};

/// Where the kernel does not collect writes, nobody stores through a mapping while others extend the file: its FUSE client then loses bytes
/// behind the old end, for every server (docs/mount.md).
const NO_STORES: &[&str] = &["mwrites"];

fn run(options: &str, mke2fs: &[&str], left_out: &[&str]) {
    if !is_root() {
        return skip("three users of a mount need root");
    }
    if !has("python3") {
        return;
    }
    let Some(bed) = Bed::sized(mke2fs, "128M") else {
        return;
    };
    let clock = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    let seed = number("DIORITE_SEED", clock.into()).to_string();
    let seconds = number("DIORITE_LOAD_SECONDS", 4);
    eprintln!("load {options}: DIORITE_SEED={seed} DIORITE_LOAD_SECONDS={seconds}");
    bed.open_to_all();
    let state = bed.image.with_file_name("state");
    let read = |words: &[&str]| {
        let patience = seconds + 300;
        let args = [&[&*bed.at, &*state], &paths(words)[..]].concat();
        python("load.py", patience, &args);
    };
    bed.mount(&["-o", options]);
    read(&[&[&*seed, &seconds.to_string()], left_out].concat());
    bed.unmount();
    bed.check();
    bed.mount(&["-o", options]);
    read(&[]);
    bed.unmount();
    if Mount::new(bed.image.to_str().unwrap(), &bed.at, "ro")
        .map(|_mounted| read(&[]))
        .is_none()
    {
        skip("the kernel mounts no loop device here");
    }
}

#[test]
fn of_cached_files() {
    run("rw", &["-b", "4096"], NO_STORES);
}

#[test]
fn of_small_blocks_by_rings() {
    run("io_uring", &["-b", "1024", "-O", "inline_data"], NO_STORES);
}

#[test]
fn of_collected_writes() {
    run("writeback_cache", &["-b", "4096"], &[]);
}
