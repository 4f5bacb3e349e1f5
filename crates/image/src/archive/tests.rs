//! Archives with flipped, lost and repeated bytes: an error or a tree, never a panic.

use super::*;
use diorite::mkfs::MkfsOptions;

/// A step of splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Every kind of entry, with records, long names and a sparse file.
fn sample() -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut add = |path: &str, kind: EntryType, link: &str, data: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_mtime(1_700_000_000);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(data.len() as u64);
        if link.is_empty() {
            builder.append_data(&mut header, path, data).unwrap();
        } else {
            builder.append_link(&mut header, path, link).unwrap();
        }
    };
    add("dir/", EntryType::Directory, "", b"");
    add("dir/file", EntryType::Regular, "", &[b'x'; 5000]);
    add("dir/hard", EntryType::Link, "dir/file", b"");
    add("link", EntryType::Symlink, "dir", b"");
    add("pipe", EntryType::Fifo, "", b"");
    add(&"n".repeat(200), EntryType::Regular, "", b"long");
    let mut records = Vec::new();
    for text in [
        "GNU.sparse.major=1",
        "GNU.sparse.minor=0",
        "GNU.sparse.name=sparse",
        "GNU.sparse.realsize=100000",
        "mtime=1700000000.25",
        "SCHILY.acl.access=u::rw,g::r,o::-",
    ] {
        // Two digits, a blank and a newline.
        records.extend(format!("{} {text}\n", text.len() + 4).bytes());
    }
    add("x", EntryType::XHeader, "", &records);
    let mut map = b"2\n0\n600\n50000\n100\n".to_vec();
    map.resize(512 + 700, 7);
    add("stored", EntryType::Regular, "", &map);
    builder.into_inner().unwrap()
}

/// The sum of each block that looks like a header is made right, so that changes behind it are seen.
fn summed(bytes: &mut [u8]) {
    for block in bytes.chunks_mut(512).filter(|block| block.len() == 512) {
        if &block[257..262] == b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        }
    }
}

#[test]
fn damaged_archives_are_errors_or_trees() {
    let seed = std::env::var("DIORITE_SEED")
        .ok()
        .and_then(|s| s.parse().ok());
    let mut state = seed.unwrap_or(0x00d1_0417_e000_0017);
    eprintln!("DIORITE_SEED={state}");
    let steps = std::env::var("DIORITE_STEPS")
        .ok()
        .and_then(|s| s.parse().ok());
    let (whole, spool) = (sample(), tempfile::tempdir().unwrap());
    let import = |bytes: &[u8]| {
        let mut assembly = Assembly::new(&MkfsOptions::new([1; 16], [2; 16], 3));
        assembly.rules.spool_in = Some(spool.path().to_owned());
        assembly.next_layer();
        add_stream(&mut assembly, bytes, Whiteouts::Apply).map(|()| assembly.count())
    };
    assert_eq!(import(&whole).unwrap(), (6, 5704));
    let (mut trees, mut errors) = (0, 0);
    for n in 0..steps.unwrap_or(3000) {
        let mut bytes = whole.clone();
        for _ in 0..next(&mut state) % 4 {
            let at = next(&mut state) as usize % bytes.len();
            match next(&mut state) % 4 {
                0 => bytes[at] ^= 1 << (next(&mut state) % 8),
                1 => bytes[at] = b'0' + (next(&mut state) % 10) as u8,
                2 => bytes.truncate(at.max(1)),
                _ => {
                    let len = (next(&mut state) as usize % 600).min(bytes.len() - at);
                    let to = next(&mut state) as usize % (bytes.len() - len + 1);
                    bytes.copy_within(at..at + len, to);
                }
            }
        }
        if n % 2 == 0 {
            summed(&mut bytes);
        }
        match import(&bytes) {
            Ok(_) => trees += 1,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                errors += 1;
            }
        }
    }
    assert!(trees > 10 && errors > 10, "{trees} trees, {errors} errors");
}
