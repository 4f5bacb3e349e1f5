//! What callers make and change, against what processes of the same users get from the kernel.
//!
//! Input: a volume, and a copy of it for the kernel's mount. Output: none. Invariant: both get the same lines. Limits: what is made is
//! compared by mode, owner, group and access control lists; without root nothing is compared.

use crate::common::attributes::acl;
use crate::common::kernel::mounted;
use crate::common::names::{fresh, open};
use crate::common::{fsck, python};
use crate::frontends::{group, permissions};
use diorite::{Caller, OpenFlags, SetAttr, Volume};
use diorite_format::FileType;
use diorite_format::inode::Rdev;

/// What its standard input says, done by a process of this user: `umask kind mode path`, and what can be told of the path then.
const AS_A_PROCESS: &str = r#"
import os, stat, sys
groups = [int(g) for g in sys.argv[1].split(",")]
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

/// Everything that a caller makes and then changes is what a process of that user gets from the kernel: all kinds of inodes, in directories
/// that give their group and that do not, with default lists and without, under several umasks.
#[test]
fn callers_get_what_processes_get() {
    const NONE: u32 = u32::MAX;
    let (dir, image, volume) = fresh("64M", &["-t", "ext4", "-N", "8000", "-I", "256"]);
    let lists: [(&str, Vec<u8>); 3] = [
        ("none", Vec::new()),
        ("small", acl(&[(1, 7, NONE), (4, 5, NONE), (32, 4, NONE)])),
        (
            "named",
            acl(&[
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
    for (gid, mode) in [(0, 0o777), (7, 0o2777), (7, 0o3777)] {
        for (of, default) in &lists {
            let path = format!("d{mode:o}.{of}");
            let ino = volume.mkdir(&path, 0).unwrap();
            volume.set_attr(ino, &group(gid)).unwrap();
            volume.set_attr(ino, &permissions(mode)).unwrap();
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
    let volume = open(&image, true);
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
        for (groups, lines) in &all {
            let said = python(AS_A_PROCESS, &[groups], at, lines);
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
        "chmod" => set(permissions(mode)),
        _ => set(group(mode.into())),
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
