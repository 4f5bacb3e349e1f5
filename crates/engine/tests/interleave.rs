//! Interleavings of the gate, the in-flight count, parked requests, the inbox, the pending map, map publication and the noted times of
//! writes, each by itself, and of whole volumes; shuttle explores schedules, loom the memory order.
//!
//! Whole volumes are the engine itself, with its workers, on a device in memory. For single components, the modules' own files are
//! compiled into this test, with a queue that has only an inbox and a waker; their locks and atomics are replaced only through the
//! `sync` module. Not modelled: the block crate's `Waker`, an eventfd and std atomics, whose threads sleep on a condition variable
//! under shuttle. The waker here keeps its protocol: kick after posting; clear before looking.
#![cfg(any(feature = "_shuttle", feature = "_loom"))]
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    unused_imports,
    missing_docs
)]

#[path = "../src/slots/inbox.rs"]
mod inbox;
#[path = "../src/locks.rs"]
mod locks;
#[path = "../src/map/published.rs"]
mod published;
#[path = "../src/turn/mod.rs"]
mod turn;
#[path = "../src/inode/written.rs"]
mod written;

mod alloc {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Run {
        pub(crate) start: diorite_format::FsBlock,
        pub(crate) len: u32,
    }
}
mod error {
    #[derive(Debug)]
    pub(crate) struct Error;
}
mod map {
    #[derive(Debug)]
    pub(crate) struct MapView;
}

use diorite_block::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use diorite_block::sync::{Condvar, LockClass, Mutex, thread};
use inbox::Inbox;
use published::{Cached, Published, Retired};
use std::sync::Arc;
use turn::gate::{Admission, Gate, Shard};
use turn::{Mail, Message, Parked};

static WAKER: LockClass = LockClass::new("test-waker", 900);

/// The part of a queue that a gate and a worker use.
#[derive(Debug)]
pub(crate) struct QueueShared {
    inbox: Inbox,
    waker: TestWaker,
}

#[derive(Debug)]
struct TestWaker {
    kicked: Mutex<bool>,
    wake: Condvar,
}

impl TestWaker {
    fn kick(&self) {
        *self.kicked.lock() = true;
        self.wake.notify_all();
    }

    fn clear(&self) {
        *self.kicked.lock() = false;
    }

    fn wait(&self) {
        let mut kicked = self.kicked.lock();
        while !*kicked {
            kicked = self.wake.wait(kicked);
        }
    }
}

impl Mail for QueueShared {
    fn post(&self, message: Message) {
        self.inbox.post([message]);
        self.waker.kick();
    }

    fn post_all(&self, messages: Vec<Message>) {
        self.inbox.post(messages);
        self.waker.kick();
    }
}

impl QueueShared {
    fn new() -> Arc<QueueShared> {
        Arc::new(QueueShared {
            inbox: Inbox::new(1),
            waker: TestWaker {
                kicked: Mutex::new(&WAKER, false),
                wake: Condvar::new(),
            },
        })
    }

    /// Waits for messages, as a queue's owner does.
    fn receive(&self) -> Vec<Message> {
        loop {
            self.waker.clear();
            let mut messages = Vec::new();
            self.inbox.take(&mut messages);
            if !messages.is_empty() {
                return messages;
            }
            self.waker.wait();
        }
    }
}

/// Counts who is inside the gate, with ordinary counters beside it.
#[derive(Debug)]
struct Room {
    gate: Gate,
    guests: AtomicUsize,
    owner: AtomicBool,
}

impl Room {
    fn new() -> Arc<Room> {
        Arc::new(Room {
            gate: Gate::new(1),
            guests: AtomicUsize::new(0),
            owner: AtomicBool::new(false),
        })
    }

    /// Rule G13: while one request has the exclusive turn, no other is inside.
    fn visit(&self) {
        self.guests.fetch_add(1, Ordering::SeqCst);
        assert!(
            !self.owner.load(Ordering::SeqCst),
            "a guest beside the owner"
        );
        thread::yield_now();
        self.guests.fetch_sub(1, Ordering::SeqCst);
    }

    fn own(&self) {
        assert!(!self.owner.swap(true, Ordering::SeqCst), "two owners");
        assert_eq!(
            self.guests.load(Ordering::SeqCst),
            0,
            "an owner beside a guest"
        );
        thread::yield_now();
        self.owner.store(false, Ordering::SeqCst);
    }

    /// A request: enters the gate directly, else is parked until the inbox says that it is counted.
    fn request(&self, shard: &Arc<Shard>) {
        if !self.gate.enter(shard, || false) {
            let queue = QueueShared::new();
            let parked = || Parked {
                queue: queue.clone(),
                slot: 7,
            };
            if self.gate.enter_or_park(shard, parked) == Admission::Parked {
                released(&queue);
            }
        }
        self.visit();
        self.gate.leave(shard);
    }

