use super::*;
use std::sync::Arc;

const DISK: usize = 8 * SECTOR;

fn write(id: u64, disk: usize, sector: u64, value: u8, durable: bool, flushes: bool) -> Event {
    Event::Write {
        id,
        disk,
        pos: sector * SECTOR as u64,
        data: Data::Bytes(Arc::from(vec![value; SECTOR])),
        durable,
        flushes,
    }
}

/// The first byte of a sector after a cut that leaves `left`.
fn byte(log: &[Event], at: usize, left: Left, (disk, sector): (usize, usize)) -> u8 {
    let mut walk = Walk::new(vec![vec![0; DISK]; 2], log);
    let left = [left; 2];
    walk.with_images(Cut { at, left }, |images| images[disk][sector * SECTOR])
}

/// Rule D1: a flush covers the writes to its own disk that ended before it began, and nothing else.
#[test]
fn a_flush_covers_what_had_ended_before_it_began() {
    let flush = |id, disk| Event::Flush { id, disk };
    let ended = |id| Event::Ended { id };
    let log = [
        write(0, 0, 0, 1, false, false),
        write(1, 0, 1, 1, false, false),
        write(2, 1, 0, 1, false, false),
        ended(0),
        ended(2),
        flush(3, 0),
        ended(1),
        ended(3),
    ];
    let lost = |place| byte(&log, log.len(), Left::Nothing, place) == 0;
    assert!(!lost((0, 0)), "it had ended");
    assert!(lost((0, 1)), "it ended after the flush began");
    assert!(lost((1, 0)), "it is on another disk");
    assert_eq!(
        byte(&log, log.len() - 1, Left::Nothing, (0, 0)),
        0,
        "the flush has not ended"
    );
    assert_eq!(byte(&log, log.len(), Left::Ended, (0, 1)), 1);
}

/// A write with FUA is there once it has ended. If the disk flushes after such a write, everything that ended before its request is
/// there, too.
#[test]
fn a_durable_write_is_there_when_it_has_ended() {
    for flushes in [false, true] {
        let log = [
            write(0, 0, 0, 1, false, false),
            Event::Ended { id: 0 },
            write(1, 0, 1, 1, true, flushes),
            Event::Ended { id: 1 },
        ];
        assert_eq!(byte(&log, 3, Left::Nothing, (0, 1)), 0);
        assert_eq!(byte(&log, 4, Left::Nothing, (0, 1)), 1);
        assert_eq!(byte(&log, 4, Left::Nothing, (0, 0)), u8::from(flushes));
        assert_eq!(byte(&log, 3, Left::All, (0, 1)), 1);
        assert_eq!(byte(&log, 3, Left::Ended, (0, 1)), 0);
    }
}

/// After a durable write, its sector never holds what was there before it.
#[test]
fn nothing_older_than_a_durable_write_comes_back() {
    let log = [
        write(0, 0, 0, 1, false, false),
        Event::Ended { id: 0 },
        write(1, 0, 0, 2, true, false),
        Event::Ended { id: 1 },
    ];
    for seed in 0..64 {
        assert_eq!(byte(&log, 4, Left::Some(seed), (0, 0)), 2);
        assert!(byte(&log, 3, Left::Some(seed), (0, 0)) <= 2);
    }
}

/// The images are unchanged after each cut.
#[test]
fn a_walk_leaves_no_trace_of_a_cut() {
    let log = [write(0, 0, 0, 1, false, false), Event::Ended { id: 0 }];
    let mut walk = Walk::new(vec![vec![0; DISK]], &log);
    let cut = |left| Cut {
        at: 2,
        left: [left; 2],
    };
    let first = |images: &[Vec<u8>]| images[0][0];
    assert_eq!(walk.with_images(cut(Left::All), first), 1);
    assert_eq!(walk.with_images(cut(Left::Nothing), first), 0);
}
