//! Replay of fast commits over an orphan list that was committed before them.

use super::replay;
use crate::disk::cache::Kind;
use crate::mapping::MappingState;
use crate::options::{OpenFlags, OpenOptions};
use crate::queue::File;
use crate::testing::small_volume;
use crate::volume::Volume;
use diorite_block::{Bio, Blocking, Buf};
use diorite_format::Ino;
use diorite_format::journal::{FastCommits, FastRecord};

const BLOCK: usize = 1024;
const SIZE: u64 = 1500;

fn filled(byte: u8) -> Buf {
    let mut buf = Buf::zeroed(4 * BLOCK);
    buf.as_mut_slice().fill(byte);
    buf
}

/// A file of four blocks, in the state between two handles of a truncation: it has its new size, and is on the orphan list.
fn half_truncated(volume: &Volume, path: &str) -> Ino {
    let file = volume.create(path, 0o644).unwrap();
    file.write_buf(0, filled(0x55)).1.unwrap();
    let (inner, inode) = (volume.inner(), file.inode());
    let begun = inner.in_handle(8, |handle| {
        inode.change(handle, |disk| disk.size = SIZE)?;
        inode.begin_orphan(handle)
    });
    begun.unwrap();
    file.ino()
}

/// The bytes of an inode, as a fast commit has them.
fn record(volume: &Volume, ino: Ino) -> FastRecord {
    let inner = volume.inner();
    let (block, at) = inner.inode_place(ino).unwrap();
    let (cache, kind) = (&inner.cache, Kind::InodeTable);
    let table = cache.read(&inner.blocking, block, kind, |_| Ok(()));
    let raw = table.unwrap()[at..at + 160].to_vec();
    FastRecord::Inode { ino, raw }
}

/// Checks the size, that nothing is mapped behind it, and that the file reads zeros there when it is made longer.
fn is_truncated(file: &File) {
    assert_eq!(file.size(), SIZE);
    let behind = file.mappings(2 * BLOCK as u64, 1 << 20).unwrap();
    let places: Vec<_> = behind.iter().map(|mapping| mapping.state).collect();
    assert!(
        places.iter().all(|state| *state == MappingState::Hole),
        "{places:?}"
    );
    file.truncate(4 * BLOCK as u64).unwrap();
    let (read, done) = file.read_buf(0, filled(0xaa));
    assert_eq!(done.unwrap(), 4 * BLOCK);
    let (data, zeros) = read.as_slice().split_at(SIZE as usize);
    assert!(data.iter().all(|b| *b == 0x55));
    assert!(zeros.iter().all(|b| *b == 0));
}

/// The defect: a fast commit about a file with a name took the file off the orphan list. So the blocks that its truncation had left
/// behind the size stayed there, and a longer file would have shown them.
#[test]
fn a_truncation_that_was_begun_before_is_ended() {
    for list in ["^orphan_file", "orphan_file"] {
        let volume = small_volume("16M", &["-O", list]);
        let device = volume.inner().device.clone();
        let paths = ["/first", "/second", "/third"];
        let inos = paths.map(|path| half_truncated(&volume, path));
        let fast = FastCommits {
            commits: vec![vec![record(&volume, inos[1])]],
        };
        volume.close().unwrap();
        let options = OpenOptions::writable();
        let changed = replay(&device, BLOCK as u32, &options, &fast).unwrap();
        let blocking = Blocking::new(device.clone());
        for (at, bytes) in changed {
            let mut buf = Buf::zeroed(BLOCK);
            buf.copy_in(0, &bytes);
            let bio = Bio::write(at.get() * BLOCK as u64, buf, 0);
            blocking.run(bio).result.unwrap();
        }
        let volume = Volume::open_device(device, &options).unwrap();
        let notes = volume.notes().join("\n");
        assert!(notes.contains("3 truncated"), "{list}: {notes}");
        let to_write = OpenFlags {
            write: true,
            ..OpenFlags::default()
        };
        for path in paths {
            is_truncated(&volume.open_path(path, to_write).unwrap());
        }
        volume.close().unwrap();
    }
}
