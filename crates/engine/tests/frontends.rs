//! What servers of a volume need: names by their directory's inode, directory streams that can be reopened at any position, inodes
//! known by number, callers, and the numbers of statvfs.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::kernel::mounted;
use common::{Rng, fsck, image, run, scaled, scratch};
use diorite::dir::RenameFlags;
use diorite::{Caller, Error, Ino, OpenFlags, OpenOptions, SetAttr, Volume};
use diorite_block::Buf;
use diorite_format::FileType;
use diorite_format::inode::Rdev;
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
    assert_eq!(volume.usage().free_inodes, before + 1, "it is gone");
    assert!(matches!(
        volume.open_ino(ino, flags),
        Err(Error::NotInUse { .. })
    ));
    assert!(matches!(volume.know(ino), Err(Error::NotInUse { .. })));
    volume.forget(ino, 1);
    // An inode without a name cannot be opened by its number, unless it is known.
    let open = volume.create("/open", 0o644).unwrap();
    volume.unlink("/open").unwrap();
    assert!(matches!(
        volume.open_ino(open.ino(), flags),
        Err(Error::NotInUse { .. })
    ));
    drop(open);
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
        // Root may use the reserved blocks, whoever runs this test.
        let options = OpenOptions {
            caller: Caller {
                uid: 0,
                gids: Vec::new(),
            },
            ..OpenOptions::writable()
        };
        let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
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

/// The stream goes on behind its last entry in the inode, whatever went before it, and from the first name on once they are in a block.
/// The defect: a position counted names, so one that came after a name that was removed was passed over; and a stream that had been
/// opened while the names were in the inode showed none of them once they were not.
#[test]
fn a_stream_in_an_inode_misses_no_name() {
    let dir = scratch();
    let args = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "inline_data,^dir_index",
        "-I",
        "256",
    ];
    let image = made(dir.path(), "8M", &args);
    let volume = writable(&image);
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
    let dir = scratch();
    let image = made(dir.path(), "16M", &["-t", "ext4", "-b", "1024"]);
    let volume = writable(&image);
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

/// A directory that was removed while somebody knows it has no names, as for the kernel: its parent may be gone too, and that number
/// another's. The defect: ".." led to a file that had got the number, and a directory could be moved "into" that.
#[test]
fn a_removed_directory_has_no_names() {
    let dir = scratch();
    let image = made(dir.path(), "8M", &["-t", "ext4"]);
    let volume = writable(&image);
    let parent = volume.mkdir("/parent", 0o755).unwrap();
    let child = volume.mkdir((parent, "child"), 0o755).unwrap();
    volume.know(child).unwrap();
    let stream = volume.read_dir(child).unwrap();
    volume.rmdir((parent, "child")).unwrap();
    volume.rmdir("/parent").unwrap();
    let next = volume.create("/file", 0o644).unwrap();
    assert_eq!(next.ino(), parent, "the number is used again");
    for name in [".", "..", "x"] {
        assert_eq!(volume.lookup(child, name).unwrap(), None, "{name}");
    }
    assert_eq!(stream.count(), 0);
    assert_eq!(volume.read_dir(child).unwrap().count(), 0);
    let is_missing = |done: Result<(), Error>| {
        assert!(matches!(done, Err(Error::NotFound { .. })), "{done:?}");
    };
    volume.mkdir("/moved", 0o755).unwrap();
    let flags = RenameFlags::default();
    is_missing(volume.rename("/moved", (child, "moved"), flags));
    is_missing(volume.rename((child, "x"), "/x", flags));
    is_missing(volume.mkdir((child, "x"), 0o755).map(drop));
    is_missing(volume.link_ino(next.ino(), (child, "x")));
    volume.forget(child, 1);
    drop(next);
    volume.close().unwrap();
    fsck(&image);
}

