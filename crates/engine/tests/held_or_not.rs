//! Files are moved, removed and made by their names while others use them by their numbers, so that an inode is now in memory and now not.
//!
//! Input: volumes of several kinds with a small metadata cache; threads that each have names of their own, and threads that take numbers at
//! random. Output: each name refers to the file that its thread gave it; e2fsck judges each volume, which has those names and no others.
//! Invariants: who is told `NotInUse` has a number whose last name is gone or going. Limits: the threads meet by chance.

use crate::common::names::by_debugfs;
use crate::common::{Rng, fsck, image, scaled, scratch};
use diorite::dir::RenameFlags;
use diorite::{Error, Ino, OpenFlags, OpenOptions, Volume};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use xtask::rng::seed;

const KINDS: [&[&str]; 5] = [
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
    &["-t", "ext3", "-b", "1024", "-I", "128"],
    &["-t", "ext4", "-b", "1024", "-O", "inline_data", "-I", "512"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "^metadata_csum,uninit_bg",
        "-N",
        "4096",
    ],
];

const DIRS: [&str; 3] = ["/a", "/b", "/a/c"];
const NAMES: usize = 24;
const MOVERS: usize = 2;

type Numbers = Vec<AtomicU32>;

/// A name of one mover: the directory that has it, and the file's number.
type Mine = Option<(usize, Ino)>;

fn made(dir: &Path, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    image(dir, "32M", args, &tree)
}

fn path(dir: usize, mover: usize, n: usize) -> String {
    format!("{}/{mover}-{n}", DIRS[dir])
}

/// Makes, moves, writes and removes files of its own. Returns where they are in the end.
fn moves(
    volume: &Volume,
    mover: usize,
    numbers: &Numbers,
    (rng, steps): (&mut Rng, u64),
) -> Vec<Mine> {
    let mut mine: Vec<Mine> = vec![None; NAMES];
    for _ in 0..steps {
        let n = rng.below(NAMES as u64) as usize;
        let dir = rng.below(DIRS.len() as u64) as usize;
        mine[n] = match (mine[n], rng.below(8)) {
            (None, 0..=3) => {
                let file = volume.temporary(DIRS[dir], 0o644).unwrap();
                volume
                    .link_file(&file, path(dir, mover, n).as_str())
                    .unwrap();
                numbers[mover * NAMES + n].store(file.ino().get(), Ordering::Release);
                Some((dir, file.ino()))
            }
            (None, _) => {
                let file = volume.create(&path(dir, mover, n), 0o644).unwrap();
                numbers[mover * NAMES + n].store(file.ino().get(), Ordering::Release);
                Some((dir, file.ino()))
            }
            (Some((at, _)), 0..=1) => {
                volume.unlink(&path(at, mover, n)).unwrap();
                None
            }
            (Some((at, ino)), 2) => {
                let file = volume.open_path(&path(at, mover, n), OpenFlags::writable());
                let file = file.unwrap();
                assert_eq!(file.ino(), ino);
                file.write_bytes(rng.below(3000), b"some").unwrap();
                Some((at, ino))
            }
            (Some((at, ino)), what) => {
                let (from, to) = (path(at, mover, n), path(dir, mover, n));
                let leaves = what == 3 && at != dir;
                let flags = RenameFlags::none().whiteout(leaves);
                volume.rename(&from, &to, flags).unwrap();
                assert_eq!(volume.resolve(&to, false).unwrap(), ino);
                if leaves {
                    volume.unlink(&from).unwrap();
                }
                Some((dir, ino))
            }
        };
    }
    mine
}

