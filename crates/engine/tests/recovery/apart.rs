//! A journal on a device of its own.

use crate::common::{run, scratch};
use diorite::{OpenOptions, Volume};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A volume with its journal on another device, crashed, perhaps while a file without a name was in use: both images. None without the rights.
fn crashed_with_journal_device(
    dir: &Path,
    block: &str,
    nameless: bool,
) -> Option<(PathBuf, PathBuf)> {
    let (journal, image, at) = (dir.join("journal"), dir.join("image"), dir.join("mnt"));
    std::fs::create_dir_all(&at).unwrap();
    let attach = |path: &Path, size: &str| {
        let _ = std::fs::remove_file(path);
        run("truncate", &["-s", size, path.to_str().unwrap()]);
        let out = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(path)
            .output()
            .ok()?;
        let name = String::from_utf8(out.stdout).unwrap().trim().to_owned();
        out.status.success().then_some(name)
    };
    let Some(loops) = attach(&journal, "8M").zip(attach(&image, "24M")) else {
        eprintln!("skipped: loop devices are not permitted here");
        return None;
    };
    run(
        "mke2fs",
        &["-q", "-F", "-O", "journal_dev", "-b", block, &loops.0],
    );
    let device = format!("device={}", loops.0);
    run(
        "mke2fs",
        &[
            "-q", "-F", "-t", "ext4", "-b", block, "-J", &device, &loops.1,
        ],
    );
    let at = at.to_str().unwrap();
    let mounted = Command::new("mount")
        .args(["-o", "commit=300", &loops.1, at])
        .output()
        .unwrap();
    let copies = (dir.join("journal.copy"), dir.join("image.copy"));
    if mounted.status.success() {
        for n in 0..9u8 {
            std::fs::write(format!("{at}/file{n}"), vec![n; 9000]).unwrap();
            run("sync", &["-f", at]);
        }
        let held = nameless.then(|| {
            let path = format!("{at}/file8");
            let held = std::fs::File::open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            run("sync", &["-f", at]);
            held
        });
        std::fs::copy(&journal, &copies.0).unwrap();
        std::fs::copy(&image, &copies.1).unwrap();
        drop(held);
        run("umount", &[at]);
    }
    run("losetup", &["-d", &loops.0]);
    run("losetup", &["-d", &loops.1]);
    mounted.status.success().then_some(copies)
}

#[test]
fn a_journal_on_a_device_of_its_own() {
    let dir = scratch();
    for block in ["1024", "4096"] {
        let Some((journal, image)) = crashed_with_journal_device(dir.path(), block, false) else {
            return;
        };
        let (j, i) = (journal.to_str().unwrap(), image.to_str().unwrap());
        let said = Volume::open(i, &OpenOptions::default())
            .unwrap()
            .notes()
            .join("\n");
        assert!(said.contains("not in the volume"), "{said}");
        let unnamed = Volume::open(i, &OpenOptions::writable())
            .unwrap_err()
            .to_string();
        assert!(unnamed.contains("--journal"), "{unnamed}");
        let with = |write, journal: &str| OpenOptions {
            write,
            journal: Some(journal.to_owned()),
            ..OpenOptions::default()
        };
        // No journal at all, in place of the journal.
        assert!(Volume::open(i, &with(false, i)).is_err());
        let volume = Volume::open(i, &with(false, j)).unwrap();
        let said = volume.notes().join("\n");
        assert!(said.contains("replayed in memory"), "{said}");
        assert!(volume.resolve(b"/file8", true).is_ok());
        drop(volume);
        let (theirs, log) = (dir.path().join("theirs"), dir.path().join("their-log"));
        std::fs::copy(&image, &theirs).unwrap();
        std::fs::copy(&journal, &log).unwrap();
        let (t, l) = (theirs.to_str().unwrap(), log.to_str().unwrap());
        run("e2fsck", &["-E", "journal_only", "-y", "-j", l, t]);
        Volume::open(i, &with(true, j)).unwrap().close().unwrap();
        let (mine, theirs) = (
            std::fs::read(&image).unwrap(),
            std::fs::read(&theirs).unwrap(),
        );
        let differ: Vec<usize> = (0..mine.len()).filter(|n| mine[*n] != theirs[*n]).collect();
        assert!(
            differ.iter().all(|n| (1024..2048).contains(n)),
            "{block}: {differ:?}"
        );
        let (mine, theirs) = (
            std::fs::read(&journal).unwrap(),
            std::fs::read(&log).unwrap(),
        );
        let at = if block == "1024" { 2048 } else { 4096 };
        assert_eq!(
            mine[at + 0x18..at + 0x24],
            theirs[at + 0x18..at + 0x24],
            "the log's position"
        );
        run("e2fsck", &["-fn", "-j", j, i]);
        let volume = Volume::open(i, &OpenOptions::writable()).unwrap();
        let unnamed = volume.mkdir("/made", 0o755).unwrap_err().to_string();
        assert!(unnamed.contains("--journal"), "{unnamed}");
    }
}

/// Orphans were thought to be out of reach with any journal on a device of its own: the volume was refused for writing, named or not.
#[test]
fn orphans_beside_a_journal_on_a_device_of_its_own() {
    let dir = scratch();
    let Some((journal, image)) = crashed_with_journal_device(dir.path(), "1024", true) else {
        return;
    };
    let (j, i) = (journal.to_str().unwrap(), image.to_str().unwrap());
    let named = OpenOptions {
        journal: Some(j.to_owned()),
        ..OpenOptions::writable()
    };
    let volume = Volume::open(i, &named).unwrap();
    let said = volume.notes().join("\n");
    assert!(said.contains("orphaned inodes: 1 deleted"), "{said}");
    volume.mkdir("/made", 0o755).unwrap();
    volume.close().unwrap();
    run("e2fsck", &["-fn", "-j", j, i]);
}
