//! A full volume: the last block can be used; a request that does not fit is refused and has changed nothing (rules G7, G8, U9,
//! U10).
//!
//! Input: a small volume. Output: none. Invariants: a write returns its full length or an error; e2fsck judges the end. Limits: one thread.

use crate::common::fixture::{LIMIT, every_block, filled, run_all, writable};
use crate::common::fsck;
use crate::common::recipe::{RECIPES, Recipe, bare};
use crate::common::scratch;
use crate::common::stage::Stage;
use crate::common::watch::Watchdog;
use crate::rules::bed::Bed;
use diorite::{Error, Fallocate, File, Queue, Request, RequestFlags, Volume};

const SMALL: [Recipe; 3] = [
    Recipe {
        name: "ext4-1k",
        args: &["-t", "ext4", "-b", "1024", "-m", "0"],
        size: "8M",
        ..RECIPES[1]
    },
    Recipe {
        name: "ext2-1k",
        args: &["-t", "ext2", "-b", "1024", "-m", "0"],
        size: "4M",
        ..RECIPES[2]
    },
    Recipe {
        name: "ext4-4k",
        args: &["-t", "ext4", "-b", "4096", "-m", "0"],
        size: "12M",
        ..RECIPES[0]
    },
];

fn is_full(result: &Result<usize, Error>) -> bool {
    matches!(result, Err(e) if matches!(e.root(), Error::NoSpace { .. }))
}

/// Appends `step` bytes repeatedly until there is no space. Returns the size.
fn fill(file: &File, step: usize) -> u64 {
    loop {
        let size = file.size();
        let (_, result) = file.call(
            diorite::Op::Append,
            0,
            filled(0x44, step),
            RequestFlags::default(),
        );
        if is_full(&result) {
            assert_eq!(file.size(), size, "rule U10");
            return size;
        }
        assert_eq!(result.unwrap(), step, "rule G7");
    }
}

