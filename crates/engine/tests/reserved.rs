//! Blocks reserved for root (man 8 tune2fs -m, -u, -g): others get all blocks but the reserved ones, privileged callers all of
//! them.

use crate::common::fixture::{every_block, writable};
use crate::common::{fsck, image, run, scratch};
use diorite::{Caller, Error, Fallocate, File, Op, OpenOptions, RequestFlags, Volume};
use diorite_block::Buf;
use std::path::Path;

const BLOCK: u64 = 4096;

fn caller(uid: u32, gids: &[u32]) -> Caller {
    Caller {
        uid,
        gids: gids.to_vec(),
    }
}

fn number(image: &Path, field: &str) -> u64 {
    let text = run("dumpe2fs", &["-h", image.to_str().unwrap()]);
    let line = text.lines().find(|l| l.starts_with(field)).unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

fn appended(file: &File, blocks: u64) -> Result<usize, Error> {
    let buf = Buf::zeroed((blocks * BLOCK) as usize);
    file.call(Op::Append, 0, buf, RequestFlags::default()).1
}

/// Appends large pieces and then single blocks, until the caller can use no more. Returns what dumpe2fs then reports as free.
fn fill(image: &Path, caller: Caller) -> u64 {
    let options = every_block().caller(caller);
    let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    for blocks in [256, 1] {
        let full = loop {
            if let Err(error) = appended(&file, blocks) {
                break error;
            }
        };
        assert!(matches!(full.root(), Error::NoSpace { .. }), "{full}");
    }
    let one = Fallocate::Allocate { keep_size: true };
    let more = file.fallocate(one, file.size(), 1);
    assert!(matches!(more, Err(Error::NoSpace { .. })), "{more:?}");
    drop(file);
    volume.close().unwrap();
    fsck(image);
    number(image, "Free blocks:")
}

#[test]
fn only_the_privileged_take_the_last_blocks() {
    let root = caller(0, &[0]);
    let (user, by_group) = (caller(1000, &[7, 1000]), caller(4, &[1, 2, 77]));
    let everybody = [&root, &user, &by_group];
    let none: &[&str] = &[];
    let cases: [(&[&str], [bool; 3]); 5] = [
        (none, [true, false, false]),
        (&["-u", "1000"], [true, true, false]),
        (&["-g", "77"], [true, false, true]),
        (&["-u", "1000", "-g", "77"], [true, true, true]),
        // No blocks are reserved.
        (&["-m", "0"], [true, true, true]),
    ];
    for (tune, privileged) in cases {
        for (who, privileged) in everybody.iter().zip(privileged) {
            let dir = scratch();
            let tree = dir.path().join("tree");
            std::fs::create_dir(&tree).unwrap();
            std::fs::write(tree.join("file"), b"").unwrap();
            let kind = ["-t", "ext4", "-b", "4096", "-m", "20"];
            let image = image(dir.path(), "16M", &kind, &tree);
            if !tune.is_empty() {
                let args = [tune, &[image.to_str().unwrap()]].concat();
                run("tune2fs", &args);
            }
            let kept = number(&image, "Reserved block count:");
            assert_eq!(kept, if tune == ["-m", "0"] { 0 } else { 819 });
            let left = if privileged { 0 } else { kept };
            let what = format!("{who:?} after tune2fs {tune:?}");
            assert_eq!(fill(&image, Caller::clone(who)), left, "{what}");
        }
    }
}

/// Group 0 gives no privilege. If root uses reserved blocks, others get no space until more than the reserved number is free again.
#[test]
fn what_is_kept_stays_kept() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for name in ["file", "other"] {
        std::fs::write(tree.join(name), b"").unwrap();
    }
    let kind = ["-t", "ext4", "-b", "4096", "-m", "20"];
    let image = image(dir.path(), "16M", &kind, &tree);
    let kept = number(&image, "Reserved block count:");
    assert_eq!(fill(&image, caller(1000, &[0, 1000])), kept);
    // Root gets some of the rest.
    let open = |who: Caller| {
        let options = every_block().caller(who);
        Volume::open(image.to_str().unwrap(), &options).unwrap()
    };
    let volume = open(caller(0, &[]));
    let other = volume.open_path("/other", writable()).unwrap();
    assert_eq!(appended(&other, 100).unwrap() as u64, 100 * BLOCK);
    drop(other);
    volume.close().unwrap();
    let volume = open(caller(1000, &[]));
    let (file, other) = (
        volume.open_path("/file", writable()).unwrap(),
        volume.open_path("/other", writable()).unwrap(),
    );
    assert!(appended(&other, 1).is_err());
    // The first hundred freed blocks restore the reserve; only what is free beyond that is available to all.
    file.truncate(file.size() - 101 * BLOCK).unwrap();
    assert_eq!(appended(&other, 1).unwrap() as u64, BLOCK);
    assert!(appended(&other, 1).is_err());
    drop((file, other));
    volume.close().unwrap();
    fsck(&image);
    assert_eq!(number(&image, "Free blocks:"), kept);
    assert_eq!(
        Caller::of_process().uid,
        rustix::process::geteuid().as_raw()
    );
}

