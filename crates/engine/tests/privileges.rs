//! Rights that a write removes: set-user-id, set-group-id of group-executable files, and capabilities, stored in the inode, in a
//! block, or in a shared block. They are removed before the data is written, in a transaction; also by truncation and by range
//! operations.

use crate::common::fixture::{run_all, writable};
use crate::common::recipe::debugfs;
use crate::common::{fsck, image, kernel, run, scratch};
use diorite::{
    Caller, Error, Fallocate, File, Op, OpenOptions, Request, RequestFlags, SetAttr, Volume, Wait,
};
use diorite_block::Buf;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const FILES: [(&str, u16, u16); 5] = [
    ("setuid", 0o4755, 0o0755),
    ("setgid", 0o2775, 0o0775),
    ("both", 0o6711, 0o0711),
    // Set-group-id without group execution: mandatory locking.
    ("locked", 0o2644, 0o2644),
    ("plain", 0o0644, 0o0644),
];

const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn make(dir: &Path, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    for (name, mode, _) in FILES {
        std::fs::write(tree.join(name), [7; 20_000]).unwrap();
        let mode = std::fs::Permissions::from_mode(u32::from(mode));
        std::fs::set_permissions(tree.join(name), mode).unwrap();
    }
    for name in ["inside", "block", "alone", "shared", "sharer"] {
        std::fs::write(tree.join(name), [7; 20_000]).unwrap();
    }
    let args: Vec<&str> = ["-t", "ext4", "-b", "4096"]
        .iter()
        .chain(args)
        .copied()
        .collect();
    let image = image(dir, "16M", &args, &tree);
    std::fs::write(dir.join("capability"), CAPABILITY).unwrap();
    std::fs::write(dir.join("long"), [b'x'; 700]).unwrap();
    let (capability, long) = (dir.join("capability"), dir.join("long"));
    let set = |file: &str, name: &str, value: &Path| {
        format!("ea_set -f {} /{file} {name} \n", value.to_str().unwrap())
    };
    let mut script = set("inside", "security.capability", &capability);
    for name in ["block", "shared"] {
        for attribute in ["user.before", "user.behind"] {
            script += &set(name, attribute, &long);
        }
        script += &set(name, "security.capability", &capability);
    }
    script += &set("alone", "security.capability", &capability);
    debugfs(&image, dir, &script);
    share(&image, dir);
    fsck(&image);
    image
}

/// Gives two files one attribute block; e2fsck corrects its count of users.
fn share(image: &Path, dir: &Path) {
    let stat = run("debugfs", &["-R", "stat /shared", image.to_str().unwrap()]);
    let block = stat.split("File ACL: ").nth(1).unwrap();
    let block = block.split_whitespace().next().unwrap();
    let script = format!("set_inode_field /sharer file_acl {block}\n");
    debugfs(image, dir, &script);
    // e2fsck returns 1 because it changed something.
    let out = xtask::run::tool("e2fsck")
        .args(["-fy", image.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1), "{out:?}");
}

/// Opens for an ordinary user who is in the group of the files.
fn open(image: &Path) -> Volume {
    open_for(image, 1000, &[own_group()])
}

/// The group of the files, which is the group of the user who runs the test.
fn own_group() -> u32 {
    rustix::process::getegid().as_raw()
}

fn open_for(image: &Path, uid: u32, gids: &[u32]) -> Volume {
    let options = OpenOptions::writable().caller(Caller {
        uid,
        gids: gids.to_vec(),
    });
    Volume::open(image.to_str().unwrap(), &options).unwrap()
}

fn file(volume: &Volume, name: &str) -> File {
    volume.open_path(&format!("/{name}"), writable()).unwrap()
}

fn mode(file: &File) -> u16 {
    file.metadata().mode & 0o7777
}

fn names(volume: &Volume, file: &File) -> Vec<String> {
    let all = volume.xattrs(file.ino()).unwrap();
    all.iter()
        .map(|x| String::from_utf8(x.name.clone()).unwrap())
        .collect()
}

fn write(file: &File) {
    assert_eq!(file.write_buf(4096, Buf::zeroed(512)).1.unwrap(), 512);
}

