//! Copies and comparisons of whole devices against a model, with devices that fail, are slow, say anything of their holes, or can do
//! nothing special.

use super::*;
use crate::copying::ranges::plan::Zeros;
use diorite_block::device::{DeviceErrorKind, DeviceQueue, Geometry, Run, Stored};
use diorite_block::{BioErrorKind, BioOp, Fault, FaultDevice, FaultPlan, MemDevice, When};
use diorite_block::{SimDevice, SimOptions};
use std::ops::Range;
use std::sync::Mutex;
use xtask::rng::{Rng, seed_or};

/// How a device answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// What is true, a few runs at a time, with bounds in the middle of sectors.
    Truth,
    /// Nothing.
    Nothing,
    /// An error.
    Error,
    /// Runs without length, and longer than the device.
    Nonsense,
}

/// A device over memory whose answers can be chosen.
struct Odd {
    below: MemDevice,
    says: Says,
    change: fn(Geometry) -> Geometry,
    bytes: Mutex<Vec<u8>>,
    /// The most bios that a queue takes.
    depth: u32,
}

impl Device for Odd {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.below)
    }

    fn geometry(&self) -> Geometry {
        (self.change)(self.below.geometry())
    }
    fn name(&self) -> String {
        "odd".to_owned()
    }
    fn stored(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, DeviceError> {
        let whole = |stored| Run {
            len: range.end - range.start,
            stored,
        };
        match self.says {
            Says::Nothing => Ok(Vec::new()),
            Says::Error => Err(DeviceError::new(DeviceErrorKind::Io, "no answer")),
            Says::Nonsense => Ok(vec![
                Run {
                    len: 0,
                    stored: Stored::Hole,
                },
                Run {
                    len: u64::MAX,
                    ..whole(Stored::Data)
                },
                whole(Stored::Hole),
            ]),
            Says::Truth => {
                let bytes = self.bytes.lock().expect("no panic");
                let here = &bytes[range.start as usize..range.end as usize];
                let runs = here.chunk_by(|a, b| (*a == 0) == (*b == 0)).map(|run| Run {
                    len: run.len() as u64,
                    stored: match run[0] {
                        0 => Stored::Hole,
                        _ => Stored::Data,
                    },
                });
                Ok(runs.take(most.min(3)).collect())
            }
        }
    }
    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        let depth = options.depth.min(self.depth);
        self.below.open_queue(options.depth(depth))
    }
}

/// A device with these bytes.
fn odd(bytes: &[u8], says: Says, change: fn(Geometry) -> Geometry) -> Arc<dyn Device> {
    narrow(bytes, says, change, u32::MAX)
}

/// The same with queues of this depth.
fn narrow(
    bytes: &[u8],
    says: Says,
    change: fn(Geometry) -> Geometry,
    depth: u32,
) -> Arc<dyn Device> {
    let below = MemDevice::new(bytes.len() as u64);
    below.write_at(0, bytes);
    Arc::new(Odd {
        below,
        says,
        change,
        bytes: Mutex::new(bytes.to_vec()),
        depth,
    })
}

/// Data of odd lengths between zeros of odd lengths.
fn layout(dice: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut at = 0;
    while at < len {
        let most = [600, 5000, 70_000, 3 << 20][dice.below(4) as usize];
        let end = len.min(at + 1 + dice.below(most) as usize);
        if dice.below(2) == 0 {
            let mark = 1 + dice.below(255) as u8;
            bytes[at..end].fill(mark);
        }
        at = end;
    }
    bytes
}

fn read(device: &Arc<dyn Device>) -> Vec<u8> {
    let size = device.geometry().size as usize;
    let blocking = diorite_block::Blocking::new(device.clone());
    blocking
        .read(0, Buf::zeroed(size))
        .expect("memory")
        .as_slice()
        .to_vec()
}

static QUIET: AtomicBool = AtomicBool::new(false);

