//! The FUSE mount beside fuse2fs and the kernel's ext4, with fio, tar and others as users.
//!
//! | file | what |
//! |---|---|
//! | `mounts` | one image, mounted by this program, by fuse2fs, by the kernel |
//! | `empty` | a FUSE server that has only names and sizes: the most that the kernel's client permits |
//! | `loads` | fio's loads on one file |
//! | `tree` | a source tree: unpacked, read, removed |
//! | `user` | a source tree, by an ordinary user on a mount of that user's |
//!
//! Input: an image in memory, made here. Output: `fuse-X-f2` against fuse2fs, `fuse-X-k` against the kernel's ext4, `fuse-X-of-empty`
//! against the empty server, `fuse-X-rings`, `fuse-X-rings-k` and `fuse-X-rings-of-empty` through io_uring against `/dev/fuse`, the
//! kernel's ext4 and an empty server that has io_uring, too. Invariants: diorite and fuse2fs open the image file, the kernel mounts it
//! through a loop device with direct I/O; a run mounts and unmounts, and only the user's own time counts. Limits: root; what is not
//! installed, or off in the kernel, is skipped.

mod empty;
mod loads;
mod mounts;
mod tree;
mod user;

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
        least(
            "fuse-seeds-write-k",
            0.7,
            "T1, 4k random direct overwrite, libaio, depth 64: diorite mount / the kernel's ext4",
        ),
        least(
            "fuse-seeds-write-of-empty",
            0.9,
            "the same, diorite mount / a server that does nothing (one of the two is enough)",
        ),
        least(
            "fuse-seeds-one-cpu-k",
            0.7,
            "T2, the same, depth 128, fio on one processor: diorite mount / the kernel's ext4",
        ),
        least(
            "fuse-seeds-one-cpu-of-empty",
            0.9,
            "the same, diorite mount / a server that does nothing",
        ),
        least(
            "fuse-seeds-readers-k",
            0.7,
            "T3, 4k random direct read of one file, 4 threads: diorite mount / the kernel's ext4",
        ),
        least(
            "fuse-seeds-readers-of-empty",
            0.9,
            "the same, diorite mount / a server that does nothing",
        ),
        least(
            "fuse-seeds-unaligned-k",
            0.7,
            "T4, 2k random direct overwrite, 8 jobs of depth 256: diorite mount / the kernel's ext4",
        ),
        least(
            "fuse-seeds-unaligned-of-empty",
            0.9,
            "the same, diorite mount / a server that does nothing",
        ),
        least(
            "fuse-seeds-buffered-k",
            0.7,
            "T5, 4k random write through the page cache, 16 jobs: diorite mount / the kernel's ext4",
        ),
        least(
            "fuse-seeds-buffered-of-empty",
            0.9,
            "the same, diorite mount / a server that does nothing",
        ),
        least(
            "fuse-unpack-of-empty",
            0.9,
            "unpack a source tree: diorite mount / a server that does nothing",
        ),
        least(
            "fuse-user",
            0.9,
            "an ordinary user unpacks a source tree: a mount of that user's / one of root's",
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
        size: len,
    };
    std::fs::create_dir(&bed.at).map_err(|e| Failure::host("cannot make a mount point", e))?;
    let rings = mounts::why_no_rings();
    if let Some(why) = &rings {
        report.note(format!("fuse-*-rings: skipped: {why}"))?;
    }
    for load in loads::all(options) {
        report.heading(load.heading)?;
        let mut peers = vec![KERNEL];
        if !load.is_seed {
            peers.push(FUSE2FS);
        }
        if rings.is_none() {
            peers.push(RINGS);
        }
        let user = |at: &Path, job: &Job| (load.run)(at, len, job);
        let rounds = bed.interleave(&peers, &load.job, options.plan_of(3), &user);
        if let Some(rounds) = report.unless_skipped(load.id, rounds)? {
            say(load.id, &peers, &rounds, report)?;
        }
    }
    tree::run(&bed, &dir, options, report)?;
    user::run(&dir, options, report)
}

/// Beside whom a load runs, and the word of its ratio.
type Beside = (Program, &'static str);

const KERNEL: Beside = (Program::Kernel, "k");
const FUSE2FS: Beside = (Program::Fuse2fs, "f2");
/// Here the ratio is that of the same mount, through io_uring and through `/dev/fuse`.
const RINGS: Beside = (Program::Rings, "rings");

/// The image, its mount point, and the bytes of its file.
struct Bed {
    image: PathBuf,
    at: PathBuf,
    size: u64,
}

type User<'a> = dyn Fn(&Path, &Job) -> Result<Run, Failure> + 'a;

impl Bed {
    /// One load on a mount of diorite, on those beside it, and on a server that does nothing.
    fn interleave(
        &self,
        peers: &[Beside],
        job: &Job,
        plan: Plan,
        user: &User<'_>,
    ) -> Result<Rounds, Failure> {
        let arm = |program: Program| {
            let (image, at) = (&*self.image, &*self.at);
            let mounter = Mounter { program, image, at };
            mounter.arm(job, |mount, job| user(mount.path(), job))
        };
        let mut arms = vec![arm(Program::Diorite)];
        arms.extend(peers.iter().map(|(program, _)| arm(*program)));
        let nothing = |rings| {
            let (at, size) = (&*self.at, self.size);
            Nothing { at, size, rings }.arm(job, |_, job| user(&self.at, job))
        };
        arms.push(nothing(false));
        if peers.contains(&RINGS) {
            arms.push(nothing(true));
        }
        interleave(&arms, plan)
    }
}

/// Reports what [`Bed::interleave`] has measured.
fn say(id: &str, peers: &[Beside], rounds: &Rounds, report: &mut Report) -> Result<(), Failure> {
    report.rows(rounds, LABEL)?;
    for (at, (program, word)) in peers.iter().enumerate() {
        let spread = match program {
            Program::Rings => rounds.ratio(at + 1, 0),
            _ => rounds.ratio(0, at + 1),
        };
        report.ratio(&format!("{id}-{word}"), &spread, LABEL, true)?;
    }
    let rings = peers.iter().position(|peer| *peer == RINGS);
    let kernel = peers.iter().position(|peer| *peer == KERNEL);
    if let (Some(rings), Some(kernel)) = (rings, kernel) {
        let spread = rounds.ratio(rings + 1, kernel + 1);
        report.ratio(&format!("{id}-rings-k"), &spread, LABEL, true)?;
    }
    let empty = peers.len() + 1;
    if let Some(rings) = rings {
        let spread = rounds.ratio(rings + 1, empty + 1);
        report.ratio(&format!("{id}-rings-of-empty"), &spread, LABEL, true)?;
    }
    let spread = rounds.ratio(0, empty);
    report.ratio(&format!("{id}-of-empty"), &spread, LABEL, true)
}
