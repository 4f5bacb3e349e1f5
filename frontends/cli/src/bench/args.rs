//! The command line of `diorite bench`.
//!
//! Input: words. Output: [`Args`]. Invariant: fio's words mean what they mean to fio. Limits: what needs root says so when
//! it is run, not here.

use super::bed::{Bed, BedOptions, Fresh};
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
pub(crate) struct Args {
    #[command(subcommand)]
    pub(super) what: What,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum What {
    /// T1, T2: completions inline and handed to a worker; overwrites beside the raw device
    Completion(Options),
    /// T3: 1, 2, 4 threads reading one file, with no inode lock, a shared one, an exclusive one
    ReadScaling(Options),
    /// T4: 2k overwrites on 4k blocks, concurrent and one at a time
    Unaligned(Options),
    /// Instructions per read, memory and reads of opening, the price of many extents
    Cost(Options),
    /// The raw device queue beside fio's io_uring engine
    Raw(Options),
    /// A loop device on a file, beside the file
    LoopLayer(Options),
    /// Appends to one file: beside the kernel, asynchronous and waiting, durable
    Append(Options),
    /// Random writes into holes, whole blocks and sectors of blocks; memory while a huge sparse file fills
    Holes(Options),
    /// Random writes into preallocated space, beside overwrites; journal handles
    Unwritten(Options),
    /// An fsync after every write, and writes that are durable by themselves
    Fsync(Options),
    /// Files made, moved and removed, beside the kernel; lookups in a directory of a million names
    Names(NamesOptions),
    /// The consistency check, beside e2fsck; its memory
    Check(CheckOptions),
    /// One load of your own, in fio's words
    Run(RunOptions),
    #[command(hide = true)]
    CostChild(ChildOptions),
}

/// What an experiment runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum On {
    /// As root a loop device over memory, else a plain file
    Default,
    /// A plain file in the temporary directory
    File,
    /// Compressed memory of the kernel (root)
    Zram,
    /// Memory of this process
    Mem,
}

/// Somebody to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Peer {
    /// The kernel's ext4 on the same device (root)
    Kernel,
}

/// What the command's global options say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Common {
    pub(crate) io_engine: Option<IoEngine>,
    pub(crate) policy: Policy,
    pub(crate) force: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Options {
    /// Measured time of each run
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    pub(super) runtime: Duration,
    /// Time before it that is not counted
    #[arg(long, default_value = "100ms", value_parser = parse_duration)]
    pub(super) ramp_time: Duration,
    /// Rounds at least
    #[arg(long, default_value_t = 5)]
    pub(super) rounds: usize,
    /// Rounds at most, if the same thing twice differs by more than half a percent
    #[arg(long, default_value_t = 15)]
    pub(super) max_rounds: usize,
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Of the whole command: only this I/O engine.
    #[arg(skip)]
    pub(super) io_engine: Option<IoEngine>,
    /// Of the whole command: open whoever else has it.
    #[arg(skip)]
    pub(super) force: bool,
    /// Devices to make and run on, one after the other
    #[arg(long, value_delimiter = ',', default_value = "default")]
    pub(super) on: Vec<On>,
    /// An image of yours instead; the load overwrites the file named by --file
    #[arg(long, value_name = "LOCATOR", requires = "file")]
    pub(super) image: Option<String>,
    /// The file in --image
    #[arg(long, value_name = "PATH", requires = "image")]
    pub(super) file: Option<String>,
    /// How many names, where it is about names.
    #[arg(skip)]
    pub(super) names: Counts,
    /// Inodes of images made here, if not as many as usual.
    #[arg(skip)]
    pub(super) inodes: Option<u64>,
    /// Bytes of the file in images made here
    #[arg(long, default_value = "1G", value_parser = parse_bytes)]
    pub(super) file_size: u64,
    /// Adds rows of a peer
    #[arg(long, value_enum)]
    pub(super) peer: Option<Peer>,
    /// One JSON object on standard output, and nothing else
    #[arg(long)]
    pub(super) json: bool,
}

impl Options {
    /// A job with this run's times and seed.
    pub(super) fn job(&self, rw: Rw, bs: u32, iodepth: u32) -> Job {
        Job {
            runtime: self.runtime,
            ramp_time: self.ramp_time,
            seed: self.seed,
            ..Job::new(rw, bs, iodepth)
        }
    }

    /// Rounds for a ratio that has a target.
    pub(super) fn plan(&self) -> Plan {
        Plan {
            least: self.rounds,
            most: self.max_rounds.max(self.rounds),
        }
    }

    /// Rounds for rows that are there to be looked at.
    pub(super) fn short_plan(&self) -> Plan {
        let rounds = self.rounds.min(2);
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

    /// Runs `experiment` on every bed that was asked for. One that this machine does not have is skipped with its reason,
    /// unless it is the only one.
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

    /// As [`Options::on_each`], on devices that are made new for every run.
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

    /// Targets that name zram are measured there, unless only other devices were asked for.
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

    /// A bed of this kind, with a written file.
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

/// How many names an experiment makes.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct Counts {
    /// Files made, moved and removed
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
    /// As every experiment takes them.
    pub(super) fn with_counts(&self) -> Options {
        Options {
            names: self.counts,
            ..self.options.clone()
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct CheckOptions {
    #[command(flatten)]
    options: Options,
    /// Files in the image, of 44 KiB each; targets are for as many as there are unless given
    #[arg(long, default_value_t = 500_000)]
    files: u64,
}

impl CheckOptions {
    /// As every experiment takes them.
    pub(super) fn with_files(&self) -> Options {
        let names = Counts {
            files: self.files,
            ..Counts::default()
        };
        Options {
            names,
            ..self.options.clone()
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct RunOptions {
    /// A device, host file or file on a kernel mount, driven raw
    #[arg(
        long,
        value_name = "LOCATOR",
        conflicts_with = "image",
        required_unless_present = "image"
    )]
    pub(super) device: Option<String>,
    /// An image; with --file
    #[arg(long, value_name = "LOCATOR", requires = "file")]
    pub(super) image: Option<String>,
    /// The file in --image; a load that writes overwrites it
    #[arg(long, value_name = "PATH", requires = "image")]
    pub(super) file: Option<String>,
    /// Yes, a load that writes may overwrite --device
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
    /// Only the first so many bytes
    #[arg(long, value_parser = parse_bytes)]
    pub(super) size: Option<u64>,
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Writes patterns, checks every read, and reads all of it again at the end
    #[arg(long)]
    pub(super) verify: bool,
    /// Requests per submission at most
    #[arg(long)]
    pub(super) iodepth_batch_submit: Option<u32>,
    /// Completions to wait for at a time
    #[arg(long)]
    pub(super) iodepth_batch_complete_min: Option<u32>,
    /// Writes are durable when acknowledged (O_DSYNC)
    #[arg(long)]
    pub(super) dsync: bool,
    /// Blocking calls, one at a time
    #[arg(long)]
    pub(super) blocking: bool,
    /// All threads on one CPU
    #[arg(long)]
    pub(super) one_cpu: bool,
    /// Several policies of the volume, a row each: linux-6.19,diorite
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) policies: Vec<Policy>,
    /// Of the whole command: only this I/O engine, this policy, open whoever has it.
    #[arg(skip)]
    pub(super) common: Common,
    /// One JSON object on standard output, and nothing else
    #[arg(long)]
    pub(super) json: bool,
}

/// What a process of `cost` measures for its parent.
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
