//! Where the log of a journal may lie: nowhere else's place, and no hole (rule D10).
//!
//! Input: images whose journal's map was changed with debugfs. Output: none. Invariant: what is refused for writing is untouched. Limits:
//! maps of both kinds.

use crate::common::fixture::{filled, writable};
use crate::common::recipe::{RECIPES, Recipe, bare, debugfs};
use crate::common::scratch;
use crate::common::stage::{Stage, mem_of};
use diorite::{MappingState, OpenFlags, OpenOptions, Volume};
use diorite_format::Ino;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const EXT4: &Recipe = &RECIPES[0];
const EXT3: &Recipe = &RECIPES[3];

/// Where things are on a sound image.
struct Places {
    table: u64,
    bitmap: u64,
    /// Of the journal: its first block, and of a map of pointers its first block of these.
    log: u64,
    pointers: u32,
}

fn places(image: &Path) -> Places {
    let volume = Volume::open_device(Stage::mem(image).device, &OpenOptions::default()).unwrap();
    let journal = volume.open_ino(Ino::new(8), OpenFlags::default()).unwrap();
    let first = journal.mappings(0, 1).unwrap()[0];
    let MappingState::Written(log) = first.state else {
        panic!("{first:?}")
    };
    let root = journal.metadata().i_block;
    Places {
        table: volume.groups()[0].inode_table.get(),
        bitmap: volume.groups()[0].block_bitmap.get(),
        log: log.get(),
        pointers: u32::from_le_bytes(root[48..52].try_into().unwrap()),
    }
}

/// Moves the first extent of the journal; its superblock goes with it.
fn moved(image: &Path, dir: &Path, from: u64, to: u64) {
    let mut bytes = std::fs::read(image).unwrap();
    let of = |block: u64| (block as usize * 4096)..(block as usize + 1) * 4096;
    bytes.copy_within(of(from), of(to).start);
    std::fs::write(image, &bytes).unwrap();
    debugfs(image, dir, &format!("sif <8> block[5] {to}\n"));
}

/// Of an image so changed: writers are refused with these words and nothing is written, readers are not.
fn refused(recipe: &Recipe, words: &str, change: impl Fn(&Path, &Path, &Places)) {
    let dir = scratch();
    let image = bare(dir.path(), recipe);
    Stage::mem(&image).open(&OpenOptions::writable()).unwrap();
    change(&image, dir.path(), &places(&image));
    let stage = Stage::mem(&image);
    let before = stage.bytes();
    let error = stage.open(&OpenOptions::writable()).map(drop).unwrap_err();
    let said = format!("{error}");
    let named = said.contains("the journal is damaged") && said.contains(words);
    assert!(named, "{words}: {said}");
    assert!(stage.bytes() == before, "{words}: it was written to");
    let volume = stage.open(&OpenOptions::default()).unwrap();
    let mut bytes = [0; 512];
    let file = volume.open_path("/odd", OpenFlags::default()).unwrap();
    assert_eq!(file.read_bytes(4096, &mut bytes).unwrap(), 512);
    assert_eq!(bytes, [0x55; 512]);
}

/// Rule D10. A journal with a hole was written: its log went over blocks of files, at the place that the run before the hole would have
/// had.
#[test]
fn a_journal_with_a_hole_is_not_written() {
    let nowhere = "has no place on the device";
    refused(EXT4, nowhere, |image, dir, _| {
        debugfs(image, dir, "punch <8> 300 400\n");
    });
    // The last block of the log.
    refused(EXT4, nowhere, |image, dir, _| {
        debugfs(image, dir, "punch <8> 1023 1023\n");
    });
    refused(EXT3, nowhere, |image, dir, _| {
        debugfs(image, dir, "sif <8> block[3] 0\n");
    });
}

/// Rule D10. A journal in the inode table was written: its log went over inodes. So for every structure at a fixed place.
#[test]
fn a_journal_in_the_volumes_own_structures_is_not_written() {
    refused(EXT4, "an inode table", |image, dir, at| {
        moved(image, dir, at.log, at.table + 150);
    });
    for what in ["a block bitmap", "an inode table", "group descriptors"] {
        refused(EXT3, what, |image, dir, at| {
            let to = match what {
                "a block bitmap" => at.bitmap,
                "an inode table" => at.table,
                _ => 1,
            };
            debugfs(image, dir, &format!("sif <8> block[3] {to}\n"));
        });
    }
}

/// Rule D10. Nor is one that has a block twice, or a block of its own map.
#[test]
fn a_journal_over_itself_is_not_written() {
    refused(EXT3, "is in it twice", |image, dir, at| {
        debugfs(image, dir, &format!("sif <8> block[3] {}\n", at.log + 2));
    });
    refused(EXT3, "or of its map", |image, dir, at| {
        debugfs(image, dir, &format!("sif <8> block[3] {}\n", at.pointers));
    });
    // Both halves of its pointers are the same block.
    refused(EXT3, "is in its map twice", |image, dir, at| {
        debugfs(
            image,
            dir,
            &format!("sif <8> block[DIND] {}\n", at.pointers),
        );
    });
}

/// Rule D10. What a reader replays of such a log would be something else's bytes: it replays nothing and says so.
#[test]
fn a_reader_does_not_replay_a_log_that_is_elsewhere() {
    let dir = scratch();
    let image = bare(dir.path(), EXT3);
    let stage = Stage::mem(&image);
    let options = OpenOptions {
        commit_interval: Duration::from_secs(3600),
        ..OpenOptions::writable()
    };
    let volume = stage.open(&options).unwrap();
    let file = volume.open_path("/empty", writable()).unwrap();
    file.write_at(0, filled(7, 4096)).1.unwrap();
    file.sync().unwrap();
    // The power goes.
    let mut bytes = stage.bytes();
    drop((file, volume));
    let size_of = |bytes: &[u8]| {
        let volume = Volume::open_device(Arc::new(mem_of(bytes)), &OpenOptions::default());
        let volume = volume.unwrap();
        let notes = volume.notes().join("; ");
        let file = volume.open_path("/empty", OpenFlags::default()).unwrap();
        (file.size(), notes)
    };
    let (size, notes) = size_of(&bytes);
    assert!(
        size == 4096 && notes.contains("was replayed in memory"),
        "{notes}"
    );
    // The journal's fourth block is nowhere: changed by hand, as debugfs would keep its hands off.
    let at = inode_at(&bytes, 8) + 40 + 3 * 4;
    bytes[at..at + 4].fill(0);
    let (size, notes) = size_of(&bytes);
    assert!(
        size == 0 && notes.contains("not replayed"),
        "{size}: {notes}"
    );
    let writer = Volume::open_device(Arc::new(mem_of(&bytes)), &OpenOptions::writable());
    let said = format!("{}", writer.map(drop).unwrap_err());
    assert!(said.contains("has no place on the device"), "{said}");
}

/// Where an inode of the first group begins.
fn inode_at(bytes: &[u8], ino: usize) -> usize {
    let field = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let size = usize::from(u16::from_le_bytes(bytes[1112..1114].try_into().unwrap()));
    field(4096 + 8) * 4096 + (ino - 1) * size
}
