//! Locators: from `disk.img`, `/dev/x?part=2` or `outer.img!/inner.img` to a volume.
//!
//! Input: a locator or a device. Output: a [`Volume`], or the device. Invariant: a volume is served with direct I/O only if the device's
//! logical block is not larger than the file system's block, so no request fails later for that. Limits: each `!` is one volume inside
//! another. This module is above `volume`, as a device may be a file in a volume; so the constructors of [`Volume`] are here.

use crate::error::Error;
use crate::loopdev::LoopDevice;
use crate::mount::find_superblock;
use crate::mount::{self, Opened};
use crate::options::{OpenFlags, OpenOptions};
use crate::volume::Volume;
use diorite_block::device::DeviceErrorKind;
use diorite_block::locator::{self, Part};
use diorite_block::{Blocking, Device, DeviceError, Locator};
use std::sync::Arc;

impl Volume {
    /// Opens the volume that a locator names: `disk.img`, `/dev/x?part=2`, `mem:64M`, `outer.img!/inner.img`. Blocks.
    ///
    /// ```no_run
    /// use diorite::{OpenFlags, OpenOptions, Volume};
    ///
    /// # fn main() -> Result<(), diorite::Error> {
    /// // Read-only: a journal that a crash left is replayed in memory, and the image stays as it is.
    /// let volume = Volume::open("outer.img!/inner.img", &OpenOptions::default())?;
    /// let file = volume.open_path("/etc/hostname", OpenFlags::default())?;
    /// let mut bytes = vec![0; file.size() as usize];
    /// file.read_bytes(0, &mut bytes)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The locator is invalid; the device cannot be opened or fails; the volume is damaged or unsupported, or may not be opened for
    /// writing.
    pub fn open(locator: &str, options: &OpenOptions) -> Result<Volume, Error> {
        open(&Locator::parse(locator)?, options)
    }

    /// As [`Volume::open`], for a locator that is not text, such as a host file whose path is not UTF-8 ([`Locator::file`]). Blocks.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_locator(locator: &Locator, options: &OpenOptions) -> Result<Volume, Error> {
        open(locator, options)
    }

    /// Opens the volume in a file of this volume, as `outer.img!/inner.img` does. `path` is from the root, as text or bytes. When this
    /// volume is closed, requests to the other fail. Blocks.
    ///
    /// # Errors
    /// As [`Volume::open`]; nothing is at the path, or no regular file; it is to be written, and is open for writing in this way already.
    pub fn open_inside(
        &self,
        path: &(impl AsRef<[u8]> + ?Sized),
        options: &OpenOptions,
    ) -> Result<Volume, Error> {
        self.open_part_inside(path, &Part::default(), options)
    }

    /// As [`Volume::open_inside`], for a part of the file: a partition, for example. Blocks.
    ///
    /// # Errors
    /// As [`Volume::open_inside`]; the file has no such part.
    pub fn open_part_inside(
        &self,
        path: &(impl AsRef<[u8]> + ?Sized),
        part: &Part,
        options: &OpenOptions,
    ) -> Result<Volume, Error> {
        mounted_inside(*part, options, |part| {
            self.open_device_inside(path, part, options.write)
        })
    }

    /// A part of a file of this volume as a device, as [`open_device`] opens `outer.img!/file?offset=...`, in a volume that is open
    /// already: so several files of one volume can be devices at the same time. It is read-only unless `write`. The volume is held by the
    /// device and its queues. Blocks.
    ///
    /// # Errors
    /// Nothing is at the path, or no regular file; the file has no such part; it is to be written, and is open for writing in this way
    /// already.
    pub fn open_device_inside(
        &self,
        path: &(impl AsRef<[u8]> + ?Sized),
        part: &Part,
        write: bool,
    ) -> Result<Arc<dyn Device>, Error> {
        let path = path.as_ref();
        let shown = String::from_utf8_lossy(path);
        let name = format!(
            "{}!/{}",
            self.device().name(),
            shown.trim_start_matches('/')
        );
        device_inside(self, path, part, name, write && !part.ro)
    }

    /// Opens the volume on a device that the caller has opened. Blocks.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_device(device: Arc<dyn Device>, options: &OpenOptions) -> Result<Volume, Error> {
        mounted(device, options, Vec::new())
    }
}

