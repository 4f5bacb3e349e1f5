//! Appends: in which order they move the size, and what failed and refused ones leave (rules U9, U10, C8, C10, G1, G7, G12).
//!
//! Input: volumes whose free space is poison. Output: none. Invariants: a reader that sees a size reads the data below it; counts are
//! asserted, times never; e2fsck judges the end. Limits: one file.

use crate::common::fixture::{LIMIT, NOWAIT, filled, run_all};
use crate::common::recipe::{RECIPES, Recipe};
use crate::common::scaled;
use crate::common::watch::Watchdog;
use crate::rules::bed::{Bed, all, bytes, collect, drain_until, quiet, submit_until};
use diorite::{Error, MappingState, Misaligned, OpenOptions, Request, Wait};
use diorite_block::Buf;

/// Rules U9, C10. Later appends end first: they are held and counted, not acknowledged, and the size does not move; then it moves
/// over all.
#[test]
fn the_size_waits_for_who_comes_first() {
    let _watchdog = Watchdog::new(LIMIT, "held");
    for recipe in &RECIPES[..3] {
        let bed = Bed::new(recipe, &OpenOptions::writable());
        let (file, queue, id) = bed.open("/empty");
        bed.valve.hold(&[1]);
        let append = |n: u8| Request::append(id, filled(n, 8192), n.into());
        let requests = (1..=4).map(append).collect();
        submit_until(&queue, requests, |c| c.held_for_size == 3);
        assert_eq!((file.size(), queue.in_use()), (0, 4));
        assert_eq!(bed.volume.usage().waiting_requests, 3);
        assert_eq!(file.read_at(0, Buf::zeroed(512)).1.unwrap(), 0);
        bed.valve.hold(&[]);
        for done in collect(&queue, 4) {
            assert_eq!(done.result.unwrap(), 8192);
            assert!(
                file.size() >= done.pos + 8192,
                "acknowledged before the size covers it"
            );
            assert!(all(&bytes(&file, done.pos, 8192), done.token as u8));
        }
        assert_eq!(file.size(), 4 * 8192);
        assert_eq!(bed.volume.usage().waiting_requests, 0);
        drop((file, queue));
        bed.judge();
    }
}

/// Rules U9, U10, G7. If an append in the middle fails, a later success moves the size over it and the gap reads as zeros. If the
/// last one fails, the size does not move, no block stays allocated, and the next append takes its place.
#[test]
fn a_failed_append_leaves_zeros_or_nothing() {
    let _watchdog = Watchdog::new(LIMIT, "failed");
    for recipe in &RECIPES[..3] {
        let bed = Bed::new(recipe, &OpenOptions::writable());
        let (file, queue, id) = bed.open("/empty");
        bed.valve.fail(&[2, 4]);
        let append = |n: u8| Request::append(id, filled(n, 8192), n.into());
        let done = run_all(&queue, (1..=4).map(append).collect());
        for done in &done {
            assert_eq!(done.result.is_err(), done.token % 2 == 0, "{done:?}");
        }
        assert_eq!(file.size(), 3 * 8192);
        for (n, byte) in [(0, 1), (1, 0), (2, 3)] {
            assert!(
                all(&bytes(&file, n * 8192, 8192), byte),
                "{}: {n}",
                recipe.name
            );
        }
        let past = file.mappings(3 * 8192, 1 << 20).unwrap();
        assert!(
            past.iter().all(|m| m.state == MappingState::Hole),
            "{past:?}"
        );
        let done = run_all(&queue, vec![append(5)]);
        assert_eq!(
            (done[0].pos, done[0].result.clone().unwrap()),
            (3 * 8192, 8192)
        );
        drop((file, queue));
        bed.judge();
    }
}

/// An append to a file that does not end at a sector boundary has no valid place: refused with the amount, and nothing has happened
/// (rule G1).
#[test]
fn an_append_behind_an_odd_end_is_refused() {
    let bed = Bed::new(&RECIPES[0], &OpenOptions::writable());
    let (file, queue, id) = bed.open("/odd");
    for flags in [diorite::RequestFlags::default(), NOWAIT] {
        let append = Request::append(id, filled(1, 512), 0).with_flags(flags);
        let done = run_all(&queue, vec![append]);
        // The size is 195 sectors and this many bytes.
        let by_how_much = matches!(
            done[0].result,
            Err(Error::Unaligned {
                what: Misaligned::Offset,
                by: 161,
                need: 512,
            })
        );
        assert!(by_how_much, "{done:?}");
        assert_eq!(file.size(), 100_001);
    }
    drop((file, queue));
    bed.judge();
}

