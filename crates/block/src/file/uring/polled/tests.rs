//! The polled queue without a device that can be polled: on a ring whose every request is refused, and on an ordinary ring in its place.
//!
//! Input: bios of all kinds, beside a model. Output: the model's bytes. Invariant: every bio ends once, with its own result, however many
//! the polled ring refuses. Limits: completions that only a poll brings are for `scripts/guest polled`.

use super::*;
use crate::bio::{BioErrorKind, BioOp};
use crate::device::Device;
use crate::file::uring::ring::make_for;
use crate::file::{FileDevice, FileOptions, IoEngine};
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

const UNIT: u64 = 4096;
const UNITS: u64 = 64;
const LONG: Option<Duration> = Some(Duration::from_secs(60));

/// What stands in for the polled ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ring {
    /// One with IORING_SETUP_IOPOLL: a tmpfs refuses its requests.
    Refuses,
    /// An ordinary one.
    Works,
}

struct Bench {
    device: FileDevice,
    path: PathBuf,
    options: QueueOptions,
    stats: Arc<PolledStats>,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new(depth: u32) -> Bench {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let path = dir.path().join("image");
        std::fs::write(&path, vec![0; (UNIT * UNITS) as usize]).expect("an image");
        let device = FileDevice::open(&FileOptions {
            path: path.clone(),
            ..FileOptions::default()
        });
        let stats = Arc::new(PolledStats::default());
        let options = QueueOptions {
            polled: Some(stats.clone()),
            ..QueueOptions::new(depth).expect("an eventfd")
        };
        Bench {
            device: device.expect("it opens"),
            path,
            options,
            stats,
            _dir: dir,
        }
    }

    fn ring(&self, ring: Ring) -> io::Result<PolledRing> {
        let depth = self.options.depth;
        let target = self.device.target.clone();
        let made = match ring {
            Ring::Refuses => make_polled(depth)?,
            Ring::Works => make_for(depth, false)?.0,
        };
        made.submitter().register_files(&[target.raw_fd()])?;
        let stats = self.stats.clone();
        Ok(PolledRing::new(made, target, &self.options, stats))
    }

    /// None where this process has no memory for rings.
    fn queue(&self, ring: Ring) -> Option<PolledUring> {
        let made = self.ring(ring).and_then(|polled| {
            let ordinary = UringQueue::open(self.device.target.clone(), &self.options)?;
            Ok(PolledUring::new(ordinary, polled))
        });
        made.inspect_err(|e| eprintln!("skipped: no rings: {e}"))
            .ok()
    }

    fn way(&self) -> PolledWay {
        self.stats.waits().way
    }
}

fn filled(byte: u8) -> Buf {
    let mut buf = Buf::zeroed(UNIT as usize);
    buf.as_mut_slice().fill(byte);
    buf
}

fn marked(mut bio: Bio) -> Bio {
    bio.flags.polled = true;
    bio
}

fn write(unit: u64) -> Bio {
    marked(Bio::write(unit * UNIT, filled(unit as u8 + 1), unit))
}

/// Waits and reaps as an owner does until `count` have ended.
fn reap(queue: &dyn DeviceQueue, options: &QueueOptions, count: usize) -> BioList {
    let mut done = BioList::new();
    while done.len() < count {
        options.waker.clear();
        if queue.reap(&mut done) == 0 {
            queue.wait(1, LONG);
        }
    }
    done
}

/// A bio of any kind for a unit that no other one is in flight for; a third of them is not marked.
fn any_bio(draw: u64, unit: u64, token: u64) -> Bio {
    let (pos, byte) = (unit * UNIT, (token % 250) as u8 + 1);
    let halves = || {
        let half = |byte| {
            let mut buf = Buf::zeroed(UNIT as usize / 2);
            buf.as_mut_slice().fill(byte);
            buf
        };
        Buf::from_parts(vec![half(byte), half(byte)])
    };
    let mut bio = match draw % 8 {
        0..=2 => Bio::read(pos, filled(0xee), token),
        3 | 4 => Bio::write(pos, filled(byte), token),
        5 => Bio::write(pos, halves(), token),
        6 => Bio::range(BioOp::WriteZeroesUnmap, pos, UNIT, token),
        _ => Bio::flush(token),
    };
    bio.flags.polled = !draw.is_multiple_of(3);
    bio
}