fn free_blocks(stage: &Stage) -> u64 {
    stage.save();
    let text = crate::common::run("dumpe2fs", &["-h", stage.image.to_str().unwrap()]);
    let line = text
        .lines()
        .find(|l| l.starts_with("Free blocks:"))
        .unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

fn opened(stage: &Stage) -> (Volume, File, Queue) {
    let volume = stage.open(&every_block()).unwrap();
    let file = volume.open_path("/empty", writable()).unwrap();
    let queue = volume.queue(16).unwrap();
    (volume, file, queue)
}

/// Rule G8. Large appends until one does not fit, then small ones: no block is left in the end that the file could use.
#[test]
fn the_last_block_can_be_used() {
    for recipe in &SMALL {
        let _watchdog = Watchdog::new(LIMIT, recipe.name);
        let dir = scratch();
        let stage = Stage::mem(&bare(dir.path(), recipe));
        let (volume, file, queue) = opened(&stage);
        fill(&file, 512 << 10);
        let size = fill(&file, recipe.block as usize);
        drop(queue);
        let mut bytes = vec![0; size as usize];
        assert_eq!(file.read_bytes(0, &mut bytes).unwrap() as u64, size);
        assert!(bytes.iter().all(|b| *b == 0x44));
        drop(file);
        volume.close().unwrap();
        // The missing block may be one for pointers.
        let left = free_blocks(&stage);
        assert!(left <= 2, "{}: {left} blocks are free", recipe.name);
        fsck(&stage.image);
    }
}

/// Rule G8. A write over many holes runs out of space in the middle: the size is unchanged, every byte is old data or zeros, and
/// the blocks that were claimed for the write can be used by others.
#[test]
fn no_space_in_the_middle_of_a_write() {
    for recipe in &SMALL {
        let _watchdog = Watchdog::new(LIMIT, recipe.name);
        let dir = scratch();
        let stage = Stage::mem(&bare(dir.path(), recipe));
        let (volume, file, queue) = opened(&stage);
        let sparse = volume.open_path("/sparse", writable()).unwrap();
        let block = recipe.block as usize;
        // Every fourth block of the file is written, then all but a few of the volume's blocks are allocated elsewhere.
        for n in (0..64u64).step_by(4) {
            assert_eq!(
                sparse
                    .write_buf(n * recipe.block, filled(1, block))
                    .1
                    .unwrap(),
                block
            );
        }
        let size = fill(&file, 16 * block);
        let blocks = sparse.metadata().blocks;
        let id = queue.attach(&sparse).unwrap();
        for nowait in [false, true, false] {
            let flags = RequestFlags::default().nowait(nowait);
            let whole = Request::write(id, 0, filled(2, 64 * block), 0).with_flags(flags);
            let result = &run_all(&queue, vec![whole])[0].result;
            let refused = is_full(result) || nowait && matches!(result, Err(Error::WouldBlock(_)));
            assert!(refused, "{}: {result:?}", recipe.name);
            assert_eq!((sparse.size(), sparse.metadata().blocks), (1 << 20, blocks));
            let mut bytes = vec![0; 64 * block];
            sparse.read_bytes(0, &mut bytes).unwrap();
            for (n, bytes) in bytes.chunks(block).enumerate() {
                assert!(
                    bytes.iter().all(|b| *b == u8::from(n % 4 == 0)),
                    "block {n}"
                );
            }
        }
        // The blocks that it had claimed are free for others.
        assert!(fill(&file, block) > size || free_after(&volume, &stage) <= 2);
        drop((file, sparse, queue));
        volume.close().unwrap();
        stage.fsck();
    }
}

fn free_after(volume: &Volume, stage: &Stage) -> u64 {
    let file = volume.open_path("/empty", writable()).unwrap();
    file.sync().unwrap();
    free_blocks(stage)
}

/// Rules U9, U10. The space runs out while appends are in flight: no two get the same place, and a place whose append failed after
/// its data was written reads as zeros.
#[test]
fn appends_without_space_overwrite_nothing() {
    for recipe in &SMALL {
        let _watchdog = Watchdog::new(LIMIT, recipe.name);
        let dir = scratch();
        let stage = Stage::mem(&bare(dir.path(), recipe));
        let (volume, file, queue) = opened(&stage);
        let id = queue.attach(&file).unwrap();
        let block = recipe.block as usize;
        fill(&file, 16 * block);
        let start = file.size();
        let requests = (0..16u64)
            .map(|n| {
                let blocks = if n % 2 == 0 { 8 } else { 1 };
                Request::append(id, filled(n as u8 + 1, blocks * block), n)
            })
            .collect();
        let mut at = start;
        let mut done = run_all(&queue, requests);
        done.retain(|d| !is_full(&d.result));
        done.sort_by_key(|d| d.pos);
        for done in &done {
            let len = *done.result.as_ref().unwrap() as u64;
            assert!(done.pos >= at, "{}: a place given twice", recipe.name);
            let mut bytes = vec![0; (done.pos + len - at) as usize];
            assert_eq!(file.read_bytes(at, &mut bytes).unwrap(), bytes.len());
            let (gap, data) = bytes.split_at((done.pos - at) as usize);
            assert!(gap.iter().all(|b| *b == 0), "{}: gap", recipe.name);
            assert!(data.iter().all(|b| u64::from(*b) == done.token + 1));
            at = done.pos + len;
        }
        assert_eq!(file.size(), at);
        drop((file, queue));
        volume.close().unwrap();
        stage.fsck();
    }
}

/// Rule U10. Failed writes past the end, of more bytes in all than the volume has: the size is unchanged, and as much space is left
/// as without them.
#[test]
fn what_failed_keeps_no_space() {
    for recipe in &SMALL {
        let _watchdog = Watchdog::new(LIMIT, recipe.name);
        let ends = [false, true].map(|fails| {
            let bed = Bed::new(recipe, &every_block());
            let (file, queue, id) = bed.open("/empty");
            bed.valve.fail(&[2]);
            for n in (0..if fails { 240 } else { 0 }).step_by(8) {
                // Just past the end, and far past it.
                let append = |n| Request::append(id, filled(2, 64 << 10), n);
                let write = |n| Request::write(id, n << 16, filled(2, 64 << 10), n);
                let requests = (n..n + 8).map(|n| if n % 2 == 0 { append(n) } else { write(n) });
                let done = run_all(&queue, requests.collect());
                assert!(done.iter().all(|d| d.result.is_err()), "{done:?}");
                assert_eq!((file.size(), file.metadata().blocks), (0, 0));
            }
            fill(&file, 512 << 10);
            let end = fill(&file, recipe.block as usize);
            drop((file, queue));
            bed.finish();
            end
        });
        // Another order of claims may need one node of the map more or less.
        let lost = ends[0].abs_diff(ends[1]) / recipe.block;
        assert!(lost <= 2, "{}: {ends:?}", recipe.name);
    }
}

/// Rule U9. An append that gets no space leaves no gap: the next one follows the one before it, which is still in flight.
#[test]
fn an_append_without_space_leaves_no_gap() {
    for recipe in &SMALL {
        let _watchdog = Watchdog::new(LIMIT, recipe.name);
        let bed = Bed::new(recipe, &every_block());
        let (file, queue, id) = bed.open("/empty");
        bed.valve.hold(&[1]);
        let lens = [4096, 16 << 20, 8192];
        let append = |n: usize| Request::append(id, filled(n as u8 + 1, lens[n]), n as u64);
        queue.submit(&mut (0..3).map(append).collect());
        let mut done = Vec::new();
        while done.is_empty() {
            queue.reap(&mut done, 1, None);
        }
        assert!(is_full(&done[0].result), "{}: {done:?}", recipe.name);
        bed.valve.hold(&[]);
        while done.len() < 3 {
            queue.reap(&mut done, 1, None);
        }
        done.sort_by_key(|d| d.token);
        assert_eq!((done[0].pos, done[2].pos), (0, 4096), "{}", recipe.name);
        assert_eq!(file.size(), 12_288);
        drop((file, queue));
        bed.judge();
    }
}

/// All blocks are in use, and the root of the map has no room for another extent. A range operation succeeds if it splits no
/// extent: punching the beginning or the end of extents, inserting between two. One that needs another extent is refused and
/// changes nothing (rule G8).
#[test]
fn what_splits_no_extent_needs_no_space() {
    let _watchdog = Watchdog::new(LIMIT, "no space for a node");
    let bed = Bed::new(&SMALL[0], &every_block());
    let (filler, ..) = bed.open("/empty");
    let [file, last] = ["/file", "/last"].map(|path| bed.volume.create(path, 0o600).unwrap());
    let mut model = vec![0; 70 << 10];
    // As many extents as fit into the inode.
    for start in [0, 20, 40, 60].map(|block| block << 10) {
        let written = file.write_buf(start, filled(0x66, 10 << 10)).1;
        assert_eq!(written.unwrap(), 10 << 10);
        model[start as usize..][..10 << 10].fill(0x66);
    }
    fill(&filler, 512 << 10);
    let same = |model: &[u8], what: &str| {
        let mut bytes = vec![0xEE; file.size() as usize];
        assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), model.len());
        assert!(bytes == model, "{what}");
    };
    for (mode, from, to) in [
        (Fallocate::PunchHole, 0, 3),
        (Fallocate::PunchHole, 27, 30),
        (Fallocate::PunchHole, 47, 63),
        (Fallocate::InsertRange, 20, 25),
    ] {
        fill(&filler, 1 << 10);
        fill(&last, 1 << 10);
        let what = format!("{mode:?} of {from}..{to}");
        for splits in [(Fallocate::PunchHole, 4), (Fallocate::InsertRange, 5)] {
            let full = file.fallocate(splits.0, splits.1 << 10, 1 << 10);
            assert!(is_full(&full.map(|()| 0)), "{what}, {splits:?}");
            same(&model, &what);
        }
        let (pos, end) = (from << 10, to << 10);
        let done = file.fallocate(mode, pos as u64, (end - pos) as u64);
        assert!(done.is_ok(), "{what}: {done:?}");
        match mode {
            Fallocate::InsertRange => drop(model.splice(pos..pos, vec![0; end - pos])),
            _ => model[pos..end].fill(0),
        }
        same(&model, &what);
        bed.volume.sync().unwrap();
    }
    drop((file, filler, last));
    bed.finish();
}
