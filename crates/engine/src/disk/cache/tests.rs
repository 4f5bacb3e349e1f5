//! Tests of the metadata cache: its budget, changes beside readers, loads beside changes, verification once per use.
//!
//! Input: a device in memory. Output: none. Invariants: none of its own. Limits: one thread; threads are interleaved by hand.

use crate::disk::cache::*;
use diorite_block::mem::MemDevice;
use diorite_format::Corrupt;

fn no_node(_: Unsealed, _: &mut [u8]) {
    unreachable!("no node was changed")
}

fn no_check(_: &[u8]) -> Result<(), FormatError> {
    Ok(())
}

#[test]
fn it_stays_within_its_budget_and_keeps_what_is_pinned() {
    let blocking = Blocking::new(Arc::new(MemDevice::new(16 << 20)));
    let cache = MetaCache::new(1, 4096, 64 * 4096);
    let read = |n| {
        cache
            .read(&blocking, FsBlock::new(n), Kind::Map, no_check)
            .expect("memory can be read")
    };
    let pinned = read(7);
    (0..2000).for_each(|n| drop(read(n)));
    let held: usize = cache.shards.iter().map(|s| s.lock().blocks.len()).sum();
    assert!(held <= 64, "{held} blocks");
    let loads = cache.loads();
    assert!(Arc::ptr_eq(&pinned.0, &read(7).0));
    assert_eq!(cache.loads(), loads);
}

#[test]
fn a_change_leaves_what_others_hold_and_stays_until_it_is_home() {
    let blocking = Blocking::new(Arc::new(MemDevice::new(16 << 20)));
    let cache = MetaCache::new(1, 4096, 64 * 4096);
    let at = (FsBlock::new(5), Kind::Map);
    let set = |tid, value| {
        let put = |bytes: &mut [u8]| {
            bytes[0] = value;
            Ok(())
        };
        let at = (at.0, at.1.into());
        let changed = cache.change(&blocking, at, Tid::new(tid), no_check, put);
        changed.expect("memory can be read").1
    };
    assert!(set(1, 10));
    assert!(!set(1, 11));
    let frozen = cache.freeze(at.0, no_node);
    assert!(set(2, 20));
    let latest = cache.freeze(at.0, no_node);
    assert_eq!((frozen[0], latest[0]), (11, 20));
    cache.is_home(at.0, &frozen);
    drop(frozen);
    drop(latest);
    let crowd = |from: u64| {
        (from..from + 2000).for_each(|n| {
            let read = cache.read(&blocking, FsBlock::new(n), Kind::Map, no_check);
            drop(read.expect("memory can be read"));
        });
    };
    crowd(100);
    let kept = cache.freeze(at.0, no_node);
    assert_eq!(kept[0], 20);
    cache.is_home(at.0, &kept);
    drop(kept);
    crowd(100);
    assert!(cache.peek(at.0, Kind::Map).is_none());
}

/// A load is not put into the cache if a change of the block was made, written home and evicted during the load.
#[test]
fn a_slow_load_does_not_bring_back_what_was_changed_meanwhile() {
    let blocking = Blocking::new(Arc::new(MemDevice::new(16 << 20)));
    let cache = MetaCache::new(1, 4096, 64 * 4096);
    let at = (FsBlock::new(5), Kind::Map);
    let gone = cache.find(at.0).expect_err("nothing is in memory");
    let slow = cache.load(&blocking, at.0).expect("memory can be read");
    let put = |bytes: &mut [u8]| {
        bytes[0] = 77;
        Ok(())
    };
    cache
        .change(&blocking, (at.0, at.1.into()), Tid::new(1), no_check, put)
        .expect("memory can be read");
    let home = cache.freeze(at.0, no_node);
    let mut bytes = Buf::zeroed(4096);
    bytes.copy_in(0, &home);
    blocking
        .write_durably(5 * 4096, bytes)
        .expect("memory can be written");
    cache.is_home(at.0, &home);
    drop(home);
    for n in 100..2100 {
        let read = cache.read(&blocking, FsBlock::new(n), Kind::Map, no_check);
        drop(read.expect("memory can be read"));
    }
    assert!(cache.peek(at.0, Kind::Map).is_none(), "it was evicted");
    assert!(cache.keep(at.0, slow, gone).is_none());
    let now = cache.read(&blocking, at.0, at.1, no_check);
    assert_eq!(now.expect("memory can be read")[0], 77);
}

/// Evictions of unchanged blocks do not make a load void; forgetting a block does.
#[test]
fn only_changes_that_went_make_a_load_void() {
    let blocking = Blocking::new(Arc::new(MemDevice::new(16 << 20)));
    let cache = MetaCache::new(1, 4096, 64 * 4096);
    let at = FsBlock::new(5);
    let load = || cache.load(&blocking, at).expect("memory can be read");
    let gone = cache.find(at).expect_err("nothing is in memory");
    for n in 100..2100 {
        let read = cache.read(&blocking, FsBlock::new(n), Kind::Map, no_check);
        drop(read.expect("memory can be read"));
    }
    assert!(cache.keep(at, load(), gone).is_some());
    cache.forget(at);
    assert!(cache.keep(at, load(), gone).is_none());
}

#[test]
fn a_new_block_is_not_read_and_a_forgotten_one_is_gone() {
    let blocking = Blocking::new(Arc::new(MemDevice::new(1 << 20)));
    let cache = MetaCache::new(1, 4096, 64 * 4096);
    let at = (FsBlock::new(9), Kind::Directory);
    assert!(cache.create(at, Tid::new(1), |bytes| bytes[7] = 7));
    assert_eq!((cache.loads(), cache.freeze(at.0, no_node)[7]), (0, 7));
    cache.forget(at.0);
    let read = cache.read(&blocking, at.0, at.1, no_check);
    assert_eq!(read.expect("memory can be read")[7], 0);
}

#[test]
fn a_block_is_verified_once_per_load_and_use() {
    let blocking = Blocking::new(Arc::new(MemDevice::new(1 << 20)));
    let cache = MetaCache::new(1, 4096, 64 * 4096);
    let mut calls = 0;
    for kind in [Kind::Map, Kind::Map, Kind::Xattr, Kind::Map] {
        let count = |_: &[u8]| {
            calls += 1;
            Ok(())
        };
        cache
            .read(&blocking, FsBlock::new(3), kind, count)
            .expect("memory can be read");
    }
    assert_eq!(calls, 2);
    let bad = |_: &[u8]| Err(Corrupt::SuperMagic { found: 1 }.into());
    for _ in 0..2 {
        let refused = cache.read(&blocking, FsBlock::new(3), Kind::Directory, bad);
        assert!(refused.is_err_and(|e| e.is_corrupt()));
    }
}
