//! Superblocks that a power cut has torn between their two sectors, in volumes that have no copy of it: the one in the log stands in.

use crate::common::stage::mem_of;
use crate::common::{fsck, run, scratch};
use diorite::format::Superblock;
use diorite::mkfs::{MkfsOptions, mkfs};
use diorite::{OpenFlags, OpenOptions, Volume};
use diorite_block::record::{Cut, Data, Event, PowerCuts, Survival};
use diorite_block::{Bio, Blocking, Buf, Device, MemDevice, RecordDevice};
use diorite_check::{CheckOptions, check_device};
use std::path::Path;
use std::sync::Arc;

/// Where the superblock's two sectors lie.
const SECTORS: [std::ops::Range<usize>; 2] = [1024..1536, 1536..2048];

fn parses(image: &[u8]) -> bool {
    let raw: &[u8; 1024] = image[1024..2048].try_into().unwrap();
    Superblock::parse(raw).is_ok()
}

/// A volume of one group, and the log of what was written to it: files, each synced, and names.
fn written(dir: &Path, words: &str) -> (Vec<u8>, Vec<Event>) {
    let path = dir.join("volume");
    let mut args: Vec<&str> = words.split(' ').collect();
    args.extend([path.to_str().unwrap(), "8M"]);
    run("mke2fs", &args);
    let base = std::fs::read(&path).unwrap();
    let record = RecordDevice::with_volatile_cache(Arc::new(mem_of(&base)));
    let device = Arc::new(record.clone());
    let volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
    assert_eq!(volume.groups().len(), 1);
    let mut number = 0;
    for round in 0..6 {
        for _ in 0..20 {
            let file = volume.create(&format!("/f{number}"), 0o644).unwrap();
            file.write_bytes(0, &[number as u8; 3000]).unwrap();
            file.sync().unwrap();
            record.mark(number);
            number += 1;
        }
        match round % 3 {
            0 => volume.make_clean().unwrap(),
            1 => volume.set_label(&format!("round {round}")).unwrap(),
            _ => volume.sync().unwrap(),
        }
    }
    volume.close().unwrap();
    (base, record.log())
}

