//! What servers of a volume need: names by their directory's inode, directory streams that can be reopened at any position, inodes
//! known by number, callers, and the numbers of statvfs.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::kernel::mounted;
use common::{Rng, fsck, image, run, scratch};
use diorite::dir::RenameFlags;
use diorite::{Caller, Error, Ino, OpenFlags, OpenOptions, SetAttr, Volume};
use diorite_block::Buf;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn made(dir: &Path, size: &str, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    image(dir, size, args, &tree)
}

fn writable(image: &Path) -> Volume {
    Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap()
}

/// Each change of a name that can be made by path can also be made by the directory's inode and the name in it.
#[test]
fn names_by_their_directory() {
    let dir = scratch();
    let image = made(dir.path(), "8M", &["-t", "ext4"]);
    let volume = writable(&image);
    let (a, b) = (
        volume.mkdir("/a", 0o755).unwrap(),
        volume.mkdir((Ino::ROOT, "b"), 0o755).unwrap(),
    );
    let file = volume.create((a, "file"), 0o644).unwrap();
    assert_eq!(volume.lookup(a, "file").unwrap(), Some(file.ino()));
    assert_eq!(volume.resolve("/a/file", false).unwrap(), file.ino());
    assert_eq!(volume.lookup(b, b"file").unwrap(), None);
    volume.link_ino(file.ino(), (b, "second")).unwrap();
    volume.symlink("file", (a, "link")).unwrap();
    volume
        .rename((a, "file"), (b, "moved"), RenameFlags::default())
        .unwrap();
    volume.unlink((b, "second")).unwrap();
    let nameless = volume.temporary_in(a, 0o600).unwrap();
    volume.link_file(&nameless, (a, "named")).unwrap();
    volume.replace_file(&nameless, (b, "moved")).unwrap();
    assert_eq!(volume.lookup(b, "moved").unwrap(), Some(nameless.ino()));
    volume.unlink((a, "link")).unwrap();
    volume.unlink((a, "named")).unwrap();
    volume.rmdir((Ino::ROOT, "a")).unwrap();
    // Only a single name is accepted, in a directory; the error message says which.
    for name in ["x/y", "/x", "x/"] {
        assert!(
            matches!(volume.mkdir((b, name), 0o755), Err(Error::Invalid(_))),
            "{name}"
        );
    }
    let missing = volume.unlink((b, "nobody")).unwrap_err().to_string();
    assert!(
        missing.contains(&format!("nobody (in directory inode {b})")),
        "{missing}"
    );
    let no_directory = volume.mkdir((nameless.ino(), "x"), 0o755);
    assert!(matches!(no_directory, Err(Error::NotADirectory { .. })));
    drop((file, nameless));
    volume.close().unwrap();
    fsck(&image);
}

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
            let image = made(dir.path(), "16M", kind);
            let volume = writable(&image);
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
            let reader = Volume::open(image.to_str().unwrap(), &OpenOptions::default()).unwrap();
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

/// An inode that a frontend has declared known can still be opened by its number without a name, until it was forgotten as often.
#[test]
fn what_is_known_stays_without_a_name() {
    let dir = scratch();
    let image = made(dir.path(), "8M", &["-t", "ext4"]);
    let volume = writable(&image);
    let file = volume.create("/file", 0o644).unwrap();
    let (ino, flags) = (
        file.ino(),
        OpenFlags {
            write: true,
            ..OpenFlags::default()
        },
    );
    file.write_at(0, Buf::zeroed(64 << 10)).1.unwrap();
    let before = volume.usage().free_inodes;
    volume.know(ino).unwrap();
    volume.know(ino).unwrap();
    drop(file);
    volume.unlink("/file").unwrap();
    volume.sync().unwrap();
    volume.forget(ino, 1);
    let again = volume.open_ino(ino, flags).unwrap();
    assert_eq!(again.size(), 64 << 10);
    again.write_at(64 << 10, Buf::zeroed(4096)).1.unwrap();
    volume
        .set_attr(
            ino,
            &SetAttr {
                permissions: Some(0o600),
                ..SetAttr::default()
            },
        )
        .unwrap();
    drop(again);
    volume.sync().unwrap();
    assert_eq!(volume.usage().free_inodes, before, "it is there");
    volume.forget(ino, 7);
    volume.sync().unwrap();
    assert_eq!(volume.usage().free_inodes, before + 1, "it is gone");
    assert!(matches!(
        volume.open_ino(ino, flags),
        Err(Error::NotInUse { .. })
    ));
    assert!(matches!(volume.know(ino), Err(Error::NotInUse { .. })));
    volume.forget(ino, 1);
    // An inode that is still known when the volume is closed is deleted then, if it has no name.
    let left = volume.create("/left", 0o644).unwrap().ino();
    volume.know(left).unwrap();
    volume.unlink("/left").unwrap();
    volume.close().unwrap();
    fsck(&image);
}

