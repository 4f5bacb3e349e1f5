//! Peers: other programs that do the same work. What all of them share: a start, a client's load, an end.
//!
//! Input: a client's load. Output: an arm, each of whose runs starts the peer, runs the load and stops the peer. Invariants: a peer's start
//! and end are not part of the run; this process does not have a device open while the kernel has it mounted. Limits: a peer that is not
//! installed, or not permitted, fails as unavailable, and the report says why; the kernel's ext4 needs root.

use super::bed::{Bed, FILE, Fresh, Mounted, Ready, Space, mount};
use super::drive::{Run, drive};
use super::failure::Failure;
use super::fio;
use super::host_file::HostFile;
use super::image::Region;
use super::job::Job;
use super::raw::RawTarget;
use super::rounds::Arm;
use diorite_block::{IoEngine, Locator, OpenOptions, locator};

/// A program, or the kernel, as what serves a client's load. See the module.
pub(super) trait Peer {
    /// What is there between start and stop.
    type Running;

    /// The name of its row.
    fn name(&self) -> &'static str;

    /// Starts it; when this returns, clients can begin.
    fn start(&self) -> Result<Self::Running, Failure>;

    /// Stops it, and waits until it has let go of what it worked on.
    fn stop(&self, running: Self::Running) -> Result<(), Failure>;

    /// A client's load on it, as a row.
    fn arm<'a>(
        self,
        job: &Job,
        client: impl Fn(&Self::Running, &Job) -> Result<Run, Failure> + 'a,
    ) -> Arm<'a>
    where
        Self: Sized + 'a,
    {
        Arm::new(self.name(), job.clone(), move |job| {
            let running = self.start()?;
            let run = client(&running, job);
            self.stop(running)?;
            run
        })
    }
}

/// The kernel's ext4 on a bed's device.
pub(super) struct Kernel<'a> {
    pub(super) name: &'static str,
    pub(super) bed: &'a Bed,
}

impl<'a> Kernel<'a> {
    pub(super) fn on(bed: &'a Bed) -> Kernel<'a> {
        let name = "kernel's ext4";
        Kernel { name, bed }
    }

    /// The load on a region of the bed's file.
    pub(super) fn region(self, region: Region, io_engine: Option<IoEngine>, job: &Job) -> Arm<'a> {
        let file = self.bed.file();
        self.arm(job, move |mounted, job| {
            let options = OpenOptions::default()
                .read_only(!job.rw.writes())
                .io_engine(io_engine);
            let device = locator::open(&Locator::file(mounted.file(file)), &options)?;
            let target = RawTarget {
                base: region.file_pos,
                len: region.len,
                ..RawTarget::whole(device)
            };
            drive(&target, job)
        })
    }

    /// fio on the same region: its IOPS, to check diorite's own generator.
    pub(super) fn by_fio(&self, region: Region, job: &Job) -> Result<f64, Failure> {
        let mounted = self.start()?;
        let path = mounted.file(self.bed.file());
        let iops = fio::run(&path, region.file_pos, region.len, job);
        self.stop(mounted)?;
        iops
    }
}

impl Peer for Kernel<'_> {
    type Running = Mounted;

    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&self) -> Result<Mounted, Failure> {
        mount(self.bed.block_device())
    }

    fn stop(&self, mounted: Mounted) -> Result<(), Failure> {
        mounted.unmount()
    }
}

/// The kernel's ext4 on a device that is made anew for each run.
pub(super) struct KernelAnew<'a> {
    pub(super) name: &'static str,
    pub(super) fresh: &'a Fresh,
    pub(super) space: Space,
}

impl<'a> KernelAnew<'a> {
    pub(super) fn on(fresh: &'a Fresh, space: Space) -> KernelAnew<'a> {
        KernelAnew {
            name: "kernel's ext4",
            fresh,
            space,
        }
    }

    /// The load on the new file.
    pub(super) fn file(self, io_engine: Option<IoEngine>, job: &Job) -> Arm<'a> {
        let len = self.fresh.file_size();
        self.arm(job, move |(mounted, _), job| {
            let path = mounted.file(FILE);
            if job.fsync {
                return drive(&HostFile::new(path, len), job);
            }
            let options = OpenOptions::default().io_engine(io_engine).grow_to(len);
            let device = locator::open(&Locator::file(path), &options)?;
            drive(&RawTarget::whole(device), job)
        })
    }
}

impl<'a> Peer for KernelAnew<'a> {
    /// The mount goes before what it is on.
    type Running = (Mounted, Ready<'a>);

    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&self) -> Result<(Mounted, Ready<'a>), Failure> {
        let ready = self.fresh.ready(self.space)?;
        Ok((mount(ready.block_device())?, ready))
    }

    fn stop(&self, (mounted, _ready): (Mounted, Ready<'a>)) -> Result<(), Failure> {
        mounted.unmount()
    }
}
