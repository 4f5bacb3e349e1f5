//! The command line of `diorite bench`.
//!
//! Input: the process's arguments. Output: [`Args`]. Invariant: options and values with fio's names mean what they mean to fio.
//! Limits: parsing does not check for root; an experiment that needs root says so when it runs.

use super::bed::{Bed, BedOptions, Fresh, On};
use super::failure::{Failure, FailureKind};
use super::job::{Job, Rw, parse_block, parse_bytes, parse_duration};
use super::report::Report;
use super::rounds::Plan;
use clap::ValueEnum;
use diorite::Policy;
use diorite_block::IoEngine;
use std::path::PathBuf;
use std::time::Duration;

/// Measure diorite against the raw device, its own policies and the kernel.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub(super) what: What,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum What {
    /// T1, T2: inline completions against completions by a worker; overwrites against the raw device
    Completion(Options),
    /// T3: 1, 2 and 4 threads that read one file with no inode lock, a shared one and an exclusive one
    ReadScaling(Options),
    /// T4: overwrites of 2 KiB in blocks of 4 KiB, concurrent and one at a time
    Unaligned(Options),
    /// Instructions per read; memory and reads that opening takes; the cost of many extents
    Cost(Options),
    /// diorite's queue of the raw device against fio's io_uring engine
    Raw(Options),
    /// A loop device on a file, and three volumes inside each other, against the file itself
    LoopLayer(Options),
    /// T5: the loop device, direct and asynchronous against one worker with buffered I/O; its memory, its layers, the kernel's
    Loop(LoopOptions),
    /// Appends to one file: against the kernel; asynchronous and waiting; durable
    Append(Options),
    /// Random writes into holes, of whole blocks and of sectors; memory while a huge sparse file is filled
    Holes(Options),
    /// Random writes into preallocated space, against overwrites; journal handles used
    Unwritten(Options),
    /// Writes with an fsync after each, and durable writes (O_DSYNC)
    Fsync(Options),
    /// Atomic overwrites of 16 KiB, against pages written twice and against plain overwrites
    Atomic(Options),
    /// Files created, moved and removed, against the kernel; lookups in a directory of a million names
    Names(NamesOptions),
    /// The page cache: buffered writes and reads against the kernel and the raw device; direct writes beside cached pages
    Buffered(BufferedOptions),
    /// The FUSE mount, against fuse2fs, the kernel's ext4 and a server that does nothing: fio and tar as users (root)
    Fuse(Options),
    /// The NBD server, against qemu-nbd, nbdkit and a server that does nothing: fio and nbdcopy as clients
    Nbd(Options),
    /// Images made of trees and archives, against mke2fs and tar on a mount of the kernel; empty ones, against mke2fs
    Image(Options),
    /// The consistency check, against e2fsck; its memory
    Check(CheckOptions),
    /// One load that the options describe, with fio's names for them
    Run(RunOptions),
    #[command(hide = true)]
    CostChild(ChildOptions),
}

/// What to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Peer {
    /// The kernel's ext4 on the same device (root)
    Kernel,
}

/// The values of the global options that a load uses.
#[derive(Clone, Debug, Default)]
pub struct Common {
    /// Use only this I/O engine.
    pub io_engine: Option<IoEngine>,
    /// What writes wait for.
    pub policy: Policy,
    /// Open images even if another program has them open.
    pub force: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Options {
    /// Measured time of each run
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    pub(super) runtime: Duration,
    /// Time before the measurement that is not counted
    #[arg(long, default_value = "100ms", value_parser = parse_duration)]
    pub(super) ramp_time: Duration,
    /// Minimum number of rounds
    #[arg(long, default_value_t = 5)]
    pub(super) rounds: usize,
    /// Maximum number of rounds, run while two runs of the same load differ by more than half a percent
    #[arg(long, default_value_t = 15)]
    pub(super) max_rounds: usize,
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// The global option --io-engine: use only this I/O engine.
    #[arg(skip)]
    pub(super) io_engine: Option<IoEngine>,
    /// The option --ignore-lock: open the image even if another program has it open.
    #[arg(skip)]
    pub(super) force: bool,
    /// Devices to make and run on, one after the other
    #[arg(long, value_delimiter = ',', default_value = "default")]
    pub(super) on: Vec<On>,
    /// An existing image to run on instead; the load overwrites the file named by --file
    #[arg(long, value_name = "LOCATOR", requires = "file")]
    pub(super) image: Option<String>,
    /// The file in --image
    #[arg(long, value_name = "PATH", requires = "image")]
    pub(super) file: Option<String>,
    /// Numbers of files and names, for the experiments that create them.
    #[arg(skip)]
    pub(super) names: Counts,
    /// What the experiment `loop` is told besides.
    #[arg(skip)]
    pub(super) loops: Loops,
    /// Inodes of the images that the experiment makes; none: mke2fs's default.
    #[arg(skip)]
    pub(super) inodes: Option<u64>,
    /// Size of the file in the images that the experiment makes
    #[arg(long, default_value = "1G", value_parser = parse_bytes)]
    pub(super) file_size: u64,
    /// Add rows for comparison
    #[arg(long, value_enum)]
    pub(super) peer: Option<Peer>,
    /// Print one JSON object, and nothing else on standard output
    #[arg(long)]
    pub(super) json: bool,
}

impl Options {
    /// A job with the run time, ramp time and seed of these options.
    pub(super) fn job(&self, rw: Rw, bs: u32, iodepth: u32) -> Job {
        Job {
            runtime: self.runtime,
            ramp_time: self.ramp_time,
            seed: self.seed,
            ..Job::new(rw, bs, iodepth)
        }
    }

