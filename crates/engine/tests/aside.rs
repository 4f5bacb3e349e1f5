//! Rule U5: on a full volume, a write into new space is either refused at once, or it succeeds, because the blocks that its
//! conversion needs were reserved. Without that the first round fails: data is written, but its conversion has to split leaves and
//! finds no free block.

use crate::common::fixture::writable;
use crate::common::{Rng, fsck, image, scaled, scratch};
use diorite::{Error, Fallocate, File, OpenOptions, Reason, Request, Volume};
use diorite_block::Buf;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

const KINDS: [&[&str]; 4] = [
    &["-t", "ext4", "-b", "1024", "-m", "0", "-J", "size=1"],
    &["-t", "ext4", "-b", "1024", "-m", "0", "-O", "^has_journal"],
    &[
        "-t", "ext4", "-b", "1024", "-m", "0", "-O", "bigalloc", "-C", "8192",
    ],
    &["-t", "ext3", "-b", "1024", "-m", "0", "-J", "size=1"],
];

fn make(dir: &Path, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("file"), b"").unwrap();
    std::fs::write(tree.join("filler"), b"").unwrap();
    image(dir, "16M", args, &tree)
}

/// Writes until there is no space, in smaller and smaller pieces.
fn fill(file: &File) {
    let mut pos = file.size();
    for len in [256 << 10, 16 << 10, 1 << 10] {
        loop {
            match file.write_at(pos, Buf::zeroed(len)).1 {
                Ok(done) => pos += done as u64,
                Err(Error::NoSpace { .. }) => break,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Writes single blocks all over the file, many in flight together. Returns the number that succeeded: all, if its space is promised.
fn scatter(
    volume: &Volume,
    file: &File,
    blocks: &mut Vec<u64>,
    model: &mut [u8],
    is_promised: bool,
) -> usize {
    let queue = volume.queue(16).unwrap();
    let id = queue.attach(file).unwrap();
    let (mut done, mut written, mut refused) = (Vec::new(), 0, 0);
    let mapped = |v: &Volume| {
        v.counters().deferred[Reason::Map as usize] + v.counters().deferred[Reason::Commit as usize]
    };
    let before = mapped(volume);
    while !blocks.is_empty() && refused < 64 {
        let mut batch = VecDeque::new();
        for at in blocks.drain(blocks.len().saturating_sub(16)..) {
            let mut buf = Buf::zeroed(1024);
            buf.as_mut_slice().fill(0x77);
            batch.push_back(Request::write(id, at * 1024, buf, at));
        }
        let count = batch.len();
        assert_eq!(queue.submit(&mut batch), count);
        while done.len() < count {
            queue.reap(&mut done, 1, None);
        }
        for completion in done.drain(..) {
            match completion.result {
                Ok(_) => {
                    let at = completion.pos as usize;
                    model[at..at + 1024].fill(0x77);
                    written += 1;
                }
                Err(Error::NoSpace { .. }) => refused += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    // Preallocated space takes every write: where the map has no room, zeros are written instead of a split.
    assert_eq!(refused == 0, is_promised, "{refused} were refused");
    // What found its extent zeroed by another write was an overwrite.
    let mapped = mapped(volume) - before;
    assert!(
        mapped == written as u64 || (is_promised && mapped < written as u64),
        "a write that went down did not end well: {mapped} of {written} were mapped"
    );
    queue.detach(id);
    written
}

#[test]
fn what_goes_down_can_be_mapped() {
    let mut rng = Rng::from_env("set aside");
    for args in KINDS {
        for _ in 0..scaled("DIORITE_ROUNDS", 4) {
            let dir = scratch();
            let image = make(dir.path(), args);
            let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
            let file = volume.open_path("/file", writable()).unwrap();
            let filler = volume.open_path("/filler", writable()).unwrap();
            let size = 6 << 20;
            let is_promised = args[1] == "ext4";
            match is_promised {
                true => file
                    .fallocate(Fallocate::Allocate { keep_size: false }, 0, size)
                    .unwrap(),
                false => file.truncate(size).unwrap(),
            }
            fill(&filler);
            volume.sync().unwrap();
            // Leaves a few blocks free, or none.
            let spare = rng.below(12);
            if !is_promised || spare > 0 {
                let end = filler.size();
                filler.truncate(end - spare * 8192 - 8192).unwrap();
                volume.sync().unwrap();
            }
            let mut model = vec![0; size as usize];
            let mut blocks: Vec<u64> = (0..size / 2048).map(|n| 2 * n).collect();
            for n in (1..blocks.len()).rev() {
                blocks.swap(n, rng.below(n as u64 + 1) as usize);
            }
            let written = scatter(&volume, &file, &mut blocks, &mut model, is_promised);
            assert!(written > 0, "{args:?}");
            let mut found = vec![0xee; size as usize];
            file.read_bytes(0, &mut found).unwrap();
            assert!(found == model, "{args:?}");
            // Once there is space again, writes succeed.
            filler.truncate(0).unwrap();
            volume.sync().unwrap();
            let at = blocks.pop().unwrap_or(0);
            assert_eq!(file.write_at(at * 1024, Buf::zeroed(1024)).1.unwrap(), 1024);
            drop((file, filler));
            volume.close().unwrap();
            fsck(&image);
        }
    }
}
