//! Full volumes: what a write has promised has its space.

use crate::common::fixture::{every_block, run_all, writable};
use crate::common::names::empty;
use crate::common::{Rng, fsck, scratch};
use diorite::{Error, Fallocate, File, InodeFlags, OpenFlags, OpenOptions, Request, Volume};
use diorite_block::Buf;

/// Writes of all sizes until the volume is full: the error comes from the write, never from write-back; what was written is there.
#[test]
fn a_full_volume_is_reported_by_the_write() {
    let kinds: [&[&str]; 4] = [
        &["-t", "ext4", "-b", "4096"],
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "16384"],
        &["-t", "ext2", "-b", "1024"],
    ];
    for (n, args) in kinds.iter().enumerate() {
        let mut rng = Rng::from_env(&format!("cached space {n}"));
        let dir = scratch();
        let image = empty(dir.path(), "12M", args);
        let volume = Volume::open(image.to_str().unwrap(), &every_block()).unwrap();
        let file = volume.create("/file", 0o644).unwrap();
        let (mut written, mut full) = (Vec::new(), 0);
        while full < 3 {
            // Scattered blocks need many nodes of the map.
            let (pos, len) = (rng.below(20_000) * 4096, 1 + rng.below(30_000) as usize);
            match file.write_bytes(pos, &vec![1; len]) {
                Ok(count) => written.push((pos, count)),
                Err(Error::NoSpace { .. }) => full += 1,
                Err(other) => panic!("{args:?}: {other}"),
            }
            if rng.below(50) == 0 {
                file.sync().unwrap();
            }
        }
        file.sync().unwrap();
        assert!(
            written.iter().map(|(_, n)| n).sum::<usize>() > 2 << 20,
            "{args:?}"
        );
        drop(file);
        volume.close().unwrap();
        fsck(&image);
        let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::default()).unwrap();
        let file = volume.open_path("/file", OpenFlags::default()).unwrap();
        for (pos, count) in written {
            let mut back = vec![0; count];
            assert_eq!(file.read_bytes(pos, &mut back).unwrap(), count);
            assert!(back.iter().all(|b| *b == 1), "{args:?}: {count} at {pos}");
        }
    }
}

/// Files of one block are written until the volume is full, by threads through the cache and by requests in flight together: the last one
/// that there is room for succeeds. The defect: what others had reserved for a moment was reported as missing.
#[test]
fn the_last_block_is_used() {
    const FREE: u64 = 500;
    const FILES: u64 = 1000;
    let kinds: [(u64, &[&str]); 3] = [
        (4096, &["-t", "ext4", "-m", "0", "-b", "4096"]),
        (
            1024,
            &["-t", "ext4", "-m", "0", "-b", "1024", "-O", "^has_journal"],
        ),
        (1024, &["-t", "ext3", "-m", "0", "-b", "1024"]),
    ];
    let both = kinds.iter().flat_map(|kind| [(kind, false), (kind, true)]);
    for (&(block, args), direct) in both {
        let dir = scratch();
        let image = empty(dir.path(), "16M", args);
        let volume = Volume::open(image.to_str().unwrap(), &every_block()).unwrap();
        let create = |n| volume.create(&format!("/{n}"), 0o644).unwrap();
        let files: Vec<_> = (0..FILES).map(create).collect();
        let free = || volume.usage().free;
        volume.sync().unwrap();
        let mut rest = 0;
        while free() > FREE {
            let half = block * (free() - FREE).div_ceil(2);
            let file = volume.create(&format!("/rest {rest}"), 0o644).unwrap();
            file.write_bytes(0, &vec![1; half as usize]).unwrap();
            drop(file);
            volume.sync().unwrap();
            rest += 1;
        }
        let there = free();
        let len = block as usize;
        let written = if direct {
            let queue = volume.queue(64).unwrap();
            let request = |(file, n)| {
                let id = queue.attach(file).unwrap();
                Request::write(id, 0, Buf::zeroed(len), n)
            };
            let done = run_all(&queue, files.iter().zip(0..).map(request).collect());
            done.iter().filter(|done| done.result.is_ok()).count() as u64
        } else {
            let write = |file: &File| match file.write_bytes(0, &vec![7; len]) {
                Ok(_) => true,
                Err(Error::NoSpace { .. }) => false,
                Err(other) => panic!("{args:?}: {other}"),
            };
            let write_all = |files: &[File]| files.iter().filter(|file| write(file)).count() as u64;
            std::thread::scope(|scope| {
                let chunks = files.chunks(250);
                let threads: Vec<_> = chunks
                    .map(|files| scope.spawn(move || write_all(files)))
                    .collect();
                threads.into_iter().map(|t| t.join().unwrap()).sum()
            })
        };
        assert_eq!(written, there, "{args:?}, direct: {direct}");
        drop(files);
        volume.close().unwrap();
        fsck(&image);
    }
}

