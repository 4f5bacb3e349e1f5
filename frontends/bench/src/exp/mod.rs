//! The experiments: one file each, and one list of them.
//!
//! Input: options and a report. Output: rows and ratios in the report. Invariant: an experiment that a machine cannot do
//! in part says what it skipped. Limits: arms run one at a time.

pub(super) mod append;
pub(super) mod atomic;
pub(super) mod buffered;
pub(super) mod check;
pub(super) mod completion;
pub(super) mod cost;
pub(super) mod cost_child;
pub(super) mod dontcache;
pub(super) mod free;
pub(super) mod fsync;
pub(super) mod fuse;
pub(super) mod holes;
pub(super) mod image;
pub(super) mod lines;
pub(super) mod loops;
pub(super) mod names;
pub(super) mod nbd;
pub(super) mod operations;
pub(super) mod operations_child;
pub(super) mod polled;
pub(super) mod raw;
pub(super) mod read_scaling;
pub(super) mod unaligned;
pub(super) mod unwritten;

use super::args::Options;
use super::bed::{Bed, BedOptions, Fresh, OpenBed, Space};
use super::drive::{Run, drive};
use super::failure::Failure;
use super::image::Region;
use super::job::Job;
use super::peer::{Kernel, KernelAnew};
use super::report::Report;
use super::rounds::{Arm, Measured, Rounds, Spread, interleave};
use super::targets::Goal;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use diorite::Policy;
use diorite::policy::CompletionPolicy;

/// Every experiment, in the order of the help. A new one is a file and its lines here.
pub(super) const ALL: [&Experiment; 20] = [
    &completion::EXPERIMENT,
    &read_scaling::EXPERIMENT,
    &unaligned::EXPERIMENT,
    &cost::EXPERIMENT,
    &raw::EXPERIMENT,
    &loops::layers::EXPERIMENT,
    &loops::EXPERIMENT,
    &append::EXPERIMENT,
    &holes::EXPERIMENT,
    &unwritten::EXPERIMENT,
    &fsync::EXPERIMENT,
    &polled::EXPERIMENT,
    &names::EXPERIMENT,
    &buffered::EXPERIMENT,
    &fuse::EXPERIMENT,
    &nbd::EXPERIMENT,
    &image::EXPERIMENT,
    &dontcache::EXPERIMENT,
    &check::EXPERIMENT,
    &atomic::EXPERIMENT,
];

/// An experiment of `diorite bench`.
pub(super) struct Experiment {
    /// Its word on the command line and in the report.
    pub(super) name: &'static str,
    /// Its line in the help.
    pub(super) about: &'static str,
    /// The targets of ratios that it reports.
    pub(super) goals: &'static [Goal],
    /// The options that only this experiment has.
    pub(super) own: Option<OwnOptions>,
    pub(super) run: fn(&Options, &mut Report) -> Result<(), Failure>,
}

/// Options that only one experiment has; it reads them by [`Options::own`].
pub(super) struct OwnOptions {
    define: fn(Command) -> Command,
}

impl OwnOptions {
    const fn of<T: Args>() -> OwnOptions {
        OwnOptions {
            define: T::augment_args,
        }
    }
}

impl Experiment {
    /// Its command, with the options of all experiments and its own.
    pub(super) fn command(&self) -> Command {
        let command = Options::augment_args(Command::new(self.name));
        let command = match &self.own {
            Some(own) => (own.define)(command),
            None => command,
        };
        command.about(self.about).long_about(None)
    }

    /// Its options, as the command line says.
    pub(super) fn options(said: &ArgMatches) -> Result<Options, clap::Error> {
        let options = Options::from_arg_matches(said)?;
        Ok(Options {
            said: said.clone(),
            ..options
        })
    }
}

/// The targets of all experiments: some of them report ratios of another one, too.
pub(super) fn goals() -> Vec<&'static Goal> {
    ALL.iter().flat_map(|e| e.goals).collect()
}

/// The bed's file under a policy.
fn file_arm<'a>(name: impl Into<String>, job: Job, open: &'a OpenBed, policy: Policy) -> Arm<'a> {
    let target = open.in_file();
    Arm::new(name, job, move |job| {
        target.volume.set_policy(policy);
        drive(&target, job)
    })
}

/// The same blocks without a volume.
fn raw_arm<'a>(job: Job, open: &OpenBed) -> Arm<'a> {
    let target = open.raw();
    Arm::new("raw device", job, move |job| drive(&target, job))
}

fn deferred() -> Policy {
    Policy {
        completion: CompletionPolicy::Deferred,
        ..Policy::DIORITE
    }
}

/// A row for every arm.
fn rows(report: &mut Report, rounds: &Rounds, bed: &Bed) -> Result<(), Failure> {
    report.rows(rounds, bed.label())
}

/// User and system time per request: the first arm over another one, in the rounds that the ratio `of` is from.
fn cpu_beside(
    id: &str,
    of: &str,
    (rounds, under): (&Rounds, usize),
    bed: &Bed,
    report: &mut Report,
) -> Result<(), Failure> {
    let spread = rounds.ratio_of(0, under, Run::cpu_us);
    report.ratio_beside(id, of, &spread, bed.label(), bed.counts)
}

/// The file, and the same blocks raw: two rows, their ratio and that of their CPU time.
fn file_beside_raw(
    id: &str,
    options: &Options,
    job: &Job,
    open: &OpenBed,
    bed: &Bed,
    report: &mut Report,
) -> Result<(), Failure> {
    let arms = [
        file_arm("file in image", job.clone(), open, Policy::DIORITE),
        raw_arm(job.clone(), open),
    ];
    let rounds = interleave(&arms, options.plan())?;
    rows(report, &rounds, bed)?;
    report.ratio(id, &rounds.ratio(0, 1), bed.label(), bed.counts)?;
    cpu_beside("cpu-raw", id, (&rounds, 1), bed, report)
}

