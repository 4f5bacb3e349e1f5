//! Copies that fail or are interrupted, and hosts that are full or can do little.

use super::{copy, same, text};
use crate::common::{diorite, image, noise, run, scratch, skip};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Every failure of the target is told with its place, and the copy is called incomplete.
#[test]
fn a_target_that_fails_is_told() {
    let dir = scratch();
    let a = dir.path().join("a");
    fs::write(&a, noise(9 << 20, 2)).unwrap();
    let a = text(&a);
    for (fault, words) in [
        ("eio=write:1", "cannot write at byte 0: input/output error"),
        ("eio=write:4", "cannot write at byte"),
        ("nospace=write:9", "no space left"),
        (
            "cache=volatile,eio=flush:1",
            "cannot flush what was written",
        ),
        ("gone=write:1in2", "the device is gone"),
        ("eio=read:3", "cannot read at byte"),
    ] {
        let to = format!("sim:16M,{fault}");
        let ran = copy(&["--verify", &a, &to]);
        ran.failed(1, words);
        assert!(
            ran.err.contains("is not complete, do not use it"),
            "{}",
            ran.err
        );
    }
    copy(&[
        "--verify",
        &a,
        "sim:16M,cache=volatile,latency=50us,jitter=1ms",
    ])
    .ok();
}

/// A host that is full: no new file stays, and an existing one is called incomplete.
#[test]
fn a_full_host_leaves_no_new_file() {
    if !crate::common::is_root() {
        return skip("a small tmpfs needs root");
    }
    let dir = scratch();
    let at = dir.path().join("small");
    fs::create_dir(&at).unwrap();
    let mounted = xtask::run::tool("mount")
        .args(["-t", "tmpfs", "-o", "size=4M", "tmpfs"])
        .arg(&at)
        .output();
    if !mounted.is_ok_and(|o| o.status.success()) {
        return skip("a tmpfs cannot be mounted");
    }
    let _mount = crate::common::Mount(at.clone());
    let (a, b) = (dir.path().join("a"), at.join("b"));
    fs::write(&a, noise(8 << 20, 1)).unwrap();
    let ran = copy(&[&text(&a), &text(&b)]);
    ran.failed(1, "no space left");
    assert!(ran.err.contains("there is no copy"), "{}", ran.err);
    assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
    File::create(&b).unwrap().set_len(8 << 20).unwrap();
    copy(&[&text(&a), &text(&b)]).failed(1, "is not complete");
    // An image that is full.
    let img = image(dir.path(), "v.img", "4M", &["-t", "ext4"], None);
    let ran = copy(&[&text(&a), &format!("{img}:/x")]);
    ran.failed(1, "no space left");
    diorite(&["stat", &img, "/x"]).failed(1, "No such file");
    run("e2fsck", &["-fn", &img]);
}

/// SIGINT: exit code 130; no new file, whether the copy was under way or not yet.
#[test]
fn an_interrupted_copy_leaves_nothing() {
    let dir = scratch();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    fs::write(&a, noise(48 << 20, 1)).unwrap();
    let slow = "sim:64M,bandwidth=4M".to_owned();
    for (to, after) in [(slow, 300), (text(&b), 5), (text(&b), 25)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_diorite"))
            .args(["copy", "-R", "1", &text(&a), &to])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(after));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let code = child.wait().unwrap().code();
        // Too early, the signal ends the process; too late, there is a whole copy.
        assert!(matches!(code, Some(130 | 0) | None), "{code:?}");
        let left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        match code {
            Some(0) => same(&a, &b, "a copy that ended well"),
            _ => assert_eq!(left, ["a"], "{to}"),
        }
        let _ = fs::remove_file(&b);
    }
}

/// As of a process that the signal kills. Defect: 130 for all of them.
#[test]
fn the_exit_code_tells_the_signal() {
    use rustix::process::{Pid, Signal, kill_process};
    let dir = scratch();
    let new = dir.path().join("new");
    let piece = noise(1 << 20, 1);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_diorite"))
            .args(["copy", "-", &text(&new)])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        // More than a pipe holds: it reads, and looks for signals.
        pipe.write_all(&piece).unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        while pipe.write_all(&piece).is_ok() {}
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

/// Whether the process catches SIGTERM by now.
fn watches_for_sigterm(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 1 << 14 != 0)
}

/// On a file system without nameless files and without a rename that keeps what is there, as NFS. Defect: "Invalid argument".
#[test]
fn a_host_without_the_newer_calls() {
    let dir = scratch();
    let words = ["-t", "ext4", "-E", "root_owner"];
    let host = image(dir.path(), "host", "128M", &words, None);
    let at = dir.path().join("mnt");
    fs::create_dir(&at).unwrap();
    let mounted = xtask::run::tool("fuse2fs")
        .args([&host, &text(&at)])
        .args(["-o", "rw"])
        .output();
    if !mounted.is_ok_and(|ran| ran.status.success()) {
        return skip("mount with fuse2fs");
    }
    let (a, b) = (dir.path().join("a"), at.join("b"));
    fs::write(&a, noise(3 << 20, 1)).unwrap();
    let made = copy(&[&text(&a), &text(&b)]);
    let same_bytes = fs::read(&b).is_ok_and(|bytes| bytes == fs::read(&a).unwrap());
    let packed = copy(&[&text(&a), &text(&at.join("b.zst"))]);
    // The same bytes as on any host, and nothing is left of what a signal ended.
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), noise(30 << 20, 2)).unwrap();
    let import = |to: &Path| {
        let args = ["import", "-q", "--seed", "x", &text(&source), &text(to)];
        let ran = Command::new(env!("CARGO_BIN_EXE_diorite"))
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .args(args)
            .status();
        ran.unwrap().success().then(|| fs::read(to).ok()).flatten()
    };
    let [ours, theirs] = [dir.path(), &at].map(|dir| import(&dir.join("i.img")));
    let images = ours.is_some() && ours == theirs;
    let _ = fs::remove_file(at.join("i.img"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_diorite"))
        .args([
            "mkfs",
            "-q",
            "-d",
            &text(&source),
            &text(&at.join("m.img")),
            "40M",
        ])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !watches_for_sigterm(child.id()) && child.try_wait().unwrap().is_none() {}
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    let code = child.wait().unwrap().code();
    let mut names: Vec<_> = fs::read_dir(&at)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    xtask::mount::unmount(&at).unwrap();
    made.ok();
    packed.ok();
    assert!(same_bytes && images, "{same_bytes} {images}");
    assert!(matches!(code, Some(143 | 0)), "{code:?}");
    // What FUSE still has open.
    names.retain(|name| !name.to_string_lossy().starts_with(".fuse_hidden"));
    names.retain(|name| name != "m.img" || code != Some(0));
    assert_eq!(names, ["b", "b.zst", "lost+found"]);
}
