use super::*;
use crate::buf::Buf;
use crate::mem::MemDevice;
use crate::rng::Rng;
use crate::sim::{SimClock, SimDevice, SimOptions};

const SIZE: usize = 64 << 10;
const OLD: u8 = 9;

fn open(device: &RecordDevice) -> Box<dyn DeviceQueue> {
    device
        .open_queue(QueueOptions::new(8).expect("an eventfd"))
        .expect("a queue")
}

fn write(pos: u64, byte: u8, sectors: usize, token: u64) -> Bio {
    let mut buf = Buf::zeroed(sectors * 512);
    buf.as_mut_slice().fill(byte);
    Bio::write(pos, buf, token)
}

fn run(queue: &dyn DeviceQueue, bios: impl IntoIterator<Item = Bio>) -> BioList {
    let (mut list, mut out) = (BioList::from_iter(bios), BioList::new());
    while !list.is_empty() || queue.in_flight() > 0 {
        queue.submit(&mut list);
        if queue.reap(&mut out) == 0 {
            queue.wait(1, None);
        }
    }
    out
}

/// The first byte of each sector of the image.
fn sectors(cuts: &mut PowerCuts<'_>, at: usize, survival: Survival, count: usize) -> Vec<u8> {
    cuts.with_image(Cut { at, survival }, |image| {
        let sectors = image.chunks(512).take(count);
        sectors
            .map(|s| {
                assert!(s.iter().all(|b| *b == s[0]), "sectors do not tear");
                s[0]
            })
            .collect()
    })
}

#[test]
fn tokens_come_back_and_reads_leave_no_trace() {
    let device = RecordDevice::new(Arc::new(MemDevice::new(SIZE as u64)));
    let queue = open(&device);
    let bios = (0..20).map(|n| match n % 4 {
        0 => Bio::read(0, Buf::zeroed(512), n),
        1 => write(512 * n, 1, 1, n),
        2 => Bio::flush(n),
        _ => Bio::range(BioOp::WriteZeroes, 512 * n, 512, n),
    });
    let done = run(&*queue, bios);
    let tokens: Vec<u64> = done.iter().map(|b| b.token).collect();
    assert_eq!(tokens, (0..20).collect::<Vec<_>>());
    let log = device.log();
    let count = |f: fn(&Event) -> bool| log.iter().filter(|e| f(e)).count();
    assert_eq!(count(|e| matches!(e, Event::Write { .. })), 10);
    assert_eq!(count(|e| matches!(e, Event::Flush { .. })), 5);
    assert_eq!(count(|e| matches!(e, Event::Ended { .. })), 15);
    assert_eq!((log.len(), device.mark(7)), (30, 30));
    assert_eq!(device.log()[30], Event::Mark(7));
    let zeros = |e: &&Event| matches!(e, Event::Write { data, .. } if *data == Data::Zeros(512));
    assert_eq!(log.iter().filter(zeros).count(), 5);
}

#[test]
fn a_failed_write_is_said_to_have_failed() {
    let device = RecordDevice::new(Arc::new(MemDevice::new(SIZE as u64)));
    let queue = open(&device);
    let done = run(&*queue, [write(SIZE as u64, 1, 1, 5)]);
    assert!(done[0].result.is_err() && done[0].token == 5);
    assert_eq!(device.log()[1], Event::Failed { id: 0 });
}

/// Data that was flushed or written with FUA survives every later cut; the rest may be lost, sector by sector.
#[test]
fn a_cut_loses_only_what_may_be_lost() {
    let device = RecordDevice::with_volatile_cache(Arc::new(MemDevice::new(SIZE as u64)));
    let queue = open(&device);
    run(&*queue, [write(0, 1, 2, 0)]);
    run(&*queue, [Bio::flush(0)]);
    let flushed = device.mark(0);
    run(&*queue, [write(1024, 2, 8, 0)]);
    let mut fua = write(5120, 3, 1, 0);
    fua.flags.fua = true;
    run(&*queue, [fua]);
    let log = device.log();
    let mut cuts = PowerCuts::new(vec![OLD; SIZE], &log);
    let old = |n: usize| vec![OLD; n];
    assert_eq!(sectors(&mut cuts, 0, Survival::All, 12), old(12));
    assert_eq!(sectors(&mut cuts, 1, Survival::Ended, 2), old(2));
    assert_eq!(sectors(&mut cuts, 1, Survival::All, 2), [1, 1]);
    assert_eq!(sectors(&mut cuts, 2, Survival::Ended, 2), [1, 1]);
    assert_eq!(sectors(&mut cuts, 2, Survival::Durable, 2), old(2));
    assert_eq!(sectors(&mut cuts, flushed, Survival::Durable, 2), [1, 1]);
    let end = log.len();
    let durable = sectors(&mut cuts, end, Survival::Durable, 12);
    assert_eq!(durable, [1, 1, 9, 9, 9, 9, 9, 9, 9, 9, 3, 9]);
    let (mut torn, mut torn_in_blocks) = (false, false);
    for seed in 0..100 {
        let all = sectors(&mut cuts, end, Survival::Chance { seed, unit: 512 }, 12);
        assert_eq!((all[0], all[1], all[10], all[11]), (1, 1, 3, OLD));
        assert!(all[2..10].iter().all(|b| [2, OLD].contains(b)));
        torn |= all[2..10].contains(&2) && all[2..10].contains(&OLD);
        let blocks = sectors(&mut cuts, end, Survival::Chance { seed, unit: 4096 }, 12);
        // The write begins in the first block of 4 KiB and ends in the second.
        assert!(blocks[2..8].iter().all(|b| *b == blocks[2]));
        assert!(blocks[8..10].iter().all(|b| *b == blocks[8]));
        torn_in_blocks |= blocks[2] != blocks[8];
    }
    assert!(torn && torn_in_blocks);
    assert_eq!(
        sectors(&mut cuts, end, Survival::Durable, 12),
        durable,
        "every image is taken back"
    );
}

