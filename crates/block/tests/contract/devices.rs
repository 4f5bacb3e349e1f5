//! The devices that the contract is tested over.

use diorite_block::{Device, FaultDevice, FaultPlan, MemDevice, SimDevice, SimOptions};
use std::sync::Arc;

/// A device with what it needs to live.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) device: Arc<dyn Device>,
    /// The directory of its file, removed with it.
    pub(crate) _dir: Option<tempfile::TempDir>,
}

const SIZE: u64 = 4 << 20;

fn subject(name: &str, device: impl Device + 'static) -> Subject {
    Subject {
        name: name.into(),
        device: Arc::new(device),
        _dir: None,
    }
}

fn sim(options: &str) -> Subject {
    let parsed = SimOptions::parse(&format!("{SIZE},{options}")).expect("well formed");
    subject(
        &format!("sim:{options}"),
        SimDevice::new(parsed).expect("a disk"),
    )
}

/// Every device, new and full of zeros.
pub(crate) fn subjects() -> Vec<Subject> {
    let below = Arc::new(MemDevice::new(SIZE));
    vec![
        subject("mem:", MemDevice::new(SIZE)),
        subject(
            "mem: under faults",
            FaultDevice::new(below, FaultPlan::default()),
        ),
        sim("latency=20us"),
        sim("latency=100us,jitter=100us,parallel=3,cache=volatile,crash=yes"),
        sim("clock=auto,seed=5,cache=volatile,crash=yes,fua=no"),
        sim("clock=auto,seed=6,logical=4096,parallel=4"),
    ]
}
