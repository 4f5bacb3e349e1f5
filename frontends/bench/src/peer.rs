//! The kernel's ext4 as a peer: the same device, mounted, with diorite's own load generator on the file in it.
//!
//! Input: a block device with an image. Output: runs on the file in it. Invariant:
//! this process does not have the device open while the kernel has it mounted. Limits: root.

use super::bed::{Bed, FILE, Mounted, Ready, mount};
use super::drive::{Run, drive};
use super::failure::Failure;
use super::fio;
use super::host_file::HostFile;
use super::image::Region;
use super::job::Job;
use super::raw::RawTarget;
use diorite_block::{IoEngine, Locator, OpenOptions, locator};

/// fio on the same region of the same file of the kernel's mount: its IOPS, to check diorite's own generator.
pub(super) fn by_fio(bed: &Bed, region: Region, job: &Job) -> Result<f64, Failure> {
    let mounted = mount_bed(bed)?;
    let path = mounted.path().join(bed.file().trim_start_matches('/'));
    let iops = fio::run(&path, region.file_pos, region.len, job);
    mounted.unmount()?;
    iops
}

fn mount_bed(bed: &Bed) -> Result<Mounted, Failure> {
    mount(bed.block_device())
}

/// The load on the same region of the same file, through the kernel's ext4.
pub(super) fn run(
    bed: &Bed,
    region: Region,
    io_engine: Option<IoEngine>,
    job: &Job,
) -> Result<Run, Failure> {
    let mounted = mount_bed(bed)?;
    let path = mounted.path().join(bed.file().trim_start_matches('/'));
    let options = OpenOptions {
        read_only: !job.rw.writes(),
        io_engine,
        ..OpenOptions::default()
    };
    let device = locator::open(&Locator::file(path), &options)?;
    let target = RawTarget {
        base: region.file_pos,
        len: region.len,
        ..RawTarget::whole(device)
    };
    let run = drive(&target, job);
    drop(target);
    mounted.unmount()?;
    run
}

/// The load on the new file of a device that was just made, through the kernel's ext4.
pub(super) fn run_fresh(
    ready: &Ready<'_>,
    io_engine: Option<IoEngine>,
    len: u64,
    job: &Job,
) -> Result<Run, Failure> {
    let mounted = mount(ready.block_device())?;
    let path = mounted.path().join(FILE.trim_start_matches('/'));
    let run = if job.fsync {
        drive(&HostFile::new(path, len), job)
    } else {
        let options = OpenOptions {
            io_engine,
            grow_to: Some(len),
            ..OpenOptions::default()
        };
        let device = locator::open(&Locator::file(path), &options)?;
        drive(&RawTarget::whole(device), job)
    };
    mounted.unmount()?;
    run
}

/// The load with an fsync after every write, on the region of a bed's file, through the kernel's ext4.
pub(super) fn run_fsync(bed: &Bed, region: Region, job: &Job) -> Result<Run, Failure> {
    let mounted = mount_bed(bed)?;
    let path = mounted.path().join(bed.file().trim_start_matches('/'));
    let run = drive(&HostFile::new(path, region.len).from(region.file_pos), job);
    mounted.unmount()?;
    run
}