/// A full volume with one file that a test writes: all of it was accepted, so all of it has its space, however it is written back.
struct Full {
    _dir: tempfile::TempDir,
    image: std::path::PathBuf,
    volume: Volume,
}

impl Full {
    const BLOCK: u64 = 1024;

    /// Only `free` blocks are free, none beside another. `/written` has nine that are unwritten. The map of `/leaf` has one leaf, which is
    /// full, and a hole behind it.
    fn new(args: &[&str], free: u64) -> Full {
        let dir = scratch();
        let all = [&["-t", "ext4", "-m", "0", "-b", "1024"], args].concat();
        let image = empty(dir.path(), "8M", &all);
        let options = every_block().write_back_age(std::time::Duration::from_secs(3600));
        let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
        let full = Full {
            _dir: dir,
            image,
            volume,
        };
        full.fill(free);
        full
    }

    fn free(&self) -> u64 {
        self.volume.usage().free
    }

    /// Takes all free blocks, and punches some out of the middle of a file.
    fn fill(&self, free: u64) {
        let volume = &self.volume;
        let written = volume.create("/written", 0o644).unwrap();
        let rest = volume.create("/rest", 0o644).unwrap();
        let leaf = volume.create("/leaf", 0o644).unwrap();
        for n in 0..84 {
            let (_, wrote) = leaf.write_buf(2 * n * Full::BLOCK, Buf::zeroed(1024));
            wrote.unwrap();
        }
        leaf.truncate(1 << 20).unwrap();
        let one = |n| volume.create(&format!("/more {n}"), 0o644).unwrap();
        let more: Vec<File> = (0..40).map(one).collect();
        volume.sync().unwrap();
        let ahead = Fallocate::Allocate { keep_size: false };
        written.fallocate(ahead, 0, 9 * Full::BLOCK).unwrap();
        // A few blocks for the nodes of the punched file.
        let last = self.free() - 12;
        rest.fallocate(ahead, 0, last * Full::BLOCK).unwrap();
        let punch = |n| {
            let at = (last / 2 + 2 * n) * Full::BLOCK;
            rest.fallocate(Fallocate::PunchHole, at, Full::BLOCK)
                .unwrap();
        };
        // So that its map has a leaf with room.
        (0..6).for_each(punch);
        volume.sync().unwrap();
        // One block each, so that none needs a node.
        for file in more.iter().take_while(|_| self.free() > 0) {
            file.write_bytes(0, &[1; 1024]).unwrap();
            file.sync().unwrap();
        }
        assert_eq!(self.free(), 0);
        (6..6 + free).for_each(punch);
        volume.sync().unwrap();
        assert_eq!(self.free(), free);
    }

    /// Writes nine or fewer blocks of a file from `at` on. If that is accepted, writes these blocks of it back one by one, then the rest,
    /// and all of it must be there. Returns whether it was accepted.
    fn write(
        file: &File,
        (at, count): (u64, usize),
        one_by_one: impl Iterator<Item = u64>,
    ) -> bool {
        let len = count * Full::BLOCK as usize;
        match file.write_bytes(at * Full::BLOCK, &vec![7; len]) {
            Err(Error::NoSpace { .. }) => return false,
            other => assert_eq!(other.unwrap(), len),
        }
        for n in one_by_one {
            file.mappings(n * Full::BLOCK, Full::BLOCK).unwrap();
        }
        file.sync().unwrap();
        let mut back = vec![0; len];
        file.read_bytes(at * Full::BLOCK, &mut back).unwrap();
        assert!(back.iter().all(|b| *b == 7));
        true
    }

    fn open(&self, path: &str) -> File {
        let flags = OpenFlags::writable();
        self.volume.open_path(path, flags).unwrap()
    }

    fn end(self) {
        self.volume.close().unwrap();
        fsck(&self.image);
    }
}

/// Rule U5. A dirty run over an unwritten extent is written back piece by piece, which makes many extents of one, on a volume with few
/// free blocks.
#[test]
fn pieces_of_a_run_have_their_nodes() {
    for args in [&[][..], &["-O", "^has_journal"]] {
        let mut accepted = 0;
        for free in 0..9 {
            let full = Full::new(args, free);
            let file = full.open("/written");
            accepted += u32::from(Full::write(&file, (0, 9), [1, 3, 5, 7].into_iter()));
            drop(file);
            full.end();
        }
        assert!(accepted > 0, "{args:?}");
    }
}

