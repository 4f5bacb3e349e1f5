//! Small files, with blocks of two sectors.

use super::*;
use crate::history::Usage;

/// A file of four blocks, with data in the first and in half of the third.
fn states() -> States {
    let start = Start {
        path: "/f".into(),
        size: 8 * SECTOR as u64,
        data: vec![0..2, 4..5],
        usage: Usage::Alone,
    };
    States::new(&start, true, (2 * SECTOR as u32, 1))
}

/// What each sector holds when every change is durable.
fn contents(states: &States, at: usize) -> Vec<Option<u32>> {
    let state = &states.list[at];
    (0..state.sectors)
        .map(|sector| {
            let block = state.blocks.get(place(sector / states.per));
            let Some(Block::Written(cell)) = block else {
                return None;
            };
            let cell = cell + place(sector % states.per);
            match states.may_hold(cell, at, at)[..] {
                [Content::Stamp { write, .. }] => Some(write),
                [Content::Zeros] => None,
                ref more => panic!("{more:?}"),
            }
        })
        .collect()
}

const O: Option<u32> = None;
const START: Option<u32> = Some(0);

fn after(changes: &[Change]) -> Vec<Option<u32>> {
    let mut states = states();
    for (number, change) in (1..).zip(changes) {
        states.apply(number, change);
    }
    contents(&states, changes.len())
}

#[test]
fn every_change_does_what_it_says() {
    assert_eq!(after(&[]), [START, START, O, O, START, O, O, O]);
    let one = Some(1);
    assert_eq!(
        after(&[Change::Write(3..5)]),
        [START, START, O, one, one, O, O, O]
    );
    assert_eq!(
        after(&[Change::Write(9..10)]),
        [START, START, O, O, START, O, O, O, O, one]
    );
    assert_eq!(after(&[Change::Truncate(1)]), [START]);
    assert_eq!(
        after(&[Change::Truncate(1), Change::Truncate(3)]),
        [START, O, O]
    );
    assert_eq!(after(&[Change::Punch(1..5)]), [START, O, O, O, O, O, O, O]);
    assert_eq!(
        after(&[Change::Zero(0..1, KeepSize::Yes)]),
        [O, START, O, O, START, O, O, O]
    );
    assert_eq!(after(&[Change::Zero(0..9, KeepSize::No)]), [O; 9]);
    assert_eq!(
        after(&[Change::Collapse(2..4)]),
        [START, START, START, O, O, O]
    );
    assert_eq!(
        after(&[Change::Insert(0..2), Change::Truncate(5)]),
        [O, O, START, START, O]
    );
    assert_eq!(after(&[Change::Unlink]), []);
    assert_eq!(after(&[Change::Unlink, Change::Create]), []);
}

/// A block that became unwritten keeps its place on the device. So a later write to it may be visible although the zeroing before
/// it is not.
#[test]
fn what_is_written_to_a_zeroed_block_may_show_before_the_zeroing() {
    let mut states = states();
    states.apply(1, &Change::Zero(0..2, KeepSize::Yes));
    states.apply(2, &Change::Write(0..1));
    let Block::Written(cell) = states.list[0].blocks[0] else {
        panic!("{:?}", states.list[0]);
    };
    let stamp = |write| Content::Stamp { sector: 0, write };
    assert_eq!(states.may_hold(cell, 0, 2), [stamp(0), stamp(2)]);
    assert_eq!(states.may_hold(cell, 0, 1), [stamp(0)]);
    assert_eq!(states.may_hold(cell, 2, 2), [stamp(2)]);
}

/// Two blocks of one cluster: a block that is punched and written again gets the same place.
#[test]
fn a_block_of_a_cluster_gets_its_place_back() {
    let start = Start {
        path: "/f".into(),
        size: 4 * SECTOR as u64,
        data: std::iter::once(0..4).collect(),
        usage: Usage::Alone,
    };
    let units = (2 * SECTOR as u32, 2);
    let mut states = States::new(&start, true, units);
    states.apply(1, &Change::Punch(2..4));
    states.apply(2, &Change::Write(2..3));
    let (first, last) = (&states.list[0], &states.list[2]);
    assert_eq!(first.blocks, last.blocks);
    states.apply(3, &Change::Punch(0..4));
    states.apply(4, &Change::Write(2..3));
    assert_ne!(states.list[4].blocks[1], states.list[0].blocks[1]);
}
