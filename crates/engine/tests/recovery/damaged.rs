//! Recovery from damaged logs.

use crate::common::log::Log;
use crate::common::watch::Watchdog;
use crate::common::{Rng, scaled, scratch};
use crate::recovery::whole::{CRASHES, crashed, written_by_debugfs};
use crate::recovery::{by_e2fsck, in_memory, on_disk, same};
use std::path::Path;
use std::time::Duration;

/// Bits flipped in headers, tags, lists, copies and commit blocks: the log ends, or recovery fails, exactly where it does for
/// e2fsck.
#[test]
fn damaged_logs_end_where_e2fsck_ends_them() {
    let dir = scratch();
    let mut rng = Rng::from_env("recovery");
    // Without checksums a flipped tag makes e2fsck write anywhere, so only logs with checksums are compared.
    for (args, options) in [CRASHES[0], CRASHES[1], CRASHES[2], CRASHES[5]] {
        let Some(image) = crashed(dir.path(), args, options) else {
            return;
        };
        let log = Log::of(dir.path(), &image);
        let used = log.used(&image);
        for _ in 0..scaled("DIORITE_RECOVERY_FLIPS", 40) {
            let at = used[rng.below(used.len() as u64) as usize];
            let place = match rng.below(4) {
                0 => rng.below(12),
                1 => 12 + rng.below(52),
                2 => log.block as u64 - 1 - rng.below(8),
                _ => rng.below(log.block as u64),
            };
            let mut hurt = image.clone();
            let bit = 1 << rng.below(8);
            hurt[log.byte_of(at) + place as usize] ^= bit;
            let label =
                format!("{args:?} {options}, block {at} of the log, byte {place} ^ {bit:#x}");
            judge(dir.path(), &log, &hurt, &label);
        }
    }
}

/// Compares e2fsck's verdict with diorite's on a damaged log.
fn judge(dir: &Path, log: &Log, hurt: &[u8], label: &str) {
    let theirs = by_e2fsck(dir, hurt);
    let mine = in_memory(hurt).unwrap_or_else(|e| panic!("{label}: {e}"));
    let (damaged, failed) = (
        theirs.said.contains("replay was aborted"),
        theirs.said.contains("checksum error") || theirs.said.contains("while recovering"),
    );
    assert_eq!(
        mine.said.contains("is damaged"),
        damaged,
        "{label}: {} / {}",
        mine.said,
        theirs.said
    );
    assert_eq!(
        mine.said.contains("cannot be replayed"),
        failed,
        "{label}: {} / {}",
        mine.said,
        theirs.said
    );
    // If recovery fails, e2fsck leaves what it had replayed by then; diorite replays nothing.
    if !failed {
        same(log, &mine.bytes, &theirs.bytes, label);
    }
    match on_disk(hurt) {
        Ok(disk) => {
            assert!(!damaged && !failed, "{label}: opened for writing");
            same(log, &disk.bytes, &theirs.bytes, label);
        }
        Err(e) => assert!(damaged || failed, "{label}: {e}"),
    }
}

/// Logs without checksums, with random bytes in their descriptors: recovery returns an error or data, and always ends.
#[test]
fn hostile_logs_end() {
    let dir = scratch();
    let mut rng = Rng::from_env("hostile logs");
    let watchdog = Watchdog::new(Duration::from_secs(20), "hostile logs");
    let image = written_by_debugfs(dir.path(), 1024, "^metadata_csum", "jo");
    let log = Log::of(dir.path(), &image);
    let used = log.used(&image);
    for n in 0..scaled("DIORITE_HOSTILE_LOGS", 100) {
        let mut hurt = image.clone();
        for _ in 0..1 + rng.below(3) {
            let at = log.byte_of(used[rng.below(used.len() as u64) as usize]);
            let (from, len) = (rng.below(64) as usize, 1 + rng.below(64) as usize);
            match rng.below(3) {
                0 => rng.fill(&mut hurt[at + from..at + from + len]),
                // The whole log filled with this descriptor: a log that never commits.
                1 => {
                    for block in 1..1024 {
                        let to = log.byte_of(block);
                        hurt.copy_within(at..at + 1024, to);
                    }
                }
                _ => hurt[at + 12 + from..at + 12 + from + len].fill(0xFF),
            }
        }
        watchdog.feed(format!("log {n}"));
        let _ = in_memory(&hurt);
        let _ = on_disk(&hurt);
    }
}
