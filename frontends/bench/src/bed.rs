//! Test beds: a device with an ext4 image that holds a large, fully written file.
//!
//! Input: the kind of device. Output: [`Bed`]s, and from them devices, volumes, regions. Invariant: a bed that is dropped
//! removes what it made, and nothing else. Limits: one bed is used by one process at a time.

mod fresh;
mod loopback;
mod make;
mod mounted;

pub(super) use fresh::{COMMITS, Fresh, HANDLES, Ready, Space};
pub(super) use make::{
    Image, Scratch, Shape, load as load_image, make_empty, make_image, make_sparse_image,
    write_random,
};
pub(super) use mounted::{Mounted, mount};

use super::failure::Failure;
use super::host;
use super::image::{FileTarget, Region};
use super::raw::RawTarget;
use clap::ValueEnum;
use diorite::{File, OpenFlags, OpenOptions, Volume};
use diorite_block::{Device, IoEngine, Locator, MemDevice, SimDevice, SimOptions, locator};
pub(super) use loopback::LoopBack;
use loopback::Zram;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The path of the file in beds that are made here.
pub(super) const FILE: &str = "/bench";

/// What an experiment runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum On {
    /// As root, a loop device over memory; otherwise a plain file
    Default,
    /// A plain file in the temporary directory
    File,
    /// Compressed memory of the kernel (root)
    Zram,
    /// Memory of this process
    Mem,
}

/// Where a bed's device comes from.
enum Place {
    /// A locator, which is opened again for each use.
    Named(String),
    /// A device in the memory of this process.
    Here(Arc<dyn Device>),
}

/// Resources that must exist as long as the bed; dropped in this order.
#[derive(Default)]
struct Keep {
    _loop: Option<LoopBack>,
    _zram: Option<Zram>,
    _dir: Option<make::Scratch>,
}

/// See the module.
pub(super) struct Bed {
    label: String,
    place: Place,
    file: String,
    /// The block device that the kernel can mount.
    block_device: Option<PathBuf>,
    /// The simulated disk, for the latency it achieved.
    sim: Option<SimDevice>,
    /// Whether the targets apply to results from this bed.
    pub(super) counts: bool,
    io_engine: Option<IoEngine>,
    force: bool,
    _keep: Keep,
}

/// The options for making beds.
#[derive(Clone, Debug)]
pub(super) struct BedOptions {
    pub(super) io_engine: Option<IoEngine>,
    /// Open an existing image even if another program has it open.
    pub(super) force: bool,
    /// The size of the file in the image.
    pub(super) file_size: u64,
    /// The number of inodes in images that are made for every run; none: mke2fs's default.
    pub(super) inodes: Option<u64>,
}

impl BedOptions {
    /// The size of the image: the file, a quarter more, and space for metadata and the journal.
    pub(super) fn image_size(&self) -> u64 {
        (self.file_size + self.file_size / 4 + (160 << 20)).next_multiple_of(1 << 20)
    }
}

impl Bed {
    /// The default device: as root a kernel loop device with direct I/O over a file on /dev/shm, else a plain file.
    pub(super) fn default_device(options: &BedOptions) -> Result<Bed, Failure> {
        if host::is_root() {
            Bed::loop_on_tmpfs(options)
        } else {
            Bed::plain_file(options)
        }
    }

    fn loop_on_tmpfs(options: &BedOptions) -> Result<Bed, Failure> {
        const SIZE: u64 = 4 << 30;
        need_memory(options.file_size)?;
        let back = LoopBack::new(Path::new("/dev/shm"), SIZE)?;
        make::format(back.path(), None)?;
        make::fill_by_kernel(back.path(), options.file_size)?;
        let path = back.path().to_owned();
        Ok(Bed {
            block_device: Some(path.clone()),
            _keep: Keep {
                _loop: Some(back),
                ..Keep::default()
            },
            counts: true,
            ..Bed::named("loop on tmpfs", path.display().to_string(), options)
        })
    }

    /// A plain file in the temporary directory.
    pub(super) fn plain_file(options: &BedOptions) -> Result<Bed, Failure> {
        let dir = make::Scratch::new(&std::env::temp_dir())?;
        let path = make_image(
            &dir,
            Image::with_file(options.image_size(), options.file_size),
        )?;
        Ok(Bed {
            _keep: Keep {
                _dir: Some(dir),
                ..Keep::default()
            },
            counts: !host::is_root(),
            ..Bed::named("plain file", path.display().to_string(), options)
        })
    }

    /// Compressed memory of the kernel, 4 KiB sectors, write-through. Needs root.
    pub(super) fn zram(options: &BedOptions) -> Result<Bed, Failure> {
        let zram = Zram::new(options.image_size())?;
        make::format(zram.path(), None)?;
        make::fill_by_kernel(zram.path(), options.file_size)?;
        let path = zram.path().to_owned();
        Ok(Bed {
            block_device: Some(path.clone()),
            _keep: Keep {
                _zram: Some(zram),
                ..Keep::default()
            },
            ..Bed::named("zram", path.display().to_string(), options)
        })
    }

    /// Memory of this process.
    pub(super) fn mem(options: &BedOptions) -> Result<Bed, Failure> {
        let device = mem_with(Image::with_file(options.image_size(), options.file_size))?;
        Ok(Bed::here("mem:", Arc::new(device), options))
    }

    /// A simulated disk with this latency and parallelism, in the syntax of a locator.
    pub(super) fn sim(params: &str, options: &BedOptions) -> Result<Bed, Failure> {
        Bed::sim_of(params, options, false)
    }