/// Numbers come from clients. The defect: the orphan file and the values of attributes could be given names, owners and times, the first
/// be opened for writing; a value's times are its sum and the count of those that have it.
#[test]
fn the_volumes_own_inodes_are_nobodys_to_change() {
    let dir = scratch();
    let args = ["-t", "ext4", "-O", "orphan_file,ea_inode"];
    let image = made(dir.path(), "16M", &args);
    let volume = writable(&image);
    let file = volume.create("/file", 0o644).unwrap();
    let before: Vec<u32> = (1..40).collect();
    let is_used = |ino: &u32| {
        let opened = volume.open_ino(Ino::new(*ino), OpenFlags::default());
        opened.is_ok_and(|file| file.metadata().holds_value())
    };
    volume
        .set_xattr(file.ino(), "user.long", &[7; 20_000])
        .unwrap();
    volume.sync().unwrap();
    let value = before.into_iter().find(is_used).map(Ino::new).unwrap();
    let orphans = volume.superblock().orphan_file().unwrap();
    for ino in [orphans, value] {
        let writable = OpenFlags {
            write: true,
            ..OpenFlags::default()
        };
        let set = SetAttr {
            uid: Some(1),
            ..SetAttr::default()
        };
        let refused = [
            volume.link_ino(ino, "/named"),
            volume.set_attr(ino, &set),
            volume.set_xattr(ino, "user.x", b"x"),
            volume.open_ino(ino, writable).map(drop),
        ];
        for (n, done) in refused.into_iter().enumerate() {
            assert!(
                matches!(done, Err(Error::NotPermitted { .. })),
                "{n}: {done:?}"
            );
        }
    }
    drop(file);
    volume.close().unwrap();
    fsck(&image);
}

/// Names have 255 bytes at most; who looks a longer one up is told, as of the kernel.
#[test]
fn a_name_that_is_too_long_is_no_missing_one() {
    let dir = scratch();
    let image = made(dir.path(), "8M", &["-t", "ext4"]);
    let volume = writable(&image);
    let longest = "n".repeat(255);
    let ino = volume.mkdir((Ino::ROOT, &longest), 0o755).unwrap();
    assert_eq!(volume.lookup(Ino::ROOT, &longest).unwrap(), Some(ino));
    let longer = volume.lookup(Ino::ROOT, &"n".repeat(256));
    assert!(matches!(longer, Err(Error::NameTooLong { .. })));
    volume.close().unwrap();
}

/// A process makes directories without set-user-id and set-group-id, whatever it asks for; the kernel drops them. Who only gives owners
/// gives all permissions.
#[test]
fn directories_of_callers_have_no_rights_to_act_as_others() {
    let dir = scratch();
    let image = made(dir.path(), "8M", &["-t", "ext4"]);
    let volume = writable(&image);
    let caller = Caller {
        uid: 0,
        gids: vec![0],
    };
    let modes = [0o777, 0o1777, 0o2777, 0o4777, 0o7777];
    let mode_of = |ino| {
        let file = volume.open_ino(ino, OpenFlags::default()).unwrap();
        file.metadata().mode & 0o7777
    };
    let theirs = volume.for_caller(&caller, 0o022);
    let ours = modes.map(|mode| mode_of(theirs.mkdir(&format!("/d{mode:o}"), mode).unwrap()));
    assert_eq!(mode_of(volume.mkdir("/all", 0o7777).unwrap()), 0o7777);
    volume.close().unwrap();
    fsck(&image);
    mounted(&image, "rw", |at| {
        let script = "import os, sys; os.umask(0o022); os.mkdir(sys.argv[1], int(sys.argv[2], 8))";
        let kernels = modes.map(|mode| {
            let path = at.join(format!("k{mode:o}"));
            let path = path.to_str().unwrap();
            run("python3", &["-c", script, path, &format!("{mode:o}")]);
            let said = run("stat", &["-c", "%a", path]);
            u16::from_str_radix(said.trim(), 8).unwrap()
        });
        assert_eq!(ours, kernels);
    });
}

