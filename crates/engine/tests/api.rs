//! The public API, used as by a program that depends on this crate only: no other crate of the project is named here.
//!
//! Input: images of mke2fs in memory. Output: calls of every kind. Invariant: what is written is read back, and the image is
//! consistent in the end. Limits: what the calls do in detail is tested elsewhere.

use diorite::device::{
    BioError, BioErrorKind, BioList, BioOp, DeviceError, DeviceQueue, Geometry, QueueOptions,
    SimDevice, SimOptions,
};
use diorite::{
    Buf, BufPool, Completion, Device, Error, File, FileId, FileType, Ino, InodeFlags, IoEngine,
    Locator, LoopDevice, Op, OpenFlags, OpenOptions, Policy, Queue, Request, RequestFlags, SetAttr,
    Volume,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

include!("common/example.rs");

fn writable(device: Arc<dyn Device>) -> Volume {
    Volume::open_device(device, &OpenOptions::writable()).unwrap()
}

fn filled(byte: u8, len: usize) -> Buf {
    let mut buf = Buf::zeroed(len);
    buf.as_mut_slice().fill(byte);
    buf
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.size() as usize];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn sound(device: &Arc<dyn Device>) {
    let found = diorite_check::check_device(device, &Default::default(), &|_| ()).unwrap();
    assert!(found.is_clean(), "{:?}", found.kept().collect::<Vec<_>>());
}

/// The defect: a file whose name is not UTF-8 could be created but not opened, because `open_path` took text.
#[test]
fn every_name_can_be_used_everywhere() {
    let device: Arc<dyn Device> = example_volume();
    let volume = writable(device.clone());
    let odd: &[u8] = b"/d\xff/f\xfe";
    volume.mkdir(b"/d\xff", 0o755).unwrap();
    let file = volume.create(odd, 0o644).unwrap();
    file.write_buf(0, filled(7, 4096)).1.unwrap();
    let again = volume.open_path(odd, OpenFlags::default()).unwrap();
    assert_eq!(content(&again), vec![7; 4096]);
    assert_eq!(volume.resolve(odd, true).unwrap(), file.ino());
    volume.link(odd, b"/d\xff/second").unwrap();
    volume.symlink(odd, "/link").unwrap();
    assert_eq!(volume.resolve("/link", true).unwrap(), file.ino());
    volume
        .rename(b"/d\xff/second", &String::from("/text"), Default::default())
        .unwrap();
    let temporary = volume.temporary(b"/d\xff", 0o600).unwrap();
    volume.link_file(&temporary, b"/d\xff/t\x80").unwrap();
    volume
        .replace_file(&temporary, b"/text".as_slice())
        .unwrap();
    volume.set_xattr(file.ino(), "user.name", b"value").unwrap();
    assert_eq!(volume.xattr(file.ino(), b"user.name").unwrap(), b"value");
    volume.remove_xattr(file.ino(), "user.name").unwrap();
    let missing = volume.open_path(b"/\xff\xff", OpenFlags::default());
    assert!(matches!(missing, Err(Error::NotFound { .. })));
    let names: Vec<Vec<u8>> = volume
        .read_dir(Ino::ROOT)
        .unwrap()
        .map(|entry| entry.unwrap().name.to_vec())
        .collect();
    assert!(names.iter().any(|n| n == b"d\xff"), "{names:?}");
    volume.unlink(odd).unwrap();
    volume.unlink(&b"/d\xff/t\x80".to_vec()).unwrap();
    volume.rmdir(b"/d\xff").unwrap();
    drop((file, again, temporary));
    volume.close().unwrap();
    sound(&device);
}

/// The defect: appends and writes of the last bytes could only be requested through queues.
#[test]
fn blocking_appends_and_last_blocks() {
    let device: Arc<dyn Device> = example_volume();
    let volume = writable(device.clone());
    let file = volume.create("/log", 0o644).unwrap();
    for n in 0..5 {
        let (buf, at) = file.append_buf(filled(n, 512));
        assert_eq!((buf.len(), at.unwrap()), (512, u64::from(n) * 512));
    }
    let (buf, count) = file.write_last(5 * 512, filled(9, 512), 77);
    assert_eq!((buf.len(), count.unwrap()), (512, 77));
    assert_eq!(file.size(), 5 * 512 + 77);
    let bytes = content(&file);
    assert!(bytes[5 * 512..].iter().all(|b| *b == 9));
    // The end is inside a sector now, so an append has no valid place.
    assert!(matches!(
        file.append_buf(filled(1, 512)).1,
        Err(Error::Unaligned { .. })
    ));
    // The file has bytes after this range, so these would not be its last.
    assert!(matches!(
        file.write_last(0, filled(1, 512), 10).1,
        Err(Error::Invalid(_))
    ));
    assert_eq!(content(&file), bytes);
    volume.close().unwrap();
    sound(&device);
}

/// Requests are taken from a `VecDeque`, a `Vec`, an `Option`, or one by one; those for which there is no room stay where they
/// were, in order.
#[test]
fn lists_of_requests_and_completions() {
    let volume = writable(example_volume());
    let file = volume.create("/file", 0o644).unwrap();
    let queue = volume.queue(4).unwrap();
    let id = queue.attach(&file).unwrap();
    let write = |n: u64| Request::write(id, n * 512, filled(n as u8, 512), n);

    let mut batch: Vec<Request> = (0..6).map(write).collect();
    assert_eq!(queue.submit_from(&mut batch), 4);
    let left: Vec<u64> = batch.iter().map(|r| r.token).collect();
    assert_eq!(left, [4, 5]);
    let refused = queue.push(write(9)).unwrap_err();
    assert_eq!((refused.token, refused.buf.len()), (9, 512));
    let mut done: VecDeque<Completion> = VecDeque::new();
    assert_eq!(queue.reap(&mut done, 4, None), 4);
    assert_eq!(queue.submit_from(&mut batch), 2);
    assert!(batch.is_empty() && batch.capacity() >= 2);
    queue.reap(&mut done, 2, None);

    let mut ring: VecDeque<Request> = (6..10).map(write).collect();
    assert_eq!(queue.submit(&mut ring), 4);
    let mut list = Vec::new();
    queue.reap(&mut list, 4, None);
    let mut one = Some(write(10));
    assert_eq!(queue.submit_from(&mut one), 1);
    assert!(one.is_none());
    queue.push(write(11)).unwrap();
    list.extend(queue.reap_one(None));
    list.extend(queue.reap_one(Some(Duration::MAX)));
    assert!(queue.reap_one(None).is_none(), "nothing is under way");

    let mut tokens: Vec<u64> = done.iter().chain(&list).map(|d| d.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..12).collect::<Vec<_>>());
    assert!(
        done.iter()
            .chain(&list)
            .all(|d| matches!(d.result, Ok(512)))
    );
    let expect: Vec<u8> = (0..12u8).flat_map(|n| [n; 512]).collect();
    assert_eq!(content(&file), expect);
}

