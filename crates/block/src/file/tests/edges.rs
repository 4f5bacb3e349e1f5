//! Ends of files, invalid requests, odd offsets, and file systems that refuse direct I/O.

use super::*;
use std::fs::OpenOptions;

/// Rule L2: the last, partial sector is zero-filled, and a success.
#[test]
fn a_partial_last_sector_is_read_whole() {
    every_engine(12288 + 100, |device, _| {
        assert_eq!(device.geometry().size, 12288 + 512);
        let own = Own::new(device, 4);
        for (pos, len) in [(12288usize, 512), (8192, 4608), (0, 12800)] {
            let bio = own.one(Bio::read(pos as u64, filled(len, 0xee), 0));
            assert_eq!(bio.result, Ok(()));
            let want = |at: usize| if at < 12388 { pattern(at) } else { 0 };
            let right = |(i, b): (usize, &u8)| *b == want(pos + i);
            assert!(
                bio.buf.as_slice().iter().enumerate().all(right),
                "{pos} {len}"
            );
        }
        let bio = own.one(Bio::read(12800, Buf::zeroed(512), 0));
        assert_eq!(bio.result, failed(BioErrorKind::Invalid), "past the end");
        assert_eq!(device.reads_beyond_end(), 0);
    });
}

/// Rule L2: reads past the end of a backing file that shrank return zeros and an error.
#[test]
fn reads_beyond_a_shrunken_end_are_zeros_and_errors() {
    every_engine(65536, |device, image| {
        let own = Own::new(device, 4);
        let file = OpenOptions::new().write(true).open(&image.path);
        let file = file.expect("the test's own file");
        file.set_len(8192 + 100).expect("it can shrink");
        let beyond = own.one(Bio::read(32768, filled(4096, 0xee), 0));
        assert_eq!(beyond.result, failed(BioErrorKind::Io));
        assert!(beyond.buf.as_slice().iter().all(|b| *b == 0));
        let across = own.one(Bio::read(4096, filled(16384, 0xee), 0));
        assert_eq!(across.result, failed(BioErrorKind::Io));
        let (there, gone) = across.buf.as_slice().split_at(4096 + 100);
        assert!(
            there
                .iter()
                .enumerate()
                .all(|(i, b)| *b == pattern(4096 + i))
        );
        assert!(gone.iter().all(|b| *b == 0));
        let last = own.one(Bio::read(8192, filled(512, 0xee), 0));
        assert_eq!(last.result, Ok(()), "the sector that the end lies in");
        assert_eq!(device.reads_beyond_end(), 2);
    });
}

#[test]
fn wrong_requests_fail_alone() {
    every_engine(65536, |device, _| {
        let own = Own::new(device, 8);
        let mut mismatch = Bio::read(0, Buf::zeroed(512), 3);
        mismatch.len = 1024;
        let bios = own.run([
            Bio::read(100, Buf::zeroed(512), 0),
            Bio::read(0, Buf::zeroed(100), 1),
            Bio::read(1 << 40, Buf::zeroed(512), 2),
            mismatch,
            Bio::read(0, Buf::empty(), 4),
            Bio::read(u64::MAX - 511, Buf::zeroed(512), 5),
            Bio::read(512, Buf::zeroed(512), 6),
        ]);
        for (bio, good) in bios
            .iter()
            .zip([false, false, false, false, true, false, true])
        {
            let want = if good {
                Ok(())
            } else {
                failed(BioErrorKind::Invalid)
            };
            assert_eq!(bio.result, want, "{bio:?}");
        }
        assert_eq!(bios[6].buf.as_slice()[0], pattern(512));
    });
}

#[test]
fn a_read_only_device_refuses_changes() {
    let image = Image::new("/dev/shm", 65536).expect("tmpfs");
    for engine in IoEngine::ALL {
        let read_only = FileOptions {
            read_only: true,
            ..options(&image.path, engine)
        };
        let device = FileDevice::open(&read_only).expect("it can be read");
        let own = Own::new(&device, 4);
        let bios = own.run([
            Bio::write(0, Buf::zeroed(512), 0),
            Bio::range(BioOp::Discard, 0, 512, 1),
            Bio::flush(2),
            Bio::read(0, Buf::zeroed(512), 3),
        ]);
        let refused = failed(BioErrorKind::ReadOnly);
        let results: Vec<_> = bios.iter().map(|b| b.result).collect();
        assert_eq!(results, [refused, refused, Ok(()), Ok(())]);
    }
}