    /// A request that runs alone.
    fn turn(&self) {
        let queue = QueueShared::new();
        let parked = || Parked {
            queue: queue.clone(),
            slot: 7,
        };
        if self.gate.take_turn(parked) == Admission::Parked {
            released(&queue);
        }
        self.own();
        self.gate.end_turn();
    }

    /// A thread that closes the gate.
    fn quiesce(&self) {
        self.gate.wait_turn(|| {
            thread::yield_now();
            false
        });
        self.own();
        self.gate.end_turn();
    }
}

/// The version that a reader sees now.
fn latest(cached: &mut Cached<usize>, published: &Published<usize>) -> usize {
    cached.refresh(published);
    **cached.value()
}

/// Rule G5: asserts that the parked request is released exactly once.
fn released(queue: &QueueShared) {
    let messages = queue.receive();
    assert!(
        matches!(messages[..], [Message::Restart(7)]),
        "{messages:?}"
    );
}

#[cfg(all(feature = "_shuttle", not(feature = "_loom")))]
#[path = "interleave/growing.rs"]
mod growing;

#[cfg(all(feature = "_shuttle", not(feature = "_loom")))]
#[path = "interleave/noted.rs"]
mod noted;

#[cfg(all(feature = "_shuttle", not(feature = "_loom")))]
mod common;
#[cfg(all(feature = "_shuttle", not(feature = "_loom")))]
#[path = "interleave/volumes.rs"]
mod volumes;

#[cfg(all(feature = "_shuttle", not(feature = "_loom")))]
mod shuttled {
    use super::*;

    /// Schedules per test; `DIORITE_SCHEDULES` sets more.
    pub(super) fn schedules(few: usize) -> usize {
        let more = std::env::var("DIORITE_SCHEDULES").ok();
        more.and_then(|n| n.parse().ok()).unwrap_or(few)
    }

    pub(super) fn check(test: impl Fn() + Send + Sync + 'static) {
        let schedules = schedules(3000);
        let test = Arc::new(test);
        let again = test.clone();
        shuttle::check_random(move || test(), schedules);
        shuttle::check_pct(move || again(), schedules / 3, 3);
    }

