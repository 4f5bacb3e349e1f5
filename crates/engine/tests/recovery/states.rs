//! States of the superblock and the journal, and power cuts during recovery.

use crate::common::log::Log;
use crate::common::stage::mem_of;
use crate::common::{fsck, scratch};
use crate::recovery::whole::{crashed, written_by_debugfs};
use crate::recovery::{all_of, by_e2fsck, in_memory, mke2fs, on_disk, recovered, same};
use diorite::{OpenFlags, OpenOptions, Volume};
use diorite_block::record::{PowerCuts, plan};
use diorite_format::{GroupNo, Ino};
use std::sync::Arc;

/// A power cut at any write of recovery leaves an image that recovers to the same content.
#[test]
fn power_cuts_during_recovery() {
    let dir = scratch();
    let image = written_by_debugfs(dir.path(), 1024, "metadata_csum,64bit", "jo -c -v 3");
    let log = Log::of(dir.path(), &image);
    let want = on_disk(&image).unwrap();
    let events = recovered(dir.path(), &image);
    let mut cuts = PowerCuts::new(image, &events);
    for cut in plan(&events, 150, 7, 512) {
        cuts.with_image(cut, |image| {
            let label = format!("{cut:?}");
            let memory = in_memory(image).unwrap_or_else(|e| panic!("{label}: {e}"));
            same(&log, &memory.bytes, &want.bytes, &label);
            let disk = on_disk(image).unwrap_or_else(|e| panic!("{label}: {e}"));
            same(&log, &disk.bytes, &want.bytes, &label);
            assert_eq!(
                disk.bytes[1024..2048],
                want.bytes[1024..2048],
                "{label}: the superblock"
            );
        });
    }
}

/// A superblock with a wrong checksum: a backup copy is used, the log is replayed, and the primary is written again.
#[test]
fn a_torn_superblock() {
    let dir = scratch();
    let Some(mut image) = crashed(dir.path(), &["-b", "1024"], "data=ordered") else {
        return;
    };
    let want = on_disk(&image).unwrap();
    let log = Log::of(dir.path(), &image);
    image[1024 + 0x180] ^= 1;
    let memory = in_memory(&image).unwrap();
    assert!(memory.said.contains("stands in for it") && memory.said.contains("replayed in memory"));
    same(&log, &memory.bytes, &want.bytes, "torn");
    let disk = on_disk(&image).unwrap();
    same(&log, &disk.bytes, &want.bytes, "torn");
    let mine = dir.path().join("mine");
    std::fs::write(&mine, &disk.bytes).unwrap();
    fsck(&mine);
}

/// An error recorded in the journal is recorded in the volume, and cleared in the journal.
#[test]
fn an_aborted_journal() {
    let dir = scratch();
    let mut image = written_by_debugfs(dir.path(), 1024, "^metadata_csum", "jo");
    let log = Log::of(dir.path(), &image);
    let errno = log.byte_of(0) + 0x20;
    image[errno..errno + 4].copy_from_slice(&(-5i32).to_be_bytes());
    let said = in_memory(&image).unwrap().said;
    assert!(said.contains("aborted by error -5"), "{said}");
    let device = Arc::new(mem_of(&image));
    let refused = Volume::open_device(device.clone(), &OpenOptions::writable()).unwrap_err();
    assert!(
        refused.to_string().contains("errors are recorded"),
        "{refused}"
    );
    let after = all_of(&device, image.len());
    assert_eq!(after[errno..errno + 4], [0; 4]);
    assert_eq!(after[1024 + 0x3A] & 2, 2);
    same(
        &log,
        &after,
        &by_e2fsck(dir.path(), &image).bytes,
        "aborted",
    );
}

