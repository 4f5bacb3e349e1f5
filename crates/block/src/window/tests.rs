//! The window: what goes through as it is, what is rewritten, in which order, and what a failure leaves.

mod model;

use super::*;
use crate::bio::{BioErrorKind, BioList};
use crate::buf::Buf;
use crate::device::{Stored, Waker};
use crate::fault::{Fault, FaultDevice, FaultPlan, When};
use crate::mem::MemDevice;
use crate::sim::{SimDevice, SimOptions};

const SIZE: u64 = 1 << 20;

/// A disk with blocks of 4096 bytes.
fn disk() -> Arc<WindowDevice> {
    let sectors = WindowOptions {
        sector: Some(4096),
        ..WindowOptions::default()
    };
    window(Arc::new(MemDevice::new(SIZE)), &sectors)
}

fn window(below: Arc<dyn Device>, options: &WindowOptions) -> Arc<WindowDevice> {
    Arc::new(WindowDevice::new(below, options, "window".into()).expect("it lies inside"))
}

fn fine(below: Arc<dyn Device>) -> Arc<WindowDevice> {
    let sectors = WindowOptions {
        sector: Some(512),
        ..WindowOptions::default()
    };
    window(below, &sectors)
}

fn filled(byte: u8, len: usize) -> Buf {
    let mut buf = Buf::zeroed(len);
    buf.as_mut_slice().fill(byte);
    buf
}

fn open(device: &dyn Device, depth: u32) -> (Box<dyn DeviceQueue>, Arc<Waker>) {
    let options = QueueOptions::new(depth).expect("an eventfd");
    let waker = options.waker.clone();
    (device.open_queue(options).expect("a queue"), waker)
}

/// Runs bios to their ends, on a queue of its own, and returns them in the order of their tokens.
fn run(device: &dyn Device, bios: Vec<Bio>) -> Vec<Bio> {
    let (queue, waker) = open(device, 8);
    let (all, mut todo, mut out) = (bios.len(), BioList::from(bios), BioList::new());
    while out.len() < all {
        queue.submit(&mut todo);
        if queue.reap(&mut out) == 0 {
            queue.wait(1, None);
            waker.clear();
        }
    }
    assert_eq!(queue.in_flight(), 0);
    let mut out: Vec<Bio> = out.into();
    out.sort_by_key(|bio| bio.token);
    out
}

fn one(device: &dyn Device, bio: Bio) -> Bio {
    run(device, vec![bio]).pop().expect("it ends")
}

fn bytes(device: &dyn Device, pos: u64, len: usize) -> Vec<u8> {
    let bio = one(device, Bio::read(pos, Buf::zeroed(len), 0));
    assert_eq!(bio.result, Ok(()));
    bio.buf.as_slice().to_vec()
}

/// A part of a device begins at 0, ends at its end, and nothing outside is read or changed.
#[test]
fn a_part_is_a_device() {
    let mem = Arc::new(MemDevice::new(SIZE));
    let options = WindowOptions {
        offset: 8192,
        size: Some(16_384),
        ..WindowOptions::default()
    };
    let part = window(mem.clone(), &options);
    assert_eq!(part.geometry().size, 16_384);
    mem.write_at(8191, &[1, 2, 3]);
    assert_eq!(bytes(&*part, 0, 512)[..3], [2, 3, 0]);
    let done = run(
        &*part,
        vec![
            Bio::write(0, filled(7, 16_384), 0),
            Bio::write(16_384, filled(8, 512), 1),
            Bio::read(1, Buf::zeroed(512), 2),
            Bio::flush(3),
            Bio::range(BioOp::Discard, 512, 512, 4),
        ],
    );
    let kinds: Vec<_> = done
        .iter()
        .map(|b| (b.pos, b.result.err().map(|e| e.kind)))
        .collect();
    let invalid = Some(BioErrorKind::Invalid);
    let want = [
        (0, None),
        (16_384, invalid),
        (1, invalid),
        (0, None),
        (512, None),
    ];
    assert_eq!(kinds, want);
    let mut around = [0; 3];
    mem.read_at(8191, &mut around);
    assert_eq!(around, [1, 7, 7]);
    mem.read_at(8192 + 16_383, &mut around);
    assert_eq!(around, [7, 0, 0]);
    assert_eq!(part.rewrites(), 0);
    let read_only = WindowOptions {
        read_only: true,
        ..options
    };
    let part = window(mem, &read_only);
    let refused = one(&*part, Bio::write(0, filled(9, 512), 0));
    assert_eq!(
        refused.result.map_err(|e| e.kind),
        Err(BioErrorKind::ReadOnly)
    );
    assert!(part.geometry().read_only && !part.geometry().discard);
}

