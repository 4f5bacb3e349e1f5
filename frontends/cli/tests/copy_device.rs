//! `diorite copy` over every kind of device, judged by cmp, qemu-img, stat and e2fsck, and against a model; refusals, failures, interrupts.

use crate::common::{Ran, diorite, files, image, noise, run, scratch, skip};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Random numbers by a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn seed() -> u64 {
    let told = std::env::var("DIORITE_SEED").ok();
    told.and_then(|s| s.parse().ok()).unwrap_or(3)
}

/// A sparse file of this size: data in some places, holes and written zeros between.
fn sparse(path: &Path, size: u64, dice: &mut Dice) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    for _ in 0..1 + dice.below(16) {
        let at = dice.below(size);
        let most = [700, 9000, 200_000, 1 << 20][dice.below(4) as usize];
        let len = (1 + dice.below(most)).min(size - at) as usize;
        let bytes = match dice.below(4) {
            0 => vec![0; len],
            n => noise(len, at + n),
        };
        file.write_all_at(&bytes, at).unwrap();
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn copy(args: &[&str]) -> Ran {
    diorite(&[&["copy"], args].concat())
}

fn same(a: &Path, b: &Path, what: &str) {
    assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "{what}");
}

/// Bytes with space on the host.
fn space(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Host to host, into an image, within the image, out again, each with the exact size; judged by cmp and qemu-img; holes are kept.
#[test]
fn bytes_arrive_on_every_kind_of_device() {
    let seed = seed();
    let mut dice = Dice(seed);
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    for round in 0..6 {
        let what = format!("DIORITE_SEED={seed}, round {round}");
        let size = [1, 511, 4096, 1_000_003, 12 << 20, (9 << 20) + 513][round];
        let img = image(
            dir.path(),
            "v.img",
            "96M",
            &["-t", "ext4", "-b", "1024"],
            None,
        );
        sparse(&at("a"), size, &mut dice);
        let inside = |name: &str| format!("{img}:/{name}");
        let steps = [
            (text(&at("a")), text(&at("b"))),
            (text(&at("b")), inside("x")),
            (inside("x"), inside("y")),
            (inside("y"), text(&at("c"))),
        ];
        for (from, to) in &steps {
            copy(&["--verify", from, to]).ok();
            diorite(&["compare", "-s", from, to]).ok();
        }
        for name in ["b", "c"] {
            same(&at("a"), &at(name), &what);
            run("cmp", &[at("a"), at(name)]);
            assert!(
                space(&at(name)) <= space(&at("a")) + 8192,
                "{what}: {name} is not sparse"
            );
        }
        if Command::new("qemu-img").arg("--version").output().is_ok() {
            run(
                "qemu-img",
                &[
                    "compare",
                    "-f",
                    "raw",
                    "-F",
                    "raw",
                    &text(&at("a")),
                    &text(&at("c")),
                ],
            );
        } else {
            skip("qemu-img is not installed");
        }
        run("e2fsck", &["-fn", &img]);
        let json = diorite(&["stat", "--json", &img, "/y"]).ok().text();
        let stat: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(stat["size"], size, "{what}");
        for name in ["a", "b", "c", "v.img"] {
            fs::remove_file(at(name)).unwrap();
        }
    }
}

/// A whole file system is the same one on the other side, also in a volume that is in a volume.
#[test]
fn a_file_system_is_copied_whole() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    files(
        &tree,
        &[("a", b"one"), ("d/b", &noise(700_000, 5)), ("d/e/c", b"")],
    );
    let img = image(dir.path(), "inner", "24M", &["-t", "ext4"], Some(&tree));
    let middle = image(dir.path(), "middle", "64M", &["-t", "ext4"], None);
    let outer = image(dir.path(), "outer", "128M", &["-t", "ext4"], None);
    copy(&[&middle, &format!("{outer}:/m")]).ok();
    let deep = format!("{outer}:/m:/inner");
    copy(&["--verify", &img, &deep]).ok();
    let out = dir.path().join("out");
    copy(&[&deep, out.to_str().unwrap()]).ok();
    run("e2fsck", &["-fn", out.to_str().unwrap()]);
    assert_eq!(diorite(&["cat", &deep, "/a"]).ok().out, b"one");
    copy(&[&format!("{outer}:/m"), &format!("{outer}:/m2")]).ok();
    diorite(&["compare", &format!("{outer}:/m"), &format!("{outer}:/m2")]).ok();
    for image in [&outer, &middle, &img] {
        run("e2fsck", &["-fn", image]);
    }
}

