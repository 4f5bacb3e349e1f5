//! Fast commits: what was synced on the kernel's mount is recovered, for readers and for writers, and nothing after the point at
//! which the log was cut off.
//!
//! Every step of a workload on a mount with fast_commit ends with an fsync. Then names, sizes, contents and link counts are noted
//! and the backing file is copied: an image of a crash. From each image come states in which the fast commits from some step on are
//! removed, torn or damaged; these must recover to the tree after the step before. `DIORITE_STATES` makes the test longer. The
//! kernel does not judge these states: the replay of Linux 6.18 stops with a BUG in some of them, and the mount that is left blocks
//! every sync(2) on the machine until a reboot.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `area` | an image -> the blocks of its fast commits |
//! | `tree` | a volume, or a directory of the host -> the tree in it |
//! | `work` | a seed -> files and directories made and changed on a mount |

mod area;
mod tree;
mod work;

use crate::common::kernel::mounted;
use crate::common::log::Log;
use crate::common::stage::mem_of;
use crate::common::{Rng, fsck, scaled, scratch};
use crate::recovery::{all_of, mke2fs, recovered};
use area::Area;
use diorite::{OpenOptions, Volume};
use diorite_block::record::{PowerCuts, plan};
use std::path::Path;
use std::sync::Arc;
use tree::Tree;
use work::Work;

/// Features, block size, and the number of steps.
const VOLUMES: [(&str, &str, usize); 6] = [
    ("metadata_csum", "1024", 30),
    ("metadata_csum,orphan_file,metadata_csum_seed", "4096", 20),
    ("^metadata_csum,^64bit", "1024", 12),
    ("^metadata_csum,^64bit,^extents", "1024", 12),
    ("inline_data", "4096", 14),
    ("bigalloc", "1024", 14),
];

/// How many states e2fsck judged, too; how many of those it recovers to the same tree; and for the others, whether it reports that
/// errors are left (it has given up on a record), or is content although something synced is missing or different.
#[derive(Debug, Default)]
struct Tally {
    states: u64,
    judged: u64,
    e2fsck: u64,
    gave_up: u64,
    differs: u64,
}

impl Tally {
    fn add(&mut self, more: &Tally) {
        self.states += more.states;
        self.judged += more.judged;
        self.e2fsck += more.e2fsck;
        self.gave_up += more.gave_up;
        self.differs += more.differs;
    }
}

#[test]
fn what_was_synced_is_there() {
    let (most, dir) = (scaled("DIORITE_STATES", 48), scratch());
    let (mut tally, mut rng) = (Tally::default(), Rng::from_env("fast commits"));
    while tally.states < most {
        for (features, block, steps) in VOLUMES {
            let label = format!("{features} {block}");
            let volume = (features, block, steps);
            let share = most.div_ceil(VOLUMES.len() as u64).min(150);
            let mut each = Tally::default();
            if !campaign(dir.path(), volume, &mut rng, share, &mut each) {
                return;
            }
            eprintln!("{label}: {each:?}");
            tally.add(&each);
        }
    }
    eprintln!("fast commits: {tally:?}");
}

/// Runs one workload on one volume. Returns false if nothing can be mounted here.
fn campaign(
    dir: &Path,
    (features, block, steps): (&str, &str, usize),
    rng: &mut Rng,
    states: u64,
    tally: &mut Tally,
) -> bool {
    let features = format!("fast_commit,{features}");
    let image = mke2fs(dir, &["-b", block, "-O", &features], "48M");
    let log = Log::of(dir, &std::fs::read(&image).unwrap());
    let mut area = Area::of(&log, &std::fs::read(&image).unwrap());
    let mut trees: Vec<Tree> = Vec::new();
    mounted(&image, "commit=300,noinit_itable", |at| {
        let mut work = Work::new(at, rng.fork());
        work.begin();
        for step in 0..steps {
            work.step();
            let bytes = std::fs::read(&image).unwrap();
            trees.push(Tree::of_host(at).unwrap());
            area.note(&bytes);
            let share = states * (step as u64 + 1) / steps as u64;
            while tally.states < share {
                let label = format!("{features} {block}, {}, step {step}", work.said());
                one_state(dir, &bytes, (&area, &trees), rng, &label, tally);
            }
        }
        work.end();
    })
}

