//! Maps with cycles or wrong fields, and data over the volume's own structures.

use crate::common::stage::Stage;
use crate::common::watch::Watchdog;
use crate::common::{run, scratch};
use crate::{KINDS, LIMIT, Ward, block_of, ino_of, inode_at, victim};
use diorite::{Error, Fallocate, OpenFlags, OpenOptions, Volume};
use diorite_block::Buf;

fn header(entries: u16, max: u16, depth: u16) -> Vec<u8> {
    [0xf30a, entries, max, depth, 0, 0]
        .iter()
        .flat_map(|v: &u16| v.to_le_bytes())
        .collect()
}

fn index(block: u32, leaf: u32) -> Vec<u8> {
    [block, leaf, 0]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect()
}

fn extent(block: u32, len: u16, start: u32) -> Vec<u8> {
    [
        block.to_le_bytes().to_vec(),
        len.to_le_bytes().to_vec(),
        vec![0, 0],
        start.to_le_bytes().to_vec(),
    ]
    .concat()
}

/// Extent trees with cycles, with wrong depths, or with nodes whose keys differ from those in their parents.
#[test]
fn cyclic_extent_trees() {
    let ward = Ward::new(1);
    let image = &ward.image;
    let patient = &ward.patient;
    let root = inode_at(image, ino_of(image, "/sub/deep/other")) + 0x28;
    let node = block_of(image, "/sub/deep/other", 3);
    let second = block_of(image, "/sub/deep/other", 4);
    let at = |b: u32| u64::from(b) * 1024;
    for root_depth in [1, 2, 3, 4, 5, 6, 65535] {
        for node_depth in [0, 1, 2, 3, 4, 5, 65535] {
            for (first, entries) in [(0, 1), (0, 84), (1000, 2), (u32::MAX, 3)] {
                let mut child = header(entries, 84, node_depth);
                for n in 0..u32::from(entries) {
                    let b = first.saturating_add(n);
                    // Entries point to the node itself and to the other node, so there are cycles.
                    child.extend(index(b, if n % 2 == 0 { node } else { second }));
                }
                let changes = [
                    (root, [header(1, 4, root_depth), index(0, node)].concat()),
                    (at(node), child.clone()),
                    (at(second), child),
                ];
                let label =
                    format!("depths {root_depth}, {node_depth}, {entries} entries from {first}");
                ward.survives(&label, &changes);
                for (at, new) in &changes {
                    patient.device.write_at(*at, new);
                }
                let volume =
                    Volume::open_device(patient.device.clone(), &OpenOptions::default()).unwrap();
                let file = volume.open_path("/sub/deep/other", OpenFlags::default());
                let read = file.and_then(|f| f.read_buf(0, Buf::zeroed(49_152)).1);
                // A child that begins later than its parent's key says leaves a hole before it.
                let hole = first > 0 && read.as_ref().is_ok_and(|n| *n > 0);
                assert!(
                    hole || read.as_ref().is_err_and(Error::is_corrupt),
                    "{label}: {read:?}"
                );
                drop(volume);
                for (at, new) in &changes {
                    patient
                        .device
                        .write_at(*at, &patient.bytes[*at as usize..][..new.len()]);
                }
            }
        }
    }
}

/// Extents (and pointers) over the volume's own structures are reported as corrupt, by reads and by writes, and nothing is written.
#[test]
fn data_over_metadata() {
    let dir = scratch();
    let watchdog = Watchdog::new(LIMIT, "start");
    for (name, args) in [KINDS[1], KINDS[3]] {
        let image = victim(dir.path(), name, args);
        let ino = ino_of(&image, "/sub/deep/other");
        let root = inode_at(&image, ino) + 0x28;
        let table = inode_at(&image, 1) / 1024;
        let journal = run("debugfs", &["-R", "bmap <8> 700", image.to_str().unwrap()]);
        let journal: u64 = journal.lines().next().unwrap().trim().parse().unwrap();
        let bitmaps = run("debugfs", &["-R", "stats", image.to_str().unwrap()]);
        let number = |key: &str| -> u64 {
            let rest = bitmaps.split(key).nth(1).unwrap();
            let digits: String = rest
                .chars()
                .skip_while(|c| !c.is_ascii_digit())
                .take_while(char::is_ascii_digit)
                .collect();
            digits.parse().unwrap()
        };
        let places = [
            ("superblock", 1),
            ("descriptors", 2),
            ("reserved descriptors", 10),
            ("block bitmap", number("block bitmap at")),
            ("inode bitmap", number("inode bitmap at")),
            ("inode table", table),
            ("inode table's end", inode_at(&image, 200) / 1024),
            ("journal", journal),
        ];
        for (what, block) in places {
            for before in [0, 1] {
                let label = format!("{name}: {what}, block {block} - {before}");
                watchdog.feed(&label);
                let start = block as u32 - before;
                let map = if name == "no-csum" {
                    [header(1, 4, 0), extent(0, 2, start)].concat()
                } else {
                    [start, start + 1]
                        .iter()
                        .flat_map(|b| b.to_le_bytes())
                        .collect()
                };
                let mut bytes = std::fs::read(&image).unwrap();
                bytes[root as usize..][..map.len()].copy_from_slice(&map);
                let bad = dir.path().join("bad");
                std::fs::write(&bad, &bytes).unwrap();
                let stage = Stage::mem(&bad);
                let volume = stage.open(&OpenOptions::writable()).unwrap();
                let flags = OpenFlags::writable();
                let file = volume.open_path("/sub/deep/other", flags);
                let read = file
                    .clone()
                    .and_then(|f| f.read_buf(0, Buf::zeroed(2048)).1);
                let write = file.and_then(|f| f.write_buf(0, Buf::zeroed(2048)).1);
                for result in [read, write] {
                    // The parser refuses data before block 2; other places are refused by the map.
                    let refused = result.as_ref().is_err_and(|e| match e.root() {
                        Error::BadMap(_) => true,
                        other => other.is_corrupt() && start < 2,
                    });
                    assert!(refused, "{label}: {result:?}");
                }
                drop(volume);
                assert!(stage.bytes() == bytes, "{label}: the image changed");
            }
        }
    }
}

