//! A real image under any device: a file through each I/O engine, memory, a simulated disk.
//!
//! Input: an image's path. Output: the device to open it on. Invariant: [`Stage::save`] writes what the device holds back to the
//! file, so that e2fsck and the kernel can judge it. Limits: images are held in memory whole, so they must be small.

use diorite::{Error, OpenOptions, Policy, Volume};
use diorite_block::device::{DeviceError, DeviceErrorKind};
use diorite_block::{
    Device, FaultDevice, FaultPlan, IoEngine, Locator, MemDevice, SimDevice, SimOptions, locator,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    File(IoEngine),
    Mem,
    /// A simulated disk with latency and a volatile cache, without FUA.
    Sim,
}

impl Below {
    pub const ALL: [Below; 5] = [
        Below::File(IoEngine::Uring),
        Below::File(IoEngine::Aio),
        Below::File(IoEngine::Threads),
        Below::Mem,
        Below::Sim,
    ];
}

/// Options for writing under a policy, with one worker of each class. Files get the last block.
pub fn one_worker(policy: Policy) -> OpenOptions {
    OpenOptions::writable()
        .policy(policy)
        .workers(1)
        .keep_for_maps(false)
}

pub struct Stage {
    pub image: PathBuf,
    pub device: Arc<dyn Device>,
    mem: Option<Arc<MemDevice>>,
    sim: Option<Arc<SimDevice>>,
}

impl Stage {
    /// Returns None, with the reason printed, where this machine does not allow that I/O engine.
    pub fn new(image: &Path, below: Below) -> Option<Stage> {
        match below {
            Below::Mem => Some(Stage::mem(image)),
            Below::Sim => Some(Stage::sim(
                image,
                SimOptions::parse("0,latency=60us,jitter=60us,cache=volatile,fua=no").unwrap(),
            )),
            Below::File(engine) => {
                // Io_uring is tried first but not forced: rings need lockable memory. Where that is used up (64 KiB, and tests in
                // parallel), the next engine has to serve, as it would for a user.
                let options = locator::OpenOptions::default()
                    .io_engine((engine != IoEngine::Uring).then_some(engine));
                match patiently(|| locator::open(&Locator::file(image), &options)) {
                    Ok(device) => Some(Stage {
                        image: image.into(),
                        device,
                        mem: None,
                        sim: None,
                    }),
                    Err(e) => {
                        // What a test has let go of is free at once.
                        assert_ne!(e.kind, DeviceErrorKind::Held, "{engine}: {e}");
                        xtask::skip::skipped(format_args!("{engine}: {e}"));
                        None
                    }
                }
            }
        }
    }

    pub fn mem(image: &Path) -> Stage {
        let mem = Arc::new(mem_of(&std::fs::read(image).unwrap()));
        Stage {
            image: image.into(),
            device: mem.clone(),
            mem: Some(mem),
            sim: None,
        }
    }

    /// Puts the image on a simulated disk of the same size with these options.
    pub fn sim(image: &Path, options: SimOptions) -> Stage {
        let bytes = std::fs::read(image).unwrap();
        let options = options.size(bytes.len() as u64);
        let sim = Arc::new(SimDevice::new(options).unwrap());
        sim.write_at(0, &bytes);
        Stage {
            image: image.into(),
            device: sim.clone(),
            mem: None,
            sim: Some(sim),
        }
    }

    pub fn disk(&self) -> &SimDevice {
        self.sim.as_ref().unwrap()
    }

    pub fn open(&self, options: &OpenOptions) -> Result<Volume, Error> {
        Volume::open_device(self.device.clone(), options)
    }

    /// The current contents of the device.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; std::fs::metadata(&self.image).unwrap().len() as usize];
        match (&self.mem, &self.sim) {
            (Some(mem), _) => mem.read_at(0, &mut bytes),
            (_, Some(sim)) => sim.read_at(0, &mut bytes),
            _ => bytes = std::fs::read(&self.image).unwrap(),
        }
        bytes
    }

    /// Writes the contents of the device back to the image's file.
    pub fn save(&self) {
        if self.mem.is_some() || self.sim.is_some() {
            std::fs::write(&self.image, self.bytes()).unwrap();
        }
    }

    /// Saves the image, and asserts that e2fsck finds nothing, and diorite's own check neither.
    pub fn fsck(&self) {
        self.save();
        super::fsck(&self.image);
    }
}

/// Retries while the image counts as held: a worker may hold a volume's device for a moment after the last handle of that volume
/// was dropped.
pub fn patiently<T>(mut open: impl FnMut() -> Result<T, DeviceError>) -> Result<T, DeviceError> {
    for _ in 0..500 {
        match open() {
            Err(e) if e.kind == DeviceErrorKind::Held => {
                std::thread::sleep(std::time::Duration::from_millis(4));
            }
            other => return other,
        }
    }
    open()
}

/// Bytes as a memory device, rounded up to a sector.
pub fn mem_of(bytes: &[u8]) -> MemDevice {
    let mem = MemDevice::new((bytes.len() as u64).next_multiple_of(512));
    mem.write_at(0, bytes);
    mem
}

/// Puts a device that injects faults above `below`.
pub fn faulty(below: Arc<dyn Device>, faults: Vec<diorite_block::Fault>) -> Arc<FaultDevice> {
    Arc::new(FaultDevice::new(below, FaultPlan::new(faults, 1)))
}