/// Rule U5. What free blocks there are lie apart, so a run of pages needs an extent for each, and a node for these.
#[test]
fn scattered_free_blocks_have_their_nodes() {
    for args in [&[][..], &["-O", "^has_journal"]] {
        let mut accepted = 0;
        for free in 5..14 {
            let full = Full::new(args, free);
            let file = full.volume.create("/scattered", 0o644).unwrap();
            full.volume.sync().unwrap();
            accepted += u32::from(Full::write(&file, (0, 5), std::iter::empty()));
            drop(file);
            full.end();
        }
        assert!(accepted > 0, "{args:?}");
    }
}

/// Rule U5. A run behind a full leaf is written back from its end to its beginning, a block at a time.
#[test]
fn pieces_in_descending_order_have_their_nodes() {
    for args in [&[][..], &["-O", "^has_journal"]] {
        let mut accepted = 0;
        for free in 9..20 {
            let full = Full::new(args, free);
            let file = full.open("/leaf");
            accepted += u32::from(Full::write(&file, (200, 9), (200..209).rev()));
            drop(file);
            full.end();
        }
        assert!(accepted > 0, "{args:?}");
    }
}

/// A name is made while pages have space reserved and nothing else is free: no lock is taken out of order, and the pages give way if that
/// suffices.
#[test]
fn names_meet_reserved_space() {
    let full = Full::new(&[], 3);
    let file = full.volume.create("/dirty", 0o644).unwrap();
    full.volume.sync().unwrap();
    let free = full.free();
    file.write_bytes(0, &vec![7; (free * Full::BLOCK) as usize])
        .unwrap();
    assert_eq!(full.free(), 0);
    match full.volume.mkdir("/new", 0o755) {
        Err(Error::NoSpace { .. }) => {}
        other => drop(other.unwrap()),
    }
    file.sync().unwrap();
    drop(file);
    full.end();
}

/// Attributes, preallocation and journalled writes, too, wait for pages that have reserved more than they will need. Defect: they reported
/// NoSpace at once.
#[test]
fn pages_give_way_to_all_kinds_of_requests() {
    type Ask = fn(&Volume, &File) -> Result<(), Error>;
    let asks: [(&str, Ask); 3] = [
        ("an attribute", |volume, file| {
            volume.set_xattr(file.ino(), "user.a", &[1; 600])
        }),
        ("preallocation", |_, file| {
            let ahead = Fallocate::Allocate { keep_size: false };
            file.fallocate(ahead, 0, Full::BLOCK)
        }),
        ("a journalled write", |volume, file| {
            let flags = file.metadata().flags;
            volume.set_flags(file.ino(), flags.with(InodeFlags::JOURNAL_DATA))?;
            file.write_buf(0, Buf::zeroed(1024)).1.map(drop)
        }),
    ];
    for (what, ask) in asks {
        let mut given = 0;
        for free in 1..8 {
            let full = Full::new(&[], free);
            let (dirty, other) = (full.open("/leaf"), full.open("/more 39"));
            let wrote = dirty.write_bytes(200 * Full::BLOCK, &[7; 1024]);
            if wrote.is_ok() && full.free() == 0 {
                let asked = ask(&full.volume, &other);
                dirty.sync().unwrap();
                match asked {
                    Err(Error::NoSpace { .. }) => assert_eq!(full.free(), 0, "{what}"),
                    asked => {
                        asked.unwrap();
                        given += 1;
                    }
                }
            }
            drop((dirty, other));
            full.end();
        }
        assert!(given > 0, "{what}");
    }
}

/// A request that cannot be satisfied has claimed all free blocks when it finds that: they are another's while it waits.
#[test]
fn a_request_in_vain_takes_no_space() {
    let full = Full::new(&[], 8);
    let volume = &full.volume;
    let file = full.open("/written");
    let other = volume.create("/other", 0o644).unwrap();
    volume.sync().unwrap();
    // Four extents in the root: two that are written in the unwritten one.
    let block = Full::BLOCK as usize;
    file.write_buf(0, Buf::zeroed(block)).1.unwrap();
    file.write_buf(4 * Full::BLOCK, Buf::zeroed(block))
        .1
        .unwrap();
    volume.sync().unwrap();
    let free = full.free();
    let queue = volume.queue(8).unwrap();
    let (a, b) = (queue.attach(&file).unwrap(), queue.attach(&other).unwrap());
    let all = Buf::zeroed(free as usize * block);
    let requests = vec![
        Request::write(a, 64 * Full::BLOCK, all, 0),
        Request::write(b, 0, Buf::zeroed(block), 1),
    ];
    let done = run_all(&queue, requests);
    let of = |token| &done.iter().find(|d| d.token == token).unwrap().result;
    assert!(matches!(of(0), Err(Error::NoSpace { .. })), "{:?}", of(0));
    assert_eq!(*of(1).as_ref().unwrap(), block);
    assert_eq!(full.free(), free - 1);
    drop((queue, file, other));
    full.end();
}