/// Who sets a list gives permissions: set-group-id of a group that he is not in goes with it, as on the kernel's mount. The defect: it
/// stayed.
#[test]
fn a_list_takes_rights_of_foreign_groups_away() {
    let dir = scratch();
    let image = made(dir.path(), "8M", &["-t", "ext4"]);
    let volume = writable(&image);
    let paths = ["/of others", "/of members"];
    for path in paths {
        let owned = volume.with_owner(1234, 7);
        let ino = owned.create(path, 0o2775).unwrap().ino();
        let file = volume.open_ino(ino, OpenFlags::default()).unwrap();
        assert_eq!(file.metadata().mode & 0o7777, 0o2775);
    }
    volume.sync().unwrap();
    let theirs = dir.path().join("theirs");
    std::fs::copy(&image, &theirs).unwrap();
    // user::rwx user:99:r-x group::r-x mask::r-x other::---, in the kernel's form.
    let entries: [(u16, u16, u32); 5] = [
        (1, 7, u32::MAX),
        (2, 5, 99),
        (4, 5, u32::MAX),
        (16, 5, u32::MAX),
        (32, 0, u32::MAX),
    ];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        list.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    let groups = [1236, 7];
    let modes = [0, 1].map(|n| {
        let caller = Caller {
            uid: 1234,
            gids: vec![1235, groups[n]],
        };
        let ino = volume.resolve(paths[n], false).unwrap();
        let handle = volume.for_caller(&caller, 0);
        handle
            .set_xattr(ino, "system.posix_acl_access", &list)
            .unwrap();
        let file = volume.open_ino(ino, OpenFlags::default()).unwrap();
        format!("{:o}", file.metadata().mode & 0o7777)
    });
    assert_eq!(modes, ["750", "2750"]);
    volume.close().unwrap();
    fsck(&image);
    // The copy has the journal of a volume in use: mounting recovers it.
    mounted(&theirs, "rw,acl", |at| {
        let kernels = [0, 1].map(|n| {
            let path = at.join(&paths[n][1..]);
            let (path, group) = (path.to_str().unwrap(), groups[n].to_string());
            let script = "import os, sys; os.setgroups([int(sys.argv[3])]); os.setresgid(*[1235] * 3); os.setresuid(*[1234] * 3); \
                          os.setxattr(sys.argv[1], 'system.posix_acl_access', bytes.fromhex(sys.argv[2]))";
            let hex: String = list.iter().map(|byte| format!("{byte:02x}")).collect();
            run("python3", &["-c", script, path, &hex, &group]);
            run("stat", &["-c", "%a", path]).trim().to_owned()
        });
        assert_eq!(modes, kernels);
    });
}

/// What its standard input says, done by a process of this user: `umask kind mode path`, and what can be told of the path then.
const AS_A_PROCESS: &str = r#"
import os, stat, sys
groups = [int(g) for g in sys.argv[2].split(",")]
os.chdir(sys.argv[1])
os.setgroups(groups)
os.setresgid(*[groups[0]] * 3)
os.setresuid(*[1234] * 3)
for line in open(0):
    umask, kind, mode, path = line.split()
    os.umask(int(umask, 8))
    mode = int(mode, 8)
    if kind == "file":
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    elif kind == "nameless":
        file = os.open(os.path.dirname(path), os.O_TMPFILE | os.O_WRONLY, mode)
        os.link(f"/proc/self/fd/{file}", path, src_dir_fd=file, follow_symlinks=True)
        os.close(file)
    elif kind == "dir":
        os.mkdir(path, mode)
    elif kind == "pipe":
        os.mkfifo(path, mode)
    elif kind == "link":
        os.symlink("x", path)
    elif kind == "chmod":
        os.chmod(path, mode)
    elif kind == "chgrp":
        os.chown(path, -1, mode)
    said = os.lstat(path)
    told = [f"{stat.S_IMODE(said.st_mode):o}", f"{said.st_uid}", f"{said.st_gid}"]
    for name in ["system.posix_acl_access", "system.posix_acl_default"]:
        try:
            told.append(os.getxattr(path, name, follow_symlinks=False).hex())
        except OSError:
            told.append("-")
    print(path, kind, *told)
"#;

