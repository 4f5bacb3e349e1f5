//! Block devices: the kernel's loop device, as root.

use super::*;

/// A kernel loop device over an image on tmpfs. The fields are dropped in this order.
struct Loop {
    device: xtask::loopback::Loop,
    _image: Image,
}

impl Loop {
    fn new(sector: &str) -> Option<Loop> {
        Loop::with(&["--direct-io=on", "--sector-size", sector])
    }

    fn with(args: &[&str]) -> Option<Loop> {
        let image = Image::new("/dev/shm", 1 << 20)?;
        let device = xtask::loopback::Loop::attach_or_skip(&image.path, args)?;
        Some(Loop {
            device,
            _image: image,
        })
    }

    fn path(&self) -> &Path {
        Path::new(self.device.device())
    }

    /// Opens the device. A child that another test has just forked keeps closed descriptors open until its exec.
    fn open(&self, engine: IoEngine) -> FileDevice {
        for _ in 0..500 {
            match FileDevice::open(&options(self.path(), engine)) {
                Err(e) if e.kind == DeviceErrorKind::Held => {
                    std::thread::sleep(std::time::Duration::from_millis(4));
                }
                other => return other.expect("we are root"),
            }
        }
        panic!("{} stays held", self.device.device());
    }
}

#[test]
fn a_block_device_by_every_engine() {
    let Some(disk) = Loop::new("512") else {
        return;
    };
    for engine in IoEngine::ALL {
        let device = disk.open(engine);
        let (geometry, report) = (device.geometry(), device.report());
        eprintln!("{geometry:?} {report:?}");
        assert_eq!((geometry.size, geometry.logical), (1 << 20, 512));
        assert!(report.block_device && report.direct && report.fallbacks.is_empty());
        let own = Own::new(&device, 8);
        let writes = (0..32u64).map(|i| Bio::write(i * 4096, filled(4096, i as u8), i));
        assert!(own.run(writes).iter().all(|b| b.result == Ok(())));
        let mut fua = Bio::write(512, filled(512, 99), 0);
        fua.flags.fua = true;
        assert_eq!(own.one(fua).result, Ok(()));
        assert_eq!(own.one(Bio::flush(0)).result, Ok(()));
        let bio = own.one(Bio::read(0, Buf::zeroed(8192), 0));
        assert_eq!((bio.buf.as_slice()[0], bio.buf.as_slice()[600]), (0, 99));
        assert_eq!((bio.buf.as_slice()[1024], bio.buf.as_slice()[5000]), (0, 1));
        for op in [BioOp::WriteZeroes, BioOp::WriteZeroesUnmap, BioOp::Discard] {
            let bio = own.one(Bio::range(op, 4096, 4096, 0));
            assert_eq!(bio.result, Ok(()), "{op:?}");
            let bio = own.one(Bio::read(4096, filled(4096, 0xee), 0));
            assert!(op == BioOp::Discard || bio.buf.as_slice().iter().all(|b| *b == 0));
        }
        let bio = own.one(Bio::read(1 << 20, Buf::zeroed(512), 0));
        assert_eq!(bio.result, failed(BioErrorKind::Invalid));
    }
}

/// One write and one flush below the device, whether the caller asks for both or for FUA; and one wait instead of two.
#[test]
fn fua_on_a_disk_without_it_flushes_once() {
    let Some(disk) = Loop::new("512") else {
        return;
    };
    let name = disk.path().file_name().expect("a device has a name");
    let stat = PathBuf::from("/sys/block").join(name).join("stat");
    let flushes = || {
        let line = std::fs::read_to_string(&stat).expect("we read of our own disk");
        let count = line.split_whitespace().nth(15).expect("a kernel since 5.5");
        count.parse::<u64>().expect("it is a number")
    };
    for engine in IoEngine::ALL {
        let device = disk.open(engine);
        let geometry = device.geometry();
        assert!(geometry.volatile_cache && geometry.fua_flushes && !geometry.fua);
        let blocking = crate::Blocking::new(Arc::new(device));
        let before = flushes();
        let written = blocking.write_durably(0, filled(4096, 7));
        assert_eq!(written, Ok(()));
        let more = flushes() - before;
        // A thread's system call includes a flush of its own.
        let most = if engine == IoEngine::Threads { 2 } else { 1 };
        assert!((1..=most).contains(&more), "{engine}: {more} flushes");
        let two = BioList::from([0, 8192].map(|pos| Bio::write(pos, filled(512, 8), 0)));
        let done = blocking.run_all_durably(two).expect("it flushes");
        assert!(done.iter().all(|bio| bio.result == Ok(())));
        assert!(
            (1..=most).contains(&(flushes() - before - more)),
            "{engine}"
        );
    }
}

