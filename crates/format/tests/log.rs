//! A log written with only this crate and plain file I/O, replayed by e2fsck: copies are replayed, also one that looks like a
//! block of the log, and a revoked one is not.
#![allow(clippy::unwrap_used)]

mod common;

use common::change::edit_super;
use common::{Image, Volume, run};
use diorite_format::journal::write::{self, LogPosition, Tag};
use diorite_format::journal::{JournalSuper, MAGIC};
use diorite_format::{FsBlock, Ino, Tid};

/// The journal of an image.
struct Log<'a> {
    image: &'a Image,
    map: Vec<(u64, FsBlock)>,
    journal: JournalSuper,
    next: u32,
}

impl Log<'_> {
    fn put(&mut self, v: &Volume, block: &[u8]) {
        let place = self.map[self.next as usize].1;
        self.image.put(v.sb.byte_of(place).get(), block);
        self.next += 1;
    }

    /// One transaction: copies with their places, and revoked blocks.
    fn transaction(
        &mut self,
        v: &Volume,
        tid: Tid,
        copies: &[(FsBlock, Vec<u8>)],
        gone: &[FsBlock],
    ) {
        let mut block = vec![0; v.sb.block_size() as usize];
        if !gone.is_empty() {
            write::revoke(&self.journal, tid, gone, &mut block);
            self.put(v, &block);
        }
        let mut stored = copies.to_vec();
        let tags: Vec<Tag> = stored
            .iter_mut()
            .map(|(place, copy)| Tag {
                block: *place,
                escaped: write::escape(copy),
                sum: write::block_sum(&self.journal, tid, copy),
            })
            .collect();
        write::descriptor(&self.journal, tid, &tags, &mut block);
        self.put(v, &block);
        for (_, copy) in &stored {
            self.put(v, copy);
        }
        write::commit(&self.journal, tid, 1_600_000_000, 5, &mut block);
        self.put(v, &block);
    }
}

fn examine(features: &str) {
    let args = ["-t", "ext4", "-b", "1024", "-O", features];
    let Some(image) = Image::make(&args, "64M", 10) else {
        return;
    };
    let v = Volume::open(&image.path);
    let map = v.map(&v.inode(Ino::JOURNAL));
    let at = v.sb.byte_of(map[0].1).get();
    let mut raw = v.bytes(at, 1024);
    let wide = v.sb.features().names().contains(&"64bit".to_owned());
    write::modernise(&mut raw, wide, v.sb.has_metadata_csum());
    let journal = JournalSuper::parse(&raw, 1024, map.len() as u64).unwrap();
    let (first, tid) = (journal.first, journal.sequence);
    let mut log = Log {
        image: &image,
        map,
        journal,
        next: first,
    };
    let data: Vec<FsBlock> = v.map(&v.lookup("big")).iter().map(|(_, b)| *b).collect();
    let mut magic = vec![0x5A; 1024];
    magic[..4].copy_from_slice(&MAGIC.to_be_bytes());
    let copies = [
        (data[0], vec![1; 1024]),
        (data[1], magic),
        (data[2], vec![3; 1024]),
    ];
    log.transaction(&v, tid, &copies, &[]);
    let later = [(data[3], vec![4; 1024])];
    log.transaction(&v, Tid::new(tid.get() + 1), &later, &[data[2]]);
    let position = LogPosition {
        start: first,
        sequence: tid,
    };
    write::set_position(&mut raw, position);
    image.put(at, &raw);
    edit_super(&image, |e| e.set_needs_recovery(true));

    let untouched = v.block(data[2]);
    let (code, text) = run("e2fsck", &["-fy", image.path.to_str().unwrap()]).unwrap();
    assert!(
        code <= 1 && text.contains("recovering journal"),
        "{code}: {text}"
    );
    image.assert_clean();
    let v = Volume::open(&image.path);
    for (block, expected) in copies.iter().take(2).chain(&later) {
        assert!(v.block(*block) == *expected, "{block:?}");
    }
    assert!(v.block(data[2]) == untouched, "revoked");
    assert!(!v.sb.needs_recovery());
}

#[test]
fn sums_of_version_3() {
    examine("64bit,metadata_csum");
}

#[test]
fn sums_of_version_3_and_32_bits() {
    examine("^64bit,metadata_csum");
}

#[test]
fn no_sums() {
    examine("64bit,^metadata_csum");
}

#[test]
fn no_sums_and_32_bits() {
    examine("^64bit,^metadata_csum");
}
