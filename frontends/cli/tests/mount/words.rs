//! The words of -o.

use crate::bed::{Bed, diorite, has, is_root, said, texts};
use crate::common::{Mount, copied_command, image, scratch, skip};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

#[test]
fn unknown_words_are_refused_by_name() {
    let Some(bed) = Bed::new(&[]) else { return };
    for (word, shown) in [
        ("frobnicate", "frobnicate"),
        ("ro,commit=x", "commit=x"),
        ("errors=continue", "errors=continue"),
    ] {
        let done = diorite(&bed.args(&["-o", word]));
        assert_eq!(done.status.code(), Some(2));
        assert!(texts(&done).1.contains(shown), "{}", texts(&done).1);
    }
    assert!(!bed.is_mounted());
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&[]);
    fs::write(bed.path("file"), "x").unwrap();
    bed.unmount();
    let before = fs::read(&bed.image).unwrap();
    for way in [&["-r"][..], &["-o", "ro"]] {
        bed.mount(way);
        assert_eq!(fs::read(bed.path("file")).unwrap(), b"x");
        let refused = File::create(bed.path("new")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
        bed.unmount();
    }
    assert!(fs::read(&bed.image).unwrap() == before);
    bed.check();
}

#[test]
fn the_mount_table_has_what_was_given() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&["-o", r"fsname=a\,b,subtype=own,noexec"]);
    let line = bed.mountinfo().unwrap();
    assert!(line.contains(" - fuse.own a,b "), "{line}");
    assert!(line.split(' ').nth(5).unwrap().contains("noexec"), "{line}");
    if !is_root() {
        assert!(line.contains("nosuid,nodev"), "{line}");
    }
    bed.end();
}

/// The words of the mount table and of statvfs(2) that the mount's options set.
fn flags(bed: &Bed) -> (Vec<String>, u64) {
    let line = bed.mountinfo().unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let mut set: Vec<String> = words[5].split(',').map(str::to_owned).collect();
    let of_volume = words.last().unwrap().split(',');
    let plain = ["ro", "rw", "sync", "dirsync"];
    set.extend(of_volume.filter(|w| plain.contains(w)).map(str::to_owned));
    (set, rustix::fs::statvfs(&bed.at).unwrap().f_flag.bits())
}

/// The defect: the mount table showed relatime, whatever was given.
#[test]
fn the_mount_table_shows_flags_as_of_ext4() {
    if !is_root() {
        return skip("the kernel's ext4 is mounted by root");
    }
    let (Some(ours), Some(theirs)) = (Bed::new(&[]), Bed::new(&[])) else {
        return;
    };
    for words in [
        "rw",
        "ro",
        "noatime",
        "nodiratime",
        "noatime,nodiratime",
        "relatime",
        "strictatime",
        "strictatime,nodiratime",
        "noatime,atime",
        "nosuid",
        "nosuid,suid",
        "nodev",
        "nodev,dev",
        "noexec",
        "noexec,exec",
        "sync",
        "sync,async",
        "dirsync",
        "sync,dirsync",
        "lazytime",
        "user",
        "users,exec",
        "owner",
        "ro,noatime,nosuid,nodev,noexec",
    ] {
        let Some(kernel) = Mount::new(theirs.image.to_str().unwrap(), &theirs.at, words) else {
            return;
        };
        ours.mount(&["-o", words]);
        assert_eq!(
            flags(&ours),
            flags(&theirs),
            "{words}: ours, and the kernel's"
        );
        ours.unmount();
        drop(kernel);
    }
    ours.mount(&["-o", "noatime,nodiratime"]);
    ours.mount(&["-o", "remount,noexec"]);
    let (now, _) = flags(&ours);
    assert_eq!(now, ["rw", "noexec", "noatime", "nodiratime", "rw"]);
    ours.end();
}

/// fusermount3 takes the word, too.
#[test]
fn the_mount_table_shows_noatime() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&["-o", "noatime"]);
    assert!(flags(&bed).0.contains(&"noatime".to_owned()));
    bed.end();
}

