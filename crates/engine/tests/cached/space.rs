//! Full volumes: what a write has promised has its space.

use crate::common::names::empty;
use crate::common::{Rng, fsck, scratch};
use diorite::{Error, OpenFlags, OpenOptions, Volume};

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