/// Opens the device that a locator names, through any number of volumes: a host file or block device with direct I/O where that works, or a
/// file in a volume as a [`LoopDevice`]. Nothing is expected on it. Of `options` those of the volumes on the way, `write`, `io_engine` and
/// `force` apply. The volumes are held by the device and its queues. Blocks.
///
/// ```no_run
/// use diorite::{Locator, OpenOptions, open_device};
///
/// # fn main() -> Result<(), diorite::Error> {
/// let device = open_device(&Locator::parse("outer.img!/inner.img")?, &OpenOptions::default())?;
/// assert!(device.geometry().read_only);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A device or volume on the way cannot be opened; the file in a volume is missing, or no regular file.
pub fn open_device(locator: &Locator, options: &OpenOptions) -> Result<Arc<dyn Device>, Error> {
    device_at(locator, options, false)
}

/// Mounts the file system on a device, and starts serving it as a volume.
fn mounted(
    device: Arc<dyn Device>,
    options: &OpenOptions,
    notes: Vec<String>,
) -> Result<Volume, Error> {
    let open_log = |locator: &str, block_size| log_device(locator, options, block_size);
    let Opened { fs, notes } = mount::open(device, options, notes, &open_log)?;
    Ok(Volume::serve(fs, options, notes))
}

/// Opens the volume at a locator. An image file on a host with logical blocks larger than the file system's is opened through the host's
/// page cache; in a file of a volume it gets smaller sectors.
fn open(locator: &Locator, options: &OpenOptions) -> Result<Volume, Error> {
    if let Locator::Inside { outer, path, part } = locator {
        return mounted_inside(*part, options, |part| {
            let (outer, path) = (outer.clone(), path.clone());
            let inside = Locator::Inside {
                outer,
                path,
                part: *part,
            };
            device_at(&inside, options, false)
        });
    }
    let direct = device_at(locator, options, false)?;
    let (logical, report) = (direct.geometry().logical, direct.report_so_far());
    if logical <= MIN_BLOCK_SIZE || !report.direct {
        return mounted(direct, options, Vec::new());
    }
    let block = block_size_on(&direct)?;
    if logical <= block {
        return mounted(direct, options, Vec::new());
    }
    if report.block_device && options.write {
        let what = format!(
            "{locator}: the device's logical block is {logical} bytes, the file system's {block}: it cannot be \
             written with direct I/O; add sector={block} (blocks of the device are then read and rewritten), open it \
             read-only, or copy it to an image file"
        );
        return Err(DeviceError::new(DeviceErrorKind::Unsupported, what).into());
    }
    // The direct device is dropped first: its locks on the image would keep out the buffered one.
    drop(direct);
    let note = format!(
        "opened buffered: the host's logical block is {logical} bytes, the file system's {block}"
    );
    mounted(device_at(locator, options, true)?, options, vec![note])
}

/// No file system has smaller blocks.
const MIN_BLOCK_SIZE: u32 = 1024;

/// The size of a block of the file system on a device. Blocks.
fn block_size_on(device: &Arc<dyn Device>) -> Result<u32, Error> {
    let found = find_superblock(&Blocking::new(device.clone()))?;
    Ok(found.sb.block_size())
}

/// Mounts the file system on a part of a file of a volume, which `open` opens. If the device below has larger sectors than the file system
/// has blocks, the part gets smaller ones.
fn mounted_inside(
    part: Part,
    options: &OpenOptions,
    open: impl Fn(&Part) -> Result<Arc<dyn Device>, Error>,
) -> Result<Volume, Error> {
    let device = open(&part)?;
    let logical = device.geometry().logical;
    if logical <= MIN_BLOCK_SIZE || part.sector.is_some() {
        return mounted(device, options, Vec::new());
    }
    let block = block_size_on(&device)?;
    if logical <= block {
        return mounted(device, options, Vec::new());
    }
    // It is the only one that writes to the file.
    drop(device);
    // The table of partitions counts in sectors, too: in those of 512 bytes, as nothing else was said.
    let sector = part.part.map_or(block, |_| 512);
    let sectors = Part {
        sector: Some(sector),
        ..part
    };
    let note = format!(
        "sectors of {sector} bytes: the device below has blocks of {logical}, which are read and rewritten"
    );
    mounted(open(&sectors)?, options, vec![note])
}

