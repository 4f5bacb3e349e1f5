//! Where the log of a journal may be: not over other structures, and without holes (rule D10).
//!
//! Input: images whose journal's map was changed with debugfs. Output: none. Invariant: an image that is refused for writing is
//! unchanged. Limits: both kinds of maps.

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

/// Where structures are on an undamaged image.
struct Places {
    table: u64,
    bitmap: u64,
    /// The first block of the journal, and, if its map is of pointers, its first block of pointers.
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

/// Moves the first extent of the journal and copies its superblock there.
fn moved(image: &Path, dir: &Path, from: u64, to: u64) {
    let mut bytes = std::fs::read(image).unwrap();
    let of = |block: u64| (block as usize * 4096)..(block as usize + 1) * 4096;
    bytes.copy_within(of(from), of(to).start);
    std::fs::write(image, &bytes).unwrap();
    debugfs(image, dir, &format!("sif <8> block[5] {to}\n"));
}

/// Asserts that the changed image is refused for writing with these words and nothing is written, and that readers can open it.
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

/// Rule D10. The defect: a journal with a hole was written. Its log overwrote blocks of files, where the extent before the hole
/// would have continued.
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

/// Rule D10. The defect: a journal inside the inode table was written, and its log overwrote inodes. The same holds for every
/// structure with a fixed place.
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

/// Rule D10. A journal that has a block twice, or a block of its own map, is not written either.
#[test]
fn a_journal_over_itself_is_not_written() {
    refused(EXT3, "is in it twice", |image, dir, at| {
        debugfs(image, dir, &format!("sif <8> block[3] {}\n", at.log + 2));
    });
    refused(EXT3, "or of its map", |image, dir, at| {
        debugfs(image, dir, &format!("sif <8> block[3] {}\n", at.pointers));
    });
    // The indirect block is the double-indirect block, too.
    refused(EXT3, "is in its map twice", |image, dir, at| {
        debugfs(
            image,
            dir,
            &format!("sif <8> block[DIND] {}\n", at.pointers),
        );
    });
}

/// Rule D10. The blocks of such a log belong to other structures, so a reader replays nothing and says so.
#[test]
fn a_reader_does_not_replay_a_log_that_is_elsewhere() {
    let dir = scratch();
    let image = bare(dir.path(), EXT3);
    let stage = Stage::mem(&image);
    let options = OpenOptions::writable().commit_interval(Duration::from_secs(3600));
    let volume = stage.open(&options).unwrap();
    let file = volume.open_path("/empty", writable()).unwrap();
    file.write_buf(0, filled(7, 4096)).1.unwrap();
    file.sync().unwrap();
    // A power cut.
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
    // Sets the journal's fourth block to 0, a hole. The inode is changed directly, as debugfs protects it.
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

/// The byte at which an inode of the first group begins.
fn inode_at(bytes: &[u8], ino: usize) -> usize {
    let field = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let size = usize::from(u16::from_le_bytes(bytes[1112..1114].try_into().unwrap()));
    field(4096 + 8) * 4096 + (ino - 1) * size
}
