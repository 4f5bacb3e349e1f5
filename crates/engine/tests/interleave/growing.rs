//! Files that grow: the pending map under requests that begin, succeed, fail, are parked, and are published by any thread; and the
//! gate, when a file is truncated meanwhile.
//!
//! Input: threads, each of which is a request, with its worker when it ends, or a truncation. Output: nothing, or the schedule in
//! which a rule was broken. Invariants: rule U9, judged by what the threads noted, independent of the map; a parked request is
//! always released. Limits: a conversion only notes that the bytes are there; it runs in the thread whose request ended last.

use super::shuttled::check;
use super::{Admission, Gate, Parked, QueueShared, Shard, released};
use crate::turn::{NoPlace, Pending, Wanted};
use diorite_block::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use diorite_block::sync::{LockClass, Mutex, thread};
use std::ops::Range;
use std::sync::Arc;

static NOTES: LockClass = LockClass::new("test-notes", 910);

/// Blocks of 4 bytes: requests of 3 share them with their neighbours.
const BITS: u32 = 2;
const LEN: u64 = 3;
const MOST: u64 = 1000;

/// A file that grows.
struct Growing {
    gate: Gate,
    pending: Pending<Arc<Job>>,
    size: AtomicU64,
    notes: Mutex<Notes>,
}

/// What the test knows, independent of the pending map.
#[derive(Default)]
struct Notes {
    /// Bytes of extending requests that have not been published or failed.
    under_way: Vec<Range<u64>>,
    /// Places of appends that have not failed.
    appended: Vec<Range<u64>>,
    /// The blocks of requests that hold their range.
    taken: Vec<Range<u64>>,
}

#[derive(Debug)]
struct Job {
    bytes: Range<u64>,
    entry: Range<u64>,
    /// The shard in which the request is counted in flight.
    shard: Arc<Shard>,
    /// Its queue was told that it waits for earlier requests.
    told: AtomicBool,
}

/// How a request ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Well,
    /// No space, before any data was submitted. Not used once the request has waited for another's block.
    Refused,
    /// The device failed.
    Failed,
}