/// Judges one state of an image with diorite, and some states with e2fsck.
fn one_state(
    dir: &Path,
    bytes: &[u8],
    (area, trees): (&Area, &[Tree]),
    rng: &mut Rng,
    label: &str,
    tally: &mut Tally,
) {
    let mut bytes = bytes.to_vec();
    let (how, left) = area.spoil(&mut bytes, rng);
    let label = format!("{label}, {how}");
    let want = (&trees[left], &trees[left + 1..]);
    recovers(dir, &bytes, want, &label);
    tally.states += 1;
    if tally.states.is_multiple_of(4) {
        tally.judged += 1;
        let copy = dir.join("judge");
        std::fs::write(&copy, &bytes).unwrap();
        let ended = xtask::run::tool("e2fsck").arg("-fy").arg(&copy).output();
        let is_content = ended.unwrap().status.code().is_some_and(|code| code < 4);
        // A volume on which e2fsck has given up may be damaged.
        let theirs = std::panic::catch_unwind(|| Tree::of_image(&std::fs::read(&copy).unwrap()));
        let same = |theirs: &Tree| want.0.differences(theirs, want.1).is_empty();
        let same = matches!(theirs, Ok(Ok(tree)) if same(&tree));
        tally.e2fsck += u64::from(same);
        tally.gave_up += u64::from(!same && !is_content);
        tally.differs += u64::from(!same && is_content);
    }
}

/// Asserts that readers and writers find this tree, and that e2fsck finds nothing wrong with what writers leave.
fn recovers(dir: &Path, bytes: &[u8], (want, since): (&Tree, &[Tree]), label: &str) {
    let read = Arc::new(mem_of(bytes));
    let volume = Volume::open_device(read.clone(), &OpenOptions::default());
    let volume = volume.unwrap_or_else(|e| panic!("{label}: {e}"));
    want.compare(&Tree::of(&volume), since, &format!("{label}, read"));
    volume.close().unwrap();
    assert!(
        all_of(&read, bytes.len()) == bytes,
        "{label}: reading wrote something"
    );
    let disk = Arc::new(mem_of(bytes));
    let volume = Volume::open_device(disk.clone(), &OpenOptions::writable());
    let volume = volume.unwrap_or_else(|e| panic!("{label}: {e}"));
    volume.close().unwrap();
    let after = all_of(&disk, bytes.len());
    let mine = dir.join("mine");
    std::fs::write(&mine, &after).unwrap();
    let out = xtask::run::tool("e2fsck")
        .arg("-fn")
        .arg(&mine)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{label}: {said}");
    fsck(&mine);
    want.compare(
        &Tree::of_image(&after).unwrap(),
        since,
        &format!("{label}, recovered"),
    );
}

/// A crash image with fast commits, and the tree in it.
fn crashed(dir: &Path, seed: u64, steps: usize) -> Option<(Vec<u8>, Tree)> {
    let image = mke2fs(dir, &["-b", "1024", "-O", "fast_commit"], "24M");
    let log = Log::of(dir, &std::fs::read(&image).unwrap());
    let mut area = Area::of(&log, &std::fs::read(&image).unwrap());
    let mut found = None;
    mounted(&image, "commit=300,noinit_itable", |at| {
        let mut work = Work::new(at, Rng::new(seed));
        work.begin();
        for _ in 0..steps {
            work.step();
            area.note(&std::fs::read(&image).unwrap());
        }
        let bytes = std::fs::read(&image).unwrap();
        found = area.has_some().then(|| (bytes, Tree::of_host(at).unwrap()));
        work.end();
    })
    .then_some(())?;
    found
}

/// A power cut at any write of recovery leaves an image that recovers to the same tree: the changes of fast commits become one
/// transaction, and the fast commits stay valid until it is committed.
#[test]
fn power_cuts_while_fast_commits_are_brought_home() {
    let dir = scratch();
    let Some((image, want)) = crashed(dir.path(), 11, 12) else {
        return;
    };
    let events = recovered(dir.path(), &image);
    let mut cuts = PowerCuts::new(image, &events);
    for (n, cut) in plan(&events, 120, 7, 512).into_iter().enumerate() {
        cuts.with_image(cut, |image| {
            let label = format!("{cut:?}");
            want.compare(&Tree::of_image(image).unwrap(), &[], &label);
            if n % 6 == 0 {
                recovers(dir.path(), image, (&want, &[]), &label);
            }
        });
    }
}

/// A volume that is refused for writing is unchanged; a reader is told what is missing.
#[test]
fn fast_commits_that_are_not_understood() {
    let dir = scratch();
    let Some((mut bytes, _)) = crashed(dir.path(), 5, 6) else {
        return;
    };
    let log = Log::of(dir.path(), &bytes);
    let area = Area::of(&log, &bytes);
    area.add_unknown_tag(&mut bytes);
    let device = Arc::new(mem_of(&bytes));
    let refused = Volume::open_device(device.clone(), &OpenOptions::writable()).unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("fast commit records with tag 66"), "{said}");
    assert!(all_of(&device, bytes.len()) == bytes, "{said}");
    let volume = Volume::open_device(device, &OpenOptions::default()).unwrap();
    let said = volume.notes().join("\n");
    assert!(said.contains("fast commits cannot be replayed"), "{said}");
}

/// A torn superblock, orphans and fast commits at once.
#[test]
fn a_torn_superblock_and_fast_commits() {
    let dir = scratch();
    let Some((mut bytes, want)) = crashed(dir.path(), 23, 10) else {
        return;
    };
    bytes[1024 + 0x180] ^= 1;
    recovers(dir.path(), &bytes, (&want, &[]), "torn");
}