type Operation = (&'static str, fn(&File));

fn operations() -> Vec<Operation> {
    vec![
        ("a write", write),
        ("a write past the end", |f| {
            f.write_buf(1 << 20, Buf::zeroed(512)).1.unwrap();
        }),
        ("a truncation", |f| f.truncate(5000).unwrap()),
        ("a punch", |f| {
            f.fallocate(Fallocate::PunchHole, 4096, 4096).unwrap();
        }),
    ]
}

#[test]
fn modes_lose_what_a_write_takes() {
    for (what, operation) in operations() {
        let dir = scratch();
        let image = make(dir.path(), &[]);
        let volume = open(&image);
        for (name, _, after) in FILES {
            let file = file(&volume, name);
            operation(&file);
            assert_eq!(mode(&file), after, "{name} after {what}");
        }
        volume.close().unwrap();
        fsck(&image);
        let volume = open(&image);
        for (name, _, after) in FILES {
            assert_eq!(mode(&file(&volume, name)), after, "{name} after {what}");
        }
    }
}

/// A change of owner or group removes set-user-id and set-group-id, whoever makes it, except set-group-id without group execution,
/// which means mandatory locking.
#[test]
fn who_is_given_a_file_gets_no_rights_with_it() {
    let given = [
        SetAttr::default().uid(70_000),
        SetAttr::default().gid(70_000),
    ];
    for set in given {
        let dir = scratch();
        let image = make(dir.path(), &[]);
        let volume = open(&image);
        for (name, before, after) in FILES {
            let file = file(&volume, name);
            assert_eq!(mode(&file), before);
            file.set_attr(&set).unwrap();
            assert_eq!(mode(&file), after, "{name}, {before:o}");
        }
        volume.close().unwrap();
        fsck(&image);
    }
}

/// As in the kernel: root's writes and truncations remove nothing but capabilities; those of a user outside the group also remove
/// set-group-id from files that the group cannot execute. The defect: a truncation removed everything, whoever made it.
#[test]
fn who_writes_decides_what_goes() {
    for (what, operation) in operations() {
        let dir = scratch();
        let image = make(dir.path(), &[]);
        let volume = open_for(&image, 0, &[0]);
        for (name, before, _) in FILES {
            let file = file(&volume, name);
            operation(&file);
            assert_eq!(mode(&file), before, "{name} after {what}, by root");
        }
        let able = file(&volume, "inside");
        operation(&able);
        assert_eq!(names(&volume, &able), [""; 0], "{what}, by root");
        drop(able);
        volume.close().unwrap();
        let volume = open_for(&image, 1000, &[own_group() + 1]);
        for (name, before, after) in FILES {
            let file = file(&volume, name);
            operation(&file);
            let after = if name == "locked" { 0o0644 } else { after };
            assert_eq!(mode(&file), after, "{name}, {before:o}, after {what}");
        }
        volume.close().unwrap();
        fsck(&image);
    }
}

/// Compares with what the kernel does to the same files, for the same users.
#[test]
fn the_kernel_agrees() {
    for (what, words) in [
        ("a truncation", "truncate -s 5000"),
        (
            "a write",
            "dd conv=notrunc status=none if=/dev/zero bs=512 count=1",
        ),
    ] {
        for (uid, gid) in [(0, 0), (1000, 0), (1000, 1000)] {
            let dir = scratch();
            let image = make(dir.path(), &[]);
            let kernels = dir.path().join("kernels");
            std::fs::copy(&image, &kernels).unwrap();
            let mounted = kernel::mounted(&kernels, "rw", |at| {
                for (name, ..) in FILES {
                    let file = at.join(name);
                    run("chmod", &["a+w", file.to_str().unwrap()]);
                    let ids = [
                        format!("--reuid={uid}"),
                        format!("--regid={gid}"),
                        "--clear-groups".to_owned(),
                    ];
                    let target = match words.starts_with("dd") {
                        true => format!("of={}", file.to_str().unwrap()),
                        false => file.to_str().unwrap().to_owned(),
                    };
                    let mut all: Vec<&str> = ids.iter().map(String::as_str).collect();
                    all.extend(words.split(' '));
                    all.push(&target);
                    run("setpriv", &all);
                }
            });
            if !mounted {
                return;
            }
            let volume = open_for(&image, uid, &[gid]);
            let theirs = open(&kernels);
            for (name, ..) in FILES {
                let ours = file(&volume, name);
                match what {
                    "a write" => write(&ours),
                    _ => ours.truncate(5000).unwrap(),
                }
                // Write permission was added only for the kernel's run, so it is not compared.
                let theirs = mode(&file(&theirs, name)) & !0o222;
                assert_eq!(
                    mode(&ours) & !0o222,
                    theirs,
                    "{name} after {what} by {uid}:{gid}"
                );
            }
        }
    }
}

#[test]
fn what_fails_a_check_takes_nothing() {
    let dir = scratch();
    let image = make(dir.path(), &[]);
    let volume = open(&image);
    let file = file(&volume, "both");
    let done = file.write_buf(5, Buf::zeroed(512)).1;
    assert!(matches!(done, Err(Error::Unaligned { .. })), "{done:?}");
    assert_eq!(file.write_buf(0, Buf::zeroed(0)).1.unwrap(), 0);
    let nowait = RequestFlags::default().nowait(true);
    let done = file.call(Op::Write, 0, Buf::zeroed(512), nowait).1;
    assert!(
        matches!(done, Err(Error::WouldBlock(Wait::Inode))),
        "{done:?}"
    );
    assert!(file.truncate(u64::MAX).is_err());
    assert_eq!(mode(&file), 0o6711);
    write(&file);
    assert_eq!(mode(&file), 0o0711);
    assert_eq!(
        file.call(Op::Write, 0, Buf::zeroed(512), nowait).1.unwrap(),
        512
    );
    volume.close().unwrap();
    fsck(&image);
}

/// Capabilities in the inode and in blocks: alone, beside others, shared with another file.
#[test]
fn capabilities_go() {
    for args in [
        &["-I", "256"][..],
        &["-I", "128"],
        &["-O", "^metadata_csum"],
    ] {
        let dir = scratch();
        let image = make(dir.path(), args);
        let volume = open(&image);
        let before = names(&volume, &file(&volume, "shared"));
        assert!(before.contains(&"security.capability".to_owned()));
        for name in ["inside", "block", "alone", "shared"] {
            let file = file(&volume, name);
            let mut kept = names(&volume, &file);
            kept.retain(|n| n != "security.capability");
            write(&file);
            assert_eq!(names(&volume, &file), kept, "{name}");
        }
        // The file may have had the capability in its inode, too; the shared block is unchanged.
        let sharer = file(&volume, "sharer");
        let block = names(&volume, &sharer);
        assert!(!block.is_empty() && block.iter().all(|n| before.contains(n)));
        drop(sharer);
        let metadata = file(&volume, "alone").metadata();
        assert!(metadata.file_acl.is_none());
        volume.close().unwrap();
        fsck(&image);
        kernel::mounted(&image, "ro", |at| {
            assert_eq!(std::fs::read(at.join("sharer")).unwrap(), [7; 20_000]);
        });
        let volume = open(&image);
        let values = volume.xattrs(file(&volume, "block").ino()).unwrap();
        assert_eq!(values.len(), 2);
        assert!(values.iter().all(|x| x.value == [b'x'; 700]), "{args:?}");
        assert_eq!(names(&volume, &file(&volume, "sharer")), block);
        write(&file(&volume, "sharer"));
        volume.unlink("/shared").unwrap();
        volume.unlink("/sharer").unwrap();
        volume.close().unwrap();
        fsck(&image);
    }
}

/// Rights or flags that are set while a queue has the file attached and writes to it: the next write through that queue observes
/// them. The defect: the queue had noted once that its writes are plain, and never checked again.
#[test]
fn a_queue_that_writes_already_knows() {
    let dir = scratch();
    let image = make(dir.path(), &[]);
    let volume = open(&image);
    let file = file(&volume, "plain");
    let queue = volume.queue(4).unwrap();
    let id = queue.attach(&file).unwrap();
    let write = || {
        let request = Request::write(id, 4096, Buf::zeroed(4096), 0);
        run_all(&queue, vec![request]).remove(0).result
    };
    for _ in 0..3 {
        assert_eq!(write().unwrap(), 4096);
    }
    for permissions in [0o4755, 0o2755, 0o6711] {
        let set = SetAttr::default().permissions(permissions);
        volume.set_attr(file.ino(), &set).unwrap();
        assert_eq!(mode(&file), permissions);
        write().unwrap();
        assert_eq!(mode(&file), permissions & 0o777);
    }
    let capability = b"security.capability";
    volume
        .set_xattr(file.ino(), capability, &CAPABILITY)
        .unwrap();
    write().unwrap();
    assert_eq!(names(&volume, &file), [""; 0]);
    assert_eq!(queue.counters().fallback_buffered, 0);
    drop(queue);
    drop(file);
    volume.close().unwrap();
    fsck(&image);
}

/// Defect: the engine went by the volume's caller while a frontend goes by each request's: a mount of an ordinary user took rights away
/// behind the kernel's back.
#[test]
fn a_frontend_says_who_writes() {
    for (what, operation) in operations() {
        let dir = scratch();
        let image = make(dir.path(), &[]);
        let volume = open_for(&image, 1000, &[own_group() + 1]);
        volume.leave_rights_to_frontend();
        for (name, before, _) in FILES {
            let file = file(&volume, name);
            operation(&file);
            assert_eq!(mode(&file), before, "{name} after {what}");
            let root = Caller {
                uid: 0,
                gids: vec![0],
            };
            assert!(!file.clear_rights(&root).unwrap(), "{name}");
            let stranger = Caller {
                uid: 1000,
                gids: vec![own_group() + 1],
            };
            let metadata = file.metadata();
            let after = stranger.mode_after_write(metadata.mode, metadata.gid);
            assert_eq!(
                file.clear_rights(&stranger).unwrap(),
                after != metadata.mode
            );
            assert_eq!(mode(&file), after & 0o7777, "{name}");
        }
        let able = file(&volume, "inside");
        operation(&able);
        assert_eq!(names(&volume, &able), [""; 0], "{what}: whoever writes");
        drop(able);
        volume.close().unwrap();
        fsck(&image);
    }
}
