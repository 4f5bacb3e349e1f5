//! Small histories, and what the rule of the register allows after each.

use super::*;
use crate::history::Note;
use crate::stamp::{OF_APPEND, STALE, Stamp, fill};

fn write(sectors: std::ops::Range<u64>, dsync: bool) -> Note {
    Note::Begun(What::Write {
        file: 0,
        sectors,
        dsync,
        in_place: true,
    })
}

fn append(sectors: u64, dsync: bool) -> Note {
    Note::Begun(What::Append {
        file: 0,
        sectors,
        dsync,
    })
}

/// A file of 1,600 bytes with data in all sectors except the third.
fn expect(notes: &[Note], at: usize) -> Expect {
    let mut history = History::new(vec![Start {
        path: "/f".into(),
        size: 1600,
        data: vec![0..2, 3..4],
        usage: Usage::Together,
    }]);
    for (mark, note) in notes.iter().enumerate() {
        history.note(note, mark);
    }
    Expect { history, at }
}

fn may_hold(expect: &Expect, sector: u64, size: u64) -> Vec<Value> {
    let known = Known {
        expect,
        mode: Mode::Ordered,
        shown: 0,
    };
    known.may_hold(&known.changes(0), sector, size)
}

fn findings(expect: &Expect, mode: Mode, bytes: &[u8]) -> Vec<String> {
    let start = &expect.history.files[0];
    let sizes = [(0, start, bytes.len() as u64)];
    let known = Known {
        expect,
        mode,
        shown: expect.shown_by(sizes.into_iter(), mode),
    };
    let mut found = Vec::new();
    known.judge(0, start, bytes, &mut found);
    found
}

/// What the file begins with, and zeros after its end.
fn start(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; 2048];
    fill(&mut bytes[..1024], 0, 0, 0);
    fill(&mut bytes[1536..1600], 0, 3, 0);
    bytes.resize(len, 0);
    bytes
}

#[test]
fn what_is_not_durable_may_be_there() {
    let notes = [write(0..3, false), Note::Acked(1), write(0..3, false)];
    let of = |at| may_hold(&expect(&notes, at), 2, 1600);
    assert_eq!(of(0), [Value::Start]);
    assert_eq!(of(1), [Value::Start, Value::Write(1)]);
    assert_eq!(of(2), [Value::Start, Value::Write(1)]);
    assert_eq!(of(3), [Value::Start, Value::Write(1), Value::Write(2)]);
}

#[test]
fn what_is_durable_replaces_what_was_acknowledged_before_it_began() {
    let notes = [
        write(0..3, false),
        Note::Acked(1),
        write(0..3, false),
        Note::Begun(What::Sync { file: 0 }),
        Note::Acked(2),
        Note::Acked(3),
        write(0..3, true),
        Note::Acked(4),
    ];
    let of = |at| may_hold(&expect(&notes, at), 2, 1600);
    assert_eq!(of(5), [Value::Start, Value::Write(1), Value::Write(2)]);
    // Write 2 was still in flight when the sync began.
    assert_eq!(of(6), [Value::Write(1), Value::Write(2)]);
    assert_eq!(of(7), [Value::Write(1), Value::Write(2), Value::Write(4)]);
    assert_eq!(of(8), [Value::Write(4)]);
}

#[test]
fn writes_in_flight_together_may_end_in_any_order() {
    let notes = [
        write(0..1, true),
        write(0..1, true),
        Note::Acked(2),
        Note::Acked(1),
    ];
    let of = may_hold(&expect(&notes, 4), 0, 1600);
    assert_eq!(of, [Value::Write(1), Value::Write(2)]);
}