/// A list that is used repeatedly keeps its capacity: a batch needs no allocation.
#[test]
fn lists_keep_their_room() {
    let volume = writable(example_volume());
    let file = volume.create("/file", 0o644).unwrap();
    file.write_buf(0, filled(1, 64 << 10)).1.unwrap();
    let queue = volume.queue(16).unwrap();
    let id = queue.attach(&file).unwrap();
    let mut batch = Vec::with_capacity(16);
    let (at, mut done) = (batch.as_ptr(), Vec::with_capacity(16));
    for _ in 0..3 {
        batch.extend((0..16).map(|n| Request::read(id, n * 4096, Buf::zeroed(4096), n)));
        queue.submit_from(&mut batch);
        queue.reap(&mut done, 16, None);
        assert_eq!((batch.as_ptr(), batch.capacity()), (at, 16));
        assert_eq!((done.drain(..).count(), done.capacity()), (16, 16));
    }
}

/// The descriptor becomes readable again for completions that [`Queue::reap_one`] has left.
#[test]
fn the_descriptor_tells_of_what_was_left() {
    let volume = writable(example_volume());
    let file = volume.create("/file", 0o644).unwrap();
    file.write_buf(0, filled(1, 8192)).1.unwrap();
    let queue = volume.queue(4).unwrap();
    let id = queue.attach(&file).unwrap();
    let fd = queue.eventfd();
    let readable = || {
        let mut fds = [rustix::event::PollFd::new(
            &fd,
            rustix::event::PollFlags::IN,
        )];
        let wait = rustix::event::Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut fds, Some(&wait)).unwrap() == 1
    };
    let reads = (0..2).map(|n| Request::read(id, n * 4096, Buf::zeroed(4096), n));
    queue.submit(&mut reads.collect());
    for _ in 0..2 {
        assert!(readable());
        assert!(queue.reap_one(Some(Duration::ZERO)).is_some());
    }
    assert!(queue.reap_one(Some(Duration::ZERO)).is_none());
}

