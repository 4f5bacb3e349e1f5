//! The helpers of mount(8) and umount(8), by themselves and as mount(8) calls them.

use crate::bed::{Bed, DIORITE, is_root, said, texts, within};
use crate::common::{scratch, skip};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::symlink;

/// The helpers of mount(8) and umount(8), by their names.
#[test]
fn helpers_of_mount() {
    let Some(bed) = Bed::new(&[]) else { return };
    let dir = scratch();
    let helper = |name: &str| {
        let path = dir.path().join(name);
        symlink(DIORITE, &path).unwrap();
        path
    };
    let (mount, umount) = (helper("mount.fuse.diorite"), helper("umount.fuse.diorite"));
    let (image, at) = (bed.image.to_str().unwrap(), bed.at.to_str().unwrap());
    let failed = within(&mount, &["/no/such/image", at, "-o", "rw"]);
    assert_eq!(failed.status.code(), Some(32));
    let wrong = within(&mount, &[image, at, "-o", "no_such_word"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(texts(&wrong).1.contains("no_such_word"));
    assert_eq!(said(&mount, &[image, at, "-fnv", "-o", "rw"]), "");
    assert!(!bed.is_mounted(), "-f only tries");
    assert_eq!(
        said(&mount, &[image, at, "-sn", "-o", "rw,noatime,no_such_word"]),
        ""
    );
    let line = bed.mountinfo().unwrap();
    assert!(
        line.ends_with(&format!(
            "- fuse.diorite {image} {}",
            line.rsplit(' ').next().unwrap()
        )),
        "{line}"
    );
    fs::write(bed.path("file"), "x").unwrap();
    if is_root() {
        assert_eq!(said(&mount, &[image, at, "-o", "remount,ro"]), "");
        assert_eq!(bed.processes().len(), 3, "no second server");
        let refused = File::create(bed.path("file")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
        assert_eq!(said(&mount, &[image, at, "-o", "remount,rw"]), "");
        fs::write(bed.path("file"), "y").unwrap();
        assert_eq!(said(&mount, &[image, at, "-o", "remount,rw,noatime"]), "");
        let refused = within(&mount, &[image, at, "-o", "remount,noatime,lazytime"]);
        assert_eq!(refused.status.code(), Some(32));
        let why = texts(&refused).1;
        assert!(why.contains("cannot change 'lazytime'"), "{why}");
        let long = format!("remount,fsname={}", "x".repeat(1000));
        let refused = within(&mount, &[image, at, "-o", &long]);
        let why = texts(&refused).1;
        assert!(why.contains("cannot change 'fsname=xxx"), "{why}");
    } else {
        skip("a remount needs root");
    }
    assert_eq!(said(&umount, &[at]), "");
    // Words behind their letter.
    assert_eq!(
        said(&mount, &[image, at, "-noro,noatime", "-tfuse.diorite"]),
        ""
    );
    let line = bed.mountinfo().unwrap();
    assert!(line.contains(" ro,"), "{line}");
    assert_eq!(said(&umount, &[at, "-tfuse.diorite"]), "");
    bed.check();
    assert_eq!(within(&umount, &[at]).status.code(), Some(32));
}

/// mount(8), umount(8), findmnt(8) and df(1), with the helpers where they are looked for, and fstab.
#[test]
fn mount_finds_the_helpers() {
    let Some(bed) = Bed::of_root("a mount namespace needs root") else {
        return;
    };
    let dir = scratch();
    let helpers = dir.path().join("sbin");
    fs::create_dir(&helpers).unwrap();
    for name in ["mount.fuse.diorite", "umount.fuse.diorite"] {
        symlink(DIORITE, helpers.join(name)).unwrap();
    }
    let (image, at) = (bed.image.to_str().unwrap(), bed.at.to_str().unwrap());
    let fstab = dir.path().join("fstab");
    let line = format!("{image} {at} fuse.diorite noatime,lazytime,nodev,nofail,x-systemd.x 0 2\n");
    fs::write(&fstab, line).unwrap();
    // The helpers stand in the place of all others for this script.
    let script = r#"
        mount --bind "$1" /usr/sbin
        mount -T "$2" -a
        echo "$(findmnt -no SOURCE,FSTYPE "$3")"
        findmnt -no OPTIONS "$3"
        df --output=source,fstype "$3" | tail -n 1
        mount -T "$2" -a
        grep -c " $3 " /proc/self/mounts
        echo one > "$3/file"
        mount -T "$2" -o remount,ro "$3"
        if echo two 2>/dev/null > "$3/file"; then exit 9; fi
        mount -T "$2" -o remount,rw "$3"
        echo three > "$3/file"
        umount "$3"
        mount -T "$2" "$3"
        cat "$3/file"
        umount "$4"
        mount -t fuse.diorite -o ro "$4" "$3"
        cat "$3/file"
        umount "$3"
    "#;
    let args = [
        helpers.to_str().unwrap(),
        fstab.to_str().unwrap(),
        at,
        image,
    ];
    let unshare = ["-m", "sh", "-ec", script, "sh"];
    let text = said("unshare", &[&unshare[..], &args].concat());
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let lines: Vec<&str> = text.lines().collect();
    let [found, options, of_df, count, first, second] = lines[..] else {
        panic!("{text}");
    };
    assert_eq!(words(found), [image, "fuse.diorite"]);
    assert_eq!(words(of_df), [image, "fuse.diorite"]);
    let options: Vec<&str> = options.split(',').collect();
    assert!(
        options.contains(&"rw") && options.contains(&"nodev"),
        "{options:?}"
    );
    assert_eq!(count, "1", "mounted once");
    assert_eq!([first, second], ["three"; 2]);
    bed.check();
}