#[test]
fn what_does_not_lie_inside_is_refused() {
    let mem: Arc<dyn Device> = Arc::new(MemDevice::new(SIZE));
    let wrong = [
        (SIZE + 1, None, None),
        (u64::MAX, None, None),
        (512, Some(SIZE), None),
        (512, Some(u64::MAX), None),
        (0, None, Some(100)),
        (0, None, Some(1 << 17)),
    ];
    for (offset, size, sector) in wrong {
        let options = WindowOptions {
            offset,
            size,
            sector,
            read_only: false,
        };
        let error = WindowDevice::new(mem.clone(), &options, "part".into()).map(drop);
        let error = error.expect_err("it does not lie inside");
        assert_eq!(error.kind, DeviceErrorKind::Locator, "{error}");
    }
}

/// Requests with parts of blocks: the rest of each block stays, whole blocks are not rewritten, and what is rewritten is counted.
#[test]
fn parts_of_blocks_are_rewritten() {
    let disk = disk();
    let device = fine(disk.clone());
    assert_eq!(
        (device.geometry().logical, device.geometry().physical),
        (512, 4096)
    );
    one(&*disk, Bio::write(0, filled(1, 65_536), 0));
    let cases = [
        // Begins, ends: in one block, over two, over several with whole ones between, at the edges of blocks.
        (512, 1024, 1),
        (3584, 4608, 1),
        (512, 20_480, 1),
        (4096, 8704, 1),
        (1024, 12_288, 1),
        (4096, 12_288, 0),
    ];
    let mut model = vec![1; 65_536];
    for (n, (from, to, rewritten)) in cases.into_iter().enumerate() {
        let byte = n as u8 + 2;
        let before = device.rewrites();
        let done = one(
            &*device,
            Bio::write(from as u64, filled(byte, to - from), 9),
        );
        assert_eq!(
            (done.result, done.pos, done.token),
            (Ok(()), from as u64, 9)
        );
        assert_eq!(done.buf.as_slice(), vec![byte; to - from]);
        assert_eq!(device.rewrites() - before, rewritten, "{from} to {to}");
        model[from..to].fill(byte);
        assert!(bytes(&*disk, 0, 65_536) == model, "{from} to {to}");
        assert!(bytes(&*device, from as u64, to - from) == model[from..to]);
    }
    assert_eq!(device.report().rewrites, 5);
    assert!(device.report().fallbacks[0].contains("over blocks of 4096"));
}

/// A buffer of any parts is written and filled.
#[test]
fn buffers_of_several_parts() {
    let device = fine(disk());
    let parts = |byte: u8| Buf::from_parts([100, 412, 3000, 584].map(|n| filled(byte, n)).into());
    let done = one(&*device, Bio::write(1536, parts(5), 0));
    assert_eq!(done.result, Ok(()));
    let done = one(&*device, Bio::read(1536, parts(0), 0));
    assert!(done.buf.parts().flatten().all(|b| *b == 5));
    assert!(
        bytes(&*device, 0, 8192)[1536 + 4096..]
            .iter()
            .all(|b| *b == 0)
    );
}

