use super::*;
use crate::bio::{Bio, BioErrorKind, BioList, BioOp};
use crate::buf::Buf;

fn open(device: &SimDevice, depth: u32) -> Box<dyn DeviceQueue> {
    device
        .open_queue(QueueOptions::new(depth).expect("an eventfd"))
        .expect("a queue")
}

fn filled(byte: u8, len: usize) -> Buf {
    let mut buf = Buf::zeroed(len);
    buf.as_mut_slice().fill(byte);
    buf
}

fn submit(queue: &dyn DeviceQueue, bio: Bio) {
    let mut list = BioList::from([bio]);
    queue.submit(&mut list);
    assert!(list.is_empty(), "there is room");
}

fn run_to_end(device: &SimDevice, queue: &dyn DeviceQueue) -> BioList {
    while device.step() {}
    let mut out = BioList::new();
    queue.reap(&mut out);
    out
}

#[test]
fn a_locator_says_it_all() {
    let o = SimOptions::parse(
        "64M,latency=230us,jitter=5us,parallel=1000,bandwidth=2M,cache=volatile,fua=no,seed=9,clock=auto,logical=4096,crash=yes,\
         eio=write:every-3,eagain=5+2",
    )
    .expect("it is well formed");
    assert_eq!(
        (o.size, o.latency.as_micros(), o.parallel, o.bandwidth),
        (64 << 20, 230, 1000, 2 << 20)
    );
    assert!(o.volatile_cache && !o.fua && o.crash && o.seed == 9 && o.logical == 4096);
    assert_eq!((o.clock, o.faults.len()), (SimClock::Auto, 2));
    assert_eq!(o.faults[0].op, Some(BioOp::Write));
    for bad in [
        "",
        "64Q",
        "64M,latency=5",
        "64M,latency",
        "64M,what=1",
        "64M,bandwidth=fast",
        "64M,eio=every-0",
        "64M,logical=100",
    ] {
        let error = SimOptions::parse(bad).expect_err(bad);
        assert!(error.what.starts_with("sim: wants"), "{}", error.what);
    }
}