/// Opens the device of an external journal as the volume's own is opened: if its logical block is larger than the file system's block,
/// through the host's page cache.
fn log_device(
    locator: &str,
    options: &OpenOptions,
    block_size: u32,
) -> Result<Arc<dyn Device>, Error> {
    let locator = Locator::parse(locator)?;
    let fits = |device: &Arc<dyn Device>| device.geometry().logical <= block_size;
    let direct = device_at(&locator, options, false)?;
    if fits(&direct) {
        return Ok(direct);
    }
    // The direct device is dropped first: its locks would keep out the buffered one.
    drop(direct);
    let buffered = device_at(&locator, options, true)?;
    if fits(&buffered) {
        return Ok(buffered);
    }
    Err(Error::refused(
        "the journal device's logical block is larger than the file system's",
        "copy the journal to an image file",
    ))
}

/// Opens the device that a locator names, through any number of volumes. `buffered`: through the host's page cache. If it is the one that
/// an undo file is for, what it has is kept before it is overwritten. Blocks.
pub(crate) fn device_at(
    locator: &Locator,
    options: &OpenOptions,
    buffered: bool,
) -> Result<Arc<dyn Device>, Error> {
    guarded(unguarded(locator, options, buffered)?, locator, options)
}

/// The device at a locator, opened already. If it is the one that an undo file of `options` is for, what it has is kept before it is
/// overwritten. Whoever opens a device without [`open_device`] needs this. Blocks.
///
/// # Errors
/// The undo file that is there cannot be continued.
pub fn guarded(
    device: Arc<dyn Device>,
    locator: &Locator,
    options: &OpenOptions,
) -> Result<Arc<dyn Device>, Error> {
    match &options.undo {
        Some(undo) if options.write && undo.is_for(locator) => undo.guard(device),
        Some(undo) if options.write => {
            undo.passed();
            Ok(device)
        }
        _ => Ok(device),
    }
}

fn unguarded(
    locator: &Locator,
    options: &OpenOptions,
    buffered: bool,
) -> Result<Arc<dyn Device>, Error> {
    let Locator::Inside { outer, path, part } = locator else {
        let (read_only, io_engine, force) = (!options.write, options.io_engine, options.force);
        return Ok(locator::open(
            locator,
            &locator::OpenOptions::default()
                .read_only(read_only)
                .io_engine(io_engine)
                .buffered(buffered)
                .force(force)
                .grow_to(None),
        )?);
    };
    // A named journal belongs to the top volume only. If it were passed on, a volume below without a journal inside would use it too.
    let write = options.write && !part.ro;
    let below = OpenOptions {
        journal: None,
        journal_device: None,
        write,
        ..options.clone()
    };
    let volume = Volume::open_locator(outer, &below)?;
    device_inside(&volume, path.as_bytes(), part, locator.to_string(), write)
}

/// A part of a file of a volume as a device with this name.
fn device_inside(
    volume: &Volume,
    path: &[u8],
    part: &Part,
    name: String,
    write: bool,
) -> Result<Arc<dyn Device>, Error> {
    let flags = OpenFlags {
        write,
        ..OpenFlags::default()
    };
    let file = volume
        .open_path(path, flags)
        .map_err(|error| explain(error, &name, path))?;
    if !file.metadata().is_file() {
        let what = format!(
            "{name}: {} is no regular file",
            String::from_utf8_lossy(path)
        );
        return Err(DeviceError::new(DeviceErrorKind::Unsupported, what).into());
    }
    let device = Arc::new(LoopDevice::claimed(file, name.clone())?);
    Ok(part.of_device(device, name)?)
}

/// Replaces "not found" by a helpful error if the path contains a question mark: the caller mostly meant a parameter.
fn explain(error: Error, name: &str, path: &[u8]) -> Error {
    if !(matches!(error.root(), Error::NotFound { .. }) && path.contains(&b'?')) {
        return error;
    }
    let path = String::from_utf8_lossy(path);
    let what = format!(
        "{name}: there is no file {path}; what is behind the '?' is not all known parameters (offset=, size=, part=, sector=, ro)"
    );
    DeviceError::new(DeviceErrorKind::Locator, what).into()
}
