//! Tests that the harness finds what it must find: a disk that ignores flushes, and a volume of another size.
#![allow(clippy::unwrap_used)]

use super::*;
use diorite_block::record::Event;
use std::collections::HashSet;

fn judged(number: usize, change: impl FnOnce(&mut Ran)) -> Outcome {
    let keep = tempfile::tempdir().unwrap();
    let wish = Wish {
        states: 16,
        seed: 5,
        sample: 0,
        kernel: false,
        keep: keep.path().into(),
    };
    let mut ran = workload::run(number, 5).unwrap();
    change(&mut ran);
    let cuts = plan(&ran.log, wish.states, 5, SECTOR);
    let outcome = judge_all(&wish, (&ran, number), &cuts).unwrap();
    if let Some((dir, first)) = outcome.found.first() {
        let (_, again) = crate::sizes::keep::repeat(dir, false).unwrap();
        assert_eq!(&again[0], first);
    }
    outcome
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let outcome = judged(0, |_| ());
    assert_eq!((outcome.states, outcome.found), (16, Vec::new()));
}

#[test]
fn a_disk_that_ignores_flushes_is_found() {
    let outcome = judged(0, |ran| {
        let flush = |e: &Event| match e {
            Event::Flush { id } => Some(*id),
            _ => None,
        };
        let flushes: HashSet<u64> = ran.log.iter().filter_map(flush).collect();
        for event in &mut ran.log {
            match event {
                Event::Write { fua, .. } => *fua = false,
                // A mark replaces the event, because the history counts positions in the log.
                Event::Flush { id } | Event::Ended { id } if flushes.contains(id) => {
                    *event = Event::Mark(*id);
                }
                _ => {}
            }
        }
    });
    assert!(!outcome.found.is_empty());
}

#[test]
fn a_size_that_nobody_asked_for_is_found() {
    let outcome = judged(1, |ran| {
        for size in &mut ran.told.sizes {
            size.bytes = (1 << 20, 1 << 20);
        }
    });
    let (_, first) = outcome.found.first().unwrap();
    assert!(first.contains("bytes, not one of"), "{first}");
}