/// Defect: the kernel opens a write-protected device for writing and refuses the first write, so a volume on it was opened and
/// failed in the middle.
#[test]
fn a_write_protected_device_is_refused_for_writing() {
    let Some(disk) = Loop::with(&["--read-only"]) else {
        return;
    };
    let writing = options(disk.path(), IoEngine::Uring);
    let error = FileDevice::open(&writing)
        .map(drop)
        .expect_err("no writing");
    assert_eq!(error.kind, DeviceErrorKind::Denied);
    assert!(error.what.contains("?ro"), "{error}");
    let reading = FileOptions {
        read_only: true,
        ..writing
    };
    assert!(FileDevice::open(&reading).is_ok());
}

#[test]
fn a_block_device_with_larger_sectors() {
    let Some(disk) = Loop::new("4096") else {
        return;
    };
    let device = disk.open(IoEngine::Uring);
    assert_eq!(device.geometry().logical, 4096);
    let own = Own::new(&device, 4);
    let bio = own.one(Bio::read(512, Buf::zeroed(512), 0));
    assert_eq!(bio.result, failed(BioErrorKind::Invalid));
    drop((own, device));
    let odd = FileOptions {
        offset: 512,
        ..options(disk.path(), IoEngine::Uring)
    };
    let error = FileDevice::open(&odd)
        .map(drop)
        .expect_err("not by direct I/O");
    assert!(
        error.what.contains("512") && error.what.contains("4096"),
        "{error}"
    );
    let odd = FileOptions {
        read_only: true,
        ..odd
    };
    let device = FileDevice::open(&odd).expect("buffered, for reading");
    assert!(!device.report().direct);
    let own = Own::new(&device, 4);
    let bio = own.one(Bio::read(512, Buf::zeroed(512), 0));
    assert_eq!(bio.result, Ok(()));
    assert_eq!(bio.buf.as_slice()[3], pattern(1024 + 3));
}

#[test]
fn a_partition_is_a_device() {
    let image = Image::new("/dev/shm", 4 << 20).expect("tmpfs");
    let mut script = xtask::run::tool("sfdisk");
    // Without this option sfdisk waits for all file systems of the machine.
    script.arg("--no-tell-kernel").arg(&image.path);
    script.stdin(std::process::Stdio::piped());
    let Ok(mut child) = script.stdout(std::process::Stdio::null()).spawn() else {
        xtask::skip::skipped("sfdisk is not installed");
        return;
    };
    let mut stdin = child.stdin.take().expect("it is piped");
    std::io::Write::write_all(&mut stdin, b"label: gpt\nsize=1M\nstart=4096,size=1M\n")
        .expect("sfdisk listens");
    drop(stdin);
    assert!(child.wait().expect("our own child").success());
    let part = FileOptions {
        part: Some(2),
        ..options(&image.path, IoEngine::Uring)
    };
    let device = FileDevice::open(&part).expect("it is there");
    assert_eq!(
        (device.geometry().size, device.report().direct),
        (1 << 20, true)
    );
    let bio = Own::new(&device, 4).one(Bio::read(512, Buf::zeroed(512), 0));
    assert_eq!(bio.buf.as_slice()[5], pattern((2 << 20) + 512 + 5));
    let none = FileOptions {
        part: Some(3),
        ..options(&image.path, IoEngine::Threads)
    };
    drop(device);
    let error = FileDevice::open(&none)
        .map(drop)
        .expect_err("there are two");
    assert!(error.what.contains("has no partition 3"), "{error}");
}
