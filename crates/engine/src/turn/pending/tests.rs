use crate::turn::pending::*;
use std::cell::RefCell;

/// Ends a request; nobody has to be told that it waits.
fn ended(pending: &Pending<u32>, pos: u64, job: Option<u32>) -> Vec<u32> {
    match job {
        Some(job) => pending.ended(vec![(pos, job)], |_| ()),
        None => pending.failed(pos),
    }
}

/// An append whose place is sure at once.
fn sure(pending: &Pending<u32>, size: u64, len: u64, most: u64) -> Result<u64, NoPlace> {
    let at = pending.append(|| size, len, most, 1)?;
    pending.make_sure(at);
    Ok(at)
}

#[test]
fn a_range_is_one_request_s_at_a_time() {
    let pending = Pending::<u32>::new(1);
    let register = |blocks| {
        pending.register(&Wanted {
            units: blocks,
            extends: None,
            counted: false,
            bits: 12,
        })
    };
    assert!(register(4..6));
    for taken in [0..5, 4..6, 5..9, 3..8] {
        assert!(!register(taken));
    }
    assert!(register(6..7) && register(0..4));
    pending.release(4, |_| ());
    assert!(register(5..6));
}

/// A part of what was claimed is mapped: from the first block behind that on it is still the entry's, of a run that it ends in the rest.
#[test]
fn claims_are_forgotten_block_by_block() {
    let pending = Pending::<u32>::new(1);
    assert!(pending.is_empty());
    assert!(pending.register(&Wanted {
        units: 4..64,
        extends: None,
        counted: false,
        bits: 12,
    }));
    assert_eq!((pending.is_empty(), pending.count()), (false, 1));
    let claim = |file_block: u32, start: u64, len: u32| Claimed {
        file_block,
        run: Run {
            start: FsBlock::new(start),
            len,
        },
    };
    for (file_block, start) in [(4, 100), (20, 300), (40, 500)] {
        pending.add_claim(4, claim(file_block, start, 10));
    }
    let left = || {
        let claims = pending.claims(4);
        let left = claims.iter();
        left.map(|c| (c.file_block, c.run.start.get(), c.run.len))
            .collect::<Vec<_>>()
    };
    let (second, third) = ((20, 300, 10), (40, 500, 10));
    for (before, want) in [
        (4, vec![(4, 100, 10), second, third]),
        (7, vec![(7, 103, 7), second, third]),
        (14, vec![second, third]),
        (20, vec![second, third]),
        (29, vec![(29, 309, 1), third]),
        (30, vec![third]),
        (50, vec![]),
    ] {
        pending.forget_claims_before(4, before);
        assert_eq!(left(), want, "before {before}");
    }
    pending.release(4, |claims| assert!(claims.is_empty()));
    assert_eq!((pending.is_empty(), pending.count()), (true, 0));
}

/// What counts is what somebody has, in blocks or in the order of the size; the size moves while one of these is being published.
#[test]
fn places_in_the_order_of_the_size_count() {
    let pending = Pending::<u32>::new(1);
    assert_eq!(sure(&pending, 0, 10, 100), Ok(0));
    assert_eq!(
        (
            pending.count(),
            pending.is_empty(),
            pending.moves_besides(&[])
        ),
        (1, false, false)
    );
    assert_eq!(ended(&pending, 0, Some(1)), [1]);
    assert!(pending.moves_besides(&[]));
    assert!(pending.published(0).is_empty());
    assert_eq!(
        (
            pending.count(),
            pending.is_empty(),
            pending.moves_besides(&[])
        ),
        (0, true, false)
    );
}

/// An append that shares a block with the one before it does not take that block first: it would then wait for the size to move over
/// that one, which waits for the block.
#[test]
fn who_comes_first_in_the_file_gets_a_shared_block_first() {
    let pending = Pending::<u32>::new(1);
    let wanted = |pos: u64, end: u64| Wanted {
        units: pos >> 12..end.div_ceil(4096),
        extends: Some(pos..end),
        counted: true,
        bits: 12,
    };
    assert_eq!(sure(&pending, 0, 1000, 9999), Ok(0));
    assert_eq!(sure(&pending, 0, 4000, 9999), Ok(1000));
    assert!(!pending.register(&wanted(1000, 5000)));
    assert!(pending.register(&wanted(0, 1000)));
    assert_eq!(ended(&pending, 0, Some(1)), [1]);
    assert!(pending.published(0).is_empty());
    pending.release(0, |_| ());
    assert!(pending.register(&wanted(1000, 5000)));
}

/// Rule U9.
#[test]
fn the_size_moves_in_offset_order_over_what_has_ended() {
    let pending = Pending::<u32>::new(1);
    assert_eq!(sure(&pending, 100, 10, 1000), Ok(100));
    assert_eq!(sure(&pending, 100, 10, 1000), Ok(110));
    assert_eq!(sure(&pending, 100, 10, 1000), Ok(120));
    assert_eq!(sure(&pending, 100, 900, 1000), Err(NoPlace::TooBig));
    assert!(ended(&pending, 120, Some(3)).is_empty());
    assert!(ended(&pending, 110, None).is_empty());
    assert_eq!(ended(&pending, 100, Some(1)), [1, 3]);
    assert!(pending.published(100).is_empty() && pending.published(120).is_empty());
    assert!(pending.is_empty());
    assert_eq!(sure(&pending, 130, 10, 1000), Ok(130));
    assert_eq!(ended(&pending, 130, Some(4)), [4]);
}

