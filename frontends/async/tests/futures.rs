//! Futures of requests: with a thread, with tokio, with smol's reactor; cancelled, and many at a time.
#![allow(clippy::unwrap_used, missing_docs)]

use diorite::device::MemDevice;
use diorite::{Buf, BufPool, Device, Error, OpenFlags, OpenOptions, Request, Volume};
use diorite_async::{AsyncFile, AsyncStream, AsyncVolume};
use diorite_block::sim::SimOptions;
use diorite_block::{FileDevice, FileOptions, SimDevice};
use futures_lite::future::{block_on, poll_once, yield_now, zip};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

const BLOCK: usize = 4096;

fn formatted(device: Arc<dyn Device>) -> Volume {
    let options = diorite::mkfs::MkfsOptions::new([1; 16], [2; 16], 1_700_000_000);
    diorite::mkfs::mkfs(&device, &options).unwrap();
    Volume::open_device(device, &OpenOptions::writable()).unwrap()
}

fn in_memory() -> Volume {
    formatted(Arc::new(MemDevice::new(64 << 20)))
}

/// A device whose requests take a while, so that they are under way when a future is dropped.
fn slow() -> Volume {
    let options = SimOptions::parse("64M,latency=2ms,parallel=64,seed=1").unwrap();
    formatted(Arc::new(SimDevice::new(options).unwrap()))
}

fn block_of(byte: u8) -> Buf {
    let mut buf = Buf::zeroed(BLOCK);
    buf.as_mut_slice().fill(byte);
    buf
}

/// What every driver has to do.
async fn exercise(volume: &AsyncVolume) -> Result<(), Error> {
    volume.mkdir("/dir", 0o755).await?;
    let file = volume.create("/dir/data", 0o644).await?;
    for n in 0..8_u8 {
        let (_, at) = file.append(block_of(n)).await;
        assert_eq!(at?, u64::from(n) * BLOCK as u64);
    }
    let (buf, written) = file.write_at(0, block_of(99)).await;
    assert_eq!(written?, BLOCK);
    let (buf, read) = file.read_at(7 * BLOCK as u64, buf).await;
    assert_eq!((read?, buf.as_slice()[0]), (BLOCK, 7));
    let (buf, read) = file.read_at(8 * BLOCK as u64, buf).await;
    assert_eq!((read?, buf.len()), (0, BLOCK));
    // An error is the request's, and its buffer comes back.
    let (buf, refused) = file.read_at(1, buf).await;
    assert!(
        matches!(refused, Err(Error::Unaligned { .. })),
        "{refused:?}"
    );
    assert_eq!(buf.len(), BLOCK);
    file.sync().await?;
    file.truncate(4096).await?;
    assert_eq!(file.size(), 4096);
    let done = file
        .request(|id| Request::write_last(id, 4096, Buf::zeroed(512), 5, 0))
        .await;
    assert_eq!((done.result?, file.size()), (5, 4101));
    drop(file);
    volume
        .rename("/dir/data", "/moved", diorite::RenameFlags::default())
        .await?;
    let missing = volume.open("/dir/data", OpenFlags::default()).await;
    assert!(missing.is_err());
    let file = volume.open("/moved", OpenFlags::default()).await?;
    assert_eq!(file.size(), 4101);
    drop(file);
    volume.unlink("/moved").await?;
    volume.sync().await
}

#[test]
fn a_thread_completes_requests() {
    let volume = AsyncVolume::new(in_memory(), 16).unwrap();
    block_on(async {
        exercise(&volume).await.unwrap();
        volume.close().await.unwrap();
    });
}

#[test]
fn a_task_of_tokio_completes_requests() {
    for threads in [false, true] {
        let mut builder = match threads {
            true => tokio::runtime::Builder::new_multi_thread(),
            false => tokio::runtime::Builder::new_current_thread(),
        };
        builder.enable_all().build().unwrap().block_on(async {
            let (volume, driver) = AsyncVolume::with_tokio(slow(), 16).unwrap();
            let driver = tokio::spawn(driver);
            exercise(&volume).await.unwrap();
            volume.close().await.unwrap();
            // It ends with the last handle.
            driver.await.unwrap();
        });
    }
}

