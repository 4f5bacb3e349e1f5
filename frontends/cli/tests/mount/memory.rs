//! A mount and its writer with little memory.
//!
//! Input: a memory cgroup (version 1 or 2), which only root makes. Output: nothing, or what was not there. Invariants: much more is written
//! than the group may have, so pages of the mount are written back by a server that must not wait for memory that only this frees; the
//! image lies on a disk, because pages of a tmpfs cannot be given back. Limits: skipped where there is no controller.

use crate::bed::{Bed, DIORITE, is_root, said};
use crate::common::skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What the mount and its writer may have together.
const LIMIT: u64 = 64 << 20;

/// A memory cgroup, removed when dropped.
struct Group(PathBuf);

impl Group {
    /// None, with the reason printed, if there is no controller.
    fn new() -> Option<Group> {
        if !is_root() {
            skip("a memory cgroup needs root");
            return None;
        }
        let root = Path::new("/sys/fs/cgroup");
        let (parent, limit) = match fs::read_to_string(root.join("cgroup.controllers")) {
            Ok(all) if all.split_whitespace().any(|name| name == "memory") => {
                // It may be enabled already; otherwise the file of the limit is missing below.
                let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
                (root.to_owned(), "memory.max")
            }
            _ => (root.join("memory"), "memory.limit_in_bytes"),
        };
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(format!("diorite-test-{process}-{number}"));
        if let Err(error) = fs::create_dir(&path) {
            skip(format!("{}: {error}", path.display()));
            return None;
        }
        let group = Group(path);
        match fs::write(group.0.join(limit), LIMIT.to_string()) {
            Ok(()) => {
                // Where the host has swap, none of it.
                let _ = fs::write(group.0.join("memory.swap.max"), "0");
                let _ = fs::write(
                    group.0.join("memory.memsw.limit_in_bytes"),
                    LIMIT.to_string(),
                );
                Some(group)
            }
            Err(error) => {
                skip(format!("no memory controller: {limit}: {error}"));
                None
            }
        }
    }

    /// Runs a script of the shell in the group.
    fn run(&self, script: &str, args: &[&str]) -> String {
        let procs = self.0.join("cgroup.procs");
        let script = format!("echo $$ > {} && {script}", procs.display());
        said("sh", &[&["-ec", &script, "sh"], args].concat())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Processes that were killed after a failure are in it for a moment.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Writes a file of several times the limit, and reads it back.
fn a_large_file(group: &Group, bed: &Bed, writer: &str) {
    let path = bed.path("large");
    let lines = "seq 10000000 27000000";
    let script = format!("{lines} | {writer} && {lines} | cmp - \"$1\"");
    group.run(&script, &[path.to_str().unwrap()]);
    fs::remove_file(path).unwrap();
}

/// Files whose ends are no whole blocks, which the server caches, and whose inodes it keeps as long as the kernel does.
fn many_small_files(bed: &Bed) {
    const FILES: u32 = 5000;
    let data = |n: u32| format!("{n:07}\n").repeat(875);
    let place = |n: u32| bed.path(&format!("d{}/{n}", n / 500));
    for n in 0..FILES {
        if n % 500 == 0 {
            fs::create_dir(place(n).parent().unwrap()).unwrap();
        }
        fs::write(place(n), data(n)).unwrap();
    }
    for n in 0..FILES {
        assert!(fs::read_to_string(place(n)).unwrap() == data(n), "{n}");
    }
}

/// What is known of an inode that the kernel has in its caches is little, however many these are.
#[test]
fn many_inodes_are_known_with_little_memory() {
    const DIRS: u32 = 200;
    const FILES: u32 = 1000;
    let Some(group) = Group::new() else { return };
    let dir = tempfile::tempdir_in(std::env::temp_dir()).unwrap();
    let files = dir.path().join("files.tar");
    archive(&files, DIRS, FILES);
    let Some(bed) = Bed::in_dir(dir, &[], "8M") else {
        return;
    };
    let (image, at) = (bed.image.to_str().unwrap(), bed.at.to_str().unwrap());
    let made = ["mkfs", "-t", "ext4", "-N", "210000", "-d"];
    let files = files.to_str().unwrap();
    said(DIORITE, &[&made[..], &[files, image, "256M"]].concat());
    group.run("exec \"$1\" mount \"$2\" \"$3\"", &[DIORITE, image, at]);
    let count = || {
        let mut all = 0;
        for dir in 0..DIRS {
            for entry in fs::read_dir(bed.path(&format!("{dir:03}"))).unwrap() {
                assert_eq!(entry.unwrap().metadata().unwrap().len(), 0);
                all += 1;
            }
        }
        all
    };
    let before = bed.processes();
    assert_eq!(count(), DIRS * FILES);
    // Those that were let go of are found again: written, renamed, removed while they are open.
    let (first, last) = (bed.path("000/0000"), bed.path("199/0999"));
    fs::write(&first, "written").unwrap();
    let open = fs::File::open(&first).unwrap();
    fs::rename(&last, bed.path("renamed")).unwrap();
    fs::rename(bed.path("renamed"), &first).unwrap();
    assert_eq!(std::io::read_to_string(open).unwrap(), "written");
    assert_eq!(fs::read(&first).unwrap(), b"");
    assert_eq!(count(), DIRS * FILES - 1);
    assert_eq!(bed.processes(), before, "none was killed");
    bed.end();
}

/// An archive of empty files in directories.
fn archive(path: &Path, dirs: u32, files: u32) {
    use std::io::Write;
    let mut out = std::io::BufWriter::new(fs::File::create(path).unwrap());
    let mut put = |name: &str, mode: &[u8], kind: u8| {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..107].copy_from_slice(mode);
        for (at, len) in [(108, 7), (116, 7), (124, 11), (136, 11)] {
            header[at..at + len].fill(b'0');
        }
        header[148..156].fill(b' ');
        header[156] = kind;
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        out.write_all(&header).unwrap();
    };
    for dir in 0..dirs {
        put(&format!("{dir:03}/"), b"0000755", b'5');
        for file in 0..files {
            put(&format!("{dir:03}/{file:04}"), b"0000644", b'0');
        }
    }
    out.write_all(&[0; 1024]).unwrap();
}

#[test]
fn much_is_written_with_little_memory() {
    /// What statfs(2) says of a tmpfs.
    const TMPFS: u64 = 0x0102_1994;
    let Some(group) = Group::new() else { return };
    let on_disk = std::env::temp_dir();
    let kind = rustix::fs::statfs(&on_disk).unwrap().f_type;
    if kind.cast_unsigned() == TMPFS {
        return skip(format!("{} is no disk", on_disk.display()));
    }
    for (options, writer) in [
        ("rw", "dd obs=100003 of=\"$1\" status=none"),
        ("writeback_cache", "cat > \"$1\""),
    ] {
        let dir = tempfile::tempdir_in(&on_disk).unwrap();
        let Some(bed) = Bed::in_dir(dir, &["-b", "4096", "-N", "8192"], "320M") else {
            return;
        };
        let (image, at) = (bed.image.to_str().unwrap(), bed.at.to_str().unwrap());
        let mount = "exec \"$1\" mount -o \"$2\" \"$3\" \"$4\"";
        group.run(mount, &[DIORITE, options, image, at]);
        if options == "rw" {
            many_small_files(&bed);
        }
        a_large_file(&group, &bed, writer);
        bed.end();
    }
}
