//! Small histories of one file, and what it may hold after a cut.

use super::*;
use crate::stamp::Stamp;
use crate::states::KeepSize;

/// Six blocks of two sectors, all with data.
fn states(changes: &[Change]) -> States {
    let start = Start {
        path: "/f".into(),
        size: 12 * SECTOR as u64,
        data: std::iter::once(0..12).collect(),
        usage: Usage::Alone,
    };
    let mut states = States::new(&start, true, (2 * SECTOR as u32, 1));
    for (number, change) in (1..).zip(changes) {
        states.apply(number, change);
    }
    states
}

/// Sectors given by position and write; none is zeros.
fn seen(sectors: &[Option<(u64, u32)>]) -> Seen {
    let held = |of: &Option<(u64, u32)>| match *of {
        None => Held::Zeros,
        Some((sector, write)) => Held::Stamp(Stamp {
            file: 0,
            sector,
            write,
        }),
    };
    Seen {
        sectors: Some(sectors.iter().map(held).collect()),
    }
}

fn start() -> Vec<Option<(u64, u32)>> {
    (0..12).map(|sector| Some((sector, 0))).collect()
}

fn fits(changes: &[Change], durable: usize, sectors: &[Option<(u64, u32)>]) -> bool {
    judge(changes, durable, &seen(sectors), false)
}

fn judge(changes: &[Change], durable: usize, seen: &Seen, in_parts: bool) -> bool {
    let states = states(changes);
    let list: Vec<&Change> = changes.iter().collect();
    let changes = Changes {
        list: &list,
        in_parts,
    };
    judge_states(0, &states, &changes, durable, seen).is_ok()
}

/// A write through the journal may be there in part, from the front on, block by block; a write to the device is mapped afterwards,
/// completely or not at all.
#[test]
fn a_write_into_a_hole_may_be_there_in_part() {
    let changes = [Change::Punch(4..8), Change::Write(4..8)];
    let fits = |found: [Option<u32>; 4], in_parts| {
        let mut all = start();
        for (n, write) in (4u64..).zip(found) {
            all[n as usize] = write.map(|w| (n, w));
        }
        judge(&changes, 1, &seen(&all), in_parts)
    };
    for in_parts in [false, true] {
        assert!(fits([None; 4], in_parts));
        assert!(fits([Some(2); 4], in_parts));
        assert_eq!(fits([Some(2), Some(2), None, None], in_parts), in_parts);
        assert!(!fits([None, None, Some(2), Some(2)], in_parts));
        assert!(!fits([Some(2), None, None, None], in_parts));
    }
    // The size grows with the parts.
    let changes = [Change::Truncate(4), Change::Write(4..8)];
    let there = |sectors: &[Option<(u64, u32)>]| judge(&changes, 1, &seen(sectors), true);
    let mut all = start();
    (4..8).for_each(|n| all[n] = Some((n as u64, 2)));
    assert!([4, 6, 8].into_iter().all(|end| there(&all[..end])));
    assert!(!there(&all[..5]));
}

#[test]
fn a_shrunken_file_is_old_or_new() {
    let changes = [Change::Truncate(3)];
    let mut old = start();
    assert!(fits(&changes, 0, &old));
    assert!(!fits(&changes, 1, &old));
    // The rest of the new last block is zeroed first.
    old[3] = None;
    assert!(fits(&changes, 0, &old));
    old[4] = None;
    assert!(!fits(&changes, 0, &old));
    assert!(fits(&changes, 1, &start()[..3]));
    assert!(!fits(&changes, 0, &start()[..4]));
}

#[test]
fn a_punch_may_be_done_in_part() {
    let changes = [Change::Punch(2..8)];
    let mut part = start();
    (part[2], part[3]) = (None, None);
    assert!(fits(&changes, 0, &part));
    assert!(!fits(&changes, 1, &part));
    part[8] = None;
    assert!(!fits(&changes, 0, &part));
}

/// The hole of a collapsed or inserted range may be anywhere after its position while the shift is under way; no data is lost.
#[test]
fn a_shift_may_be_on_its_way() {
    let out = [Change::Collapse(2..4)];
    let mut way = start();
    way.drain(2..4);
    assert!(fits(&out, 1, &way));
    way.splice(6..6, [None, None]);
    assert!(fits(&out, 0, &way));
    assert!(!fits(&out, 1, &way));
    way[0] = None;
    assert!(!fits(&out, 0, &way));
    let put = [Change::Insert(2..4)];
    let mut way = start();
    way.splice(8..8, [None, None]);
    assert!(fits(&put, 0, &way));
    assert!(!fits(&put, 1, &way));
}

/// Data is written before the transaction that follows it.
#[test]
fn what_was_written_before_something_that_shows_is_there() {
    let changes = [Change::Write(0..1), Change::Truncate(11)];
    assert!(fits(&changes, 0, &start()));
    assert!(!fits(&changes, 0, &start()[..11]));
    let mut new = start();
    new[0] = Some((0, 1));
    assert!(fits(&changes, 0, &new));
    assert!(fits(&changes, 0, &new[..11]));
    // A change without a visible effect does not show that what came before it is durable.
    let changes = [Change::Write(0..1), Change::Allocate(0..4, KeepSize::No)];
    assert!(fits(&changes, 0, &start()));
}

#[test]
fn a_name_is_there_or_not() {
    let gone = Seen { sectors: None };
    let at = |durable| {
        let changes = [Change::Unlink, Change::Create];
        judge(&changes, durable, &gone, false)
    };
    assert_eq!([at(0), at(1), at(2)], [true, true, false]);
    assert!(fits(&[Change::Unlink, Change::Create], 1, &[]));
    assert!(!fits(&[Change::Unlink], 1, &start()));
}