fn storm(ring: Ring, seed: u64) {
    let bench = Bench::new(16);
    let Some(queue) = bench.queue(ring) else {
        return;
    };
    let mut state = seed;
    let mut draw = move || {
        // Knuth's MMIX generator; its upper bits.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut model = vec![0u8; UNITS as usize];
    let (mut token, mut ended) = (0, 0);
    while ended < 2000 {
        let first = draw() % UNITS;
        let count = 1 + draw() % 12;
        let mut bios: BioList = (0..count)
            .map(|n| {
                token += 1;
                any_bio(draw(), (first + n) % UNITS, token)
            })
            .collect();
        let mut left = bios.len();
        while left > 0 {
            queue.submit(&mut bios);
            for bio in reap(&queue, &bench.options, 1) {
                assert_eq!(bio.result, Ok(()), "seed {seed}: {bio:?}");
                let unit = (bio.pos / UNIT) as usize;
                match bio.op {
                    BioOp::Read => {
                        let all = bio.buf.as_slice().iter().all(|b| *b == model[unit]);
                        assert!(all, "seed {seed}: unit {unit} is not {}", model[unit]);
                    }
                    BioOp::Write => model[unit] = (bio.token % 250) as u8 + 1,
                    BioOp::WriteZeroesUnmap => model[unit] = 0,
                    _ => {}
                }
                left -= 1;
                ended += 1;
            }
        }
        assert_eq!(queue.in_flight(), 0, "seed {seed}");
    }
    let waits = bench.stats.waits();
    match ring {
        Ring::Works => {
            assert!(waits.polled > 500 && waits.repeated == 0, "{waits:?}");
            assert_eq!(waits.way, PolledWay::Device);
        }
        Ring::Refuses => {
            assert!(waits.polled == 0 && waits.repeated > 0, "{waits:?}");
            // It is given none after the refusal.
            assert!(waits.repeated <= 16, "{waits:?}");
            let why = NotPolled::Refused(libc::EOPNOTSUPP);
            assert_eq!(waits.way, PolledWay::Looks(why));
        }
    }
    drop(queue);
    let bytes = std::fs::read(&bench.path).expect("the image");
    for (unit, byte) in model.iter().enumerate() {
        let at = unit * UNIT as usize;
        assert!(bytes[at..][..UNIT as usize].iter().all(|b| b == byte));
    }
}

#[test]
fn both_rings_give_what_one_gives() {
    for seed in 1..4 {
        storm(Ring::Works, seed);
    }
}

#[test]
fn what_is_refused_is_repeated_and_counted() {
    for seed in 1..4 {
        storm(Ring::Refuses, seed);
    }
}

/// The trial at opening finds out that nothing can be polled, before a request of the owner's does.
#[test]
fn a_ring_that_refuses_is_found_out() {
    let bench = Bench::new(4);
    if let Ok(ring) = bench.ring(Ring::Refuses) {
        let why = ring.tried().err();
        assert_eq!(why, Some(NotPolled::Refused(libc::EOPNOTSUPP)));
    }
    if let Ok(ring) = bench.ring(Ring::Works) {
        assert!(ring.tried().is_ok());
    }
}

/// A trial that never ended kept the caller who opened the queue.
#[test]
fn a_ring_that_never_answers_is_given_up() {
    let bench = Bench::new(4);
    let (silent, _nobody_writes) = std::io::pipe().expect("a pipe");
    let made = match make_for(4, false) {
        Ok((made, _)) => made,
        Err(e) => return eprintln!("skipped: no rings: {e}"),
    };
    let registered = made.submitter().register_files(&[silent.as_raw_fd()]);
    registered.expect("a descriptor");
    let (target, stats) = (bench.device.target.clone(), bench.stats.clone());
    let ring = PolledRing::new(made, target, &bench.options, stats);
    assert_eq!(ring.tried().err(), Some(NotPolled::Late));
    assert_eq!(bench.way(), PolledWay::Looks(NotPolled::Late));
}

#[test]
fn the_reason_is_told() {
    let bench = Bench::new(4);
    let ways = [
        (None, false, NotPolled::NoQueues),
        (None, true, NotPolled::Buffered),
        (Some(IoEngine::Threads), false, NotPolled::Engine),
    ];
    for (engine, buffered, expected) in ways {
        let device = FileDevice::open(&FileOptions {
            path: bench.path.clone(),
            engine,
            buffered,
            force: true,
            ..FileOptions::default()
        });
        let device = device.expect("it opens");
        // Without memory for rings, and on a kernel that has no direct I/O on a tmpfs.
        let expected = match (device.engine(), device.target.direct) {
            (IoEngine::Uring, false) => NotPolled::Buffered,
            (IoEngine::Uring, true) => expected,
            _ => NotPolled::Engine,
        };
        let queue = device.open_queue(bench.options.clone()).expect("a queue");
        assert_eq!(bench.way(), PolledWay::Looks(expected));
        let mut bios = BioList::from([write(1)]);
        queue.submit(&mut bios);
        assert_eq!(reap(&*queue, &bench.options, 1)[0].result, Ok(()));
        assert!(expected.to_string().len() > expected.name().len());
    }
}

/// A thread that sleeps on the ordinary ring alone is woken by the first polled request of another one.
#[test]
fn a_sleeper_hears_of_polled_requests() {
    for ring in [Ring::Works, Ring::Refuses] {
        let bench = Bench::new(4);
        let Some(queue) = bench.queue(ring) else {
            return;
        };
        for _ in 0..20 {
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| queue.wait(1, None));
                while queue.asleep.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                bench.stats.set_way(PolledWay::Device);
                queue.polled.off.store(false, Ordering::SeqCst);
                queue.submit(&mut BioList::from([write(3)]));
                waiter.join().expect("it ends");
            });
            let done = reap(&queue, &bench.options, 1);
            assert_eq!(done[0].result, Ok(()));
        }
    }
}