/// One wait makes everything durable that a commit writes before its commit block, if FUA is a flush: according to the log of
/// submitted bios, and on the disk itself.
#[test]
fn writes_made_durable_together_cover_all_before_them() {
    for fua in [false, true] {
        let options = SimOptions {
            fua,
            clock: SimClock::Auto,
            ..SimOptions::stepped(SIZE as u64, 1)
        };
        let disk = Arc::new(SimDevice::new(options).expect("a disk"));
        let device = Arc::new(RecordDevice::new(disk.clone()));
        let blocking = crate::Blocking::new(device.clone());
        assert!(blocking.run(write(0, 1, 1, 0)).result.is_ok());
        let both = BioList::from([write(1024, 2, 1, 1), write(4096, 3, 1, 2)]);
        let done = blocking.run_all_durably(both).expect("it flushes");
        assert!(done.len() == 2 && done.iter().all(|bio| bio.result.is_ok()));
        let counted = disk.counters();
        assert_eq!(
            (counted.fua_writes, counted.flushes),
            if fua { (0, 1) } else { (1, 0) }
        );
        let log = device.log();
        let mut cuts = PowerCuts::new(vec![0; SIZE], &log);
        let expect = [1, 0, 2, 0, 0, 0, 0, 0, 3];
        assert_eq!(sectors(&mut cuts, log.len(), Survival::Durable, 9), expect);
        let image = disk.crash(7).expect("it remembers");
        let mut bytes = [0; 9 * 512];
        image.read_at(0, &mut bytes);
        assert!(bytes.chunks(512).map(|s| s[0]).eq(expect), "fua {fua}");
    }
}

#[test]
fn without_a_cache_what_ended_is_durable() {
    let device = RecordDevice::new(Arc::new(MemDevice::new(SIZE as u64)));
    run(&*open(&device), [write(0, 1, 2, 0)]);
    let log = device.log();
    let mut cuts = PowerCuts::new(vec![OLD; SIZE], &log);
    assert_eq!(sectors(&mut cuts, 1, Survival::Durable, 2), [OLD; 2]);
    assert_eq!(sectors(&mut cuts, 2, Survival::Durable, 2), [1, 1]);
}

/// A flush does not cover writes that had not ended when it was submitted.
#[test]
fn a_flush_covers_what_had_ended_before_it() {
    let log = [
        Event::Write {
            id: 0,
            pos: 0,
            data: Data::Zeros(512),
            fua: false,
        },
        Event::Flush { id: 1 },
        Event::Ended { id: 0 },
        Event::Ended { id: 1 },
        Event::Flush { id: 2 },
        Event::Ended { id: 2 },
    ];
    let mut cuts = PowerCuts::new(vec![OLD; SIZE], &log);
    assert_eq!(sectors(&mut cuts, 4, Survival::Durable, 1), [OLD]);
    assert_eq!(sectors(&mut cuts, 6, Survival::Durable, 1), [0]);
}

#[test]
fn a_plan_is_even_ordered_and_repeats() {
    let log: Vec<Event> = (0..10)
        .flat_map(|id| {
            let (pos, data) = (id * 512, Data::Zeros(512));
            let fua = false;
            [Event::Write { id, pos, data, fua }, Event::Mark(id)]
        })
        .collect();
    for states in [0, 1, 5, 11, 200] {
        let cuts = plan(&log, states, 3, 512);
        assert_eq!(cuts, plan(&log, states, 3, 512));
        assert_eq!(cuts.len(), states);
        assert!(cuts.is_sorted_by_key(|c| c.at));
        assert!(cuts.iter().all(|c| c.at == 0 || c.at % 2 == 1));
    }
    let cuts = plan(&log, 200, 3, 512);
    for at in std::iter::once(0).chain((0..10).map(|n| 2 * n + 1)) {
        let here = cuts.iter().filter(|c| c.at == at).count();
        assert!((18..=19).contains(&here), "{here} at {at}");
    }
}

/// The image from the log at the end of a run equals the device's content, whatever the order of ends.
#[test]
fn the_whole_log_is_the_device() {
    let options = SimOptions::parse("64K,clock=auto,seed=11,cache=volatile").expect("well formed");
    let sim = SimDevice::new(options).expect("a disk");
    let device = RecordDevice::new(Arc::new(sim.clone()));
    let (queue, mut rng) = (open(&device), Rng::new(11));
    for round in 1..=50u8 {
        // No two writes of one round to the same sector: their order would be up to the device.
        let from = rng.below(16);
        let bios = (0..6).map(|n| write((from + 16 * n) * 512, round, 16, n));
        run(&*queue, bios);
        if rng.below(4) == 0 {
            run(&*queue, [Bio::flush(0)]);
        }
    }
    let log = device.log();
    let mut held = vec![0; SIZE];
    sim.read_at(0, &mut held);
    let mut cuts = PowerCuts::new(vec![0; SIZE], &log);
    let end = Cut {
        at: log.len(),
        survival: Survival::Ended,
    };
    assert!(cuts.with_image(end, |image| image == held));
}
