//! [`diorite::File`] as a reader and writer of the standard library.

use crate::common::Rng;
use crate::common::names::{fresh, open};
use diorite::OpenFlags;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;

/// Slices of all lengths are one write, and are filled one behind the other.
#[test]
fn several_slices_are_one() {
    let (_dir, _image, volume) = fresh("32M", &["-t", "ext4", "-b", "4096"]);
    let mut rng = Rng::from_env("cached std_io");
    let lengths = [0, 1, 511, 4096, 100_000, (1 << 20) - 1, 1 << 20, 3 << 20];
    for n in 0..30 {
        let mut file = volume.create(&format!("/{n}"), 0o644).unwrap();
        let mut parts: Vec<Vec<u8>> = Vec::new();
        for _ in 0..rng.below(8) {
            let mut part = vec![0; lengths[rng.below(lengths.len() as u64) as usize]];
            rng.fill(&mut part);
            parts.push(part);
        }
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|p| IoSlice::new(p)).collect();
        let all = parts.concat();
        assert_eq!(file.write_vectored(&slices).unwrap(), all.len());
        assert_eq!(file.stream_position().unwrap(), all.len() as u64);
        file.rewind().unwrap();
        let mut back: Vec<Vec<u8>> = parts.iter().rev().map(|p| vec![0; p.len()]).collect();
        back.push(vec![7; 10]);
        let mut slices: Vec<IoSliceMut<'_>> = back.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        assert_eq!(file.read_vectored(&mut slices).unwrap(), all.len());
        let back = back.concat();
        assert!(back[..all.len()] == all && back[all.len()..] == [7; 10]);
        drop(file);
        volume.unlink(format!("/{n}").as_str()).unwrap();
    }
}

/// What `FileExt` returns, and leaves in the buffer and in the file, is what a file of the host does: at the end and behind it, for no
/// bytes, in holes, and for offsets that no file can have. The defect: an offset of 2^63 and more read nothing, without an error.
#[test]
fn offsets_are_those_of_a_file_of_the_host() {
    let (dir, _image, volume) = fresh("32M", &["-t", "ext4", "-b", "4096"]);
    let ours = volume.create("/file", 0o644).unwrap();
    let host = std::fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(dir.path().join("host"))
        .unwrap();
    let mut rng = Rng::from_env("cached std_io offsets");
    let far = [1 << 40, i64::MAX as u64, 1 << 63, u64::MAX];
    for step in 0..2000 {
        let end = ours.size();
        assert_eq!(end, host.metadata().unwrap().len(), "step {step}");
        let near = end.saturating_add(rng.below(9)).saturating_sub(4);
        let at = [rng.below(100_000), near, far[rng.below(4) as usize]][rng.below(3) as usize];
        let len = [0, rng.below(10), rng.below(10_000)][rng.below(3) as usize] as usize;
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        // Bytes at offsets that one of the two can have and the other cannot are of no interest.
        if rng.below(2) == 0 && (!(1 << 20..1 << 63).contains(&at) || len == 0) {
            let kinds = [ours.write_at(&bytes, at), host.write_at(&bytes, at)];
            let [ours, host] = kinds.map(|done| done.map_err(|e| e.kind()));
            assert_eq!(ours, host, "step {step}: a write of {len} at {at}");
        } else {
            let mut of_host = bytes.clone();
            let kinds = [ours.read_at(&mut bytes, at), host.read_at(&mut of_host, at)];
            let [ours, host] = kinds.map(|done| done.map_err(|e| e.kind()));
            assert_eq!(ours, host, "step {step}: a read of {len} at {at}");
            assert!(bytes == of_host, "step {step}: a read of {len} at {at}");
        }
    }
}

/// The provided methods of the standard library work, and errors have the kind that the kernel's errno has.
#[test]
fn the_standard_library_reads_and_writes() {
    let (_dir, image, volume) = fresh("8M", &["-t", "ext4", "-b", "4096"]);
    let mut file = volume.create("/file", 0o644).unwrap();
    std::io::copy(&mut &[5; 100_000][..], &mut file).unwrap();
    file.write_all_at(b"here", 50_000).unwrap();
    let mut four = [0; 4];
    file.read_exact_at(&mut four, 50_000).unwrap();
    assert_eq!(&four, b"here");
    let behind = file.read_exact_at(&mut four, 99_998).unwrap_err();
    assert_eq!(behind.kind(), ErrorKind::UnexpectedEof);
    file.seek(SeekFrom::End(-2)).unwrap();
    let mut end = Vec::new();
    file.read_to_end(&mut end).unwrap();
    assert_eq!(end, [5, 5]);
    let full = std::io::copy(&mut std::io::repeat(1), &mut file).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
    let source = std::error::Error::source(&full).or(full.get_ref().map(|e| e as _));
    assert!(source.is_some_and(|e| e.is::<diorite::Error>()));
    drop(file);
    volume.close().unwrap();
    let volume = open(&image, false);
    let mut file = volume.open_path("/file", OpenFlags::default()).unwrap();
    assert!(file.write(b"x").is_err(), "opened for reading");
    let start = file.seek(SeekFrom::End(i64::MIN)).unwrap_err();
    assert_eq!(start.kind(), ErrorKind::InvalidInput);
}
