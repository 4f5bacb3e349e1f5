//! Devices that are formatted again for every run, so that each run begins with the same file system and the same file.
//!
//! Input: the kind of device, the state of the file. Output: [`Ready`]s, each for one run. Invariants: the memory of the device
//! is allocated before the first run, so that no run includes its cost; the device is not open between two runs. Limits: the
//! file is empty, one hole, or preallocated; [`super::Bed`] has a written one.

use super::super::drive::{Run, drive};
use super::super::failure::Failure;
use super::super::host;
use super::super::image::FileTarget;
use super::super::job::Job;
use super::super::{bed::BedOptions, tool};
use super::loopback::{LoopBack, Zram};
use super::make::{self, Scratch};
use super::{FILE, Keep, On};
use diorite::{OpenFlags, OpenOptions, Policy, Volume};
use diorite_block::{Device, IoEngine, Locator, MemDevice, SimDevice, SimOptions, locator};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The state of the file before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Space {
    /// Nothing.
    Empty,
    /// One hole.
    Hole,
    /// Preallocated blocks.
    Unwritten,
}

/// The kind of a run's device.
enum Disk {
    /// The formatted block device or image file itself.
    Host,
    /// A memory device that the image is copied into.
    Mem,
    /// A simulated disk with these parameters, that the image is copied into.
    Sim(String),
}

/// See the module.
pub(in super::super) struct Fresh {
    label: String,
    disk: Disk,
    /// What mke2fs formats.
    path: PathBuf,
    /// Bytes of the device, and of the file in it.
    size: u64,
    file_size: u64,
    inodes: Option<u64>,
    /// Whether the targets apply to results from this device.
    pub(in super::super) counts: bool,
    is_block_device: bool,
    io_engine: Option<IoEngine>,
    /// The directory that becomes the file system's root.
    tree: Scratch,
    _keep: Keep,
}

impl Fresh {
    /// The device that the command line names.
    pub(in super::super) fn new(on: On, options: &BedOptions) -> Result<Fresh, Failure> {
        match on {
            On::Default if host::is_root() => Fresh::loop_on_tmpfs(options),
            On::Default | On::File => Fresh::plain_file(options),
            On::Zram => Fresh::zram(options, options.image_size()),
            On::Mem => Fresh::in_memory("mem:", Disk::Mem, options),
        }
    }

    /// A simulated disk with this latency and parallelism, in the syntax of a locator.
    pub(in super::super) fn sim(params: &str, options: &BedOptions) -> Result<Fresh, Failure> {
        let label = format!("sim:{params}");
        let fresh = Fresh::in_memory(&label, Disk::Sim(params.to_owned()), options)?;
        Ok(Fresh {
            counts: true,
            ..fresh
        })
    }

    fn loop_on_tmpfs(options: &BedOptions) -> Result<Fresh, Failure> {
        let size = options.image_size();
        super::need_memory(size)?;
        let back = LoopBack::new(Path::new("/dev/shm"), size)?;
        back.allocate(size)?;
        let path = back.path().to_owned();
        Ok(Fresh {
            is_block_device: true,
            counts: true,
            _keep: Keep {
                _loop: Some(back),
                ..Keep::default()
            },
            ..Fresh::on("loop on tmpfs", path, options)?
        })
    }

    fn plain_file(options: &BedOptions) -> Result<Fresh, Failure> {
        let dir = Scratch::new(&std::env::temp_dir())?;
        let path = dir.path().join("image");
        make::write_random(&path, options.image_size(), false)?;
        Ok(Fresh {
            counts: !host::is_root(),
            _keep: Keep {
                _dir: Some(dir),
                ..Keep::default()
            },
            ..Fresh::on("plain file", path, options)?
        })
    }

    /// Compressed memory of the kernel, of this size. Needs root.
    pub(in super::super) fn zram(options: &BedOptions, size: u64) -> Result<Fresh, Failure> {
        let zram = Zram::new(size)?;
        let path = zram.path().to_owned();
        Ok(Fresh {
            is_block_device: true,
            size,
            _keep: Keep {
                _zram: Some(zram),
                ..Keep::default()
            },
            ..Fresh::on("zram", path, options)?
        })
    }

    fn in_memory(label: &str, disk: Disk, options: &BedOptions) -> Result<Fresh, Failure> {
        let dir = Scratch::in_memory()?;
        let path = dir.path().join("image");
        Ok(Fresh {
            disk,
            _keep: Keep {
                _dir: Some(dir),
                ..Keep::default()
            },
            ..Fresh::on(label, path, options)?
        })
    }

    fn on(label: &str, path: PathBuf, options: &BedOptions) -> Result<Fresh, Failure> {
        Ok(Fresh {
            label: label.into(),
            disk: Disk::Host,
            path,
            size: options.image_size(),
            file_size: options.file_size,
            inodes: options.inodes,
            counts: false,
            is_block_device: false,
            io_engine: options.io_engine,
            tree: Scratch::new(&std::env::temp_dir())?,
            _keep: Keep::default(),
        })
    }