fn copy(
    from: &Arc<dyn Device>,
    to: &Arc<dyn Device>,
    (gaps, piece, unit): (Gaps, u64, u64),
) -> Result<Written, Failure> {
    let plan = Plan::of(from, 0..from.geometry().size, unit, gaps == Gaps::Skip);
    let mut write = Write::new(to.as_ref(), gaps, piece, unit);
    let mut last = 0;
    let mut step = |at| last = at;
    run(
        (from, to),
        plan,
        Bufs::new(2).expect("memory"),
        &mut write,
        (&QUIET, &mut step),
    )?;
    write.end()
}

fn compare(a: &Arc<dyn Device>, b: &Arc<dyn Device>, unit: u64) -> Result<Found, Failure> {
    let end = a
        .geometry()
        .size
        .max(b.geometry().size)
        .next_multiple_of(unit);
    let mut equal = Equal::new(Bufs::new(2).expect("memory"));
    run(
        (a, b),
        Plan::of_both(a, b, 0..end, unit),
        Bufs::new(2).expect("memory"),
        &mut equal,
        (&QUIET, &mut |_| ()),
    )?;
    equal.end()
}

const PLAIN: fn(Geometry) -> Geometry = |g| Geometry {
    write_zeroes: false,
    discard: false,
    ..g
};

/// Whatever the source says of its holes and whatever the target can do, the bytes arrive, old bytes of the target go, and the comparison
/// finds the first byte that is changed afterwards.
#[test]
fn copies_are_equal_and_the_first_difference_is_found() {
    let seed = seed_or("copies of ranges", 11);
    let mut dice = Rng::new(seed);
    for round in 0..24 {
        let len = 4096 * (1 + dice.below(1500) as usize);
        let bytes = layout(&mut dice, len);
        let says = [Says::Truth, Says::Nothing, Says::Error, Says::Nonsense][round % 4];
        let from = odd(&bytes, says, |g| g);
        let old = layout(&mut dice, len);
        for (gaps, change) in [
            (Gaps::Unmap, (|g| g) as fn(Geometry) -> Geometry),
            (Gaps::Unmap, PLAIN),
            (Gaps::Fill, |g| g),
            (Gaps::Fill, PLAIN),
            (Gaps::Skip, |g| g),
        ] {
            let piece = [0, 512, 4096, 64 << 10][dice.below(4) as usize];
            let unit = [512, 4096][dice.below(2) as usize];
            let mut to = odd(&old, Says::Nothing, change);
            if gaps == Gaps::Skip {
                to = Arc::new(MemDevice::new(len as u64));
            }
            let what = format!("DIORITE_SEED={seed}: {round} {says:?} {gaps:?} {piece} {unit}");
            let written = copy(&from, &to, (gaps, piece, unit)).expect(&what);
            assert!(read(&to) == bytes, "{what}");
            if gaps == Gaps::Fill {
                assert_eq!(written.data + written.zeroed, len as u64, "{what}");
            }
            assert_eq!(
                compare(&from, &to, unit).expect(&what),
                Found::Same,
                "{what}"
            );
            let at = dice.below(len as u64);
            let (changed, more) = (to_mem(&read(&to)), dice.below(4));
            for at in (0..=more)
                .map(|n| at + n * 100_000)
                .filter(|at| *at < len as u64)
            {
                changed.write_at(at, &[!bytes[at as usize]]);
            }
            let changed: Arc<dyn Device> = Arc::new(changed);
            let found = compare(&from, &changed, unit).expect(&what);
            assert_eq!(found, Found::Differs(at), "{what}");
            let found = compare(&changed, &from, unit).expect(&what);
            assert_eq!(found, Found::Differs(at), "{what}");
        }
    }
}

fn to_mem(bytes: &[u8]) -> MemDevice {
    let memory = MemDevice::new(bytes.len() as u64);
    memory.write_at(0, bytes);
    memory
}