    fn with_files(&self, files: u64) -> Options {
        let names = Counts {
            files,
            ..Counts::default()
        };
        Options {
            names,
            ..self.clone()
        }
    }

    /// The numbers of rounds for a ratio that has a target.
    pub(super) fn plan(&self) -> Plan {
        Plan {
            least: self.rounds,
            most: self.max_rounds.max(self.rounds),
        }
    }

    /// The numbers of rounds for rows without a target, and for those whose runs take long: at most 2.
    pub(super) fn short_plan(&self) -> Plan {
        self.plan_of(2)
    }

    /// So many rounds at most.
    pub(super) fn plan_of(&self, most: usize) -> Plan {
        let rounds = self.rounds.min(most);
        Plan {
            least: rounds,
            most: rounds,
        }
    }

    pub(super) fn bed_options(&self) -> BedOptions {
        BedOptions {
            io_engine: self.io_engine,
            force: self.force,
            file_size: self.file_size,
            inodes: self.inodes,
        }
    }

    /// Runs `experiment` on every bed given by `--on`. If there is more than one, a bed that is not available on this machine is
    /// skipped, and the report says why.
    pub(super) fn on_each(
        &self,
        report: &mut Report,
        mut experiment: impl FnMut(&Bed, &mut Report) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if let (Some(image), Some(file)) = (&self.image, &self.file) {
            let options = self.bed_options();
            return experiment(&Bed::given(image, file, &options), report);
        }
        self.each(report, |on, report| experiment(&self.bed(on)?, report))
    }

    /// Like [`Options::on_each`], but with a newly made device for every run.
    pub(super) fn on_each_fresh(
        &self,
        report: &mut Report,
        mut experiment: impl FnMut(On, &Fresh, &mut Report) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.image.is_some() {
            return Err(Failure::usage(
                "this experiment makes a new image for every run: --image is not for it",
            ));
        }
        let options = self.bed_options();
        self.each(report, |on, report| {
            experiment(on, &Fresh::new(on, &options)?, report)
        })
    }

    /// Fails as unavailable if `--on` names neither zram nor the default: the targets that name zram are measured only there.
    pub(super) fn may_use_zram(&self) -> Result<(), Failure> {
        if self
            .on
            .iter()
            .any(|on| matches!(on, On::Default | On::Zram))
        {
            return Ok(());
        }
        Err(Failure::unavailable(
            "it runs on zram, which --on leaves out",
        ))
    }

    /// Makes a bed of this kind, with a file whose blocks are written.
    pub(super) fn bed(&self, on: On) -> Result<Bed, Failure> {
        let options = self.bed_options();
        match on {
            On::Default => Bed::default_device(&options),
            On::File => Bed::plain_file(&options),
            On::Zram => Bed::zram(&options),
            On::Mem => Bed::mem(&options),
        }
    }

