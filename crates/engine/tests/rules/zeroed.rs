//! Ranges that become written and are zeroed by the device (rules G9, U1): a device that cannot write zeros, and one that fails.
//!
//! Input: a volume whose free space is poison, on a device that refuses to write zeros. Output: none. Invariant: the range reads as
//! zeros, or nothing was changed and the caller gets the error. Limits: one range of some MiB, more than is written at once.

use crate::common::fixture::writable;
use crate::common::recipe::{RECIPES, bare};
use crate::common::scratch;
use crate::common::stage::{Stage, faulty};
use crate::rules::bed::quiet;
use diorite::{Error, Fallocate, MappingState, Volume};
use diorite_block::{BioErrorKind, BioOp, Fault, When};

/// If the device says that it cannot write zeros, all of them are written as data. An error is returned, and no block becomes
/// written.
#[test]
fn zeros_are_written_where_the_device_makes_none() {
    const LEN: usize = 5 << 20;
    for kind in [BioErrorKind::Unsupported, BioErrorKind::Io] {
        let dir = scratch();
        let stage = Stage::mem(&bare(dir.path(), &RECIPES[0]));
        let fault = Fault::new(kind, When::Every(1)).on(BioOp::WriteZeroes);
        let device = faulty(stage.device.clone(), vec![fault]);
        let volume = Volume::open_device(device.clone(), &quiet()).unwrap();
        let file = volume.open_path("/empty", writable()).unwrap();
        let mode = Fallocate::WriteZeroes { keep_size: false };
        let done = file.fallocate(mode, 0, LEN as u64);
        assert!(device.plan().failed() > 0);
        let can = kind == BioErrorKind::Unsupported;
        match done {
            Ok(()) => assert!(can),
            Err(error) => assert!(
                !can && matches!(error.root(), Error::Device { .. }),
                "{error}"
            ),
        }
        let mut found = vec![0xEE; LEN];
        assert_eq!(file.read_bytes(0, &mut found).unwrap(), LEN);
        assert_eq!(found.iter().position(|byte| *byte != 0), None, "{kind:?}");
        let is_written = |m: &diorite::Mapping| matches!(m.state, MappingState::Written(_));
        let mappings = file.mappings(0, LEN as u64).unwrap();
        assert!(
            mappings.iter().all(|m| is_written(m) == can),
            "{mappings:?}"
        );
        drop(file);
        volume.close().unwrap();
        stage.fsck();
    }
}