#[test]
fn owners_are_shown_as_asked() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&["-o", "uid=4242,gid=4343,fakeroot"]);
    let root = fs::metadata(&bed.at).unwrap();
    assert_eq!((root.uid(), root.gid()), (4242, 4343));
    bed.end();
}

/// The user who mounts makes files of root, and gives them away.
#[test]
fn a_fake_root_may_do_everything() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&["-o", "fakeroot"]);
    let path = bed.path("file");
    fs::write(&path, "x").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().uid(), 0);
    std::os::unix::fs::chown(&path, Some(55), Some(66)).unwrap();
    fs::write(&path, "more").unwrap();
    bed.unmount();
    bed.check();
    let listed = said(
        crate::bed::DIORITE,
        &["stat", "-c", "%u %g", bed.image.to_str().unwrap(), "/file"],
    );
    assert_eq!(listed.trim(), "55 66");
}

#[test]
fn access_times_are_kept_as_asked() {
    let Some(bed) = Bed::new(&[]) else { return };
    let atimes = |options: &str| {
        bed.mount(&["-o", options]);
        fs::read(bed.path("file")).unwrap();
        assert_eq!(fs::read_dir(bed.path("dir")).unwrap().count(), 0);
        bed.unmount();
        bed.mount(&["-o", "ro"]);
        let of = |name| {
            let seen = fs::metadata(bed.path(name)).unwrap();
            (seen.atime(), seen.atime_nsec())
        };
        let both = (of("file"), of("dir"));
        bed.unmount();
        both
    };
    bed.mount(&[]);
    fs::write(bed.path("file"), "x").unwrap();
    fs::create_dir(bed.path("dir")).unwrap();
    bed.unmount();
    let none = atimes("noatime");
    assert_eq!(atimes("noatime"), none);
    std::thread::sleep(std::time::Duration::from_millis(20));
    let files = atimes("strictatime,nodiratime");
    assert!(files.0 > none.0 && files.1 == none.1, "{files:?} {none:?}");
    std::thread::sleep(std::time::Duration::from_millis(20));
    let all = atimes("strictatime");
    assert!(all.0 > files.0 && all.1 > files.1);
    // It is newer than the last change.
    assert_eq!(atimes("relatime"), all);
    bed.check();
}

#[test]
fn an_offset_is_where_the_file_system_begins() {
    let Some(bed) = Bed::new(&[]) else { return };
    let image = fs::read(&bed.image).unwrap();
    let mut shifted = vec![0; 1 << 20];
    shifted.extend(image);
    fs::write(&bed.image, shifted).unwrap();
    bed.mount(&["-o", "offset=1048576"]);
    fs::write(bed.path("file"), "behind a megabyte").unwrap();
    bed.unmount();
    let back = fs::read(&bed.image).unwrap();
    fs::write(&bed.image, &back[1 << 20..]).unwrap();
    bed.check();
    let image = bed.image.to_str().unwrap();
    assert_eq!(
        said(crate::bed::DIORITE, &["cat", image, "/file"]),
        "behind a megabyte"
    );
}

/// Every file through the journal.
#[test]
fn data_may_go_through_the_journal() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&["-o", "data=journal,commit=1,dirsync"]);
    fs::write(bed.path("file"), vec![5; 200_001]).unwrap();
    assert!(fs::read(bed.path("file")).unwrap() == vec![5; 200_001]);
    bed.end();
}