/// The drop of a queue waits for all bios, those too that have to be repeated.
#[test]
fn a_drop_loses_nothing() {
    for ring in [Ring::Works, Ring::Refuses] {
        let bench = Bench::new(16);
        let Some(queue) = bench.queue(ring) else {
            return;
        };
        let mut bios: BioList = (0..16).map(write).collect();
        bios.extend((16..32).map(|unit| {
            let mut bio = write(unit);
            bio.flags.polled = false;
            bio
        }));
        queue.submit(&mut bios);
        assert!(bios.is_empty(), "each ring has the queue's depth");
        drop(queue);
        let bytes = std::fs::read(&bench.path).expect("the image");
        for unit in 0..32 {
            let at = (unit * UNIT) as usize;
            let whole = &bytes[at..][..UNIT as usize];
            assert!(whole.iter().all(|b| *b == unit as u8 + 1), "{ring:?}");
        }
    }
}

/// Once the owner polls the descriptor, what is in flight on the polled ring makes it readable until it has ended, and nothing more
/// goes there.
#[test]
fn an_owner_who_polls_the_descriptor_gets_all() {
    for ring in [Ring::Works, Ring::Refuses] {
        let bench = Bench::new(8);
        let Some(queue) = bench.queue(ring) else {
            return;
        };
        let waker = &bench.options.waker;
        queue.submit(&mut (0..8).map(write).collect());
        queue.signal_waker();
        waker.watch();
        let polled = |want: usize| {
            let mut done = BioList::new();
            while done.len() < want {
                let mut fds = [PollFd::new(&**waker, PollFlags::IN)];
                poll(&mut fds, None).expect("it can be polled");
                waker.clear();
                queue.reap(&mut done);
            }
            assert!(done.iter().all(|bio| bio.result.is_ok()));
        };
        polled(8);
        let before = bench.stats.waits();
        queue.submit(&mut (0..8).map(write).collect());
        polled(8);
        assert_eq!(bench.stats.waits(), before);
        assert!(matches!(bench.way(), PolledWay::Looks(_)));
    }
}

/// A bio that is wrong, and one behind the end of a file that has shrunk (rule L2), end as on an ordinary ring.
#[test]
fn errors_are_those_of_the_ordinary_ring() {
    for ring in [Ring::Works, Ring::Refuses] {
        let bench = Bench::new(4);
        let Some(queue) = bench.queue(ring) else {
            return;
        };
        let file = std::fs::File::options().write(true).open(&bench.path);
        file.and_then(|f| f.set_len(UNIT)).expect("it shrinks");
        let bad = [
            (marked(Bio::read(7, filled(1), 0)), BioErrorKind::Invalid),
            (
                marked(Bio::read(UNITS * UNIT, filled(1), 0)),
                BioErrorKind::Invalid,
            ),
            (marked(Bio::read(8 * UNIT, filled(1), 0)), BioErrorKind::Io),
        ];
        for (bio, kind) in bad {
            queue.submit(&mut BioList::from([bio]));
            let done = reap(&queue, &bench.options, 1);
            assert_eq!(done[0].result.map_err(|e| e.kind), Err(kind), "{ring:?}");
        }
        assert_eq!(queue.in_flight(), 0);
    }
}

/// With no time, and with a kick, a wait returns although something is in flight that never ends by itself.
#[test]
fn a_wait_has_its_limit() {
    let bench = Bench::new(4);
    let Some(queue) = bench.queue(Ring::Works) else {
        return;
    };
    queue.wait(1, Some(Duration::ZERO));
    // As if one were on its way.
    queue.polled.repeats.fetch_add(1, Ordering::SeqCst);
    assert_eq!(queue.in_flight(), 1);
    queue.wait(1, Some(Duration::ZERO));
    queue.wait(1, Some(Duration::from_millis(3)));
    bench.options.waker.kick();
    queue.wait(1, None);
    queue.polled.repeats.fetch_sub(1, Ordering::SeqCst);
}

/// The defect: a trial whose read was to be repeated counted as in flight for ever, so the queue's drop did not end.
#[test]
fn a_trial_leaves_nothing_behind() {
    let bench = Bench::new(4);
    let ring = match bench.ring(Ring::Works) {
        Ok(ring) => ring,
        Err(e) => return eprintln!("skipped: no rings: {e}"),
    };
    // As after a read that was interrupted.
    ring.repeats.store(1, Ordering::SeqCst);
    let ring = ring.tried().expect("it works");
    assert_eq!(ring.in_flight(), 0);
    let waits = bench.stats.waits();
    assert_eq!((waits.polled, waits.repeated), (0, 0));
}
