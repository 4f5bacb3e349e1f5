//! The device at a locator, as the commands on whole devices use it: with its exact size, and with the volumes that it is in.
//!
//! Input: a locator. Output: an [`Opened`]. Invariants: a volume on the way is opened once and stays open with the device; those that were
//! written to are closed by [`Opened::close`], the innermost first. Limits: the exact size is known of a whole file, of the host or in a
//! volume; of anything else it is the device's.

use crate::args::Global;
use crate::images::image;
use crate::images::location::{Location, Step};
use crate::words::inode_fields::type_word;
use diorite::{
    Error, File, LoopDevice, OpenFlags, OpenOptions, Volume, exact_size, guarded, open_device,
};
use diorite_block::device::DeviceErrorKind;
use diorite_block::locator::Part;
use diorite_block::{Device, DeviceError, Locator, WRITER_PRESENT};
use std::sync::Arc;

/// See the module.
pub(crate) struct Opened {
    pub(crate) device: Arc<dyn Device>,
    /// How many bytes it has. Those of the last sector behind them are zeros.
    pub(crate) size: u64,
    /// The file in a volume that it is, if it is all of it.
    pub(crate) file: Option<File>,
    /// The volumes that it is in, the outermost first.
    pub(crate) volumes: Vec<Volume>,
}

/// The options for a device and the volumes that hold it. A named journal belongs to no volume that only holds others.
pub(crate) fn options(global: &Global, write: bool) -> OpenOptions {
    image::options(global)
        .write(write)
        .force(write && global.ignore_lock)
        .journal(None)
        // As of an image that is filled: what is written into a file of it may take the last block.
        .keep_for_maps(false)
}

/// Opens the device at a locator, which exists.
///
/// # Errors
/// As of [`open_device`].
pub(crate) fn open(locator: &Locator, options: &OpenOptions) -> Result<Opened, Error> {
    let location = Location::of(locator.clone());
    if location.inside.is_empty() {
        let device = open_device(locator, options)?;
        let size = exact_size(locator, device.as_ref());
        return Ok(Opened {
            device,
            size,
            file: None,
            volumes: Vec::new(),
        });
    }
    let holder = Volume::open_locator(&location.base, options)?;
    inside(vec![holder], &location.inside, locator, options)
}

/// Opens the file that the last step names, through the volumes that the others name, in the last of `volumes`.
///
/// # Errors
/// As of [`open_device`].
pub(crate) fn inside(
    volumes: Vec<Volume>,
    steps: &[Step],
    locator: &Locator,
    options: &OpenOptions,
) -> Result<Opened, Error> {
    let Some((step, above)) = steps.split_last() else {
        return Err(Error::NotFound {
            path: locator.to_string(),
        });
    };
    let volumes = descend(volumes, above, options)?;
    let Step { path, part } = step;
    let flags = OpenFlags::default().write(options.write && !part.ro);
    let holder = volumes.last().expect("a file is in a volume");
    let file = holder.open_path(path, flags)?;
    if !file.metadata().is_file() {
        let kind = type_word(file.metadata().file_type);
        let what = format!("{locator}: {path} is no regular file: it is a {kind}");
        return Err(DeviceError::new(DeviceErrorKind::Unsupported, what).into());
    }
    let mut opened = of_file(volumes, file, part, locator)?;
    opened.device = guarded(opened.device, locator, options)?;
    Ok(opened)
}

/// Opens the volumes in files of each other, below the last of `volumes`.
pub(crate) fn descend(
    mut volumes: Vec<Volume>,
    steps: &[Step],
    options: &OpenOptions,
) -> Result<Vec<Volume>, Error> {
    for Step { path, part } in steps {
        let holder = volumes.last().expect("there is an outermost volume");
        let next = holder.open_part_inside(path, part, options)?;
        volumes.push(next);
    }
    Ok(volumes)
}

/// The device on a part of an open file of the last of `volumes`.
///
/// # Errors
/// The file has no such part.
pub(crate) fn of_file(
    volumes: Vec<Volume>,
    file: File,
    part: &Part,
    locator: &Locator,
) -> Result<Opened, Error> {
    let whole = Arc::new(LoopDevice::new(file.clone(), locator.to_string()));
    let is_whole = *part == Part::default();
    let device = part.of_device(whole, locator.to_string())?;
    Ok(Opened {
        size: match is_whole {
            true => file.size(),
            false => device.geometry().size,
        },
        device,
        file: is_whole.then_some(file),
        volumes,
    })
}

impl Opened {
    /// Notes of its device that put what is read in doubt: another program writes to it.
    pub(crate) fn doubts(&self) -> Vec<String> {
        let report = self.device.report();
        let (mut notes, mut next) = (Vec::new(), Some(&report));
        while let Some(layer) = next {
            let doubtful = |n: &&String| n.starts_with(WRITER_PRESENT);
            notes.extend(layer.fallbacks.iter().filter(doubtful).cloned());
            next = layer.below.as_deref();
        }
        notes
    }

    /// Says that it has become shorter since it was opened, if it has: what is behind its end now is read as zeros or not at all.
    pub(crate) fn shortened(&self) -> Option<String> {
        // What cannot be measured any more is for the next request to report.
        self.device.refresh().ok()?;
        let now = self.device.geometry().size;
        (now < self.size).then(|| {
            format!(
                "it has become shorter while it was read: it had {} bytes and has {now} now",
                self.size
            )
        })
    }

    /// What positions, lengths and memory of requests to both have to be multiples of.
    pub(crate) fn unit_with(&self, other: &Opened) -> u64 {
        let unit = |device: &dyn Device| {
            let geometry = device.geometry();
            u64::from(geometry.logical.max(geometry.dma_align))
        };
        unit(self.device.as_ref()).max(unit(other.device.as_ref()))
    }

    /// Closes the volumes that it is in, which makes what was written there durable.
    ///
    /// # Errors
    /// Those of [`Volume::close`], the first of them.
    pub(crate) fn close(self) -> Result<(), Error> {
        let Opened {
            device,
            file,
            volumes,
            ..
        } = self;
        drop(device);
        drop(file);
        let mut result = Ok(());
        // All of them, also after a failure.
        for volume in volumes.into_iter().rev() {
            result = result.and(volume.close());
        }
        result
    }
}
