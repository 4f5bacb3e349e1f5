//! A qcow2 file: opening, reading, mapping and writing it end. A panic of the library that knows the tables stays an error of one request.
//!
//! The first byte chooses reading or writing; the rest is the file. Files that it names are not opened.
#![no_main]

use diorite_block::locator::{ImageFormat, open};
use diorite_block::{Bio, Blocking, Buf, Device, Locator, OpenOptions};
use diorite_fuzz::files::Scratch;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use std::sync::Once;

/// Bytes of one request.
const PIECE: u64 = 4096;

static QUIET: Once = Once::new();

fuzz_target!(|data: &[u8]| {
    QUIET.call_once(|| {
        diorite_block::locator::register_qcow2(diorite_qcow2::open);
        // The fuzzer's hook ends the process at a panic that is caught. One that is not is still seen: it leaves this function.
        std::panic::set_hook(Box::new(|_| {}));
    });
    let Some((first, bytes)) = data.split_first() else { return };
    let file = Scratch::new(bytes);
    let mut locator = Locator::file(file.path());
    if let Locator::File(file) = &mut locator {
        file.format = Some(ImageFormat::Qcow2);
    }
    let write = first & 1 != 0;
    let options = OpenOptions::default().read_only(!write);
    if let Ok(device) = open(&locator, &options) {
        use_it(&device, write);
    }
});

fn use_it(device: &Arc<dyn Device>, write: bool) {
    let size = device.geometry().size;
    let _ = device.stored(0..size, 64);
    let disk = Blocking::new(device.clone());
    let places = [0, size / 3, size / 2, size.saturating_sub(PIECE)].map(|at| at / 512 * 512);
    for at in places {
        let len = PIECE.min(size - at) as usize;
        if len == 0 {
            continue;
        }
        let _ = disk.read(at, Buf::zeroed(len));
        if write {
            let mut buf = Buf::zeroed(len);
            buf.copy_in(0, &vec![7; len]);
            let written = disk.run(Bio::write(at, buf, 0)).result.is_ok();
            let read = disk.read(at, Buf::zeroed(len));
            if let (true, Ok(read)) = (written, read) {
                // Tables that lie in their own data give anything, but give it.
                let _ = read.as_slice().len();
            }
        }
    }
    if write {
        let _ = disk.run(Bio::flush(0)).result;
    }
    let _ = device.stored(0..size, 64);
}
