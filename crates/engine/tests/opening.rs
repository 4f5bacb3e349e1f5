//! What opening a volume reads: each structure once, and no more of the log than says that it is empty.
//!
//! Input: an image that was unmounted, on a simulated disk. Output: counts of its reads. Invariant: short commands open a volume and print
//! some of it, so what is read on the way is most of what they do. Limits: sizes, no times.

use crate::common::fixture::{made, sim};
use diorite::OpenOptions;

#[test]
fn an_empty_log_is_not_read() {
    let (_dir, image, _) = made(0);
    let stage = sim(&image, "latency=0us");
    for options in [OpenOptions::default(), OpenOptions::writable()] {
        let before = stage.disk().counters();
        let volume = stage.open(&options).unwrap();
        let reads = stage.disk().counters().since(&before);
        // The superblock, the descriptors, the journal's inode, its superblock; a writer reads that once more, and the orphans' file.
        let most = if options.write { 8 } else { 4 };
        assert!(reads.reads <= most, "{reads:?}");
        assert!(reads.read_bytes <= most * 4096, "{reads:?}");
        let before = stage.disk().counters();
        assert!(volume.journal_superblock().unwrap().is_some());
        let reads = stage.disk().counters().since(&before);
        assert_eq!((reads.reads, reads.read_bytes), (1, 4096));
        volume.close().unwrap();
    }
}