#[test]
fn nothing_ends_before_a_step_and_the_seed_chooses_the_order() {
    let order = |seed| {
        let device = SimDevice::new(SimOptions::stepped(1 << 20, seed)).expect("a disk");
        let queue = open(&device, 16);
        for n in 0..16 {
            submit(&*queue, Bio::read(0, Buf::zeroed(512), n));
        }
        assert_eq!(
            (queue.reap(&mut BioList::new()), queue.in_flight()),
            (0, 16)
        );
        assert_eq!(device.advance(3), 3);
        assert_eq!(queue.in_flight(), 16);
        run_to_end(&device, &*queue)
            .iter()
            .map(|b| b.token)
            .collect::<Vec<_>>()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
    let mut sorted = order(3);
    sorted.sort_unstable();
    assert_eq!(sorted, (0..16).collect::<Vec<_>>());
}

#[test]
fn one_at_a_time_keeps_the_order() {
    let options = SimOptions {
        parallel: 1,
        ..SimOptions::stepped(1 << 20, 4)
    };
    let device = SimDevice::new(options).expect("a disk");
    let queue = open(&device, 8);
    (0..8).for_each(|n| submit(&*queue, Bio::read(0, Buf::zeroed(512), n)));
    let order: Vec<u64> = run_to_end(&device, &*queue)
        .iter()
        .map(|b| b.token)
        .collect();
    assert_eq!(order, (0..8).collect::<Vec<_>>());
}

/// Bytes cross one after another, of all queues, and flushes cross with none.
#[test]
fn bandwidth_is_shared_by_all_queues() {
    let options = SimOptions::parse("1M,bandwidth=8M").expect("it is well formed");
    let device = SimDevice::new(options).expect("a disk");
    let queues = [open(&device, 8), open(&device, 8)];
    let since = std::time::Instant::now();
    for (n, queue) in queues.iter().enumerate() {
        submit(&**queue, Bio::read(0, Buf::zeroed(64 << 10), n as u64));
        submit(&**queue, Bio::flush(10));
    }
    let mut out = BioList::new();
    while out.len() < 4 {
        for queue in &queues {
            queue.reap(&mut out);
        }
    }
    let took = since.elapsed();
    assert!(
        took >= Duration::from_micros(15_600),
        "128 KiB at 8 MiB/s: {took:?}"
    );
    let last = out.iter().map(|b| b.token).next_back();
    assert_eq!(last, Some(1), "the second read crosses behind the first");
}

#[test]
fn held_completions_wait() {
    let device = SimDevice::new(SimOptions::stepped(1 << 20, 1)).expect("a disk");
    let queue = open(&device, 8);
    device.hold(true);
    submit(&*queue, Bio::read(0, Buf::zeroed(512), 0));
    assert!(!device.step());
    device.hold(false);
    assert!(device.step());
    assert_eq!(queue.reap(&mut BioList::new()), 1);
}

#[test]
fn counters_tell_the_operations_apart() {
    let device = SimDevice::new(SimOptions::stepped(1 << 20, 1)).expect("a disk");
    let queue = open(&device, 8);
    let mut fua = Bio::write(0, filled(1, 1024), 0);
    fua.flags.fua = true;
    submit(&*queue, fua);
    submit(&*queue, Bio::write(0, filled(1, 512), 0));
    submit(&*queue, Bio::read(0, Buf::zeroed(4096), 0));
    submit(&*queue, Bio::flush(0));
    submit(&*queue, Bio::range(BioOp::Discard, 0, 512, 0));
    run_to_end(&device, &*queue);
    drop(queue);
    let counted = SimCounters {
        reads: 1,
        read_bytes: 4096,
        writes: 2,
        write_bytes: 1536,
        fua_writes: 1,
        flushes: 1,
        discards: 1,
        zeroes: 0,
    };
    assert_eq!(device.counters(), counted);
}

/// Data that was flushed or written with FUA survives every power cut; the rest may be lost, sector by sector.
#[test]
fn a_crash_loses_only_what_may_be_lost() {
    let device = SimDevice::new(SimOptions::stepped(1 << 20, 1)).expect("a disk");
    let queue = open(&device, 8);
    device.write_at(0, &[9; 16 * 512]);
    submit(&*queue, Bio::write(0, filled(1, 2 * 512), 0));
    run_to_end(&device, &*queue);
    submit(&*queue, Bio::flush(0));
    run_to_end(&device, &*queue);
    submit(&*queue, Bio::write(2 * 512, filled(2, 8 * 512), 0));
    let mut fua = Bio::write(10 * 512, filled(3, 512), 0);
    fua.flags.fua = true;
    submit(&*queue, fua);
    run_to_end(&device, &*queue);
    submit(&*queue, Bio::write(11 * 512, filled(4, 512), 0));
    let (mut torn, mut in_flight_survived) = (false, false);
    for seed in 0..100 {
        let image = device.crash(seed).expect("it remembers");
        let mut bytes = [0; 16 * 512];
        image.read_at(0, &mut bytes);
        let sectors: Vec<u8> = bytes.chunks(512).map(|s| s[0]).collect();
        assert!(
            bytes.chunks(512).all(|s| s.iter().all(|b| *b == s[0])),
            "sectors do not tear"
        );
        assert_eq!(
            (sectors[0], sectors[1], sectors[10]),
            (1, 1, 3),
            "seed {seed}"
        );
        assert!(sectors[2..10].iter().all(|s| *s == 2 || *s == 9));
        torn |= sectors[2..10].contains(&2) && sectors[2..10].contains(&9);
        in_flight_survived |= sectors[11] == 4;
        assert!(sectors[12..].iter().all(|s| *s == 9));
    }
    assert!(torn && in_flight_survived);
}

/// A flush does not cover writes that had not ended when it was submitted.
#[test]
fn a_flush_covers_what_had_ended_before_it() {
    let options = SimOptions {
        parallel: 1,
        ..SimOptions::stepped(1 << 20, 1)
    };
    let device = SimDevice::new(options).expect("a disk");
    let queue = open(&device, 8);
    submit(&*queue, Bio::write(0, filled(1, 512), 0));
    submit(&*queue, Bio::flush(0));
    run_to_end(&device, &*queue);
    let survived = |seed| {
        let mut byte = [0];
        device
            .crash(seed)
            .expect("it remembers")
            .read_at(0, &mut byte);
        byte[0] == 1
    };
    assert!((0..50).any(survived) && !(0..50).all(survived));
}

#[test]
fn without_a_cache_what_ended_is_durable() {
    let options = SimOptions {
        volatile_cache: false,
        ..SimOptions::stepped(1 << 20, 1)
    };
    let device = SimDevice::new(options).expect("a disk");
    let queue = open(&device, 8);
    submit(&*queue, Bio::write(0, filled(1, 4096), 0));
    run_to_end(&device, &*queue);
    let mut bytes = [0; 4096];
    for seed in 0..20 {
        device
            .crash(seed)
            .expect("it remembers")
            .read_at(0, &mut bytes);
        assert_eq!(bytes, [1; 4096]);
    }
}

#[test]
fn faults_hit_and_leave_no_trace() {
    let options = SimOptions {
        faults: SimOptions::parse("1M,eio=write:2")
            .expect("it is well formed")
            .faults,
        ..SimOptions::stepped(1 << 20, 1)
    };
    let device = SimDevice::new(options).expect("a disk");
    let queue = open(&device, 8);
    submit(&*queue, Bio::write(0, filled(1, 512), 0));
    assert!(run_to_end(&device, &*queue)[0].result.is_ok());
    submit(&*queue, Bio::write(0, filled(2, 512), 0));
    let error = run_to_end(&device, &*queue)[0]
        .result
        .expect_err("the second write fails");
    assert_eq!((error.kind, device.failed()), (BioErrorKind::Io, 1));
    let mut byte = [0];
    device.read_at(0, &mut byte);
    assert_eq!(byte, [1]);
}

/// The real clock: only order and lower bounds are checked, never how long something took.
#[test]
fn the_real_clock_serves_so_many_at_once() {
    let options = SimOptions::parse("1M,latency=2ms,parallel=2").expect("it is well formed");
    let device = SimDevice::new(options).expect("a disk");
    let queue = open(&device, 8);
    let since = Instant::now();
    (0..6).for_each(|n| submit(&*queue, Bio::read(0, Buf::zeroed(512), n)));
    let mut out = BioList::new();
    assert_eq!(queue.reap(&mut out), 0);
    while out.len() < 6 {
        queue.wait(1, None);
        queue.reap(&mut out);
    }
    assert!(
        since.elapsed() >= Duration::from_millis(6),
        "three rounds of two"
    );
    assert_eq!(
        out.iter().map(|b| b.token).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5]
    );
    let latency = device.latency();
    assert!(
        latency.count == 6
            && latency.p50 >= Duration::from_millis(4)
            && latency.max >= Duration::from_millis(6)
    );
}