fn blocks(bytes: &Range<u64>) -> Range<u64> {
    bytes.start >> BITS..bytes.end.div_ceil(1 << BITS)
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Growing {
    fn new() -> Arc<Growing> {
        Arc::new(Growing {
            gate: Gate::new(1),
            pending: Pending::new(1),
            size: AtomicU64::new(0),
            notes: Mutex::new(&NOTES, Notes::default()),
        })
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Parks the request, if there still is a reason to, and waits until it is released.
    fn park(&self, on: impl FnOnce(&dyn Fn() -> Parked) -> bool) {
        let queue = QueueShared::new();
        let parked = || Parked {
            queue: queue.clone(),
            slot: 7,
        };
        if on(&parked) {
            released(&queue);
        }
    }

    /// Waits until the request is counted in flight.
    fn enter(&self) -> Arc<Shard> {
        let shard = self.gate.add_shard();
        if !self.gate.enter(&shard, || false) {
            self.park(|parked| self.gate.enter_or_park(&shard, parked) == Admission::Parked);
        }
        shard
    }

    /// Rule G13: with the exclusive turn nothing is pending, so reserved places are forgotten.
    fn truncate(&self, to: u64) {
        self.gate.wait_turn(|| {
            thread::yield_now();
            false
        });
        assert!(self.pending.is_empty());
        self.notes.lock().appended.retain(|a| a.end <= to);
        self.size.store(to, Ordering::Release);
        self.gate.end_turn();
    }

    fn append(&self, end: End) {
        let shard = self.enter();
        let pos = loop {
            match self.pending.append(|| self.size(), LEN, MOST, 1) {
                Ok(pos) => break pos,
                Err(NoPlace::Unsure) => self.park(|parked| self.pending.park_append(parked)),
                Err(other) => panic!("{other:?}"),
            }
        };
        let bytes = pos..pos + LEN;
        self.notes.lock().under_way.push(bytes.clone());
        self.go_on(shard, bytes, true, end);
    }

    fn write(&self, bytes: Range<u64>, end: End) {
        let shard = self.enter();
        self.go_on(shard, bytes, false, end);
    }

    /// From the place of a request to its end. An append is already counted among the extending requests.
    fn go_on(&self, shard: Arc<Shard>, bytes: Range<u64>, append: bool, mut end: End) {
        let extends = loop {
            let extends = append || bytes.end > self.size();
            let wanted = Wanted {
                units: blocks(&bytes),
                extends: extends.then(|| bytes.clone()),
                counted: append,
                bits: BITS,
            };
            if self.pending.register(&wanted) {
                break extends;
            }
            if append {
                self.pending.make_sure(bytes.start);
                end = if end == End::Refused { End::Well } else { end };
            }
            self.park(|parked| self.pending.park(&wanted, parked));
        };
        self.take(&bytes, extends && !append);
        if append && end != End::Refused {
            self.pending.make_sure(bytes.start);
            let mut notes = self.notes.lock();
            assert!(!notes.appended.iter().any(|a| overlap(a, &bytes)));
            notes.appended.push(bytes.clone());
        }
        thread::yield_now();
        let entry = blocks(&bytes);
        let told = AtomicBool::new(false);
        let job = Arc::new(Job {
            bytes,
            entry,
            shard,
            told,
        });
        if extends {
            self.end(&job, end);
        } else {
            self.let_go(&job);
        }
    }

    fn take(&self, bytes: &Range<u64>, begins: bool) {
        let mut notes = self.notes.lock();
        let blocks = blocks(bytes);
        assert!(!notes.taken.iter().any(|t| overlap(t, &blocks)));
        notes.taken.push(blocks);
        if begins {
            notes.under_way.push(bytes.clone());
        }
    }

    /// What a worker does with an ended request, and with those that can be published after it.
    fn end(&self, job: &Arc<Job>, end: End) {
        let told = |job: &Arc<Job>| job.told.store(true, Ordering::SeqCst);
        let mut free = if end == End::Well {
            let ended = vec![(job.bytes.start, job.clone())];
            self.pending.ended(ended, told)
        } else {
            self.over(job);
            self.notes.lock().appended.retain(|a| *a != job.bytes);
            self.pending.failed(job.bytes.start)
        };
        assert!(
            end != End::Well
                || job.told.load(Ordering::SeqCst) != free.iter().any(|f| Arc::ptr_eq(f, job)),
            "who waits is told, and nobody else"
        );
        let mut done = Vec::new();
        while !free.is_empty() {
            let job = free.remove(0);
            self.publish(&job);
            free.extend(self.pending.published(job.bytes.start));
            done.push(job);
        }
        if end != End::Well {
            self.let_go(job);
        }
        done.iter().for_each(|job| self.let_go(job));
    }

    /// Rule U9: the size does not move past the start of a request that is still under way.
    fn publish(&self, job: &Arc<Job>) {
        thread::yield_now();
        let before = self.notes.lock().under_way.clone();
        let first = before.iter().map(|b| b.start).min();
        assert_eq!(first, Some(job.bytes.start), "{before:?}");
        self.over(job);
        self.size
            .store(self.size().max(job.bytes.end), Ordering::Release);
    }

    fn over(&self, job: &Arc<Job>) {
        self.notes.lock().under_way.retain(|b| *b != job.bytes);
    }

    fn let_go(&self, job: &Arc<Job>) {
        self.notes.lock().taken.retain(|t| *t != job.entry);
        self.pending.release(job.entry.start, |_| ());
        self.gate.leave(&job.shard);
    }
}

/// Runs each in a thread of its own; asserts that nothing is pending in the end. Returns the size, and the places of the appends.
fn race(requests: &[fn(&Growing)]) -> (u64, Vec<Range<u64>>) {
    let file = Growing::new();
    let threads: Vec<_> = requests
        .iter()
        .map(|request| {
            let (file, request) = (file.clone(), *request);
            thread::spawn(move || request(&file))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert!(file.pending.is_empty());
    let mut appended = std::mem::take(&mut file.notes.lock().appended);
    appended.sort_by_key(|a| a.start);
    (file.size(), appended)
}

/// Rule U9, B5: appends that share blocks, one of them refused, leave no gap.
#[test]
fn appends_leave_no_gap() {
    check(|| {
        let (size, appended) = race(&[
            |f| f.append(End::Well),
            |f| f.append(End::Refused),
            |f| f.append(End::Well),
            |f| f.append(End::Well),
        ]);
        let covered: u64 = appended.iter().map(|a| a.end - a.start).sum();
        assert_eq!(size, covered, "{appended:?}");
    });
}

/// The size moves over a failed request once a later one has succeeded.
#[test]
fn a_failure_holds_nobody_up() {
    check(|| {
        let (size, _) = race(&[
            |f| f.append(End::Failed),
            |f| f.append(End::Well),
            |f| f.append(End::Failed),
        ]);
        assert!(size == LEN || size == 2 * LEN || size == 3 * LEN, "{size}");
    });
}

/// Writes past the end, before and over the places that appends get; some are inside the size by the time that they are checked.
#[test]
fn writes_and_appends_wait_for_each_other_in_one_order() {
    check(|| {
        let (size, _) = race(&[
            |f| f.append(End::Well),
            |f| f.write(1..9, End::Well),
            |f| f.append(End::Refused),
            |f| f.write(5..6, End::Failed),
            |f| f.append(End::Well),
        ]);
        assert!((9..=9 + 3 * LEN).contains(&size), "{size}");
    });
}

/// Rules G13, G15, U9: a truncation waits for all requests, also for parked ones, and the next append is placed where the file ends
/// then.
#[test]
fn a_truncation_waits_for_all_and_forgets_what_was_reserved() {
    check(|| {
        let (size, appended) = race(&[
            |f| f.append(End::Well),
            |f| f.truncate(2),
            |f| f.write(1..5, End::Failed),
            |f| f.append(End::Refused),
            |f| {
                f.append(End::Well);
                f.truncate(0);
                f.append(End::Well);
            },
        ]);
        let last = appended.last().map_or(0, |a| a.end);
        assert!(size >= last && size <= 2 + 3 * LEN, "{size}, {appended:?}");
    });
}
