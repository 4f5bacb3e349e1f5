//! Recovery from a journal on a device of its own.

use crate::common::{run, scratch};
use diorite::{OpenFlags, OpenOptions, Volume};
use diorite_check::{CheckOptions, check};
use std::path::{Path, PathBuf};
use xtask::loopback::Loop;

/// The work on a volume before it crashes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Files,
    /// Files, one of which was unlinked while open.
    Nameless,
    /// Files, each of them synced by a fast commit.
    Fast,
}

/// A crashed volume with its journal on another device: both images. None without the rights to mount.
fn crashed_with_journal_device(dir: &Path, block: &str, work: Work) -> Option<(PathBuf, PathBuf)> {
    let (journal, image, at) = (dir.join("journal"), dir.join("image"), dir.join("mnt"));
    std::fs::create_dir_all(&at).unwrap();
    let attach = |path: &Path, size: &str| {
        let _ = std::fs::remove_file(path);
        run("truncate", &["-s", size, path.to_str().unwrap()]);
        Loop::attach_or_skip(path, &[])
    };
    let (journal_loop, image_loop) = (attach(&journal, "8M")?, attach(&image, "24M")?);
    let loops = [&journal_loop, &image_loop].map(Loop::device);
    run(
        "mke2fs",
        &["-q", "-F", "-O", "journal_dev", "-b", block, loops[0]],
    );
    let device = format!("device={}", loops[0]);
    let features = match work {
        Work::Fast => "fast_commit",
        Work::Files | Work::Nameless => "^fast_commit",
    };
    run(
        "mke2fs",
        &[
            "-q", "-F", "-t", "ext4", "-b", block, "-O", features, "-J", &device, loops[1],
        ],
    );
    let at = at.to_str().unwrap();
    let mounted = xtask::run::tool("mount")
        .args(["-o", "commit=300", loops[1], at])
        .output()
        .unwrap();
    let copies = (dir.join("journal.copy"), dir.join("image.copy"));
    if mounted.status.success() {
        for n in 0..9u8 {
            let path = format!("{at}/file{n}");
            std::fs::write(&path, vec![n; 9000]).unwrap();
            match work {
                Work::Fast => std::fs::File::open(&path).unwrap().sync_all().unwrap(),
                Work::Files | Work::Nameless => drop(run("sync", &["-f", at])),
            }
        }
        let held = (work == Work::Nameless).then(|| {
            let path = format!("{at}/file8");
            let held = std::fs::File::open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            run("sync", &["-f", at]);
            held
        });
        std::fs::copy(&journal, &copies.0).unwrap();
        std::fs::copy(&image, &copies.1).unwrap();
        drop(held);
        xtask::mount::unmount(Path::new(at)).unwrap();
    }
    if !mounted.status.success() {
        xtask::skip::skipped(format_args!("the kernel's mount: {mounted:?}"));
        return None;
    }
    Some(copies)
}

#[test]
fn a_journal_on_a_device_of_its_own() {
    let dir = scratch();
    for block in ["1024", "4096"] {
        let Some((journal, image)) = crashed_with_journal_device(dir.path(), block, Work::Files)
        else {
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
        let with = |write, journal: &str| {
            OpenOptions::default()
                .write(write)
                .journal(journal.to_owned())
        };
        // A device that holds no journal.
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

/// The defect: orphans were taken to be unreachable with any journal on a device of its own, so the volume was refused for writing,
/// whether that device was named or not.
#[test]
fn orphans_beside_a_journal_on_a_device_of_its_own() {
    let dir = scratch();
    let Some((journal, image)) = crashed_with_journal_device(dir.path(), "1024", Work::Nameless)
    else {
        return;
    };
    let (j, i) = (journal.to_str().unwrap(), image.to_str().unwrap());
    let named = OpenOptions::writable().journal(j.to_owned());
    let volume = Volume::open(i, &named).unwrap();
    let said = volume.notes().join("\n");
    assert!(said.contains("orphaned inodes: 1 deleted"), "{said}");
    volume.mkdir("/made", 0o755).unwrap();
    volume.close().unwrap();
    run("e2fsck", &["-fn", "-j", j, i]);
}

/// The kernel writes fast commits to a journal on a device of its own, too. e2fsck 1.47 replays them there and then gives up
/// because of the superblock's checksum.
#[test]
fn fast_commits_in_a_journal_on_a_device_of_its_own() {
    let dir = scratch();
    for block in ["1024", "4096"] {
        let Some((journal, image)) = crashed_with_journal_device(dir.path(), block, Work::Fast)
        else {
            return;
        };
        let (j, i) = (journal.to_str().unwrap(), image.to_str().unwrap());
        let with = |write| OpenOptions::default().write(write).journal(j.to_owned());
        let before = (
            std::fs::read(&journal).unwrap(),
            std::fs::read(&image).unwrap(),
        );
        let volume = Volume::open(i, &with(false)).unwrap();
        let said = volume.notes().join("\n");
        assert!(said.contains("8 fast commits"), "{block}: {said}");
        all_files_are_in(&volume);
        drop(volume);
        let after = (
            std::fs::read(&journal).unwrap(),
            std::fs::read(&image).unwrap(),
        );
        assert!(before == after, "{block}: reading wrote something");
        Volume::open(i, &with(true)).unwrap().close().unwrap();
        run("e2fsck", &["-fn", "-j", j, i]);
        let options = CheckOptions::default().open(with(false));
        let found = check(i, &options, &|_| ()).unwrap();
        let said: Vec<_> = found.kept().collect();
        assert!(found.is_clean(), "{block}: {said:?}");
        let volume = Volume::open(i, &with(true)).unwrap();
        let said = volume.notes().join("\n");
        assert!(!said.contains("fast commit"), "{block}: {said}");
        all_files_are_in(&volume);
        volume.close().unwrap();
    }
}

fn all_files_are_in(volume: &Volume) {
    for n in 0..9u8 {
        let file = volume.open_path(&format!("/file{n}"), OpenFlags::default());
        let mut bytes = vec![0xEE; 10_000];
        let len = file.unwrap().read_bytes(0, &mut bytes).unwrap();
        assert_eq!(bytes[..len], vec![n; 9000], "file {n}");
    }
}
