//! Limits: extreme numbers from callers, maps of very many pieces, and maps that have no end (rules D5, D7).
//!
//! Input: small volumes. Output: none. Invariants: what is refused has changed nothing; e2fsck judges the end. Limits: the cases of a
//! few requests.

use crate::common::fixture::{LIMIT, filled, run_all, writable};
use crate::common::recipe::{RECIPES, bare, debugfs};
use crate::common::stage::Stage;
use crate::common::watch::Watchdog;
use crate::common::{Rng, scratch};
use crate::rules::bed::{Bed, quiet};
use diorite::{Error, Fallocate, File, MappingState, OpenFlags, OpenOptions, Request, Seek};
use diorite_block::Buf;
use diorite_format::InodeFlags;
use std::path::{Path, PathBuf};

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0xEE; file.size() as usize];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Rule D7. The defect: punching a hole at 2^64 - 101 emptied the whole file, because rounding up its start wrapped to 0. No range
/// and no size near the limits of 64 bits touches a byte, and one that no file can have is refused as too big.
#[test]
fn ranges_at_the_end_of_numbers_touch_nothing() {
    let _watchdog = Watchdog::new(LIMIT, "ranges at the end of numbers");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/odd");
    let (before, blocks) = (contents(&file), file.metadata().blocks);
    let keep = |keep_size| {
        [
            Fallocate::Allocate { keep_size },
            Fallocate::ZeroRange { keep_size },
            Fallocate::WriteZeroes { keep_size },
        ]
    };
    let others = [
        Fallocate::PunchHole,
        Fallocate::CollapseRange,
        Fallocate::InsertRange,
    ];
    let modes: Vec<Fallocate> = [keep(false), keep(true), others].concat();
    let (max, most) = (u64::MAX, u64::from(u32::MAX) * 4096);
    let places = [
        max,
        max - 1,
        max - 100,
        max - 4095,
        max - 4096,
        1 << 63,
        (1 << 63) - 1,
    ];
    let lengths = [1, 50, 4095, 4096, 8192, 1 << 32, 1 << 63, max - 1, max];
    for mode in modes {
        for (pos, len) in places.iter().flat_map(|p| lengths.map(|l| (*p, l))) {
            let request = Request::fallocate(id, mode, pos, len, 0);
            let done = run_all(&queue, vec![request]).remove(0).result;
            let too_big = matches!(done, Err(Error::TooBig { .. }));
            assert!(too_big, "{mode:?} {len} at {pos}: {done:?}");
        }
        // Only start plus length wraps.
        let done = file.fallocate(mode, 4096, max - 4000);
        assert!(
            matches!(done, Err(Error::TooBig { .. })),
            "{mode:?}: {done:?}"
        );
    }
    for size in [most + 1, 1 << 63, max - 4095, max] {
        let done = file.truncate(size);
        assert!(
            matches!(done, Err(Error::TooBig { .. })),
            "{size}: {done:?}"
        );
    }
    assert_eq!(file.metadata().blocks, blocks);
    assert!(contents(&file) == before, "bytes of the file have changed");
    // The largest size of a file, and back.
    file.truncate(most).unwrap();
    assert_eq!(file.size(), most);
    file.truncate(before.len() as u64).unwrap();
    assert!(contents(&file) == before, "bytes of the file have changed");
    // The range of a hole may reach past the largest size of a file.
    file.fallocate(Fallocate::PunchHole, 4096, max - 4096)
        .unwrap();
    let now = contents(&file);
    assert!(now[..4096] == before[..4096] && now[4096..].iter().all(|b| *b == 0));
    bed.finish();
}

/// Rule D7. An append whose data goes through the journal may end at the largest size of a file, and not a sector past it.
#[test]
fn an_append_through_the_journal_ends_where_a_file_can() {
    let _watchdog = Watchdog::new(LIMIT, "the last append");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/empty");
    let flags = file.metadata().flags.with(InodeFlags::JOURNAL_DATA);
    file.set_flags(flags).unwrap();
    let most = u64::from(u32::MAX) * 4096;
    file.truncate(most - 1024).unwrap();
    let append = |len| run_all(&queue, vec![Request::append(id, filled(1, len), 0)]).remove(0);
    let too_big = |len| matches!(append(len).result, Err(Error::TooBig { .. }));
    assert!(too_big(1536));
    let done = append(1024);
    assert_eq!((done.result.unwrap(), done.pos), (1024, most - 1024));
    assert_eq!(file.size(), most);
    assert!(too_big(512));
    let mut bytes = [0xEE; 2048];
    file.read_bytes(most - 2048, &mut bytes).unwrap();
    assert!(bytes[..1024].iter().all(|b| *b == 0) && bytes[1024..].iter().all(|b| *b == 1));
    file.truncate(0).unwrap();
    drop((file, queue));
    bed.finish();
}