/// The longer one may end with zeros, and with nothing else; ends within a unit are seen.
#[test]
fn sizes_may_differ_by_zeros() {
    let mut bytes = vec![7; 10 * 4096];
    let short: Arc<dyn Device> = Arc::new(to_mem(&bytes[..9 * 4096 + 512]));
    bytes[9 * 4096 + 512..].fill(0);
    let long = to_mem(&bytes);
    let long_device: Arc<dyn Device> = Arc::new(long.clone());
    assert_eq!(
        compare(&short, &long_device, 4096).expect("memory"),
        Found::Same
    );
    assert_eq!(
        compare(&long_device, &short, 4096).expect("memory"),
        Found::Same
    );
    long.write_at(10 * 4096 - 1, &[1]);
    let last = Found::Differs(10 * 4096 - 1);
    assert_eq!(compare(&short, &long_device, 4096).expect("memory"), last);
    assert_eq!(compare(&long_device, &short, 4096).expect("memory"), last);
}

/// A slow disk that ends requests in any order, with fewer bufs than parts.
#[test]
fn slow_devices_end_in_any_order() {
    for clock in ["clock=auto", "latency=200us,jitter=800us,parallel=7"] {
        let disk = |seed: u64| -> Arc<dyn Device> {
            let options = SimOptions::parse(&format!("24M,seed={seed},{clock}"));
            Arc::new(SimDevice::new(options.expect("options")).expect("memory"))
        };
        let bytes = layout(&mut Rng::new(seed_or("copies of ranges", 11)), 24 << 20);
        let (from, to, memory) = (disk(1), disk(2), odd(&bytes, Says::Truth, |g| g));
        copy(&memory, &from, (Gaps::Unmap, 4096, 512)).expect("a disk");
        copy(&from, &to, (Gaps::Unmap, 4096, 512)).expect("a disk");
        assert!(read(&to) == bytes, "{clock}");
        assert_eq!(compare(&from, &to, 512).expect("disks"), Found::Same);
    }
}

fn failing(bytes: &[u8], op: BioOp, when: When, kind: BioErrorKind) -> Arc<dyn Device> {
    let plan = FaultPlan::new(vec![Fault::new(kind, when).on(op)], 1);
    Arc::new(FaultDevice::new(odd(bytes, Says::Nothing, |g| g), plan))
}

/// No failure of a request is lost, whichever it is, and the side and place are told.
#[test]
fn every_failed_request_is_told() {
    let bytes = layout(&mut Rng::new(5), 6 << 20);
    let whole = |device: &Arc<dyn Device>| read(device) == bytes;
    for n in 1..=40 {
        for (op, side) in [
            (BioOp::Read, Side::First),
            (BioOp::Write, Side::Second),
            (BioOp::WriteZeroesUnmap, Side::Second),
        ] {
            let kinds = [
                BioErrorKind::Io,
                BioErrorKind::NoSpace,
                BioErrorKind::WouldBlock,
            ];
            let broken = failing(&bytes, op, When::nth(n), kinds[n as usize % 3]);
            let good = odd(&bytes, Says::Nothing, |g| g);
            let old = vec![9; bytes.len()];
            let (from, to) = match side {
                Side::First => (broken, odd(&old, Says::Nothing, |g| g)),
                Side::Second => (good, failing(&old, op, When::nth(n), kinds[n as usize % 3])),
            };
            match copy(&from, &to, (Gaps::Unmap, 4096, 512)) {
                Ok(_) => assert!(whole(&to), "{op:?} {n}"),
                Err(failure) => assert_eq!(failure.side(), Some(side), "{op:?} {n}: {failure}"),
            }
            if op == BioOp::Write && n <= 4 {
                assert!(!whole(&to), "the {n}th write failed, and was told above");
            }
        }
    }
}

/// A device that refuses ranges of zeros, now or later, gets zeros as data.
#[test]
fn zeros_are_written_where_ranges_are_refused() {
    let bytes = layout(&mut Rng::new(21), 8 << 20);
    for first in 1..6 {
        let always = When::Span {
            first,
            count: u64::MAX,
        };
        let from = odd(&bytes, Says::Truth, |g| g);
        for (gaps, op) in [
            (Gaps::Unmap, BioOp::WriteZeroesUnmap),
            (Gaps::Fill, BioOp::WriteZeroes),
        ] {
            let to = failing(&vec![9; bytes.len()], op, always, BioErrorKind::Unsupported);
            copy(&from, &to, (gaps, 4096, 512)).expect("zeros can be written");
            assert!(read(&to) == bytes, "{gaps:?} from the {first}th on");
        }
    }
}