/// Rule G12. A NOWAIT append that would wait for the block of another append is refused, and no place is reserved for it: the next
/// one goes where it would have gone.
#[test]
fn an_append_that_does_not_wait_leaves_no_gap() {
    let _watchdog = Watchdog::new(LIMIT, "refused at a block");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/empty");
    bed.valve.hold(&[1]);
    queue.push(Request::append(id, filled(1, 512), 1)).unwrap();
    drain_until(&queue, || bed.valve.holding() == 1);
    let other = bed.volume.queue(4).unwrap();
    let there = other.attach(&file).unwrap();
    let nowait = Request::append(there, filled(2, 512), 2).with_flags(NOWAIT);
    let refused = run_all(&other, vec![nowait]);
    assert!(
        matches!(refused[0].result, Err(Error::WouldBlock(Wait::Range))),
        "{refused:?}"
    );
    queue.push(Request::append(id, filled(3, 512), 3)).unwrap();
    bed.valve.hold(&[]);
    let done = collect(&queue, 2);
    assert!(done.iter().all(|d| d.result.is_ok()), "{done:?}");
    assert_eq!((done[1].pos, file.size()), (512, 1024));
    let content = bytes(&file, 0, 1024);
    assert!(all(&content[..512], 1) && all(&content[512..], 3), "a gap");
    drop((file, queue, other));
    bed.judge();
}

/// Rule U9. An append that waits for the block of another keeps its place, and does not delay a later one that has a block of its
/// own.
#[test]
fn who_waits_for_a_block_keeps_nobody_behind_up() {
    let _watchdog = Watchdog::new(LIMIT, "behind who waits");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/empty");
    bed.valve.hold(&[1, 3]);
    queue.push(Request::append(id, filled(1, 512), 1)).unwrap();
    drain_until(&queue, || bed.valve.holding() == 1);
    let parked = || queue.counters().parked_for_range;
    let before = parked();
    // The rest of the block, and the next block.
    queue.push(Request::append(id, filled(2, 3584), 2)).unwrap();
    queue.push(Request::append(id, filled(3, 4096), 3)).unwrap();
    drain_until(&queue, || bed.valve.holding() == 2 || parked() > before + 1);
    assert_eq!((bed.valve.holding(), parked()), (2, before + 1));
    bed.valve.hold(&[]);
    let done = collect(&queue, 3);
    let places = done.iter().map(|d| d.pos);
    assert!(places.eq([0u64, 512, 4096]), "{done:?}");
    assert_eq!(file.size(), 8192);
    for (pos, len, byte) in [(0, 512, 1), (512, 3584, 2), (4096, 4096, 3)] {
        assert!(all(&bytes(&file, pos, len), byte), "at {pos}");
    }
    drop((file, queue));
    bed.judge();
}

/// Rule C8. The map is published before the size: a reader that sees a size reads the data that was written below it.
#[test]
fn what_the_size_covers_is_there() {
    let _watchdog = Watchdog::new(LIMIT, "covered");
    let bed = Bed::new(&RECIPES[0], &OpenOptions::writable());
    let (file, queue, id) = bed.open("/empty");
    let (count, len) = (scaled("DIORITE_ROUNDS", 40) * 8, 8192);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 0;
            while seen < count * len {
                let size = file.size();
                let mut bytes = vec![0xEE; (size - seen) as usize];
                assert_eq!(file.read_bytes(seen, &mut bytes).unwrap(), bytes.len());
                let wrong = bytes.iter().position(|b| *b != 0xAB);
                assert_eq!(wrong, None, "between {seen} and {size}");
                seen = size;
            }
        });
        for _ in 0..count / 8 {
            let appends = (0..8).map(|n| Request::append(id, filled(0xAB, len as usize), n));
            let done = run_all(&queue, appends.collect());
            assert!(done.iter().all(|d| d.result.is_ok()), "{done:?}");
        }
    });
    drop((file, queue));
    bed.judge();
}

/// Rule C8. The same for writes that end together and are mapped as one change: all their data is visible before the size of the
/// last one is.
#[test]
fn the_size_comes_after_all_maps_of_its_change() {
    const COUNT: u64 = 32;
    let _watchdog = Watchdog::new(LIMIT, "after all maps");
    // With a log as large as this, one handle holds the whole change.
    let recipe = Recipe {
        args: &["-t", "ext4", "-b", "4096", "-J", "size=16"],
        size: "40M",
        ..RECIPES[0]
    };
    let bed = Bed::new(&recipe, &quiet());
    let (file, queue, id) = bed.open("/empty");
    let rounds = scaled("DIORITE_ROUNDS", 40);
    let last = (rounds * COUNT - 1) * 8192 + 4096;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 0;
            while seen < last {
                let size = file.size();
                if size != seen {
                    assert!(all(&bytes(&file, size - 4096, 4096), 0xAB), "below {size}");
                }
                seen = size;
            }
        });
        for first in (0..rounds).map(|round| round * COUNT) {
            // Blocks that are not adjacent, so that each is mapped by itself.
            let write = |n| Request::write(id, n * 8192, filled(0xAB, 4096), n);
            bed.valve.hold(&[0xAB]);
            queue.submit(&mut (first..first + COUNT).map(write).collect());
            drain_until(&queue, || bed.valve.holding() as u64 == COUNT);
            bed.valve.hold(&[]);
            let done = collect(&queue, COUNT as usize);
            assert!(done.iter().all(|d| d.result.is_ok()), "{done:?}");
        }
    });
    assert_eq!(file.size(), last);
    drop((file, queue));
    bed.judge();
}
