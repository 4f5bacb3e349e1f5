//! What it is: opens the volume under test from images.
//! Input: an arrangement, an image per disk. Output: the volume under test, recovered from the bottom up by opening each volume for
//! writing; the volume below stays open with it. Limits: the devices are in memory and are reused.

use super::bed::{INNER, Place};
use diorite::{Error, JournalDevice, LoopDevice, OpenFlags, OpenOptions, Volume};
use diorite_block::{Device, MemDevice};
use std::sync::Arc;

/// Memory devices that images are recovered in.
#[derive(Debug)]
pub struct Bench {
    mems: Vec<Arc<MemDevice>>,
}

/// A volume, and the one that contains it.
#[derive(Debug)]
pub struct Stack {
    /// The volume under test.
    pub top: Volume,
    /// The volume below, if there is one.
    pub below: Option<Volume>,
}

const FOR_WRITING: OpenFlags = OpenFlags::writable();

impl Stack {
    /// Opens the volumes on these devices.
    ///
    /// # Errors
    /// A volume is refused.
    pub fn open(
        place: Place,
        devices: &[Arc<dyn Device>],
        options: &OpenOptions,
    ) -> Result<Stack, Error> {
        let journal = devices.get(1).filter(|_| place.apart);
        let bottom = options
            .clone()
            .journal_device(journal.map(|device| JournalDevice(device.clone())));
        let volume = Volume::open_device(devices[0].clone(), &bottom)?;
        if !place.inside {
            let (top, below) = (volume, None);
            return Ok(Stack { top, below });
        }
        let flags = match options.write {
            true => FOR_WRITING,
            false => OpenFlags::default(),
        };
        let file = volume.open_path(INNER, flags)?;
        let device = LoopDevice::new(file, "loop".into());
        let top = Volume::open_device(Arc::new(device), options)?;
        let below = Some(volume);
        Ok(Stack { top, below })
    }

    /// Closes both volumes; calls `closed` after the first.
    ///
    /// # Errors
    /// What was written is not durable.
    pub fn close(self, closed: impl FnOnce()) -> Result<(), Error> {
        self.top.close()?;
        closed();
        self.below.map_or(Ok(()), Volume::close)
    }
}

impl Bench {
    /// Memory devices of the sizes of these images.
    ///
    /// # Errors
    /// The host has no room.
    pub fn new(images: &[Vec<u8>]) -> Result<Bench, crate::error::Error> {
        let mems = images
            .iter()
            .map(|image| Ok(Arc::new(MemDevice::try_new(image.len() as u64)?)));
        let mems = mems.collect::<Result<_, diorite_block::DeviceError>>()?;
        Ok(Bench { mems })
    }

    /// Copies images into the devices.
    pub fn load(&self, images: &[Vec<u8>]) {
        for (mem, image) in self.mems.iter().zip(images) {
            mem.write_at(0, image);
        }
    }

    /// The images in the devices.
    #[must_use]
    pub fn save(&self, images: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut out = images.to_vec();
        for (mem, image) in self.mems.iter().zip(&mut out) {
            mem.read_at(0, image);
        }
        out
    }

    /// Opens the volumes in the devices.
    ///
    /// # Errors
    /// A volume is refused.
    pub fn open(&self, place: Place, write: bool) -> Result<Stack, Error> {
        let devices = self.mems.iter().map(|mem| mem.clone() as Arc<dyn Device>);
        let devices: Vec<_> = devices.collect();
        let options = OpenOptions::default().write(write).workers(1);
        Stack::open(place, &devices, &options)
    }
}