#[test]
fn each_kind_of_wrong_sector_is_named() {
    let expect = expect(&[write(0..1, false)], 1);
    assert_eq!(findings(&expect, Mode::Ordered, &start(1600)), [""; 0]);
    let mut wrong = start(1600);
    fill(&mut wrong[..512], 0, 0, 7);
    wrong[512..1024].fill(STALE);
    wrong[1024..1536].copy_from_slice(&start(512));
    wrong[1590] = 1;
    let found = findings(&expect, Mode::Ordered, &wrong);
    let words = ["write 7;", "STALE", "sector 0, write 0", "half a write"];
    assert_eq!(found.len(), 4);
    for (found, word) in found.iter().zip(words) {
        assert!(found.contains(word), "{found}");
    }
}

#[test]
fn a_size_is_where_something_ended_and_covers_what_is_durable() {
    let notes = [write(4..6, true), write(8..9, false), Note::Acked(1)];
    let sizes = |at, size| {
        let found = findings(&expect(&notes, at), Mode::None, &start(size));
        found.into_iter().find(|f| f.contains(" bytes, "))
    };
    assert_eq!(sizes(2, 1600), None);
    assert_eq!(sizes(2, 3072), None);
    assert_eq!(
        sizes(1, 4608),
        Some("/f: 4608 bytes, where nothing ended".into())
    );
    assert_eq!(
        sizes(3, 1600),
        Some("/f: 1600 bytes, but 3072 are durable".into())
    );
    assert_eq!(sizes(3, 4608), None);
}

/// The map was on disk and the inode was not; e2fsck sets the size to the end of the last block.
#[test]
fn without_a_journal_a_size_may_be_the_end_of_a_block() {
    let expect = expect(&[write(4..6, false)], 1);
    for (size, well) in [(4096, true), (3584, false), (5120, false)] {
        assert_eq!(findings(&expect, Mode::None, &start(size)).is_empty(), well);
        assert_ne!(findings(&expect, Mode::Ordered, &start(size)), [""; 0]);
    }
}

/// This holds with a journal. Without one, the size may be on disk before the data.
#[test]
fn a_size_shows_the_appends_that_it_covers() {
    let mut notes = vec![append(1, false), append(2, false)];
    notes.extend([
        Note::Placed(1, 4),
        Note::Acked(1),
        Note::Placed(2, 5),
        Note::Acked(2),
    ]);
    let expect = expect(&notes, 2);
    let mut bytes = start(7 * 512);
    let put = |bytes: &mut [u8], write, nth: u64| {
        let sector = nth | OF_APPEND;
        Stamp {
            file: 0,
            sector,
            write,
        }
        .fill(bytes);
    };
    put(&mut bytes[5 * 512..6 * 512], 2, 0);
    put(&mut bytes[6 * 512..], 2, 1);
    assert_eq!(findings(&expect, Mode::None, &bytes), [""; 0]);
    let found = findings(&expect, Mode::Ordered, &bytes);
    assert!(found[0].contains("sector 4 of 7 holds zeros"), "{found:?}");
    put(&mut bytes[4 * 512..5 * 512], 1, 0);
    assert_eq!(findings(&expect, Mode::Ordered, &bytes), [""; 0]);
}

#[test]
fn what_was_acknowledged_before_something_that_shows_began_is_there() {
    let notes = [write(0..1, false), Note::Acked(1), write(4..5, false)];
    let expect = expect(&notes, 3);
    assert_eq!(findings(&expect, Mode::Ordered, &start(1600)), [""; 0]);
    let found = findings(&expect, Mode::Ordered, &start(2560));
    assert!(found[0].contains("it may hold [Write(1)]"), "{found:?}");
    assert_eq!(findings(&expect, Mode::None, &start(2560)), [""; 0]);
}

#[test]
fn an_append_that_nobody_placed_may_be_anywhere() {
    let expect = expect(&[append(1, false)], 1);
    let mut bytes = start(2560);
    let sector = OF_APPEND;
    Stamp {
        file: 0,
        sector,
        write: 1,
    }
    .fill(&mut bytes[2048..]);
    assert_eq!(findings(&expect, Mode::Ordered, &bytes), [""; 0]);
}
