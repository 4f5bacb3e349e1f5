//! Encodings of an image: what is read from a stream ends, is never more than its header says, and is the same when it is written and read
//! again.
//!
//! The first byte chooses: an Android sparse image, or what packs a stream.
#![no_main]

use diorite_image::{Packing, SparseReader, SparseStep, SparseWriter, Warnings};
use libfuzzer_sys::fuzz_target;
use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom};

/// Bytes that are looked at.
const MOST: u64 = 4 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((first, stream)) = data.split_first() else { return };
    let packing = match first % 7 {
        0 => return sparse(stream),
        1 => Packing::Zstd,
        2 => Packing::Gzip,
        3 => Packing::Xz,
        4 => Packing::Bzip2,
        5 => Packing::Lz4,
        _ => Packing::Zip,
    };
    let unpacked = packing.unpack(stream, &Warnings::default());
    let _ = unpacked.take(MOST).read_to_end(&mut Vec::new());
});

fn sparse(stream: &[u8]) {
    let Some((size, whole)) = unpacked(stream) else { return };
    assert_eq!(size, whole.len() as u64);
    if size % 512 != 0 {
        return;
    }
    let mut file = tempfile::tempfile().expect("a file");
    packed(file.try_clone().expect("a file"), &whole);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).expect("a file");
    file.read_to_end(&mut bytes).expect("a file");
    assert_eq!(unpacked(&bytes).map(|(_, again)| again == whole), Some(true));
}

/// The size in the header and what is there; None if that is damaged or large.
fn unpacked(stream: &[u8]) -> Option<(u64, Vec<u8>)> {
    let mut reader = SparseReader::new(Cursor::new(stream)).ok()?;
    let (mut whole, mut buf, mut len) = (Vec::new(), vec![0; 1 << 14], 0);
    loop {
        let step = reader.step(&mut buf).ok()?;
        len += match step {
            SparseStep::Data(count) => count as u64,
            SparseStep::Zeros(count) => count,
            SparseStep::End => return Some((reader.size(), whole)),
        };
        assert!(len <= reader.size(), "more than the header says");
        if len > MOST {
            return None;
        }
        match step {
            SparseStep::Data(count) => whole.extend_from_slice(&buf[..count]),
            _ => whole.resize(len as usize, 0),
        }
    }
}

/// Writes an image in pieces that fit no block.
fn packed(to: File, image: &[u8]) {
    let mut writer = SparseWriter::new(to, image.len() as u64).expect("whole blocks");
    for piece in image.chunks(5000) {
        match piece.iter().all(|byte| *byte == 0) {
            true => writer.zeros(piece.len() as u64),
            false => writer.data(piece),
        }
        .expect("a file");
    }
    writer.finish().expect("a file");
}
