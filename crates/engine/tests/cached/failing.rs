//! Failed write-back.

use crate::common::fixture::writable;
use crate::common::names::empty_bytes;
use crate::common::stage::mem_of;
use crate::common::valve::Valve;
use crate::common::words;
use diorite::{OpenOptions, Volume};
use std::sync::Arc;

/// The error of a failed write-back is reported once through each file that was open, and then not by the volume's sync; afterwards the
/// file has what the device has.
#[test]
fn a_failed_write_back_is_reported_once_per_open_file() {
    let bytes = empty_bytes("16M", &words("-t ext4 -b 4096 -O ^has_journal"));
    for lost in 0..3u8 {
        let valve = Arc::new(Valve::new(Arc::new(mem_of(&bytes))));
        let volume = Volume::open_device(valve.clone(), &OpenOptions::writable()).unwrap();
        let file = volume.create("/file", 0o644).unwrap();
        file.sync().unwrap();
        let other = volume.open_ino(file.ino(), writable()).unwrap();
        for n in 0..3u8 {
            file.write_bytes(u64::from(n) << 20, &[0xd0 + n; 4096])
                .unwrap();
        }
        valve.fail(&[0xd0 + lost]);
        let failed = file.sync().expect_err("a write has failed");
        valve.fail(&[]);
        let place = format!("write-back of inode {}", file.ino());
        assert!(failed.to_string().contains(&place), "{failed}");
        file.sync().expect("it was reported");
        let failed = other.sync().expect_err("not through this file");
        assert!(failed.to_string().contains(&place), "{failed}");
        other.sync().expect("it was reported");
        volume.sync().expect("each writer was told");
        let later = volume.open_ino(file.ino(), writable()).unwrap();
        later.sync().expect("it was reported before it was opened");
        for n in 0..3u8 {
            let mut one = [7];
            let count = file.read_bytes(u64::from(n) << 20, &mut one).unwrap();
            let there = if lost == n { 0 } else { 0xd0 + n };
            assert!(
                one == [there] || lost == 2 && n == 2 && count == 0,
                "{lost} {n}"
            );
        }
        drop((file, other, later));
        volume.close().unwrap();
    }
}
