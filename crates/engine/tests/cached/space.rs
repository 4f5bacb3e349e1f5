//! Full volumes: what a write has promised has its space.

use crate::common::fixture::run_all;
use crate::common::names::empty;
use crate::common::{Rng, fsck, scratch};
use diorite::{Error, File, OpenFlags, OpenOptions, Request, Volume};
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
        let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
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
        let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
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
