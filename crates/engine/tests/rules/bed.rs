//! A volume with poison in its free space, on a device whose writes can be held and failed.
//!
//! Input: a recipe and options for opening. Output: files with queues. Invariant: e2fsck judges the end. Limits: a device in
//! memory.

use crate::common::fixture::writable;
use crate::common::recipe::{Recipe, bare};
use crate::common::scratch;
use crate::common::stage::Stage;
use crate::common::valve::Valve;
use diorite::{Completion, Counters, File, FileId, OpenFlags, OpenOptions, Queue, Request, Volume};
use diorite_format::Ino;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Options for a volume on which only a test's own requests commit.
pub(crate) fn quiet() -> OpenOptions {
    OpenOptions::writable()
        .commit_interval(Duration::from_secs(3600))
        .keep_for_maps(false)
}

/// As [`quiet`], and nothing of metadata stays in memory that is not in use.
pub(crate) fn without_caches() -> OpenOptions {
    quiet().metadata_cache(0).map_cache(0)
}

/// Evicts other blocks of metadata from a small cache, by reading many inodes. A block of 1 KiB has four of them.
pub(crate) fn push_out(volume: &Volume) {
    (1..6144)
        .step_by(4)
        .for_each(|n| drop(volume.open_ino(Ino::new(n), OpenFlags::default())));
}

/// Drains the queue until this is true; asserts that nothing completes.
pub(crate) fn drain_until(queue: &Queue, until: impl Fn() -> bool) {
    let mut done = Vec::new();
    while !until() {
        queue.reap(&mut done, 0, None);
        std::thread::yield_now();
    }
    assert!(done.is_empty(), "{done:?}");
}

/// As [`drain_until`], after these requests were submitted; `until` is told the queue's counters.
pub(crate) fn submit_until(
    queue: &Queue,
    requests: Vec<Request>,
    until: impl Fn(&Counters) -> bool,
) {
    queue.submit(&mut VecDeque::from(requests));
    drain_until(queue, || until(&queue.counters()));
}

/// Reaps so many completions. Returns them in the order of their tokens.
pub(crate) fn collect(queue: &Queue, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    while done.len() < count {
        queue.reap(&mut done, 1, None);
    }
    done.sort_by_key(|d| d.token);
    done
}

/// The bytes of a range of a file, which is below its end.
pub(crate) fn bytes(file: &File, pos: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0xEE; len];
    assert_eq!(file.read_bytes(pos, &mut out).unwrap(), len);
    out
}

/// Are all of them equal to `byte`?
pub(crate) fn all(bytes: &[u8], byte: u8) -> bool {
    bytes.iter().all(|b| *b == byte)
}

/// See the module.
pub(crate) struct Bed {
    _dir: tempfile::TempDir,
    pub(crate) stage: Stage,
    pub(crate) valve: Valve,
    pub(crate) volume: Volume,
}

impl Bed {
    pub(crate) fn new(recipe: &Recipe, options: &OpenOptions) -> Bed {
        let dir = scratch();
        let stage = Stage::mem(&bare(dir.path(), recipe));
        let valve = Valve::new(stage.device.clone());
        let volume = Volume::open_device(Arc::new(valve.clone()), options).unwrap();
        Bed {
            _dir: dir,
            stage,
            valve,
            volume,
        }
    }

    pub(crate) fn open(&self, path: &str) -> (File, Queue, FileId) {
        let file = self.volume.open_path(path, writable()).unwrap();
        let queue = self.volume.queue(64).unwrap();
        let id = queue.attach(&file).unwrap();
        (file, queue, id)
    }

    /// Asserts that no two bios overlapped in flight, then as [`Bed::finish`].
    pub(crate) fn judge(self) {
        assert_eq!(self.valve.overlaps(), [""; 0], "rule B9");
        self.finish();
    }

    /// Asserts that handles had credits for all that they changed (rule D5), and that e2fsck finds nothing once the volume is
    /// closed.
    pub(crate) fn finish(self) {
        assert_eq!(self.volume.journal_stats().uncredited, 0, "rule D5");
        self.volume.close().unwrap();
        self.stage.fsck();
    }
}