/// A read that fails in front of a difference is trouble; behind it, it does not matter.
#[test]
fn what_comes_first_counts() {
    let bytes = vec![3; 8 << 20];
    let other = to_mem(&bytes);
    other.write_at(4 << 20, &[4]);
    let other: Arc<dyn Device> = Arc::new(other);
    for (at, trouble) in [(1 << 20, true), (7 << 20, false)] {
        let fault = Fault::new(BioErrorKind::Io, When::Every(1)).within(at..at + 512);
        let plan = FaultPlan::new(vec![fault], 1);
        let broken: Arc<dyn Device> =
            Arc::new(FaultDevice::new(odd(&bytes, Says::Nothing, |g| g), plan));
        for (a, b) in [(&broken, &other), (&other, &broken)] {
            match compare(a, b, 512) {
                Ok(found) => assert_eq!((found, trouble), (Found::Differs(4 << 20), false)),
                Err(failure) => assert!(trouble, "{failure}"),
            }
        }
    }
}

/// A difference that is known at once, while reads in front of it have not been submitted: theirs is found.
#[test]
fn reads_in_front_of_a_difference_are_not_dropped() {
    let bytes = vec![3; 9 << 20];
    let mut other = bytes.clone();
    other[(5 << 20) + 77] = 4;
    other[8 << 20..].fill(0);
    let first = odd(&bytes, Says::Nothing, |g| g);
    let second = narrow(&other, Says::Truth, |g| g, 1);
    let plan = Plan::of_both(&first, &second, 0..9 << 20, 512);
    let mut equal = Equal::new(Bufs::new(16).expect("memory"));
    let mut step = |_| ();
    let stops: (&AtomicBool, &mut dyn FnMut(u64)) = (&QUIET, &mut step);
    run(
        (&first, &second),
        plan,
        Bufs::new(16).expect("memory"),
        &mut equal,
        stops,
    )
    .expect("memory");
    assert_eq!(equal.end().expect("memory"), Found::Differs((5 << 20) + 77));
}

#[test]
fn an_interrupt_ends_a_copy() {
    let bytes = vec![3; 8 << 20];
    let (from, to) = (
        odd(&bytes, Says::Nothing, |g| g),
        odd(&bytes, Says::Nothing, |g| g),
    );
    let plan = Plan::of(&from, 0..8 << 20, 512, false);
    let mut write = Write::new(to.as_ref(), Gaps::Unmap, 4096, 512);
    let stop = AtomicBool::new(true);
    let ran = run(
        (&from, &to),
        plan,
        Bufs::new(2).expect("memory"),
        &mut write,
        (&stop, &mut |_| ()),
    );
    assert!(matches!(ran, Err(Failure::Interrupted)), "{ran:?}");
}

/// Parts cover everything without a gap, are multiples of the unit, and leave no data out.
#[test]
fn parts_cover_what_is_data() {
    let mut dice = Rng::new(seed_or("copies of ranges", 11));
    for _ in 0..40 {
        let len = 4096 * (1 + dice.below(900));
        let bytes = layout(&mut dice, len as usize);
        let from = odd(&bytes, Says::Truth, |g| g);
        let mut at = 0;
        for part in Plan::of(&from, 0..len, 4096, false) {
            assert_eq!(part.at, at);
            assert!(part.len > 0 && part.len.is_multiple_of(4096), "{part:?}");
            let here = &bytes[at as usize..(at + part.len) as usize];
            let is_zero = here.iter().all(|b| *b == 0);
            assert!(part.first == Zeros::Unknown || is_zero, "{part:?}");
            at += part.len;
        }
        assert_eq!(at, len);
    }
    // Two devices of which one is one long hole: what was learnt of its runs is not forgotten.
    let hole: Arc<dyn Device> = Arc::new(MemDevice::new(1 << 40));
    let small: Arc<dyn Device> = Arc::new(to_mem(&[1; 4096]));
    assert_eq!(Plan::of_both(&hole, &small, 0..1 << 40, 4096).count(), 1);
}