/// A discard is rounded inwards. Write-zeroes zeroes exactly its range, whole blocks by the device, the rest by rewriting.
#[test]
fn ranges_with_parts_of_blocks() {
    let disk = disk();
    let device = fine(disk.clone());
    let mut model = vec![1; 65_536];
    one(&*disk, Bio::write(0, filled(1, 65_536), 0));
    let mut change = |op, from: usize, to: usize, zeroed: Range<usize>, rewritten| {
        let before = device.rewrites();
        let done = one(&*device, Bio::range(op, from as u64, (to - from) as u64, 3));
        assert_eq!(
            (done.result, done.pos, done.len, done.op, done.token),
            (Ok(()), from as u64, (to - from) as u64, op, 3)
        );
        model[zeroed].fill(0);
        assert!(bytes(&*disk, 0, 65_536) == model, "{op:?} {from} to {to}");
        assert_eq!(device.rewrites() - before, rewritten);
    };
    change(BioOp::Discard, 512, 1024, 0..0, 0);
    change(BioOp::Discard, 512, 12_800, 4096..12_288, 0);
    change(BioOp::WriteZeroes, 20_992, 21_504, 20_992..21_504, 1);
    change(BioOp::WriteZeroes, 32_256, 41_472, 32_256..41_472, 1);
    change(BioOp::WriteZeroesUnmap, 49_152, 57_856, 49_152..57_856, 1);
    change(BioOp::WriteZeroes, 61_440, 65_536, 61_440..65_536, 0);
}

/// What comes together is done together, in any order, but no neighbour is lost: two parts of one block, a part and the whole
/// block, from two queues.
#[test]
fn neighbours_in_one_block() {
    let device = fine(disk());
    for round in 0..200u64 {
        let at = round % 16 * 4096;
        let (one, one_waker) = open(&*device, 16);
        let (other, other_waker) = open(&*device, 16);
        let mut first: BioList = (0..4)
            .map(|n| Bio::write(at + n * 512, filled(n as u8 + 10, 512), n))
            .collect();
        let mut second: BioList = (4..8)
            .map(|n| Bio::write(at + n * 512, filled(n as u8 + 10, 512), n))
            .collect();
        one.submit(&mut first);
        other.submit(&mut second);
        // The owner of the one does not come back: the other does its work.
        let mut out = BioList::new();
        while out.len() < 4 {
            if other.reap(&mut out) == 0 {
                other.wait(1, None);
                other_waker.clear();
            }
        }
        while out.len() < 8 {
            if one.reap(&mut out) == 0 {
                one.wait(1, None);
                one_waker.clear();
            }
        }
        assert!(out.iter().all(|bio| bio.result.is_ok()));
        let got = bytes(&*device, at, 4096);
        for (n, sector) in got.chunks(512).enumerate() {
            assert!(
                sector.iter().all(|b| *b == n as u8 + 10),
                "round {round}, sector {n}: {:?}",
                &sector[..2]
            );
        }
    }
}

/// A whole block beside a part of it: outside the part there is the whole block's data afterwards.
#[test]
fn a_whole_block_beside_a_part() {
    let disk = disk();
    let device = fine(disk.clone());
    for round in 0..64u64 {
        let at = round * 4096;
        one(&*disk, Bio::write(at, filled(1, 4096), 0));
        let whole = Bio::write(at, filled(2, 4096), 0);
        let part = Bio::write(at + 512, filled(3, 512), 1);
        let both = match round % 2 {
            0 => vec![whole, part],
            _ => vec![part, whole],
        };
        assert!(run(&*device, both).iter().all(|bio| bio.result.is_ok()));
        let got = bytes(&*device, at, 4096);
        let outside = got[..512].iter().chain(&got[1024..]);
        assert!(outside.copied().all(|b| b == 2), "round {round}");
        assert!(got[512..1024].iter().all(|b| *b == got[512]));
        assert!(got[512] == 2 || got[512] == 3);
    }
}