#[test]
fn an_offset_is_where_the_device_begins() {
    let image = Image::new("/dev/shm", 65536).expect("tmpfs");
    for engine in IoEngine::ALL {
        let part = FileOptions {
            offset: 4096,
            size: Some(8192),
            ..options(&image.path, engine)
        };
        let device = FileDevice::open(&part).expect("it can be opened");
        assert_eq!(
            (device.geometry().size, device.report().direct),
            (8192, true)
        );
        let own = Own::new(&device, 4);
        let bio = own.one(Bio::read(512, Buf::zeroed(512), 0));
        assert_eq!(bio.buf.as_slice()[7], pattern(4096 + 512 + 7));
        let bio = own.one(Bio::read(8192, Buf::zeroed(512), 0));
        assert_eq!(bio.result, failed(BioErrorKind::Invalid));
    }
    let outside = FileOptions {
        offset: 65536,
        size: Some(512),
        ..options(&image.path, IoEngine::Threads)
    };
    let error = FileDevice::open(&outside).map(drop).expect_err("outside");
    assert_eq!(error.kind, DeviceErrorKind::Locator);
}

#[test]
fn a_file_grows_as_far_as_it_may() {
    for engine in IoEngine::ALL {
        let image = Image::new("/dev/shm", 4096).expect("tmpfs");
        let growing = FileOptions {
            grow_to: Some(12_288),
            ..options(&image.path, engine)
        };
        let device = FileDevice::open(&growing).expect("it can be opened");
        assert_eq!(device.geometry().size, 12_288);
        let own = Own::new(&device, 4);
        let mut block = Buf::zeroed(4096);
        block.as_mut_slice().fill(7);
        assert_eq!(own.one(Bio::write(8192, block, 0)).result, Ok(()));
        let outside = own.one(Bio::write(12_288, Buf::zeroed(512), 0));
        assert_eq!(outside.result, failed(BioErrorKind::Invalid));
        let bytes = std::fs::read(&image.path).expect("it can be read");
        assert_eq!((bytes.len(), bytes[4096], bytes[8192]), (12_288, 0, 7));
    }
}

/// Rule L9: direct I/O only if the offset is a multiple of the backing's alignment; otherwise buffered.
#[test]
fn an_odd_offset_of_an_image_is_served_buffered() {
    let image = Image::new("/dev/shm", 65536).expect("tmpfs");
    for (offset, sector) in [(100, None), (512, Some(4096))] {
        let odd = FileOptions {
            offset,
            sector,
            path: image.path.clone(),
            ..FileOptions::default()
        };
        let device = FileDevice::open(&odd).expect("it can be opened");
        let report = device.report();
        assert!(!report.direct && report.engine == "io_uring", "{report:?}");
        assert!(
            report.fallbacks[0].contains("buffered: offset"),
            "{report:?}"
        );
        let own = Own::new(&device, 4);
        let bio = own.one(Bio::read(4096, Buf::zeroed(4096), 0));
        assert_eq!(bio.result, Ok(()));
        assert_eq!(bio.buf.as_slice()[9], pattern(4096 + offset as usize + 9));
    }
}

/// Rule L10: direct I/O does not fill the host's page cache; buffered I/O does.
#[test]
fn direct_io_leaves_the_page_cache_alone() {
    const SIZE: usize = 4 << 20;
    every_engine(SIZE, |device, image| {
        let file = std::fs::File::open(&image.path).expect("the test's own file");
        file.sync_all().expect("it can be synced");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
        // A file system in memory keeps its files in the page cache.
        let before = cached(image).filter(|pages| *pages < 64 && device.report().direct);
        let Some(before) = before else {
            return xtask::skip::skipped(format_args!(
                "{}: no direct I/O, or fincore does not count its pages",
                image.path.display()
            ));
        };
        let own = Own::new(device, 4);
        for n in 0..SIZE as u64 / 65536 {
            let bios = [
                Bio::read(n * 65536, Buf::zeroed(32768), 0),
                Bio::write(n * 65536 + 32768, Buf::zeroed(32768), 1),
            ];
            assert!(own.run(bios).iter().all(|b| b.result.is_ok()));
        }
        let after = cached(image).expect("it was told above");
        assert!(after <= before + 16, "{before}, then {after} pages");
        std::fs::read(&image.path).expect("it can be read");
        let buffered = cached(image).expect("it was told above");
        assert!(buffered >= SIZE as u64 / 4096 / 2, "{buffered} pages");
    });
}

/// The number of a file's pages in the host's cache, from fincore; none if the tool is not installed.
fn cached(image: &Image) -> Option<u64> {
    let asked = xtask::run::tool("fincore")
        .args(["--noheadings", "--output", "PAGES"])
        .arg(&image.path)
        .output();
    let said = String::from_utf8_lossy(&asked.ok()?.stdout).into_owned();
    said.trim().parse().ok()
}

