//! Rings that are made ahead: queues take them and give them back, whatever they were used for, and nobody makes others. A process of its
//! own, because the stock is for all of it.
#![allow(clippy::unwrap_used)]

use diorite_block::{
    Bio, BioList, Buf, BufPool, Device, DeviceQueue, FileDevice, FileOptions, NotPolled,
    PolledStats, PolledWay, QueueOptions, Waker,
};
use std::sync::Arc;
use std::time::Duration;

const RINGS: usize = 3;

fn device(dir: &std::path::Path) -> FileDevice {
    let path = dir.join("disk.img");
    std::fs::File::create(&path)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let options = FileOptions::new(path);
    FileDevice::open(&options).unwrap()
}

fn queue(device: &FileDevice) -> (Box<dyn DeviceQueue>, Arc<Waker>) {
    let options = QueueOptions::new(64).unwrap();
    let waker = options.waker.clone();
    (device.open_queue(options).unwrap(), waker)
}

/// Rings that this process has.
fn rings() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_ring = |link: std::path::PathBuf| link.to_string_lossy().contains("io_uring");
    all.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok())
        .filter(|link| is_ring(link.clone()))
        .count()
}

fn run(queue: &dyn DeviceQueue, mut bios: BioList) -> Vec<Buf> {
    let count = bios.len();
    let mut ended = BioList::new();
    while ended.len() < count {
        queue.submit(&mut bios);
        // For all of them: a waiter for one has no timer.
        queue.wait(
            u32::try_from(count).unwrap(),
            Some(Duration::from_millis(20)),
        );
        queue.reap(&mut ended);
    }
    ended
        .into_iter()
        .map(|bio| {
            bio.result.unwrap();
            bio.buf
        })
        .collect()
}

/// Writes and reads back, with memory that the ring registers, and leaves the waker's poll in the ring.
fn use_it(queue: &dyn DeviceQueue, at: u64, fill: u8) {
    let pool = BufPool::new(4096, 4);
    for _ in 0..3 {
        let mut buf = pool.get().unwrap();
        buf.as_mut_slice().fill(fill);
        for buf in run(queue, BioList::from([Bio::write(at, buf, 1)])) {
            pool.put(buf);
        }
        let read = run(
            queue,
            BioList::from([Bio::read(at, pool.get().unwrap(), 1), Bio::flush(2)]),
        );
        let found = read.iter().find(|buf| !buf.is_empty()).unwrap();
        assert!(found.as_slice().iter().all(|b| *b == fill));
        read.into_iter().for_each(|buf| pool.put(buf));
    }
    queue.forget_memory();
}

/// A queue that should be polled gets a ring of the stock, no other one, and says why.
fn refuses_to_poll(device: &FileDevice) {
    let stats = Arc::new(PolledStats::default());
    let options = QueueOptions::new(8).unwrap().polled(stats.clone());
    let queue = device.open_queue(options).unwrap();
    assert_eq!(rings(), RINGS);
    let why = match device.report().direct {
        true => NotPolled::Sandbox,
        false => NotPolled::Buffered,
    };
    assert_eq!(stats.waits().way, PolledWay::Looks(why));
    use_it(&*queue, 0, 1);
}

#[test]
fn rings_come_from_the_stock_and_go_back() {
    let made = diorite_block::file::stock_rings(RINGS);
    if made != RINGS {
        return xtask::skip::skipped("this process may not use io_uring");
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    refuses_to_poll(&device(dir.path()));
    for round in 0..50u8 {
        let device = Arc::new(device(dir.path()));
        assert_eq!(device.engine(), diorite_block::IoEngine::Uring);
        let queues: Vec<_> = (0..RINGS).map(|_| queue(&device)).collect();
        assert_eq!(
            device.report().fallbacks.len(),
            usize::from(!device.report().direct)
        );
        let threads: Vec<_> = (0u64..)
            .zip(queues)
            .map(|(n, (queue, waker))| {
                std::thread::spawn(move || {
                    if round % 2 == 1 {
                        queue.signal_waker();
                    }
                    use_it(&*queue, n * 8192, round);
                    // Leaves its poll in the ring.
                    queue.wait(1, Some(Duration::from_millis(1)));
                    (queue, waker)
                })
            })
            .collect();
        let queues: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        // One more than there are rings does without, and the next ones do not.
        let (other, waker) = queue(&device);
        // It is kept as others are: opening one for each call costs more.
        assert!(!waker.is_makeshift());
        use_it(&*other, 1 << 19, round);
        assert!(
            device
                .report()
                .fallbacks
                .iter()
                .any(|line| line.contains("not io_uring"))
        );
        assert_eq!(device.engine(), diorite_block::IoEngine::Uring);
        drop(queues);
        drop(other);
        assert_eq!(rings(), RINGS, "round {round}");
    }
    // Nothing of the file is held: the descriptors of the rings know none.
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let names_it = |link: &std::path::PathBuf| link.ends_with("disk.img");
    let left = open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    assert_eq!(left.filter(names_it).count(), 0);
    assert!(device(dir.path()).engine() == diorite_block::IoEngine::Uring);
}
