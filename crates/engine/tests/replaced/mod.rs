//! Power cuts without a journal while names are replaced: each such name refers to the old or the new contents.
//!
//! Input: small volumes without a journal, on a recording device with a volatile cache, and random names that are replaced, moved
//! and exchanged. Output: none. Invariant: once e2fsck has run, every name refers to the whole of one of the contents that it may
//! have, and contents that only moved have a name. Limits: `DIORITE_CUTS` states per volume, spread over the whole log; half of
//! them are torn between sectors.

mod model;
mod world;

use crate::common::names::{empty, is_hashed};
use crate::common::stage::mem_of;
use crate::common::{Rng, scaled, scratch, words};
use diorite::{OpenOptions, Volume};
use diorite_block::RecordDevice;
use diorite_block::record::{Cut, PowerCuts, Survival, plan};
use diorite_format::Superblock;
use diorite_format::superblock::SUPERBLOCK_SIZE;
use model::{Blocks, Model};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use world::World;

/// A kind of volume.
struct Kind {
    args: &'static str,
    /// The number of names in each directory that refer to empty files.
    fillers: usize,
    /// Do directories get a hash index?
    hashed: bool,
}

const KINDS: [Kind; 8] = [
    Kind {
        args: "-t ext4 -b 1024",
        fillers: 24,
        hashed: true,
    },
    Kind {
        args: "-t ext4 -b 4096",
        fillers: 60,
        hashed: true,
    },
    Kind {
        args: "-t ext4 -b 1024 -O ^dir_index",
        fillers: 24,
        hashed: false,
    },
    Kind {
        args: "-t ext4 -b 4096 -O ^dir_index,^metadata_csum",
        fillers: 40,
        hashed: false,
    },
    Kind {
        args: "-t ext4 -b 1024 -I 128 -O ^metadata_csum",
        fillers: 24,
        hashed: true,
    },
    Kind {
        args: "-t ext4 -b 4096",
        fillers: 0,
        hashed: false,
    },
    Kind {
        args: "-t ext4 -b 4096 -O inline_data",
        fillers: 0,
        hashed: false,
    },
    Kind {
        args: "-t ext2 -b 1024",
        fillers: 24,
        hashed: true,
    },
];

/// The number of operations on each volume.
const STEPS: usize = 60;

/// Counts of states and of what was found in them.
#[derive(Default)]
struct Tally {
    states: usize,
    wrong: usize,
    /// States in which e2fsck found a torn directory block and kept only the entries that it could read.
    lossy: usize,
    first: String,
}

#[test]
fn no_cut_leaves_neither_the_old_nor_the_new() {
    let mut rng = Rng::from_env("replaced names");
    let states = scaled("DIORITE_CUTS", 60) as usize;
    let mut all = String::new();
    for kind in &KINDS {
        for tears in [false, true] {
            let mut tally = Tally::default();
            campaign(kind, tears, states.div_ceil(2), &mut rng, &mut tally);
            let (wrong, states, lossy) = (tally.wrong, tally.states, tally.lossy);
            let args = kind.args;
            eprintln!("{args:?}, torn {tears}: {states} states, {lossy} lossy, {wrong} wrong");
            all += &tally.first;
        }
    }
    assert!(all.is_empty(), "{all}");
}