/// A sync of the volume as a request: it needs no file, completes once, and what was acknowledged before it survives a power cut.
/// Rule D1.
#[test]
fn a_volume_is_synced_by_a_request() {
    let source = example_volume();
    let mut bytes = vec![0; source.geometry().size as usize];
    source.read_at(0, &mut bytes);
    let options = SimOptions::parse("0,cache=volatile,fua=yes,crash=yes").unwrap();
    let size = bytes.len() as u64;
    let disk = Arc::new(SimDevice::new(options.size(size)).unwrap());
    disk.write_at(0, &bytes);
    let volume = writable(disk.clone());
    let file = volume.create("/new", 0o644).unwrap();
    file.append_buf(filled(5, 8192)).1.unwrap();
    volume.mkdir("/dir", 0o755).unwrap();

    let queue = volume.queue(8).unwrap();
    for token in 0..3 {
        queue.push(Request::sync_volume(token)).unwrap();
    }
    let mut tokens: Vec<u64> = std::iter::from_fn(|| queue.reap_one(None))
        .map(|done| {
            assert_eq!((done.op, done.result.unwrap()), (Op::SyncVolume, 0));
            done.token
        })
        .collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [0, 1, 2]);
    for seed in 0..8 {
        let after = writable(Arc::new(disk.crash(seed).unwrap()));
        let file = after.open_path("/new", OpenFlags::default()).unwrap();
        assert_eq!(content(&file), vec![5; 8192]);
        after.resolve("/dir", true).unwrap();
    }

    // With a file id it does the same; a closed volume refuses it.
    let id = queue.attach(&file).unwrap();
    let by_hand = Request {
        op: Op::SyncVolume,
        ..Request::sync(id, false, 7)
    };
    queue.push(by_hand).unwrap();
    assert!(matches!(queue.reap_one(None).unwrap().result, Ok(0)));
    queue.detach(id);
    let (_, result) = file.call(Op::SyncVolume, 0, Buf::empty(), RequestFlags::default());
    assert!(matches!(result, Ok(0)));
    // The id of a detached file is invalid: the request is not counted for the file that has its place now.
    let other = queue
        .attach(&volume.create("/other", 0o644).unwrap())
        .unwrap();
    let stale = Request {
        op: Op::SyncVolume,
        ..Request::sync(id, false, 8)
    };
    queue.push(stale).unwrap();
    assert!(matches!(queue.reap_one(None).unwrap().result, Ok(0)));
    queue.detach(other);
    volume.close().unwrap();
    queue.push(Request::sync_volume(9)).unwrap();
    let closed = queue.reap_one(None).unwrap().result;
    assert!(matches!(closed, Err(Error::ShutDown)));
}

