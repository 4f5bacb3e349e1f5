//! The options that experiments share, and those of a load of the user's own.
//!
//! Input: the process's arguments. Output: [`Options`], [`RunOptions`]. Invariant: options and values with fio's names mean what they
//! mean to fio. Limits: parsing does not check for root; an experiment that needs root says so when it runs.

use super::bed::{Bed, BedOptions, Fresh, On};
use super::failure::{Failure, FailureKind};
use super::job::{Job, Rw, parse_block, parse_bytes, parse_duration};
use super::report::Report;
use super::rounds::Plan;
use clap::{ArgMatches, FromArgMatches, ValueEnum};
use diorite::Policy;
use diorite_block::IoEngine;
use std::path::PathBuf;
use std::time::Duration;

/// What to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PeerWord {
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
    /// What the command line says, for the options that only the experiment knows: see [`Options::own`].
    #[arg(skip)]
    pub(super) said: ArgMatches,
    /// Inodes of the images that the experiment makes; none: mke2fs's default.
    #[arg(skip)]
    pub(super) inodes: Option<u64>,
    /// Size of the file in the images that the experiment makes
    #[arg(long, default_value = "1G", value_parser = parse_bytes)]
    pub(super) file_size: u64,
    /// Add rows for comparison
    #[arg(long, value_enum)]
    pub(super) peer: Option<PeerWord>,
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

    /// Whether the kernel is to be compared with. If not, the report says how to ask for it.
    pub(super) fn asks_for_kernel(&self, id: &str, report: &mut Report) -> Result<bool, Failure> {
        let asks = self.peer == Some(PeerWord::Kernel);
        if !asks {
            report.note(format!(
                "{id}: skipped, ask for it with --peer kernel (root)"
            ))?;
        }
        Ok(asks)
    }

    /// The options of the experiment's own.
    pub(super) fn own<T: FromArgMatches>(&self) -> Result<T, Failure> {
        T::from_arg_matches(&self.said).map_err(|e| Failure::usage(e.to_string()))
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
    /// Let waits look for completions for so long at most before they sleep, and poll the disk if it has poll queues
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "blocking")]
    pub(super) polled: Option<Duration>,
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
    /// Names
    Create,
    Rename,
    Unlink,
    /// Lookups among few names, and among many
    LookupFew,
    LookupMany,
    /// Small files written through the page cache
    SmallFile,
    /// Overwrites, each with an fsync
    Fsync,
    /// Requests of several threads that take turns
    Lines,
}

/// What the threads of [`Child::Lines`] do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LinesLoad {
    Read,
    Overwrite,
    Fill,
    Append,
    /// All write one counter
    KnownShared,
    /// Each writes a counter of its own
    KnownOwn,
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
    #[arg(long, value_enum)]
    pub(super) load: Option<LinesLoad>,
    #[arg(long, default_value_t = 1)]
    pub(super) files: usize,
    /// Requests that are submitted at a time
    #[arg(long, default_value_t = 1)]
    pub(super) batch: usize,
}
