//! Tests of the file device: each runs with every I/O engine, on tmpfs and on the disk.

mod edges;
mod host;
mod limits;
mod rounds;
mod waiting;

use super::*;
use crate::bio::{Bio, BioError, BioErrorKind, BioList, BioOp};
use crate::buf::{Buf, BufPool};
use crate::device::Waker;
use std::path::Path;
use std::time::Duration;

/// A folder for the test, with an image whose byte at position p is `pattern(p)`.
struct Image {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

fn pattern(at: usize) -> u8 {
    (at % 251) as u8 ^ (at >> 9) as u8
}

impl Image {
    fn new(folder: &str, size: usize) -> Option<Image> {
        let dir = tempfile::Builder::new()
            .prefix("diorite-")
            .tempdir_in(folder)
            .ok()?;
        let path = dir.path().join("image");
        let bytes: Vec<u8> = (0..size).map(pattern).collect();
        std::fs::write(&path, bytes).expect("the test's own file can be written");
        Some(Image { path, _dir: dir })
    }

    fn open(&self, engine: IoEngine) -> FileDevice {
        patiently(|| FileDevice::open(&options(&self.path, engine)))
            .expect("the file can be opened")
    }
}

/// Waits longer than a caller would: tests beside this one may have all the lockable memory.
fn patiently<T>(make: impl FnMut() -> Result<T, DeviceError>) -> Result<T, DeviceError> {
    super::patiently(1000, make)
}

/// Whether there is too little lockable memory for many or deep rings, as in the run of `scripts/test` with 64 KiB.
fn short_of_lockable_memory() -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let rights = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let rights = rights.and_then(|r| u64::from_str_radix(r.trim(), 16).ok());
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
    rights.is_some_and(|r| r >> CAP_IPC_LOCK & 1 == 0) && limit.current.is_some_and(|l| l < 4 << 20)
}

fn options(path: &Path, engine: IoEngine) -> FileOptions {
    FileOptions {
        path: path.to_owned(),
        engine: Some(engine),
        ..FileOptions::default()
    }
}

/// On tmpfs, and on the disk.
const FOLDERS: [&str; 2] = ["/dev/shm", "/var/tmp"];

/// Runs `test` with every engine in every folder, over an image of `size` bytes. If io_uring may run out of memory, it is only
/// preferred, so that the fallback is tested, too.
fn every_engine(size: usize, test: impl Fn(&FileDevice, &Image)) {
    for engine in IoEngine::ALL {
        for image in FOLDERS.into_iter().filter_map(|f| Image::new(f, size)) {
            let device = if engine == IoEngine::Uring && short_of_lockable_memory() {
                let options = FileOptions {
                    engine: None,
                    ..options(&image.path, engine)
                };
                FileDevice::open(&options).expect("the file can be opened")
            } else {
                image.open(engine)
            };
            eprintln!(
                "{engine} on {}: {:?}",
                image.path.display(),
                device.report()
            );
            test(&device, &image);
        }
    }
}

/// A queue with its waker.
struct Own {
    queue: Box<dyn DeviceQueue>,
    waker: Arc<Waker>,
}

impl Own {
    fn new(device: &FileDevice, depth: u32) -> Own {
        let options = QueueOptions::new(depth).expect("an eventfd");
        let waker = options.waker.clone();
        let queue = patiently(|| device.open_queue(options.clone())).expect("a queue");
        Own { queue, waker }
    }

    /// Submits all bios and reaps until all have ended; sorted by token.
    fn run(&self, bios: impl IntoIterator<Item = Bio>) -> Vec<Bio> {
        let mut todo: BioList = bios.into_iter().collect();
        let (count, mut done) = (todo.len(), BioList::new());
        while done.len() < count {
            self.queue.submit(&mut todo);
            self.waker.clear();
            if self.queue.reap(&mut done) == 0 {
                self.queue.wait(4, Some(Duration::from_secs(10)));
            }
        }
        let mut done: Vec<Bio> = done.into();
        done.sort_by_key(|b| b.token);
        done
    }

    fn one(&self, bio: Bio) -> Bio {
        self.run([bio]).remove(0)
    }
}

fn filled(len: usize, byte: u8) -> Buf {
    let mut buf = Buf::zeroed(len);
    buf.as_mut_slice().fill(byte);
    buf
}

const fn failed(kind: BioErrorKind) -> Result<(), BioError> {
    Err(BioError::new(kind))
}

