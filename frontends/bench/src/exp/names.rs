//! Names: creating, moving and removing files against the kernel, and the cost of a lookup in a huge directory.
//!
//! Input: devices made new for every run. Output: `create-kernel`, `unlink-kernel`, `rename-kernel`, `lookup-million`.
//! Invariants: both sides make the same calls with the same paths from threads of this process, each in directories of its own;
//! neither the preparation nor a sync after the measured calls is counted. Limits: commits in the background continue
//! meanwhile, on both sides.

use super::super::args::Options;
use super::super::bed::{Fresh, Ready, Space};
use super::super::calls::{until_end, within};
use super::super::drive::Run;
use super::super::failure::Failure;
use super::super::job::{Job, Rw};
use super::super::load::Rng;
use super::super::peer::{KernelAnew, Peer};
use super::super::report::Report;
use super::super::rounds::{Arm, interleave};
use super::super::targets::{least, most};
use super::fresh_rows;
use super::{Experiment, OwnOptions};
use diorite::dir::RenameFlags;
use diorite::{OpenOptions, Volume};
use std::path::{Path, PathBuf};

const DIRS: u64 = 100;
const THREADS: u64 = 2;
/// The number of names in the small directory.
const FEW: u64 = 1000;
/// The limit of the metadata cache for lookups, so that all metadata stays in memory.
const WARM: usize = 1 << 30;

/// Which of the calls is measured; the calls before it in this list are made first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measured {
    Create,
    Rename,
    Unlink,
}

/// How many files and names an experiment creates.
#[derive(Clone, Copy, clap::Args)]
struct Counts {
    /// Files created, moved and removed
    #[arg(long, default_value_t = 100_000)]
    files: u64,
    /// Names of the large directory
    #[arg(long, default_value_t = 1_000_000)]
    directory: u64,
}

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "names",
    about: "Files created, moved and removed, against the kernel; lookups in a directory of a million names",
    goals: &[
        least(
            "create-kernel",
            2.0,
            "creating 100,000 empty files in 100 directories, 2 threads: diorite / the kernel's ext4",
        ),
        least(
            "unlink-kernel",
            1.5,
            "deleting them again: diorite / the kernel's ext4",
        ),
        least(
            "rename-kernel",
            1.5,
            "100,000 renames across directories, 2 threads: diorite / the kernel's ext4",
        ),
        most(
            "lookup-million",
            3.0,
            "time per random lookup, warm: directory of 1,000,000 names / of 1,000",
        ),
    ],
    own: Some(OwnOptions::of::<Counts>()),
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    // Inodes for the files and the directories, and the reserved ones.
    let Counts { files, directory } = options.own()?;
    let options = Options {
        inodes: Some(files.max(directory + FEW) + 1000),
        ..options.clone()
    };
    options.on_each_fresh(report, |_, fresh, report| {
        report.device(fresh.label(), &fresh.ready(Space::Empty)?.io_engine()?)?;
        for (id, measured) in [
            ("create-kernel", Measured::Create),
            ("rename-kernel", Measured::Rename),
            ("unlink-kernel", Measured::Unlink),
        ] {
            beside_kernel(id, &options, measured, fresh, report)?;
        }
        lookups(&options, fresh, report)
    })
}

impl Measured {
    fn words(self, files: u64) -> String {
        let what = match self {
            Measured::Create => "create",
            Measured::Rename => "rename to another directory",
            Measured::Unlink => "unlink",
        };
        format!("{what} {files} files, {DIRS} directories, {THREADS} threads")
    }
}

fn calling(options: &Options, words: String) -> Job {
    Job {
        calls: Some(words),
        ..options.job(Rw::Read, 512, 1)
    }
}

fn beside_kernel(
    id: &str,
    options: &Options,
    measured: Measured,
    fresh: &Fresh,
    report: &mut Report,
) -> Result<(), Failure> {
    let files = options.own::<Counts>()?.files;
    report.heading(&measured.words(files))?;
    let job = calling(options, measured.words(files));
    let ours = Arm::new("diorite", job.clone(), |_| {
        ours(fresh.ready(Space::Empty)?, files, measured)
    });
    if !options.asks_for_kernel(id, report)? {
        fresh_rows(report, &interleave(&[ours], options.short_plan())?, fresh)?;
        return Ok(());
    }
    let kernel = KernelAnew::on(fresh, Space::Empty).arm(&job, |(mounted, _), _| {
        measure(&Kernels, mounted.path(), files, measured)
    });
    let rounds = interleave(&[ours, kernel], options.plan());
    let Some(rounds) = report.unless_skipped(id, rounds)? else {
        return Ok(());
    };
    fresh_rows(report, &rounds, fresh)?;
    report.ratio(id, &rounds.ratio(0, 1), fresh.label(), fresh.counts)
}

/// The paths for the calls of one thread: of files, and their new names.
struct Paths {
    first: Vec<PathBuf>,
    second: Vec<PathBuf>,
}

/// Each thread's files are in directories of its own, created one directory after the other, as when an archive is unpacked.
fn paths(root: &Path, files: u64) -> Vec<Paths> {
    let of_thread = |thread: u64| {
        let own = DIRS / THREADS;
        let place = |n: u64, step: u64| {
            let dir = thread * own + (n / (files / DIRS).max(1) + step) % own;
            root.join(format!("d{dir:02}/file-{:06}", n * THREADS + thread))
        };
        let all = 0..files / THREADS;
        Paths {
            first: all.clone().map(|n| place(n, 0)).collect(),
            second: all.map(|n| place(n, own / 2)).collect(),
        }
    };
    (0..THREADS).map(of_thread).collect()
}

