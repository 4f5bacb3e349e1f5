//! Which requests run alone under which policy switch: those that must, wait until the file has no other request in flight; no
//! others do (rules B1 to B3, U7).
//!
//! Input: a file with a read that the device holds; one request at a time. Output: none. Invariants: counts are asserted, times
//! never; e2fsck judges the end. Limits: which requests want the exclusive turn while others are in flight; not what happens to
//! later ones.

use crate::common::fixture::{LIMIT, NOWAIT, filled, made, run_all, writable};
use crate::common::fsck;
use crate::common::stage::{Stage, one_worker};
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use diorite::policy::{Extending, NewSpace, Unaligned};
use diorite::{Error, File, FileId, MappingState, Policy, Queue, Request, Volume, Wait};
use diorite_block::Buf;
use diorite_format::InodeFlags;
use std::sync::Arc;

/// Every combination of the switches for writes.
fn policies() -> impl Iterator<Item = Policy> {
    let unaligned = [
        Unaligned::Concurrent,
        Unaligned::ConcurrentIfOneExtent,
        Unaligned::Exclusive,
    ];
    let spaces = [
        NewSpace::Concurrent,
        NewSpace::AlignedConcurrent,
        NewSpace::Exclusive,
    ];
    let extending = [Extending::Async, Extending::Waiting];
    unaligned.into_iter().flat_map(move |unaligned| {
        spaces.into_iter().flat_map(move |new_space| {
            extending.into_iter().map(move |extending| Policy {
                unaligned,
                new_space,
                extending,
                ..Policy::DIORITE
            })
        })
    })
}

/// A kind of request: its file; its place, given the file's size and how often it was made before; its length; whether it runs
/// alone.
struct Kind {
    name: &'static str,
    path: &'static str,
    place: fn(u64, u64) -> (u64, usize),
    alone: fn(&Policy) -> bool,
}

fn never(_: &Policy) -> bool {
    false
}

/// Growing files has a switch of its own, independent of the one for new space.
fn grows(policy: &Policy) -> bool {
    policy.extending == Extending::Waiting
}

const KINDS: [Kind; 9] = [
    Kind {
        name: "an overwrite",
        path: "/even",
        place: |_, n| (4096 * (2 + n % 8), 4096),
        alone: never,
    },
    Kind {
        name: "an overwrite that ends with the file",
        path: "/even",
        place: |size, _| (size - 8192, 8192),
        alone: never,
    },
    Kind {
        name: "an overwrite of sectors",
        path: "/even",
        place: |_, n| (4096 * (2 + n % 8) + 512, 1024),
        alone: |policy| policy.unaligned == Unaligned::Exclusive,
    },
    Kind {
        name: "a write behind the end",
        path: "/even",
        place: |size, _| (size, 4096),
        alone: grows,
    },
    Kind {
        name: "a write over the end",
        path: "/even",
        place: |size, _| (size - 4096, 8192),
        alone: grows,
    },
    Kind {
        name: "an overwrite of several extents",
        path: "/pieces",
        place: |_, n| (4096 * (2 + n % 8), 16_384),
        alone: never,
    },
    Kind {
        name: "an overwrite of sectors of several extents",
        path: "/pieces",
        place: |_, n| (4096 * (2 + n % 8) + 512, 16_384),
        alone: |policy| policy.unaligned != Unaligned::Concurrent,
    },
    Kind {
        name: "a fill",
        path: "/holed",
        place: |_, n| (4096 * (4 + 2 * n), 4096),
        alone: |policy| policy.new_space == NewSpace::Exclusive,
    },
    Kind {
        name: "a fill of sectors",
        path: "/holed",
        place: |_, n| (4096 * (404 + 2 * n) + 512, 512),
        alone: |policy| {
            policy.unaligned == Unaligned::Exclusive || policy.new_space != NewSpace::Concurrent
        },
    },
];

struct Bed {
    stage: Stage,
    valve: Valve,
    volume: Volume,
}

impl Bed {
    fn new(image: &std::path::Path) -> Bed {
        let stage = Stage::mem(image);
        let valve = Valve::new(stage.device.clone());
        let volume = Volume::open_device(Arc::new(valve.clone()), &one_worker(Policy::DIORITE));
        Bed {
            volume: volume.unwrap(),
            stage,
            valve,
        }
    }

    fn open(&self, path: &str) -> (File, Queue, FileId) {
        let file = self.volume.open_path(path, writable()).unwrap();
        let queue = self.volume.queue(8).unwrap();
        let id = queue.attach(&file).unwrap();
        (file, queue, id)
    }

