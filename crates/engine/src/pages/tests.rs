//! Pages of one file, without a file.

use super::batches::Batch;
use super::*;

const BLOCK: usize = 4096;

/// A list of folios that give nothing back, or everything.
#[derive(Debug)]
struct Folios(Reclaimed);

impl Reclaim for Folios {
    fn reclaim(&self, _: u64, _: u64, _: bool) -> Reclaimed {
        self.0
    }
}

fn nobody() -> Weak<dyn Reclaim> {
    Weak::<Folios>::new()
}

fn pages() -> Pages {
    Pages::new(0, &PageCache::new(16 << 20), 4096)
}

fn folio(pages: &Pages, blocks: Range<u64>, byte: u8) -> NewFolio {
    let len = blocks.end - blocks.start;
    let memory = pages.cache().memory(len * BLOCK as u64);
    let mut memory = memory.expect("little").expect("the budget has room");
    memory.bytes_mut().expect("nothing is lent").fill(byte);
    NewFolio::new(blocks.start, len, memory)
}

fn change(pos: u64, data: &[u8]) -> Change<'_> {
    Change {
        pos,
        data,
        holes: Some(&[]),
        told: Told::Syncs,
    }
}

/// Makes blocks dirty, each with its number as its bytes.
fn dirty(pages: &Pages, blocks: Range<u64>) {
    for part in pages.without_folio(blocks.clone()) {
        pages.add(nobody(), folio(pages, part, 0xee));
    }
    for block in blocks {
        let bytes = [u8::try_from(block).expect("few blocks"); BLOCK];
        let size = || block * BLOCK as u64;
        let wrote = pages.write(
            change(block * BLOCK as u64, &bytes),
            size,
            |_| Ok(None),
            |extend| {
                extend();
                true
            },
        );
        assert_eq!(wrote.expect("little memory"), Wrote::Done(0));
    }
}

fn run(pages: &Pages, blocks: Range<u64>, size: u64) -> Batch {
    match pages.collect(blocks, u64::MAX >> 1, || size) {
        Collected::Run(batch) => batch,
        other => panic!("{other:?}"),
    }
}

fn first_bytes(pages: &Pages, blocks: Range<u64>) -> Vec<Option<u8>> {
    let mut one = [0];
    let byte = |b: u64| pages.read(b * BLOCK as u64, &mut one) == 1;
    let read: Vec<bool> = blocks.clone().map(byte).collect();
    let mut bytes = Vec::new();
    for (block, is_there) in blocks.zip(read) {
        pages.read(block * BLOCK as u64, &mut one);
        bytes.push(is_there.then_some(one[0]));
    }
    bytes
}

/// What lies behind a run that moves the size is not taken before that run is on its way; what lies inside the size is.
#[test]
fn runs_behind_the_end_do_not_overtake() {
    let pages = pages();
    dirty(&pages, 0..1);
    dirty(&pages, 4..6);
    dirty(&pages, 8..9);
    let inside = run(&pages, 0..1, 4096);
    assert!(!inside.moves_size && inside.blocks == (0..1));
    let first = run(&pages, 1..8, 4096);
    assert!(first.moves_size && first.blocks == (4..6));
    let behind = || pages.collect(8..10, 100, || 4096);
    assert!(matches!(behind(), Collected::Kept));
    dirty(&pages, 1..2);
    assert_eq!(run(&pages, 1..2, 1 << 20).blocks, 1..2);
    pages.sent(first.id);
    let Collected::Run(second) = behind() else {
        panic!("the first one is on its way");
    };
    assert_eq!(second.blocks, 8..9);
    drop((first.buf, second.buf));
    pages.written(second.id, None, 9 * 4096);
    assert!(matches!(behind(), Collected::Nothing));
}

/// A block behind the size that became dirty again while it is written lies in the way of what is behind it: the size would move over bytes
/// that are only in memory.
#[test]
fn nothing_overtakes_a_block_that_is_dirty_again() {
    let pages = pages();
    dirty(&pages, 0..1);
    let first = run(&pages, 0..9, 100);
    assert!(first.moves_size);
    pages.sent(first.id);
    dirty(&pages, 0..2);
    let rest = |size| pages.collect(0..9, 100, || size);
    assert!(matches!(rest(100), Collected::Kept));
    // Once the size is behind it, it is in nobody's way.
    let Collected::Run(behind) = rest(4096) else {
        panic!("block 1 can go");
    };
    assert_eq!(behind.blocks, 1..2);
    drop((first.buf, behind.buf));
    pages.written(first.id, None, 4096);
    pages.written(behind.id, None, 8192);
    assert_eq!(run(&pages, 0..9, 8192).blocks, 0..1);
}