/// An access control list in the kernel's form.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        list.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    list
}

/// Everything that a caller makes and then changes is what a process of that user gets from the kernel: all kinds of inodes, in directories
/// that give their group and that do not, with default lists and without, under several umasks.
#[test]
fn callers_get_what_processes_get() {
    const NONE: u32 = u32::MAX;
    let dir = scratch();
    let image = made(
        dir.path(),
        "64M",
        &["-t", "ext4", "-N", "8000", "-I", "256"],
    );
    let volume = writable(&image);
    let lists: [(&str, Vec<u8>); 3] = [
        ("none", Vec::new()),
        ("small", list(&[(1, 7, NONE), (4, 5, NONE), (32, 4, NONE)])),
        (
            "named",
            list(&[
                (1, 6, NONE),
                (2, 7, 99),
                (4, 7, NONE),
                (8, 3, 7),
                (16, 6, NONE),
                (32, 1, NONE),
            ]),
        ),
    ];
    let mut dirs = Vec::new();
    for (gid, permissions) in [(0, 0o777), (7, 0o2777), (7, 0o3777)] {
        for (of, default) in &lists {
            let path = format!("d{permissions:o}.{of}");
            let ino = volume.mkdir(&path, 0).unwrap();
            let owner = SetAttr {
                gid: Some(gid),
                ..SetAttr::default()
            };
            let mode = SetAttr {
                permissions: Some(permissions),
                ..SetAttr::default()
            };
            volume.set_attr(ino, &owner).unwrap();
            volume.set_attr(ino, &mode).unwrap();
            if !default.is_empty() {
                volume
                    .set_xattr(ino, "system.posix_acl_default", default)
                    .unwrap();
            }
            dirs.push(path);
        }
    }
    // Theirs, and of a group that is not.
    let owned = volume.with_owner(1234, 7);
    let given = [0o4745, 0o2745, 0o6755, 0o7000].map(|mode| {
        let path = format!("d777.none/given.{mode:o}");
        drop(owned.create(&path, mode).unwrap());
        path
    });
    drop(owned);
    volume.close().unwrap();
    let theirs = dir.path().join("theirs");
    std::fs::copy(&image, &theirs).unwrap();
    let volume = writable(&image);
    let (mut all, mut ours) = (Vec::new(), Vec::new());
    for (who, groups) in [("other", [1235, 1236]), ("member", [1235, 7])] {
        let mut lines = Vec::new();
        for dir in &dirs {
            for umask in [0, 0o027, 0o077] {
                for kind in ["file", "nameless", "dir", "pipe", "link"] {
                    for mode in [0, 0o644, 0o2745, 0o2755, 0o6775, 0o7777] {
                        let path = format!("{dir}/{who}.{kind}.{umask:o}.{mode:o}");
                        lines.push((umask, kind, mode, path.clone()));
                        if kind == "link" {
                            break;
                        }
                        for mode in [0o2755, 0o6745, 0o2060, 0o7777] {
                            lines.push((umask, "chmod", mode, path.clone()));
                            lines.push((
                                umask,
                                "chgrp",
                                if mode == 0o2060 { 7 } else { 1235 },
                                path.clone(),
                            ));
                        }
                    }
                }
            }
        }
        if who == "other" {
            let given = given.iter().cloned();
            lines.extend(given.map(|path| (0, "chgrp", 1235, path)));
        }
        // Who is not in the group cannot give it away.
        lines.retain(|(_, kind, gid, _)| *kind != "chgrp" || *gid != 7 || groups[1] == 7);
        for (umask, kind, mode, path) in &lines {
            ours.push(as_a_caller(&volume, &groups, (*umask, *kind, *mode), path));
        }
        let text = lines.iter();
        let text =
            text.map(|(umask, kind, mode, path)| format!("{umask:o} {kind} {mode:o} {path}\n"));
        all.push((
            format!("{},{}", groups[0], groups[1]),
            text.collect::<String>(),
        ));
    }
    volume.close().unwrap();
    fsck(&image);
    mounted(&theirs, "rw,acl", |at| {
        let mut kernels = Vec::new();
        for (n, (groups, lines)) in all.iter().enumerate() {
            let input = dir.path().join(format!("lines {n}"));
            std::fs::write(&input, lines).unwrap();
            let out = xtask::run::tool("python3")
                .args(["-c", AS_A_PROCESS, at.to_str().unwrap(), groups])
                .stdin(std::fs::File::open(&input).unwrap())
                .output()
                .unwrap();
            assert!(
                out.status.success(),
                "{}",
                String::from_utf8_lossy(&out.stderr)
            );
            let said = String::from_utf8(out.stdout).unwrap();
            kernels.extend(said.lines().map(str::to_owned));
        }
        assert_eq!(ours.len(), kernels.len());
        let differ: Vec<_> = ours.iter().zip(&kernels).filter(|(a, b)| a != b).collect();
        let few = &differ[..differ.len().min(20)];
        assert!(
            differ.is_empty(),
            "{} of {}: {few:#?}",
            differ.len(),
            ours.len()
        );
    });
}