fn campaign(kind: &Kind, tears: bool, states: usize, rng: &mut Rng, tally: &mut Tally) {
    let dir = scratch();
    let args = format!("{} {NO_JOURNAL}", kind.args);
    let image = empty(dir.path(), "4M", &words(&args));
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
    let mut model = Model::new(kind.fillers);
    world::begin(&volume, &mut model);
    assert_eq!(is_hashed(&volume, "/a"), kind.hashed, "{:?}", kind.args);
    volume.close().unwrap();
    let base = std::fs::read(&image).unwrap();
    let device = RecordDevice::with_volatile_cache(Arc::new(mem_of(&base)));
    let options = OpenOptions::writable().commit_interval(Duration::from_secs(3600));
    let volume = Volume::open_device(Arc::new(device.clone()), &options).unwrap();
    let mut world = World::new(&volume, &device, model, rng.fork());
    (0..STEPS).for_each(|_| world.step());
    let model = world.end();
    volume.close().unwrap();
    let log = device.log();
    let unit = if tears { 512 } else { block_of(kind) };
    let superblock: [u8; SUPERBLOCK_SIZE] = base[1024..2048].try_into().unwrap();
    let mut walk = PowerCuts::new(base, &log);
    for cut in plan(&log, states, rng.below(u64::MAX), unit) {
        tally.states += 1;
        let mut bytes = walk.with_image(cut, <[u8]>::to_vec);
        let primary: [u8; SUPERBLOCK_SIZE] = bytes[1024..2048].try_into().unwrap();
        if Superblock::parse(&primary).is_err() {
            // The superblock is torn, and so small a volume has no backup copy.
            bytes[1024..2048].copy_from_slice(&superblock);
        }
        let wrong = judge(dir.path(), &bytes, cut, &model, tally);
        if let Some(wrong) = wrong {
            tally.wrong += 1;
            tally.first = match tally.wrong {
                1 => format!("{:?}: {wrong}\n", kind.args),
                _ => std::mem::take(&mut tally.first),
            };
        }
    }
}

const NO_JOURNAL: &str = "-O ^has_journal -N 256";

fn block_of(kind: &Kind) -> usize {
    let args = words(kind.args);
    let at = args.iter().position(|arg| *arg == "-b").unwrap();
    args[at + 1].parse().unwrap()
}

/// The paths that e2fsck has given to entries whose names were there twice.
fn renamed(said: &str) -> Vec<String> {
    let mut lines = said.lines().peekable();
    let mut paths = Vec::new();
    while let Some(line) = lines.next() {
        let twice = line.strip_suffix(" has a non-unique filename.");
        let dir = twice.and_then(|line| line.rsplit_once("' in ")?.1.rsplit_once(" ("));
        let name = lines.peek().and_then(|next| {
            let to = next.strip_prefix("Rename to ")?;
            to.strip_suffix("? yes")
        });
        if let (Some((dir, _)), Some(name)) = (dir, name) {
            paths.push(format!("{dir}/{name}"));
        }
    }
    paths
}

/// e2fsck repairs the image; then all names are looked up. Returns what is wrong.
fn judge(dir: &Path, bytes: &[u8], cut: Cut, model: &Model, tally: &mut Tally) -> Option<String> {
    let path = dir.join("cut");
    std::fs::write(&path, bytes).unwrap();
    let done = xtask::run::tool("e2fsck")
        .arg("-fy")
        .arg(&path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.code().is_some_and(|code| code < 4),
        "{cut:?}\n{said}"
    );
    let volume = Volume::open(path.to_str().unwrap(), &OpenOptions::default()).unwrap();
    // Without checksums, a torn block in which entries were moved together may still be readable, but lack names that are in
    // neither half.
    let unreadable = said.contains("directory corrupted") || said.contains("bad max hash");
    let blocks = match (cut.survival, unreadable) {
        (Survival::Chance { unit: 512, .. }, true) => Blocks::Unreadable,
        (Survival::Chance { unit: 512, .. }, false) => Blocks::Torn,
        _ => Blocks::Whole,
    };
    tally.lossy += usize::from(blocks == Blocks::Unreadable);
    let wrong = model.judge(cut.at, blocks, &renamed(&said), |name| {
        world::seen(&volume, name)
    });
    (!wrong.is_empty()).then(|| format!("{cut:?}\n{}\n{said}", wrong.join("\n")))
}

#[test]
fn names_that_e2fsck_gave() {
    let said = "Pass 3A: Optimizing directories\nDuplicate entry 'x' in /a (12) found.  Clear? yes\n\n\
                Entry 'one' in /a (12) has a non-unique filename.\nRename to on~0? yes\n\n\
                Entry 'no' in /b (13) has a non-unique filename.\nRename to n~0? no\n";
    assert_eq!(renamed(said), ["/a/on~0"]);
}
