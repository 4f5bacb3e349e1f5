//! Calls of open files: blocking reads and writes, ranges, maps.
//!
//! Input: a world and randomness. Output: open files with other contents. Invariant: buffers come back whole. Limits: twelve open files.

use crate::common::Rng;
use crate::values::{self, length, number, one, path, rarely};
use crate::world::{World, expect};
use diorite::{File, Seek};

pub fn file(world: &mut World, rng: &mut Rng) -> Option<File> {
    if world.files.is_empty() {
        open(world, rng);
    }
    let at = rng.below(world.files.len().max(1) as u64) as usize;
    world.files.get(at).cloned()
}

pub fn open(world: &mut World, rng: &mut Rng) {
    let (path, flags) = (path(rng), values::open_flags(rng));
    let found = match rng.below(4) {
        0 => world.volume.create(&path, number(rng) as u16),
        1 => world
            .volume
            .temporary(if rarely(rng, 2) { &b"/"[..] } else { &path[..] }, 0o600),
        _ => world.volume.open_path(&path, flags),
    };
    // Directories take no data, so most are dropped: most calls are to have a file.
    let keeps = |file: &File| file.metadata().is_file() || rarely(rng, 8);
    if let Some(file) = expect(found).filter(keeps) {
        world.files.push(file);
    }
    if world.files.len() > 12 {
        world.files.swap_remove(rng.below(12) as usize);
    }
}

pub fn let_go(world: &mut World, rng: &mut Rng) {
    if !world.files.is_empty() {
        let at = rng.below(world.files.len() as u64) as usize;
        world.files.swap_remove(at);
    }
}

pub fn blocking(world: &mut World, rng: &mut Rng) {
    let Some(file) = file(world, rng) else { return };
    let (pos, buf) = (number(rng), values::buf(rng));
    let asked = buf.len();
    match rng.below(9) {
        0 => drop(expect(file.sync())),
        1 => drop(expect(file.sync_data())),
        2 => drop(expect(file.append_buf(buf).1)),
        3 => {
            let (back, result) = file.write_last(pos, buf, number(rng));
            assert_eq!(back.len(), asked);
            expect(result);
        }
        4 => {
            let mut out = vec![0; one(rng, &[0usize, 1, 511, 4096, 70_000])];
            let count = expect(file.read_bytes(pos, &mut out));
            assert!(count.is_none_or(|n| n <= out.len()));
        }
        5 | 6 => {
            let (back, result) = file.write_buf(pos, buf);
            assert_eq!(back.len(), asked, "the buffer comes back whole: {result:?}");
            assert!(expect(result).is_none_or(|n| n == asked), "rule G7");
        }
        7 => {
            let (op, flags) = (values::op(rng), values::request_flags(rng));
            let (back, result) = file.call(op, pos, buf, flags);
            assert_eq!(back.len(), asked, "{op:?}: {result:?}");
            expect(result);
        }
        _ => {
            let (back, result) = file.read_buf(pos, buf);
            assert_eq!(back.len(), asked);
            assert!(expect(result).is_none_or(|n| n <= asked));
        }
    }
}

pub fn range(world: &mut World, rng: &mut Rng) {
    let Some(file) = file(world, rng) else { return };
    match rng.below(4) {
        0 => drop(expect(file.truncate(number(rng)))),
        _ => drop(expect(file.fallocate(
            values::fallocate(rng),
            number(rng),
            length(rng),
        ))),
    }
    // So that not every file has the largest size.
    if rarely(rng, 3) {
        expect(file.truncate(rng.below(256) * 512));
    }
}

pub fn look(world: &mut World, rng: &mut Rng) {
    let Some(file) = file(world, rng) else { return };
    match rng.below(3) {
        0 => {
            let from = number(rng);
            let what = one(rng, &[Seek::Data, Seek::Hole]);
            let found = expect(file.seek_next(from, what)).flatten();
            assert!(found.is_none_or(|at| at >= from), "{found:?} from {from}");
        }
        1 => {
            let mappings = expect(file.mappings(number(rng), number(rng)));
            assert!(mappings.is_none_or(|all| all.iter().all(|m| m.len > 0)));
        }
        _ => {
            let _ = (file.size(), file.ino(), file.metadata());
        }
    }
}