    /// Rules G13, G14, B3: requests, exclusive turns and closers in every mix. None are inside together that exclude each other,
    /// and all get inside: a lost release would be a deadlock.
    #[test]
    fn the_gate_lets_everybody_in_once() {
        check(|| {
            let room = Room::new();
            let threads: Vec<_> = (0..5)
                .map(|n| {
                    let room = room.clone();
                    thread::spawn(move || {
                        let shard = room.gate.add_shard();
                        for round in 0..3 {
                            match (n + round) % 5 {
                                0 | 1 => room.request(&shard),
                                2 => room.turn(),
                                3 => room.quiesce(),
                                _ if room.gate.try_turn() => {
                                    room.own();
                                    room.gate.end_turn();
                                }
                                _ => room.request(&shard),
                            }
                        }
                        room.gate.remove_shard(&shard);
                    })
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert!(
                room.gate.try_turn(),
                "the gate is open and empty in the end"
            );
            room.gate.end_turn();
            let shard = room.gate.add_shard();
            assert!(room.gate.enter(&shard, || false));
            room.gate.leave(&shard);
        });
    }

    /// Rule G14: the thread that reaps decrements the in-flight count, not the one that submitted; here it is a third thread.
    #[test]
    fn who_leaves_need_not_be_who_entered() {
        check(|| {
            let (room, reaper) = (Room::new(), QueueShared::new());
            let shard = room.gate.add_shard();
            let (other, shards, queue) = (room.clone(), shard.clone(), reaper.clone());
            let reaping = thread::spawn(move || {
                let mut left = 3;
                while left > 0 {
                    for _ in queue.receive() {
                        other.visit();
                        other.gate.leave(&shards);
                        left -= 1;
                    }
                }
            });
            let closer = room.clone();
            let closing = thread::spawn(move || closer.quiesce());
            for n in 0..3 {
                if !room.gate.enter(&shard, || false) {
                    let mine = QueueShared::new();
                    let parked = || Parked {
                        queue: mine.clone(),
                        slot: 7,
                    };
                    if room.gate.enter_or_park(&shard, parked) == Admission::Parked {
                        released(&mine);
                    }
                }
                reaper.inbox.post([Message::Completed(n, None)]);
                reaper.waker.kick();
            }
            closing.join().unwrap();
            reaping.join().unwrap();
        });
    }

    /// No message is lost or duplicated between posters and an owner that sleeps while there is none.
    #[test]
    fn the_inbox_keeps_every_message() {
        check(|| {
            let queue = QueueShared::new();
            let posters: Vec<_> = (0..3u32)
                .map(|n| {
                    let queue = queue.clone();
                    thread::spawn(move || {
                        for m in 0..3 {
                            queue.inbox.post([Message::Restart(n * 10 + m)]);
                            queue.waker.kick();
                        }
                    })
                })
                .collect();
            let mut got = Vec::new();
            while got.len() < 9 {
                for message in queue.receive() {
                    let Message::Restart(n) = message else {
                        panic!("{message:?}")
                    };
                    got.push(n);
                }
            }
            posters.into_iter().for_each(|t| t.join().unwrap());
            got.sort_unstable();
            assert_eq!(got, [0, 1, 2, 10, 11, 12, 20, 21, 22]);
            assert!(queue.inbox.is_empty());
        });
    }

    /// The map is published before the size: a reader that sees a size which a writer stored after publishing finds that map
    /// version or a later one; versions never go back.
    #[test]
    fn published_versions_only_rise() {
        check(|| {
            let published = Arc::new(Published::new(1, 0usize));
            let size = Arc::new(AtomicUsize::new(0));
            let readers: Vec<_> = (0..3)
                .map(|_| {
                    let (published, size) = (published.clone(), size.clone());
                    thread::spawn(move || {
                        let (mut cached, mut last) = (published.cached(), 0);
                        for _ in 0..5 {
                            let size = size.load(Ordering::Acquire);
                            let version = latest(&mut cached, &published);
                            assert!(
                                version >= size && version >= last,
                                "{version} < {size} or {last}"
                            );
                            last = version;
                        }
                    })
                })
                .collect();
            for version in 1..4 {
                published.publish(Arc::new(version));
                size.store(version, Ordering::Release);
            }
            readers.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!(*published.load(), 3);
        });
    }
}

#[cfg(feature = "_loom")]
mod loomed {
    use super::*;

    fn check(test: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(test);
    }

    /// Loom watches the memory inside the gate: leaving or ending a turn without the right memory order is a data race. Loom treats
    /// SeqCst as AcqRel except in fences, so it rejects a protocol that holds on every machine: a request changes the count and
    /// then reads the flag, a closer sets the flag and then reads the counts. That part is left to shuttle; here the gate is
    /// entered under its lock, and the owner retries instead of waiting to be woken.
    #[test]
    fn what_a_guest_did_is_seen_by_the_next_owner() {
        check(|| {
            let gate = Arc::new(Gate::new(1));
            let cell = Arc::new(loom::cell::UnsafeCell::new(0));
            let shard = gate.add_shard();
            let (guest, inside, mine) = (gate.clone(), cell.clone(), shard.clone());
            let thread = thread::spawn(move || {
                let queue = QueueShared::new();
                let parked = || Parked {
                    queue: queue.clone(),
                    slot: 7,
                };
                if guest.enter_or_park(&mine, parked) == Admission::Parked {
                    released(&queue);
                }
                inside.with_mut(|_| ());
                guest.leave(&mine);
            });
            while !gate.try_turn() {
                thread::yield_now();
            }
            cell.with_mut(|_| ());
            gate.end_turn();
            thread.join().unwrap();
        });
    }

    /// The number is stored after the value: a reader that loads the new number with Acquire finds the value, whatever the hardware
    /// reorders.
    #[test]
    fn a_published_value_is_no_older_than_its_number() {
        check(|| {
            let published = Arc::new(Published::new(1, 0usize));
            let size = Arc::new(AtomicUsize::new(0));
            let (there, seen) = (published.clone(), size.clone());
            let reader = thread::spawn(move || {
                let mut cached = there.cached();
                let before = seen.load(Ordering::Acquire);
                let version = latest(&mut cached, &there);
                assert!(version >= before, "{version} < {before}");
                let again = latest(&mut cached, &there);
                assert!(again >= version);
            });
            for version in 1..3 {
                published.publish(Arc::new(version));
                size.store(version, Ordering::Release);
            }
            reader.join().unwrap();
        });
    }

    /// A writer that has taken the bias away touches the value when no reader by a slot does, and none comes afterwards.
    #[test]
    fn a_writer_meets_no_reader_by_a_slot() {
        use diorite_block::sync::bias::{Bias, ReaderSlot};
        const NAME: usize = 9;
        check(|| {
            let bias = Arc::new(Bias::default());
            bias.grant();
            let slots = Arc::new([ReaderSlot::new(), ReaderSlot::new()]);
            let cell = Arc::new(loom::cell::UnsafeCell::new(0));
            let readers: Vec<_> = (0..2)
                .map(|n| {
                    let (bias, slots, cell) = (bias.clone(), slots.clone(), cell.clone());
                    thread::spawn(move || {
                        if bias.enter(NAME, &slots[n]) {
                            cell.with(|_| ());
                            slots[n].leave();
                        }
                    })
                })
                .collect();
            bias.revoke(NAME, &slots[..]);
            cell.with_mut(|_| ());
            readers.into_iter().for_each(|t| t.join().unwrap());
        });
    }

    #[test]
    fn a_posted_message_is_taken() {
        check(|| {
            let queue = QueueShared::new();
            let poster = queue.clone();
            let thread = thread::spawn(move || {
                poster.inbox.post([Message::Restart(1)]);
                poster.waker.kick();
            });
            assert!(matches!(queue.receive()[..], [Message::Restart(1)]));
            thread.join().unwrap();
        });
    }
}
