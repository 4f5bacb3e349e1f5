//! Owners, groups and permissions of what a caller makes and changes, case by case.
//!
//! Input: small volumes. Output: none. Invariants: the expected values are written down here; where mounting is allowed, the kernel's
//! ext4 gives the same. Limits: none of its own.

use crate::common::attributes::acl;
use crate::common::kernel::mounted;
use crate::common::names::fresh;
use crate::common::{fsck, run};
use crate::frontends::{group, permissions};
use diorite::{Caller, OpenFlags};

/// What a user's process creates is as on the kernel's mount: owner, group, umask, and set-group-id if the group is not the
/// caller's.
#[test]
fn callers_make_what_the_kernel_makes() {
    let (_dir, image, volume) = fresh("8M", &["-t", "ext4"]);
    volume.mkdir("/plain", 0o777).unwrap();
    let plain = volume.resolve("/plain", false).unwrap();
    volume.set_attr(plain, &permissions(0o777)).unwrap();
    let gives = volume.mkdir("/gives", 0o777).unwrap();
    volume.set_attr(gives, &group(7)).unwrap();
    volume.set_attr(gives, &permissions(0o2777)).unwrap();
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
    let set = permissions(0o2755);
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

/// A process makes directories without set-user-id and set-group-id, whatever it asks for; the kernel drops them. Who only gives owners
/// gives all permissions.
#[test]
fn directories_of_callers_have_no_rights_to_act_as_others() {
    let (_dir, image, volume) = fresh("8M", &["-t", "ext4"]);
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
    let (dir, image, volume) = fresh("8M", &["-t", "ext4"]);
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
    // user::rwx user:99:r-x group::r-x mask::r-x other::---
    let list = acl(&[
        (1, 7, u32::MAX),
        (2, 5, 99),
        (4, 5, u32::MAX),
        (16, 5, u32::MAX),
        (32, 0, u32::MAX),
    ]);
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