/// What a user's process creates is as on the kernel's mount: owner, group, umask, and set-group-id if the group is not the
/// caller's.
#[test]
fn callers_make_what_the_kernel_makes() {
    let dir = scratch();
    let image = made(dir.path(), "8M", &["-t", "ext4"]);
    let volume = writable(&image);
    volume.mkdir("/plain", 0o777).unwrap();
    volume
        .set_attr(
            volume.resolve("/plain", false).unwrap(),
            &SetAttr {
                permissions: Some(0o777),
                ..SetAttr::default()
            },
        )
        .unwrap();
    let gives = volume.mkdir("/gives", 0o777).unwrap();
    volume
        .set_attr(
            gives,
            &SetAttr {
                gid: Some(7),
                ..SetAttr::default()
            },
        )
        .unwrap();
    volume
        .set_attr(
            gives,
            &SetAttr {
                permissions: Some(0o2777),
                ..SetAttr::default()
            },
        )
        .unwrap();
    let caller = Caller {
        uid: 1234,
        gids: vec![1235, 1236],
    };
    let theirs = volume.for_caller(&caller, 0o027);
    let member = volume.for_caller(
        &Caller {
            uid: 1234,
            gids: vec![1235, 7],
        },
        0o027,
    );
    for (at, who) in [
        ("/plain", &theirs),
        ("/gives", &theirs),
        ("/gives", &member),
    ] {
        let group = if std::ptr::eq(who, &member) {
            "member"
        } else {
            "other"
        };
        who.create(&format!("{at}/{group} file"), 0o2775).unwrap();
        who.mkdir(&format!("{at}/{group} dir"), 0o775).unwrap();
    }
    let mode = |path: &str| {
        let file = volume.open_path(path, OpenFlags::default()).unwrap();
        let disk = file.metadata();
        format!("{:o} {} {}", disk.mode & 0o7777, disk.uid, disk.gid)
    };
    let paths = [
        "/plain/other file",
        "/plain/other dir",
        "/gives/other file",
        "/gives/other dir",
        "/gives/member file",
        "/gives/member dir",
    ];
    let ours: Vec<String> = paths.iter().map(|path| mode(path)).collect();
    assert_eq!(
        ours,
        [
            "2750 1234 1235",
            "750 1234 1235",
            "750 1234 7",
            "2750 1234 7",
            "2750 1234 7",
            "2750 1234 7"
        ]
    );
    // Setting permissions does not give set-group-id for a group that the caller is not in, either.
    let ino = volume.resolve("/gives/other file", false).unwrap();
    let set = SetAttr {
        permissions: Some(0o2755),
        ..SetAttr::default()
    };
    theirs.set_attr(ino, &set).unwrap();
    assert_eq!(mode("/gives/other file"), "755 1234 7");
    member.set_attr(ino, &set).unwrap();
    assert_eq!(mode("/gives/other file"), "2755 1234 7");
    for path in paths {
        match path.ends_with("dir") {
            true => volume.rmdir(path).unwrap(),
            false => volume.unlink(path).unwrap(),
        }
    }
    volume.close().unwrap();
    fsck(&image);
    mounted(&image, "rw", |at| {
        let script = |of: &str| {
            format!(
                "umask 027; cd {}; python3 -c \"import os; os.close(os.open('{of} file', os.O_CREAT|os.O_WRONLY, 0o2775)); \
                 os.mkdir('{of} dir', 0o775)\"",
                at.display()
            )
        };
        let as_user = |groups: &str, within: &str, of: &str| {
            let inside = script(of).replacen("; python3", &format!("/{within}; python3"), 1);
            run(
                "setpriv",
                &[
                    "--reuid", "1234", "--regid", "1235", "--groups", groups, "sh", "-c", &inside,
                ],
            );
        };
        as_user("1236", "plain", "other");
        as_user("1236", "gives", "other");
        as_user("7", "gives", "member");
        let kernels: Vec<String> = paths
            .iter()
            .map(|path| {
                run(
                    "stat",
                    &["-c", "%a %u %g", at.join(&path[1..]).to_str().unwrap()],
                )
                .trim()
                .to_owned()
            })
            .collect();
        assert_eq!(ours, kernels);
    });
}