/// Only writes that were collected before the mark are waited for.
#[test]
fn a_mark_divides_writes() {
    let pages = pages();
    dirty(&pages, 0..1);
    let early = run(&pages, 0..1, u64::MAX);
    let mark = pages.mark();
    dirty(&pages, 1..2);
    let late = run(&pages, 1..2, u64::MAX);
    assert!(pages.is_writing(&(0..4), mark) && !pages.is_writing(&(1..4), mark));
    let (early, late) = (early.id, late.id);
    pages.written(early, None, 0);
    assert!(!pages.is_writing(&(0..4), mark) && pages.is_writing(&(0..4), pages.mark()));
    pages.written(late, None, 0);
    assert!(!pages.has_unwritten());
}

/// A block that became dirty again while it was written is dirty, with its new bytes; the bytes on their way did not change. If the
/// write fails only blocks that did not change go.
#[test]
fn blocks_change_while_they_are_written() {
    let pages = pages();
    dirty(&pages, 3..6);
    let batch = run(&pages, 0..9, u64::MAX);
    let again = [0x77; BLOCK];
    let wrote = pages.write(change(4 * 4096, &again), || 1 << 20, |_| Ok(None), |_| true);
    assert_eq!(wrote.expect("little memory"), Wrote::Done(0));
    let sent: Vec<u8> = batch
        .buf
        .parts()
        .flatten()
        .copied()
        .step_by(BLOCK)
        .collect();
    assert_eq!(sent, [3, 4, 5]);
    assert!(matches!(
        pages.collect(0..9, 9, || 0),
        Collected::Nothing | Collected::Kept
    ));
    let id = batch.id;
    drop(batch);
    let (error, number) = (Error::ShutDown, 1);
    pages.written(id, Some(Failure { error, number }), 1 << 20);
    assert_eq!(first_bytes(&pages, 3..6), [None, Some(0x77), None]);
    assert_eq!(run(&pages, 0..9, u64::MAX).blocks, 4..5);
    let (count, error) = pages.failure_since(0).expect("it was noted");
    assert!(count == 1 && matches!(error, Error::ShutDown));
}

/// What is read from the device is not cached if a block was changed, claimed or dropped meanwhile, or valid when the read began.
#[test]
fn a_fill_that_was_overtaken_is_not_cached() {
    type Change = fn(&Pages);
    let changes: [(Change, bool); 4] = [
        (|_| {}, true),
        (|pages| dirty(pages, 1..2), false),
        (
            |pages| {
                let id = pages.claim(2..3);
                pages.end_claim(id);
            },
            false,
        ),
        (
            |pages| {
                pages.drop_clean(&(0..1));
            },
            false,
        ),
    ];
    for (n, (change, is_cached)) in changes.into_iter().enumerate() {
        for is_ahead in [false, true] {
            let pages = pages();
            let id = match is_ahead {
                true => pages.begin_ahead(0..4),
                false => match pages.begin_fill(0..4) {
                    Fill::Begun(id, Range { start: 0, end: 4 }) => id,
                    other => panic!("{other:?}"),
                },
            };
            change(&pages);
            let read = folio(&pages, 0..4, 0x55);
            pages.end_fill(id, &nobody(), vec![read]);
            let there = first_bytes(&pages, 3..4) == [Some(0x55)];
            assert_eq!(there, is_cached, "{n} {is_ahead}");
        }
    }
    let pages = pages();
    dirty(&pages, 1..2);
    let id = pages.begin_ahead(0..4);
    pages.end_fill(id, &nobody(), vec![folio(&pages, 0..4, 0x55)]);
    assert_eq!(first_bytes(&pages, 0..2), [None, Some(1)]);
    assert_eq!(pages.begin_fill(1..2), Fill::Cached);
    let claim = pages.claim(2..3);
    assert_eq!(pages.begin_fill(2..4), Fill::Busy);
    pages.end_claim(claim);
}

/// The list of folios does not grow with folios that are gone, and a folio that has to stay is asked a few times only.
#[test]
fn the_list_of_folios_is_bounded() {
    let cache = PageCache::new(1 << 20);
    for _ in 0..100_000 {
        let pages = Pages::new(0, &cache, 4096);
        pages.add(nobody(), folio(&pages, 0..1, 0));
    }
    assert!(cache.listed() < 10_000, "{}", cache.listed());
    assert_eq!(cache.used_bytes(), 0);
    let stays: std::sync::Arc<dyn Reclaim> = std::sync::Arc::new(Folios(Reclaimed::Stays));
    let pages = Pages::new(0, &cache, 4096);
    let mut at = 0;
    while let Some(memory) = cache.memory(65_536).expect("little memory") {
        let of = std::sync::Arc::downgrade(&stays);
        pages.add(of, NewFolio::new(at, 16, memory));
        at += 16;
    }
    assert_eq!((at, cache.used_bytes()), (256, 1 << 20));
    assert_eq!(cache.stats().reclaimed, 0);
}