/// The defect: each queue counted its own ids, so an id of one queue was another file's in the next, and a write went to a file
/// that the caller had not named.
#[test]
fn an_id_is_good_in_its_own_queue_only() {
    let (volume, other) = (writable(example_volume()), writable(example_volume()));
    let files: Vec<File> = ["/mine", "/theirs"]
        .map(|path| volume.create(path, 0o644).unwrap())
        .into();
    let foreign = other.create("/foreign", 0o644).unwrap();
    let (mine, theirs) = (volume.queue(4).unwrap(), volume.queue(4).unwrap());
    let strangers = other.queue(4).unwrap();
    let id = mine.attach(&files[0]).unwrap();
    let wrong = [
        theirs.attach(&files[1]).unwrap(),
        strangers.attach(&foreign).unwrap(),
    ];
    assert!(mine.attach(&foreign).is_err());
    for id in wrong {
        for request in [
            Request::write(id, 0, filled(1, 512), 0),
            Request::append(id, filled(1, 512), 0),
            Request::truncate(id, 4096, 0),
            Request::read(id, 0, Buf::zeroed(512), 0),
        ] {
            mine.push(request).unwrap();
            let done = mine.reap_one(None).unwrap();
            assert!(
                matches!(done.result, Err(Error::NotAttached)),
                "{:?}",
                done.result
            );
        }
        mine.detach(id);
    }
    assert!(files.iter().chain([&foreign]).all(|file| file.size() == 0));
    mine.push(Request::append(id, filled(1, 512), 0)).unwrap();
    assert!(mine.reap_one(None).unwrap().result.is_ok());
    mine.detach(id);
    mine.push(Request::append(id, filled(1, 512), 0)).unwrap();
    assert!(
        mine.reap_one(None).unwrap().result.is_err(),
        "it was detached"
    );
    assert_eq!(files[0].size(), 512);
}

/// The defect: a sync that was submitted with a buffer lost it: the empty buffer of the flush took its place.
#[test]
fn whatever_is_sent_comes_back() {
    let volume = writable(example_volume());
    let file = volume.create("/file", 0o644).unwrap();
    file.append_buf(filled(1, 4096)).1.unwrap();
    let queue = volume.queue(4).unwrap();
    let id = queue.attach(&file).unwrap();
    for op in [
        Op::Sync,
        Op::DataSync,
        Op::SyncVolume,
        Op::Truncate,
        Op::Read,
    ] {
        let request = Request {
            op,
            ..Request::write(id, 0, filled(1, 512), 3)
        };
        queue.push(request).unwrap();
        let done = queue.reap_one(None).unwrap();
        assert_eq!((done.op, done.buf.len(), done.token), (op, 512, 3));
    }
}

/// The defect: a timeout too long for the clock was added to the clock, which panicked.
#[test]
fn a_timeout_may_be_as_long_as_it_likes() {
    let volume = writable(example_volume());
    let file = volume.create("/file", 0o644).unwrap();
    let queue = volume.queue(4).unwrap();
    let id = queue.attach(&file).unwrap();
    for timeout in [Duration::MAX, Duration::from_secs(u64::MAX / 2)] {
        queue.push(Request::append(id, filled(1, 512), 0)).unwrap();
        assert_eq!(queue.reap(&mut Vec::new(), 1, Some(timeout)), 1);
        queue.push(Request::append(id, filled(1, 512), 0)).unwrap();
        queue.wait(1, Some(timeout));
        assert!(queue.reap_one(Some(timeout)).is_some());
    }
}

/// Every sync that waits for a commit gets the commit's error.
#[test]
fn a_failed_sync_of_the_volume_says_so() {
    let device = Arc::new(Mine {
        below: example_volume(),
        fails: Arc::default(),
        level: 0,
    });
    let volume = writable(device.clone());
    let queue = volume.queue(8).unwrap();
    volume.create("/new", 0o644).unwrap();
    device.fails.store(true, Ordering::SeqCst);
    for token in 0..3 {
        queue.push(Request::sync_volume(token)).unwrap();
    }
    for _ in 0..3 {
        assert!(queue.reap_one(None).unwrap().result.is_err());
    }
}