/// Rule D7. The defect: a vectored buffer of 4 GiB panicked inside the queue and its slot stayed taken. A request that is too
/// large, or whose range is not within its buffer, is refused, returned with its buffer, and leaves every slot free.
#[test]
fn requests_larger_than_a_slot_can_say_come_back() {
    let _watchdog = Watchdog::new(LIMIT, "4 GiB");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/odd");
    let before = contents(&file);
    let parts = |more: usize| {
        let half = || Buf::zeroed(1 << 31);
        Buf::from_parts(vec![half(), half(), Buf::zeroed(more)])
    };
    type Make = fn(diorite::FileId, Buf) -> Request;
    let of_data: [Make; 4] = [
        |id, buf| Request::read(id, 0, buf, 0),
        |id, buf| Request::write(id, 0, buf, 0),
        |id, buf| Request::append(id, buf, 0),
        |id, buf| Request::write_last(id, 0, buf, 100, 0),
    ];
    let of_others: [Make; 4] = [
        |id, buf| Request {
            buf,
            ..Request::sync(id, false, 0)
        },
        |id, buf| Request {
            buf,
            ..Request::sync(id, true, 0)
        },
        |id, buf| Request {
            buf,
            ..Request::truncate(id, 5, 0)
        },
        |id, buf| Request {
            buf,
            ..Request::fallocate(id, Fallocate::PunchHole, 0, 4096, 0)
        },
    ];
    let refused = |request: Request| {
        let (op, has) = (request.op, request.buf.len());
        let done = run_all(&queue, vec![request]).remove(0);
        let invalid = matches!(done.result, Err(Error::Invalid(_)));
        assert!(invalid, "{op:?} with {has} bytes: {:?}", done.result);
        assert_eq!((done.op, done.buf.len()), (op, has), "its buffer is back");
        assert_eq!((queue.in_use(), queue.free()), (0, queue.depth()));
    };
    for make in of_data {
        // Lengths that wrap to 0 and to one sector in 32 bits.
        for more in [0, 512] {
            refused(make(id, parts(more)));
        }
        refused(make(id, Buf::zeroed((1 << 30) + 512)));
    }
    for make in of_others {
        refused(make(id, Buf::zeroed(4096)));
    }
    for len in [4097, 1 << 32, (1 << 32) + 512, u64::MAX] {
        refused(Request::write_last(id, 98_304, Buf::zeroed(4096), len, 0));
    }
    assert!(contents(&file) == before, "bytes of the file have changed");
    // The largest request that is allowed is served.
    for (len, got) in [(512, 512), (1 << 30, 100_001)] {
        let done = run_all(&queue, vec![Request::read(id, 0, Buf::zeroed(len), 0)]);
        assert_eq!(*done[0].result.as_ref().unwrap(), got);
    }
    bed.finish();
}