/// A request that may not wait ends with that error if its block is being rewritten.
#[test]
fn what_may_not_wait_does_not() {
    let device = fine(disk());
    let (queue, waker) = open(&*device, 8);
    let mut second = Bio::write(512, filled(2, 512), 1);
    second.flags.nowait = true;
    let mut list = BioList::from([Bio::write(0, filled(1, 512), 0), second]);
    queue.submit(&mut list);
    let mut out = BioList::new();
    while out.len() < 2 {
        if queue.reap(&mut out) == 0 {
            queue.wait(1, None);
            waker.clear();
        }
    }
    for bio in &out {
        let want = (bio.token == 1).then_some(BioErrorKind::WouldBlock);
        assert_eq!(bio.result.err().map(|e| e.kind), want);
        assert_eq!(bio.buf.len(), 512, "the buffer comes back");
        assert_eq!(bio.pos, bio.token * 512);
    }
}

/// An error below is its request's alone: every buffer comes back, a block whose read failed is not written, the neighbours stay,
/// and the queue goes on.
#[test]
fn errors_are_their_requests_alone() {
    for op in [BioOp::Read, BioOp::Write, BioOp::WriteZeroes] {
        for nth in 1..8 {
            let disk = disk();
            one(&*disk, Bio::write(0, filled(1, 65_536), 0));
            let fault = Fault::new(BioErrorKind::NoSpace, When::Every(nth)).on(op);
            let faulty = Arc::new(FaultDevice::new(
                disk.clone(),
                FaultPlan::new(vec![fault], 1),
            ));
            let device = fine(faulty.clone());
            let mut model = vec![1u8; 65_536];
            let bios = (0..40u64).map(|n| {
                let pos = n % 15 * 4096 + 512 * (n % 7);
                match n % 3 {
                    0 => Bio::write(pos, filled(2, 1024), n),
                    1 => Bio::range(BioOp::WriteZeroes, pos, 8192, n),
                    _ => Bio::read(pos, filled(9, 512), n),
                }
            });
            // One after the other, so that the model knows the order.
            for bio in bios {
                let (from, len, op) = (bio.pos as usize, bio.len as usize, bio.op);
                let buffered = bio.buf.len();
                let done = one(&*device, bio);
                assert_eq!(done.buf.len(), buffered);
                let range = from..(from + len).min(model.len());
                match (done.result, op) {
                    (Ok(()), BioOp::Write) => model[range].fill(2),
                    (Ok(()), BioOp::WriteZeroes) => model[range].fill(0),
                    (Ok(()), _) => assert!(done.buf.as_slice() == &model[range]),
                    (Err(error), _) => {
                        assert_eq!(error.kind, BioErrorKind::NoSpace);
                        // Parts of it may be changed; outside nothing is.
                        let now = bytes(&*disk, 0, 65_536);
                        model[range.clone()].copy_from_slice(&now[range]);
                    }
                }
                assert!(bytes(&*disk, 0, 65_536) == model, "{op:?}, every {nth}");
            }
            assert!(faulty.plan().failed() > 0, "{op:?}, every {nth}");
        }
    }
}

/// Rules D1, D2: FUA on a part of a block is FUA on the write of the block, and on no read; a flush goes down.
#[test]
fn durability_goes_through() {
    let options = SimOptions::parse("1M,latency=0us,cache=volatile,fua=yes").expect("a model");
    let sim = Arc::new(SimDevice::new(options).expect("little memory"));
    let sectors = WindowOptions {
        sector: Some(4096),
        ..WindowOptions::default()
    };
    let device = fine(window(sim.clone(), &sectors));
    assert!(device.geometry().volatile_cache && device.geometry().fua);
    let before = sim.counters();
    let mut bio = Bio::write(512, filled(7, 512), 0);
    bio.flags.fua = true;
    let done = one(&*device, bio);
    assert!(done.result.is_ok() && done.flags.fua);
    let did = sim.counters().since(&before);
    assert_eq!((did.writes, did.fua_writes, did.flushes), (1, 1, 0));
    assert!(one(&*device, Bio::flush(0)).result.is_ok());
    assert_eq!(sim.counters().since(&before).flushes, 1);
}

