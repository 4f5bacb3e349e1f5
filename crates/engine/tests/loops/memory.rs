//! One small budget for the pages of both volumes of a stack, of which the dirty pages of the upper one may take all.
//!
//! Input: an image in an image. Output: none. Invariants: every write succeeds and is read again; both images are consistent. Limits: 16
//! writers, each of a file of its own.

use super::{MODES, mode};
use crate::common::fixture::{LIMIT, writable};
use crate::common::watch::Watchdog;
use crate::common::{fsck, names, scratch};
use diorite::{LoopDevice, OpenOptions, PageCache, Volume};
use std::path::Path;
use std::sync::Arc;

const WRITERS: u8 = 16;
/// Bytes of a writer's file, and of a call.
const LEN: usize = 1 << 20;
const CALL: usize = 4096;

/// Rule L4. The write-back of the upper volume needs pages of the lower one, and there is no memory before it has ended. It is no error.
#[test]
fn one_small_budget_for_both_volumes() {
    let _watchdog = Watchdog::new(LIMIT, "one budget");
    for loop_mode in MODES {
        let dir = scratch();
        let (outer, inner) = (dir.path().join("o"), dir.path().join("i"));
        for at in [&outer, &inner] {
            std::fs::create_dir(at).unwrap();
        }
        let lower = names::empty(&outer, "96M", &[]);
        let upper = names::empty(&inner, "48M", &[]);
        put(&lower, &std::fs::read(&upper).unwrap());
        let options = OpenOptions::writable()
            .page_cache(PageCache::new(1 << 20))
            .policy(mode(loop_mode));
        let below = Volume::open(lower.to_str().unwrap(), &options).unwrap();
        let file = below.open_path("/inner", writable()).unwrap();
        let device = Arc::new(LoopDevice::new(file, "loop".into()));
        let above = Volume::open_device(device, &options).unwrap();
        write_all(&above);
        above.close().unwrap();
        below.close().unwrap();
        std::fs::write(&upper, take(&lower)).unwrap();
        fsck(&lower);
        fsck(&upper);
    }
}

fn put(image: &Path, bytes: &[u8]) {
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
    let file = volume.create("/inner", 0o644).unwrap();
    assert_eq!(file.write_bytes(0, bytes).unwrap(), bytes.len());
    drop(file);
    volume.close().unwrap();
}

fn take(image: &Path) -> Vec<u8> {
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::default()).unwrap();
    let file = volume.open_path("/inner", Default::default()).unwrap();
    let mut bytes = vec![0; usize::try_from(file.size()).unwrap()];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Writes a file by each thread, syncs it, and reads it again.
fn write_all(volume: &Volume) {
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let file = volume.create(&*format!("/file-{writer}"), 0o644).unwrap();
                for pos in (0..LEN).step_by(CALL) {
                    let done = file.write_bytes(pos as u64, &[writer; CALL]).unwrap();
                    assert_eq!(done, CALL);
                }
                file.sync().unwrap();
                let mut bytes = vec![0xFF; LEN];
                assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), LEN);
                assert!(bytes.iter().all(|byte| *byte == writer));
            });
        }
    });
}