/// Uses files by their numbers, which may be out of date at any moment.
fn uses(volume: &Volume, numbers: &Numbers, rng: &mut Rng) {
    let ino = numbers[rng.below(numbers.len() as u64) as usize].load(Ordering::Acquire);
    if ino == 0 {
        return;
    }
    let ino = Ino::new(ino);
    let done = match rng.below(5) {
        0 => volume.know(ino).map(|_| {
            let _ = volume.metadata(ino);
            volume.forget(ino, 1);
        }),
        1 => volume.open_ino(ino, OpenFlags::writable()).map(|file| {
            file.write_bytes(0, b"x").unwrap();
            file.sync().unwrap();
        }),
        2 => {
            let name = format!("/links/{}", rng.below(1 << 40));
            volume
                .link_ino(ino, &name)
                .map(|()| volume.unlink(&name).unwrap())
        }
        _ => volume.metadata(ino).map(drop),
    };
    match done {
        Ok(()) | Err(Error::NotInUse { .. } | Error::NotFound { .. }) => {}
        // It is a whiteout by now.
        Err(Error::NotPermitted {
            flag: "no regular file",
            ..
        }) => {}
        Err(other) => panic!("inode {ino}: {other}"),
    }
}

/// The defect, if a thread that makes a file without a name is slow: who read its number meanwhile had an in-core inode of its own, and
/// blocks were lost.
#[test]
fn names_and_numbers_at_once() {
    let steps = scaled("DIORITE_STEPS", 1500);
    let seed = seed("names and numbers at once");
    for args in KINDS {
        let dir = scratch();
        let image = made(dir.path(), args);
        let options = OpenOptions::writable().metadata_cache(64 << 10);
        let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
        for dir in DIRS.iter().chain(&["/links"]) {
            volume.mkdir(dir, 0o755).unwrap();
        }
        let numbers: Numbers = (0..MOVERS * NAMES).map(|_| AtomicU32::new(0)).collect();
        let end = AtomicBool::new(false);
        let mine: Vec<Vec<Mine>> = std::thread::scope(|scope| {
            let (volume, numbers, end) = (&volume, &numbers, &end);
            let users: Vec<_> = (0..2u64)
                .map(|user| {
                    scope.spawn(move || {
                        let mut rng = Rng::new(seed ^ (user + 100));
                        while !end.load(Ordering::Acquire) {
                            uses(volume, numbers, &mut rng);
                        }
                    })
                })
                .collect();
            let movers: Vec<_> = (0..MOVERS)
                .map(|mover| {
                    scope.spawn(move || {
                        let mut rng = Rng::new(seed ^ mover as u64);
                        moves(volume, mover, numbers, (&mut rng, steps))
                    })
                })
                .collect();
            let mine = movers.into_iter().map(|mover| mover.join());
            let mine: Vec<_> = mine.collect();
            end.store(true, Ordering::Release);
            for user in users {
                user.join().unwrap();
            }
            mine.into_iter().map(|mine| mine.unwrap()).collect()
        });
        volume.close().unwrap();
        fsck(&image);
        for (at, dir) in DIRS.iter().enumerate() {
            let mut expected = BTreeSet::new();
            for (mover, mine) in mine.iter().enumerate() {
                let here = mine.iter().enumerate();
                let here = here.filter(|(_, mine)| mine.is_some_and(|(dir, _)| dir == at));
                expected.extend(here.map(|(n, _)| format!("{mover}-{n}")));
            }
            if *dir == "/a" {
                expected.insert("c".to_string());
            }
            assert_eq!(by_debugfs(&image, dir), expected, "{dir}");
        }
        assert!(by_debugfs(&image, "/links").is_empty());
    }
}

/// A number is no name: a file that never had one gets one by its descriptor only.
#[test]
fn a_nameless_file_gets_no_name_by_its_number() {
    let dir = scratch();
    let image = made(dir.path(), KINDS[0]);
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
    let file = volume.temporary("/", 0o600).unwrap();
    let refused = volume.link_ino(file.ino(), "/name");
    assert!(
        matches!(refused, Err(Error::NotInUse { .. })),
        "{refused:?}"
    );
    volume.link_file(&file, "/name").unwrap();
    volume.link_ino(file.ino(), "/second").unwrap();
    drop(file);
    volume.close().unwrap();
    fsck(&image);
}
