//! The devices that the contract is tested over.

use diorite_block::{
    Device, FaultDevice, FaultPlan, IoEngine, Locator, MemDevice, OpenOptions, RecordDevice,
    SimDevice, SimOptions, locator,
};
use std::sync::Arc;

/// A device with the resources that it needs.
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

/// A file with an I/O engine; none if this machine does not allow that engine.
fn file(engine: IoEngine, buffered: bool) -> Option<Subject> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk");
    let made = std::fs::File::create(&path).and_then(|f| f.set_len(SIZE));
    made.expect("a sparse file");
    let options = OpenOptions {
        io_engine: Some(engine),
        buffered,
        ..OpenOptions::default()
    };
    let how = if buffered { "buffered" } else { "direct" };
    match locator::open(&Locator::file(path), &options) {
        Ok(device) => Some(Subject {
            name: format!("a {how} file behind {engine}"),
            device,
            _dir: Some(dir),
        }),
        Err(e) => {
            xtask::skip::skipped(format_args!("a {how} file behind {engine}: {e}"));
            None
        }
    }
}

/// Every device, new and full of zeros.
pub(crate) fn subjects() -> Vec<Subject> {
    let below = Arc::new(MemDevice::new(SIZE));
    let mut subjects = vec![
        subject("mem:", MemDevice::new(SIZE)),
        subject(
            "mem: under faults",
            FaultDevice::new(below, FaultPlan::default()),
        ),
        subject(
            "mem: recorded",
            RecordDevice::new(Arc::new(MemDevice::new(SIZE))),
        ),
        sim("latency=20us"),
        sim("latency=100us,jitter=100us,parallel=3,cache=volatile,crash=yes"),
        sim("clock=auto,seed=5,cache=volatile,crash=yes,fua=no"),
        sim("clock=auto,seed=6,logical=4096,parallel=4"),
    ];
    subjects.extend(IoEngine::ALL.into_iter().filter_map(|e| file(e, false)));
    subjects.extend(
        [IoEngine::Uring, IoEngine::Threads]
            .into_iter()
            .filter_map(|e| file(e, true)),
    );
    subjects
}