/// What an image of a volume with a log is damaged by.
type Damage = (&'static str, fn(&Log, &Volume, &mut [u8]));

/// The byte of the image where this group's descriptor begins.
fn descriptor(volume: &Volume, group: u32) -> usize {
    let sb = volume.superblock();
    let (index, offset) = sb.desc_place(GroupNo::new(group)).unwrap();
    sb.byte_of(sb.gdt_location(index).unwrap()).get() as usize + offset as usize
}

const DAMAGES: [Damage; 5] = [
    ("nothing", |_, _, _| {}),
    ("the journal's superblock", |log, _, image| {
        let at = log.byte_of(0);
        image[at..at + 64].fill(0);
    }),
    ("the journal's inode", |_, volume, image| {
        let place = volume.superblock().inode_place(Ino::new(8)).unwrap();
        let table = volume.groups()[0].inode_table.get() + u64::from(place.table_block);
        image[table as usize * 1024 + place.offset as usize + 0x2c] ^= 0x55;
    }),
    ("the size of the journal", |_, volume, image| {
        let place = volume.superblock().inode_place(Ino::new(8)).unwrap();
        let table = volume.groups()[0].inode_table.get() + u64::from(place.table_block);
        image[table as usize * 1024 + place.offset as usize + 0x6c] ^= 0x55;
    }),
    ("a descriptor of another group", |_, volume, image| {
        image[descriptor(volume, 2) + 8] ^= 0x55;
    }),
];

/// With recovery switched off a volume is read whatever its journal is. The defect: a volume whose journal was damaged, which is what the
/// option is for, could not be opened with it either.
#[test]
fn a_damaged_journal_does_not_prevent_reading_without_it() {
    let dir = scratch();
    for words in [
        "-b 1024 -O metadata_csum",
        "-b 1024 -O ^metadata_csum,uninit_bg",
    ] {
        let path = mke2fs(dir.path(), &words.split(' ').collect::<Vec<_>>(), "24M");
        let device = Arc::new(mem_of(&std::fs::read(&path).unwrap()));
        let volume = Volume::open_device(device.clone(), &OpenOptions::writable()).unwrap();
        volume
            .create("/old", 0o644)
            .unwrap()
            .write_bytes(0, b"old")
            .unwrap();
        volume.close().unwrap();
        let clean = all_of(&device, 24 << 20);
        let volume = Volume::open_device(device.clone(), &OpenOptions::writable()).unwrap();
        volume.create("/new", 0o644).unwrap().sync().unwrap();
        let crashed = all_of(&device, 24 << 20);
        let log = Log::of(dir.path(), &clean);
        for (what, damage) in DAMAGES {
            for (image, is_due) in [(&clean, false), (&crashed, true)] {
                let label = format!("{words}: {what}, due: {is_due}");
                let mut image = image.clone();
                damage(&log, &volume, &mut image);
                let device = Arc::new(mem_of(&image));
                let mut options = OpenOptions::default().recover(false);
                let reader = Volume::open_device(device.clone(), &options)
                    .unwrap_or_else(|e| panic!("{label}: {e}"));
                let mut bytes = [0; 4];
                let old = reader.open_path("/old", OpenFlags::default()).unwrap();
                assert_eq!(old.read_bytes(0, &mut bytes).unwrap(), 3, "{label}");
                assert_eq!(&bytes[..3], b"old", "{label}");
                reader.open_path("/new", OpenFlags::default()).unwrap_err();
                let said = reader.notes().join("\n");
                let missing = said.contains("what it holds is missing");
                assert_eq!(
                    missing,
                    is_due || what.contains("journal"),
                    "{label}: {said}"
                );
                assert_eq!(
                    said.contains("not used"),
                    what.contains("journal"),
                    "{label}: {said}"
                );
                assert_eq!(
                    said.contains("some files cannot be read"),
                    what.contains("descriptor"),
                    "{label}: {said}"
                );
                let sb = reader.superblock();
                let far = Ino::new(2 * sb.geometry().inodes_per_group() + 1);
                let refused = reader.metadata(far).unwrap_err().to_string();
                let by_name = refused.contains("the descriptor of group 2 is damaged");
                assert_eq!(by_name, what.contains("descriptor"), "{label}: {refused}");
                reader.close().unwrap();
                options.write = true;
                let written = Volume::open_device(device.clone(), &options);
                let may_write = !is_due && what == "nothing";
                assert_eq!(written.is_ok(), may_write, "{label}");
                if !may_write {
                    assert!(
                        all_of(&device, image.len()) == image,
                        "{label}: it was written to"
                    );
                }
            }
        }
        volume.close().unwrap();
    }
}
