//! How a list of blocks is turned into bios.

use crate::disk::home::*;
use crate::testing::small_volume;

/// Neighbours go together, at most `RUN` of them; each bio is where its first block is and has the bytes of all. What goes to the volume's
/// own device is counted as written.
#[test]
fn neighbours_go_together() {
    let volume = small_volume("16M", &[]);
    let volume = volume.inner();
    let size = volume.block_size() as usize;
    let places = [5, 6, 7, 9, 20, 21]
        .into_iter()
        .chain(100..101 + RUN as u64);
    let blocks: Vec<(FsBlock, Vec<u8>)> = places
        .map(|at| (FsBlock::new(at), vec![at as u8; size]))
        .collect();
    let before = volume.kbytes_written();
    let bios = volume.in_runs(
        &volume.blocking,
        blocks.iter().map(|(at, bytes)| (*at, bytes)),
    );
    let runs: Vec<(u64, usize)> = bios
        .iter()
        .map(|bio| (bio.pos / size as u64, bio.buf.len() / size))
        .collect();
    let last = 100 + RUN as u64;
    assert_eq!(runs, [(5, 3), (9, 1), (20, 2), (100, RUN), (last, 1)]);
    for bio in &bios {
        assert_eq!(bio.pos % size as u64, 0);
        let first = bio.pos / size as u64;
        for (at, bytes) in (first..).zip(bio.buf.as_slice().chunks(size)) {
            assert!(bytes.iter().all(|b| *b == at as u8), "block {at}");
        }
    }
    let kib = (blocks.len() * size / 1024) as u64;
    assert_eq!(volume.kbytes_written() - before, kib);
    // Nor is there a bio for no block, nor a count for another device.
    let none = std::iter::empty::<(FsBlock, Vec<u8>)>();
    assert!(volume.in_runs(&volume.blocking, none).is_empty());
    let elsewhere = Blocking::new(Arc::new(diorite_block::MemDevice::new(1 << 20)));
    let bios = volume.in_runs(&elsewhere, blocks.iter().map(|(at, bytes)| (*at, bytes)));
    assert_eq!(bios.len(), runs.len());
    assert_eq!(volume.kbytes_written() - before, kib);
}

/// The first error of several writes is told.
#[test]
fn one_failed_write_is_told() {
    let volume = small_volume("16M", &[]);
    let blocking = &volume.inner().blocking;
    let good = Bio::write(0, Buf::zeroed(512), 0);
    let mut bad = Bio::write(4096, Buf::zeroed(512), 0);
    bad.result = Err(diorite_block::BioError::new(
        diorite_block::BioErrorKind::Io,
    ));
    assert!(well(blocking, [good].into()).is_ok());
    let good = Bio::write(0, Buf::zeroed(512), 0);
    let told = well(blocking, [good, bad].into()).unwrap_err();
    assert!(
        matches!(
            told,
            Error::Device {
                pos: 4096,
                len: 512,
                ..
            }
        ),
        "{told}"
    );
}
