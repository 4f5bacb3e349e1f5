//! Small histories of edits, and what the file may hold after each.

use super::*;
use crate::edits::Way;
use crate::history::{History, Note, Usage};
use crate::stamp::fill;

fn write(bytes: std::ops::Range<u64>, way: Way, durable: bool) -> Edit {
    Edit::Write {
        bytes,
        way,
        durable,
    }
}

/// A file of two sectors with data, and edits that were all acknowledged.
fn judged(edits: &[Edit], synced: bool, bytes: &[u8]) -> Result<(), String> {
    let mut history = History::new(vec![Start {
        path: "/f".into(),
        size: 1024,
        data: std::iter::once(0..2).collect(),
        usage: Usage::Cached,
    }]);
    let mut mark = 0;
    let mut note = |note| {
        history.note(&note, mark);
        mark += 1;
    };
    for (number, edit) in (1..).zip(edits) {
        let edit = edit.clone();
        note(Note::Begun(What::Edit { file: 0, edit }));
        note(Note::Acked(number));
    }
    if synced {
        note(Note::Begun(What::Sync { file: 0 }));
        note(Note::Acked(edits.len() as u32 + 1));
    }
    let expect = Expect { history, at: mark };
    let start = &expect.history.files[0];
    let generations = expect.generations((0, start), (Mode::Ordered, false));
    let mut results = generations.iter().map(|g| g.judge(bytes));
    let last = results.next_back().expect("there is at least one");
    match results.any(|r| r.is_ok()) {
        true => Ok(()),
        false => last.map_err(|(_, why)| why),
    }
}

/// Stamps of these writes, one sector each; zeros for none.
fn sectors(writes: &[Option<u32>]) -> Vec<u8> {
    let mut bytes = vec![0; writes.len() * SECTOR];
    for (sector, write) in (0..).zip(writes) {
        let part = &mut bytes[sector as usize * SECTOR..][..SECTOR];
        if let Some(write) = write {
            fill(part, 0, sector, *write);
        }
    }
    bytes
}

#[test]
fn what_is_in_the_page_cache_only_may_be_lost_until_a_sync() {
    let edits = [write(512..2048, Way::Cached, false)];
    let (old, new) = ([Some(0), Some(0)], [Some(0), Some(1), Some(1), Some(1)]);
    for held in [&old[..], &new[..]] {
        assert_eq!(judged(&edits, false, &sectors(held)), Ok(()));
    }
    assert_eq!(judged(&edits, true, &sectors(&new)), Ok(()));
    assert!(judged(&edits, true, &sectors(&old)).is_err());
    let partly = sectors(&[Some(0), Some(0), Some(1), Some(1)]);
    assert!(judged(&edits, true, &partly).is_err());
}

/// Issue 14: a file's size never covers bytes that were not written.
#[test]
fn the_size_covers_no_bytes_that_were_not_written() {
    let appended = [write(1024..2048, Way::Cached, false)];
    let zeros = sectors(&[Some(0), Some(0), None, None]);
    assert!(judged(&appended, false, &zeros).is_err());
    let gap = [write(1536..2048, Way::Cached, false)];
    assert!(judged(&gap, false, &zeros).is_err());
    let gap_and_data = sectors(&[Some(0), Some(0), None, Some(1)]);
    assert_eq!(judged(&gap, false, &gap_and_data), Ok(()));
    let mut stale = gap_and_data;
    stale[1024..1536].fill(crate::stamp::STALE);
    assert!(judged(&gap, false, &stale).is_err());
    // A direct write behind dirty pages.
    let mixed = [appended[0].clone(), write(2048..2560, Way::Direct, true)];
    let passed = sectors(&[Some(0), Some(0), None, None, Some(2)]);
    assert!(judged(&mixed, false, &passed).is_err());
    let whole = sectors(&[Some(0), Some(0), Some(1), Some(1), Some(2)]);
    assert_eq!(judged(&mixed, false, &whole), Ok(()));
    assert!(judged(&mixed, false, &whole[..2048]).is_err());
}

#[test]
fn a_durable_write_stays_until_it_is_replaced() {
    let edits = [
        write(0..512, Way::Cached, true),
        write(0..1024, Way::Direct, false),
    ];
    assert!(judged(&edits, false, &sectors(&[Some(0), Some(0)])).is_err());
    assert_eq!(judged(&edits, false, &sectors(&[Some(1), Some(2)])), Ok(()));
    assert_eq!(judged(&edits, false, &sectors(&[Some(2), Some(0)])), Ok(()));
}

#[test]
fn a_replaced_file_is_the_old_or_the_new_one() {
    let replace = |synced| [Edit::Replace { size: 1100, synced }];
    let whole = sectors(&[Some(1), Some(1), Some(1)])[..1100].to_vec();
    for synced in [true, false] {
        let old = sectors(&[Some(0), Some(0)]);
        assert_eq!(judged(&replace(synced), false, &old), Ok(()));
        assert_eq!(judged(&replace(synced), false, &whole), Ok(()));
        let parts = sectors(&[Some(0), Some(1)]);
        assert!(judged(&replace(synced), false, &parts).is_err());
    }
    assert!(judged(&replace(true), false, &[]).is_err());
    assert_eq!(judged(&replace(false), false, &[]), Ok(()));
    assert_eq!(judged(&replace(false), false, &whole[..1024]), Ok(()));
    let zeros = sectors(&[Some(1), None]);
    assert!(judged(&replace(false), false, &zeros).is_err());
}

#[test]
fn a_size_may_be_one_that_an_edit_left() {
    let edits = [write(1024..4096, Way::Cached, true), Edit::Truncate(1536)];
    let all = [
        Some(0),
        Some(0),
        Some(1),
        Some(1),
        Some(1),
        Some(1),
        Some(1),
        Some(1),
    ];
    for sizes in [3, 8] {
        assert_eq!(judged(&edits, false, &sectors(&all[..sizes])), Ok(()));
    }
    assert!(judged(&edits, false, &sectors(&all[..2])).is_err());
    assert!(judged(&edits, false, &sectors(&all[..5])).is_err());
    assert!(judged(&edits, true, &sectors(&all)).is_err());
}
