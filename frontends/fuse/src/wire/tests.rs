//! Requests that are cut off or make no sense, and the lengths of replies.

use super::input::{Body, HEADER, Header, groups};
use super::output::{ENTRY, Put, Record, put_no_entry, rdev};
use diorite_format::FileType;
use rustix::io::Errno;

#[test]
fn a_request_that_is_cut_off_is_an_error() {
    let mut whole = Vec::new();
    whole.u32(56);
    whole.u32(super::op::LOOKUP);
    whole.u64(7);
    whole.u64(1);
    for id in [1000, 100, 4242] {
        whole.u32(id);
    }
    whole.u16(2);
    whole.u16(0);
    assert_eq!(whole.len(), HEADER);
    let header = Header::parse(&whole).expect("a header");
    assert_eq!((header.op, header.unique, header.node), (1, 7, 1));
    assert_eq!((header.uid, header.gid, header.extensions), (1000, 100, 16));
    for len in 0..HEADER - 2 {
        assert_eq!(Header::parse(&whole[..len]).err(), Some(Errno::IO));
    }
}

#[test]
fn names_end_and_are_neither_empty_nor_too_long() {
    let name = |bytes: &[u8]| Body::new(bytes).name().map(<[u8]>::to_vec);
    assert_eq!(name(b"a\0rest"), Ok(b"a".to_vec()));
    assert_eq!(name(b"a"), Err(Errno::IO));
    assert_eq!(name(b"\0"), Err(Errno::IO));
    let mut long = vec![b'n'; 256];
    long.push(0);
    assert_eq!(name(&long), Err(Errno::NAMETOOLONG));
    assert_eq!(name(&long[1..]), Ok(vec![b'n'; 255]));
    let mut two = Body::new(b"from\0to\0");
    assert_eq!((two.name(), two.name()), (Ok(&b"from"[..]), Ok(&b"to"[..])));
    assert_eq!(two.u32(), Err(Errno::IO));
}

/// A size or a count that is larger than what came is not believed.
#[test]
fn groups_are_found_among_extensions() {
    let extension = |size: u32, kind: u32, words: &[u32]| {
        let mut bytes = Vec::new();
        bytes.u32(size);
        bytes.u32(kind);
        words.iter().for_each(|word| bytes.u32(*word));
        bytes
    };
    let other = extension(16, 1, &[9, 9]);
    let ours = extension(16, super::EXT_GROUPS, &[1, 555]);
    assert_eq!(groups(&[other, ours].concat()), [555]);
    assert_eq!(
        groups(&extension(16, super::EXT_GROUPS, &[u32::MAX, 5])),
        [5]
    );
    for broken in [
        extension(u32::MAX, super::EXT_GROUPS, &[1, 5]),
        extension(0, 7, &[]),
        extension(16, super::EXT_GROUPS, &[1]),
        vec![1, 2, 3],
    ] {
        assert_eq!(groups(&broken), Vec::<u32>::new());
    }
}

#[test]
fn replies_have_the_lengths_of_the_protocol() {
    let mut none = Vec::new();
    put_no_entry(&mut none);
    assert_eq!(none.len(), ENTRY);
    for len in [1, 8, 9, 255] {
        let record = Record {
            ino: 12,
            position: 34,
            kind: Some(FileType::Symlink),
            name: &vec![b'x'; len],
        };
        let mut out = Vec::new();
        record.put(&mut out);
        assert_eq!(out.len(), record.len(false));
        assert_eq!(record.len(true), out.len() + ENTRY);
        assert_eq!(out[20..24], 10_u32.to_ne_bytes(), "DT_LNK");
    }
}

#[test]
fn device_numbers_are_those_of_the_host() {
    for (major, minor) in [(1, 3), (8, 257), (259, 70_000), (4095, 0xF_FFFF)] {
        let number = (minor & 0xFF) | major << 8 | (minor & !0xFF) << 12;
        let found = rdev(number);
        assert_eq!((found.major, found.minor), (major, minor));
    }
}
