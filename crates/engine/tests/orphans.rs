//! Orphans that other tools left, made by debugfs, in the chain and in the orphan file, with and without names; and damaged lists.

use crate::common::{debugfs_script, fsck, image, run, scratch};
use diorite::{AccessTimes, Error, File, Ino, OpenFlags, OpenOptions, Volume};
use diorite_block::{Buf, Device, MemDevice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const KINDS: [&[&str]; 4] = [
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "1024", "-O", "orphan_file"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext2", "-b", "1024"],
];

fn make(dir: &Path, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    for n in 0..4u8 {
        std::fs::write(tree.join(format!("f{n}")), vec![n; 200_000]).unwrap();
    }
    image(dir, "32M", args, &tree)
}

fn debugfs(image: &Path, commands: &[String]) {
    debugfs_script(image, &commands.join("\n"));
}

fn ino_of(image: &Path, name: &str) -> u32 {
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::default()).unwrap();
    volume.resolve(name.as_bytes(), true).unwrap().get()
}

/// A chain of f0 (no name), f1 (with a name, to be truncated to its size), f2 (no name).
fn orphans(image: &Path) {
    let ino: Vec<u32> = (0..3).map(|n| ino_of(image, &format!("/f{n}"))).collect();
    let mut commands = vec!["unlink /f0".to_owned(), "unlink /f2".to_owned()];
    for (n, next) in [(0, ino[1]), (1, ino[2]), (2, 0)] {
        commands.push(format!("set_inode_field <{}> dtime {next}", ino[n]));
    }
    for n in [0, 2] {
        commands.push(format!("set_inode_field <{}> links_count 0", ino[n]));
    }
    commands.push(format!("set_inode_field <{}> size 5000", ino[1]));
    commands.push(format!("set_super_value last_orphan {}", ino[0]));
    debugfs(image, &commands);
}

fn open(image: &Path, options: &OpenOptions) -> Result<Volume, diorite::Error> {
    Volume::open(image.to_str().unwrap(), options)
}

#[test]
fn orphans_of_others_are_dealt_with() {
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        orphans(&image);
        let reader = open(&image, &OpenOptions::default()).unwrap();
        assert!(reader.notes().iter().any(|n| n.contains("orphaned")));
        drop(reader);
        let volume = open(&image, &OpenOptions::writable()).unwrap();
        let done = "orphaned inodes: 2 deleted, 1 truncated";
        assert!(volume.notes().iter().any(|n| n == done));
        let file = volume.open_path("/f1", OpenFlags::default()).unwrap();
        assert_eq!(file.size(), 5000);
        assert!(file.metadata().blocks <= 16);
        let mut bytes = vec![0; 5000];
        file.read_bytes(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|b| *b == 1));
        drop(file);
        volume.close().unwrap();
        fsck(&image);
        let reader = open(&image, &OpenOptions::default()).unwrap();
        assert!(!reader.notes().iter().any(|n| n.contains("orphaned")));
    }
}

/// Files without names, open.
fn unlinked(volume: &Volume) -> Vec<File> {
    let unlinked = |n| {
        let name = format!("/f{n}");
        let file = volume.open_path(&name, OpenFlags::default()).unwrap();
        volume.unlink(&name).unwrap();
        file
    };
    (0..3).map(unlinked).collect()
}

/// Orphans of a volume that was not closed are deleted by the next opening.
#[test]
fn orphans_of_our_own() {
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        let copy = dir.path().join("copy");
        let volume = open(&image, &OpenOptions::writable()).unwrap();
        let files = unlinked(&volume);
        volume.sync().unwrap();
        // The state after a power cut.
        std::fs::copy(&image, &copy).unwrap();
        drop(files);
        volume.close().unwrap();
        fsck(&image);
        let again = open(&copy, &OpenOptions::writable()).unwrap();
        again.close().unwrap();
        fsck(&copy);
        let free = |path: &Path| {
            let text = run("dumpe2fs", &["-h", path.to_str().unwrap()]);
            let line = text.lines().find(|l| l.starts_with("Free blocks:"));
            line.unwrap().to_owned()
        };
        assert_eq!(free(&image), free(&copy));
    }
}

/// A volume that was closed while unlinked files were open leaves them on the list, with nothing in the log. The next opening for
/// writing marks the superblock as in use. If that write is torn, a backup copy is used, which knows of no orphans; they must be
/// found all the same.
#[test]
fn orphans_survive_a_torn_superblock() {
    for args in [
        &["-t", "ext4", "-b", "1024", "-O", "^orphan_file"],
        KINDS[1],
    ] {
        // The bytes that differ in the sector that was written, while the sector with the checksum is old: those of mount time and
        // mount count, as by marking the volume; or those of mount count, orphan list and hash seed: marking changes only the first.
        for (torn, survive) in [(&[0x2C, 0x34][..], true), (&[0x34, 0xE8, 0xEC], false)] {
            let dir = scratch();
            let image = make(dir.path(), args);
            let volume = open(&image, &OpenOptions::writable()).unwrap();
            let files = unlinked(&volume);
            volume.close().unwrap();
            drop(files);
            let mut bytes = std::fs::read(&image).unwrap();
            torn.iter().for_each(|at| bytes[1024 + at] ^= 3);
            std::fs::write(&image, bytes).unwrap();
            let volume = open(&image, &OpenOptions::writable()).unwrap();
            let said = volume.notes().join("; ");
            assert!(said.contains("stands in for it"), "{said}");
            let deleted = said.contains("orphaned inodes: 3 deleted");
            // The orphan file is found by its inode number, which backup copies have.
            assert_eq!(deleted, survive || args == KINDS[1], "{said}");
            volume.close().unwrap();
            if deleted {
                fsck(&image);
            }
        }
    }
}