#[test]
fn linux_aio_is_refused_for_buffered_files_by_name() {
    let image = Image::new("/dev/shm", 65536).expect("tmpfs");
    let buffered = FileOptions {
        buffered: true,
        ..options(&image.path, IoEngine::Aio)
    };
    let error = FileDevice::open(&buffered)
        .map(drop)
        .expect_err("not asynchronous");
    assert!(error.what.contains("aio was asked for"), "{error}");
}

/// A file system without O_DIRECT: ramfs.
#[test]
fn a_file_system_without_direct_io_is_served_buffered() {
    let dir = tempfile::tempdir().expect("a folder");
    let mounted = xtask::run::tool("mount")
        .args(["-t", "ramfs", "none"])
        .arg(dir.path())
        .status();
    if !mounted.is_ok_and(|s| s.success()) {
        xtask::skip::skipped("no ramfs can be mounted (not root?)");
        return;
    }
    let path = dir.path().join("image");
    std::fs::write(&path, vec![7; 8192]).expect("the test's own file");
    let opened = FileDevice::open(&FileOptions {
        path,
        ..FileOptions::default()
    });
    let outcome = opened.map(|device| {
        let bio = Own::new(&device, 4).one(Bio::read(512, Buf::zeroed(512), 0));
        (device.report(), bio.result, bio.buf.as_slice()[0])
    });
    let unmounted = xtask::run::tool("umount")
        .arg("-l")
        .arg(dir.path())
        .status();
    let (report, result, byte) = outcome.expect("it can be opened");
    assert!(!report.direct, "{report:?}");
    assert!(
        report.fallbacks[0].contains("buffered: the file system"),
        "{report:?}"
    );
    assert_eq!((result, byte), (Ok(()), 7));
    assert!(unmounted.expect("umount runs").success());
}

#[test]
fn what_cannot_be_opened_is_named() {
    let cases = [
        ("/no/such/file", DeviceErrorKind::NotFound, "/no/such/file"),
        (
            "/dev/null",
            DeviceErrorKind::Unsupported,
            "neither a file nor",
        ),
        ("/tmp", DeviceErrorKind::Unsupported, "neither a file nor"),
    ];
    for (path, kind, why) in cases {
        let error = FileDevice::open(&options(Path::new(path), IoEngine::Threads)).map(drop);
        let error = error.expect_err(path);
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.what.contains(why), "{error}");
    }
    for sector in [0, 100, 513, 1 << 20] {
        let image = Image::new("/dev/shm", 4096).expect("tmpfs");
        let wrong = FileOptions {
            sector: Some(sector),
            ..options(&image.path, IoEngine::Threads)
        };
        let error = FileDevice::open(&wrong)
            .map(drop)
            .expect_err("no such sector");
        assert_eq!(error.kind, DeviceErrorKind::Locator, "{error}");
    }
}

/// The size of an image file, and of a part of it, follows the file on request; a queue that was opened before goes by the new size.
#[test]
fn the_size_follows_the_file_on_request() {
    for engine in IoEngine::ALL {
        for (offset, size) in [(0, None), (4096, None), (4096, Some(8192))] {
            let image = Image::new("/dev/shm", 16_384).expect("tmpfs");
            let wanted = FileOptions {
                offset,
                size,
                ..options(&image.path, engine)
            };
            let Ok(device) = FileDevice::open(&wanted) else {
                xtask::skip::skipped(format_args!("{engine} is not available"));
                continue;
            };
            let queue = device.open_queue(QueueOptions::new(4).expect("an eventfd"));
            let queue = queue.expect("a queue");
            let fits = |pos: u64| {
                let mut list = BioList::from([Bio::read(pos, Buf::zeroed(512), 0)]);
                queue.submit(&mut list);
                let mut out = BioList::new();
                while queue.reap(&mut out) == 0 {
                    queue.wait(1, Some(std::time::Duration::from_millis(50)));
                }
                out[0].result.is_ok()
            };
            let file = std::fs::File::options().write(true).open(&image.path);
            let file = file.expect("the test's own file");
            for len in [65_536, 65_000, 10_000] {
                let before = device.geometry().size;
                file.set_len(len).expect("the test's own file");
                assert_eq!(device.geometry().size, before, "not before it is asked");
                device.refresh().expect("the file is there");
                let rest = len - offset;
                let want = match (offset, size) {
                    (0, _) => rest.next_multiple_of(512),
                    (_, None) => rest / 512 * 512,
                    (_, Some(limit)) => rest.min(limit) / 512 * 512,
                };
                assert_eq!(device.geometry().size, want, "{engine}: {len}");
                assert!(fits(want - 512) && !fits(want), "{engine}: {len}");
            }
        }
    }
}