/// Rule D5. The defect: a write into thousands of separate extents was converted in one handle, with credits for one run: its
/// transaction could become larger than the smallest journal. It is converted in parts, each with credits for what it changes.
#[test]
fn conversions_of_many_pieces_have_credits() {
    let watchdog = Watchdog::new(LIMIT, "pieces");
    // Unwritten blocks in many extents may need a node of the map for each when they are written.
    let kinds = [
        ("ext4", false, 1u64 << 20),
        ("ext4", true, 1 << 19),
        ("ext3", false, 1 << 19),
    ];
    for (kind, allocated, len) in kinds {
        let dir = scratch();
        let image = in_pieces(dir.path(), kind);
        watchdog.feed(format!("{kind}, {allocated}: the write"));
        let stage = Stage::mem(&image);
        let volume = stage.open(&quiet()).unwrap();
        let file = volume.open_path("/wide", writable()).unwrap();
        if allocated {
            let keep_size = false;
            file.fallocate(Fallocate::Allocate { keep_size }, 0, len)
                .unwrap();
        }
        let (mut rng, mut bytes) = (Rng::new(5), Buf::zeroed(len as usize));
        rng.fill(bytes.as_mut_slice());
        let before = volume.journal_stats();
        let (bytes, done) = file.write_at(0, bytes);
        assert_eq!(done.unwrap() as u64, len);
        let after = volume.journal_stats();
        assert_eq!(after.uncredited, 0, "{kind}, {allocated}");
        // With unwritten extents in many leaves, no single handle can hold the conversion.
        let handles = after.handles - before.handles;
        assert!(!allocated || handles > 1, "{handles} handles");
        assert!(contents(&file) == bytes.as_slice());
        let pieces = file.mappings(0, len).unwrap().len();
        assert!(pieces > 200, "{kind}: only {pieces} pieces");
        drop(file);
        volume.close().unwrap();
        stage.fsck();
    }
}

/// A full volume of 1 KiB blocks with the smallest journal; every other one of its small files was deleted. `/wide` is empty.
fn in_pieces(dir: &Path, kind: &str) -> PathBuf {
    const PADS: usize = 6400;
    let source = dir.join("source");
    std::fs::create_dir_all(source.join("pads")).unwrap();
    for n in 0..PADS {
        std::fs::write(source.join(format!("pads/{n}")), [n as u8; 700]).unwrap();
    }
    for name in ["empty", "wide"] {
        std::fs::write(source.join(name), b"").unwrap();
    }
    let args = [
        "-t", kind, "-b", "1024", "-J", "size=1", "-N", "8192", "-m", "0",
    ];
    let image = crate::common::image(dir, "24M", &args, &source);
    let stage = Stage::mem(&image);
    let volume = stage.open(&quiet()).unwrap();
    let file = volume.open_path("/empty", writable()).unwrap();
    let mut pos = 0;
    for len in [1 << 20, 64 << 10, 1024] {
        while file.write_at(pos, filled(0x5A, len)).1.is_ok() {
            pos += len as u64;
        }
    }
    drop(file);
    volume.close().unwrap();
    stage.save();
    let gone = (0..PADS).step_by(2).map(|n| format!("rm /pads/{n}\n"));
    debugfs(&image, dir, &gone.collect::<String>());
    image
}

/// The defect: blocks of pointers that point to themselves map any number of blocks, and `seek` and `mappings` visited all 16
/// million of them and kept them in memory. They stop with an error when a map has more blocks than the volume.
#[test]
fn maps_that_have_more_than_the_volume_end() {
    let _watchdog = Watchdog::new(LIMIT, "pointers to themselves");
    let dir = scratch();
    let image = bare(dir.path(), &RECIPES[2]);
    let stage = Stage::mem(&image);
    let volume = stage.open(&OpenOptions::default()).unwrap();
    let file = volume.open_path("/odd", OpenFlags::default()).unwrap();
    let MappingState::Written(block) = file.mappings(4096, 1).unwrap()[0].state else {
        panic!("the file's data is written")
    };
    drop((file, volume));
    let script = format!("sif /odd block[TIND] {block}\nsif /odd size 17000000000\n");
    debugfs(&image, dir.path(), &script);
    let mut bytes = std::fs::read(&image).unwrap();
    let at = block.get() as usize * 1024;
    for pointer in bytes[at..at + 1024].chunks_mut(4) {
        pointer.copy_from_slice(&u32::try_from(block.get()).unwrap().to_le_bytes());
    }
    std::fs::write(&image, &bytes).unwrap();
    let volume = Stage::mem(&image).open(&OpenOptions::default()).unwrap();
    let file = volume.open_path("/odd", OpenFlags::default()).unwrap();
    // The first byte that the triple-indirect block maps.
    let from = (12 + 256 + 65_536) * 1024;
    let found = file.seek_next(from, Seek::Hole);
    assert!(matches!(found, Err(Error::Damaged(_))), "{found:?}");
    assert_eq!(file.seek_next(from, Seek::Data).unwrap(), Some(from));
    let all = file.mappings(0, u64::MAX).map(|all| all.len());
    assert!(matches!(all, Err(Error::Damaged(_))), "{all:?}");
}
