//! Directory streams that can be reopened at any position, while names come and go.
//!
//! Input: directories in their inode, in one block, with an index. Output: none. Invariant: a name that stays is seen exactly once.
//! Limits: some hundred names.

use crate::common::names::{empty, fresh, open};
use crate::common::{Rng, fsck, scratch, words};
use diorite::Error;
use std::collections::BTreeSet;

/// A stream is reopened after each entry, while its directory grows out of its inode into a block, gets an index and splits leaves.
/// Names that stay are seen exactly once, whatever other names come and go.
#[test]
fn a_stream_is_opened_again_anywhere() {
    let mut rng = Rng::from_env("streams of directories");
    let kinds: [&[&str]; 4] = [
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-b", "1024", "-O", "inline_data", "-I", "256"],
        &["-t", "ext4", "-b", "1024", "-O", "^dir_index"],
        &["-t", "ext2", "-b", "1024"],
    ];
    for kind in kinds {
        for stays in [3_u64, 25, 400] {
            let dir = scratch();
            let image = empty(dir.path(), "16M", kind);
            let volume = open(&image, true);
            let ino = volume.mkdir("/dir", 0o755).unwrap();
            let kept: BTreeSet<Vec<u8>> = (0..stays)
                .map(|n| format!("stays {n} {}", rng.below(1 << 40)).into_bytes())
                .collect();
            for name in &kept {
                volume
                    .link_ino(
                        volume.create((ino, name), 0o644).unwrap().ino(),
                        (ino, &[&name[..], b"+"].concat()),
                    )
                    .unwrap();
                volume.unlink((ino, &[&name[..], b"+"].concat())).unwrap();
            }
            let (mut position, mut seen, mut others) = (0, BTreeSet::new(), Vec::new());
            loop {
                let mut stream = volume.read_dir_from(ino, position).unwrap();
                assert_eq!(stream.position(), position);
                let Some(entry) = stream.next() else { break };
                let name = entry.unwrap().name;
                assert_ne!(stream.position(), position, "{kind:?}: it goes on");
                position = stream.position();
                let is_kept = kept.contains(&name) || name == b"." || name == b"..";
                assert!(
                    seen.insert(name) || !is_kept,
                    "{kind:?}, {stays}: seen twice"
                );
                // Other names come and go; more come than go while the directory is small.
                for _ in 0..rng.below(6) {
                    if rng.below(3) == 0 && !others.is_empty() {
                        let at = rng.below(others.len() as u64) as usize;
                        let gone: String = others.swap_remove(at);
                        volume.unlink((ino, &gone)).unwrap();
                    } else if others.len() < 300 {
                        let new = format!("other {}", rng.below(1 << 60));
                        volume.symlink("x", (ino, &new)).unwrap();
                        others.push(new);
                    }
                }
            }
            let missed: Vec<_> = kept.difference(&seen).collect();
            assert!(missed.is_empty(), "{kind:?}, {stays}: missed {missed:?}");
            assert!(seen.contains(&b"."[..]) && seen.contains(&b".."[..]));
            volume.close().unwrap();
            fsck(&image);
            // In a directory that does not change, each position returns the rest of the whole stream.
            let reader = open(&image, false);
            let ino = reader.resolve("/dir", false).unwrap();
            let mut stream = reader.read_dir(ino).unwrap();
            let whole: Vec<_> = reader.read_dir(ino).unwrap().map(Result::unwrap).collect();
            for n in 0..=whole.len() {
                let rest = reader.read_dir_from(ino, stream.position()).unwrap();
                assert!(
                    rest.map(Result::unwrap).eq(whole[n..].iter().cloned()),
                    "{kind:?}"
                );
                stream.next();
            }
            let foreign = reader.read_dir_from(ino, 1 << 63);
            assert!(matches!(foreign, Err(Error::Invalid(_))));
        }
    }
}

/// The stream goes on behind its last entry in the inode, whatever went before it, and from the first name on once they are in a block.
/// The defect: a position counted names, so one that came after a name that was removed was passed over; and a stream that had been
/// opened while the names were in the inode showed none of them once they were not.
#[test]
fn a_stream_in_an_inode_misses_no_name() {
    let args = words("-t ext4 -b 1024 -O inline_data,^dir_index -I 256");
    let (_dir, image, volume) = fresh("8M", &args);
    let ino = volume.mkdir("/dir", 0o755).unwrap();
    let make = |name: &str| {
        volume.symlink("x", (ino, name)).unwrap();
    };
    for name in ["a", "b", "c", "d", "e", "f"] {
        make(name);
    }
    let (mut position, mut seen) = (0, Vec::new());
    loop {
        let mut stream = volume.read_dir_from(ino, position).unwrap();
        let Some(entry) = stream.next() else { break };
        let name = String::from_utf8(entry.unwrap().name).unwrap();
        position = stream.position();
        if name.len() == 1 && name != "." {
            volume.unlink((ino, &name)).unwrap();
        }
        seen.push(name);
    }
    assert_eq!(seen, [".", "..", "a", "b", "c", "d", "e", "f"]);
    // Out of the inode, while streams stand at its beginning and in its midst.
    for name in ["g", "h", "i"] {
        make(name);
    }
    let whole = volume.read_dir(ino).unwrap();
    let mut part = volume.read_dir(ino).unwrap();
    let before: Vec<_> = part.by_ref().take(3).collect();
    assert_eq!(before.len(), 3);
    let behind = part.position();
    for n in 0..20 {
        make(&format!("longer {n}"));
    }
    let names = |stream: diorite::ReadDir| -> BTreeSet<Vec<u8>> {
        stream.map(|entry| entry.unwrap().name).collect()
    };
    let all = names(volume.read_dir(ino).unwrap());
    assert_eq!(all.len(), 25);
    assert_eq!(names(whole), all);
    let rest = names(volume.read_dir_from(ino, behind).unwrap());
    assert!(rest.contains(&b"h"[..]) && rest.contains(&b"i"[..]));
    volume.close().unwrap();
    fsck(&image);
}

/// FUSE hands a position on as an `off_t`, which seekdir(3) and lseek(2) refuse below 0. And one that is no stream's is refused, where a
/// stream would else begin anew. The defect: positions in the order of hashes had the highest bit; any small number was the beginning.
#[test]
fn positions_fit_off_t_and_are_checked() {
    let (_dir, _image, volume) = fresh("16M", &["-t", "ext4", "-b", "1024"]);
    let ino = volume.mkdir("/dir", 0o755).unwrap();
    for n in 0..200 {
        volume.symlink("x", (ino, &format!("name {n}"))).unwrap();
    }
    let mut stream = volume.read_dir(ino).unwrap();
    let mut before = BTreeSet::new();
    while let Some(entry) = stream.next() {
        entry.unwrap();
        assert!(i64::try_from(stream.position()).is_ok());
        assert!(before.insert(stream.position()));
    }
    assert_eq!(before.len(), 202);
    for position in [3, 12, 1024, 1 << 61, 1 << 63, u64::MAX] {
        let opened = volume.read_dir_from(ino, position);
        assert!(matches!(opened, Err(Error::Invalid(_))), "{position:#x}");
    }
    volume.close().unwrap();
}