/// A copy of memory that is lent to a write-back is counted until that has ended; without room in the budget there is none. Once copies
/// were outside the budget.
#[test]
fn copies_of_lent_memory_are_counted() {
    let budget = 5 * BLOCK as u64;
    let cache = PageCache::new(budget);
    let pages = Pages::new(0, &cache, 4096);
    let again = |block: u64| {
        let done = pages.write(
            change(block * BLOCK as u64, &[0x77; BLOCK]),
            || 1 << 20,
            |_| Ok(None),
            |_| true,
        );
        done.expect("little memory")
    };
    for block in 0..3 {
        pages.add(nobody(), folio(&pages, block..block + 1, 0));
        again(block);
    }
    let batch = run(&pages, 0..3, u64::MAX);
    assert_eq!(cache.used_bytes(), 3 * BLOCK as u64);
    assert_eq!([again(0), again(1)], [Wrote::Done(0), Wrote::Done(0)]);
    assert_eq!(cache.used_bytes(), budget);
    assert_eq!(again(2), Wrote::Lent(BLOCK as u64));
    // What has its copy already takes no other.
    assert_eq!(again(1), Wrote::Done(0));
    let id = batch.id;
    drop(batch);
    assert_eq!(cache.used_bytes(), budget);
    pages.written(id, None, 1 << 20);
    assert_eq!(cache.used_bytes(), 3 * BLOCK as u64);
    assert_eq!(again(2), Wrote::Done(0));
    drop(pages);
    assert_eq!((cache.used_bytes(), cache.dirty_bytes()), (0, 0));
}

/// Memory shorter than a page of the host takes a page of the budget: once volumes with blocks of 1 KiB took four times their budget.
#[test]
fn short_memory_takes_a_whole_page() {
    let cache = PageCache::new(64 << 10);
    let taken: Vec<Memory> = std::iter::from_fn(|| cache.memory(1024).expect("little")).collect();
    assert_eq!((taken.len(), cache.used_bytes()), (16, 64 << 10));
    drop(taken);
    assert_eq!(cache.used_bytes(), 0);
    assert!(cache.memory(65_536).expect("little").is_some());
    assert_eq!(cache.stats().idle_bytes, 0);
}

/// Folios that come and go are found by each of their blocks, by hints and without, and by no other block.
#[test]
fn folios_are_found_by_their_blocks() {
    let mut rng = crate::testing::Rng::from_env("folios");
    let mut below = |most: u64| rng.below(most);
    let pages = pages();
    let mut folios = super::folios::Folios::default();
    // The model: the first blocks, with lengths.
    let mut model: Vec<(u64, u64)> = Vec::new();
    for step in 0..4000 {
        // Fewer folios every now and then, down to none.
        let grows = step % 1000 < 500;
        if grows && below(4) > 0 {
            let (start, len) = (below(40_000), 1 + below(3));
            let is_free = model
                .iter()
                .all(|(s, l)| s + l <= start || start + len <= *s);
            assert_eq!(folios.overlaps(start..start + len), !is_free);
            if is_free {
                let new = folio(&pages, start..start + len, 0);
                folios.insert(start, Folio::new(new, step));
                model.push((start, len));
            }
        } else if !model.is_empty() {
            let (start, _) = model.swap_remove(below(model.len() as u64) as usize);
            folios.remove(start);
        }
        assert_eq!(folios.len(), model.len());
        let near = model.get(below(model.len().max(1) as u64) as usize);
        let near = near.map_or(0, |(start, _)| *start);
        for block in near.saturating_sub(1)..near + 5 {
            let known = model.iter().find(|(s, l)| (*s..s + l).contains(&block));
            let known = known.map(|(start, _)| *start);
            assert_eq!(folios.of(block).map(|(start, _)| start), known);
            assert_eq!(folios.of_mut(block).map(|(start, _)| start), known);
        }
        let range = near..near + 1000;
        let meeting = folios.meeting(&range).map(|(start, _)| start);
        let meets = |(s, l): &&(u64, u64)| s + l > near && *s < range.end;
        let mut known: Vec<u64> = model.iter().filter(meets).map(|(s, _)| *s).collect();
        known.sort_unstable();
        assert_eq!(meeting.collect::<Vec<_>>(), known);
    }
}