/// The levels of nested devices are limited to 255. The defect: opening a volume at one more level panicked, or the level wrapped
/// around.
#[test]
fn a_device_on_too_many_volumes_is_refused() {
    for (level, opens) in [(254, true), (255, false)] {
        for options in [OpenOptions::default(), OpenOptions::writable()] {
            let device = Arc::new(Mine {
                below: example_volume(),
                fails: Arc::default(),
                level,
            });
            let volume = Volume::open_device(device, &options);
            match volume.map(|v| v.close()) {
                Ok(closed) => assert!(opens && closed.is_ok()),
                Err(e) => assert!(!opens && e.to_string().contains("255 volumes"), "{e}"),
            }
        }
    }
}

/// A device written only with what this crate exports. While `fails` is set, changes fail.
struct Mine {
    below: Arc<dyn Device>,
    fails: Arc<AtomicBool>,
    level: u8,
}

impl Device for Mine {
    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.below)
    }

    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn name(&self) -> String {
        "mine".into()
    }

    fn level(&self) -> u8 {
        self.level
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        Ok(Box::new(MyQueue {
            below: self.below.open_queue(options)?,
            fails: self.fails.clone(),
        }))
    }
}

struct MyQueue {
    below: Box<dyn DeviceQueue>,
    fails: Arc<AtomicBool>,
}

impl DeviceQueue for MyQueue {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        Some(&*self.below)
    }

    fn submit(&self, bios: &mut BioList) {
        self.below.submit(bios);
    }

    fn reap(&self, out: &mut BioList) -> usize {
        let from = out.len();
        let count = self.below.reap(out);
        if self.fails.load(Ordering::SeqCst) {
            let changes = out.iter_mut().skip(from).filter(|b| b.op != BioOp::Read);
            changes.for_each(|bio| bio.result = Err(BioError::new(BioErrorKind::Io)));
        }
        count
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        self.below.wait(min, timeout);
    }

    fn in_flight(&self) -> u32 {
        self.below.in_flight()
    }
}

/// All types in public signatures are exported. The defect: some could be passed between calls but not be named.
#[test]
fn one_crate_is_enough() {
    fn takes(_: &Queue, _: FileId, _: &BufPool, _: InodeFlags, _: FileType) {}
    let volume = writable(example_volume());
    let file = volume.create("/file", 0o644).unwrap();
    let inode: Arc<diorite::format::Inode> = file.metadata();
    assert_eq!(inode.file_type, Some(FileType::Regular));
    let flags = inode.flags.with(InodeFlags::NOATIME);
    volume.set_flags(file.ino(), flags).unwrap();
    file.set_attr(&SetAttr::default()).unwrap();
    let superblock: &diorite::format::Superblock = volume.superblock();
    assert!(superblock.block_size() >= 1024);
    let queue = volume.queue(1).unwrap();
    let id = queue.attach(&file).unwrap();
    takes(&queue, id, &BufPool::new(4096, 1), flags, FileType::Regular);

    let engines: Vec<IoEngine> = ["io_uring", "aio", "threads"]
        .iter()
        .map(|name| name.parse().unwrap())
        .collect();
    assert_eq!(engines, IoEngine::ALL);
    let policy: Policy = "linux-6.19/extending=async".parse().unwrap();
    volume.set_policy(policy);
    assert_eq!(
        volume.policy().to_string().parse::<Policy>().unwrap(),
        policy
    );
    let disk = LoopDevice::new(file, "a loop device".into());
    assert!(disk.open_queue(QueueOptions::new(1).unwrap()).is_ok());
}

/// The path of an image need not be UTF-8.
#[test]
fn an_image_whose_path_is_not_text() {
    use std::os::unix::ffi::OsStrExt;
    let device = example_volume();
    let mut bytes = vec![0; device.geometry().size as usize];
    device.read_at(0, &mut bytes);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(std::ffi::OsStr::from_bytes(b"image\xff"));
    std::fs::write(&path, bytes).unwrap();
    let volume = Volume::open_locator(&Locator::file(&path), &OpenOptions::default()).unwrap();
    assert!(volume.resolve("/lost+found", false).is_ok());
}
