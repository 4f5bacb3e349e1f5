//! The FUSE mount beside fuse2fs and the kernel's ext4, with fio, tar and others as users.
//!
//! | file | what |
//! |---|---|
//! | `mounts` | one image, mounted by this program, by fuse2fs, by the kernel |
//! | `empty` | a FUSE server that has only names and sizes: the most that the kernel's client permits |
//! | `loads` | fio's loads on one file |
//! | `tree` | a source tree: unpacked, read, removed |
//!
//! Input: an image in memory, made here. Output: `fuse-X-f2` against fuse2fs, `fuse-X-k` against the kernel's ext4, `fuse-X-of-empty`
//! against the empty server. Invariants: diorite and fuse2fs open the image file, the kernel mounts it through a loop device with direct
//! I/O; a run mounts and unmounts, and only the user's own time counts. Limits: root; what is not installed is skipped.

mod empty;
mod loads;
mod mounts;
mod tree;

use super::super::args::Options;
use super::super::bed::{Image, Scratch, make_image};
use super::super::drive::Run;
use super::super::failure::Failure;
use super::super::host;
use super::super::job::Job;
use super::super::peer::Peer;
use super::super::report::Report;
use super::super::rounds::{Plan, Rounds, interleave};
use super::super::targets::least;
use super::Experiment;
use empty::Nothing;
use mounts::{Mounter, Program};
use std::path::{Path, PathBuf};

const LABEL: &str = "image on tmpfs";

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "fuse",
    about: "The FUSE mount, against fuse2fs, the kernel's ext4 and a server that does nothing: fio and tar as users (root)",
    goals: &[
        least(
            "fuse-read-f2",
            3.0,
            "4k random direct read, depth 64, 2 jobs: diorite mount / fuse2fs",
        ),
        least(
            "fuse-read-k",
            0.5,
            "the same, diorite mount / the kernel's ext4",
        ),
        least(
            "fuse-write-f2",
            6.0,
            "4k random direct overwrite, depth 64: diorite mount / fuse2fs",
        ),
        least(
            "fuse-write-k",
            0.5,
            "the same, diorite mount / the kernel's ext4",
        ),
        least(
            "fuse-unaligned-f2",
            6.0,
            "2k direct overwrite, 8 jobs of depth 256: diorite mount / fuse2fs",
        ),
        least(
            "fuse-unaligned-k",
            0.4,
            "the same, diorite mount / the kernel's ext4",
        ),
        least(
            "fuse-append-f2",
            1.4,
            "4k direct append: diorite mount / fuse2fs",
        ),
        least(
            "fuse-append-k",
            0.4,
            "the same, diorite mount / the kernel's ext4",
        ),
        least(
            "fuse-holes-f2",
            10.0,
            "4k random direct write into holes: diorite mount / fuse2fs",
        ),
        least(
            "fuse-holes-k",
            1.0,
            "the same, diorite mount / the kernel's ext4",
        ),
        least(
            "fuse-seqread-f2",
            5.0,
            "1 MiB sequential direct read, depth 8: diorite mount / fuse2fs",
        ),
        least(
            "fuse-seqread-k",
            0.8,
            "the same, diorite mount / the kernel's ext4",
        ),
        least(
            "fuse-seqwrite-f2",
            6.0,
            "1 MiB sequential direct write, depth 8: diorite mount / fuse2fs",
        ),
        least(
            "fuse-seqwrite-k",
            0.8,
            "the same, diorite mount / the kernel's ext4",
        ),
        least(
            "fuse-unpack-f2",
            3.0,
            "unpack a source tree: diorite mount / fuse2fs",
        ),
        least(
            "fuse-readall-f2",
            3.0,
            "find and cat all of it, nothing cached: diorite mount / fuse2fs",
        ),
        least("fuse-rm-f2", 3.0, "rm -r of it: diorite mount / fuse2fs"),
        least(
            "fuse-fsync-k",
            0.5,
            "4 threads, 4k write and fsync: diorite mount / the kernel's ext4",
        ),
    ],
    own: None,
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    if options.image.is_some() {
        return Err(Failure::usage(
            "this experiment makes an image of its own: --image is not for it",
        ));
    }
    if !host::is_root() {
        return Err(Failure::unavailable("the kernel's mount needs root"));
    }
    let dir = Scratch::in_memory()?;
    report.device(LABEL, "mounts of one image file")?;
    let len = options.file_size;
    let image = make_image(&dir, Image::with_file(4 * len + (1 << 30), len))?;
    let bed = Bed {
        image,
        at: dir.path().join("mnt"),
    };
    std::fs::create_dir(&bed.at).map_err(|e| Failure::host("cannot make a mount point", e))?;
    for load in loads::all(options) {
        report.heading(load.heading)?;
        let user = |at: &Path, job: &Job| (load.run)(at, len, job);
        // A run mounts and unmounts.
        let rounds = bed.rounds(&load.job, options.plan_of(3), options, &user);
        if let Some(rounds) = report.unless_skipped(load.id, rounds)? {
            tell(load.id, &rounds, report)?;
        }
    }
    tree::run(&bed, &dir, options, report)
}

/// The image and its mount point.
struct Bed {
    image: PathBuf,
    at: PathBuf,
}

type User<'a> = dyn Fn(&Path, &Job) -> Result<Run, Failure> + 'a;

impl Bed {
    /// One load on all mounts, in turn.
    fn rounds(
        &self,
        job: &Job,
        plan: Plan,
        options: &Options,
        user: &User<'_>,
    ) -> Result<Rounds, Failure> {
        let arm = |program: Program| {
            let (image, at) = (&*self.image, &*self.at);
            let mounter = Mounter { program, image, at };
            mounter.arm(job, |mount, job| user(mount.path(), job))
        };
        let nothing = Nothing {
            at: &self.at,
            size: options.file_size,
        };
        let arms = [
            arm(Program::Diorite),
            arm(Program::Fuse2fs),
            arm(Program::Kernel),
            nothing.arm(job, |_, job| user(&self.at, job)),
        ];
        interleave(&arms, plan)
    }
}

/// The rows of a load, and the ratios whose ids begin with `id`.
fn tell(id: &str, rounds: &Rounds, report: &mut Report) -> Result<(), Failure> {
    report.rows(rounds, LABEL)?;
    for (name, under) in [("f2", 1), ("k", 2), ("of-empty", 3)] {
        let id = format!("{id}-{name}");
        report.ratio(&id, &rounds.ratio(0, under), LABEL, true)?;
    }
    Ok(())
}
