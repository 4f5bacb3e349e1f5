//! Tests of the file device: every I/O engine runs the same ones.

use super::*;
use crate::bio::{Bio, BioList};
use crate::blocking::Blocking;
use crate::buf::{Buf, BufPool};
use std::path::Path;
use std::time::Duration;

/// A file of `size` bytes whose byte at position p is `pattern(p)`.
fn image(dir: &Path, size: usize) -> PathBuf {
    let path = dir.join("image");
    let bytes: Vec<u8> = (0..size).map(pattern).collect();
    std::fs::write(&path, bytes).expect("the test's own file can be written");
    path
}

fn pattern(at: usize) -> u8 {
    (at % 251) as u8 ^ (at >> 9) as u8
}

/// On tmpfs, and on the disk.
fn folders() -> Vec<tempfile::TempDir> {
    let make = |at: &str| {
        tempfile::Builder::new()
            .prefix("diorite-")
            .tempdir_in(at)
            .ok()
    };
    ["/dev/shm", "/var/tmp"]
        .into_iter()
        .filter_map(make)
        .collect()
}

fn options(path: &Path, engine: IoEngine) -> FileOptions {
    FileOptions {
        path: path.to_owned(),
        engine: Some(engine),
        ..FileOptions::default()
    }
}

/// Runs `test` with every engine on every folder.
fn every_engine(size: usize, test: impl Fn(&FileDevice)) {
    for engine in IoEngine::ALL {
        for dir in folders() {
            let path = image(dir.path(), size);
            let device = FileDevice::open(&options(&path, engine)).expect("the file can be opened");
            eprintln!(
                "{engine} on {}: {:?}",
                dir.path().display(),
                device.report()
            );
            test(&device);
        }
    }
}

/// Submits all and reaps until all have ended; in the order of their tokens.
fn run_all(queue: &dyn DeviceQueue, waker: &crate::device::Waker, bios: Vec<Bio>) -> Vec<Bio> {
    let count = bios.len();
    let (mut todo, mut done) = (BioList::from(bios), BioList::new());
    while done.len() < count {
        queue.submit(&mut todo);
        waker.clear();
        if queue.reap(&mut done) == 0 {
            queue.wait(4, Some(Duration::from_secs(10)));
        }
    }
    let mut done: Vec<Bio> = done.into();
    done.sort_by_key(|b| b.token);
    done
}

#[test]
fn reads_what_is_there() {
    every_engine(1 << 20, |device| {
        let blocking = Blocking::new(Arc::new(FileDevice {
            target: device.target.clone(),
            pool: device.pool.clone(),
            engine: Mutex::new(&DEVICE_SHARED, device.engine()),
            forced: true,
        }));
        for pos in [0, 512, 4096, 1 << 19] {
            let buf = blocking
                .read(pos, Buf::zeroed(4096))
                .expect("inside the file");
            let want: Vec<u8> = (pos as usize..pos as usize + 4096).map(pattern).collect();
            assert_eq!(buf.as_slice(), want);
        }
    });
}

#[test]
fn writes_come_back_at_depth() {
    every_engine(1 << 20, |device| {
        let pool = BufPool::new(4096, 64);
        let options = QueueOptions::new(8).expect("an eventfd");
        let waker = options.waker.clone();
        let queue = device.open_queue(options).expect("a queue");
        for round in 0..3u8 {
            let writes = (0..64u64)
                .map(|i| {
                    let mut buf = pool.get().expect("64 bufs");
                    buf.as_mut_slice().fill(i as u8 + round);
                    Bio::write(i * 8192, buf, i)
                })
                .collect();
            for bio in run_all(&*queue, &waker, writes) {
                assert_eq!(bio.result, Ok(()));
                pool.put(bio.buf);
            }
            let reads = (0..64u64)
                .map(|i| Bio::read(i * 8192, pool.get().expect("64 bufs"), i))
                .collect();
            for bio in run_all(&*queue, &waker, reads) {
                assert_eq!(bio.result, Ok(()));
                assert!(
                    bio.buf
                        .as_slice()
                        .iter()
                        .all(|b| *b == bio.token as u8 + round)
                );
                pool.put(bio.buf);
            }
        }
        assert_eq!(queue.in_flight(), 0);
        if device.engine() == IoEngine::Uring {
            assert_eq!(device.report().registered, 1, "the pool's one region");
        }
    });
}