/// The file, the kernel's ext4 on the same device, and the same blocks without either: each opens the device for its own run. What the raw
/// device is over the kernel's ext4 is the most that a file can be: that ratio has `-raw` behind its id.
fn beside_kernel(
    id: &str,
    options: &Options,
    job: &Job,
    bed: &Bed,
    report: &mut Report,
) -> Result<(), Failure> {
    if !options.asks_for_kernel(id, report)? {
        return Ok(());
    }
    let write = job.rw.writes();
    let region = bed.open(write)?.region;
    let ours = Arm::new("file in image", job.clone(), |job| {
        let open = bed.open(write)?;
        drive(&open.in_file(), job)
    });
    let kernel = Kernel::on(bed).region(region, options.io_engine, job);
    let raw = Arm::new("raw device", job.clone(), |job| {
        let open = bed.open(write)?;
        drive(&open.raw(), job)
    });
    let rounds = interleave(&[ours, kernel, raw], options.plan());
    let Some(rounds) = report.unless_skipped(id, rounds)? else {
        return Ok(());
    };
    rows(report, &rounds, bed)?;
    cross_check(region, job, bed, report)?;
    report.ratio(id, &rounds.ratio(0, 1), bed.label(), bed.counts)?;
    let most = rounds.ratio(2, 1);
    report.ratio(&format!("{id}-raw"), &most, bed.label(), bed.counts)?;
    cpu_beside("cpu-kernel", id, (&rounds, 1), bed, report)?;
    cpu_beside("cpu-raw", id, (&rounds, 2), bed, report)
}

/// The kernel's row once more, by fio.
fn cross_check(region: Region, job: &Job, bed: &Bed, report: &mut Report) -> Result<(), Failure> {
    let iops = Kernel::on(bed).by_fio(region, job);
    let Some(iops) = report.unless_skipped("fio", iops)? else {
        return Ok(());
    };
    let measured = Measured {
        name: "kernel's ext4, by fio".into(),
        job: job.clone(),
        runs: vec![Run::of_rate(iops, job)],
    };
    report.row(&measured, bed.label())
}

/// The simulated disk of the targets for new space.
const SIM_80: &str = "latency=80us,parallel=4096,seed=1";

/// That disk, with new file systems of at most half a GiB: a run copies one into memory.
fn fresh_sim(options: &Options) -> Result<Fresh, Failure> {
    let bed_options = options.bed_options();
    let file_size = bed_options.file_size.min(512 << 20);
    Fresh::sim(
        SIM_80,
        &BedOptions {
            file_size,
            ..bed_options
        },
    )
}

/// The new file of a new device, under a policy.
fn fresh_arm<'a>(
    name: impl Into<String>,
    job: &Job,
    fresh: &'a Fresh,
    space: Space,
    policy: Policy,
) -> Arm<'a> {
    Arm::new(name, job.clone(), move |job| {
        fresh.ready(space)?.run(policy, job)
    })
}

/// The new file of a new device, and the kernel's ext4 on the same device made anew.
fn fresh_beside_kernel(
    id: &str,
    options: &Options,
    job: &Job,
    (fresh, space): (&Fresh, Space),
    report: &mut Report,
) -> Result<(), Failure> {
    let ours = fresh_arm("file in image", job, fresh, space, Policy::DIORITE);
    if !options.asks_for_kernel(id, report)? {
        fresh_rows(report, &interleave(&[ours], options.short_plan())?, fresh)?;
        return Ok(());
    }
    let kernel = KernelAnew::on(fresh, space).file(options.io_engine, job);
    let rounds = interleave(&[ours, kernel], options.plan());
    let Some(rounds) = report.unless_skipped(id, rounds)? else {
        return Ok(());
    };
    fresh_rows(report, &rounds, fresh)?;
    report.ratio(id, &rounds.ratio(0, 1), fresh.label(), fresh.counts)
}

/// Two policies on new files: two rows and a ratio.
fn fresh_policies(
    id: &str,
    options: &Options,
    job: &Job,
    (fresh, space): (&Fresh, Space),
    arms: [(&str, Policy); 2],
    report: &mut Report,
) -> Result<(), Failure> {
    let arms = arms.map(|(name, policy)| fresh_arm(name, job, fresh, space, policy));
    let rounds = interleave(&arms, options.plan())?;
    fresh_rows(report, &rounds, fresh)?;
    report.ratio(id, &rounds.ratio(0, 1), fresh.label(), fresh.counts)
}

/// What the journal counted per thousand requests of a load, as one row and one number.
fn fresh_per_thousand(
    id: &str,
    options: &Options,
    job: &Job,
    (fresh, space): (&Fresh, Space),
    counter: &str,
    report: &mut Report,
) -> Result<(), Failure> {
    let arm = fresh_arm("file in image", job, fresh, space, Policy::DIORITE);
    let rounds = interleave(&[arm], options.short_plan())?;
    fresh_rows(report, &rounds, fresh)?;
    let each = rounds.arms[0]
        .runs
        .iter()
        .map(|run| 1000.0 * run.counted(counter) as f64 / run.requests.max(1) as f64);
    let spread = Spread::of(&each.collect::<Vec<_>>());
    report.ratio(id, &spread, fresh.label(), fresh.counts)
}

fn fresh_rows(report: &mut Report, rounds: &Rounds, fresh: &Fresh) -> Result<(), Failure> {
    report.rows(rounds, fresh.label())
}