/// Indirect blocks that point to themselves, on three levels, with a size that covers them: bounded reads end.
#[test]
fn indirect_blocks_that_point_to_themselves() {
    let ward = Ward::new(2);
    let image = &ward.image;
    let inode = inode_at(image, ino_of(image, "/sub/deep/other"));
    let node = block_of(image, "/sub/deep/other", 3);
    let itself: Vec<u8> = (0..256).flat_map(|_| node.to_le_bytes()).collect();
    let pointers: Vec<u8> = (0..15).flat_map(|_| node.to_le_bytes()).collect();
    for size in [50_000u32, 1 << 20, 70 << 20, u32::MAX] {
        let changes = [
            (inode + 4, size.to_le_bytes().to_vec()),
            (inode + 0x28, pointers.clone()),
            (u64::from(node) * 1024, itself.clone()),
        ];
        ward.survives(&format!("size {size}"), &changes);
    }
}

/// Opening a volume reads the journal's map: an indirect block that points to itself under a huge size must not make that slow or
/// use much memory. A journal is no larger than its volume.
#[test]
fn a_journal_that_claims_to_be_huge() {
    let ward = Ward::new(3);
    let image = &ward.image;
    let inode = inode_at(image, 8);
    let node = block_of(image, "/sub/deep/other", 3);
    let itself: Vec<u8> = (0..256).flat_map(|_| node.to_le_bytes()).collect();
    for (low, high) in [(70 << 20, 0u32), (u32::MAX, 0), (0, 3), (0, u32::MAX)] {
        let changes = [
            (inode + 4, low.to_le_bytes().to_vec()),
            (inode + 0x6c, high.to_le_bytes().to_vec()),
            (
                inode + 0x28 + 12 * 4,
                [node, node, node]
                    .iter()
                    .flat_map(|b: &u32| b.to_le_bytes())
                    .collect(),
            ),
            (u64::from(node) * 1024, itself.clone()),
        ];
        let label = format!("journal size {low:#x} {high:#x}");
        ward.survives(&label, &changes);
    }
}

/// A leaf whose key in its parent is lower than its first extent. The format wants them equal, but all readers accept it. A block
/// between the two is mapped in the leaf with that key, or the key is moved; no extent crosses the key. The defect: a run that
/// followed the last extent of the previous leaf was appended to it across the key, and the next leaf became unreadable.
#[test]
fn a_key_before_its_leaf() {
    let dir = scratch();
    let (name, args) = KINDS[1];
    let image = victim(dir.path(), name, args);
    let path = image.to_str().unwrap();
    let write = OpenFlags::writable();
    let piece = |byte: u8, blocks: usize| {
        let mut buf = Buf::zeroed(blocks * 1024);
        buf.as_mut_slice().fill(byte);
        buf
    };
    let volume = Volume::open(path, &OpenOptions::writable()).unwrap();
    let file = volume.create("/keys", 0o644).unwrap();
    // One block in four, so that each is an extent of its own.
    for n in 0..200 {
        file.write_buf(n * 4096, piece(1, 1)).1.unwrap();
    }
    let root = file.metadata().i_block;
    let entries = u16::from_le_bytes([root[2], root[3]]);
    assert!(root[6] == 1 && entries > 2, "an index over leaves");
    drop(file);
    volume.close().unwrap();
    let at = inode_at(&image, ino_of(&image, "/keys")) as usize + 0x28 + 12 + 12;
    let mut bytes = std::fs::read(&image).unwrap();
    let key = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(key % 4, 0);
    bytes[at..at + 4].copy_from_slice(&(key - 2).to_le_bytes());
    std::fs::write(&image, &bytes).unwrap();
    let volume = Volume::open(path, &OpenOptions::writable()).unwrap();
    let file = volume.open_path("/keys", write).unwrap();
    // Loads both leaves, and makes room in the first.
    file.read_buf(0, Buf::zeroed(199 * 4096)).1.unwrap();
    file.fallocate(Fallocate::PunchHole, 0, 1024).unwrap();
    let hole = u64::from(key - 3) * 1024;
    assert_eq!(file.write_buf(hole, piece(2, 3)).1.unwrap(), 3 * 1024);
    drop(file);
    volume.close().unwrap();
    let volume = Volume::open(path, &OpenOptions::default()).unwrap();
    let file = volume.open_path("/keys", OpenFlags::default()).unwrap();
    let (read, done) = file.read_buf(0, Buf::zeroed(199 * 4096 + 1024));
    assert_eq!(done.unwrap(), 199 * 4096 + 1024);
    for (n, block) in read.as_slice().chunks(1024).enumerate() {
        let new = (u64::from(key - 3)..u64::from(key)).contains(&(n as u64));
        let byte = if new {
            2
        } else {
            u8::from(n % 4 == 0 && n > 0)
        };
        assert!(block.iter().all(|b| *b == byte), "block {n}");
    }
}