#[test]
fn damaged_lists_are_named() {
    let damages: [&[&str]; 4] = [
        &["set_super_value last_orphan 7"],
        &["set_super_value last_orphan 99999999"],
        &["set_super_value last_orphan 1000"],
        &[
            "set_inode_field /f0 dtime INO",
            "set_super_value last_orphan INO",
        ],
    ];
    for damage in damages {
        let dir = scratch();
        let image = make(dir.path(), KINDS[0]);
        let ino = ino_of(&image, "/f0").to_string();
        let commands: Vec<String> = damage.iter().map(|c| c.replace("INO", &ino)).collect();
        debugfs(&image, &commands);
        let before = std::fs::read(&image).unwrap();
        let error = open(&image, &OpenOptions::writable()).unwrap_err();
        assert!(error.is_corrupt(), "{damage:?}: {error}");
        assert!(error.to_string().contains("inode"), "{error}");
        assert!(before == std::fs::read(&image).unwrap());
    }
}

/// Deleted files free their space at once, since other callers would be refused space; also while their last times are only noted.
#[test]
fn what_is_deleted_makes_room() {
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        let volume = open(&image, &OpenOptions::writable()).unwrap();
        let fill = |path: &str| {
            let file = volume.create(path, 0o644).unwrap();
            let mut size = 0;
            loop {
                match file.write_buf(size, Buf::zeroed(256 << 10)).1 {
                    Ok(len) => size += len as u64,
                    Err(Error::NoSpace { .. }) => return (file, size),
                    Err(other) => panic!("{args:?}: {other}"),
                }
            }
        };
        let (first, size) = fill("/first");
        assert!(size > 8 << 20, "{args:?}: {size}");
        // An overwrite notes a time, which keeps the inode until the next commit.
        first.write_buf(0, Buf::zeroed(4096)).1.unwrap();
        drop(first);
        volume.unlink("/first").unwrap();
        let (second, again) = fill("/second");
        assert_eq!(again, size, "{args:?}");
        drop(second);
        volume.close().unwrap();
        fsck(&image);
    }
}

/// An opening that fails lets go of the device, whatever it had in memory. The defect: a directory that was looked at was kept there, and
/// with it the volume, so that the image stayed locked for as long as the process lived.
#[test]
fn an_opening_that_fails_holds_nothing() {
    let dir = scratch();
    let image = make(dir.path(), &["-t", "ext4", "-b", "1024"]);
    let ino = ino_of(&image, "/f1");
    let directory = ino_of(&image, "/lost+found");
    debugfs(
        &image,
        &[
            "unlink /f1".to_owned(),
            format!("set_inode_field <{ino}> links_count 0"),
            // Its first block is the superblock's.
            format!("set_inode_field <{ino}> block[5] 1"),
            format!("set_inode_field <{directory}> dtime {ino}"),
            format!("set_super_value last_orphan {directory}"),
        ],
    );
    let bytes = std::fs::read(&image).unwrap();
    let device = MemDevice::new(bytes.len() as u64);
    device.write_at(0, &bytes);
    let device: Arc<dyn Device> = Arc::new(device);
    let refused = Volume::open_device(device.clone(), &OpenOptions::writable()).unwrap_err();
    assert!(refused.to_string().contains("orphaned inode"), "{refused}");
    let gone = || Arc::strong_count(&device) == 1;
    // The thread that commits may be on its way out.
    let patience = Instant::now() + Duration::from_secs(5);
    while !gone() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(gone(), "{} references are left", Arc::strong_count(&device));
}

/// A file without a name is deleted with its last user, also if that outlives the volume. The defect: it stayed on the orphan list.
#[test]
fn who_outlives_the_volume_deletes_what_has_no_name() {
    for args in KINDS {
        for by_queue in [false, true] {
            let dir = scratch();
            let image = make(dir.path(), args);
            let volume = open(&image, &OpenOptions::writable()).unwrap();
            let file = volume.open_path("/f1", OpenFlags::default()).unwrap();
            let queue = volume.queue(1).unwrap();
            let id = queue.attach(&file).unwrap();
            volume.unlink("/f1").unwrap();
            drop(volume);
            if by_queue {
                drop(file);
                drop(queue);
            } else {
                queue.detach(id);
                drop(queue);
                drop(file);
            }
            let reader = open(&image, &OpenOptions::default()).unwrap();
            let notes = reader.notes();
            assert!(!notes.iter().any(|n| n.contains("orphaned")), "{notes:?}");
            drop(reader);
            fsck(&image);
        }
    }
}

/// Behind a close nothing is written: neither is a file deleted that has lost its last user, nor is a directory noted as read. The next
/// opening deletes the file. The defect: another volume on the same device, opened meanwhile, lost what it had allocated there.
#[test]
fn nothing_is_written_behind_a_close() {
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        let options = OpenOptions::writable().access_times(AccessTimes::Relative);
        let volume = open(&image, &options).unwrap();
        let file = volume.open_path("/f1", OpenFlags::default()).unwrap();
        volume.unlink("/f1").unwrap();
        volume.clone().close().unwrap();
        let closed = std::fs::read(&image).unwrap();
        drop(file);
        volume.read_dir(Ino::ROOT).unwrap().for_each(drop);
        drop(volume);
        assert!(std::fs::read(&image).unwrap() == closed, "{args:?}");
        let again = open(&image, &OpenOptions::writable()).unwrap();
        let (notes, done) = (again.notes(), "orphaned inodes: 1 deleted, 0 truncated");
        assert!(notes.iter().any(|n| n == done), "{notes:?}");
        again.close().unwrap();
        fsck(&image);
    }
}