/// One of those lines, done by diorite.
fn as_a_caller(volume: &Volume, gids: &[u32], what: (u16, &str, u16), path: &str) -> String {
    let (umask, kind, mode) = what;
    let caller = Caller {
        uid: 1234,
        gids: gids.to_vec(),
    };
    let theirs = volume.for_caller(&caller, umask);
    let dir = path.split('/').next().unwrap();
    let set = |set: SetAttr| {
        let ino = volume.resolve(path, false).unwrap();
        theirs.set_attr(ino, &set).unwrap();
    };
    match kind {
        "file" => drop(theirs.create(path, mode).unwrap()),
        "nameless" => {
            let file = theirs.temporary(dir, mode).unwrap();
            theirs.link_file(&file, path).unwrap();
        }
        "dir" => drop(theirs.mkdir(path, mode).unwrap()),
        "pipe" => {
            let device = Rdev { major: 0, minor: 0 };
            theirs.mknod(path, FileType::Fifo, mode, device).unwrap();
        }
        "link" => drop(theirs.symlink("x", path).unwrap()),
        "chmod" => set(SetAttr {
            permissions: Some(mode),
            ..SetAttr::default()
        }),
        _ => set(SetAttr {
            gid: Some(u32::from(mode)),
            ..SetAttr::default()
        }),
    }
    let ino = volume.resolve(path, false).unwrap();
    let file = volume.open_ino(ino, OpenFlags::default()).unwrap();
    let disk = file.metadata();
    let told = |name: &str| match volume.xattr(ino, name) {
        Ok(value) => value.iter().map(|byte| format!("{byte:02x}")).collect(),
        Err(_) => "-".to_owned(),
    };
    format!(
        "{path} {kind} {:o} {} {} {} {}",
        disk.mode & 0o7777,
        disk.uid,
        disk.gid,
        told("system.posix_acl_access"),
        told("system.posix_acl_default"),
    )
}

/// What a server's threads do at the same time: names made, moved and removed by directories that others remove meanwhile; inodes known,
/// forgotten and used by their numbers after their names have gone; streams opened again where they stood. All that is refused is refused
/// by name; nothing is left over.
#[test]
fn servers_threads_at_once() {
    for kind in [
        &["-t", "ext4", "-b", "1024"][..],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "inline_data,orphan_file",
            "-I",
            "256",
        ],
    ] {
        let dir = scratch();
        let image = made(dir.path(), "32M", kind);
        let volume = writable(&image);
        volume.sync().unwrap();
        let before = volume.usage();
        let mut rng = Rng::from_env("threads of a server");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (volume, rng) = (volume.clone(), rng.fork());
                scope.spawn(move || serve(&volume, rng));
            }
        });
        empty(&volume, Ino::ROOT);
        volume.sync().unwrap();
        let after = volume.usage();
        assert_eq!(after.free_inodes, before.free_inodes, "{kind:?}");
        volume.close().unwrap();
        fsck(&image);
    }
}

