use super::*;

fn write(sectors: Range<u64>, promise: Promise, asked: usize, acked: usize) -> Write {
    Write {
        file: 0,
        sectors,
        append: false,
        zeros: false,
        promise,
        asked,
        time: (0, u32::try_from(asked).expect("small")),
        acked: Some(acked),
    }
}

fn of(writes: Vec<Write>, syncs: Vec<Sync>) -> History {
    let start = Start {
        path: None,
        size: 2 * SECTOR as u64,
        data: std::iter::once(0..1).collect(),
    };
    History {
        files: vec![start],
        writes,
        syncs,
    }
}

/// The numbers of the writes that a sector may hold; 0 for what it began with.
fn may(history: &History, sector: usize, cut: usize) -> Vec<u32> {
    let number = |value: &Value| match value {
        Value::Zeros => 0,
        Value::Stamp(stamp) => stamp.write,
    };
    let values = history.may(0, cut).sectors[sector].clone();
    values.iter().map(number).collect()
}

#[test]
fn a_promised_write_replaces_what_was_acknowledged_before_it_was_asked_for() {
    let history = of(
        vec![
            write(0..1, Promise::Nothing, 1, 2),
            // In flight together with the promised write: either may end up on the disk.
            write(0..1, Promise::Nothing, 3, 6),
            write(0..1, Promise::Data, 4, 8),
            write(0..1, Promise::Nothing, 9, 10),
        ],
        Vec::new(),
    );
    assert_eq!(may(&history, 0, 8), [0, 1, 2, 3]);
    assert_eq!(may(&history, 0, 9), [2, 3]);
    assert_eq!(may(&history, 0, 20), [2, 3, 4]);
}

/// Rule D1: a sync covers what was acknowledged before it was requested, once it has returned.
#[test]
fn a_sync_promises_what_was_acknowledged_before_it_was_asked_for() {
    let sync = |of, promise, asked| Sync {
        of,
        promise,
        asked,
        acked: Some(asked + 2),
    };
    for (of_what, promised) in [
        (Of::File(0), true),
        (Of::Volume, true),
        (Of::File(1), false),
        (Of::Dir(0), false),
    ] {
        let writes = || vec![write(0..1, Promise::Nothing, 1, 4)];
        let history = of(writes(), vec![sync(of_what, Promise::Data, 5)]);
        let expected: &[u32] = if promised { &[1] } else { &[0, 1] };
        assert_eq!(may(&history, 0, 8), expected, "{of_what:?}");
        assert_eq!(may(&history, 0, 7), [0, 1], "it has not returned");
        let early = of(writes(), vec![sync(of_what, Promise::Data, 3)]);
        assert_eq!(may(&early, 0, 20), [0, 1], "it was asked for before");
    }
}

/// Rule C7: fsync and O_SYNC promise the times, fdatasync and O_DSYNC do not.
#[test]
fn times_are_promised_by_some() {
    for (promise, least) in [(Promise::Data, 0), (Promise::Times, 3)] {
        let history = of(vec![write(0..1, promise, 3, 4)], Vec::new());
        assert_eq!(history.may(0, 5).time.0, (0, least));
    }
}

#[test]
fn the_size_is_between_what_was_promised_and_what_was_asked_for() {
    let history = of(
        vec![
            write(2..4, Promise::Data, 1, 2),
            write(4..6, Promise::Nothing, 3, 4),
        ],
        Vec::new(),
    );
    let sizes = |cut| {
        let may = history.may(0, cut);
        (may.least / SECTOR as u64, may.most / SECTOR as u64)
    };
    assert_eq!(sizes(1), (2, 2));
    assert_eq!(sizes(2), (2, 4));
    assert_eq!(sizes(3), (4, 4));
    assert_eq!(sizes(4), (4, 6));
}

/// Issue 14: the size never covers bytes that were not written.
#[test]
fn what_was_only_appended_to_has_no_zeros() {
    let append = |sectors, asked| Write {
        append: true,
        ..write(sectors, Promise::Nothing, asked, asked + 1)
    };
    let appended = of(vec![append(2..3, 1), append(3..5, 3)], Vec::new());
    let of_sectors = |history: &History| [2, 3, 4].map(|sector| may(history, sector, 9));
    assert_eq!(of_sectors(&appended), [vec![1], vec![2], vec![2]]);
    // Another write may move the size.
    let mut mixed = appended;
    mixed.writes.push(write(4..5, Promise::Nothing, 5, 6));
    assert_eq!(of_sectors(&mixed), [vec![0, 1], vec![0, 2], vec![0, 2, 3]]);
}