/// Writes into unwritten extents split them: for the nodes of the map they may take what is reserved for privileged users, and not more.
#[test]
fn nodes_of_a_map_take_few_of_the_reserved_blocks() {
    for (uid, may) in [(1000, false), (0, true)] {
        let dir = scratch();
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        for name in ["file", "sparse"] {
            std::fs::write(tree.join(name), b"").unwrap();
        }
        let kind = ["-t", "ext4", "-b", "1024", "-m", "20", "-J", "size=1"];
        let image = image(dir.path(), "16M", &kind, &tree);
        let kept = number(&image, "Reserved block count:");
        let options = every_block().caller(caller(uid, &[]));
        let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
        let sparse = volume.open_path("/sparse", writable()).unwrap();
        let all = Fallocate::Allocate { keep_size: false };
        sparse.fallocate(all, 0, 4 << 20).unwrap();
        let file = volume.open_path("/file", writable()).unwrap();
        for blocks in [64, 1] {
            let buf = || Buf::zeroed(blocks * 1024);
            let append = || file.call(Op::Append, 0, buf(), RequestFlags::default()).1;
            while append().is_ok() {}
        }
        let left = if may { 0 } else { kept };
        for n in 0..2000 {
            let wrote = sparse.write_buf(n * 2048, Buf::zeroed(1024)).1;
            assert_eq!(wrote.unwrap(), 1024, "{uid}: {n}");
        }
        drop((file, sparse));
        volume.close().unwrap();
        fsck(&image);
        let free = number(&image, "Free blocks:");
        assert!(free + 128 >= left, "{uid}: {free} of {kept}");
    }
}

/// statfs(2) says what can be written: what is kept for maps is neither available nor handed out, to root neither.
#[test]
fn what_is_available_can_be_written_and_no_more() {
    for (uid, keep) in [(1000, true), (1000, false), (0, true)] {
        let dir = scratch();
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("file"), b"").unwrap();
        let kind = ["-t", "ext4", "-b", "4096", "-m", "5"];
        let image = image(dir.path(), "16M", &kind, &tree);
        let reserved = number(&image, "Reserved block count:");
        let options = OpenOptions::writable()
            .caller(caller(uid, &[]))
            .keep_for_maps(keep);
        let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
        let space = volume.space();
        let kept = if keep { 4096 / 50 } else { 0 };
        assert_eq!(space.available, space.free - reserved - kept);
        let file = volume.open_path("/file", writable()).unwrap();
        for blocks in [64, 1] {
            while appended(&file, blocks).is_ok() {}
        }
        let more = if uid == 0 { reserved } else { 0 };
        // All of it, but for a node of the map.
        let wrote = file.size() / BLOCK;
        let most = space.available + more;
        assert!((most - 1..=most).contains(&wrote), "{wrote} of {most}");
        drop(file);
        volume.close().unwrap();
        fsck(&image);
    }
}