#[test]
fn a_task_beside_async_io_completes_requests() {
    let (volume, driver) = AsyncVolume::with_smol(slow(), 16).unwrap();
    let work = async move {
        exercise(&volume).await.unwrap();
        volume.close().await.unwrap();
    };
    block_on(zip(work, driver));
}

/// Every task has a block of its own, and finds in it what it wrote; the queue has room for a few of them only.
async fn many(file: &AsyncFile, n: u32) {
    let pos = u64::from(n) * BLOCK as u64;
    let byte = (n % 251) as u8;
    let (buf, written) = file.write_at(pos, block_of(byte)).await;
    assert_eq!(written.unwrap(), BLOCK);
    let (buf, read) = file.read_at(pos, buf).await;
    assert_eq!(read.unwrap(), BLOCK);
    assert!(buf.as_slice().iter().all(|b| *b == byte), "block {n}");
}

const TASKS: u32 = 10_000;

#[test]
fn ten_thousand_tasks_share_a_queue() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (volume, driver) = AsyncVolume::with_tokio(in_memory(), 64).unwrap();
        tokio::spawn(driver);
        let file = volume.create("/data", 0o644).await.unwrap();
        let tasks: Vec<_> = (0..TASKS)
            .map(|n| {
                let file = file.clone();
                tokio::spawn(async move { many(&file, n).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        file.sync().await.unwrap();
        assert_eq!(file.size(), u64::from(TASKS) * BLOCK as u64);
    });
}

#[test]
fn threads_of_many_executors_share_a_queue() {
    let volume = AsyncVolume::new(in_memory(), 8).unwrap();
    let file = block_on(volume.create("/data", 0o644)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let file = &file;
            scope.spawn(move || {
                for n in 0..500 {
                    block_on(many(file, thread * 500 + n));
                }
            });
        }
    });
    drop(file);
    block_on(volume.close()).unwrap();
}

/// Until the pool has all of its buffers again; a minute at most.
async fn until_all_are_back(pool: &BufPool, count: usize) {
    let mut taken = Vec::new();
    let begun = std::time::Instant::now();
    while taken.len() < count {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{} of {count} are back",
            taken.len()
        );
        match pool.get() {
            Some(buf) => taken.push(buf),
            None => {
                std::thread::sleep(Duration::from_millis(1));
                yield_now().await;
            }
        }
    }
}

#[test]
fn a_cancelled_request_gives_its_buffer_back_when_the_device_has_ended_with_it() {
    let volume = AsyncVolume::new(slow(), 4).unwrap();
    block_on(async {
        let file = volume.create("/data", 0o644).await.unwrap();
        file.write_at(0, block_of(1)).await.1.unwrap();
        let pool = Arc::new(BufPool::new(BLOCK, 16));
        let back = pool.clone();
        assert!(volume.on_cancelled(move |buf| back.put(buf)));
        assert!(!volume.on_cancelled(drop), "it is set once");
        // More than the queue has room for: some are under way when they are dropped, others wait for room.
        let mut under: Vec<_> = (0..16)
            .map(|_| Box::pin(file.read_at(0, pool.get().unwrap())))
            .collect();
        for read in &mut under {
            assert!(poll_once(read.as_mut()).await.is_none());
        }
        assert!(pool.get().is_none());
        drop(under);
        until_all_are_back(&pool, 16).await;
        // The queue goes on.
        assert_eq!(file.read_at(0, Buf::zeroed(BLOCK)).await.1.unwrap(), BLOCK);
        drop(file);
        volume.close().await.unwrap();
    });
}

#[test]
fn a_future_that_was_never_polled_asks_for_nothing() {
    let volume = AsyncVolume::new(in_memory(), 4).unwrap();
    block_on(async {
        let file = volume.create("/data", 0o644).await.unwrap();
        drop(file.append(block_of(1)));
        assert_eq!(file.size(), 0);
    });
}

#[test]
fn the_last_file_may_be_dropped_with_a_request_under_way() {
    let volume = AsyncVolume::new(slow(), 4).unwrap();
    block_on(async {
        let file = volume.create("/data", 0o644).await.unwrap();
        let mut write = Box::pin(file.append(block_of(1)));
        assert!(poll_once(write.as_mut()).await.is_none());
        drop((volume, file));
        let (_, at) = write.await;
        assert_eq!(at.unwrap(), 0);
    });
}