#[test]
fn reads_what_is_there() {
    every_engine(1 << 20, |device, _| {
        let own = Own::new(device, 4);
        for pos in [0usize, 512, 4096, 1 << 19] {
            let bio = own.one(Bio::read(pos as u64, Buf::zeroed(4096), 0));
            let want: Vec<u8> = (pos..pos + 4096).map(pattern).collect();
            assert_eq!(bio.buf.as_slice(), want);
        }
    });
}

#[test]
fn writes_come_back_at_depth() {
    every_engine(1 << 20, |device, _| {
        let pool = BufPool::new(4096, 64);
        let own = Own::new(device, 8);
        for round in 0..3u8 {
            let writes = (0..64u64).map(|i| {
                let mut buf = pool.get().expect("64 bufs");
                buf.as_mut_slice().fill(i as u8 + round);
                Bio::write(i * 8192, buf, i)
            });
            for bio in own.run(writes) {
                assert_eq!(bio.result, Ok(()));
                pool.put(bio.buf);
            }
            let reads = (0..64u64).map(|i| Bio::read(i * 8192, pool.get().expect("64 bufs"), i));
            for bio in own.run(reads) {
                assert_eq!(bio.result, Ok(()));
                let want = bio.token as u8 + round;
                assert!(bio.buf.as_slice().iter().all(|b| *b == want));
                pool.put(bio.buf);
            }
        }
        assert_eq!(own.queue.in_flight(), 0);
        if device.engine() == IoEngine::Uring && !short_of_lockable_memory() {
            assert_eq!(device.report().registered, 1, "the pool's one region");
        }
    });
}

#[test]
fn vectored_bufs_of_odd_parts() {
    every_engine(1 << 20, |device, image| {
        let own = Own::new(device, 4);
        // More parts than the host accepts at once, each of one sector.
        let parts = (0..1500u32).map(|i| filled(512, i as u8)).collect();
        let bio = own.one(Bio::write(512, Buf::from_parts(parts), 0));
        assert_eq!(bio.result, Ok(()));
        let bio = own.one(Bio::read(512, bio.buf, 0));
        assert_eq!(bio.result, Ok(()));
        let bytes = std::fs::read(&image.path).expect("the test's own file");
        for (i, part) in bio.buf.parts().enumerate() {
            assert!(part.iter().all(|b| *b == i as u8));
            assert_eq!(&bytes[512 + i * 512..][..512], part);
        }
    });
}

#[test]
fn writes_with_every_flag() {
    every_engine(1 << 20, |device, _| {
        let own = Own::new(device, 16);
        let writes = (0..16u64).map(|i| {
            let mut bio = Bio::write(i * 4096, filled(4096, i as u8 + 1), i);
            bio.flags.fua = i & 1 != 0;
            bio.flags.nowait = i & 2 != 0;
            bio
        });
        for bio in own.run(writes) {
            let nowait = bio.token & 2 != 0;
            let would_block = bio
                .result
                .is_err_and(|e| e.kind == BioErrorKind::WouldBlock);
            assert!(bio.result.is_ok() || (nowait && would_block), "{bio:?}");
        }
        let flush = own.one(Bio::flush(0));
        assert_eq!(flush.result, Ok(()));
    });
}

#[test]
fn discarded_and_zeroed_ranges_read_as_zeros() {
    every_engine(1 << 20, |device, _| {
        let own = Own::new(device, 4);
        let ops = [BioOp::Discard, BioOp::WriteZeroesUnmap, BioOp::WriteZeroes];
        for (op, pos) in ops.into_iter().zip([8192, 65536, 131_072]) {
            let bio = own.one(Bio::range(op, pos, 16384, 0));
            if bio
                .result
                .is_err_and(|e| e.kind == BioErrorKind::Unsupported)
            {
                // tmpfs has no ZERO_RANGE: afterwards the device reports that.
                assert!(op == BioOp::WriteZeroes && !device.geometry().write_zeroes);
                continue;
            }
            assert_eq!(bio.result, Ok(()), "{op:?}");
            let bio = own.one(Bio::read(pos - 512, filled(16384 + 1024, 0xee), 0));
            let (head, rest) = bio.buf.as_slice().split_at(512);
            assert!(rest[..16384].iter().all(|b| *b == 0), "{op:?}");
            let at = pos as usize;
            assert!(
                head.iter()
                    .enumerate()
                    .all(|(i, b)| *b == pattern(at - 512 + i))
            );
            let tail = &rest[16384..];
            assert!(
                tail.iter()
                    .enumerate()
                    .all(|(i, b)| *b == pattern(at + 16384 + i))
            );
        }
        assert!(device.geometry().discard);
    });
}