/// One thread of such a server.
fn serve(volume: &Volume, mut rng: Rng) {
    let mut known = vec![Ino::ROOT];
    let mut streams: Vec<(Ino, u64)> = Vec::new();
    let names = [
        "a",
        "b",
        "c",
        "d",
        "e",
        "a longer name that takes more room in its directory",
    ];
    let refused = |error: Error| match error.root() {
        Error::NotFound { .. } | Error::Exists { .. } | Error::NotEmpty { .. } => {}
        Error::NotADirectory { .. } | Error::IsADirectory { .. } | Error::NotInUse { .. } => {}
        Error::NoInodes { .. } | Error::NoSpace { .. } => {}
        Error::NotPermitted {
            flag: "a directory" | "no regular file",
            ..
        } => {}
        Error::Invalid(why) if why.contains("inside of what is moved") => {}
        other => panic!("{other}"),
    };
    let (steps, mut did) = (scaled("DIORITE_STEPS", 8000), 0);
    for _ in 0..steps {
        let [one, two] = [0; 2].map(|_: u8| known[rng.below(known.len() as u64) as usize]);
        let [old, new] = [0; 2].map(|_: u8| names[rng.below(names.len() as u64) as usize]);
        let exchange = rng.below(3) == 0;
        let flags = RenameFlags {
            exchange,
            whiteout: !exchange && rng.below(20) == 0,
            ..RenameFlags::default()
        };
        let done = match rng.below(13) {
            0 | 1 => volume.mkdir((one, old), 0o755).map(drop),
            2 => volume.create((one, old), 0o644).map(drop),
            3 => volume.unlink((one, old)),
            4 => volume.rmdir((one, old)),
            5 | 6 => volume.rename((one, old), (two, new), flags),
            7 => volume.link_ino(one, (two, new)),
            8 | 9 => volume.lookup(one, old).and_then(|found| {
                let Some(ino) = found else { return Ok(()) };
                volume.know(ino)?;
                known.push(ino);
                Ok(())
            }),
            10 if known.len() > 1 => {
                let ino = known.swap_remove(1 + rng.below(known.len() as u64 - 1) as usize);
                volume.forget(ino, 1);
                streams.retain(|(dir, _)| *dir != ino);
                Ok(())
            }
            11 => volume.read_dir(one).map(|mut stream| {
                let _some = stream.by_ref().take(rng.below(4) as usize).count();
                streams.push((one, stream.position()));
            }),
            12 if !streams.is_empty() => {
                let (dir, position) = streams.swap_remove(rng.below(streams.len() as u64) as usize);
                volume
                    .read_dir_from(dir, position)
                    .and_then(|stream| stream.take(100).try_for_each(|entry| entry.map(drop)))
            }
            _ => volume
                .open_ino(
                    one,
                    OpenFlags {
                        write: true,
                        ..OpenFlags::default()
                    },
                )
                .and_then(|file| {
                    file.write_at(rng.below(3) * 5120, Buf::zeroed(5120))
                        .1
                        .map(drop)
                }),
        };
        match done {
            Ok(()) => did += 1,
            Err(error) => refused(error),
        }
    }
    assert!(did > steps / 4, "{did} of {steps} were done");
    for ino in known.drain(1..) {
        volume.forget(ino, 1);
    }
}

/// Removes all that is in a directory, but for lost+found.
fn empty(volume: &Volume, dir: Ino) {
    let entries: Vec<_> = volume.read_dir(dir).unwrap().map(Result::unwrap).collect();
    for entry in entries {
        if [&b"."[..], b"..", b"lost+found"].contains(&&entry.name[..]) {
            continue;
        }
        let file = volume.open_ino(entry.ino, OpenFlags::default()).unwrap();
        let is_dir = file.metadata().is_dir();
        drop(file);
        if is_dir {
            empty(volume, entry.ino);
            volume.rmdir((dir, &entry.name)).unwrap();
        } else {
            volume.unlink((dir, &entry.name)).unwrap();
        }
    }
}