/// The images of all cuts in which one of the superblock's sectors was written and the other one not, with the number of files that have
/// to be there.
fn torn(base: &[u8], log: &[Event], mut look: impl FnMut(Vec<u8>, u64)) {
    let mut walk = PowerCuts::new(base.to_vec(), log);
    let mut files = 0;
    for (at, event) in log.iter().enumerate() {
        match event {
            Event::Mark(number) => files = number + 1,
            Event::Write {
                pos,
                data: Data::Bytes(bytes),
                ..
            } if *pos <= 1024 && *pos + bytes.len() as u64 >= 2048 => {
                for sector in SECTORS {
                    let survival = Survival::Ended;
                    let mut image = walk.with_image(Cut { at, survival }, <[u8]>::to_vec);
                    let skip = *pos as usize;
                    let new = &bytes[sector.start - skip..sector.end - skip];
                    image[sector].copy_from_slice(new);
                    if !parses(&image) {
                        look(image, files);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The defect: a volume with one group could not be opened any more, though its log had the whole superblock.
#[test]
fn the_log_has_a_whole_one() {
    let dir = scratch();
    for words in [
        "-q -F -t ext4 -b 1024 -J size=1",
        "-q -F -t ext4 -b 4096 -O metadata_csum_seed,orphan_file",
    ] {
        let (base, log) = written(dir.path(), words);
        let (mut by_log, mut by_flags, mut refused) = (0, 0, 0);
        torn(&base, &log, |image, files| {
            let device = Arc::new(mem_of(&image));
            let reader = match Volume::open_device(device.clone(), &OpenOptions::default()) {
                Ok(reader) => reader,
                Err(error) => {
                    assert!(error.to_string().contains("checksum"), "{error}");
                    refused += 1;
                    return;
                }
            };
            let said = reader.notes().join("\n");
            match said.contains("the one in its journal stands in for it") {
                true => by_log += 1,
                false => by_flags += 1,
            }
            assert!(said.contains("checksum is wrong"), "{said}");
            reader.close().unwrap();
            let found = check_device(&(device.clone() as _), &CheckOptions::default(), &|_| ());
            let found = found.unwrap();
            let said: Vec<_> = found.kept().map(|(_, finding)| &finding.what).collect();
            let is_torn = |what: &&String| what.contains("checksum is wrong");
            assert!(said.iter().all(is_torn), "{said:?}");
            let writer = Volume::open_device(device.clone(), &OpenOptions::writable()).unwrap();
            for number in 0..files {
                let name = format!("/f{number}");
                let file = writer.open_path(&name, OpenFlags::default()).unwrap();
                let mut bytes = [0; 3000];
                assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), 3000);
                assert_eq!(bytes, [number as u8; 3000]);
            }
            writer.close().unwrap();
            let mut bytes = image.clone();
            device.read_at(0, &mut bytes);
            let path = dir.path().join("mended");
            std::fs::write(&path, &bytes).unwrap();
            fsck(&path);
        });
        eprintln!("{words}: {by_log} by the log, {by_flags} by flags, {refused} refused");
        assert!(by_log > 0, "{by_log}");
        assert_eq!(refused, 0, "each state has a whole one somewhere");
    }
}

/// What is no torn superblock of this volume is refused as before: a log that is empty, one of another volume, a geometry that differs.
#[test]
fn what_is_damaged_stays_refused() {
    let dir = scratch();
    let (base, log) = written(dir.path(), "-q -F -t ext4 -b 1024 -J size=1");
    let mut image = None;
    torn(&base, &log, |torn, _| {
        let reader = Volume::open_device(Arc::new(mem_of(&torn)), &OpenOptions::default());
        if reader.is_ok_and(|v| v.notes().join("").contains("in its journal")) {
            image = Some(torn);
        }
    });
    let image = image.expect("there is such a state");
    // Blocks, block size, groups, inodes, the journal's inode, the UUID.
    for field in [0x0, 0x4, 0x18, 0x20, 0x28, 0x58, 0x68, 0x6f, 0xe0] {
        let mut bytes = image.clone();
        bytes[1024 + field] ^= 4;
        for options in [OpenOptions::default(), OpenOptions::writable()] {
            let device = Arc::new(mem_of(&bytes));
            let refused = Volume::open_device(device.clone(), &options);
            assert!(refused.is_err(), "{field:#x}");
            let mut after = bytes.clone();
            device.read_at(0, &mut after);
            assert!(after == bytes, "{field:#x}: it was written to");
        }
    }
    let mut clean = base;
    clean[1024 + 0x178] ^= 4;
    Volume::open_device(Arc::new(mem_of(&clean)), &OpenOptions::default()).unwrap_err();
}

/// The defect: a copy that an older file system with larger blocks had left where nothing lies now stood in for a torn superblock, also if
/// both were made with the same UUID, as images are that are to be reproducible.
#[test]
fn a_copy_of_another_volume_does_not_stand_in() {
    for uuids in [[[1; 16], [2; 16]], [[3; 16], [3; 16]]] {
        // The later volume has copies, or a single group and none.
        for (size, has_copies) in [(None, true), (Some(6 << 20), false)] {
            let device: Arc<dyn Device> = Arc::new(MemDevice::new(140 << 20));
            for (uuid, block_size) in uuids.into_iter().zip([4096, 1024]) {
                let mut options = MkfsOptions::new(uuid, uuid, 1_700_000_000);
                (options.block_size, options.discard) = (Some(block_size), false);
                options.bytes = size.filter(|_| block_size == 1024);
                mkfs(&device, &options).unwrap();
            }
            let mut sector = Buf::zeroed(512);
            let blocking = Blocking::new(device.clone());
            sector = blocking.read(1024, sector).unwrap();
            sector.as_mut_slice()[0x178] ^= 4;
            blocking.run(Bio::write(1024, sector, 0)).result.unwrap();
            match Volume::open_device(device, &OpenOptions::default()) {
                Ok(volume) => {
                    let said = volume.notes().join("\n");
                    assert!(said.contains("stands in for it"), "{said}");
                    let sb = volume.superblock();
                    assert_eq!((sb.uuid(), sb.block_size()), (&uuids[1], 1024), "{uuids:?}");
                    assert!(has_copies, "{said}");
                }
                Err(error) => {
                    assert!(!has_copies, "{uuids:?}: {error}");
                    assert!(error.to_string().contains("checksum"), "{error}");
                }
            }
        }
    }
}