/// Rule D11. A file that was closed keeps no blocks ahead, although something else keeps its inode in memory. Defect: a frontend that had
/// been told its number did, so what it kept was missing in the free space until it forgot the file.
#[test]
fn a_closed_file_keeps_nothing_ahead() {
    let dir = scratch();
    let image = empty(dir.path(), "16M", &["-t", "ext4", "-b", "1024"]);
    let volume = Volume::open(image.to_str().unwrap(), &every_block()).unwrap();
    let file = volume.create("/grown", 0o644).unwrap();
    let other = volume.create("/other", 0o644).unwrap();
    for _ in 0..4 {
        file.append_buf(Buf::zeroed(1024)).1.unwrap();
    }
    volume.sync().unwrap();
    assert!(volume.usage().claimed() > 0, "it keeps blocks ahead");
    volume.know(file.ino()).unwrap();
    drop(file);
    // Blocking calls keep their last file attached.
    other.append_buf(Buf::zeroed(1024)).1.unwrap();
    drop(other);
    volume
        .open_path("/", OpenFlags::default())
        .unwrap()
        .sync()
        .unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.usage().claimed(), 0);
    volume.close().unwrap();
    fsck(&image);
}

/// Rule D11. The last user of an open file gives back what it keeps ahead: a queue that has it attached, or one of several clones that go
/// at once. Defect: a clone that saw another one left that to it, and so did the other; a queue gave nothing back.
#[test]
fn the_last_user_of_a_file_keeps_nothing_ahead() {
    let dir = scratch();
    let image = empty(dir.path(), "32M", &["-t", "ext4", "-b", "1024"]);
    let volume = Volume::open(image.to_str().unwrap(), &every_block()).unwrap();
    let file = volume.create("/file", 0o644).unwrap();
    volume.know(file.ino()).unwrap();
    let ino = file.ino();
    drop(file);
    for n in 0..60 {
        let file = volume.open_ino(ino, writable()).unwrap();
        let queue = volume.queue(4).unwrap();
        let id = queue.attach(&file).unwrap();
        let mut done = Vec::new();
        for _ in 0..3 {
            let append = Request::append(id, Buf::zeroed(1024), 0);
            queue.push(append).unwrap();
            queue.reap(&mut done, 1, None);
        }
        assert!(done.iter().all(|d| d.result.is_ok()));
        assert!(volume.usage().claimed() > 0, "it keeps blocks ahead");
        if n % 3 == 0 {
            drop(file);
            queue.detach(id);
        } else {
            queue.detach(id);
            let clones: Vec<File> = (0..4).map(|_| file.clone()).collect();
            drop(file);
            let barrier = std::sync::Barrier::new(clones.len());
            std::thread::scope(|scope| {
                for clone in clones {
                    scope.spawn(|| {
                        barrier.wait();
                        drop(clone);
                    });
                }
            });
        }
        assert_eq!(volume.usage().claimed(), 0, "round {n}");
    }
    volume.close().unwrap();
    fsck(&image);
}

/// Rule D11. What write-back allocates for a closed file is what it needs: nothing stays ahead.
#[test]
fn a_file_that_was_written_back_keeps_nothing_ahead() {
    let dir = scratch();
    let image = empty(dir.path(), "16M", &["-t", "ext4", "-b", "1024"]);
    let volume = Volume::open(image.to_str().unwrap(), &every_block()).unwrap();
    for open in [true, false] {
        let file = volume.create(&format!("/{open}"), 0o644).unwrap();
        for n in 0..8 {
            file.append_bytes(&[n; 1024]).unwrap();
            if n % 3 == 2 {
                volume.sync().unwrap();
            }
        }
        let still_open = open.then(|| file.clone());
        drop(file);
        volume.sync().unwrap();
        assert_eq!(volume.usage().claimed(), 0, "open: {open}");
        drop(still_open);
    }
    volume.close().unwrap();
    fsck(&image);
}