/// An existing DST is overwritten from its beginning, zeros included; what is behind stays; sizes stay.
#[test]
fn what_exists_is_overwritten_and_nothing_else() {
    let seed = seed();
    let mut dice = Dice(seed + 1);
    let dir = scratch();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    for (size, more) in [
        (4096, 0),
        (513, 1),
        (1, 9000),
        (3_000_001, 77),
        (2 << 20, 1 << 20),
        (70_000, 0),
    ] {
        for window in ["", "?sector=4096", "?offset=4K"] {
            sparse(&a, size, &mut dice);
            let offset = if window == "?offset=4K" { 4096 } else { 0 };
            let old = noise((offset + size + more) as usize, 77);
            fs::write(&b, &old).unwrap();
            let to = format!("{}{window}", text(&b));
            let done = copy(&["--verify", &text(&a), &to]);
            // A part of a file is of whole sectors.
            if done.code != Some(0) {
                assert!(
                    offset > 0 && done.err.contains("bytes, but"),
                    "{}",
                    done.err
                );
                assert!(fs::read(&b).unwrap() == old, "a refused copy wrote");
                continue;
            }
            let mut want = old;
            want[offset as usize..(offset + size) as usize].copy_from_slice(&fs::read(&a).unwrap());
            assert!(
                fs::read(&b).unwrap() == want,
                "DIORITE_SEED={seed}: {size}+{more}{window}"
            );
        }
    }
}

/// A file in an image that is too short is extended; one that is longer keeps its size and its end.
#[test]
fn files_in_images_are_extended_and_never_cut() {
    let dir = scratch();
    let img = image(
        dir.path(),
        "v.img",
        "32M",
        &["-t", "ext4", "-b", "4096"],
        None,
    );
    let (a, x) = (dir.path().join("a"), format!("{img}:/x"));
    let mut want = Vec::new();
    for (size, seed) in [(1000, 1), (70_001, 2), (50_123, 3), (70_500, 4)] {
        let bytes = noise(size, seed);
        fs::write(&a, &bytes).unwrap();
        copy(&["--verify", &text(&a), &x]).ok();
        want.resize(want.len().max(size), 0);
        want[..size].copy_from_slice(&bytes);
        assert!(diorite(&["cat", &img, "/x"]).ok().out == want, "{size}");
        run("e2fsck", &["-fn", &img]);
    }
}

/// The defect: blocks that are kept for maps were kept from a copy into a file of an image, too.
#[test]
fn a_file_in_an_image_takes_its_last_blocks() {
    let dir = scratch();
    let kind = ["-t", "ext2", "-b", "4096", "-m", "0", "-O", "extent"];
    let img = image(dir.path(), "v.img", "8M", &kind, None);
    let free = run("dumpe2fs", &["-h", &img]);
    let free = free.lines().find_map(|l| l.strip_prefix("Free blocks:"));
    let free: usize = free.unwrap().trim().parse().unwrap();
    let (a, x) = (dir.path().join("a"), format!("{img}:/x"));
    let bytes = noise((free - 8) * 4096, 5);
    fs::write(&a, &bytes).unwrap();
    copy(&["--verify", &text(&a), &x]).ok();
    assert!(diorite(&["cat", &img, "/x"]).ok().out == bytes);
    run("e2fsck", &["-fn", &img]);
}

/// Zeros in data become holes, in pieces of the size that was asked for; with 0 everything has space.
#[test]
fn zeros_become_holes_unless_told_otherwise() {
    let dir = scratch();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let mut bytes = vec![0; 4 << 20];
    bytes[..4096].fill(1);
    fs::write(&a, &bytes).unwrap();
    for (options, least, most) in [
        (&[][..], 4096, 64 << 10),
        (&["-S", "64K"], 4096, 128 << 10),
        (&["-S", "0"], 4 << 20, 5 << 20),
    ] {
        for exists in [false, true] {
            if exists {
                fs::write(&b, vec![9; 4 << 20]).unwrap();
            }
            copy(&[options, &[&text(&a), &text(&b)]].concat()).ok();
            same(&a, &b, "-S");
            assert!(
                (least..=most).contains(&space(&b)),
                "{options:?} {exists}: {}",
                space(&b)
            );
            fs::remove_file(&b).unwrap();
        }
    }
    // What was all hole has space afterwards.
    File::create(&a).unwrap().set_len(3 << 20).unwrap();
    copy(&["-S", "0", &text(&a), &text(&b)]).ok();
    assert!(space(&b) >= 3 << 20, "{}", space(&b));
}

/// Two ranges of one file that do not meet may be copied to each other.
#[test]
fn parts_of_one_disk_are_copied_to_each_other() {
    let dir = scratch();
    let disk = dir.path().join("disk");
    let bytes = noise(3 << 20, 6);
    fs::write(&disk, &bytes).unwrap();
    let part = |offset| format!("{}?offset={offset}&size=1M", text(&disk));
    copy(&["--verify", &part("0"), &part("2M")]).ok();
    let mut want = bytes.clone();
    want.copy_within(0..1 << 20, 2 << 20);
    assert!(fs::read(&disk).unwrap() == want);
}