#[test]
fn a_thread_takes_the_place_of_a_driver_that_is_dropped() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let volume = first.block_on(async {
        let (volume, driver) = AsyncVolume::with_tokio(slow(), 4).unwrap();
        tokio::spawn(driver);
        volume
    });
    let file = first.block_on(volume.create("/data", 0o644)).unwrap();
    let mut write = pin!(file.append(block_of(1)));
    first.block_on(async {
        assert!(poll_once(write.as_mut()).await.is_none());
    });
    // With its driver.
    drop(first);
    let (_, at) = block_on(write);
    assert_eq!(at.unwrap(), 0);
    block_on(async { exercise(&volume).await.unwrap() });
}

#[test]
fn calls_by_name_are_bounded_and_may_panic() {
    let volume = AsyncVolume::new(in_memory(), 4).unwrap();
    let running = Arc::new(std::sync::Mutex::new((0, 0)));
    let call = || {
        let running = running.clone();
        volume.call(move |_| {
            let mut now = running.lock().unwrap();
            now.0 += 1;
            now.1 = now.1.max(now.0);
            drop(now);
            std::thread::sleep(Duration::from_millis(2));
            running.lock().unwrap().0 -= 1;
        })
    };
    let mut calls: Vec<_> = (0..64).map(|_| Box::pin(call())).collect();
    block_on(async {
        for call in &mut calls {
            assert!(poll_once(call.as_mut()).await.is_none());
        }
        // Half of them are of no interest any more; those that have not begun are not made.
        calls.truncate(32);
        for call in calls {
            call.await;
        }
    });
    assert_eq!(running.lock().unwrap().1, 4, "as many as there are threads");
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        block_on(volume.call(|_| -> () { panic!("of the call") }));
    }));
    assert_eq!(
        *panics.unwrap_err().downcast::<&str>().unwrap(),
        "of the call"
    );
    block_on(volume.mkdir("/after", 0o755)).unwrap();
}

#[test]
fn a_stream_reads_what_was_written_through_it() {
    use futures_lite::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, SeekFrom};
    let volume = AsyncVolume::new(in_memory(), 4).unwrap();
    let bytes: Vec<u8> = (0..700_001_u32).map(|n| (n % 253) as u8).collect();
    block_on(async {
        let file = volume.create("/data", 0o644).await.unwrap();
        let mut stream = AsyncStream::new(&file);
        stream.write_all(&bytes).await.unwrap();
        // A seek writes what is held, so a read behind it finds all.
        stream.seek(SeekFrom::Start(3)).await.unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).await.unwrap();
        assert!(back == bytes[3..], "{} bytes", back.len());
        assert_eq!(stream.seek(SeekFrom::End(-1)).await.unwrap(), 700_000);
        stream.write_all(b"xy").await.unwrap();
        stream.flush().await.unwrap();
        assert_eq!(file.size(), 700_002);
        assert!(stream.seek(SeekFrom::Current(-1_000_000)).await.is_err());
        assert!(stream.seek(SeekFrom::Start(u64::MAX)).await.is_err());
        // A read in the middle does not lose the position of the write behind it.
        stream.seek(SeekFrom::Start(10)).await.unwrap();
        let mut four = [0; 4];
        stream.read_exact(&mut four).await.unwrap();
        stream.write_all(b"here").await.unwrap();
        stream.close().await.unwrap();
        let mut at = [0; 8];
        assert_eq!(file.blocking().read_bytes(10, &mut at).unwrap(), 8);
        assert_eq!((&at[..4], &at[4..]), (&bytes[10..14], &b"here"[..]));
    });
}

#[test]
fn a_stream_has_tokios_traits() {
    use std::io::SeekFrom;
    use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
    let volume = AsyncVolume::new(in_memory(), 4).unwrap();
    block_on(async {
        let file = volume.create("/data", 0o644).await.unwrap();
        let mut stream = AsyncStream::new(&file);
        stream.write_all(b"some text").await.unwrap();
        stream.seek(SeekFrom::Start(5)).await.unwrap();
        let mut back = String::new();
        stream.read_to_string(&mut back).await.unwrap();
        assert_eq!(back, "text");
        stream.shutdown().await.unwrap();
        let read_only = volume.open("/data", OpenFlags::default()).await.unwrap();
        let mut stream = AsyncStream::new(&read_only);
        stream.write_all(b"refused").await.unwrap();
        let refused = stream.flush().await.unwrap_err();
        assert_eq!(
            refused.kind(),
            std::io::ErrorKind::ReadOnlyFilesystem,
            "{refused}"
        );
    });
}

