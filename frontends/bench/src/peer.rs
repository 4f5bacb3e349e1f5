//! The kernel's ext4 as a peer: the same device, mounted, with diorite's own load generator on the file in it.
//!
//! Input: a block device with an image. Output: a mount that goes away with its guard, and runs on the file in it. Invariant:
//! this process does not have the device open while the kernel has it mounted. Limits: root.

use super::bed::{Bed, Ready};
use super::drive::{Run, drive};
use super::failure::Failure;
use super::host_file::HostFile;
use super::image::Region;
use super::job::Job;
use super::raw::RawTarget;
use super::{bed, fio, host, tool};
use diorite_block::{IoEngine, Locator, OpenOptions, locator};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A mount of the kernel's.
pub(super) struct Mounted {
    at: Option<PathBuf>,
    _dir: bed::Scratch,
}

impl Mounted {
    /// Mounts the device in a directory of our own.
    pub(super) fn mount(device: &Path) -> Result<Mounted, Failure> {
        let dir = bed::Scratch::new(&std::env::temp_dir())?;
        let at = dir.path().join("mnt");
        std::fs::create_dir(&at).map_err(|e| Failure::host("cannot make a mount point", e))?;
        tool::run(
            "mount",
            [
                "-t".as_ref(),
                "ext4".as_ref(),
                device.as_os_str(),
                at.as_os_str(),
            ],
        )?;
        Ok(Mounted {
            at: Some(at),
            _dir: dir,
        })
    }

    pub(super) fn path(&self) -> &Path {
        self.at
            .as_deref()
            .expect("the mount point is there until unmount takes it")
    }

    /// Unmounts; returns an error if that failed.
    pub(super) fn unmount(mut self) -> Result<(), Failure> {
        self.at.take().map_or(Ok(()), |at| unmount(&at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(at) = self.at.take() {
            // Only the earlier failure, which led here, is reported.
            let _ = unmount(&at);
        }
    }
}

/// Unmounts, with retries: io_uring may release its last reference to a file shortly after the ring is closed.
fn unmount(at: &Path) -> Result<(), Failure> {
    for _ in 0..40 {
        if tool::run("umount", [at]).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    tool::run("umount", [at]).map(drop)
}

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

/// Mounts a block device; fails as unavailable if there is none or mounting is not permitted.
pub(super) fn mount(device: Option<&Path>) -> Result<Mounted, Failure> {
    let device = device
        .ok_or_else(|| Failure::unavailable("the kernel's row needs a block device to mount"))?;
    if !host::is_root() {
        return Err(Failure::unavailable("mounting needs root"));
    }
    Mounted::mount(device)
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
    let path = mounted.path().join(bed::FILE.trim_start_matches('/'));
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
