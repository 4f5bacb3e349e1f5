use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Counts its own drops.
struct Counted(Arc<AtomicUsize>, u64);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn errno<T>(result: Result<T, Fault>) -> i32 {
    result.err().map_or(0, |fault| fault.errno)
}

#[test]
fn a_closed_handle_finds_nothing_and_its_place_is_used_again() {
    static TABLE: Table<Counted> = Table::new(1, "thing");
    static OTHER: Table<Counted> = Table::new(2, "other");
    let drops = Arc::new(AtomicUsize::new(0));
    let first = TABLE.insert(Counted(drops.clone(), 1)).expect("room");
    assert_eq!(TABLE.hold(first).expect("open").1, 1);
    assert_eq!(errno(OTHER.hold(first)), libc::EBADF);
    let held = TABLE.hold(first).expect("open");
    drop(TABLE.close(first).expect("open"));
    assert_eq!(
        (errno(TABLE.hold(first)), errno(TABLE.close(first))),
        (libc::EBADF, libc::EBADF)
    );
    assert_eq!((held.1, drops.load(Ordering::SeqCst)), (1, 0));
    drop(held);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    let second = TABLE.insert(Counted(drops.clone(), 2)).expect("room");
    assert_ne!(first, second);
    assert_eq!(first << 12 >> 44, second << 12 >> 44, "the same place");
    assert_eq!(errno(TABLE.hold(first)), libc::EBADF);
    for no in [0, u64::MAX, second + 1, second ^ 1 << 40, second ^ 1 << 60] {
        assert_eq!(errno(TABLE.hold(no)), libc::EBADF, "{no:#x}");
    }
}

/// Threads that hold, close and look at stale handles at the same time: each object is dropped once, and no handle finds another's.
#[test]
fn threads_share_a_table() {
    static TABLE: Table<Counted> = Table::new(3, "thing");
    let drops = Arc::new(AtomicUsize::new(0));
    let known: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
    let rounds = 20_000;
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (known, drops) = (&known, drops.clone());
            scope.spawn(move || {
                let mut rng = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(thread + 1);
                for round in 0..rounds {
                    rng ^= rng << 13;
                    rng ^= rng >> 7;
                    rng ^= rng << 17;
                    let at = &known[rng as usize % 64];
                    let handle = at.load(Ordering::SeqCst);
                    match rng >> 32 & 3 {
                        0 => {
                            let handle = TABLE.insert(Counted(drops.clone(), round)).expect("room");
                            let old = at.swap(handle, Ordering::SeqCst);
                            // Others may have closed it.
                            let _closed = TABLE.close(old);
                        }
                        1 => drop(TABLE.close(handle)),
                        _ => {
                            if let Ok(held) = TABLE.hold(handle) {
                                assert!(held.1 < rounds);
                            }
                        }
                    }
                }
            });
        }
    });
    for handle in &known {
        drop(TABLE.close(handle.load(Ordering::SeqCst)));
    }
    // SAFETY: no thread is left that could change it.
    let room = unsafe { &*TABLE.room.get() };
    assert_eq!(room.free.len(), room.fresh as usize, "every place is free");
    let mut places = room.free.clone();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), room.free.len(), "and free once");
    assert_eq!(Arc::strong_count(&drops), 1, "every object was dropped");
}
