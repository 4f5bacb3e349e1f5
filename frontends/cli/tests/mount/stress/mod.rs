//! Many random operations at once, on files whose contents are known.
//!
//! | file | what |
//! |---|---|
//! | `mod` | mounts, workers side by side, the judges of the result |
//! | `worker` | a worker's names |
//! | `data` | the data of its files |
//! | `model` | what must be there |
//!
//! Input: `DIORITE_SEED`, `DIORITE_STRESS_STEPS`. Output: nothing, or the step at which a worker saw something else than its model says.
//! Invariants: each worker has a directory of its own; one more directory belongs to all of them, and only the consistency of the volume is
//! judged there. Limits: a seed repeats what each worker asks for, not how the workers meet.

mod data;
mod model;
mod worker;

use crate::bed::{Bed, DIORITE, said};
use crate::common::Mount;
use model::Model;
use rustix::fs::{CWD, OFlags, RenameFlags};
use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use worker::{Random, Worker};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Workers on a mount with these options, and what the mount, e2fsck, diorite and the kernel say of what they leave.
fn run(options: &str, mke2fs: &[&str]) {
    let Some(bed) = Bed::new(mke2fs) else { return };
    let steps = number("DIORITE_STRESS_STEPS").unwrap_or(3000);
    let clock = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = number("DIORITE_SEED").unwrap_or(clock);
    eprintln!("stress {options}: DIORITE_SEED={seed}");
    bed.mount(&["-o", options]);
    let shared = bed.path("shared");
    fs::create_dir(&shared).unwrap();
    let models: Vec<(PathBuf, Model)> = std::thread::scope(|scope| {
        let worker = |n: u64| {
            let root = bed.path(&format!("worker-{n}"));
            scope.spawn(move || Worker::new(root, seed ^ n << 56).run(steps as usize))
        };
        let workers: Vec<_> = (1..=3).map(worker).collect();
        for n in 8..10 {
            let shared = &shared;
            scope.spawn(move || meddle(shared, Random(seed ^ n << 56), steps));
        }
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    let verify = |at: &Path, what: &str| {
        for (root, model) in &models {
            model.verify(&at.join(root.file_name().unwrap()), what);
        }
    };
    verify(&bed.at, options);
    bed.unmount();
    bed.check();
    said(DIORITE, &["check", "-f", bed.image.to_str().unwrap()]);
    bed.mount(&["-o", options]);
    verify(&bed.at, &format!("{options}, after a mount"));
    bed.unmount();
    let by_kernel = Mount::new(bed.image.to_str().unwrap(), &bed.at, "ro");
    if by_kernel.is_some() {
        verify(&bed.at, "the kernel's mount");
    }
    drop(by_kernel);
    bed.check();
}

/// Whatever can be done to a few names that others use, too. Errors are expected.
fn meddle(dir: &Path, mut random: Random, steps: u64) {
    for _ in 0..steps {
        let names = ["a", "b", "c", "d/a", "d/b", "d", "e", "e/a"];
        let mut name = || dir.join(names[random.below(names.len())]);
        let (one, other) = (name(), name());
        match random.below(12) {
            0..3 => {
                let mut how = fs::File::options();
                let flags = [0, libc::O_DIRECT, libc::O_APPEND, libc::O_TRUNC][random.below(4)];
                how.write(true).create(true).custom_flags(flags);
                let len = 1 + random.below(20_000);
                let data = random.bytes(len);
                let at = random.below(40_000) as u64;
                let _ = how.open(one).and_then(|file| file.write_at(&data, at));
            }
            3 => drop(fs::read(one)),
            4 => drop(fs::remove_file(one)),
            5 => drop(fs::create_dir(one)),
            6 => drop(fs::remove_dir(one)),
            7 => drop(fs::hard_link(one, other)),
            8 => drop(fs::rename(one, other)),
            9 => {
                let flags = RenameFlags::EXCHANGE;
                let _ = rustix::fs::renameat_with(CWD, one, CWD, other, flags);
            }
            10 => drop(fs::read_dir(one).map(Iterator::count)),
            _ => {
                let flags = OFlags::RDWR | OFlags::CLOEXEC;
                if let Ok(file) = rustix::fs::open(one, flags, rustix::fs::Mode::empty()) {
                    let _ = rustix::fs::ftruncate(&file, random.below(50_000) as u64);
                    let _ = rustix::fs::fdatasync(&file);
                }
            }
        }
    }
}

#[test]
fn cached() {
    run("rw", &["-b", "4096"]);
}

#[test]
fn cached_and_written_back_by_the_kernel() {
    run("writeback_cache", &["-b", "1024"]);
}

#[test]
fn past_the_cache() {
    run("direct_io,io_uring", &["-b", "1024"]);
}

#[test]
fn through_the_journal() {
    run("data=journal", &["-b", "4096"]);
}