/// Sets what the superblock says of what the volume needs for itself, in clusters.
fn note_overhead(image: &Path, clusters: &str) {
    let request = format!("ssv overhead_clusters {clusters}");
    run("debugfs", &["-w", "-R", &request, image.to_str().unwrap()]);
}

/// What a volume of clusters needs for itself is what mke2fs has counted, also where the superblock does not say it, or cannot be right.
/// (A kernel that counts on its own is a cluster short there.)
#[test]
fn clusters_of_the_volume_itself_are_counted() {
    for (size, cluster) in [("64M", "16384"), ("65600k", "65536"), ("300M", "4096")] {
        let dir = scratch();
        let args = ["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", cluster];
        let image = made(dir.path(), size, &args);
        let space = || {
            let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::default()).unwrap();
            volume.space()
        };
        let by_mke2fs = space();
        for noted in ["0", "99999999"] {
            note_overhead(&image, noted);
            assert_eq!(space(), by_mke2fs, "{size} {cluster} {noted}");
        }
    }
}

/// The numbers of statvfs are those that the kernel's mount gives: with and without blocks for the privileged, also where more is kept
/// than is free, and where the superblock says nothing, or nonsense, of what the volume needs for itself.
#[test]
fn space_is_what_the_kernel_says() {
    let kinds: [(&[&str], &str, Option<&str>); 14] = [
        (&["-t", "ext4"], "64M", None),
        (&["-t", "ext4", "-m", "0"], "64M", None),
        (&["-t", "ext4", "-b", "4096"], "64M", None),
        (&["-t", "ext4", "-b", "4096", "-m", "0"], "70M", None),
        (&["-t", "ext4", "-b", "1024", "-m", "7"], "64M", None),
        (&["-t", "ext4", "-b", "1024", "-m", "50"], "4M", None),
        (&["-t", "ext4", "-m", "0"], "70000k", Some("0")),
        (&["-t", "ext4", "-m", "0"], "69999k", Some("5000")),
        (
            &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
            "64M",
            None,
        ),
        (
            &["-t", "ext4", "-O", "bigalloc", "-C", "65536", "-m", "0"],
            "65600k",
            None,
        ),
        (
            &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
            "64M",
            Some("1000"),
        ),
        (
            &["-t", "ext4", "-O", "meta_bg,^resize_inode", "-b", "1024"],
            "64M",
            Some("0"),
        ),
        (&["-t", "ext4", "-m", "0", "-J", "size=4"], "100G", None),
        (&["-t", "ext2"], "64M", None),
    ];
    for (args, size, noted) in kinds {
        let dir = scratch();
        let image = made(dir.path(), size, args);
        if let Some(noted) = noted {
            note_overhead(&image, noted);
        }
        let volume = writable(&image);
        let file = volume.create("/file", 0o644).unwrap();
        file.write_at(0, Buf::zeroed(1 << 20)).1.unwrap();
        drop(file);
        volume.sync().unwrap();
        let open = volume.space();
        volume.close().unwrap();
        let reader = Volume::open(image.to_str().unwrap(), &OpenOptions::default()).unwrap();
        let space = reader.space();
        drop(reader);
        assert_eq!(open, space, "{args:?}");
        assert_eq!(space.most_name, 255);
        mounted(&image, "ro", |at| {
            let said = run(
                "stat",
                &["-f", "-c", "%s %b %f %a %c %d %i", at.to_str().unwrap()],
            );
            // `stat` prints the low half of the id first.
            let id = space.id.rotate_left(32);
            let told = format!(
                "{} {} {} {} {} {} {id:x}",
                space.block_size,
                space.blocks,
                space.free,
                space.available,
                space.inodes,
                space.free_inodes
            );
            assert_eq!(told, said.trim(), "{args:?} {size} {noted:?}");
        });
    }
}