    pub(in super::super) fn label(&self) -> &str {
        &self.label
    }

    /// The size of the file when it is full.
    pub(in super::super) fn file_size(&self) -> u64 {
        self.file_size
    }

    /// Formats the device again.
    pub(in super::super) fn ready(&self, space: Space) -> Result<Ready<'_>, Failure> {
        let made = File::create(self.tree.path().join(FILE.trim_start_matches('/')));
        let size = match space {
            Space::Empty => 0,
            Space::Hole | Space::Unwritten => self.file_size,
        };
        made.and_then(|f| f.set_len(size))
            .map_err(|e| Failure::host("cannot make a sparse file", e))?;
        if !matches!(self.disk, Disk::Host) {
            let image = File::create(&self.path).and_then(|f| f.set_len(self.size));
            image.map_err(|e| Failure::host("cannot make an image", e))?;
        }
        make::format_with(&self.path, Some(self.tree.path()), self.inodes)?;
        if space == Space::Unwritten {
            self.preallocate()?;
        }
        Ok(Ready { fresh: self })
    }

    /// Preallocates the file's blocks without root, and not with the engine, which is what is measured.
    fn preallocate(&self) -> Result<(), Failure> {
        let last = (self.file_size / make::BLOCK).saturating_sub(1);
        let request = format!("fallocate {FILE} 0 {last}");
        let args = ["-w", "-R", &request].map(std::ffi::OsStr::new);
        tool::run("debugfs", args.into_iter().chain([self.path.as_os_str()])).map(drop)
    }
}

/// A device with a new file system on it, for one run.
pub(in super::super) struct Ready<'a> {
    fresh: &'a Fresh,
}

impl Ready<'_> {
    /// The block device, for the kernel to mount.
    pub(in super::super) fn block_device(&self) -> Option<&Path> {
        let fresh = self.fresh;
        fresh.is_block_device.then_some(&*fresh.path)
    }

    /// Runs the load on the file. The run's counters include those of the journal.
    pub(in super::super) fn run(self, policy: Policy, job: &Job) -> Result<Run, Failure> {
        let (volume, target) = self.open(policy)?;
        let before = volume.journal_stats();
        let mut run = drive(&target, job)?;
        let after = volume.journal_stats();
        drop(target);
        volume.close()?;
        run.counters.extend([
            (HANDLES.to_owned(), after.handles - before.handles),
            (COMMITS.to_owned(), after.commits - before.commits),
        ]);
        Ok(run)
    }

    /// The volume on it.
    pub(in super::super) fn volume(&self, options: &OpenOptions) -> Result<Volume, Failure> {
        Ok(Volume::open_device(self.device()?, options)?)
    }

    fn open(&self, policy: Policy) -> Result<(Volume, FileTarget), Failure> {
        let options = OpenOptions::writable().policy(policy);
        let volume = self.volume(&options)?;
        let flags = OpenFlags::writable();
        let target = FileTarget {
            file: volume.open_path(FILE, flags)?,
            volume: volume.clone(),
            base: 0,
            len: self.fresh.file_size,
        };
        Ok((volume, target))
    }

    fn device(&self) -> Result<Arc<dyn Device>, Failure> {
        let Fresh { path, size, .. } = self.fresh;
        // If there is not enough memory to allocate all of the device now, it is allocated at the first write, which is then
        // part of the run.
        let has_room = super::need_memory(*size).is_ok();
        match &self.fresh.disk {
            Disk::Host => {
                let options = diorite_block::OpenOptions::default().io_engine(self.fresh.io_engine);
                Ok(locator::open(&Locator::file(path.clone()), &options)?)
            }
            Disk::Mem => {
                let mem = MemDevice::try_new(*size)?;
                if has_room {
                    mem.populate();
                }
                make::load(path, |pos, bytes| {
                    mem.write_at(pos, bytes);
                    Ok(())
                })?;
                Ok(Arc::new(mem))
            }
            Disk::Sim(params) => {
                let sim = SimDevice::new(SimOptions::parse(&format!("{size},{params}"))?)?;
                if has_room {
                    sim.populate();
                }
                make::load(path, |pos, bytes| {
                    sim.write_at(pos, bytes);
                    Ok(())
                })?;
                Ok(Arc::new(sim))
            }
        }
    }

    /// The name of the device's I/O engine.
    pub(in super::super) fn io_engine(&self) -> Result<String, Failure> {
        Ok(self.device()?.report().engine)
    }
}

/// The names of the journal's counters in a run.
pub(in super::super) const HANDLES: &str = "handles";
pub(in super::super) const COMMITS: &str = "commits";
