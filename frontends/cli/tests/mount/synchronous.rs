//! What is durable when its call returns: on synchronous mounts, through synchronous files, after an fsync.
//!
//! Input: a command on a mount. Output: what the next mount shows, after all processes of the first one were killed. Limits: a kill loses
//! what was not committed, but not what the host has in its cache: flushes are the subject of tools/crash.

use crate::bed::{Bed, has, said};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::time::Duration;

/// What is there before each command.
const BEFORE: &str = "cd \"$1\" && echo x > f && setfattr -n user.old -v 1 f && touch -d @1000 f && \
    mkdir d e e/empty s && chattr +D s";

/// Direct writes, and one through the kernel's cache.
const ONE_WRITE: [&str; 3] = [
    "python3 -c 'import mmap, os; os.pwritev(os.open(\"f\", os.O_WRONLY | os.O_DIRECT), [mmap.mmap(-1, 4096)], 4096, os.RWF_DSYNC)'",
    "python3 -c 'import mmap, os; fd = os.open(\"f\", os.O_WRONLY | os.O_DIRECT | os.O_DSYNC); \
        os.pwritev(fd, [mmap.mmap(-1, 512)], 0, os.RWF_SYNC)'",
    "python3 -c 'import mmap, os; os.pwritev(os.open(\"f\", os.O_WRONLY), [mmap.mmap(-1, 4096)], 4096, os.RWF_DSYNC)'",
];

/// The options of the mount, a command, and what shows that it was not lost.
const CASES: &[(&str, &str, &str)] = &[
    // Names: mount(8), dirsync.
    ("dirsync", ": > n", "test -f n"),
    ("dirsync", "mkdir n", "test -d n"),
    ("dirsync", "mkfifo n", "test -p n"),
    ("dirsync", "ln -s x n", "test -L n"),
    ("dirsync", "ln f n", "test -f n"),
    ("dirsync", "mv f n", "test -f n && test ! -e f"),
    ("dirsync", "mv f d/n", "test -f d/n && test ! -e f"),
    ("dirsync", "mv d e/n", "test -d e/n && test ! -e d"),
    ("dirsync", "rm f", "test ! -e f"),
    ("dirsync", "rmdir e/empty", "test ! -e e/empty"),
    ("sync", "mkdir n", "test -d n"),
    // Inodes: mount(8), sync.
    ("sync", "echo more >> f", "grep more f"),
    ("sync", "chmod 711 f", "test $(stat -c %a f) = 711"),
    ("sync", "touch -d @2000 f", "test $(stat -c %Y f) = 2000"),
    ("sync", "truncate -s 9000 f", "test $(stat -c %s f) = 9000"),
    ("sync", ": > f", "test ! -s f"),
    ("sync", "fallocate -l 9000 f", "test $(stat -c %s f) = 9000"),
    ("sync", "setfattr -n user.n -v 1 f", "getfattr -n user.n f"),
    ("sync", "setfattr -x user.old f", "! getfattr -n user.old f"),
    ("sync", "chattr +d f", "lsattr f | cut -d' ' -f1 | grep d"),
    ("sync", "chattr -v 77 f", "lsattr -v f | grep '^ *77 '"),
    // Files: open(2), O_SYNC and O_DSYNC.
    (
        "rw",
        "dd if=/dev/zero of=f bs=999 count=9 oflag=sync status=none",
        "test $(stat -c %s f) = 8991",
    ),
    (
        "rw",
        "dd if=/dev/zero of=f bs=999 count=9 oflag=dsync status=none",
        "test $(stat -c %s f) = 8991",
    ),
    (
        "writeback_cache",
        "dd if=/dev/zero of=f bs=999 count=9 oflag=dsync status=none",
        "test $(stat -c %s f) = 8991",
    ),
    (
        "rw",
        "python3 -c 'import os; os.posix_fallocate(os.open(\"f\", os.O_RDWR | os.O_SYNC), 0, 9000)'",
        "test $(stat -c %s f) = 9000",
    ),
    (
        "rw",
        "python3 -c 'import os; os.copy_file_range(os.open(\"f\", os.O_RDONLY), os.open(\"f\", os.O_WRONLY | os.O_DSYNC), 2, 0, 9000)'",
        "test $(stat -c %s f) = 9002",
    ),
    (
        "rw",
        "dd if=/dev/zero of=f bs=1 count=1 conv=notrunc oflag=sync status=none",
        "test $(stat -c %Y f) -gt 1000",
    ),
    (
        "sync",
        "dd if=/dev/zero of=f bs=1 count=1 conv=notrunc status=none",
        "test $(stat -c %Y f) -gt 1000",
    ),
    // One write: pwritev2(2), RWF_DSYNC and RWF_SYNC.
    ("rw", ONE_WRITE[0], "test $(stat -c %s f) = 8192"),
    ("direct_io", ONE_WRITE[0], "test $(stat -c %s f) = 8192"),
    ("rw", ONE_WRITE[1], "test $(stat -c %Y f) -gt 1000"),
    ("rw", ONE_WRITE[2], "test $(stat -c %s f) = 8192"),
    // Directories: chattr(1), D.
    ("rw", "mkdir s/n", "test -d s/n"),
    ("rw", "mv f s/n", "test -f s/n && test ! -e f"),
    // fsync(2): coreutils' sync of a name.
    ("rw", "mkdir n && sync .", "test -d n"),
    ("rw", "mv f d/n && sync d", "test -f d/n && test ! -e f"),
    ("rw", "rm f && sync .", "test ! -e f"),
    ("rw", "chmod 711 f && sync f", "test $(stat -c %a f) = 711"),
    ("rw", "echo more >> f && sync -d f", "grep more f"),
    (
        "rw",
        "setfattr -n user.n -v 1 f && sync f",
        "getfattr -n user.n f",
    ),
    (
        "rw",
        "fallocate -l 9000 f && sync -d f",
        "test $(stat -c %s f) = 9000",
    ),
];

/// The defects: a fallocate of a file that was opened with O_SYNC was lost, and so were `chattr -v` on a synchronous mount, and a direct
/// write with RWF_DSYNC or RWF_SYNC.
#[test]
fn what_is_synchronous_survives_a_kill() {
    if !["setfattr", "chattr", "python3"]
        .iter()
        .all(|tool| has(tool))
    {
        return;
    }
    // With checksums nobody sets a generation.
    let Some(bed) = Bed::sized(&["-b", "1024", "-O", "^metadata_csum"], "16M") else {
        return;
    };
    let shell = |script: &str| {
        let whole = format!("cd \"$1\" && {script}");
        said("sh", &["-c", &whole, "sh", bed.at.to_str().unwrap()])
    };
    bed.mount(&[]);
    shell(BEFORE);
    bed.unmount();
    let before = bed.image.with_extension("before");
    fs::copy(&bed.image, &before).unwrap();
    for (options, command, shows) in CASES {
        fs::copy(&before, &bed.image).unwrap();
        bed.mount(&["-o", options]);
        shell(command);
        for pid in bed.processes() {
            let _gone = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
        while !bed.processes().is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
        bed.mount(&[]);
        shell(&format!(
            "{{ {shows}; }} || {{ ls -la . d e >&2; exit 1; }}"
        ));
        bed.unmount();
        bed.check();
    }
}