#[test]
fn a_waiting_disk_steps_by_itself() {
    let options = SimOptions {
        clock: SimClock::Auto,
        ..SimOptions::stepped(1 << 20, 1)
    };
    let device = SimDevice::new(options).expect("a disk");
    let blocking = crate::Blocking::new(Arc::new(device));
    assert!(
        blocking
            .run(Bio::write(512, filled(5, 512), 0))
            .result
            .is_ok()
    );
    let buf = blocking.read(0, Buf::zeroed(1024)).expect("it reads");
    assert_eq!((buf.as_slice()[0], buf.as_slice()[512]), (0, 5));
    assert!(blocking.flush().is_ok());
}

/// Defect: two threads that stepped at once chose the same request; the later one was told that there was none, and slept for
/// ever although its own request was left.
#[test]
fn as_many_steps_at_once_as_requests_end_them_all() {
    const THREADS: usize = 4;
    const EACH: usize = 64;
    let device = SimDevice::new(SimOptions::stepped(1 << 20, 1)).expect("a disk");
    let queue = open(&device, 256);
    for _ in 0..20 {
        for n in 0..(THREADS * EACH) as u64 {
            submit(&*queue, Bio::read(n * 512, Buf::zeroed(512), n));
        }
        let start = std::sync::Barrier::new(THREADS);
        let steps = || {
            start.wait();
            device.advance(EACH)
        };
        std::thread::scope(|s| {
            let all: Vec<_> = (0..THREADS).map(|_| s.spawn(steps)).collect();
            for thread in all {
                assert_eq!(thread.join().expect("a thread that steps"), EACH);
            }
        });
        assert_eq!(queue.reap(&mut BioList::new()), THREADS * EACH);
    }
}

/// A thread that polls instead of waiting sees requests end, too, as on any other disk.
#[test]
fn looking_lets_time_pass_when_the_disk_steps_by_itself() {
    let options = SimOptions {
        clock: SimClock::Auto,
        ..SimOptions::stepped(1 << 20, 1)
    };
    let device = SimDevice::new(options).expect("a disk");
    let queue = open(&device, 8);
    for n in 0..4 {
        submit(&*queue, Bio::read(n * 512, Buf::zeroed(512), n));
    }
    let mut out = BioList::new();
    for looks in 1..=4 {
        assert_eq!((queue.reap(&mut out), out.len()), (1, looks));
    }
}
