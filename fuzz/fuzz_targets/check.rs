//! The check of a whole image: every pass ends whatever the image contains, nothing is written, and the findings do not depend on
//! the number of threads.
//!
//! The input has the form of `images` in src. If its first byte is 128 or more, the check runs a second time, with two threads.
#![no_main]

use diorite::OpenOptions;
use diorite_check::{CheckOptions, Report, check_device};
use diorite_block::record::Event;
use diorite_block::{Device, MemDevice, RecordDevice};
use diorite_fuzz::images::changed;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| changed(data, |device, first| {
    let one = check(&device, 1);
    if first >= 128 {
        assert_eq!(one, check(&device, 2));
    }
}));

fn check(device: &Arc<MemDevice>, threads: usize) -> Option<Report> {
    let recorded = RecordDevice::new(device.clone());
    let open = OpenOptions::default().workers(1).metadata_cache(1 << 20).map_cache(1 << 20);
    let options = CheckOptions::default().threads(threads).per_kind(5).open(open);
    let device: Arc<dyn Device> = Arc::new(recorded.clone());
    let report = check_device(&device, &options, &|_| {}).ok();
    assert!(!recorded.log().iter().any(|event| matches!(event, Event::Write { .. })));
    report
}