    fn each(
        &self,
        report: &mut Report,
        mut experiment: impl FnMut(On, &mut Report) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for on in &self.on {
            match experiment(*on, report) {
                Err(e) if e.kind == FailureKind::Unavailable && self.on.len() > 1 => {
                    report.note(format!("skipped: {e}"))?;
                }
                other => other?,
            }
        }
        Ok(())
    }
}

/// How many files and names an experiment creates.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct Counts {
    /// Files created, moved and removed
    #[arg(long, default_value_t = 100_000)]
    pub(super) files: u64,
    /// Names of the large directory
    #[arg(long, default_value_t = 1_000_000)]
    pub(super) directory: u64,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct NamesOptions {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    counts: Counts,
}

impl NamesOptions {
    /// The options in the form that every experiment takes.
    pub(super) fn with_counts(&self) -> Options {
        Options {
            names: self.counts,
            ..self.options.clone()
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct BufferedOptions {
    #[command(flatten)]
    options: Options,
    /// Small files created, written and closed
    #[arg(long, default_value_t = 100_000)]
    files: u64,
}

impl BufferedOptions {
    /// The options in the form that every experiment takes.
    pub(super) fn with_files(&self) -> Options {
        self.options.with_files(self.files)
    }
}

/// The volumes of the experiment `loop`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Loops {
    /// Bytes that the buffered loads read or write; the pages of both volumes have an eighth of that, and a hard disk's load 1/128. The
    /// targets apply to the default
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_bytes)]
    pub(super) set: u64,
    /// Keep the images: write them as outer.img and inner.img to this directory
    #[arg(long, value_name = "DIR")]
    pub(super) keep: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct LoopOptions {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    loops: Loops,
}

impl LoopOptions {
    /// The options in the form that every experiment takes.
    pub(super) fn with_loops(&self) -> Options {
        Options {
            loops: self.loops.clone(),
            ..self.options.clone()
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct CheckOptions {
    #[command(flatten)]
    options: Options,
    /// Files in the image, of 44 KiB each; the targets apply to the default number
    #[arg(long, default_value_t = 500_000)]
    files: u64,
}

impl CheckOptions {
    /// The options in the form that every experiment takes.
    pub(super) fn with_files(&self) -> Options {
        self.options.with_files(self.files)
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct RunOptions {
    /// A device, or a file of the host (also on a kernel mount), used without a file system of diorite
    #[arg(
        long,
        value_name = "LOCATOR",
        conflicts_with = "image",
        required_unless_present = "image"
    )]
    pub(super) device: Option<String>,
    /// An image; requires --file
    #[arg(long, value_name = "LOCATOR", requires = "file")]
    pub(super) image: Option<String>,
    /// The file in --image; a load that writes overwrites it
    #[arg(long, value_name = "PATH", requires = "image")]
    pub(super) file: Option<String>,
    /// Allow a load that writes to overwrite --device
    #[arg(long)]
    pub(super) overwrite: bool,
    #[arg(long, value_enum, default_value = "randread")]
    pub(super) rw: Rw,
    /// Bytes per request
    #[arg(long, default_value = "4k", value_parser = parse_block)]
    pub(super) bs: u32,
    #[arg(long, default_value_t = 64)]
    pub(super) iodepth: u32,
    /// Threads, each with a queue of its own
    #[arg(long, default_value_t = 1)]
    pub(super) numjobs: u32,
    #[arg(long, default_value = "5s", value_parser = parse_duration)]
    pub(super) runtime: Duration,
    #[arg(long, default_value = "500ms", value_parser = parse_duration)]
    pub(super) ramp_time: Duration,
    /// Use only this many bytes from the start
    #[arg(long, value_parser = parse_bytes)]
    pub(super) size: Option<u64>,
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Write patterns, check every read, and read everything back at the end
    #[arg(long)]
    pub(super) verify: bool,
    /// Maximum number of requests per submission
    #[arg(long)]
    pub(super) iodepth_batch_submit: Option<u32>,
    /// Completions to wait for at a time
    #[arg(long)]
    pub(super) iodepth_batch_complete_min: Option<u32>,
    /// Make each write durable before it completes (O_DSYNC)
    #[arg(long)]
    pub(super) dsync: bool,
    /// Make each write atomic: all of it or nothing after a power cut (RWF_ATOMIC); with --image only
    #[arg(long, requires = "image")]
    pub(super) atomic: bool,
    /// Use blocking calls, one at a time
    #[arg(long)]
    pub(super) blocking: bool,
    /// Run all threads on one CPU
    #[arg(long)]
    pub(super) one_cpu: bool,
    /// Run once for each of these policies of the volume, one row each: linux-6.19,diorite
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) policies: Vec<Policy>,
    /// The global options: I/O engine, policy, and whether to ignore a lock.
    #[arg(skip)]
    pub(super) common: Common,
    /// Print one JSON object, and nothing else on standard output
    #[arg(long)]
    pub(super) json: bool,
}

/// What a child process of the experiment `cost` measures for its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Child {
    Engine,
    Overwrite,
    /// Writes past the end of a file
    Append,
    /// Writes into holes, each block once
    Fill,
    Raw,
    Open,
    /// Random writes into a hole, of zeros
    Sparse,
    /// The consistency check
    Check,
    /// All of an image through the loop device, in each of its modes
    LoopDirect,
    LoopBuffered,
}

#[derive(Debug, clap::Args)]
pub(super) struct ChildOptions {
    #[arg(value_enum)]
    pub(super) what: Child,
    /// The image
    pub(super) image: PathBuf,
    #[arg(long, default_value_t = 0)]
    pub(super) count: u64,
    #[arg(long, default_value = "0s", value_parser = parse_duration)]
    pub(super) runtime: Duration,
}