#[test]
fn a_volume_is_closed_for_all_and_its_image_is_free_when_the_driver_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let made = std::fs::File::create(&path).unwrap();
    made.set_len(16 << 20).unwrap();
    let device = FileDevice::open(&FileOptions::new(&path)).unwrap();
    drop(formatted(Arc::new(device)));
    let open = || Volume::open(path.to_str().unwrap(), &OpenOptions::writable());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (volume, driver) = AsyncVolume::with_tokio(open().unwrap(), 4).unwrap();
        let driver = tokio::spawn(driver);
        let other = volume.clone();
        volume.close().await.unwrap();
        let refused = other.mkdir("/late", 0o755).await;
        assert!(matches!(refused, Err(Error::ShutDown)), "{refused:?}");
        drop(other);
        driver.await.unwrap();
        open().unwrap().close().unwrap();
    });
}

/// A future must be movable between threads.
#[test]
fn futures_are_send() {
    fn send<T: Send>(_: &T) {}
    let volume = AsyncVolume::new(in_memory(), 4).unwrap();
    let create = volume.create("/data", 0o644);
    send(&create);
    let file = block_on(create).unwrap();
    send(&file.read_at(0, Buf::zeroed(BLOCK)));
    send(&AsyncStream::new(&file));
    fn future<F: Future + Send + 'static>(_: &F) {}
    future(&file.sync());
}

/// A waker that owns something, as one of an executor whose tasks live in their wakers.
struct Owns {
    _thing: std::sync::Mutex<Box<dyn std::any::Any + Send>>,
}

impl Wake for Owns {
    fn wake(self: Arc<Self>) {}
}

fn owning(thing: impl Send + 'static) -> Waker {
    let _thing = std::sync::Mutex::new(Box::new(thing) as Box<_>);
    Arc::new(Owns { _thing }).into()
}

fn poll_with<F: Future>(future: Pin<&mut F>, waker: Waker) -> bool {
    future.poll(&mut Context::from_waker(&waker)).is_pending()
}

/// The last waker of a task may drop what the task owns, such as other futures of the same queue. It was dropped under the queue's lock.
#[test]
fn wakers_may_own_futures() {
    let volume = AsyncVolume::new(slow(), 8).unwrap();
    let file = block_on(volume.create("/data", 0o644)).unwrap();
    block_on(file.append(block_of(1))).1.unwrap();
    let under_way = || {
        let mut read = Box::pin(file.read_at(0, Buf::zeroed(BLOCK)));
        assert!(poll_with(read.as_mut(), Waker::noop().clone()));
        read
    };
    // Its place is taken by another waker.
    let mut read = under_way();
    poll_with(read.as_mut(), owning(under_way()));
    poll_with(read.as_mut(), owning(under_way()));
    // Its future is dropped.
    drop(read);
    // The same of a call by name.
    let mut call = Box::pin(volume.sync());
    poll_with(call.as_mut(), owning(under_way()));
    poll_with(call.as_mut(), owning(under_way()));
    drop(call);
    assert_eq!(block_on(file.read_at(0, block_of(0))).1.unwrap(), BLOCK);
}

/// The last handle goes with a waker of the driver: that was dropped under the queue's lock, too.
#[test]
fn a_waker_of_the_driver_may_own_the_last_handle() {
    let (volume, driver) = AsyncVolume::with_smol(in_memory(), 8).unwrap();
    let mut driver = Box::pin(driver);
    assert!(poll_with(driver.as_mut(), owning(volume)));
    within_a_minute(move || block_on(driver)).expect("it ends");
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("of a waker");
    }
}

/// What another thread does; None if it takes longer than a minute.
fn within_a_minute<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(work()));
    told.recv_timeout(Duration::from_secs(60)).ok()
}