/// The calls, of diorite or of the kernel.
trait Names: Sync {
    fn make_dir(&self, path: &Path) -> Result<(), Failure>;
    fn create(&self, path: &Path) -> Result<(), Failure>;
    fn rename(&self, from: &Path, to: &Path) -> Result<(), Failure>;
    fn unlink(&self, path: &Path) -> Result<(), Failure>;
}

fn measure(
    names: &impl Names,
    root: &Path,
    files: u64,
    measured: Measured,
) -> Result<Run, Failure> {
    for dir in 0..DIRS {
        names.make_dir(&root.join(format!("d{dir:02}")))?;
    }
    let all = paths(root, files);
    let create = |of: &Paths| of.first.iter().try_for_each(|path| names.create(path));
    let rename = |of: &Paths| {
        let mut both = of.first.iter().zip(&of.second);
        both.try_for_each(|(from, to)| names.rename(from, to))
    };
    let unlink = |of: &Paths| of.first.iter().try_for_each(|path| names.unlink(path));
    let count = files / THREADS * THREADS;
    let created = until_end(&all, count, create)?;
    match measured {
        Measured::Create => Ok(created),
        Measured::Rename => until_end(&all, count, rename),
        Measured::Unlink => until_end(&all, count, unlink),
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

struct Ours<'a>(&'a Volume);

impl Names for Ours<'_> {
    fn make_dir(&self, path: &Path) -> Result<(), Failure> {
        Ok(self.0.mkdir(bytes(path), 0o755).map(drop)?)
    }

    fn create(&self, path: &Path) -> Result<(), Failure> {
        Ok(self.0.create(bytes(path), 0o644).map(drop)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Failure> {
        Ok(self
            .0
            .rename(bytes(from), bytes(to), RenameFlags::default())?)
    }

    fn unlink(&self, path: &Path) -> Result<(), Failure> {
        Ok(self.0.unlink(bytes(path))?)
    }
}

fn ours(ready: Ready<'_>, files: u64, measured: Measured) -> Result<Run, Failure> {
    let volume = ready.volume(&OpenOptions::writable())?;
    let run = measure(&Ours(&volume), Path::new("/"), files, measured)?;
    volume.close()?;
    Ok(run)
}

struct Kernels;

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Failure + '_ {
    move |e| Failure::host(path.display(), e)
}

impl Names for Kernels {
    fn make_dir(&self, path: &Path) -> Result<(), Failure> {
        std::fs::create_dir(path).map_err(failed(path))
    }

    fn create(&self, path: &Path) -> Result<(), Failure> {
        let mut new = std::fs::File::options();
        let made = new.write(true).create_new(true).open(path);
        made.map(drop).map_err(failed(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Failure> {
        std::fs::rename(from, to).map_err(failed(from))
    }

    fn unlink(&self, path: &Path) -> Result<(), Failure> {
        std::fs::remove_file(path).map_err(failed(path))
    }
}

/// Random lookups in two directories of one volume, all of whose metadata is in memory.
fn lookups(options: &Options, fresh: &Fresh, report: &mut Report) -> Result<(), Failure> {
    let many = options.own::<Counts>()?.directory;
    report.heading(&format!(
        "random lookups of one thread, {FEW} names and {many}"
    ))?;
    let open = OpenOptions::writable().metadata_cache(WARM);
    let volume = fresh.ready(Space::Empty)?.volume(&open)?;
    let arms = [("few", FEW), ("many", many)].map(|(dir, count)| {
        let job = calling(options, format!("lookup among {count}"));
        (dir, count, job)
    });
    for (dir, count, _) in &arms {
        fill(&volume, dir, *count)?;
    }
    let arms = arms.map(|(dir, count, job)| {
        let volume = &volume;
        Arm::new(format!("{count} names"), job, move |job| {
            look_up(volume, dir, count, job)
        })
    });
    let rounds = interleave(&arms, options.plan())?;
    fresh_rows(report, &rounds, fresh)?;
    let spread = rounds.ratio(0, 1);
    drop(arms);
    volume.close()?;
    report.ratio("lookup-million", &spread, fresh.label(), fresh.counts)
}

fn name_in(dir: &str, n: u64, path: &mut String) {
    use std::fmt::Write;
    path.clear();
    write!(path, "/{dir}/name-{n:07}").expect("a string takes all that is written to it");
}

fn fill(volume: &Volume, dir: &str, count: u64) -> Result<(), Failure> {
    volume.mkdir(&format!("/{dir}"), 0o755)?;
    let mut path = String::new();
    for n in 0..count {
        name_in(dir, n, &mut path);
        volume.create(&path, 0o644)?;
    }
    Ok(())
}

fn look_up(volume: &Volume, dir: &str, count: u64, job: &Job) -> Result<Run, Failure> {
    let (mut rng, mut path) = (Rng::new(job.seed), String::new());
    within(job, || {
        name_in(dir, rng.below(count), &mut path);
        Ok(volume.resolve(path.as_bytes(), true).map(drop)?)
    })
}