    /// As [`Bed::sim`], with all of the disk's memory in place before the first load: loads into space that was never written would
    /// measure the host's page faults otherwise.
    pub(super) fn touched_sim(params: &str, options: &BedOptions) -> Result<Bed, Failure> {
        Bed::sim_of(params, options, true)
    }

    fn sim_of(params: &str, options: &BedOptions, touched: bool) -> Result<Bed, Failure> {
        let size = options.image_size();
        let sim = SimDevice::new(SimOptions::parse(&format!("{size},{params}"))?)?;
        if touched {
            let zeros = vec![0; 1 << 20];
            (0..size)
                .step_by(zeros.len())
                .for_each(|pos| sim.write_at(pos, &zeros));
        }
        let dir = make::Scratch::in_memory()?;
        let path = make_image(&dir, Image::with_file(size, options.file_size))?;
        make::load(&path, |pos, bytes| {
            sim.write_at(pos, bytes);
            Ok(())
        })?;
        let bed = Bed::here(&format!("sim:{params}"), Arc::new(sim.clone()), options);
        Ok(Bed {
            sim: Some(sim),
            ..bed
        })
    }

    /// An existing image and a file in it that loads may overwrite.
    pub(super) fn given(image: &str, file: &str, options: &BedOptions) -> Bed {
        let block_device = match Locator::parse(image) {
            Ok(Locator::File(f)) if f.path.starts_with("/dev/") => Some(f.path),
            _ => None,
        };
        Bed {
            file: file.into(),
            block_device,
            ..Bed::named(image, image.into(), options)
        }
    }

    fn named(label: &str, locator: String, options: &BedOptions) -> Bed {
        Bed {
            label: label.into(),
            place: Place::Named(locator),
            file: FILE.into(),
            block_device: None,
            sim: None,
            counts: false,
            io_engine: options.io_engine,
            force: options.force,
            _keep: Keep::default(),
        }
    }

    fn here(label: &str, device: Arc<dyn Device>, options: &BedOptions) -> Bed {
        Bed {
            place: Place::Here(device),
            ..Bed::named(label, String::new(), options)
        }
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn block_device(&self) -> Option<&Path> {
        self.block_device.as_deref()
    }

    /// The file or block device of the host that the image is on, for programs that open it themselves.
    pub(super) fn host_path(&self) -> Option<PathBuf> {
        let Place::Named(text) = &self.place else {
            return None;
        };
        match Locator::parse(text) {
            Ok(Locator::File(f)) if f.offset == 0 && f.part.is_none() => Some(f.path),
            _ => None,
        }
    }

    pub(super) fn sim_device(&self) -> Option<&SimDevice> {
        self.sim.as_ref()
    }

    /// The path inside the image.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    fn device(&self, write: bool) -> Result<Arc<dyn Device>, Failure> {
        match &self.place {
            Place::Here(device) => Ok(device.clone()),
            Place::Named(text) => {
                let options = diorite_block::OpenOptions::default()
                    .read_only(!write)
                    .io_engine(self.io_engine)
                    .force(self.force);
                Ok(locator::open(&Locator::parse(text)?, &options)?)
            }
        }
    }

    /// Opens the image and the file in it.
    pub(super) fn open(&self, write: bool) -> Result<OpenBed, Failure> {
        let device = self.device(write)?;
        let options = OpenOptions::default().write(write);
        let volume = Volume::open_device(device.clone(), &options)?;
        let flags = OpenFlags::default().write(write);
        let file = volume.open_path(&self.file, flags)?;
        let region = Region::longest(&volume, &file)?;
        Ok(OpenBed {
            device,
            volume,
            file,
            region,
        })
    }
}

/// An open bed: its device, its volume, the file, and the contiguous region of it that loads use.
pub(super) struct OpenBed {
    pub(super) device: Arc<dyn Device>,
    pub(super) volume: Volume,
    pub(super) file: File,
    pub(super) region: Region,
}

impl OpenBed {
    /// The region of the file, through the engine.
    pub(super) fn in_file(&self) -> FileTarget {
        FileTarget {
            volume: self.volume.clone(),
            file: self.file.clone(),
            base: self.region.file_pos,
            len: self.region.len,
        }
    }

    /// The same blocks, directly on the device.
    pub(super) fn raw(&self) -> RawTarget {
        RawTarget {
            base: self.region.device_pos,
            len: self.region.len,
            ..RawTarget::whole(self.device.clone())
        }
    }

    /// The name of the device's I/O engine.
    pub(super) fn io_engine(&self) -> String {
        self.device.report().engine
    }
}

/// Fails if there is not enough free memory for a device of this size plus 512 MiB.
fn need_memory(bytes: u64) -> Result<(), Failure> {
    let need = bytes + (512 << 20);
    if host::available_memory() >= need {
        return Ok(());
    }
    Err(Failure::unavailable(format!(
        "the default device needs {} MiB of free memory; choose a smaller --file-size",
        need >> 20
    )))
}

/// A memory device with an image in it.
pub(super) fn mem_with(image: Image) -> Result<MemDevice, Failure> {
    let device = MemDevice::try_new(image.size)?;
    let dir = make::Scratch::in_memory()?;
    let path = make_image(&dir, image)?;
    make::load(&path, |pos, bytes| {
        device.write_at(pos, bytes);
        Ok(())
    })?;
    Ok(device)
}