/// A waker that panicked ended the thread that completes requests, or one of those for calls by name: then everybody waited for ever.
#[test]
fn a_waker_that_panics_ends_no_thread() {
    let volume = AsyncVolume::new(slow(), 8).unwrap();
    let file = block_on(volume.create("/data", 0o644)).unwrap();
    let mut sync = Box::pin(file.sync());
    assert!(poll_with(sync.as_mut(), Arc::new(Panics).into()));
    // As many as there are threads.
    for _ in 0..4 {
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let mut call = Box::pin(volume.call(move |_| gone.recv().is_err()));
        assert!(poll_with(call.as_mut(), Arc::new(Panics).into()));
        drop(go);
        std::thread::sleep(Duration::from_millis(20));
    }
    let done = within_a_minute(move || {
        block_on(async {
            volume.mkdir("/after", 0o755).await?;
            file.sync().await
        })
    });
    done.expect("it goes on").unwrap();
}

/// A pool would run out of buffers if futures were dropped before their first polls, as by `select!`.
#[test]
fn the_buffer_of_a_future_that_was_never_polled_comes_back() {
    let volume = AsyncVolume::new(in_memory(), 4).unwrap();
    let file = block_on(volume.create("/data", 0o644)).unwrap();
    let pool = Arc::new(BufPool::new(BLOCK, 1));
    let back = pool.clone();
    assert!(volume.on_cancelled(move |buf| back.put(buf)));
    drop(file.read_at(0, pool.get().unwrap()));
    assert!(pool.get().is_some());
}

/// A flush after one that had failed had nothing left to write, and ended well: the bytes were lost.
#[test]
fn a_stream_keeps_what_could_not_be_written() {
    use futures_lite::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, SeekFrom};
    let volume = AsyncVolume::new(in_memory(), 4).unwrap();
    block_on(async {
        let file = volume.create("/data", 0o644).await.unwrap();
        let filler = volume.create("/filler", 0o644).await.unwrap();
        let mode = diorite::Fallocate::Allocate { keep_size: false };
        let mut room = 64 << 20_u64;
        let mut at = 0;
        while room >= 1024 {
            match filler.fallocate(mode, at, room).await {
                Ok(()) => at += room,
                Err(_) => room /= 2,
            }
        }
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 253) as u8).collect();
        let mut stream = AsyncStream::new(&file);
        stream.write_all(&bytes[..100_000]).await.unwrap();
        for _ in 0..2 {
            let full = stream.flush().await.unwrap_err();
            assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
        }
        // Nor does a seek or a read go on as if they were written.
        assert!(stream.seek(SeekFrom::Start(0)).await.is_err());
        assert!(stream.read(&mut [0; 9]).await.is_err());
        filler.truncate(0).await.unwrap();
        volume.sync().await.unwrap();
        stream.write_all(&bytes[100_000..]).await.unwrap();
        stream.seek(SeekFrom::Start(0)).await.unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).await.unwrap();
        assert!(back == bytes, "{} bytes", back.len());
    });
}

/// A seek that was cancelled was made later, by another seek, behind what had been read or written in between.
#[test]
fn a_seek_of_tokio_that_was_cancelled_is_not_made_later() {
    use std::io::SeekFrom;
    use tokio::io::{AsyncSeekExt, AsyncWriteExt};
    let volume = AsyncVolume::new(in_memory(), 4).unwrap();
    block_on(async {
        let file = volume.create("/data", 0o644).await.unwrap();
        let mut stream = AsyncStream::new(&file);
        stream.write_all(b"some text").await.unwrap();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let gone = Arc::new(std::sync::Mutex::new(gone));
        // No thread is free, so the seek waits for its flush.
        let mut busy: Vec<_> = (0..4)
            .map(|_| {
                let gone = gone.clone();
                Box::pin(volume.call(move |_| gone.lock().unwrap().recv().is_err()))
            })
            .collect();
        for call in &mut busy {
            assert!(poll_once(call.as_mut()).await.is_none());
        }
        let mut seek = Box::pin(stream.seek(SeekFrom::Start(0)));
        assert!(poll_once(seek.as_mut()).await.is_none());
        drop(seek);
        drop(go);
        stream.write_all(b", more").await.unwrap();
        assert_eq!(stream.stream_position().await.unwrap(), 15);
        stream.flush().await.unwrap();
        let mut back = [0; 16];
        assert_eq!(file.blocking().read_bytes(0, &mut back).unwrap(), 15);
        assert_eq!(&back[..15], b"some text, more");
    });
}
