//! Undo files: reading one ends; what is put back lies inside the device; nothing is written before all of it was judged.
//!
//! The first byte chooses whether the header's checksum is made right; the rest is the undo file.
#![no_main]

use diorite::UndoFile;
use diorite_block::{Device, MemDevice};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// Bytes of the device.
const SIZE: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let [first, bytes @ ..] = data else { return };
    let mut bytes = bytes.to_vec();
    if first & 1 != 0 && bytes.len() >= 512 {
        let crc = diorite_format::csum::crc32c(!0, &bytes[..508]);
        bytes[508..512].copy_from_slice(&crc.to_le_bytes());
    }
    let Ok(file) = tempfile::NamedTempFile::new() else { return };
    if std::fs::write(file.path(), &bytes).is_err() {
        return;
    }
    let Ok(undo) = UndoFile::open(file.path()) else { return };
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(SIZE));
    if undo.judge(&device, SIZE).is_ok() {
        let done = undo.restore(&device, |_| (), || Ok::<_, diorite::Error>(())).expect("it was judged");
        assert_eq!(done.pieces, undo.pieces().len() as u64);
    }
});
