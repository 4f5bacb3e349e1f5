//! For tests: a volume that an installed mke2fs makes, devices that note what they get, and random numbers.
//!
//! Input: options of mke2fs; bios. Output: volumes in memory; a list of writes and flushes. Invariants: none. Limits: tests only.

use crate::{OpenOptions, Volume};
use diorite_block::device::{DeviceError, DeviceQueue, Geometry, QueueOptions};
use diorite_block::{Bio, BioOp, Blocking, Device, MemDevice};
use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) use xtask::rng::Rng;

/// A volume in memory with blocks of 1 KiB. `size` and `more` are arguments of mke2fs. Nothing is committed unless somebody asks for it.
pub(crate) fn small_volume(size: &str, more: &[&str]) -> Volume {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let made = xtask::run::tool("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "1024"])
        .args(more)
        .args([path.to_str().unwrap(), size])
        .output();
    assert!(made.unwrap().status.success());
    let mut file = File::open(&path).unwrap();
    let device = MemDevice::new(file.metadata().unwrap().len());
    let (mut chunk, mut at) = (Vec::new(), 0);
    while file.by_ref().take(1 << 16).read_to_end(&mut chunk).unwrap() > 0 {
        // Chunks of zeros are not written, so the device allocates no memory for them.
        if chunk.iter().any(|b| *b != 0) {
            device.write_at(at, &chunk);
        }
        at += chunk.len() as u64;
        chunk.clear();
    }
    let options = OpenOptions {
        commit_interval: Duration::from_secs(3600),
        ..OpenOptions::writable()
    };
    Volume::open_device(Arc::new(device), &options).unwrap()
}

/// What the devices of one test got, in its order.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// What has come since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A device in memory that reports a cache, and notes the blocking writes and flushes that it gets.
pub(crate) struct NotingDevice {
    name: &'static str,
    pub(crate) below: MemDevice,
    block_size: u32,
    notes: Notes,
}

impl NotingDevice {
    pub(crate) fn new(
        name: &'static str,
        below: MemDevice,
        block_size: u32,
        notes: &Notes,
    ) -> Arc<NotingDevice> {
        Arc::new(NotingDevice {
            name,
            below,
            block_size,
            notes: notes.clone(),
        })
    }
}

impl Device for NotingDevice {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.below)
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            volatile_cache: true,
            ..self.below.geometry()
        }
    }

    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        self.below.open_queue(options)
    }

    fn run_here(&self, bio: Bio) -> Result<Bio, Bio> {
        let what = match bio.op {
            BioOp::Flush => Some("flush".to_owned()),
            BioOp::Write => Some(format!("write {}", bio.pos / u64::from(self.block_size))),
            _ => None,
        };
        let said = what.map(|what| format!("{}: {what}", self.name));
        self.notes.0.lock().unwrap().extend(said);
        Ok(Blocking::new(Arc::new(self.below.clone())).run(bio))
    }

    fn is_memory(&self) -> bool {
        true
    }
}