/// A queue that is dropped finishes what it has begun.
#[test]
fn a_dropped_queue_finishes() {
    let disk = disk();
    let device = fine(disk.clone());
    let (queue, _waker) = open(&*device, 16);
    let mut list: BioList = (0..8)
        .map(|n| Bio::write(n * 512, filled(5, 512), n))
        .collect();
    queue.submit(&mut list);
    drop(queue);
    assert!(bytes(&*disk, 0, 4096).iter().all(|b| *b == 5));
}

/// A device whose size changes, and which knows how its bytes are stored.
#[derive(Debug)]
struct Elastic {
    mem: MemDevice,
    size: AtomicU64,
    now: AtomicU64,
}

impl Device for Elastic {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.mem)
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            size: self.size.load(Ordering::Relaxed),
            ..self.mem.geometry()
        }
    }

    fn name(&self) -> String {
        "elastic".into()
    }

    fn report(&self) -> DeviceReport {
        self.mem.report()
    }

    fn level(&self) -> u8 {
        3
    }

    fn stored(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, DeviceError> {
        let stored = match range.start {
            0 => Stored::Data,
            _ => Stored::Hole,
        };
        self.all_data(range, most).map(|runs| {
            let with = |run: Run| Run { stored, ..run };
            runs.into_iter().map(with).collect()
        })
    }

    fn refresh(&self) -> Result<(), DeviceError> {
        self.size
            .store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(())
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        self.mem.open_queue(options)
    }
}

/// A refresh follows the device below, inside the limits of the window; queues that were opened before go by it. How bytes are
/// stored is asked below, at the right place.
#[test]
fn size_and_storage_come_from_below() {
    for (offset, limit, sector) in [(0, None, 4096), (4096, None, 512), (4096, Some(8192), 512)] {
        let below = Arc::new(Elastic {
            mem: MemDevice::new(SIZE),
            size: AtomicU64::new(65_536),
            now: AtomicU64::new(131_072),
        });
        let options = WindowOptions {
            offset,
            size: limit,
            sector: Some(sector),
            read_only: false,
        };
        let device = window(below.clone(), &options);
        let (queue, waker) = open(&*device, 4);
        let ends = |pos: u64| {
            let mut list = BioList::from([Bio::read(pos, Buf::zeroed(4096), 0)]);
            queue.submit(&mut list);
            let mut out = BioList::new();
            while queue.reap(&mut out) == 0 {
                queue.wait(1, None);
                waker.clear();
            }
            out[0].result.is_ok()
        };
        let before = limit.unwrap_or(65_536 - offset);
        let after = limit.unwrap_or(131_072 - offset);
        assert_eq!((device.geometry().size, device.level()), (before, 3));
        assert_eq!(ends(after - 4096), limit.is_some());
        device.refresh().expect("it can be asked");
        assert_eq!(device.geometry().size, after);
        assert!(ends(after - 4096) && !ends(after));
        below.now.store(8192, Ordering::Relaxed);
        device.refresh().expect("it can be asked");
        assert_eq!(device.geometry().size, 8192 - offset);
        assert!(ends(8192 - 4096 - offset) && !ends(8192 - offset));
        let runs = device.stored(0..4096, 9).expect("inside");
        let stored = if offset == 0 {
            Stored::Data
        } else {
            Stored::Hole
        };
        assert_eq!(runs, [Run { len: 4096, stored }]);
        assert!(device.stored(0..1 << 20, 9).is_err());
    }
}