/// Rule U9: an append that is refused leaves no gap behind it.
#[test]
fn nobody_gets_a_place_behind_who_may_be_refused() {
    let pending = Pending::<u32>::new(1);
    assert_eq!(pending.append(|| 7, 10, 1000, 2), Err(NoPlace::Inside(7)));
    assert_eq!(sure(&pending, 100, 10, 1000), Ok(100));
    assert_eq!(pending.append(|| 100, 10, 1000, 1), Ok(110));
    assert_eq!(pending.append(|| 100, 10, 1000, 1), Err(NoPlace::Unsure));
    assert!(ended(&pending, 110, None).is_empty());
    assert_eq!(sure(&pending, 100, 10, 1000), Ok(110));
    assert!(ended(&pending, 110, Some(2)).is_empty());
    assert_eq!(ended(&pending, 100, Some(1)), [1, 2]);
}

/// Rule U9: what fails when its place was sure has ended with nothing written, and keeps that place while others come before it.
#[test]
fn a_sure_place_is_kept_by_who_fails() {
    let pending = Pending::<u32>::new(1);
    assert_eq!(sure(&pending, 0, 10, 1000), Ok(0));
    assert_eq!(sure(&pending, 0, 10, 1000), Ok(10));
    assert!(ended(&pending, 10, None).is_empty());
    assert_eq!((pending.count(), sure(&pending, 0, 10, 1000)), (2, Ok(20)));
    assert!(ended(&pending, 20, Some(3)).is_empty());
    assert_eq!(ended(&pending, 0, Some(1)), [1, 3]);
}

/// An append that began while the one before it was being published got the same place, for that was no longer counted and the size
/// not moved yet; and one that ended then could be published first, by another worker.
#[test]
fn what_is_being_published_counts() {
    let pending = Pending::<u32>::new(1);
    assert_eq!(sure(&pending, 100, 10, 1000), Ok(100));
    assert_eq!(ended(&pending, 100, Some(1)), [1]);
    assert_eq!(sure(&pending, 100, 10, 1000), Ok(110));
    assert!(ended(&pending, 110, Some(2)).is_empty());
    assert_eq!(pending.published(100), [2]);
    assert_eq!(sure(&pending, 110, 10, 1000), Ok(120));
    assert!(pending.published(110).is_empty());
    assert_eq!(ended(&pending, 120, Some(3)), [3]);
    assert!(pending.published(120).is_empty() && pending.is_empty());
    // Truncated since: what was reserved is forgotten.
    assert_eq!(sure(&pending, 50, 10, 1000), Ok(50));
}

/// The write took the append's entry for its own, and whoever ended second found none.
#[test]
fn a_write_where_an_append_begins_waits_for_it() {
    let pending = Pending::<u32>::new(1);
    let wanted = |counted| Wanted {
        units: 0..1,
        extends: Some(0..512),
        counted,
        bits: 12,
    };
    assert_eq!(sure(&pending, 0, 512, 9999), Ok(0));
    assert!(!pending.register(&wanted(false)));
    assert!(pending.register(&wanted(true)));
    assert_eq!(ended(&pending, 0, Some(1)), [1]);
    assert!(pending.published(0).is_empty());
    pending.release(0, |_| ());
    assert!(pending.register(&wanted(false)));
    assert_eq!(ended(&pending, 0, Some(2)), [2]);
}

/// A write came before an append that had looked and seen nobody before it: its queue was not told that it waits, and slept for ever when
/// nobody came back to the write's queue.
#[test]
fn who_has_to_wait_is_told_so() {
    let pending = Pending::<u32>::new(1);
    assert_eq!(sure(&pending, 200, 10, 1000), Ok(200));
    let before = Wanted {
        units: 0..1,
        extends: Some(150..160),
        counted: false,
        bits: 6,
    };
    assert!(pending.register(&before));
    let told = RefCell::new(Vec::new());
    let tell = |job: &u32| told.borrow_mut().push(*job);
    assert!(pending.ended(vec![(200, 2)], tell).is_empty());
    assert_eq!(pending.ended(vec![(150, 1)], tell), [1, 2]);
    assert_eq!(told.into_inner(), [2]);
}

/// The append's place was inside the write, which begins before the append that is last.
#[test]
fn an_append_goes_behind_all_of_a_longer_write() {
    let pending = Pending::<u32>::new(1);
    assert_eq!(sure(&pending, 100, 10, 9999), Ok(100));
    let longer = Wanted {
        units: 1..16,
        extends: Some(95..1000),
        counted: false,
        bits: 6,
    };
    assert!(pending.register(&longer));
    assert_eq!(sure(&pending, 100, 10, 9999), Ok(1000));
    assert_eq!(ended(&pending, 95, Some(1)), [1]);
    assert!(ended(&pending, 1000, None).is_empty());
    assert!(ended(&pending, 100, Some(2)).is_empty());
    assert_eq!(pending.published(95), [2]);
    pending.release(1, |_| ());
    assert!(pending.published(100).is_empty() && pending.is_empty());
    assert_eq!(sure(&pending, 110, 10, 9999), Ok(110));
}