/// The defect: what was freed last was not discarded, as nothing had committed it.
#[test]
fn free_space_is_discarded() {
    let Some(bed) = Bed::new(&[]) else { return };
    let stored = || fs::metadata(&bed.image).unwrap().blocks();
    let probe = bed.image.with_extension("probe");
    fs::write(&probe, [1; 8192]).unwrap();
    let mut words = vec!["--punch-hole", "--length", "8192"];
    words.push(probe.to_str().unwrap());
    let has_holes = xtask::run::tool("fallocate").args(&words).status();
    if !has_holes.unwrap().success() {
        return skip("the scratch directory's file system has no holes");
    }
    bed.mount(&["-o", "discard"]);
    fs::write(bed.path("file"), vec![5; 20 << 20]).unwrap();
    File::open(bed.path("file")).unwrap().sync_all().unwrap();
    let full = stored();
    fs::remove_file(bed.path("file")).unwrap();
    bed.unmount();
    bed.check();
    let left = stored();
    assert!(
        left < full - 20_000,
        "{full} sectors, and {left} at the end"
    );
}

/// Defect: options that a program had not filled in could not be mounted by root: without a source mount(2) says EINVAL.
#[test]
fn default_options_mount() {
    use rustix::fs::{Mode, OFlags, open};
    let Some(bed) = Bed::new(&[]) else { return };
    let options = diorite::OpenOptions::writable();
    let volume = diorite::Volume::open(bed.image.to_str().unwrap(), &options).unwrap();
    let path = std::fs::canonicalize(&bed.at).unwrap();
    let point = open(&path, OFlags::PATH, Mode::empty()).unwrap();
    let options = diorite_fuse::MountOptions::default();
    let fuse = diorite_fuse::mount(&path, &point, &options).unwrap();
    let mut mounted = diorite_fuse::Mounted::serve(volume, fuse, options).unwrap();
    std::fs::write(path.join("file"), "bytes").unwrap();
    drop(point);
    diorite_fuse::unmount(&path, false).unwrap();
    mounted.wait();
    mounted.closer().close().unwrap();
    drop(mounted);
    let options = diorite::OpenOptions::default();
    let volume = diorite::Volume::open(bed.image.to_str().unwrap(), &options).unwrap();
    assert_eq!(volume.read("/file").unwrap(), b"bytes");
}

/// An ordinary user who cannot mount somewhere, or change what was mounted, is told how to. Defect: fusermount3's words alone, and nothing.
#[test]
fn an_ordinary_user_is_led_on() {
    if !has("fusermount3") {
        return skip("fusermount3 is not installed");
    }
    let dir = scratch();
    let open =
        |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    open(dir.path(), 0o777);
    let program = copied_command(dir.path());
    let img = image(
        dir.path(),
        "x",
        "8M",
        &["-t", "ext4", "-E", "root_owner=0:0"],
        None,
    );
    open(Path::new(&img), 0o666);
    let at = dir.path().join("at");
    let run = |words: &[&str]| {
        let mut command = match is_root() {
            true => {
                let mut other = xtask::run::tool("setpriv");
                other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
                other.arg(&program);
                other
            }
            false => Command::new(&program),
        };
        let ran = command
            .args(words)
            .current_dir(dir.path())
            .output()
            .unwrap();
        (
            ran.status.success(),
            String::from_utf8_lossy(&ran.stderr).into_owned(),
        )
    };
    let (done, said) = run(&["mount", "-o", "fakeroot", &img, "/mnt"]);
    if done || !said.contains("no write access to mountpoint") {
        return skip(format!("an ordinary user on this machine: {said}"));
    }
    assert!(
        said.contains("mounts on a directory of their own"),
        "{said}"
    );
    fs::create_dir(&at).unwrap();
    open(&at, 0o777);
    let owner = is_root().then_some(65534);
    std::os::unix::fs::chown(&at, owner, owner).unwrap();
    let at = at.to_str().unwrap();
    for (options, told) in [("rw", true), ("fakeroot", false), ("ro", false)] {
        let (done, said) = run(&["mount", "-o", options, &img, at]);
        assert!(done, "{said}");
        assert_eq!(
            said.contains("with '-o fakeroot' you may change everything"),
            told,
            "{said}"
        );
        let (done, said) = run(&["umount", at]);
        assert!(done, "{said}");
    }
}
