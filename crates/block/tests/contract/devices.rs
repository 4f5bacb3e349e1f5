//! The devices that the contract is tested over.

use diorite_block::{
    Device, FaultDevice, FaultPlan, FileDevice, FileOptions, IoEngine, Locator, MemDevice,
    OpenOptions, RecordDevice, SimDevice, SimOptions, WindowDevice, WindowOptions, locator,
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
    let options = OpenOptions::default().io_engine(engine).buffered(buffered);
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

/// A part of a larger device, in sectors of 512 bytes.
fn window(name: &str, below: Arc<dyn Device>, offset: u64) -> Subject {
    let options = WindowOptions::default()
        .offset(offset)
        .size(SIZE)
        .sector(512)
        .read_only(false);
    let device = WindowDevice::new(below, &options, name.into());
    subject(name, device.expect("it lies inside"))
}

/// A window over blocks of 4096 bytes of a file; none if this machine does not allow the I/O engine.
fn window_of_file(engine: IoEngine) -> Option<Subject> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk");
    let made = std::fs::File::create(&path).and_then(|f| f.set_len(2 * SIZE));
    made.expect("a sparse file");
    let options = FileOptions::new(path).sector(4096).engine(engine);
    let below = Arc::new(FileDevice::open(&options).ok()?);
    let name = format!("sectors in blocks of a file behind {engine}");
    Some(Subject {
        _dir: Some(dir),
        ..window(&name, below, 2048)
    })
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
    let large = |options: &str| {
        let parsed = SimOptions::parse(&format!("{},{options}", 2 * SIZE)).expect("well formed");
        Arc::new(SimDevice::new(parsed).expect("a disk"))
    };
    subjects.extend([
        window("a part of mem:", Arc::new(MemDevice::new(2 * SIZE)), 4096),
        window(
            "a part of sim:",
            large("latency=20us,cache=volatile,crash=yes"),
            512,
        ),
        window(
            "sectors in blocks",
            large("latency=20us,logical=4096"),
            4096,
        ),
        window(
            "sectors across blocks",
            large("clock=auto,seed=7,logical=4096,parallel=4,cache=volatile,crash=yes"),
            1536,
        ),
    ]);
    subjects.extend(IoEngine::ALL.into_iter().filter_map(window_of_file));
    subjects.extend(IoEngine::ALL.into_iter().filter_map(|e| file(e, false)));
    subjects.extend(
        [IoEngine::Uring, IoEngine::Threads]
            .into_iter()
            .filter_map(|e| file(e, true)),
    );
    subjects
}