    /// Does this request wait until a read of the file, which the device holds, has ended? The request completes in either case.
    fn waits(&self, file: &File, queue: &Queue, id: FileId, request: Request) -> bool {
        let first = file.mappings(4096, 4096).unwrap()[0].state;
        let MappingState::Written(block) = first else {
            panic!("{first:?}")
        };
        let from = block.get() * 4096;
        self.valve.hold_reads(from..from + 4096);
        let before = queue.counters();
        queue.submit(&mut [Request::read(id, 4096, Buf::zeroed(512), 9), request].into());
        let (mut done, mut parked) = (Vec::new(), 0);
        while done.is_empty() && parked == 0 {
            queue.reap(&mut done, 0, None);
            let now = queue.counters();
            assert_eq!(now.parked_for_range, before.parked_for_range);
            parked = now.parked - before.parked;
        }
        assert!(parked <= 1 && done.iter().all(|d| d.token != 9), "{done:?}");
        self.valve.hold_reads(0..0);
        while done.len() < 2 {
            queue.reap(&mut done, 1, None);
        }
        assert!(done.iter().all(|d| d.result.is_ok()), "{done:?}");
        parked == 1
    }

    fn finish(self, image: &std::path::Path) {
        assert_eq!(self.volume.usage().waiting_requests, 0);
        self.volume.close().unwrap();
        std::fs::write(image, self.stage.bytes()).unwrap();
        fsck(image);
    }
}

/// Two buffers of this length: one piece of memory, and two pieces, which never take the fast attempt.
fn buffers(len: usize) -> [Buf; 2] {
    let half = || filled(1, len / 2);
    [filled(1, len), Buf::from_parts(vec![half(), half()])]
}

#[test]
fn only_who_has_to_runs_alone() {
    let (_dir, image, _) = made(0);
    let watchdog = Watchdog::new(LIMIT, "alone");
    let bed = Bed::new(&image);
    for kind in &KINDS {
        let (file, queue, id) = bed.open(kind.path);
        let mut times = 0;
        for policy in policies() {
            watchdog.feed(format!("{}: {policy:?}", kind.name));
            bed.volume.set_policy(policy);
            for half in [0, 1] {
                let (pos, len) = (kind.place)(file.size(), times);
                let [one, two] = buffers(len);
                let buf = if half == 0 { one } else { two };
                let waited = bed.waits(&file, &queue, id, Request::write(id, pos, buf, 0));
                assert_eq!(waited, (kind.alone)(&policy), "{}: {policy:?}", kind.name);
                times += 1;
            }
        }
    }
    for policy in policies() {
        let (file, queue, id) = bed.open("/even");
        bed.volume.set_policy(policy);
        let append = Request::append(id, filled(1, 4096), 0);
        let waited = bed.waits(&file, &queue, id, append);
        assert_eq!(waited, grows(&policy), "an append: {policy:?}");
    }
    bed.finish(&image);
}

/// A write whose data goes through the journal runs alone under every policy; reads of that file do not.
#[test]
fn what_goes_through_the_journal_is_written_alone() {
    let _watchdog = Watchdog::new(LIMIT, "alone with the journal");
    let (_dir, image, _) = made(0);
    let bed = Bed::new(&image);
    let (file, queue, id) = bed.open("/even");
    let flags = file.metadata().flags.with(InodeFlags::JOURNAL_DATA);
    file.set_flags(flags).unwrap();
    let write = Request::write(id, 8192, filled(1, 4096), 0);
    assert!(bed.waits(&file, &queue, id, write));
    drop((file, queue));
    bed.finish(&image);
}

/// Rule G12. A NOWAIT request gets the exclusive turn if the file has nothing in flight; otherwise it gets EAGAIN and changes
/// nothing.
#[test]
fn the_turn_is_had_without_waiting_where_it_is_free() {
    let _watchdog = Watchdog::new(LIMIT, "a free turn");
    let (_dir, image, _) = made(0);
    let bed = Bed::new(&image);
    bed.volume.set_policy(Policy {
        unaligned: Unaligned::Exclusive,
        ..Policy::DIORITE
    });
    let (file, queue, id) = bed.open("/even");
    let write = |byte| Request::write(id, 8192, filled(byte, 512), 0).with_flags(NOWAIT);
    for byte in [1, 2] {
        let done = run_all(&queue, vec![write(byte)]);
        assert_eq!(done[0].result.clone().unwrap(), 512);
    }
    bed.valve.hold_reads(0..u64::MAX);
    queue.submit(&mut [Request::read(id, 0, Buf::zeroed(512), 9)].into());
    let mut done = Vec::new();
    queue.submit(&mut [write(3)].into());
    queue.reap(&mut done, 1, None);
    let refused = matches!(done[0].result, Err(Error::WouldBlock(Wait::Exclusive)));
    assert!(refused, "{done:?}");
    bed.valve.hold_reads(0..0);
    queue.reap(&mut done, 1, None);
    assert_eq!(queue.counters().parked, 0);
    let mut byte = [0xEE];
    file.read_bytes(8192, &mut byte).unwrap();
    assert_eq!(byte, [2]);
    drop((file, queue));
    bed.finish(&image);
}
