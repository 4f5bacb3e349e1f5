//! What a create, a rename and an unlink cost may not grow unnoticed: acquisitions of locks, and allocations.
//!
//! Input: a volume in memory with a journal; paths of two names. Lock statistics and allocations are per process, so this file has a single
//! test. Output: none. Invariants: nothing commits by itself, so the counts are the same in every run, in every build. Limits: the
//! instructions are counted by `diorite bench cost` only; the costs of blocks that are changed for the first time are spread over many
//! calls, so the limits are a little above the counts.

#![allow(clippy::unwrap_used)]

use diorite::mkfs::{MkfsOptions, mkfs};
use diorite::{Device, OpenOptions, RenameFlags, Volume};
use diorite_block::MemDevice;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are those that the system's allocator needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(start, layout, size) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

const FILES: u64 = 800;

/// The most locks and allocations per call, in hundredths.
struct Limit {
    locks: u64,
    allocations: u64,
}

fn locks() -> u64 {
    let all = diorite::stats::lock_stats();
    all.iter().map(|(_, stats)| stats.acquired).sum()
}

fn check(what: &str, limit: &Limit, mut call: impl FnMut(u64)) {
    let (taken, allocated) = (locks(), ALLOCATIONS.load(Ordering::Relaxed));
    (0..FILES).for_each(&mut call);
    let allocated = ALLOCATIONS.load(Ordering::Relaxed) - allocated;
    let each = |count: u64| count * 100 / FILES;
    let (taken, allocated) = (each(locks() - taken), each(allocated));
    assert!(taken <= limit.locks, "{what}: {taken} hundredths of a lock");
    let most = limit.allocations;
    assert!(allocated <= most, "{what}: {allocated} hundredths");
}

/// The defect: a create took 65 locks and made 20 allocations, a rename 122 and 36, an unlink 69 and 27.
#[test]
fn names_cost_no_more_than_the_table_in_the_benchmarks_says() {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(64 << 20));
    mkfs(&device, &MkfsOptions::new([1; 16], [2; 16], 1_700_000_000)).unwrap();
    let options = OpenOptions::writable().commit_interval(Duration::from_secs(3600));
    let volume = Volume::open_device(device, &options).unwrap();
    for dir in ["/a", "/b"] {
        volume.mkdir(dir, 0o755).unwrap();
    }
    let paths = |dir| -> Vec<String> {
        let path = |n| format!("/{dir}/file-{n:06}");
        (0..FILES).map(path).collect()
    };
    let (first, second) = (paths("a"), paths("b"));
    let of = |n: u64| usize::try_from(n).unwrap();
    let limit = |locks, allocations| Limit { locks, allocations };
    check("create", &limit(1340, 1010), |n| {
        drop(volume.create(&first[of(n)], 0o644).unwrap());
    });
    check("rename", &limit(1650, 110), |n| {
        let (from, to) = (&first[of(n)], &second[of(n)]);
        volume.rename(from, to, RenameFlags::default()).unwrap();
    });
    check("unlink", &limit(1220, 10), |n| {
        volume.unlink(&second[of(n)]).unwrap();
    });
    volume.close().unwrap();
}
