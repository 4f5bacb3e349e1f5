//! Tests that the harness finds what it must find: disks that ignore flushes, files and metadata that somebody else wrote to.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::stamp::STALE;
use std::collections::HashSet;

fn wish(keep: &std::path::Path) -> Wish {
    Wish {
        states: 24,
        seed: 5,
        mib: 16,
        modes: Mode::ALL.to_vec(),
        sample: 0,
        kernel: false,
        keep: keep.into(),
    }
}

fn round(wish: &Wish, number: usize, change: impl FnOnce(&mut Round)) -> Outcome {
    let mut round = Round::new(wish, number, wish.seed + number as u64).unwrap();
    change(&mut round);
    let unit = round.bed.tear_unit();
    let cuts = plan(&round.log, wish.states, round.seed, unit);
    judge_all(wish, &round, &cuts).unwrap()
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let keep = tempfile::tempdir().unwrap();
    let wish = wish(keep.path());
    for number in 0..wish.modes.len() {
        let outcome = round(&wish, number, |_| {});
        assert_eq!(outcome.states, 24);
        assert_eq!(outcome.found, []);
    }
    assert_eq!(std::fs::read_dir(keep.path()).unwrap().count(), 0);
}

/// Data that was acknowledged as durable is missing; judging the kept state again gives the same finding.
#[test]
fn a_disk_that_ignores_flushes_is_found() {
    let keep = tempfile::tempdir().unwrap();
    let wish = wish(keep.path());
    let outcome = round(&wish, 0, |round| {
        let flush = |e: &Event| match e {
            Event::Flush { id } => Some(*id),
            _ => None,
        };
        let flushes: HashSet<u64> = round.log.iter().filter_map(flush).collect();
        for event in &mut round.log {
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
    // A lost write, a commit block that is on disk before the blocks that it commits, trees that differ: each shows that nothing
    // was flushed.
    let (dir, first) = outcome.found.first().expect("a disk that lies is found");
    let (origin, again) = crate::keep::repeat(dir, Also::default()).unwrap();
    assert!(origin.contains("seed 5, round 0 (ordered"), "{origin}");
    let Verdict::Wrong(again) = again else {
        panic!("{again:?}");
    };
    assert_eq!(&again[0], first);
}

/// Stale bytes in a file, and a change of a metadata block that no write made.
#[test]
fn foreign_bytes_are_found() {
    let keep = tempfile::tempdir().unwrap();
    let wish = wish(keep.path());
    let outcome = round(&wish, 0, |round| {
        let mut stamped = [0; 512];
        crate::stamp::fill(&mut stamped, 4, 9, 0);
        let mut sectors = round.bed.image.chunks_mut(512);
        sectors.find(|s| **s == stamped).unwrap().fill(STALE);
    });
    let (_, first) = outcome.found.first().unwrap();
    assert!(first.contains("STALE"), "{first}");
    let outcome = round(&wish, 1, |round| {
        // The free counts of the first group's descriptor, which is in the block after the superblock's.
        let table = round.bed.block.max(2048) as usize;
        round.bed.image[table + 12] ^= 1;
    });
    assert!(!outcome.found.is_empty());
}