/// The same device twice, overlapping ranges, one inside the other, also under other names: refused, and nothing is changed.
#[test]
fn a_copy_that_would_destroy_its_source_is_refused() {
    let dir = scratch();
    let img = image(dir.path(), "v.img", "64M", &["-t", "ext4"], None);
    let small = image(dir.path(), "small", "16M", &["-t", "ext4"], None);
    copy(&[&small, &format!("{img}:/i")]).ok();
    diorite(&["ln", &img, "/i", "/same"]).ok();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&img, &link).unwrap();
    let hard = dir.path().join("hard");
    fs::hard_link(&img, &hard).unwrap();
    let (link, hard) = (text(&link), text(&hard));
    let before = fs::read(&img).unwrap();
    for (from, to, words) in [
        (img.clone(), img.clone(), "they are the same device"),
        (img.clone(), link.clone(), "they are the same device"),
        (hard.clone(), img.clone(), "they are the same device"),
        (
            img.clone(),
            format!("{link}:/new"),
            "DST is in a file of SRC",
        ),
        (format!("{hard}:/i"), img.clone(), "SRC is in a file of DST"),
        (
            format!("{img}:/i"),
            format!("{link}:/i"),
            "they are the same device",
        ),
        (
            format!("{img}:/i"),
            format!("{img}:/same"),
            "they are the same device",
        ),
        (
            format!("{img}:/i"),
            format!("{img}:/same:/new"),
            "DST is in a file of SRC",
        ),
        (
            format!("{img}:/i:/lost+found"),
            format!("{img}:/same"),
            "SRC is in a file of DST",
        ),
        (img.clone(), format!("{link}?offset=1M"), "they share bytes"),
        (
            format!("{img}?size=2M"),
            format!("{img}?offset=1M&size=2M"),
            "they share bytes",
        ),
    ] {
        let ran = copy(&[&from, &to]);
        ran.failed(1, words);
        assert!(ran.err.contains("nothing was changed"), "{}", ran.err);
        // A volume that is opened for writing may note that in its superblock, and closes clean.
        if !to.contains(":/") {
            assert!(fs::read(&img).unwrap() == before, "{from} {to}");
        }
    }
    run("e2fsck", &["-fn", &img]);
    assert!(diorite(&["compare", &small, &format!("{img}:/i")]).code == Some(0));
}

#[test]
fn what_cannot_be_a_target_is_refused() {
    let dir = scratch();
    let a = dir.path().join("a");
    fs::write(&a, noise(10_000, 1)).unwrap();
    let (a, b) = (text(&a), text(&dir.path().join("b")));
    let img = image(dir.path(), "v.img", "8M", &["-t", "ext4"], None);
    copy(&[&a, "mem:4K"]).failed(1, "it has 4096 bytes, but");
    copy(&[&a, &format!("{b}?offset=1M")]).failed(1, "a file to be created has no parameters");
    copy(&["-n", &a, &b]).failed(1, "No such file");
    copy(&["-n", &a, &format!("{img}:/new")]).failed(1, "No such file");
    copy(&[&a, &format!("{img}:/lost+found")]).failed(1, "");
    copy(&[&a, &format!("{img}:/no/such")]).failed(1, "No such file");
    copy(&[&a, &format!("{img}:/new?part=1")]).failed(1, "");
    copy(&[&a, dir.path().to_str().unwrap()]).failed(1, "it is a directory");
    copy(&[&a, &text(&dir.path().join("no/b"))]).failed(1, "No such file");
    copy(&[&text(&dir.path().join("no")), &b]).failed(1, "No such file");
    copy(&[&a, &format!("{img}?ro")]).failed(1, "cannot");
    let dangling = dir.path().join("dangling");
    std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
    copy(&[&a, &text(&dangling)]).failed(1, "No such file");
    assert!(!Path::new(&b).exists());
    run("e2fsck", &["-fn", &img]);
}

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

#[test]
fn facts_are_json_and_modes_follow_the_umask() {
    let dir = scratch();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let file = File::create(&a).unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(&[1; 4096], 8192).unwrap();
    let said = copy(&["--json", "--verify", &text(&a), &text(&b)])
        .ok()
        .text();
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&json["size"], &json["data"]),
        (&(1 << 20).into(), &4096.into())
    );
    assert_eq!(
        (&json["created"], &json["verified"]),
        (&true.into(), &true.into())
    );
    // What this process creates has the same mode.
    let want = fs::metadata(&a).unwrap().mode();
    assert_eq!(fs::metadata(&b).unwrap().mode(), want);
    let verbose = copy(&["-v", &text(&a), &text(&b)]).ok().text();
    assert!(verbose.contains("1048576 bytes, 4096 of them"), "{verbose}");
    assert_eq!(copy(&[&text(&a), &text(&b)]).ok().text(), "");
    diorite(&["copy", &text(&a)]).failed(2, "");
}

/// A file that another process has open as an image, with QEMU's locks, is not written to unless told to.
#[test]
fn locks_are_respected() {
    let dir = scratch();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    fs::write(&a, noise(1 << 20, 1)).unwrap();
    fs::write(&b, vec![5; 1 << 20]).unwrap();
    let _held = diorite_block::FileDevice::open(&diorite_block::FileOptions {
        path: b.clone(),
        ..diorite_block::FileOptions::default()
    })
    .unwrap();
    copy(&[&text(&a), &text(&b)]).failed(1, "cannot be opened for writing");
    assert!(fs::read(&b).unwrap() == vec![5; 1 << 20]);
    copy(&["--ignore-lock", &text(&a), &text(&b)]).ok();
    same(&a, &b, "--ignore-lock");
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
